"""Errors carry fields: message, hint, parameter; and are the built-in kinds that callers catch."""

import pickle

import pytest

from fairmf import errors

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.FairmfError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_the_fields_and_keeps_them_in_another_process(kind):
    error = kind("No rows are left.", hint="lower {parameter}", parameter="rating_above")
    assert str(error) == "No rows are left; lower rating_above."
    for same in (error, pickle.loads(pickle.dumps(error))):
        assert (same.message, same.hint, same.parameter) == ("No rows are left.", "lower {parameter}", "rating_above")
        assert same.hint_for("--rating-above") == "lower --rating-above"


def test_fields_are_none_by_default_and_keywords_only():
    error = errors.InvalidData("x")
    assert (error.hint, error.parameter, error.hint_for("a"), str(error)) == (None, None, "", "x")
    assert errors.InvalidData("x", "y").hint is None


def test_an_error_number_is_not_part_of_the_message():
    error = errors.CannotWrite(28, "a.csv cannot be written: No space left on device", hint="free disk space")
    assert error.errno == 28
    assert error.message == "a.csv cannot be written: No space left on device"


@pytest.mark.parametrize(("hint", "shown"), [("did you mean 'a'?", "x; did you mean 'a'?"), ("try a.", "x; try a.")])
def test_the_hint_ends_the_sentence(hint, shown):
    assert str(errors.InvalidData("x.", hint=hint)) == shown
