import datetime
import uuid

import numpy as np
import pytest

from fairmf.data.ids import Ids
from fairmf.errors import InvalidData

KINDS = {
    "int": [3, 1, 2],
    "str": ["b", "a", "ü"],
    "tuple": [(1, "a"), (1, "b"), (2, "a")],
    "mixed": [1, "1", ("1",)],
    "uuid": [uuid.UUID(int=k) for k in (5, 1, 9)],
    "date": [datetime.date(2020, 1, k) for k in (3, 1, 2)],
    "huge": [2**70, 1, -(2**65)],
    "uint64": [2**63, 1, 2],
    "bytes": [b"x", b"y", b"z"],
}


@pytest.mark.parametrize("values", KINDS.values(), ids=KINDS.keys())
def test_ids_come_back_as_they_went_in(values):
    ids = Ids(values)
    back = ids.values.tolist()
    assert back == values
    assert [type(x) for x in back] == [type(x) for x in values]
    assert ids.positions(list(reversed(values))).tolist() == [2, 1, 0]
    assert ids.position(values[1]) == 1
    assert values[2] in ids
    assert ids.take(np.array([2, 0])).values.tolist() == [values[2], values[0]]


def test_numpy_scalars_are_found_and_stored_as_python_values():
    ids = Ids([np.int64(4), np.int32(2)])
    assert ids.values.dtype == np.int64
    assert ids.position(np.int16(2)) == 1
    assert Ids(np.array(["a", "b"])).position("b") == 1


def test_ids_do_not_change_and_leave_the_callers_array_alone():
    mine = np.array([1, 2, 3])
    ids = Ids(mine)
    mine[0] = 9
    assert ids.values[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        ids.values[0] = 7


def test_repeated_missing_unhashable_and_unknown_ids_are_named():
    with pytest.raises(InvalidData, match="'a' appears more than once"):
        Ids(["a", "b", "a"]).check("user")
    with pytest.raises(InvalidData, match="7 appears more than once"):
        Ids(np.array([7, 1, 7])).check("user")
    with pytest.raises(InvalidData, match="2 of the item_ids are null or NaN, the first at position 1"):
        Ids(["a", None, float("nan")]).check("item")
    with pytest.raises(InvalidData, match="hashable"):
        Ids([[1], [2]]).check("item")
    with pytest.raises(InvalidData, match="1 of 2 items are unknown, the first is 'z'"):
        Ids(["a", "b"]).positions(["a", "z"], kind="item")
    with pytest.raises(InvalidData, match="one dimension"):
        Ids(np.zeros((2, 2)))


def test_equality():
    assert Ids([1, 2]) == Ids(np.array([1, 2], dtype=np.int32))
    assert Ids([1, 2]) != Ids(["1", "2"])
    assert Ids(Ids(["a"])) == Ids(["a"])
    assert repr(Ids(["a", "b", "c", "d"])) == "Ids(4: 'a', 'b', 'c', ...)"


def test_names_of_positions_and_of_none():
    positions = np.array([[1, -1], [0, 2]])
    assert Ids(["a", "b", "c"]).named(positions).tolist() == [["b", None], ["a", "c"]]
    assert Ids([7, 8, 9]).named(positions).tolist() == [[8, -1], [7, 9]]
    small = Ids(np.array([7, 8, 9], dtype=np.uint8)).named(positions)
    assert small.tolist() == [[8, -1], [7, 9]]
    assert small.dtype.kind == "i"
    assert Ids(np.array([7, 8, 2**64 - 1], dtype=np.uint64)).named(positions).tolist() == [[8, None], [7, 2**64 - 1]]
