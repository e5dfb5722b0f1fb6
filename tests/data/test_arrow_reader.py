"""Arrow files and streams give the events of the same table in Parquet."""

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from fairmf import read_arrow
from fairmf.data import read
from fairmf.data.interactions import Interactions
from fairmf.data.read import read_frame, read_parquet
from fairmf.errors import InvalidData

TABLE = pa.table(
    {
        "user": ["b", "a", "b", "c", "a"],
        "item": [5, 5, 6, 7, 8],
        "plays": [1.0, 2.0, 3.0, 4.0, 5.0],
        "at": pa.array([1, 2, 3, 4, 5], pa.timestamp("ms")),
    }
)


def ipc_file(path):
    with pa.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_file(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=2)


def ipc_stream(path):
    with pa.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=2)


def feather(path):
    pyarrow.feather.write_feather(TABLE, str(path), compression="zstd", chunksize=2)


def same(one, other):
    for name in ("users", "items", "weights", "times"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.user_ids.values.tolist() == other.user_ids.values.tolist()
    assert one.item_ids.values.tolist() == other.item_ids.values.tolist()


@pytest.mark.parametrize("write", [ipc_file, ipc_stream, feather])
def test_files(write, tmp_path, monkeypatch):
    write(tmp_path / "a.arrow")
    pq.write_table(TABLE, tmp_path / "a.parquet")
    expected = read_parquet(tmp_path / "a.parquet", weights="plays", time="at")
    same(read_arrow(tmp_path / "a.arrow", weights="plays", time="at"), expected)
    monkeypatch.setattr(read, "_BATCH_ROWS", 1)
    same(read_arrow(str(tmp_path / "a.arrow"), weights="plays", time="at"), expected)


def test_streams_are_taken_batch_by_batch():
    taken = []

    def batches():
        for batch in TABLE.to_batches(max_chunksize=2):
            taken.append(len(taken))
            yield batch

    reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
    same(read_arrow(reader, weights="plays", time="at"), read_frame(TABLE, weights="plays", time="at"))
    assert taken == [0, 1, 2]


def test_a_polars_frame_with_its_string_views():
    polars = pytest.importorskip("polars")
    same(read_arrow(polars.from_arrow(TABLE)), read_frame(TABLE))


def test_views_dictionaries_and_large_strings():
    for kind in (pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())):
        column = TABLE.column("user").combine_chunks()
        column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
        table = TABLE.set_column(0, "user", column)
        same(read_arrow(table.to_reader()), read_frame(TABLE))


def test_the_matrix(tmp_path):
    feather(tmp_path / "a.feather")
    data = Interactions.from_arrow(tmp_path / "a.feather", weights="plays", min_user=2)
    assert data.fingerprint() == Interactions.from_frame(TABLE, weights="plays", min_user=2).fingerprint()
    counted = Interactions.from_arrow(tmp_path / "a.feather", weights="sum")
    assert counted.fingerprint() == Interactions.from_frame(TABLE, weights="sum").fingerprint()


def test_decimal_numbers_that_arrive_as_text():
    opaque = pa.opaque(pa.string(), "numeric", "PostgreSQL")

    def table(texts):
        values = pa.ExtensionArray.from_storage(opaque, pa.array(texts))
        return pa.table({"user": [1, 2], "item": [3, 4], "w": values}).to_reader()

    np.testing.assert_array_equal(read_arrow(table(["1.25", "3"]), weights="w").weights, [1.25, 3.0])
    with pytest.raises(InvalidData, match="'w' must hold numbers"):
        read_arrow(table(["1.25", "three"]), weights="w")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"user,item\n1,2\n", "cannot be read as Arrow"),
        (b"ARROW1\0\0 and then nothing", "cannot be read as Arrow"),
        (b"PAR1 and so on", "is a Parquet file"),
        (b"FEA1 and so on", "version 1"),
    ],
)
def test_other_files_are_refused(content, words, tmp_path):
    (tmp_path / "a.arrow").write_bytes(content)
    with pytest.raises(InvalidData, match=words) as caught:
        read_arrow(tmp_path / "a.arrow")
    assert "\n" not in str(caught.value)


def test_a_file_cut_short(tmp_path):
    ipc_file(tmp_path / "a.arrow")
    whole = (tmp_path / "a.arrow").read_bytes()
    for length in range(6, len(whole), 37):
        (tmp_path / "b.arrow").write_bytes(whole[:length])
        with pytest.raises(InvalidData, match=r"b\.arrow"):
            read_arrow(tmp_path / "b.arrow", weights="plays")


def test_what_else_is_wrong(tmp_path):
    with pytest.raises(InvalidData, match="There is no file"):
        read_arrow(tmp_path / "absent.arrow")
    with pytest.raises(InvalidData, match="is a directory"):
        read_arrow(tmp_path)
    with pytest.raises(InvalidData, match="not by list"):
        read_arrow([1, 2])
    with pytest.raises(InvalidData, match="'who' is not in the pyarrow stream"):
        read_arrow(TABLE.to_reader(), user="who")
