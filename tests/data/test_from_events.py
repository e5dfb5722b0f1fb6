import tracemalloc

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmf.data.csr import rows_from_pairs
from fairmf.data.events import Events
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter

EVENTS = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(10, 14), st.integers(0, 3)), min_size=1, max_size=60)


def frame(events):
    return pl.DataFrame({name: [e[k] for e in events] for k, name in enumerate(("user", "item", "w"))})


def pairs_of(data):
    """{(user id, item id): weight}"""
    found = data.to_csr().tocoo()
    users, items = data.user_ids.values[found.row], data.item_ids.values[found.col]
    return dict(zip(zip(users.tolist(), items.tolist(), strict=True), found.data.tolist(), strict=True))


@given(EVENTS)
def test_duplicates_and_weights_against_a_dict_of_pairs(events):
    once, rows, total = {}, {}, {}
    for user, item, weight in events:
        once[user, item] = 1
        rows[user, item] = rows.get((user, item), 0) + 1
        total[user, item] = total.get((user, item), 0) + weight
    data = frame(events)
    assert pairs_of(Interactions.from_frame(data)) == once
    assert Interactions.from_frame(data).is_binary
    assert pairs_of(Interactions.from_frame(data, weights="sum")) == rows
    positive = {pair: weight for pair, weight in total.items() if weight}
    if positive:
        assert pairs_of(Interactions.from_frame(data, weights="w")) == positive
    else:
        with pytest.raises(InvalidData, match="weights are 0"):
            Interactions.from_frame(data, weights="w")


@given(EVENTS)
def test_users_and_items_are_in_order_of_first_appearance_with_sorted_rows(events):
    data = Interactions.from_frame(frame(events))
    assert data.user_ids.values.tolist() == list(dict.fromkeys(e[0] for e in events))
    assert data.item_ids.values.tolist() == list(dict.fromkeys(e[1] for e in events))
    for user in range(data.n_users):
        indices, _ = data.by_user.row(user)
        assert indices.tolist() == sorted(set(indices.tolist()))


@given(EVENTS, st.integers(0, 3), st.integers(0, 3))
def test_minimums_filter_first_and_drop_ids(events, min_user, min_item):
    by_item = {i: {u for u, j, _ in events if j == i} for _, i, _ in events}
    left = [(u, i) for u, i, _ in events if len(by_item[i]) >= min_item]
    by_user = {u: {i for v, i in left if v == u} for u, _ in left}
    expected = [(u, i) for u, i in left if len(by_user[u]) >= min_user]
    call = lambda: Interactions.from_frame(frame(events), min_user=min_user, min_item=min_item)  # noqa: E731
    if not expected:
        with pytest.raises(InvalidData, match="No interactions are left"):
            call()
        return
    data = call()
    assert set(pairs_of(data)) == set(expected)
    assert data.user_ids.values.tolist() == list(dict.fromkeys(u for u, _ in expected))
    assert data.item_ids.values.tolist() == list(dict.fromkeys(i for _, i in expected))


def test_without_minimums_all_ids_stay():
    events = Events(np.array([1, 1]), np.array([2, 0]), Ids("abc"), Ids("xyz"))
    assert Interactions.from_events(events).shape == (3, 3)
    assert Interactions.from_events(events, min_user=1).shape == (1, 2)


def test_rows_of_weight_zero_do_not_count_towards_minimums():
    events = [("a", 1, 1), ("a", 2, 0), ("b", 1, 1), ("b", 2, 5)]
    assert set(pairs_of(Interactions.from_frame(frame(events), weights="w", min_user=2))) == {("b", 1), ("b", 2)}


def test_confidences_add_up_in_double_precision():
    # In float32 the ones would be lost one by one beside 2^24.
    weights = np.array([2.0**24] + [1.0] * 1000)
    events = Events(np.zeros(1001, int), np.zeros(1001, int), Ids("a"), Ids("x"), weights=weights)
    assert Interactions.from_events(events, weights="column").by_user.weights.tolist() == [2.0**24 + 1000]


def test_more_repeats_than_a_byte_counts():
    events = Events(np.zeros(300, int), np.zeros(300, int), Ids("a"), Ids("x"))
    assert Interactions.from_events(events).nnz == 1
    assert Interactions.from_events(events, weights="sum").by_user.weights.tolist() == [300]


def test_what_from_events_refuses():
    events = Events(np.array([0]), np.array([0]), Ids("a"), Ids("x"))
    with pytest.raises(InvalidParameter, match="None, 'sum' or 'column'"):
        Interactions.from_events(events, weights="values")
    with pytest.raises(InvalidData, match="needs events with weights"):
        Interactions.from_events(events, weights="column")
    with pytest.raises(InvalidData, match="no rows"):
        Interactions.from_events(events.select([]))
    with pytest.raises(InvalidParameter, match="'min_item' parameter of at_least must be an integer"):
        Interactions.from_events(events, min_item=-2)


@given(EVENTS, st.integers(1, 20), st.sampled_from(["binary", "count", "weights"]))
def test_large_data_built_in_parts_are_the_same(events, part, how):
    users = np.array([ord(e[0]) - ord("a") for e in events], dtype=np.int32)
    items = np.array([e[1] - 10 for e in events], dtype=np.int32)
    more = {
        "count": how == "count",
        "weights": np.array([e[2] for e in events], np.float32) if how == "weights" else None,
    }
    whole = rows_from_pairs(users, items, (6, 5), **more)
    parts = rows_from_pairs(users, items, (6, 5), part=part, **more)
    for a, b in zip(whole, parts, strict=True):
        assert (a is None and b is None) or (np.array_equal(a, b) and a.dtype == b.dtype)


@pytest.mark.parametrize(
    "how",
    [{}, {"weights": "sum"}, {"weights": "column"}, {"min_user": 20, "min_item": 20, "weights": "column"}],
    ids=["binary", "sum", "column", "filtered"],
)
@pytest.mark.parametrize("n_pairs", [10**9, 300_000], ids=["distinct", "repeated"])
def test_building_takes_less_than_30_bytes_a_row(how, n_pairs):
    n = 1_000_000
    rng = np.random.default_rng(0)
    n_items = 2000 if n_pairs > n else 300
    n_users = 5000 if n_pairs > n else 1000
    events = Events(
        rng.integers(0, n_users, n).astype(np.int32),
        rng.integers(0, n_items, n).astype(np.int32),
        Ids(np.arange(n_users)),
        Ids(np.arange(n_items)),
        weights=rng.random(n, dtype=np.float32) + np.float32(0.1),
    )
    Interactions.from_events(events.select(np.arange(1 << 19)))  # imports and compiling are not what is measured
    tracemalloc.start()
    try:
        data = Interactions.from_events(events, **how)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert data.nnz > 0
    assert peak / n < 30
