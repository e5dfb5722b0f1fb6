"""Properties of `recommend` over random shapes, filters and kinds of input, against a naive sort of every score."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import BACKENDS
from hypothesis import HealthCheck, given, settings

from fairmf.data.csr import Rows
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.models.als import IALS
from fairmf.models.fitted import Fitted, History

MATRICES = {
    "csr_matrix": sp.csr_matrix,
    "csr_array": sp.csr_array,
    "int64 indices": lambda a: _wide(a),
    "coo": sp.coo_matrix,
    "Interactions": lambda a: Interactions.from_csr(sp.csr_array(a), allow_empty=True),
}


def _wide(a):
    wide = sp.csr_array(a)
    wide.indptr, wide.indices = wide.indptr.astype(np.int64), wide.indices.astype(np.int64)
    return wide


@st.composite
def cases(draw):
    n, m, d = draw(st.integers(1, 40)), draw(st.integers(1, 30)), draw(st.integers(1, 4))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    liked = generator.random((n, m)) < draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    return {
        "liked": liked,
        # Small integers: scores are exact in float32 and tie often.
        "U": generator.integers(-2, 3, size=(n, d)).astype(np.float32),
        "V": generator.integers(-2, 3, size=(m, d)).astype(np.float32),
        "named": draw(st.booleans()),
        "by": draw(st.sampled_from(["id", "row"])),
        "N": draw(st.integers(1, m + 5)),
        "asked": generator.permutation(n)[: draw(st.integers(0, n))],
        "filter_liked": draw(st.booleans()),
        "everyone": draw(st.none() | st.lists(st.integers(0, m - 1), max_size=5)),
        "each": generator.random((n, m)) < 0.2 if draw(st.booleans()) else None,
        "each_as": draw(st.sampled_from(["lists", *MATRICES])),
        "items": draw(st.none() | st.lists(st.integers(0, m - 1), max_size=12)),
        "user_items": draw(st.none() | st.sampled_from(sorted(MATRICES))),
    }


def model_of(case, backend):
    """A model with these factors, as if it had been fitted."""
    n, m = case["liked"].shape
    rows = Rows(np.append(0, case["liked"].sum(axis=1).cumsum()), np.nonzero(case["liked"])[1].astype(np.int32), None)
    names = (Ids([f"u{i}" for i in range(n)]), Ids([f"i{j}" for j in range(m)])) if case["named"] else (None, None)
    data = Interactions(rows, m, *names)
    model = IALS(backend=backend)
    model._fitted = Fitted(
        user_factors=case["U"], item_factors=case["V"], user_ids=names[0], item_ids=names[1],
        popularity=case["liked"].sum(axis=0).astype(float), mean_user=case["U"].mean(axis=0),
        merit=np.zeros(case["V"].shape[1]),
        trained_fairness=0.0, fairness=0.0, history=History(), settings={}, interactions=data,
    )  # fmt: skip
    return model


def expected_list(case, i):
    """Double loop over the definition: score every allowed item, sort by score and index, cut."""
    m = case["liked"].shape[1]
    has_history = case["liked"][i].any()
    ranked = []
    for j in range(m):
        if case["items"] is not None and j not in case["items"]:
            continue
        if case["each"] is not None and case["each"][i, j]:
            continue
        if case["each"] is None and case["everyone"] is not None and j in case["everyone"]:
            continue
        if has_history and case["filter_liked"] and case["liked"][i, j]:
            continue
        score = sum(float(a) * float(b) for a, b in zip(case["U"][i], case["V"][j], strict=True))
        ranked.append((-score if has_history else -int(case["liked"][:, j].sum()), j))
    ranked.sort()
    ranked = ranked[: case["N"]]
    return [j for _, j in ranked], [-s if has_history else math.nan for s, _ in ranked]


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_agrees_with_a_naive_sort(backend, case):
    model = model_of(case, backend)
    speaks_ids = case["named"] and case["by"] == "id"
    item = (lambda j: f"i{j}") if speaks_ids else int
    users = [f"u{i}" for i in case["asked"]] if speaks_ids else case["asked"]
    filter_items = None if case["everyone"] is None else [item(j) for j in case["everyone"]]
    if case["each"] is not None:
        mine = case["each"][case["asked"]]
        as_lists = case["each_as"] == "lists" and len(mine)
        filter_items = [[item(j) for j in np.flatnonzero(row)] for row in mine] if as_lists else sp.csr_array(mine)
        if not as_lists and case["each_as"] != "lists":
            filter_items = MATRICES[case["each_as"]](mine.astype(np.float32))
    liked = case["liked"][case["asked"]].astype(np.float32)
    ids, scores = model.recommend(
        users,
        None if case["user_items"] is None else MATRICES[case["user_items"]](liked),
        N=case["N"],
        filter_already_liked_items=case["filter_liked"],
        filter_items=filter_items,
        items=None if case["items"] is None else [item(j) for j in case["items"]],
        by=case["by"],
    )
    slots = min(case["N"], model.n_items)
    assert ids.shape == scores.shape == (len(case["asked"]), slots)
    assert scores.dtype == np.float32
    for row, values, i in zip(ids.tolist(), scores.tolist(), case["asked"], strict=True):
        items, expected = expected_list(case, i)
        missing = slots - len(items)
        assert row == [item(j) for j in items] + [None if speaks_ids else -1] * missing
        np.testing.assert_array_equal(values, expected + [math.nan] * missing)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(), size=st.integers(1, 9))
def test_batches_are_what_recommend_gives(backend, case, size):
    model = model_of(case, backend)
    options = {"filter_already_liked_items": case["filter_liked"], "items": None}
    if case["each"] is not None:
        options["filter_items"] = sp.csr_array(case["each"])
    whole = model.recommend(np.arange(model.n_users), N=case["N"], by="row", **options)
    parts = list(model.recommend_batches(N=case["N"], batch_size=size, by="row", progress=False, **options))
    assert [len(part.users) for part in parts[:-1]] == [size] * (len(parts) - 1)
    np.testing.assert_array_equal(np.concatenate([part.users for part in parts]), np.arange(model.n_users))
    np.testing.assert_array_equal(np.concatenate([part.ids for part in parts]), whole[0])
    np.testing.assert_array_equal(np.concatenate([part.scores for part in parts]), whole[1])
