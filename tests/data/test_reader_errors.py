"""What is wrong with a source is said in one sentence: what, where, and how to correct it."""

import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairmf.data.interactions import Interactions
from fairmf.data.read import read_arrow, read_frame, read_parquet
from fairmf.data.read_csv import read_csv
from fairmf.errors import InvalidData, InvalidParameter


def frame(**columns):
    return pl.DataFrame({"user": [1, 2, 3], "item": ["a", "b", "c"], **columns}, strict=False)


def refuses(call, *words, kind=InvalidData):
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    for word in words:
        assert word in message
    assert "\n" not in message
    assert message[-1] in ".?"
    return caught.value


def test_columns_that_arrow_cannot_hold():
    data = pd.DataFrame({"user": [1j, 2j], "item": [1, 2]})
    refuses(lambda: read_frame(data), "'user' holds complex128", "convert it first")


def test_text_in_another_encoding_is_not_read_as_bytes(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("user,item\nJosé,1\n", encoding="latin-1")
    refuses(lambda: read_csv(path), "a.csv", "UTF8", "latin-1")
    refuses(lambda: read_csv(path, encoding="klingon"), "'encoding'", "'klingon'", kind=InvalidParameter)


# -- columns ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "suggestion"),
    [
        (["user_id", "item", "x"], "user='user_id'"),
        (["item", "userId"], "user='userId'"),
        (["item", "customer_number"], "user='customer_number'"),
        (["item", "zzz"], "name the right one with user=."),
    ],
)
def test_a_missing_column_lists_those_there_and_suggests_the_closest(columns, suggestion):
    data = pd.DataFrame({name: [1] for name in columns})
    refuses(lambda: read_frame(data), "'user' is not in", *map(repr, columns), suggestion)


def test_a_misspelt_column_is_recognised():
    data = pd.DataFrame({"account": [1], "item": [2], "shop": [3]})
    refuses(lambda: read_frame(data, user="acount"), "'acount' is not in", "user='account'")


def test_missing_columns_in_files(tmp_path):
    (tmp_path / "a.csv").write_text("user_id,movieId\n1,2\n")
    refuses(lambda: read_csv(tmp_path / "a.csv"), "a.csv", "user='user_id'")
    refuses(lambda: read_csv(tmp_path / "a.csv", user="user_id"), "'item' is not in", "item='movieId'")
    refuses(lambda: read_csv(tmp_path / "a.csv", header=False), "columns are numbered", "0, 1")
    pq.write_table(pa.table({"user": [1], "product": [1]}), tmp_path / "a.parquet")
    refuses(lambda: read_parquet(tmp_path / "a.parquet"), "'item' is not in", "item='product'")
    refuses(lambda: read_parquet(tmp_path / "a.parquet", item="product", weights="n"), "'n' is not in")


def test_many_columns_are_not_all_listed():
    data = pd.DataFrame({f"c{k}": [1] for k in range(50)})
    refuses(lambda: read_frame(data), "'c19' and 30 more")


def test_a_column_that_is_there_twice(tmp_path):
    data = pa.table([[1], [2], [3]], names=["user", "item", "user"])
    pandas = pd.DataFrame([[1, 2, 3]], columns=["user", "item", "user"])
    for twice in (data, pandas):
        refuses(lambda twice=twice: read_frame(twice), "2 columns named 'user'", "rename all but one")
    (tmp_path / "a.csv").write_text("user,item,user\n1,2,3\n")
    refuses(lambda: read_csv(tmp_path / "a.csv"), "2 columns named 'user'")


def test_arguments_that_contradict_each_other():
    refuses(lambda: read_frame(frame(), rating_above=3), "rating='rating'", kind=InvalidParameter)
    refuses(
        lambda: read_frame(frame(r=[1, 2, 3]), rating="r"), "rating_above=3.5", "'r' as weights", kind=InvalidParameter
    )
    refuses(lambda: read_frame(frame(r=[1, 2, 3]), rating="r", rating_above="x"), "a number", kind=InvalidParameter)
    refuses(lambda: read_frame(frame(), item="user"), "two different columns", kind=InvalidParameter)


# -- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_bad_weights_are_counted_over_all_batches(batch, monkeypatch):
    monkeypatch.setattr("fairmf.data.read._BATCH_ROWS", batch)
    data = frame(w=[1.0, float("nan"), None])
    refuses(lambda: read_frame(data, weights="w"), "'w'", "2 NaN or missing, the first in row 1", "must be finite")
    both = frame(w=[float("inf"), 2.0, float("nan")])
    refuses(lambda: read_frame(both, weights="w"), "1 infinite", "1 NaN or missing", "row 0")
    assert read_frame(frame(w=[1.0, 2.0, -1.0]), weights="w").weights.tolist() == [1, 2, -1]  # a dislike
    refuses(lambda: read_frame(frame(w=[1e39, 2.0, 1.0]), weights="w"), "1 infinite")


