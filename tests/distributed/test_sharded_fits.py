"""Test that fits over shards give one machine's answer, also when workers are lost; workers are in this process."""

import re

import numpy as np
import pytest
from conftest import paper_als, random_item_weights, random_rows, slow_values
from in_process import InProcess, item_products, objective_of, scores_of

from fairmf import IALS, FairALS, FiADMM, load_model, synthetic
from fairmf.backends.numpy_arrays import NumpyArrays
from fairmf.backends.registry import get_backend, what_is_missing
from fairmf.data.interactions import Interactions
from fairmf.distributed.cluster import RayCluster
from fairmf.distributed.shards import InMemoryShards, Shard
from fairmf.errors import ClusterFailed, InvalidData, InvalidParameter, MissingHistories
from fairmf.models import als_cg, als_exact
from fairmf.models.als import AlternatingModel
from fairmf.models.problem import grouped, problem_for, spread_evenly, together
from fairmf.models.shard_problem import sharded_problem

DATA = synthetic(n_users=600, n_items=250, n_interactions=6000, random_state=1)
SETTINGS = {"factors": 8, "epochs": 5}


def weighted_data():
    return Interactions(random_rows(90, 40, 0.2, weighted=True, seed=2), 40)


def ray(model=FairALS, **settings):
    return model(engine="ray", **(SETTINGS | settings))


