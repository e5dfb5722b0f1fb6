"""`recommend_for` and `recommend_histories`: a history in, a list out, each request with its own level and filters."""

import numpy as np
import pytest
from conftest import random_rows
from scipy import sparse

from fairmf import HistoryRequest, Level, load_model
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter, MissingHistories, UnknownItems
from fairmf.models.als import IALS, FairALS
from fairmf.models.fiadmm import FiADMM
from fairmf.models.popularity import Popularity

N_USERS, N_ITEMS = 60, 90
ROWS = random_rows(N_USERS, N_ITEMS)
ITEMS = np.arange(N_ITEMS) * 3 + 100
DATA = Interactions(ROWS, N_ITEMS, Ids([f"u{i}" for i in range(N_USERS)]), Ids(ITEMS))
MODELS = {
    "ials": IALS(factors=6, epochs=3),
    "fair_als": FairALS(factors=6, epochs=3, fairness=2.0),
    "balanced": FairALS(factors=6, epochs=3, item_balance=0.4, user_balance=0.3),
    "fiadmm": FiADMM(factors=6, epochs=4),
    "reference": FairALS(factors=6, epochs=3, solver="cholesky", backend="reference"),
    "popularity": Popularity(),
}
LEVELS = [
    {},
    {"evenness": 0.0},
    {"evenness": 0.35},
    {"evenness": Level(flatten=0.4)},
    {"evenness": Level(discount=0.5)},
    {"fairness": 3.0},
]


@pytest.fixture(scope="module", params=list(MODELS))
def model(request):
    return MODELS[request.param].fit(DATA)


@pytest.fixture(scope="module")
def fair():
    return FairALS(factors=6, epochs=3, fairness=2.0).fit(DATA)


def as_row(columns, weights=None):
    values = np.ones(len(columns)) if weights is None else weights
    row = sparse.csr_array((values, (np.zeros(len(columns), dtype=int), columns)), shape=(1, N_ITEMS))
    return Interactions.from_csr(row, item_ids=Ids(ITEMS), weights=None if weights is None else "values")


def names(columns):
    return ITEMS[np.asarray(columns, dtype=int)].tolist()


@pytest.mark.parametrize("options", LEVELS, ids=str)
def test_the_answer_is_that_of_recommend(model, options):
    if isinstance(model, Popularity) and "fairness" in options:
        pytest.skip("has no fairness")
    history, weights = [40, 7, 3, 66], [1.0, 2.5, 0.5, 3.0]
    for given in (None, weights):
        expected = model.recommend([0], as_row(history, given), N=12, recalculate_user=True, by="row", **options)
        ids, scores = model.recommend_for(names(history), given, N=12, **options)
        assert ids.tolist() == names(expected[0][0])
        np.testing.assert_allclose(scores, expected[1][0], rtol=2e-5, atol=1e-6)


def test_filters_candidates_and_lengths(fair):
    history, exclude, candidates = [40, 7, 3], [50, 51, 200, 7], list(range(5, 60))
    with pytest.raises(UnknownItems):
        fair.recommend_for(names(history), exclude=[ITEMS[50], 1])
    scores = fair.item_factors.astype(float) @ fair.fold_in(as_row(history))[0].astype(float)
    left = [j for j in np.argsort(-scores, kind="stable") if j in candidates and j not in {*exclude, *history}]
    ids, found = fair.recommend_for(names(history), N=80, exclude=names(exclude[:2]), candidates=names(candidates))
    assert ids.tolist() == names(left) + [-1] * (80 - len(left))
    assert np.isnan(found[len(left) :]).all()
    assert not np.isnan(found[: len(left)]).any()
    kept = fair.recommend_for(names(history), N=N_ITEMS + 5, filter_liked=False)[0]
    assert sorted(kept.tolist()) == ITEMS.tolist()
    assert (fair.recommend_for(names(history), candidates=names(history))[0] == -1).all()
    assert (fair.recommend_for(names(history), candidates=[])[0] == -1).all()


