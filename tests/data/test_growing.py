import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmf.data.collect import GrowingArray


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("fairmf.data.collect._FIRST", 5)


@given(st.lists(st.lists(st.integers(-9, 9), max_size=12), max_size=12))
def test_all_that_was_appended_in_order(parts):
    array = GrowingArray()
    for part in parts:
        array.append(np.array(part, dtype=np.int32))
    expected = [value for part in parts for value in part]
    assert len(array) == len(expected)
    joined = array.finish()
    assert joined.tolist() == expected
    assert joined.dtype == np.int32


def test_integers_followed_by_floats_become_floats():
    array = GrowingArray()
    array.append(np.array([1, 2, 3]))
    array.append(np.array([0.5]))
    array.append(np.array([4]))
    assert array.finish().tolist() == [1, 2, 3, 0.5, 4]


def test_little_is_held_that_is_not_used():
    array = GrowingArray()
    for k in range(1000):
        array.append(np.array([k]))
        assert len(array._values) <= max(5, 9 * (k + 1) // 8 + 5)
    joined = array.finish()
    assert joined.tolist() == list(range(1000))
    assert joined.base is None
    assert len(array) == 0
