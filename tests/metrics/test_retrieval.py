"""Recall of exact lists, and both evaluations side by side, on lists written by hand."""

import numpy as np
import pytest
from ranked_lists import Fixed, held_out_of

from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.evaluate import evaluate_lists
from fairmf.metrics.retrieval import evaluate_retrieval

EXACT = [[0, 1, 2], [3, 4, -1], [-1, -1, -1], [5, 0, 1]]
SERVED = [[2, 0, 5], [3, -1, -1], [0, 1, 2], [1, 5, 0]]
HELD_OUT = held_out_of([{1}, {4}, set(), {5}], 6)


def test_recall_counts_what_the_exact_list_holds():
    found = evaluate_retrieval(Fixed(EXACT, 6), Fixed(SERVED, 6), HELD_OUT, N=3, at=(1, 3), bootstrap=0)
    np.testing.assert_allclose(found.per_user, [2 / 3, 1 / 2, np.nan, 1])
    assert found.recall == pytest.approx((2 / 3 + 1 / 2 + 1) / 3)
    for items, evaluation in ((EXACT, found.exact), (SERVED, found.approximate)):
        alone = evaluate_lists(np.array(items), HELD_OUT, at=(1, 3), bootstrap=0)
        assert evaluation.values == pytest.approx(alone.values, rel=0, abs=0, nan_ok=True)
    assert "gini@3" in repr(found)


def test_options_reach_both_rankers():
    rankers = Fixed(EXACT, 6), Fixed(SERVED, 6)
    evaluate_retrieval(*rankers, HELD_OUT, N=3, at=3, bootstrap=0, rank_options={"fairness": 2.0})
    assert [r.calls[0]["fairness"] for r in rankers] == [2.0, 2.0]


def test_nothing_to_find_is_nan():
    empty = Fixed([[-1]] * 4, 6)
    assert np.isnan(evaluate_retrieval(empty, empty, HELD_OUT, N=1, at=1, bootstrap=0).recall)


def test_bad_input():
    rankers = Fixed(EXACT, 6), Fixed(SERVED, 6)
    with pytest.raises(InvalidData, match="Lists of 3 items cannot be evaluated at 20"):
        evaluate_retrieval(*rankers, HELD_OUT, N=3, at=(1, 20))
    with pytest.raises(InvalidParameter, match="'N' parameter of evaluate_retrieval"):
        evaluate_retrieval(*rankers, HELD_OUT, N=0)
    with pytest.raises(InvalidData, match="A ranker knows 5 items, the held-out data 6"):
        evaluate_retrieval(Fixed(EXACT, 5), rankers[1], HELD_OUT, N=3, at=3)
    with pytest.raises(InvalidData, match="not on list"):
        evaluate_retrieval(*rankers, [], N=3, at=3)