def test_many_requests_get_what_each_gets_alone(model):
    rng = np.random.default_rng(0)
    requests = []
    for k in range(40):
        history = rng.choice(N_ITEMS, size=rng.integers(0, 30), replace=False)
        requests.append(
            HistoryRequest(
                names(history),
                weights=rng.uniform(0.1, 4, len(history)) if k % 3 == 0 else None,
                N=int(rng.integers(1, 30)),
                evenness=None if k % 4 == 0 else float(rng.random()),
                exclude=names(rng.choice(N_ITEMS, 10)) if k % 5 == 0 else None,
                candidates=names(rng.choice(N_ITEMS, 40)) if k % 7 == 0 else None,
                filter_liked=k % 2 == 0,
                user=None,
            )
        )
    together = model.recommend_histories(requests)
    for request, answer in zip(requests, together, strict=True):
        alone = model.recommend_histories([request])[0]
        assert answer.ids.tolist() == alone.ids.tolist()
        assert answer.scores.tobytes() == alone.scores.tobytes()
        assert answer.level == alone.level
        assert answer.popular == (len(request.items) == 0)


def test_unknown_items_are_named_or_left_out(fair):
    with pytest.raises(UnknownItems, match="'film', 7") as raised:
        fair.recommend_for([ITEMS[3], "film", 7, "film", ITEMS[4]])
    assert raised.value.unknown == ("film", 7)
    asked = HistoryRequest([ITEMS[3], "film", 7, ITEMS[4]], weights=[1, 9, 9, 2], unknown="skip", exclude=[8])
    answer = fair.recommend_histories([asked])[0]
    assert answer.unknown == ("film", 7, 8)
    expected = fair.recommend_for(names([3, 4]), weights=[1, 2])
    assert answer.ids.tolist() == expected[0].tolist()
    assert answer.scores.tobytes() == expected[1].tobytes()
    all_unknown = fair.recommend_histories([HistoryRequest(["film"], unknown="skip")])[0]
    assert all_unknown.popular


def test_without_a_history_popular_items_evened(model):
    counts = DATA.by_item.sums()
    expected = sorted(range(N_ITEMS), key=lambda j: (-counts[j], j))
    ids, scores = model.recommend_for([], N=15)
    assert ids.tolist() == names(expected[:15])
    assert np.isnan(scores).all()
    barred = names(expected[:4])
    assert model.recommend_for([], N=5, exclude=barred)[0].tolist() == names(expected[4:9])
    assert model.recommend_for([], N=3, candidates=names(expected[50:]))[0].tolist() == names(expected[50:53])
    popularity = [counts[(model.recommend_for([], N=15, evenness=e)[0] - 100) // 3].mean() for e in (0, 0.5, 1)]
    assert popularity[0] == counts[expected[:15]].mean()
    assert popularity[0] >= popularity[1] >= popularity[2]
    assert popularity[0] > popularity[2] or isinstance(model, Popularity)


@pytest.mark.parametrize("history", [[], ITEMS[:3]], ids=["no history", "a history"])
@pytest.mark.parametrize("evenness", [None, 0.4])
def test_candidates_that_are_all_unknown_leave_every_slot_empty(model, history, evenness):
    request = HistoryRequest(history, N=5, candidates=[-7, 2], evenness=evenness, unknown="skip")
    answer = model.recommend_histories([request])[0]
    assert answer.ids.tolist() == [-1] * 5
    assert np.isnan(answer.scores).all()
    assert answer.unknown == (-7, 2)


def test_repeats_count_once_or_add_up(fair):
    once = fair.recommend_for(names([3, 7]))
    twice = fair.recommend_for(names([3, 7, 3]))
    assert once[0].tolist() == twice[0].tolist()
    added = fair.recommend_for(names([3, 7, 3]), weights=[1, 1, 2.5])
    assert added[1].tobytes() == fair.recommend_for(names([7, 3]), weights=[1, 3.5])[1].tobytes()
    assert (
        fair.recommend_for(names([3, 7]), weights=[1, 0])[1].tobytes()
        == fair.recommend_for(names([3]), filter_liked=True)[1].tobytes()
    )


def test_names_of_many_forms(fair):
    expected = fair.recommend_for(names([3, 7]))[1].tobytes()
    for form in (ITEMS[[3, 7]], set(names([3, 7])), list(ITEMS[[3, 7]]), ITEMS[[3, 7]].astype(object)):
        assert fair.recommend_for(form)[1].tobytes() == expected
    assert fair.recommend_for(int(ITEMS[3]))[0].tolist() == fair.recommend_for(names([3]))[0].tolist()
    plain = IALS(factors=4, epochs=2).fit(Interactions(ROWS, N_ITEMS))
    assert plain.recommend_for([3, 7])[0].tolist() == plain.recommend_for(np.array([7, 3]))[0].tolist()
    with pytest.raises(UnknownItems):
        plain.recommend_for([3, N_ITEMS])
    with pytest.raises(UnknownItems):
        plain.recommend_for([-1])
    with pytest.raises(InvalidData, match="row number"):
        plain.recommend_for(["a"])
    texts = Interactions(ROWS, N_ITEMS, None, Ids([(f"a{j}", j) for j in range(N_ITEMS)]))
    paired = IALS(factors=4, epochs=2).fit(texts)
    assert paired.recommend_for(("a3", 3))[0].tolist() == paired.recommend_for([("a3", 3)])[0].tolist()
    assert paired.recommend_for([("a3", 3)], candidates=[("a4", 4)], N=2)[0].tolist() == [("a4", 4), None]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"N": 0}, InvalidParameter),
        ({"evenness": 1.5}, InvalidParameter),
        ({"evenness": 0.5, "fairness": 1.0}, InvalidParameter),
        ({"fairness": -1.0}, InvalidParameter),
        ({"weights": [1.0]}, InvalidData),
        ({"weights": [1.0, np.nan]}, InvalidData),
        ({"weights": [1.0, np.inf]}, InvalidData),
        ({"unknown": "guess"}, InvalidParameter),
    ],
)
def test_wrong_arguments(fair, options, error):
    with pytest.raises(error):
        fair.recommend_for(names([3, 4]), **options)