def test_rows_are_numbered_as_in_the_file_also_after_the_threshold():
    data = frame(w=[float("inf"), 1.0, float("inf")], r=[1, 5, 5])
    refuses(lambda: read_frame(data, weights="w", rating="r", rating_above=3), "1 infinite, the first in row 2")


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize(
    "ids",
    [[None, "a", None], [None, 1, None], [None, (1, 2), float("nan")], [float("nan"), 1.5, None], [None, None, None]],
    ids=["text", "numbers", "objects", "floats", "all"],
)
def test_null_ids_are_counted(ids, batch, monkeypatch):
    monkeypatch.setattr("fairmf.data.read._BATCH_ROWS", batch)
    count = sum(x is None or x != x for x in ids)
    column = pd.Series(np.fromiter(ids, dtype=object, count=3))
    for values in (column, column if isinstance(ids[1], tuple) else column.infer_objects()):
        data = pd.DataFrame({"user": [1, 2, 3], "item": values})
        refuses(lambda data=data: read_frame(data), "'item'", f"{count} null or NaN", "row 0", "remove or correct")
    if not isinstance(ids[1], tuple):
        data = pl.DataFrame({"user": [1, 2, 3], "item": pl.Series(ids, strict=False)})
        refuses(lambda: read_frame(data), f"{count} null or NaN")


def test_null_ids_in_pandas_own_missing_values():
    data = pd.DataFrame({"user": np.array([pd.NA, pd.NaT, 3], dtype=object), "item": [1, 2, 3]})
    refuses(lambda: read_frame(data), "'user'", "2 null or NaN")


