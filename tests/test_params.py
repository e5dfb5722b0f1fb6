"""One function checks numbers, all messages have the same words, and groups of keywords are spelled out."""

import dataclasses
import inspect
from typing import TypedDict

import numpy as np
import pytest

from fairmf import Interactions, read_csv
from fairmf.errors import InvalidParameter
from fairmf.params import check_count, check_not_negative, check_number, check_seed, check_share, takes_keywords


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


@dataclasses.dataclass(frozen=True)
class Format:
    delimiter: str = ","
    header: bool = True


class FormatKeywords(TypedDict, total=False):
    delimiter: str
    header: bool


@takes_keywords(FormatKeywords, of=Format, note="no such format")
def read_table(path, *, rows=None, **form):
    """Read it."""
    return path, rows, Format(**form)


def test_a_group_of_keywords_is_spelled_out_in_the_signature():
    shown = inspect.signature(read_table)
    assert list(shown.parameters) == ["path", "rows", "delimiter", "header"]
    assert shown.parameters["delimiter"].default == ","
    assert shown.parameters["header"].kind is inspect.Parameter.KEYWORD_ONLY
    assert (read_table.__name__, read_table.__doc__) == ("read_table", "Read it.")


def test_a_group_of_keywords_reaches_the_function_and_others_are_refused():
    assert read_table("a", header=False) == ("a", None, Format(header=False))
    assert read_table("a", rows=3, delimiter=";") == ("a", 3, Format(";"))
    with pytest.raises(TypeError, match=r"read_table\(\) got an unexpected keyword argument 'head': no such format"):
        read_table("a", head=True)


def test_a_keyword_without_a_default_to_show_is_an_error_when_the_function_is_defined():
    class Unknown(TypedDict, total=False):
        colour: str

    with pytest.raises(KeyError, match="colour"):
        takes_keywords(Unknown, of=Format)(lambda **form: form)


def test_functions_that_share_keywords_have_the_same_defaults():
    shown = inspect.signature(Interactions.from_csv).parameters
    for name, parameter in inspect.signature(read_csv).parameters.items():
        if name not in ("time", "progress"):
            assert shown[name].default == parameter.default, name
    with pytest.raises(TypeError, match=r"Interactions.from_csv\(\) got an unexpected keyword argument 'delimeter'"):
        Interactions.from_csv("events.csv", delimeter=";")
