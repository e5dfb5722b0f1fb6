"""One function checks numbers, and all messages have the same words."""

import numpy as np
import pytest

from fairmf.errors import InvalidParameter
from fairmf.params import check_count, check_not_negative, check_number, check_seed, check_share


@pytest.mark.parametrize("value", [0, 1.0, "1", None, True, np.True_, 5, float("nan")])
def test_what_is_no_count_is_refused_by_name(value):
    with pytest.raises(InvalidParameter) as caught:
        check_count("recommend", "N", value, 1, 4)
    said = f"The 'N' parameter of recommend must be an integer >= 1 and <= 4. Got {value!r} instead."
    assert str(caught.value) == said
    assert caught.value.parameter == "N"


def test_numbers_come_back_as_pythons_own():
    assert type(check_count("f", "x", np.int32(3))) is int
    assert type(check_share("f", "x", np.float32(0.5))) is float
    assert check_not_negative("f", "x", 0) == 0.0
    check_seed("f", None)
    check_number("f", "x", "auto", above=0, choices=("auto", None))


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (lambda: check_share("f", "x", 1), "a number > 0 and < 1. Got 1"),
        (lambda: check_share("f", "x", float("inf")), "a number > 0 and < 1. Got inf"),
        (lambda: check_not_negative("f", "x", -0.5), "a number >= 0. Got -0.5"),
        (lambda: check_seed("f", -1), "an integer >= 0 or None. Got -1"),
        (lambda: check_number("f", "x", "b", above=0.5, choices=("a",)), "a number > 0.5 or 'a'. Got 'b'"),
    ],
)
def test_the_range_is_said_in_words(check, words):
    with pytest.raises(InvalidParameter) as caught:
        check()
    assert f"must be {words} instead." in str(caught.value)


def test_a_function_without_a_name_is_left_out():
    with pytest.raises(InvalidParameter, match=r"^The 'N' parameter must be an integer >= 1"):
        check_count("", "N", 0)
