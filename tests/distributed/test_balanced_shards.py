"""Test that fits on data in shards balance confidences as one machine does; workers are in this process."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import slow_values
from in_process import InProcess, Mortal, item_products, objective_of
from test_parquet_shards import events, in_process, sliced, write

from fairmf import IALS, FairALS, evaluate, evaluate_shards, load_model, recommend_shards
from fairmf.backends.registry import what_is_missing
from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.data.weighting import Balance
from fairmf.distributed.costs import Sizes, memory
from fairmf.distributed.shards import InMemoryShards
from fairmf.distributed.task_pool import InProcess as Here
from fairmf.distributed.team import LocalTeam, ShardLost
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.models.evenness import Level

SETTINGS = {"factors": 4, "epochs": 4, "backend": "reference", "item_balance": 0.0, "user_balance": 0.0}
BALANCE = {"item_balance": 0.4, "user_balance": 0.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("balanced") / "data", sliced(events(700), 3))


@pytest.fixture(scope="module", params=[None, "plays"], ids=["binary", "weighted"])
def weights(request):
    return request.param


@pytest.fixture(scope="module")
def whole(folder, weights):
    return Interactions.from_parquet(folder, weights=weights)


@pytest.fixture(scope="module")
def local(whole):
    return priced(FairALS(**(SETTINGS | BALANCE)).fit(whole))


def priced(model):
    """Give a model prices, which `calibrate` would learn."""
    prices = np.random.default_rng(6).random(model.n_items)
    model._fitted = dataclasses.replace(model.fitted, item_prices=prices)
    return model


def by_hand(data, item_balance, user_balance):
    """The confidences of the formula as a dense matrix, and z."""
    raw = data.to_csr().toarray().astype(float)
    has = raw > 0
    f, a = np.maximum(has.sum(axis=0), 1), np.maximum(has.sum(axis=1), 1)
    c = raw * f[None, :] ** -item_balance * a[:, None] ** -user_balance
    z = c[has].mean() / raw[has].mean()
    return c / z, z


def weighted_by_hand(data):
    rows = data.by_user
    users = np.repeat(np.arange(data.n_users), np.diff(rows.indptr))
    weights = by_hand(data, 0.4, 0.3)[0][users, rows.indices].astype(np.float32)
    return Interactions(Rows(rows.indptr, rows.indices, weights), data.n_items, data.user_ids, data.item_ids)


def on_shards(source, model=FairALS, losses=None, fit=None, **settings):
    cluster = InProcess(loses=losses or {}, gather_users=True)
    found = model(**(SETTINGS | settings), engine="ray").fit(source, cluster=cluster, **(fit or {}))
    return found, cluster.teams[-1]


# -- the fit ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [2, *slow_values(1, 5)])
@pytest.mark.parametrize("model", [FairALS, IALS])
def test_the_fit_is_that_of_the_confidences_by_hand(folder, weights, whole, shards, model):
    expected = model(**SETTINGS).fit(weighted_by_hand(whole))
    found, _ = on_shards(in_process(folder, shards=shards, weights=weights), model, **BALANCE)
    assert objective_of(found) == pytest.approx(objective_of(expected), rel=1e-6)
    np.testing.assert_allclose(item_products(found), item_products(expected), atol=1e-5)
    counts = (whole.to_csr().toarray() > 0).sum(axis=0)
    np.testing.assert_array_equal(found.fitted.item_counts, counts)
    np.testing.assert_allclose(found.fitted.popularity, whole.to_csr().toarray().sum(axis=0))
    how = found.fitted.weighting
    assert (how.item_balance, how.user_balance, how.inner) == (0.4, 0.3, None)
    np.testing.assert_array_equal(how.item_counts, counts)
    assert how.norm == pytest.approx(by_hand(whole, 0.4, 0.3)[1], rel=1e-7)


@pytest.mark.parametrize("shards", [3, *slow_values(1, 90)])  # of 60 users: most of 90 shards have nobody
def test_the_fit_is_that_of_one_machine(folder, weights, local, shards):
    found, _ = on_shards(in_process(folder, shards=shards, weights=weights), **BALANCE)
    np.testing.assert_allclose(
        found.history.column("objective.total"), local.history.column("objective.total"), rtol=1e-9
    )
    np.testing.assert_allclose(found.item_factors, local.item_factors, atol=1e-6)
    np.testing.assert_allclose(found.user_factors, local.user_factors, atol=1e-6)
    mine, theirs = found.fitted, local.fitted
    np.testing.assert_array_equal(mine.item_counts, theirs.item_counts)
    np.testing.assert_allclose(mine.item_spread, theirs.item_spread, atol=1e-6)
    np.testing.assert_allclose(mine.popularity, theirs.popularity)
    assert mine.weighting.norm == pytest.approx(theirs.weighting.norm, rel=1e-12)


def test_shards_of_a_cache_are_balanced_alike(folder, weights, local, tmp_path):
    for _ in range(2):  # the second reading finds the shards of the first
        source = in_process(folder, shards=2, weights=weights, cache=tmp_path)
        found, _ = on_shards(source, losses={2: 1}, **BALANCE)
        np.testing.assert_allclose(found.item_factors, local.item_factors, atol=1e-6)
        np.testing.assert_array_equal(found.fitted.item_counts, local.fitted.item_counts)


@pytest.mark.parametrize("one", [{"item_balance": 0.5}, {"user_balance": 0.5}])
def test_one_balance_alone(folder, one):
    expected = FairALS(**(SETTINGS | one)).fit(Interactions.from_parquet(folder))
    found, _ = on_shards(in_process(folder, shards=2), **one)
    np.testing.assert_allclose(found.item_factors, expected.item_factors, atol=1e-6)


def test_without_balance_items_are_counted_all_the_same(folder, weights, whole):
    found, team = on_shards(in_process(folder, shards=3, weights=weights))
    np.testing.assert_array_equal(found.fitted.item_counts, (whole.to_csr().toarray() > 0).sum(axis=0))
    assert found.fitted.weighting is None
    np.testing.assert_array_equal(team.popularity, found.fitted.popularity)


def test_bits_are_the_same_from_run_to_run_and_for_any_number_of_threads(folder, weights):
    source = in_process(folder, shards=3, weights=weights)
    settings = {**SETTINGS, **BALANCE, "backend": "cpu", "engine": "ray"}
    fits = [FairALS(**settings).fit(source, cluster=InProcess(threads=threads)) for threads in (1, 1, 2)]
    for other in fits[1:]:
        np.testing.assert_array_equal(fits[0].item_factors, other.item_factors)
        assert fits[0].fitted.weighting == other.fitted.weighting


@pytest.mark.skipif(what_is_missing() is not None, reason=str(what_is_missing()))
def test_workers_with_devices_balance_alike(folder, weights, whole):
    expected = FairALS(**(SETTINGS | BALANCE | {"backend": "cpu"})).fit(whole)
    found, _ = on_shards(in_process(folder, shards=2, weights=weights), backend="cuda", **BALANCE)
    assert objective_of(found) == pytest.approx(objective_of(expected), rel=1e-4)


# -- data that are weighted already -----------------------------------------------------------------------------------


@pytest.mark.parametrize("balance", [{}, BALANCE], ids=["plain", "balanced"])
def test_the_weighting_of_the_source_stays_with_the_model(whole, balance, tmp_path):
    data = whole.reweighted("bm25")
    expected = FairALS(**(SETTINGS | balance)).fit(data)
    found, _ = on_shards(InMemoryShards(data, 3), **balance)
    np.testing.assert_allclose(found.item_factors, expected.item_factors, atol=1e-6)
    how = found.fitted.weighting
    assert (how.inner if balance else how) == data.weighting
    np.testing.assert_allclose(found.fold_in(whole), expected.user_factors, atol=1e-5)
    # Raw histories and weighted ones get the same lists.
    for name, histories in (("raw", whole), ("weighted", data)):
        recommend_shards(found, InMemoryShards(histories, 3), tmp_path / name, N=5, tasks=Here())
    assert lists_in(tmp_path / "raw").equals(lists_in(tmp_path / "weighted"))


def test_a_source_that_was_weighted_otherwise_is_refused(whole, local, tmp_path):
    with pytest.raises(InvalidData, match="weighted by 'bm25', the model's data by 'balance'"):
        recommend_shards(local, InMemoryShards(whole.reweighted("bm25"), 2), tmp_path, tasks=Here())


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_nothing_is_balanced_twice(local, engine):
    held = local.fitted.interactions
    source, options = (held, {}) if engine == "local" else (InMemoryShards(held, 2), {"cluster": InProcess()})
    with pytest.raises(InvalidData, match="These interactions are balanced already"):
        FairALS(**(SETTINGS | BALANCE), engine=engine).fit(source, **options)


# -- workers that are lost --------------------------------------------------------------------------------------------


def confidences(team, shape):
    """What the workers hold, as a dense matrix."""
    found = np.zeros(shape)
    for worker in team.workers.values():
        rows = worker.rows["rows"]
        found[np.repeat(worker.shard.users, np.diff(rows.indptr)), rows.indices] = rows.weights
    return found


class Late(LocalTeam):
    """A team whose worker 1 dies in one exchange, which the others complete: as processes of a cluster may."""

    def __init__(self, source, moment):
        super().__init__(source, "reference")
        self.moment, self.exchanges, self.replaced = moment, 0, 0

    def _exchange(self, programs, partial):
        self.exchanges += 1
        if self.exchanges != self.moment:
            return super()._exchange(programs, partial)
        self.lose(1)
        super()._exchange({shard: program for shard, program in programs.items() if shard != 1}, None)
        raise ShardLost("shard 1 is gone")

    def _replace_lost(self):
        new = super()._replace_lost()
        self.replaced += len(new)
        return new


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_whoever_is_lost_every_shard_is_balanced_once(folder, weights, whole, late):
    source = in_process(folder, shards=3, weights=weights)
    expected = by_hand(whole, 0.4, 0.3)[0]
    undisturbed = Late(source, 0)
    undisturbed.balance(0.4, 0.3)
    assert undisturbed.exchanges >= 3
    for moment in range(1, undisturbed.exchanges + 1):
        team = Late(source, moment) if late else Mortal({moment: moment % 3}, source, "reference")
        team.balance(0.4, 0.3)
        assert team.replaced == 1
        np.testing.assert_allclose(confidences(team, whole.shape), expected, rtol=1e-6)
        np.testing.assert_allclose(team.popularity, expected.sum(axis=0), rtol=1e-6)
        team.lose(1)
        assert sum(team.ask("vector_sum", "sums")) == pytest.approx(expected.sum(), rel=1e-6)
        np.testing.assert_allclose(confidences(team, whole.shape), expected, rtol=1e-6)
        team.close()


@pytest.mark.slow
def test_a_fit_that_loses_workers_ends_at_the_same_objective(folder, weights):
    source = in_process(folder, shards=3, weights=weights)
    settings = {**BALANCE, "backend": "cpu", "epochs": 120}
    undisturbed, _ = on_shards(source, **settings)
    disturbed, team = on_shards(source, losses={2: 1, 40: 0, 200: 2}, **settings)
    assert team.replaced == 3
    assert objective_of(disturbed) == pytest.approx(objective_of(undisturbed), rel=1e-4)


# -- checkpoints and files --------------------------------------------------------------------------------------------


def test_a_resumed_fit_ends_with_the_same_bits(folder, weights, tmp_path):
    source = in_process(folder, shards=2, weights=weights)
    straight, _ = on_shards(source, **BALANCE)
    on_shards(source, **BALANCE, epochs=2, fit={"checkpoint": tmp_path})
    resumed, _ = on_shards(source, **BALANCE, fit={"checkpoint": tmp_path})
    assert len(resumed.history) == 4
    np.testing.assert_array_equal(resumed.item_factors, straight.item_factors)
    np.testing.assert_array_equal(resumed.user_factors, straight.user_factors)
    assert resumed.fitted.weighting == straight.fitted.weighting
    for other in ({}, {**BALANCE, "user_balance": 0.2}):
        with pytest.raises(InvalidParameter, match=r"belongs to another fit: .*user_balance is 0\.3 there"):
            on_shards(source, **other, fit={"checkpoint": tmp_path})


@pytest.mark.slow
def test_on_other_shards_a_checkpoint_without_users_goes_on(folder, weights, tmp_path):
    settings = {**SETTINGS, **BALANCE, "backend": "cpu", "engine": "ray"}
    source, other = (in_process(folder, shards=shards, weights=weights) for shards in (2, 3))
    FairALS(**settings).fit(source, cluster=InProcess(), checkpoint=tmp_path)
    resumed = FairALS(**settings | {"epochs": 40}).fit(other, cluster=InProcess(), checkpoint=tmp_path)
    straight = FairALS(**settings | {"epochs": 40}).fit(source, cluster=InProcess())
    assert resumed.n_users == 0
    assert objective_of(resumed) == pytest.approx(objective_of(straight), rel=1e-3)


def test_raw_histories_are_folded_in_as_in_training(folder, weights, whole, local, tmp_path):
    """`fit` solves the users to convergence at its end, so that they equal their own fold-in after any epoch."""
    source = in_process(folder, shards=3, weights=weights)
    model = FairALS(**(SETTINGS | BALANCE), engine="ray").fit(source, cluster=InProcess())
    assert model.n_users == 0
    raw = Interactions(whole.by_user, whole.n_items)
    np.testing.assert_allclose(model.fold_in(raw) @ model.item_factors.T, local.user_factors @ local.item_factors.T,
                               atol=1e-4)  # fmt: skip
    model.save(tmp_path / "model.fairmf")
    again = load_model(tmp_path / "model.fairmf")
    assert isinstance(again.fitted.weighting, Balance)
    np.testing.assert_array_equal(again.fold_in(raw), model.fold_in(raw))
    np.testing.assert_array_equal(again.fitted.item_counts, model.fitted.item_counts)


# -- lists and metrics at levels of evenness --------------------------------------------------------------------------


def lists_in(folder):
    order = [("user", "ascending"), ("rank", "ascending")]
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]).sort_by(order)


def same_lists(found, expected):
    assert found.drop_columns("score").equals(expected.drop_columns("score"))
    np.testing.assert_allclose(found["score"].to_numpy(), expected["score"].to_numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("evenness", [None, 0.4, Level(3.0, 0.3, 0.2, 0.7), *slow_values(0.0, 1.0)])
@pytest.mark.parametrize("shards", [3, *slow_values(1)])
def test_lists_at_a_level_are_those_of_one_machine(folder, weights, local, tmp_path, evenness, shards):
    source = in_process(folder, shards=shards, weights=weights)
    model = priced(FairALS(**(SETTINGS | BALANCE), engine="ray").fit(source, cluster=InProcess()))
    recommend_shards(model, source, tmp_path, N=4, evenness=evenness, tasks=Here())
    order = [("user", "ascending"), ("rank", "ascending")]
    same_lists(lists_in(tmp_path), local.recommend_table(None, 4, evenness=evenness).sort_by(order))


@pytest.mark.parametrize("evenness", [None, 0.4, *slow_values(1.0, Level(3.0, 0.3, 0.2, 0.7))])
def test_metrics_at_a_level_are_those_of_one_machine(folder, weights, whole, local, tmp_path, evenness):
    source = in_process(folder, shards=3, weights=weights)
    model = priced(FairALS(**(SETTINGS | BALANCE), engine="ray").fit(source, cluster=InProcess()))
    held = write(tmp_path / "held", [events(300, seed=5)])
    targets = in_process(held, shards=3, items=source.item_ids)
    found = evaluate_shards(model, source, targets, at=4, train=source, evenness=evenness, tasks=Here())
    # By Python's sets: for every user of the history, the held-out items that are not in it.
    wanted = {user: set() for user in whole.user_ids.values}
    for row in pq.read_table(held).to_pylist():
        if row["user"] in wanted and row["item"] in whole.item_ids:
            wanted[row["user"]].add(whole.item_ids.position(row["item"]))
    lists = [sorted(wanted[user] - set(whole.by_user.row(k)[0])) for k, user in enumerate(whole.user_ids.values)]
    indptr, indices = np.cumsum([0, *map(len, lists)]), np.array([item for own in lists for item in own], np.int32)
    kept = Interactions(Rows(indptr, indices, None), whole.n_items, whole.user_ids, whole.item_ids)
    held_out = HeldOut(whole, kept, known_users=True)
    expected = evaluate(local, held_out, at=4, train=whole, evenness=evenness)
    assert found.n_scored == expected.n_scored > 20
    for label, value in expected.values.items():
        assert found[label] == pytest.approx(value, rel=1e-9), label
    np.testing.assert_array_equal(found.exposure[4], expected.exposure[4])


def test_a_model_of_an_older_file_is_dialled_by_all_of_its_users(whole, local, tmp_path):
    """Such a file has no spreads: they come from the users it holds, not from those of a shard."""
    old = FairALS(**(SETTINGS | BALANCE))
    old._fitted = dataclasses.replace(local.fitted, item_spread=None, item_counts=None)
    recommend_shards(old, InMemoryShards(Interactions(whole.by_user, whole.n_items, whole.user_ids, whole.item_ids), 3),
                     tmp_path, N=4, evenness=0.7, tasks=Here())  # fmt: skip
    order = [("user", "ascending"), ("rank", "ascending")]
    same_lists(lists_in(tmp_path), local.recommend_table(None, 4, evenness=0.7).sort_by(order))


# -- what it costs ----------------------------------------------------------------------------------------------------


def test_balancing_sends_two_numbers_per_item_and_counting_one_more(folder, weights):
    """docs/scaling.md: f_j goes out, sums of c come back; f_j is counted first where weights hide it."""
    source = in_process(folder, shards=3, weights=weights)
    with InProcess().team(source) as team:
        team.balance(0.4, 0.3)
        assert team.traffic.bytes["broadcast"] == 3 * 8 * source.n_items
        assert team.traffic.bytes["reduced"] == 3 * 8 * source.n_items * (1 if weights is None else 2)
        assert team.traffic.bytes["small"] < 3 * 200
        entries = sum(sum(part.nbytes for part in worker.rows["rows"]) for worker in team.workers.values())
    # As the cost model says: 8 bytes an entry, 8 a user; each shard has one more offset than users.
    sizes = Sizes(source.n_users, source.n_items, source.nnz, 0, shards=1, weighted=True)
    assert entries == memory(sizes).worker + 3 * 8
