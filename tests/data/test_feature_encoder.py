"""Test the encoder of features: every kind of column, new rows, files, errors."""

import math

import numpy as np
import pandas as pd
import pytest

from fairmf.data.features import Encoder, Features, read_features
from fairmf.data.ids import Ids
from fairmf.errors import InvalidData


def table():
    return pd.DataFrame(
        {
            "id": [10, 11, 12, 13],
            "year": [1990.0, 2000.0, np.nan, 2010.0],
            "maker": ["A", "B", "A", None],
            "genre": ["War|Drama", "War", None, "Drama | Comedy"],
            "plot": ["a dog and a cat and a man", "the dog and a mouse at home", "no", "a cat, a CAT and one mouse"],
        }
    )


def test_every_kind_of_column_is_recognised_and_encoded():
    encoder = Encoder.learn(Features(table(), kinds={"plot": "text"}))
    assert [(c.name, c.kind) for c in encoder.columns] == [
        ("year", "number"), ("maker", "category"), ("genre", "tags"), ("plot", "text")
    ]  # fmt: skip
    ids, matrix = encoder.encode(table())
    assert ids == [10, 11, 12, 13]
    dense, names = matrix.toarray(), encoder.names
    year = np.array([1990.0, 2000.0, 2010.0])
    assert dense[[0, 1, 3], names.index("year")] == pytest.approx((year - year.mean()) / year.std(), rel=1e-6)
    assert dense[2, names.index("year")] == 0  # missing counts as the mean
    assert dense[:, names.index("maker=A")].tolist() == [1, 0, 1, 0]
    assert dense[0, names.index("genre=War")] == pytest.approx(1 / math.sqrt(2))
    assert dense[3, names.index("genre=Drama")] == pytest.approx(1 / math.sqrt(2))  # blanks around it do not count
    # tf-idf by hand: in the last text "cat" appears twice, and two of the four texts have it.
    words = {"cat": (2, 2), "a": (2, 3), "and": (1, 3), "mouse": (1, 2)}
    expected = {w: tf * (math.log(5 / (1 + df)) + 1) for w, (tf, df) in words.items()}
    length = math.sqrt(sum(x * x for x in expected.values()))
    for word, value in expected.items():
        assert dense[3, names.index(f"plot={word}")] == pytest.approx(value / length, rel=1e-5)
    assert "plot=man" not in names  # in one text alone
    assert encoder.blocks()["genre"] == slice(3, 6)


def test_kinds_are_guessed_from_types_and_values():
    frame = pd.DataFrame(
        {
            "id": [1, 2],
            "lists": [["x", "y"], ["x"]],
            "flag": [True, False],
            "long": ["many words make this a text", "and this one has many words too"],
        }
    )
    encoder = Encoder.learn(Features(frame))
    assert [c.kind for c in encoder.columns] == ["tags", "number", "text"]
    same = Encoder.learn(Features(frame, kinds={"long": "ignore", "flag": "category"}))
    assert same.names == ("lists=x", "lists=y", "flag=False", "flag=True")


def test_new_rows_pass_through_what_was_learned_and_a_file_keeps_it():
    encoder = Encoder.learn(Features(table(), kinds={"plot": "text"}))
    again = Encoder.from_dict(encoder.to_dict())
    new = pd.DataFrame({"id": ["n"], "year": [2005], "maker": ["Z"], "genre": ["War|Opera"], "plot": ["dog dog"]})
    for own in (encoder, again):
        _, matrix = own.encode(new)
        dense = matrix.toarray()[0]
        assert dense[own.names.index("year")] == pytest.approx((2005 - 2000) / np.std([1990, 2000, 2010]), rel=1e-6)
        assert dense[own.blocks()["maker"]].sum() == 0  # nobody made Z before
        assert dense[own.names.index("genre=War")] == 1  # Opera is unknown and does not count
        assert dense[own.names.index("plot=dog")] == 1
    assert again == encoder


def test_hashed_values_share_a_fixed_number_of_columns():
    encoder = Encoder.learn(Features(table(), kinds={"plot": "ignore", "year": "ignore"}, hash_bins=8))
    assert len(encoder.names) == 16
    new = table().assign(maker="never seen before")
    assert encoder.encode(new)[1].toarray()[:, :8].sum() == 4


def test_the_most_frequent_values_are_kept():
    encoder = Encoder.learn(Features(table()[["id", "genre"]], vocabulary=2))
    assert set(encoder.names) == {"genre=War", "genre=Drama"}


def test_rows_are_found_by_id():
    found, others = read_features(table()[["id", "maker"]], Ids([13, 99, 10]), 3, "item")
    assert others == 2
    assert found.matrix.toarray().tolist() == [[0, 0], [0, 0], [1, 0]]
    with pytest.raises(InvalidData, match="No id of the table"):
        read_features(table(), Ids(["13", "10"]), 2, "item")
    with pytest.raises(InvalidData, match="names item 10 more than once"):
        read_features(pd.concat([table(), table()]), Ids([10]), 1, "item")


def test_errors_say_what_is_wrong():
    with pytest.raises(InvalidData, match="Got list instead"):
        Encoder.learn(Features([1, 2]))
    with pytest.raises(InvalidData, match="no column 'key'"):
        Encoder.learn(Features(table(), id="key"))
    encoder = Encoder.learn(Features(table()))
    with pytest.raises(InvalidData, match="lacks the column 'maker'"):
        encoder.encode(table().drop(columns="maker"))
    with pytest.raises(InvalidData, match="'year' of the table of features holds 'x'"):
        encoder.encode(table().assign(year="x"))


@pytest.mark.parametrize("unit", ["ns", "us", "D"])
def test_dates_are_numbers_in_days(unit):
    days = pd.Series(np.array(["2020-01-01", "2020-01-11", "NaT", "2020-01-31"], dtype=f"datetime64[{unit}]"))
    given = pd.DataFrame({"id": [1, 2, 3, 4], "released": days})
    encoder = Encoder.learn(Features(given))
    assert encoder.names == ("released",)
    counted = np.array([0.0, 10.0, 30.0])
    expected = (counted - counted.mean()) / counted.std()
    np.testing.assert_allclose(encoder.encode(given)[1].toarray()[[0, 1, 3], 0], expected, rtol=1e-5)
    assert encoder.encode(given)[1].toarray()[2, 0] == 0
    new = pd.DataFrame({"id": [5], "released": [pd.Timestamp("2020-01-21")]})
    again = Encoder.from_dict(encoder.to_dict()).encode(new)[1].toarray()
    assert again[0, 0] == pytest.approx((20 - counted.mean()) / counted.std(), rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"id": [10, None, 12, None]}, "2 ids of the table of features are null or NaN"),
        ({"year": [1.0, np.inf, 2.0, 3.0]}, "'year' of the table of features holds inf, which is not finite"),
        ({"id": [10, 11, 11, 13]}, "names item 11 more than once"),
        ({"id": [1, 2, 3, 4]}, "is one of the items of the data"),
    ],
)
def test_bad_ids_and_numbers_are_named(changes, match):
    with pytest.raises(InvalidData, match=match):
        read_features(table().assign(**changes), Ids([10, 11, 12, 13]), 4, "item")