def test_unhashable_names(fair):
    with pytest.raises(InvalidData, match="named by"):
        fair.recommend_for([[1, 2], {}])


def test_stored_users(model):
    users = ["u3", "u9", "u30"]
    requests = [HistoryRequest(user=u, N=7, evenness=e) for u, e in zip(users, (None, 0.3, 0.8), strict=True)]
    for request, answer in zip(requests, model.recommend_histories(requests), strict=True):
        expected = model.recommend(request.user, N=7, evenness=request.evenness)
        assert answer.ids.tolist() == expected[0].tolist()
        np.testing.assert_allclose(answer.scores, expected[1], rtol=1e-5)
    empty = model.recommend_histories([HistoryRequest(user="u0", N=7)])[0]
    assert empty.popular
    with pytest.raises(InvalidData, match="'nobody' is unknown"):
        model.recommend_histories([HistoryRequest(user="nobody")])
    stranger = model.recommend_histories([HistoryRequest(user="nobody", unknown="skip", N=4)])[0]
    assert stranger.unknown_user
    assert stranger.popular
    assert stranger.ids.tolist() == model.recommend_for([], N=4)[0].tolist()
    with pytest.raises(InvalidParameter, match="not both"):
        model.recommend_histories([HistoryRequest(names([3]), user="u3")])


def test_errors_in_the_place_of_answers(fair):
    requests = [HistoryRequest(names([3])), HistoryRequest(["?"]), HistoryRequest(N=-1), HistoryRequest(user="u5")]
    found = fair.recommend_histories(requests, errors="return")
    assert [type(x).__name__ for x in found] == ["HistoryAnswer", "UnknownItems", "InvalidParameter", "HistoryAnswer"]
    with pytest.raises(UnknownItems):
        fair.recommend_histories(requests)
    with pytest.raises(InvalidParameter, match="errors"):
        fair.recommend_histories(requests, errors="ignore")
    assert fair.recommend_histories([]) == []


def test_loaded_models_answer_alike(fair, tmp_path):
    for interactions in (True, False):
        fair.save(tmp_path / "model", interactions=interactions)
        for mmap in (True, False):
            loaded = load_model(tmp_path / "model", mmap=mmap)
            for options in LEVELS:
                ours = loaded.recommend_for(names([3, 7, 40]), **options)
                theirs = fair.recommend_for(names([3, 7, 40]), **options)
                assert ours[0].tolist() == theirs[0].tolist()
                assert ours[1].tobytes() == theirs[1].tobytes()
    with pytest.raises(MissingHistories):
        loaded.recommend_histories([HistoryRequest(user="u3")])
    answer = loaded.recommend_histories([HistoryRequest(user="u3", filter_liked=False)])[0]
    assert answer.ids.tolist() == fair.recommend("u3", N=20, filter_already_liked_items=False)[0].tolist()
