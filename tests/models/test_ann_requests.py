"""Requests through a nearest-neighbour index, at any evenness: exact scores, found candidates, filters."""

import numpy as np
import pytest

from fairmf import HistoryRequest, Level, synthetic
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.models.als import FairALS
from fairmf.models.ann_requests import AnnRequests

pytest.importorskip("faiss")
DATA = synthetic(400, 600, 12_000)
ITEMS = DATA.item_ids.values


@pytest.fixture(scope="module")
def model():
    return FairALS(factors=12, epochs=3).fit(DATA, progress=False)


@pytest.fixture(scope="module")
def index(model):
    return model.to_ann(groups=20, probes=5)


def histories(count, seed=0):
    rng = np.random.default_rng(seed)
    return [ITEMS[rng.choice(len(ITEMS), 4, replace=False)].tolist() for _ in range(count)]


@pytest.mark.parametrize("evenness", [None, 0.1, 0.4, 0.8])
def test_looking_at_everything_gives_the_exact_lists(model, index, evenness):
    served = AnnRequests(model, index, oversample=1000, probes=20)
    requests = [HistoryRequest(own, N=15, evenness=evenness, exclude=ITEMS[:50].tolist()) for own in histories(20)]
    for ours, theirs in zip(served.recommend_histories(requests), model.recommend_histories(requests), strict=True):
        assert ours.ids.tolist() == theirs.ids.tolist()
        assert ours.scores.tobytes() == theirs.scores.tobytes()


def recall(model, served, evenness):
    requests = [HistoryRequest(own, N=10, evenness=evenness) for own in histories(40, 1)]
    pairs = zip(served.recommend_histories(requests), model.recommend_histories(requests), strict=True)
    return np.mean([len(set(ours.ids) & set(theirs.ids)) / 10 for ours, theirs in pairs])


def test_the_shortlist_finds_what_the_index_misses(model, index):
    alone = AnnRequests(model, index, oversample=2, probes=2, shortlist=0)
    helped = AnnRequests(model, index, oversample=2, probes=2, shortlist=150)
    for evenness in (0.5, 1.0):
        assert recall(model, helped, evenness) > recall(model, alone, evenness) + 0.2
    assert recall(model, helped, None) == recall(model, alone, None)


def test_shortlists_by_hand(model, index):
    served = AnnRequests(model, index, shortlist=30)
    fitted, level = model.fitted, Level(flatten=0.5, discount=0.25)
    scores = model.user_factors.astype(float) @ model.item_factors.astype(float).T
    logs = np.log(np.maximum(DATA.by_user.column_counts(DATA.n_items), 1))
    mean, spread = scores.mean(axis=0), fitted.item_dial.floored_spread
    tails = (mean + 3 * scores.std(axis=0)) / spread**0.5
    tails -= 0.25 * fitted.item_dial.score_spread(0.5) * (logs - logs.mean())
    expected = np.sort(np.argsort(-tails)[:30])
    assert len(np.intersect1d(served.level_shortlist(level.on_items), expected)) >= 29
    assert served.level_shortlist((0.501, 0.249, 0.0)) is served.level_shortlist((0.5, 0.25, 0.0))


def test_candidates_popular_items_prices_and_errors(model, index):
    served = AnnRequests(model, index, oversample=1000, probes=20)
    own = histories(1)[0]
    requests = [
        HistoryRequest(own, N=5, candidates=ITEMS[:40].tolist()),
        HistoryRequest(N=5, evenness=0.3),
        HistoryRequest(["?"]),
        HistoryRequest(user=DATA.user_ids.values[3], N=5),
    ]
    prices = np.random.default_rng(0).normal(0, 0.05, DATA.n_items)
    ours = served.recommend_histories(requests, errors="return", prices=prices)
    theirs = model.recommend_histories(requests, errors="return", prices=prices)
    for k in (0, 1, 3):
        assert ours[k].ids.tolist() == theirs[k].ids.tolist()
    assert type(ours[2]) is type(theirs[2])
    assert served.recommend_for(own, N=3)[0].tolist() == model.recommend_for(own, N=3)[0].tolist()


def test_what_does_not_fit(model, index):
    other = FairALS(factors=12, epochs=1).fit(synthetic(50, 60, 600), progress=False)
    with pytest.raises(InvalidData, match="other items"):
        AnnRequests(other, index)
    with pytest.raises(InvalidParameter):
        AnnRequests(model, index, oversample=0.5)
    exact = FairALS(factors=4, epochs=1, backend="reference", solver="cholesky").fit(DATA, progress=False)
    with pytest.raises(InvalidData, match="cpu"):
        AnnRequests(exact, exact.to_ann())
