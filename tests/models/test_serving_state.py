"""What requests keep of a fitted model: levels that nobody asked for before, prices, threads."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import random_rows

from fairmf import HistoryRequest, Level
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData
from fairmf.models import serving_state
from fairmf.models.als import FairALS

N_ITEMS = 1300  # more than two blocks of items
DATA = Interactions(random_rows(80, N_ITEMS), N_ITEMS)


@pytest.fixture(scope="module")
def model():
    return FairALS(factors=12, epochs=2).fit(DATA, progress=False)


def by_hand(model, history, level, prices=None):
    """All scores at a level in float64, from docs/mathematics.md 10."""
    fitted, dial = model.fitted, model.fitted.item_dial
    scores = model.item_factors.astype(float) @ model.fold_in_user(history).astype(float)
    logs = np.log(np.maximum(dial.counts, 1.0))
    scores = scores / dial.floored_spread**level.flatten
    scores -= level.discount * dial.score_spread(level.flatten) * (logs - logs.mean())
    if level.lift:
        scores += level.lift * dial.score_spread(level.flatten) * fitted.item_prices
    scores = scores if prices is None else scores + prices
    scores[history] = -np.inf
    return scores


@pytest.mark.parametrize("flatten", [0.0, 0.3, 1.0, 1.9, 2.7])
@pytest.mark.parametrize("discount", [0.0, 0.4])
def test_lists_at_any_level(model, flatten, discount):
    level, history = Level(flatten=flatten, discount=discount), [3, 700, 1299]
    expected = by_hand(model, history, level)
    ids, scores = model.recommend_for(history, N=40, evenness=level)
    order = np.argsort(-expected, kind="stable")[:40]
    np.testing.assert_allclose(scores, expected[order], rtol=1e-5)
    assert ids.tolist() == order.tolist()
    chosen = np.arange(0, N_ITEMS, 3)
    among = chosen[np.argsort(-expected[chosen], kind="stable")][:10]
    assert model.recommend_for(history, N=10, evenness=level, candidates=chosen)[0].tolist() == among.tolist()


def test_equal_scores_go_to_the_lower_item(model):
    """Far more items than a list holds have the same score."""
    copy = FairALS(factors=12, epochs=2).fit(DATA, progress=False)
    copy.item_factors[:] = copy.item_factors[5]
    object.__setattr__(copy.fitted, "popularity", np.ones(N_ITEMS))
    assert copy.recommend_for([0, 1], N=300)[0].tolist() == list(range(2, 302))


def test_score_spreads_come_from_a_table(model):
    serving, dial = model.fitted.serving, model.fitted.item_dial
    assert serving._score_spread is not None
    for flatten in (0.0, 0.123, 0.9, 1.7, 2.0, 3.0):
        found = serving.strength(flatten, 0.5, 0.0)
        assert found[1] == pytest.approx(0.5 * dial.score_spread(flatten), rel=1e-9)
        largest = np.linalg.norm(model.item_factors.astype(float) / dial.floored_spread[:, None] ** flatten, axis=1)
        assert found[3] >= largest.max() * (1 - 1e-6)


def test_recent_levels_are_kept_and_bounded(model):
    for evenness in np.linspace(0, 1, 2 * serving_state.LEVELS_KEPT):
        model.fitted.serving.strength(float(evenness), float(evenness), 0.0)
    assert len(model.fitted.serving._kept) <= serving_state.LEVELS_KEPT


def test_prices_are_added_to_scores(model):
    rng = np.random.default_rng(0)
    prices, history = rng.normal(0, 0.2, N_ITEMS), [3, 700]
    for level in (Level(), Level(flatten=0.5, discount=0.3)):
        expected = by_hand(model, history, level, prices)
        order = np.argsort(-expected, kind="stable")[:15]
        answer = model.recommend_histories([HistoryRequest(history, N=15, evenness=level)], prices=prices)[0]
        assert answer.ids.tolist() == order.tolist()
        np.testing.assert_allclose(answer.scores, expected[order], rtol=1e-5)
    lifted = np.zeros(N_ITEMS)
    lifted[77] = 1e6
    assert model.recommend_histories([HistoryRequest()], prices=lifted)[0].ids[0] == 77
    with pytest.raises(InvalidData, match="one per item"):
        model.recommend_histories([HistoryRequest([3])], prices=[1.0])


def test_threads_and_copies_answer_alike(model):
    requests = [HistoryRequest([k, k + 5], evenness=k / 40, N=10) for k in range(40)]
    expected = [answer.scores.tobytes() for answer in model.recommend_histories(requests)]
    copy = pickle.loads(pickle.dumps(model))
    with ThreadPoolExecutor(4) as pool:
        for asked in (model, copy):
            found = list(pool.map(lambda one, asked=asked: asked.recommend_histories([one])[0], requests))
            assert [answer.scores.tobytes() for answer in found] == expected
