import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmf.data import events
from fairmf.data.events import Events
from fairmf.data.ids import Ids
from fairmf.errors import InvalidData, InvalidParameter

PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=0, max_size=60)


def from_pairs(pairs, **more):
    users, items = [u for u, _ in pairs], [i for _, i in pairs]
    return Events(
        np.array(users, dtype=np.int64),
        np.array(items, dtype=np.int64),
        Ids([f"u{k}" for k in range(6)]),
        Ids([f"i{k}" for k in range(5)]),
        **more,
    )


def as_ids(rows):
    return list(zip(rows.user_ids.values[rows.users], rows.item_ids.values[rows.items], strict=True))


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    """Let even small data cross the borders of chunks."""
    monkeypatch.setattr("fairmf.data.events._CHUNK", 7)


def test_fields_have_their_kinds_and_rows_their_order():
    rows = from_pairs([(3, 1), (0, 0)], weights=[2, 1], times=[5, 4])
    assert (rows.users.dtype, rows.items.dtype, rows.weights.dtype, rows.times.dtype) == (
        np.int32,
        np.int32,
        np.float32,
        np.int64,
    )
    assert len(rows) == 2
    assert as_ids(rows) == [("u3", "i1"), ("u0", "i0")]
    assert from_pairs([(0, 0)], times=[0.5]).times.dtype == np.float64
    assert repr(rows) == "Events(2 rows, 6 users, 5 items, with weights and times)"


def test_rows_are_read_only_and_the_callers_arrays_are_not():
    users, items = np.array([0, 1], dtype=np.int32), np.array([0, 1], dtype=np.int32)
    rows = Events(users, items, Ids([1, 2]), Ids([1, 2]))
    with pytest.raises(ValueError, match="read-only"):
        rows.users[0] = 1
    users[0] = 1  # still the caller's
    assert users.flags.writeable


def test_select_by_mask_and_by_positions_keeps_codes_and_ids():
    rows = from_pairs([(3, 1), (0, 0), (2, 4)], weights=[1, 2, 3], times=[7, 8, 9])
    for chosen in (rows.select(np.array([False, True, True])), rows.select([1, 2])):
        assert chosen.users.tolist() == [0, 2]
        assert chosen.items.tolist() == [0, 4]
        assert chosen.weights.tolist() == [2, 3]
        assert chosen.times.tolist() == [8, 9]
        assert chosen.user_ids is rows.user_ids
    assert rows.select([2, 0]).times.tolist() == [9, 7]
    assert len(rows.select([])) == 0


@pytest.mark.parametrize("wrong", [[True, False], [3], [-1], [0.5], [[0]]])
def test_select_refuses_what_is_no_row(wrong):
    with pytest.raises(InvalidParameter):
        from_pairs([(0, 0), (1, 1), (2, 2)]).select(wrong)


@given(PAIRS)
def test_without_duplicates_keeps_the_first_of_each_pair_in_order(pairs):
    rows = from_pairs(pairs, times=np.arange(len(pairs)))
    first = [k for k, pair in enumerate(pairs) if pair not in pairs[:k]]
    assert rows.without_duplicates().times.tolist() == first


@given(PAIRS, st.integers(0, 4), st.integers(0, 4))
def test_at_least_drops_items_first_then_users_counting_pairs_once(pairs, min_user, min_item):
    rows = from_pairs(pairs, times=np.arange(len(pairs)))
    items = [i for i in range(5) if len({u for u, j in pairs if j == i}) >= min_item]
    left = [(u, i) for u, i in pairs if i in items]
    users = [u for u in range(6) if len({i for v, i in left if v == u}) >= min_user]
    expected = [k for k, (u, i) in enumerate(pairs) if i in items and u in users]
    assert rows.at_least(min_user=min_user, min_item=min_item).times.tolist() == expected


@given(PAIRS)
def test_compact_numbers_by_first_appearance_and_changes_no_row(pairs):
    rows = from_pairs(pairs).compact()
    assert as_ids(rows) == as_ids(from_pairs(pairs))
    for codes, ids in ((rows.users, rows.user_ids), (rows.items, rows.item_ids)):
        assert list(dict.fromkeys(codes.tolist())) == list(range(len(ids)))


def test_the_order_of_dropping_matters_and_is_one_pass():
    # Item 1 has one user, who falls below 2 once it is gone; item 0 then has a single user, and stays.
    rows = from_pairs([(0, 0), (0, 1), (1, 0), (1, 2), (2, 2)])
    assert as_ids(rows.at_least(min_user=2, min_item=2)) == [("u1", "i0"), ("u1", "i2")]


@pytest.mark.parametrize("wrong", [-1, 1.5, "3", True])
def test_minimums_must_be_whole_numbers(wrong):
    with pytest.raises(InvalidParameter, match="'min_user' parameter of at_least must be an integer >= 0"):
        from_pairs([(0, 0)]).at_least(min_user=wrong)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"weights": [1.0, np.nan, np.inf, np.nan]}, "2 NaN or missing and 1 infinite, the first in row 1"),
        ({"weights": [1.0, 2.0, np.inf, 1.0]}, "1 infinite, the first in row 2"),
        ({"weights": [1.0, 1e300, 1.0, 1.0]}, "1 infinite"),
        ({"weights": [1.0]}, "'weights' has shape"),
        ({"times": [1, 2]}, "'times' has shape"),
        ({"times": [1.0, np.nan, 2.0, 3.0]}, "1 times are NaN"),
        ({"times": ["a", "b", "c", "d"]}, "Times must be integers or floats"),
    ],
)
def test_bad_weights_and_times(more, message):
    with pytest.raises(InvalidData, match=message):
        from_pairs([(0, 0), (1, 1), (2, 2), (3, 3)], **more)


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ([0, 2], "codes from 0 to 2"),
        ([-1, 0], "codes from -1"),
        ([0.5, 1.0], "integer code"),
        ([[0, 1]], "integer code"),
    ],
)
def test_codes_outside_the_ids(users, message):
    with pytest.raises(InvalidData, match=message):
        Events(np.array(users), np.array([0, 0]), Ids(["a", "b"]), Ids(["x"]))


def test_unequal_lengths():
    with pytest.raises(InvalidData, match="'items' has shape"):
        Events(np.array([0, 1]), np.array([0]), Ids(["a", "b"]), Ids(["x"]))


def test_pairs_beyond_32_bits_are_told_apart():
    # 2^16 x 2^16 and more: a 32-bit key of the pair would wrap around.
    ids = Ids(np.arange(70_000))
    rows = Events(np.array([0, 65_536, 65_536]), np.array([1, 1, 1]), ids, ids)
    assert events.Events.without_duplicates(rows).users.tolist() == [0, 65_536]


@pytest.mark.parametrize(("ids", "message"), [([1, 1], "1 appears more than once"), ([1, None], "null or NaN")])
def test_ids_given_by_hand_are_checked(ids, message):
    with pytest.raises(InvalidData, match=message):
        Events([0, 1], [0, 1], ids, [1, 2])
    with pytest.raises(InvalidData, match=message):
        Events([0, 1], [0, 1], [1, 2], ids)
