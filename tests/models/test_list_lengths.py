"""However long a list is asked for, it has a slot for each item at most, and costs no more than that."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from fairmf import IALS, Interactions, evaluate, split_by_user
from fairmf.errors import InvalidParameter
from fairmf.metrics.retrieval import evaluate_retrieval
from fairmf.ranking.fairrec import fair_rec

USERS, ITEMS = 40, 50
DATA = Interactions.from_csr(sp.random(USERS, ITEMS, density=0.2, format="csr", random_state=0) > 0)
MODEL = IALS(factors=4, epochs=1).fit(DATA)
TOO_LONG = [10**8, 2**31, 2**63, 10**30]
NO_LENGTH = [-1, 0, True, 1.5, np.float64(3), "5", None, float("nan")]


def ann():
    pytest.importorskip("faiss")
    return MODEL.with_ann()


# Each makes lists of N and gives their shape, or the number of rows where lists are a table.
CALLS = {
    "one user": lambda N: MODEL.recommend(0, N=N)[0].shape,
    "some users": lambda N: MODEL.recommend([0, 1, 2], N=N, items=[3, 4])[0].shape,
    "batches": lambda N: next(MODEL.recommend_batches(N=N, progress=False)).ids.shape,
    "table": lambda N: MODEL.recommend_table(N=N, filter_already_liked_items=False, progress=False).num_rows,
    "rank": lambda N: next(MODEL.rank(DATA, N))[1].shape,
    "similar items": lambda N: MODEL.similar_items([0, 1], N=N)[0].shape,
    "similar users": lambda N: MODEL.similar_users([0, 1], N=N)[0].shape,
    "FairRec": lambda N: MODEL.recommend_fairly(N=N).ids.shape,
    "FairRec's rank": lambda N: next(MODEL.with_fairrec(0.5).rank(DATA, N))[1].shape,
    "FairRec with its own K": lambda N: next(MODEL.with_fairrec(0.5, K=N).rank(DATA, 7))[1].shape,
    "FairRec on arrays": lambda N: fair_rec(MODEL.user_factors, MODEL.item_factors, N, 0.5).items.shape,
    "index": lambda N: ann().index.search(MODEL.user_factors, N)[0].shape,
    "model through its index": lambda N: ann().recommend([0, 1], N=N)[0].shape,
    "rank through its index": lambda N: next(ann().rank(DATA, N))[1].shape,
}
SHAPES = {
    "one user": (ITEMS,), "some users": (3, ITEMS), "table": USERS * ITEMS, "similar items": (2, ITEMS),
    "similar users": (2, USERS), "FairRec with its own K": (USERS, 7), "model through its index": (2, ITEMS),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_list_has_a_slot_for_each_item_at_most(call):
    CALLS[call](8)  # what is imported and compiled is not counted
    tracemalloc.start()
    try:
        for N in TOO_LONG:
            assert CALLS[call](N) == SHAPES.get(call, (USERS, ITEMS))
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_length_is_refused(call):
    for N in NO_LENGTH:
        if N is None and "own K" in call:  # no K: as many as are asked for
            continue
        with pytest.raises(InvalidParameter, match="must be an integer >= 1"):
            CALLS[call](N)


def test_cut_offs_beyond_the_catalogue_measure_the_whole_of_it():
    split = split_by_user(DATA, heldout=5, protocol="seeded", random_state=0)
    model = IALS(factors=4, epochs=1).fit(split.train)
    whole = evaluate(model, split.test, at=ITEMS, train=split.train, bootstrap=5).values
    tracemalloc.start()
    try:
        for K in TOO_LONG:
            found = evaluate(model, split.test, at=K, train=split.train, bootstrap=5).values
            assert {label.replace(str(K), str(ITEMS)): value for label, value in found.items()} == pytest.approx(whole)
        evaluate_retrieval(model, model, split.test, N=10**9, at=10**9, bootstrap=0)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    for K in (-1, 0, True, 1.5, "5"):
        with pytest.raises(InvalidParameter, match="integer >= 1"):
            evaluate(model, split.test, at=K)
