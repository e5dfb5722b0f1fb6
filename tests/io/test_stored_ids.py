"""Ids come back as the kind they went in."""

import datetime
import decimal
import enum
import uuid

import numpy as np
import pytest
from conftest import random_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairmf import Interactions, Popularity, load_model
from fairmf.data import stored_arrays
from fairmf.data.ids import Ids
from fairmf.errors import InvalidData
from fairmf.io import strict_json
from fairmf.io.values import decode

SIMPLE = st.one_of(
    st.text(), st.integers(), st.booleans(), st.floats(allow_nan=False), st.binary(), st.dates(), st.datetimes(),
    st.times(), st.timedeltas(), st.decimals(allow_nan=False), st.uuids(),
    st.datetimes(timezones=st.just(datetime.timezone(datetime.timedelta(hours=5, minutes=30)))),
)  # fmt: skip
ANY = st.one_of(SIMPLE, st.tuples(SIMPLE, SIMPLE), st.tuples(st.tuples(SIMPLE), SIMPLE), st.frozensets(SIMPLE))


def there_and_back(ids):
    kind, arrays = stored_arrays.ids_to_arrays("user_ids", ids)
    back = stored_arrays.ids_from_arrays("user_ids", kind, len(ids), dict(arrays))
    return kind, back


def shape(value):
    """The kind of a value and of all its parts."""
    if isinstance(value, tuple):
        return (tuple, *map(shape, value))
    return type(value)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ANY, unique_by=lambda value: (shape(value), repr(value)), max_size=20))
def test_ids_of_any_kind(values):
    ids = Ids(values)
    _, back = there_and_back(ids)
    assert back.values.dtype == ids.values.dtype
    assert back.values.tolist() == ids.values.tolist()
    assert [shape(x) for x in back.values.tolist()] == [shape(x) for x in ids.values.tolist()]
    assert [repr(x) for x in back.values.tolist() if isinstance(x, float)] == [
        repr(x) for x in ids.values.tolist() if isinstance(x, float)
    ]  # -0.0 too


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_integers_keep_their_width(kind, tmp_path):
    info = np.iinfo(kind)
    ids = Ids(np.array([info.max, info.min, 5], dtype=kind))
    assert there_and_back(ids)[0] == "integers"
    model = Popularity().fit(Interactions(random_rows(3, 4), 4, ids))
    model.save(tmp_path / "model")
    values = load_model(tmp_path / "model").fitted.user_ids.values
    assert values.dtype == np.dtype(kind)
    assert values.tolist() == ids.values.tolist()


@pytest.mark.parametrize("texts", [["", "a", "ä", "𝄞", "\x00", "a\nb", "\ud800"], ["x" * 100_000, "y"], []])
def test_texts(texts):
    kind, back = there_and_back(Ids(texts))
    assert back.values.tolist() == texts
    assert kind == "texts"


class Zone(datetime.tzinfo):
    def utcoffset(self, moment):
        return datetime.timedelta(hours=1)


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (Colour.RED, "Colour"),
        (object, "builtins.type"),
        (1j, "complex"),
        (10**5000, "an integer of more than 999 digits"),
        (decimal.Decimal("1" * 1001), "a Decimal of more than"),
        ((1, (2, Colour.RED)), "Colour"),
        (datetime.datetime(2024, 1, 1, tzinfo=Zone()), "time zone"),
    ],
    ids=range(7),  # pytest itself cannot print the large integer
)
def test_other_kinds_are_refused_when_saving_and_named(value, why):
    with pytest.raises(InvalidData, match=f"The item_ids cannot be stored: .*{why}.*Ids in a file can be integers"):
        stored_arrays.ids_to_arrays("item_ids", Ids([value, "a"]))


def test_damaged_values_are_malformed():
    good = {"$date": "2024-02-29"}
    assert decode(good) == datetime.date(2024, 2, 29)
    for bad in [
        {"$date": "2023-02-29"}, {"$date": 5}, {"$date": None}, {"$uuid": "x"}, {"$bytes": "0"}, {"$float": "1e5"},
        {"$float": []}, {"$dict": [[1]]}, {"$dict": [[[], 1]]}, {"$frozenset": [[1]]}, {"$frozenset": 5},
        {"$tuple": "a"}, {"$timedelta": [10**20, 0, 0]}, {"$timedelta": ["a"]}, {"$decimal": "x"},
        {"$decimal": 1.5}, {"$unknown": 1},
        {"$date": "2024-02-29", "b": 1}, {"b": 1, "$date": "2024-02-29"}, {"$time": "25:00"}, {"$datetime": {}},
    ]:  # fmt: skip
        with pytest.raises(strict_json.Malformed):
            decode(bad)
    assert decode({"$uuid": str(uuid.UUID(int=5))}) == uuid.UUID(int=5)
