"""Test fits on Parquet shards with features, dislikes and half-lives against the same data read into memory."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from conftest import slow_values
from in_process import InProcess, item_products, objective_of
from test_parquet_shards import in_process, sliced, write

from fairmf import IALS, FairALS, HalfLife, evaluate, evaluate_shards, load_model, recommend_shards
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.distributed.parquet_shards import ParquetShards
from fairmf.distributed.task_pool import InProcess as Here
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.models import als_exact
from fairmf.models.fit_loop import open_setup

SETTINGS = {"factors": 5, "epochs": 6, "fairness": 0.5, "regularization": 0.03}
USERS, ITEMS = 60, 30
COLD = [f"new{k}" for k in range(4)]


def signed_events(n=1500, seed=0):
    """Every fourth event is a dislike. User u59 likes and dislikes i0 alone, so that nothing is left of them."""
    rng = np.random.default_rng(seed)
    users, items = rng.integers(0, USERS - 1, n), (ITEMS * rng.random(n) ** 2).astype(int)
    weights = rng.integers(1, 4, n) * np.where(np.arange(n) % 4 == 1, -1.0, 1.0)
    users, items = np.append(users, [USERS - 1] * 2), np.append(items, [0, 0])
    return pa.table(
        {
            "user": [f"u{k}" for k in users],
            "item": [f"i{k}" for k in items],
            "weight": np.append(weights, [2.0, -2.0]),
            "time": np.datetime64("2024-01-01", "us") + np.arange(n + 2) * np.timedelta64(3600, "s"),
        }
    )


def item_table():
    """Features of all items but i1, in another order than the data, and of items that the data do not have."""
    names = [f"i{k}" for k in range(ITEMS - 1, -1, -1) if k != 1] + COLD + ["elsewhere"]
    return pd.DataFrame(
        {"item_id": names, "genre": [["War", "Drama|War", "Comedy"][k % 3] for k in range(len(names))],
         "year": [1980 + (k * 7) % 30 for k in range(len(names))]}
    )  # fmt: skip


def user_table():
    """Features of most users, of the one whose interactions cancel, and of one whom nobody knows."""
    names = [f"u{k}" for k in range(USERS - 1, -1, -1) if k % 7] + ["stranger"]
    return pd.DataFrame({"user_id": names, "country": [["de", "fr", "jp"][k % 3] for k in range(len(names))]})


GIVEN = {
    "items": lambda: {"item_features": item_table()},
    "users": lambda: {"user_features": user_table()},
    "both": lambda: {"item_features": item_table(), "user_features": user_table()},
    "none": dict,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("features") / "data", sliced(signed_events(), 3))


@pytest.fixture(scope="module")
def catalogue(folder):
    """The items of the files, and four that have no interactions."""
    return Ids([*Interactions.from_parquet(folder).item_ids.values.tolist(), *COLD])


def in_memory(folder, catalogue, **options):
    """The same data as one matrix over the whole catalogue, made without any code of shards."""
    found = Interactions.from_parquet(folder, **options)
    matrix = found.to_csr()
    wide = sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(found.n_users, len(catalogue)))
    made = Interactions.from_csr(wide, weights="values", user_ids=found.user_ids, item_ids=catalogue)
    return made.with_weights(made.by_user.weights, found.weighting)


def fitted_on_shards(folder, catalogue, shards=3, given="both", gather=True, weights="weight", **settings):
    source = in_process(folder, shards=shards, weights=weights, items=catalogue)
    cluster = InProcess(shards=shards, gather_users=gather)
    how = SETTINGS | {"engine": "ray"} | settings
    return FairALS(**how).fit(source, cluster=cluster, progress=False, **GIVEN[given]()), source


def assert_same(model, local):
    assert objective_of(model) == pytest.approx(objective_of(local), rel=1e-4)
    for one, other in zip(model.history.records, local.history.records, strict=True):
        assert one["objective"] == pytest.approx(other["objective"], rel=2e-3, abs=1e-2)
    np.testing.assert_allclose(item_products(model), item_products(local), atol=3e-3)
    assert model.fitted.item_ids == local.fitted.item_ids
    np.testing.assert_allclose(model.fitted.popularity, local.fitted.popularity, rtol=1e-6)
    np.testing.assert_array_equal(model.fitted.item_dial.counts, local.fitted.item_dial.counts)
    np.testing.assert_allclose(model.fitted.item_dial.spread, local.fitted.item_dial.spread, rtol=0.05, atol=2e-3)
    if local.fitted.weighting is not None:
        assert model.fitted.weighting.how == local.fitted.weighting.how
        np.testing.assert_array_equal(model.fitted.weighting.item_counts, local.fitted.weighting.item_counts)
        assert model.fitted.weighting.norm == pytest.approx(local.fitted.weighting.norm, rel=1e-9)


@pytest.mark.parametrize("backend", ["cpu", *slow_values("reference")])
@pytest.mark.parametrize("shards", [3, *slow_values(1, 2, 5)])
@pytest.mark.parametrize("given", ["items", "users", "both", "none"])
def test_the_fit_is_that_of_the_data_in_memory(folder, catalogue, given, shards, backend):
    model, source = fitted_on_shards(folder, catalogue, shards, given, backend=backend)
    data = in_memory(folder, catalogue, weights="weight")
    assert source.n_dislikes == data.n_dislikes > 100
    local = FairALS(**SETTINGS, backend=backend).fit(data, progress=False, **GIVEN[given]())
    assert_same(model, local)
    scores, expected = (m.user_factors @ m.item_factors.T for m in (model, local))
    np.testing.assert_allclose(scores, expected, atol=5e-3)
    plain = FairALS(**SETTINGS).fit(data.liked(), progress=False)
    assert np.abs(scores - plain.user_factors @ plain.item_factors.T).max() > 0.02  # what is tested matters
    assert model.fitted.user_ids == data.user_ids
    for side in ("item_features", "user_features"):
        mine, own = getattr(model.fitted, side), getattr(local.fitted, side)
        assert (mine is None) == (own is None)
        if own is not None:
            assert mine.names == own.names
            np.testing.assert_array_equal(mine.counted, own.counted)
            np.testing.assert_array_equal(mine.rows.indices, own.rows.indices)
            assert not mine.counted.all()  # some are left out, and get what their features predict


def test_balanced_confidences_and_fairness_weights_know_items_that_are_left_out(folder, catalogue):
    settings = SETTINGS | {"item_balance": 0.4, "user_balance": 0.2}
    weights = {"i0": 3.0, COLD[0]: 0.5}
    data = in_memory(folder, catalogue, weights="weight")
    local = FairALS(**settings).fit(data, fairness_weights=weights, progress=False, **GIVEN["both"]())
    source = in_process(folder, shards=2, weights="weight", items=catalogue)
    model = FairALS(**settings, engine="ray").fit(
        source, cluster=InProcess(shards=2), fairness_weights=weights, progress=False, **GIVEN["both"]()
    )
    assert_same(model, local)
    np.testing.assert_array_equal(model.fitted.fairness_weights, local.fitted.fairness_weights)
    assert len(model.fitted.fairness_weights) == len(catalogue)


def test_the_number_of_shards_changes_no_more_than_the_order_of_sums_and_a_repeated_fit_nothing(folder, catalogue):
    models = [fitted_on_shards(folder, catalogue, shards)[0] for shards in (1, 2, 5, 5)]
    for model in models[1:]:
        assert objective_of(model) == pytest.approx(objective_of(models[0]), rel=1e-5)
        np.testing.assert_allclose(item_products(model), item_products(models[0]), atol=1e-3)
    np.testing.assert_array_equal(models[3].item_factors, models[2].item_factors)
    np.testing.assert_array_equal(models[3].user_factors, models[2].user_factors)


def test_items_without_interactions_are_served_from_their_features(folder, catalogue):
    model, _ = fitted_on_shards(folder, catalogue, given="items")
    cold = [catalogue.position(name) for name in COLD]
    side = model.fitted.item_features
    assert np.flatnonzero(~side.counted).tolist() == cold
    np.testing.assert_allclose(model.item_factors[cold], side.predicted()[cold], rtol=1e-5)
    table = item_table().set_index("item_id").loc[COLD].reset_index()
    np.testing.assert_allclose(model.item_factors[cold], model.predict_items(table), rtol=1e-5)
    assert np.abs(model.item_factors[cold]).max() > 0.01


def test_one_epoch_with_exact_steps_has_the_terms_of_features_and_dislikes(folder, catalogue):
    """Epochs whose F rises are solved exactly: over shards too, the users' own right-hand sides must be in it."""
    found = {}
    for name, data, cluster in (
        ("shards", in_process(folder, shards=2, weights="weight", items=catalogue), InProcess(shards=2)),
        ("memory", in_memory(folder, catalogue, weights="weight"), None),
    ):
        model = FairALS(**SETTINGS, engine="local" if cluster is None else "ray")
        with open_setup(model, model.get_params(), data, None, cluster, item_table(), user_table()) as setup:
            state = model.start(setup.problem, *model._initial_factors(setup.problem, None, setup.features))
            for _ in range(3):
                state = als_exact.epoch(setup.problem, state, model.fairness)
            found[name] = state.objective.to_dict()
    assert found["shards"] == pytest.approx(found["memory"], rel=1e-4)