@pytest.mark.parametrize("shards", [1, 2, 5])
@pytest.mark.parametrize("model", [paper_als, FairALS, IALS])
def test_the_answer_is_that_of_one_machine(model, shards):
    local = model(**SETTINGS).fit(DATA)
    sharded = ray(model).fit(DATA, cluster=InProcess(shards=shards))
    np.testing.assert_allclose(
        sharded.history.column("objective.total"), local.history.column("objective.total"), rtol=1e-6
    )
    np.testing.assert_allclose(scores_of(sharded), scores_of(local), atol=2e-4)
    merits = (fit.item_factors @ fit.fitted.merit for fit in (sharded, local))
    np.testing.assert_allclose(*merits, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(sharded.fitted.popularity, local.fitted.popularity)
    assert (sharded.fitted.interactions is DATA) == (model is not FairALS)  # which holds balanced ones by default
    assert sharded.fitted.interactions.fingerprint() == local.fitted.interactions.fingerprint()
    np.testing.assert_array_equal(sharded.recommend([1, 2, 3], N=5)[0], local.recommend([1, 2, 3], N=5)[0])


@pytest.mark.parametrize("fairness", [0.0, 1.0, *slow_values(30.0)])
@pytest.mark.parametrize("item_weights", [False, True])
@pytest.mark.parametrize("unobserved", [0.001, 0.2], ids=["thorough", "light"])
def test_in_float64_it_is_that_of_one_machine_to_the_last_digits(fairness, item_weights, unobserved):
    data = weighted_data()
    weights = random_item_weights(data.n_items) if item_weights else None
    settings = {
        "fairness": fairness,
        "unobserved_weight": unobserved,
        "backend": "reference",
        "epochs": 3,
        "factors": 4,
    }
    local = FairALS(**settings).fit(data, fairness_weights=weights)
    sharded = FairALS(engine="ray", **settings).fit(data, fairness_weights=weights, cluster=InProcess(shards=3))
    assert objective_of(sharded) == pytest.approx(objective_of(local), rel=1e-9)
    np.testing.assert_allclose(item_products(sharded), item_products(local), atol=1e-6)


def test_bases_are_kept_over_shards_as_on_one_machine(monkeypatch):
    """What a kept basis leaves off the diagonal counts in the residuals of users, in the workers, and of items."""
    kept, diagonalise = [], NumpyArrays.diagonalise

    def counted(*arguments):
        found = diagonalise(*arguments)
        kept.append(found.rest is not None)
        return found

    monkeypatch.setattr(NumpyArrays, "diagonalise", counted)
    monkeypatch.setattr(als_cg, "MANY_FACTORS", 1)
    monkeypatch.setattr(als_cg, "FEW_ROWS", 100)
    fits = []
    for end in ({}, {"engine": "ray"}):
        model = FairALS(factors=16, epochs=8, fairness=1.0, **end)
        fits.append(model.fit(DATA, **({"cluster": InProcess(shards=3)} if end else {})))
    assert kept[: len(kept) // 2] == kept[len(kept) // 2 :]
    assert sum(kept) > 8
    local, sharded = fits
    np.testing.assert_allclose(
        sharded.history.column("objective.total"), local.history.column("objective.total"), rtol=1e-6
    )
    np.testing.assert_allclose(scores_of(sharded), scores_of(local), atol=2e-4)


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_the_start_has_the_same_bits_as_on_one_machine(shards):
    settings = {"regularization": 0.1, "regularization_exponent": 1.0, "unobserved_weight": 0.1}
    cpu, local = get_backend("cpu"), problem_for(DATA, 0.0, {**settings, "backend": "cpu"})
    expected = FairALS(factors=5)._initial_factors(local, None)
    with InProcess(shards=shards).team(DATA) as team:
        problem = sharded_problem(team, cpu, 0.0, settings, None, DATA)
        U, V = FairALS(factors=5)._initial_factors(problem, None)
        np.testing.assert_array_equal(problem.backend.host(U), expected[0])
        np.testing.assert_array_equal(V, expected[1])


def test_bits_are_the_same_from_run_to_run_and_for_any_number_of_threads():
    fits = [ray().fit(DATA, cluster=InProcess(shards=3, threads=threads)) for threads in (1, 1, 2)]
    for other in fits[1:]:
        np.testing.assert_array_equal(fits[0].item_factors, other.item_factors)
        np.testing.assert_array_equal(fits[0].user_factors, other.user_factors)
        assert objective_of(fits[0]) == objective_of(other)


def test_where_f_rises_the_exact_step_answers(monkeypatch):
    """The last rung of the safeguard: users by Cholesky in the workers, items by conjugate gradients to the end."""
    data = weighted_data()
    monkeypatch.setattr(
        AlternatingModel,
        "epoch",
        lambda self, problem, state: als_exact.epoch(problem, state, self.trained_fairness()),
    )
    settings = {"backend": "reference", "epochs": 2, "factors": 4}
    local = FairALS(**settings).fit(data)
    sharded = FairALS(engine="ray", **settings).fit(data, cluster=InProcess(shards=3))
    np.testing.assert_allclose(item_products(sharded), item_products(local), atol=1e-8)


def test_a_start_that_is_given_is_used():
    first = FairALS(**SETTINGS).fit(DATA)
    local = FairALS(**SETTINGS).fit(DATA, init=first)
    sharded = ray().fit(DATA, init=first, cluster=InProcess(shards=3))
    assert sharded.history.column("objective.total") == pytest.approx(local.history.column("objective.total"), rel=1e-6)


# -- workers that die -------------------------------------------------------------------------------------------------


# A worker that takes over makes its users to convergence: the fit is then a little ahead of one that lost nobody, by
# some of what is left to converge. So F is compared closely only after many epochs.


@pytest.mark.parametrize("fairness", [0.0, 1.0])
@pytest.mark.slow
def test_a_worker_may_die_at_any_moment(fairness):
    """Three epochs: the first, one from a state as any other, and the last."""
    cluster = InProcess(shards=3)
    expected = objective_of(ray(fairness=fairness, epochs=3).fit(DATA, cluster=cluster))
    exchanges = cluster.teams[-1].exchanges
    for moment in range(1, exchanges + 1):
        cluster = InProcess(shards=3, loses={moment: moment % 3})
        model = ray(fairness=fairness, epochs=3).fit(DATA, cluster=cluster)
        assert cluster.teams[-1].replaced == 1
        # The shard that is made again is solved once more than the others: F may end lower, never much higher.
        assert expected * (1 - 0.02) < objective_of(model) < expected * (1 + 1e-3), f"lost before exchange {moment}"


@pytest.fixture(scope="module")
def end():
    """F after 150 epochs in which nobody was lost."""
    return objective_of(ray(epochs=150).fit(DATA, cluster=InProcess(shards=3)))


@pytest.mark.parametrize("moment", [200, *slow_values(1, 30, 90, 400)])
def test_a_fit_that_lost_a_worker_ends_at_the_same_objective(moment, end):
    cluster = InProcess(shards=3, loses={moment: moment % 3})
    assert objective_of(ray(epochs=150).fit(DATA, cluster=cluster)) == pytest.approx(end, rel=1e-4)
    assert cluster.teams[-1].replaced == 1


def test_workers_may_die_while_others_are_being_replaced(end):
    cluster = InProcess(shards=3, loses={40: 0, 41: 1, 42: 2, 43: 1, 44: 1, 45: 0, 60: 0})
    model = ray(epochs=150).fit(DATA, cluster=cluster)
    assert cluster.teams[-1].replaced == 7
    assert objective_of(model) == pytest.approx(end, rel=1e-4)


def test_a_cluster_that_loses_workers_faster_than_it_gets_anything_done_is_an_error():
    cluster = InProcess(shards=2, loses=dict.fromkeys(range(30, 2000), 0))
    with pytest.raises(ClusterFailed, match="lost 10 times in a row, the last time because shard 0 is gone"):
        ray().fit(DATA, cluster=cluster)


def test_workers_forget_what_nobody_refers_to():
    cluster = InProcess(shards=2)

    class Count:
        most = 0

        def on_epoch(self, progress):
            team = cluster.teams[-1]
            team.ask("vector_sum", "sums")  # what was forgotten goes along with the next question
            self.most = max(self.most, *(len(worker.factors) for worker in team.workers.values()))

    counting = Count()
    ray(epochs=10).fit(DATA, cluster=cluster, callbacks=[counting])
    assert 1 <= counting.most <= 3  # before and after the epoch, and the start


def test_workers_that_outlive_a_loss_keep_factors_and_no_half_made_sums():
    cluster = InProcess(shards=2)

    class Retain:
        def on_epoch(self, progress):
            for worker in cluster.teams[-1].workers.values():
                worker.partials["of an exchange that broke off"] = np.zeros((3, 2))
                keys = list(worker.factors)
                assert worker.retain([*keys, "never made"]) == ["never made"]
                assert list(worker.factors) == keys
                assert not worker.partials

    ray(epochs=2).fit(DATA, cluster=cluster, callbacks=[Retain()])


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_resumed_fit_ends_with_the_same_bits(tmp_path):
    whole = ray().fit(DATA, cluster=InProcess(shards=2))
    ray(epochs=3).fit(DATA, cluster=InProcess(shards=2), checkpoint=tmp_path)
    resumed = ray().fit(DATA, cluster=InProcess(shards=2), checkpoint=tmp_path)
    np.testing.assert_array_equal(resumed.item_factors, whole.item_factors)
    np.testing.assert_array_equal(resumed.user_factors, whole.user_factors)
    assert [record["epoch"] for record in resumed.history.records] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("other_shards", [2, 3])
@pytest.mark.slow
def test_without_users_in_it_a_checkpoint_is_small_and_users_are_made_again(tmp_path, other_shards, end):
    source = InMemoryShards(DATA, 2)
    ray(epochs=5).fit(source, cluster=InProcess(), checkpoint=tmp_path)
    size = max(path.stat().st_size for path in tmp_path.glob("*.checkpoint"))
    assert size < 4 * 8 * (DATA.n_users + DATA.n_items), "the users are in the file"
    resumed = ray(epochs=150).fit(InMemoryShards(DATA, other_shards), cluster=InProcess(), checkpoint=tmp_path)
    assert objective_of(resumed) == pytest.approx(end, rel=1e-4)


def test_the_mean_of_users_who_may_be_made_again_is_not_carried_over(monkeypatch):
    """A wrong mean in the state must change nothing: on one machine it would move all users."""
    epoch, ends = als_cg.epoch, []

    def forgetful(problem, state, *rest):
        return als_cg.replace(epoch(problem, state, *rest), mean_user=np.full(8, 7.0))

    for start in (epoch, forgetful):
        monkeypatch.setattr(als_cg, "epoch", start)
        ends.append(ray(fairness=1.0, epochs=2).fit(DATA, cluster=InProcess(shards=2)).item_factors)
    np.testing.assert_array_equal(*ends)


def test_a_model_without_users_answers_for_those_who_are_folded_in(tmp_path):
    local = FairALS(**SETTINGS).fit(DATA)
    model = ray().fit(InMemoryShards(DATA, 3), cluster=InProcess())
    assert model.user_factors.shape == (0, 8)
    assert model.n_users == 0
    assert model.fitted.interactions is None
    histories = DATA.take_users(np.arange(4))
    np.testing.assert_allclose(model.fold_in(histories), local.fold_in(histories), atol=2e-4)
    model.save(tmp_path / "model.fairmf")
    np.testing.assert_array_equal(load_model(tmp_path / "model.fairmf").item_factors, model.item_factors)


def test_a_model_file_is_the_same_kind_of_file(tmp_path):
    model = ray().fit(DATA, cluster=InProcess(shards=2))
    model.save(tmp_path / "model.fairmf")
    again = load_model(tmp_path / "model.fairmf")
    np.testing.assert_array_equal(again.user_factors, model.user_factors)
    assert again.history.records[0]["engine"]["bytes"] == model.history.records[0]["engine"]["bytes"]


def test_a_model_without_users_says_so_where_it_needs_them():
    model = ray().fit(InMemoryShards(DATA, 3), cluster=InProcess())
    histories = DATA.take_users(np.arange(4))
    with pytest.raises(InvalidData, match="This model holds no users: give their histories"):
        model.recommend([1, 2])
    items, scores = model.recommend([0], histories.to_csr()[[0]], N=3, recalculate_user=True)
    assert items.shape == scores.shape == (1, 3)
    with pytest.raises(MissingHistories, match="holds no users, which a cohort's fold-in needs"):
        model.fold_in(histories, method="cohort")
    with pytest.raises(MissingHistories, match="holds no users, which fold_in_items needs"):
        model.fold_in_items(histories.to_csr().T)


class Interleaved(InMemoryShards):
    """Shards of every k-th user, unlike ranges: as a hash of ids would split them."""

    def load(self, number):
        users = np.arange(number, self.n_users, self.shards)
        part = self.interactions.take_users(users)
        return Shard(part.by_user, users, part.user_ids)


def test_users_may_be_in_any_shard_and_can_be_gathered_with_their_ids():
    local = FairALS(**SETTINGS).fit(DATA)
    model = ray().fit(Interleaved(DATA, 3), cluster=InProcess(gather_users=True))
    assert objective_of(model) == pytest.approx(objective_of(local), rel=1e-6)
    np.testing.assert_allclose(scores_of(model), scores_of(local), atol=2e-4)
    assert model.fitted.user_ids == DATA.user_ids
    users = DATA.user_ids.values[:3]
    np.testing.assert_array_equal(
        model.recommend(users, N=5, filter_already_liked_items=False)[0],
        local.recommend(users, N=5, filter_already_liked_items=False)[0],
    )


# -- devices ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(what_is_missing() is not None, reason=str(what_is_missing()))
@pytest.mark.parametrize("fairness", [0.0, 1.0, 30.0])
def test_cuda_workers_give_the_answer_of_one_machine(fairness):
    local = FairALS(fairness=fairness, **SETTINGS).fit(DATA)
    sharded = ray(fairness=fairness, backend="cuda").fit(DATA, cluster=InProcess(shards=3, loses={20: 1}))
    assert objective_of(sharded) == pytest.approx(objective_of(local), rel=1e-2)
    whole = ray(fairness=fairness, backend="cuda").fit(DATA, cluster=InProcess(shards=3))
    assert objective_of(whole) == pytest.approx(objective_of(local), rel=1e-4)
    assert whole.recommend([1, 2], N=5)[0].shape == (2, 5)


def test_devices_of_workers_need_none_in_the_process_that_fits():
    """Workers here stand for ones with devices; this process does its own part, and answers, with its CPU."""

    class WithDevices(InProcess):
        def team(self, data, backend="cpu", factor_dtype="float32"):
            assert backend == "cuda"
            return super().team(data, "cpu", factor_dtype)

    model = ray(backend="cuda").fit(DATA, cluster=WithDevices(shards=2))
    assert model.fitted.settings["backend"] == "cpu"
    expected = ray().fit(DATA, cluster=InProcess(shards=2))
    np.testing.assert_array_equal(model.item_factors, expected.item_factors)
    np.testing.assert_array_equal(model.recommend([1, 2], N=5)[0], expected.recommend([1, 2], N=5)[0])


# -- what is recorded, and what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(("fairness", "steps"), [(1.0, 1), (30.0, 2)])
def test_bytes_follow_the_formula_and_do_not_grow_with_users(fairness, steps):
    S, d, m = 4, 8, 250
    for users, interactions in ((600, 6000), (6000, 60000)):
        data = synthetic(n_users=users, n_items=m, n_interactions=interactions, random_state=1)
        model = ray(fairness=fairness).fit(data, cluster=InProcess(shards=S))
        for record in model.history.records[1:]:
            sent = record["engine"]["bytes"]
            assert sent["broadcast"] == S * (1 + steps) * m * d * 4
            assert sent["reduced"] == S * (steps * m * d * 4 + m * 8)
            assert sent["small"] < S * 8 * (6 * d * d + 40 * d)


def test_the_record_names_the_slowest_shard():
    record = ray().fit(DATA, cluster=InProcess(shards=3)).history.records[-1]["engine"]
    assert 0 <= record["slowest_shard"] < 3
    assert record["slowest_over_mean"] >= 1.0
    assert record["seconds"] > 0


def test_the_progress_line_shows_the_slowest_shard(capsys):
    ray().fit(DATA, cluster=InProcess(shards=3), progress=True)
    assert re.search(r"slowest shard [012]: \d\.\d\d x mean", capsys.readouterr().err.replace("\n", ""))


@pytest.mark.parametrize(
    ("model", "fit", "message"),
    [
        (FairALS(engine="ray", solver="cholesky"), {}, "engine='ray' solves rows by solver='eigenbasis_cg' alone"),
        (FairALS(engine="ray", solver="subspace"), {}, "Got solver='subspace' instead"),
        (IALS(engine="ray", regularization=0), {}, "IALS: engine='ray' needs regularization > 0. Got 0 instead"),
        (FairALS(engine="ray"), {"cluster": 4}, "cluster must be a RayCluster. Got int instead"),
        (FairALS(), {"cluster": RayCluster()}, "cluster= needs engine='ray'. Got engine='local' instead"),
        (FairALS(engine="spark"), {}, "parameter of FairALS must be 'local' or 'ray'. Got 'spark'"),
        (FiADMM(engine="ray"), {}, "The 'engine' parameter of FiADMM must be 'local'. Got 'ray' instead"),
        (FairALS(engine="ray"), {"cluster": RayCluster(shards=0)}, "parameter of RayCluster must be an integer >= 1"),
        (FairALS(engine="ray"), {"cluster": RayCluster(patience=0)}, "parameter of RayCluster must be a number > 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(model, fit, message):
    with pytest.raises(InvalidParameter, match=message.replace("(", r"\(").replace(")", r"\)")):
        model.fit(DATA, **fit)


def test_sources_need_the_engine_and_their_own_number_of_shards():
    with pytest.raises(InvalidParameter, match="Data in shards needs engine='ray'"):
        FairALS().fit(InMemoryShards(DATA, 2))
    with pytest.raises(InvalidData, match="no interactions"):
        ray().fit(Interactions.from_csr(DATA.to_csr() * 0, allow_empty=True), cluster=InProcess(shards=2))


# -- users described together -----------------------------------------------------------------------------------------


def test_groups_of_parts_are_groups_of_the_whole():
    generator = np.random.default_rng(0)
    sums = generator.integers(0, 30, 500).astype(float)

    def ridge(sums):
        return 0.1 * (sums + 3) ** 0.7

    whole = grouped(sums, ridge, 100)
    np.testing.assert_array_equal(whole.sums, np.arange(30))
    np.testing.assert_array_equal(whole.counts, [(sums == value).sum() for value in range(30)])
    parts = together([grouped(sums[a:b], ridge, 100) for a, b in ((0, 10), (10, 300), (300, 500))], 100)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other)
    merged = together([grouped(sums[:250], ridge, 100), grouped(sums[250:], ridge, 100)], 7)
    assert len(merged.sums) == 7
    assert merged.counts.sum() == 500
    assert merged.sums @ merged.counts == pytest.approx(sums.sum())


def test_a_sample_is_spread_evenly_along_the_sums():
    sums = np.random.default_rng(1).permutation(1000).astype(float)
    chosen = spread_evenly(sums, 10)
    assert sorted(sums[chosen]) == [50, 150, 250, 350, 450, 550, 650, 750, 850, 950]
    assert len(spread_evenly(sums[:3], 10)) == 3