def test_empty_and_null_ids_in_csv(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\nu1,i1\n,i2\nNA,i3\n")
    refuses(lambda: read_csv(tmp_path / "a.csv"), "'user'", "2 null or NaN, the first in row 1")


@pytest.mark.parametrize("role", ["weights", "rating"])
def test_numbers_must_be_numbers(role, tmp_path):
    more = {role: "w"} | ({"rating_above": 3} if role == "rating" else {})
    refuses(lambda: read_frame(frame(w=["x", "y", "z"]), **more), "'w'", "must hold numbers", "string")
    objects = pd.DataFrame({"user": [1, 2], "item": [1, 2], "w": np.array([1, "x"], dtype=object)})
    refuses(lambda: read_frame(objects, **more), "'w'", "must hold numbers")
    (tmp_path / "a.csv").write_text("user,item,w\n1,2,3\n1,3,many\n")
    refuses(lambda: read_csv(tmp_path / "a.csv", **more), "'w'", "must hold numbers", "'many'")


def test_missing_ratings_and_times():
    data = frame(r=[5.0, None, float("nan")])
    refuses(lambda: read_frame(data, rating="r", rating_above=3), "'r'", "2 NaN or missing, the first in row 1")
    refuses(lambda: read_frame(frame(t=[1, None, 2]), time="t"), "'t'", "1 null or NaN, the first in row 1")
    refuses(lambda: read_frame(frame(t=["a", "b", "c"]), time="t"), "'t'", "dates or timestamps")


def test_ids_that_cannot_be_hashed():
    data = pd.DataFrame({"user": [{"a": 1}, {"a": 2}], "item": [1, 2]})
    refuses(lambda: read_frame(data), "'user'", "cannot be hashed")
    refuses(lambda: read_frame(pa.table({"user": [{"a": 1}], "item": [1]})), "'user'", "cannot be hashed")


def test_ids_that_change_their_type_from_file_to_file(tmp_path):
    pq.write_table(pa.table({"user": [1], "item": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"user": ["1"], "item": [1]}), tmp_path / "b.parquet")
    refuses(lambda: read_parquet(tmp_path), "'user'", "integers in one file and text in another")


# -- nothing there ------------------------------------------------------------------------------------------------


def test_no_rows(tmp_path):
    empty = frame().head(0)
    refuses(lambda: read_frame(empty), "no rows")
    empty.write_parquet(tmp_path / "a.parquet")
    refuses(lambda: read_parquet(tmp_path / "a.parquet"), "no rows", "a.parquet")
    (tmp_path / "a.csv").write_text("user,item\n")
    refuses(lambda: read_csv(tmp_path / "a.csv"), "no rows", "a.csv")
    (tmp_path / "b.csv").write_text(" \n")
    refuses(lambda: read_csv(tmp_path / "b.csv"), "is empty")


def test_thresholds_may_be_numpy_numbers():
    data = frame(rating=[1.0, 4.0, 5.0])
    for threshold in (np.float32(3.5), np.int64(3)):
        assert len(read_frame(data, rating="rating", rating_above=threshold)) == 2


def test_a_threshold_that_leaves_nothing_says_how_high_ratings_go():
    call = lambda: read_frame(frame(r=[1.0, 4.5, 2.0]), rating="r", rating_above=4.5)  # noqa: E731
    refuses(call, "none of the 3 rows", "'r' above 4.5", "the highest is 4.5", "lower rating_above")


def test_minimums_that_leave_nothing_say_what_each_removed():
    data = frame()
    refuses(lambda: Interactions.from_frame(data, min_item=2), "of 3 rows min_item=2 removed 3", "min_user=0 removed 0")
    refuses(lambda: Interactions.from_frame(data, min_user=2), "min_item=0 removed 0", "min_user=2 removed 3", "lower")


# -- the source itself --------------------------------------------------------------------------------------------


def test_what_is_no_frame():
    refuses(lambda: read_frame({"user": [1]}), "pandas or polars", "not dict")
    refuses(lambda: read_frame(frame().lazy()), "LazyFrame", ".collect()")


@pytest.mark.parametrize("read", [read_csv, read_parquet])
def test_no_such_file(read, tmp_path):
    refuses(lambda: read(tmp_path / "nowhere"), "There is no file", "nowhere", "check the path")
    refuses(lambda: read(5), "not by int")


def test_directories_and_empty_lists(tmp_path):
    refuses(lambda: read_parquet(tmp_path), "holds no *.parquet file")
    refuses(lambda: read_csv(tmp_path), "is a directory")
    refuses(lambda: read_parquet([]), "list of Parquet files is empty")


def test_damaged_parquet_keeps_the_cause(tmp_path):
    good = tmp_path / "good.parquet"
    pq.write_table(pa.table({"user": np.arange(5000), "item": np.arange(5000)}), good, use_dictionary=False)
    content = good.read_bytes()
    cut, junk, holed = tmp_path / "cut.parquet", tmp_path / "junk.parquet", tmp_path / "holed.parquet"
    cut.write_bytes(content[: len(content) // 2])
    junk.write_bytes(bytes(range(256)) * 50)
    holed.write_bytes(content[:4] + b"\xff" * 3000 + content[3004:])
    for path in (cut, junk, holed):
        error = refuses(lambda path=path: read_parquet(path), path.name, "cannot be read as Parquet", "damaged")
        assert error.__cause__ is not None


def test_binary_junk_and_damaged_text_as_csv(tmp_path):
    junk, latin, packed, ragged = (tmp_path / n for n in ("junk.csv", "latin.csv", "cut.csv.gz", "ragged.csv"))
    junk.write_bytes(bytes(range(256)) * 50)
    refuses(lambda: read_csv(junk), "binary file")
    latin.write_bytes("user,item\nJosé,1\n".encode("latin-1") * 3)
    error = refuses(lambda: read_csv(latin, text_ids=True), "cannot be read as CSV")
    assert error.__cause__ is not None
    whole = gzip.compress(b"user,item\n" + b"".join(b"%d,%d\n" % (k, k * k) for k in range(20_000)))
    packed.write_bytes(whole[: len(whole) // 2])
    assert refuses(lambda: read_csv(packed), "cut.csv.gz", "cut short").__cause__ is not None
    ragged.write_text("user,item\n1,2\n1,2,3\n")
    refuses(lambda: read_csv(ragged), "cannot be read as CSV")
    pq.write_table(pa.table({"user": [1], "item": [1]}), tmp_path / "a.csv")
    refuses(lambda: read_csv(tmp_path / "a.csv"), "is a Parquet file", "from_parquet")


@pytest.mark.parametrize("delimiter", ["", '"', "\r", ",\n", 3])
def test_delimiters_that_cut_nothing(tmp_path, delimiter):
    (tmp_path / "a.dat").write_text("1::2::5\n")
    refuses(lambda: read_csv(tmp_path / "a.dat", delimiter=delimiter), "without quotes", kind=InvalidParameter)


def test_columns_of_double_colons_are_counted_as_a_reader_counts_them(tmp_path):
    (tmp_path / "a.dat").write_text("1::2::5\n2::3::x\n")
    refuses(lambda: read_csv(tmp_path / "a.dat", header=False, user=0, item=3), "columns are 0, 1, 2")
    how = {"header": False, "user": 0, "item": 1, "rating": 2, "rating_above": 3.5}
    refuses(lambda: read_csv(tmp_path / "a.dat", **how), "Column 2 must hold numbers")


def test_arrow_files_that_are_none(tmp_path):
    refuses(lambda: read_arrow(tmp_path), "is a directory")
    for name, content, word in (
        ("empty", b"", "is empty"),
        ("text", b"user,item\n1,2\n", "cannot be read as Arrow"),
        ("old", b"FEA1....", "version 1"),
        ("cut", b"ARROW1\0\0" + b"x" * 40, "cannot be read as Arrow"),
    ):
        (tmp_path / name).write_bytes(content)
        refuses(lambda name=name: read_arrow(tmp_path / name), word)
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_file(sink, pa.schema({"user": "int64"})):
        pass
    refuses(lambda: read_arrow(tmp_path / "a.arrow"), "Column 'item' is not in")