def test_a_worker_that_is_lost_gets_everything_back(folder, catalogue):
    source = in_process(folder, shards=2, weights="weight", items=catalogue)
    settings = SETTINGS | {"item_balance": 0.3, "engine": "ray", "epochs": 10}
    first = InProcess(shards=2)
    whole = FairALS(**settings).fit(source, cluster=first, progress=False, **GIVEN["both"]())
    for late in (12, first.teams[0].exchanges // 2):
        cluster = InProcess(shards=2, loses={first.teams[0].exchanges - late: 1})
        broken = FairALS(**settings).fit(source, cluster=cluster, progress=False, **GIVEN["both"]())
        assert cluster.teams[0].replaced == 1
        assert objective_of(broken) == pytest.approx(objective_of(whole), rel=1e-3)


@pytest.mark.parametrize("weights", [None, "sum", "weight"])
def test_a_half_life_is_that_of_the_data_in_memory(folder, weights):
    decay = HalfLife(10)
    data = Interactions.from_parquet(folder, weights=weights, half_life=decay)
    local = FairALS(**SETTINGS).fit(data, progress=False)
    source = in_process(folder, shards=2, weights=weights, half_life=decay)
    model = FairALS(**SETTINGS, engine="ray").fit(source, cluster=InProcess(shards=2), progress=False)
    assert objective_of(model) == pytest.approx(objective_of(local), rel=1e-4)
    np.testing.assert_allclose(item_products(model), item_products(local), atol=3e-3)
    assert model.fitted.weighting.inner == local.fitted.weighting.inner == data.weighting
    assert model.fitted.weighting.inner.as_of == data.weighting.as_of


# -- lists and metrics over shards -------------------------------------------------------------------------------------


def lists_of(folder, done):
    tables = [pq.read_table(folder / name) for name in done.files]
    return sorted((row["user"], row["rank"], row["item"]) for row in pa.concat_tables(tables).to_pylist())


@pytest.mark.parametrize("gather", [True, False])
def test_lists_and_metrics_are_those_of_the_whole(folder, catalogue, tmp_path, gather):
    model, source = fitted_on_shards(folder, catalogue, gather=gather)
    assert (model.n_users > 0) == gather
    given = {} if gather else {"user_features": user_table()}
    done = recommend_shards(model, source, tmp_path / "lists", N=6, evenness=0.3, tasks=Here(), **given)
    # The oracle: the same item vectors, with the users of the whole folded in here.
    data = in_memory(folder, catalogue, weights="weight")
    local = FairALS(**SETTINGS).fit(data, progress=False, **GIVEN["both"]())
    shown = local.recommend_table(None, 6, evenness=0.3)
    expected = sorted((row["user"], row["rank"], row["item"]) for row in shown.to_pylist())
    found = lists_of(tmp_path / "lists", done)
    assert len(found) == len(expected) == 6 * USERS
    assert len(set(found) & set(expected)) >= 0.97 * len(expected)  # near ties may fall either way
    emptied = {item for user, _, item in found if user == "u59"}  # no interactions: by features alone
    assert emptied == {item for user, _, item in expected if user == "u59"}

    new = signed_events(5).set_column(1, "item", pa.array([COLD[k % 3] for k in range(7)]))
    targets = write(tmp_path / "later", [signed_events(200, seed=5), new])
    later = in_process(targets, shards=3, weights="weight", items=catalogue)
    metrics = evaluate_shards(model, source, later, at=5, train=source, tasks=Here(), **given)
    held = Interactions.from_parquet(targets, weights="weight")
    wanted = np.zeros((data.n_users, len(catalogue)), dtype=np.float32)
    for i, j, w in zip(*held.to_csr().nonzero(), held.to_csr().data, strict=True):
        user, item = held.user_ids.values[i], held.item_ids.values[j]
        wanted[data.user_ids.position(user), catalogue.position(item)] = w
    wanted[data.to_csr().toarray() != 0] = 0
    goal = Interactions.from_csr(sp.csr_array(wanted), weights="values", user_ids=data.user_ids, item_ids=catalogue)
    whole = evaluate(local, HeldOut(data, goal.liked(), known_users=True), at=5, train=data)
    for name in ("ndcg@5", "recall@5", "gini@5", "cold_share@5", "cold_recall@5"):
        assert metrics[name] == pytest.approx(whole[name], abs=0.02), name
    assert metrics.n_cold == whole.n_cold == len(COLD)


def test_a_model_of_shards_survives_its_file_and_takes_features_of_new_users(folder, catalogue, tmp_path):
    model, _ = fitted_on_shards(folder, catalogue, gather=False)
    model.save(tmp_path / "model.fairmf")
    again = load_model(tmp_path / "model.fairmf")
    new = pd.DataFrame({"user_id": ["visitor"], "country": ["jp"]})
    np.testing.assert_array_equal(again.predict_users(new), model.predict_users(new))
    history = sp.csr_array((1, len(catalogue)), dtype=np.float32)
    np.testing.assert_allclose(again.fold_in(history, features=new), model.predict_users(new), rtol=1e-5)
    assert [row["feature"] for row in model.feature_effects("country", side="user")]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_cluster_gives_the_answer_of_one_process(folder, catalogue, tmp_path, monkeypatch):
    source = ParquetShards.read(folder, shards=2, weights="weight", items=catalogue)
    monkeypatch.setattr(ParquetShards, "load", int)  # here, where nobody may read interactions: int() of them fails
    model = FairALS(**SETTINGS, engine="ray").fit(source, progress=False, **GIVEN["both"]())
    local = FairALS(**SETTINGS).fit(in_memory(folder, catalogue, weights="weight"), progress=False, **GIVEN["both"]())
    assert_same(model, local)
    done = recommend_shards(model, source, tmp_path, N=4, user_features=user_table())
    assert done.rows == 4 * USERS
    assert done.exposure[[catalogue.position(name) for name in COLD]].sum() > 0
    found = evaluate_shards(model, source, source, at=4, train=source, user_features=user_table())
    assert found.n_users == USERS


@pytest.mark.parametrize("gather", [True, False])
def test_new_items_join_a_model_without_histories(folder, catalogue, tmp_path, gather):
    """Balanced confidences and evenness know items that come later, also where the model holds no users."""
    settings = {"item_balance": 0.3, "user_balance": 0.2}
    model, _ = fitted_on_shards(folder, catalogue, gather=gather, **settings)
    data = in_memory(folder, catalogue, weights="weight")
    local = FairALS(**SETTINGS, **settings).fit(data, progress=False, **GIVEN["both"]())
    new = pd.DataFrame({"item_id": ["later"], "genre": ["War"], "year": [1990]})
    for one in (model, local):
        one.add_items(new)
    mine, own = model.fitted.item_dial, local.fitted.item_dial
    assert mine.spread[-1] == pytest.approx(own.spread[-1], rel=0.02 if gather else 0.4)
    assert mine.log_counts[-1] == pytest.approx(own.log_counts[-1], abs=0.02 if gather else 0.5)
    history = sp.csr_array(np.eye(1, len(catalogue) + 1, len(catalogue), dtype=np.float32))  # of the new item alone
    scores, expected = (one.fold_in(history) @ one.item_factors.T for one in (model, local))
    np.testing.assert_allclose(scores, expected, atol=0.01)
    effects, exact = ({x["feature"]: x for x in one.feature_effects("genre")} for one in (model, local))
    for name, found in effects.items():
        assert found["effect"] == pytest.approx(exact[name]["effect"], abs=0.01)
        assert found["spread"] == pytest.approx(exact[name]["spread"], rel=0.05 if gather else 0.5)
    model.save(tmp_path / "model.fairmf")
    assert load_model(tmp_path / "model.fairmf").n_items == len(catalogue) + 1


class TestBadInput:
    def test_lists_say_what_they_need(self, folder, catalogue, tmp_path):
        model, source = fitted_on_shards(folder, catalogue, gather=False, epochs=1)
        with pytest.raises(InvalidParameter, match=r"holds those of no user.*user_features="):
            recommend_shards(model, source, tmp_path, tasks=Here())
        with pytest.raises(InvalidData, match=r"3 rows, but the source has 60 users"):
            recommend_shards(model, source, tmp_path, user_features=np.eye(3), tasks=Here())
        twice = pd.concat([user_table(), user_table()])
        with pytest.raises(InvalidData, match=r"'u59'.*twice|more than once|appears"):
            recommend_shards(model, source, tmp_path, user_features=twice, tasks=Here())
        plain = IALS(factors=3, epochs=1, engine="ray").fit(source, cluster=InProcess(shards=3), progress=False)
        with pytest.raises(InvalidParameter, match="fitted without user_features"):
            recommend_shards(plain, source, tmp_path, user_features=user_table(), tasks=Here())

    @pytest.mark.parametrize(
        ("given", "match"),
        [
            ({"item_features": np.eye(3)}, "item_features has 3 rows, but there are 34 items"),
            ({"user_features": np.eye(3)}, "user_features has 3 rows, but there are 60 users"),
            ({"user_features": np.full((60, 2), np.nan)}, "not finite"),
            ({"item_features": pd.concat([item_table(), item_table()])}, "more than once"),
            ({"user_features": item_table().rename(columns={"item_id": "user_id"})}, "is one of the users of the data"),
        ],
    )
    def test_features_that_do_not_fit_are_named(self, folder, catalogue, given, match):
        source = in_process(folder, shards=2, weights="weight", items=catalogue)
        with pytest.raises(InvalidData, match=match):
            FairALS(**SETTINGS, engine="ray").fit(source, cluster=InProcess(shards=2), **given)
