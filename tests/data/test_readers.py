"""Every kind of source gives the same events."""

import datetime
import gzip
import lzma
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.read import read_arrow, read_frame, read_parquet
from fairmf.data.read_csv import read_csv
from fairmf.errors import InvalidData

NAMES = {"user": "who", "item": "what", "weights": "plays", "time": "when"}


def table(n=500, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "who": pa.array(rng.integers(0, 40, n) * 1_000_003),
            "other": pa.array(["unused"] * n),
            "what": pa.array([f"item-{k}" for k in rng.integers(0, 30, n)]),
            "plays": pa.array(rng.integers(0, 9, n)),
            "stars": pa.array(rng.integers(1, 11, n) / 2),
            "when": pa.array(rng.integers(10**9, 2 * 10**9, n)),
        }
    )


def to_csv_text(data, delimiter=",", header=True):
    columns = [c.to_pylist() for c in data.columns]
    lines = [delimiter.join(map(str, row)) for row in zip(*columns, strict=True)]
    return "\n".join(([delimiter.join(data.column_names)] if header else []) + lines) + "\n"


def read_with_header_off(path, **names):
    place = {name: k for k, name in enumerate(table(1).column_names)}
    return read_csv(path, header=False, **{role: place.get(name, name) for role, name in names.items()})


def sources(data, folder):
    """Name -> a function that reads `data` that way."""
    text = to_csv_text(data)
    (folder / "plain.csv").write_text(text)
    (folder / "tab.tsv").write_text(to_csv_text(data, "\t"))
    (folder / "bar.txt").write_text(to_csv_text(data, "|"))
    (folder / "bare.csv").write_text(to_csv_text(data, header=False))
    with gzip.open(folder / "packed.csv.gz", "wt") as file:
        file.write(text)
    with lzma.open(folder / "packed.csv.xz", "wt") as file:
        file.write(text)
    (folder / "colons.dat").write_text(to_csv_text(data, "::"))
    (folder / "bare.dat").write_text(to_csv_text(data, "::", header=False))
    with pa.OSFile(str(folder / "file.arrow"), "wb") as sink, pa.ipc.new_file(sink, data.schema) as writer:
        writer.write_table(data, max_chunksize=130)
    with pa.OSFile(str(folder / "stream.arrows"), "wb") as sink, pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_table(data, max_chunksize=130)
    feather.write_feather(data, str(folder / "one.feather"))
    pq.write_table(data, folder / "one.parquet", row_group_size=90)
    parts = folder / "parts"
    parts.mkdir()
    for k in range(3):
        pq.write_table(data.slice(k * 200, 200), parts / f"part-{k}.parquet")
    (parts / "_SUCCESS").touch()
    (parts / "_hidden.parquet").write_bytes(b"not for us")
    pandas = data.to_pandas()
    return {
        "pandas": lambda **k: read_frame(pandas, **k),
        "pandas, strange index": lambda **k: read_frame(pandas.set_index(pandas.index[::-1]), **k),
        "pandas objects": lambda **k: read_frame(pandas.astype({"what": object}), **k),
        "pandas categories": lambda **k: read_frame(pandas.astype({"what": "category", "who": "category"}), **k),
        "pandas nullable": lambda **k: read_frame(pandas.convert_dtypes(), **k),
        "polars": lambda **k: read_frame(pl.from_arrow(data), **k),
        "polars categories": lambda **k: read_frame(pl.from_arrow(data).cast({"what": pl.Categorical}), **k),
        "arrow": lambda **k: read_frame(data, **k),
        "arrow in chunks": lambda **k: read_frame(pa.concat_tables([data.slice(0, 123), data.slice(123)]), **k),
        "csv": lambda **k: read_csv(folder / "plain.csv", **k),
        "csv, path as text": lambda **k: read_csv(str(folder / "plain.csv"), **k),
        "csv.gz": lambda **k: read_csv(folder / "packed.csv.gz", **k),
        "csv.xz": lambda **k: read_csv(folder / "packed.csv.xz", **k),
        "double colons": lambda **k: read_csv(folder / "colons.dat", **k),
        "double colons, no header": lambda **k: read_with_header_off(folder / "bare.dat", **k),
        "arrow file": lambda **k: read_arrow(folder / "file.arrow", **k),
        "arrow stream": lambda **k: read_arrow(folder / "stream.arrows", **k),
        "feather": lambda **k: read_arrow(folder / "one.feather", **k),
        "tab": lambda **k: read_csv(folder / "tab.tsv", **k),
        "bar, named": lambda **k: read_csv(folder / "bar.txt", delimiter="|", **k),
        "no header": lambda **k: read_with_header_off(folder / "bare.csv", **k),
        "parquet": lambda **k: read_parquet(folder / "one.parquet", **k),
        "parquet list": lambda **k: read_parquet([parts / f"part-{n}.parquet" for n in range(3)], **k),
        "parquet directory": lambda **k: read_parquet(str(parts), **k),
    }


SOURCES = [
    "pandas",
    "pandas, strange index",
    "pandas objects",
    "pandas categories",
    "pandas nullable",
    "polars",
    "polars categories",
    "arrow",
    "arrow in chunks",
    "csv",
    "csv, path as text",
    "csv.gz",
    "csv.xz",
    "double colons",
    "double colons, no header",
    "arrow file",
    "arrow stream",
    "feather",
    "tab",
    "bar, named",
    "no header",
    "parquet",
    "parquet list",
    "parquet directory",
]


@pytest.fixture(params=[None, 64], ids=["one batch", "batches of 64"])
def _batches(request, monkeypatch):
    if request.param:
        monkeypatch.setattr("fairmf.data.read._BATCH_ROWS", request.param)
        monkeypatch.setattr("fairmf.data.read._BATCH_ROWS", request.param)
        monkeypatch.setattr("fairmf.data.read_csv._BLOCK_BYTES", 40 * request.param)


@pytest.mark.usefixtures("_batches")
@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_gives_the_same_events(kind, tmp_path):
    data = table()
    every = sources(data, tmp_path)
    assert sorted(every) == sorted(SOURCES)
    users, items = data["who"].to_pylist(), data["what"].to_pylist()
    rows = every[kind](**NAMES)
    assert rows.user_ids == Ids(list(dict.fromkeys(users)))
    assert rows.item_ids == Ids(list(dict.fromkeys(items)))
    assert rows.user_ids.values[rows.users].tolist() == users
    assert rows.item_ids.values[rows.items].tolist() == items
    assert rows.weights.tolist() == data["plays"].to_pylist()
    assert rows.times.tolist() == data["when"].to_pylist()
    assert rows.times.dtype == np.int64


@pytest.mark.usefixtures("_batches")
@pytest.mark.parametrize("kind", SOURCES)
def test_the_rating_threshold_is_strict_and_needs_no_weights(kind, tmp_path):
    data = table()
    rows = sources(data, tmp_path)[kind](user="who", item="what", time="when", rating="stars", rating_above=3.5)
    above = [k for k, stars in enumerate(data["stars"].to_pylist()) if stars > 3.5]
    assert 3.5 in data["stars"].to_pylist()
    assert rows.weights is None
    assert rows.times.tolist() == data["when"].take(above).to_pylist()
    users = data["who"].take(above).to_pylist()
    assert rows.user_ids.values[rows.users].tolist() == users
    assert rows.user_ids == Ids(list(dict.fromkeys(users)))


def test_interactions_are_the_same_from_every_source(tmp_path):
    data = table()
    every = sources(data, tmp_path)
    names = {"user": "who", "item": "what", "weights": "plays", "rating": "stars", "rating_above": 2}
    limits = {"min_user": 2, "min_item": 3}
    prints = {
        Interactions.from_frame(data, **names, **limits).fingerprint(),
        Interactions.from_csv(tmp_path / "plain.csv", **names, **limits).fingerprint(),
        Interactions.from_parquet(tmp_path / "one.parquet", **names, **limits).fingerprint(),
        Interactions.from_events(every["polars"](**names), weights="column", **limits).fingerprint(),
    }
    assert len(prints) == 1


def test_timestamps_become_microseconds_whatever_their_unit(tmp_path):
    moments = [datetime.datetime(2020, 1, 1, 12, 0, s) for s in (3, 1, 2)]
    expected = [int(m.replace(tzinfo=datetime.timezone.utc).timestamp()) * 10**6 for m in moments]
    plain = {"user": [1, 2, 3], "item": [1, 2, 3]}
    for unit in ("s", "ms", "us", "ns"):
        frame = pa.table({**plain, "t": pa.array(moments, pa.timestamp(unit))})
        assert read_frame(frame, time="t").times.tolist() == expected
    assert read_frame(pd.DataFrame({**plain, "t": moments}), time="t").times.tolist() == expected
    assert read_frame(pl.DataFrame({**plain, "t": moments}), time="t").times.tolist() == expected
    (tmp_path / "t.csv").write_text("user,item,t\n" + "".join(f"1,2,{m.isoformat(' ')}\n" for m in moments))
    assert read_csv(tmp_path / "t.csv", time="t").times.tolist() == expected
    days = pa.table({**plain, "t": pa.array([datetime.date(1970, 1, 2)] * 3)})
    assert read_frame(days, time="t").times.tolist() == [86_400 * 10**6] * 3
    floats = pa.table({**plain, "t": [0.5, 1.5, 2.5]})
    assert read_frame(floats, time="t").times.tolist() == [0.5, 1.5, 2.5]


OBJECTS = {
    "tuple": [(1, "a"), (2, "b"), (1, "a")],
    "mixed": [1, "1", 1],
    "uuid": [uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=1)],
    "bytes after text": ["a", b"a", "a"],
    "numpy": [np.int64(3), np.int64(4), np.int64(3)],
}


@pytest.mark.parametrize("values", OBJECTS.values(), ids=OBJECTS.keys())
@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_ids_of_any_kind_come_back_as_they_went_in(values, kind):
    if kind == "pandas":
        column = pd.Series(pd.array(np.fromiter(values, dtype=object, count=3), dtype=object))
        frame = pd.DataFrame({"user": column, "item": [1, 2, 3]})
    else:
        frame = pl.DataFrame({"user": pl.Series(values, dtype=pl.Object), "item": [1, 2, 3]})
    rows = read_frame(frame)
    assert rows.users.tolist() == [0, 1, 0]
    assert rows.user_ids.values.tolist() == values[:2]
    if values[0].__class__ is not np.int64:
        assert [type(x) for x in rows.user_ids.values.tolist()] == [type(x) for x in values[:2]]


def test_arrow_lists_come_back_as_tuples_and_arrow_uuids_as_uuids(tmp_path):
    both = [uuid.UUID(int=7), uuid.UUID(int=8)]
    data = pa.table({"user": pa.array([u.bytes for u in both], pa.uuid()), "item": [[1, 2], [3]]})
    rows = read_frame(data)
    assert rows.user_ids.values.tolist() == both
    assert rows.item_ids.values.tolist() == [(1, 2), (3,)]


def test_integer_column_names_of_pandas():
    rows = read_frame(pd.DataFrame([[5, 6], [5, 7]]), user=0, item=1)
    assert rows.item_ids.values.tolist() == [6, 7]


def test_one_column_may_be_both_rating_and_weights():
    rows = read_frame(
        pl.DataFrame({"user": [1, 2], "item": [1, 2], "r": [5.0, 2.0]}), weights="r", rating="r", rating_above=3
    )
    assert rows.weights.tolist() == [5.0]


def test_integer_widths_may_differ_between_files(tmp_path):
    pq.write_table(pa.table({"user": pa.array([1], pa.int32()), "item": ["a"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"user": [1], "item": pa.array(["a"], pa.large_string())}), tmp_path / "b.parquet")
    rows = read_parquet(tmp_path)
    assert (rows.users.tolist(), rows.items.tolist()) == ([0, 0], [0, 0])


@pytest.mark.usefixtures("_batches")
@pytest.mark.parametrize(
    "name",
    [
        "csv",
        "csv.gz",
        "csv.xz",
        "double colons",
        "parquet",
        "parquet directory",
        "arrow file",
        "arrow stream",
        "feather",
    ],
)
def test_progress_goes_up_to_the_size_of_the_file(name, tmp_path):
    told = []
    read = sources(table(), tmp_path)[name]
    read(user="who", item="what", progress=lambda done, total: told.append((done, total)))
    total = told[0][1]
    assert all(t == total > 0 for _, t in told)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    # The end of an IPC stream, and of a file's last block, may not be read at all.
    assert 0.7 * total <= told[-1][0] <= total


# -- dates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "texts",
    [
        ("2001-01-01", "2001-01-02"),
        ("2001-01-01 00:00:00", "2001-01-02 00:00"),
        ("2001-01-01", "2001-01-02T00:00:00"),
        ("2001-01-01T00:00:00Z", "2001-01-02T02:00:00+02:00"),
    ],
)
def test_dates_written_as_text_are_microseconds(texts, tmp_path, monkeypatch):
    monkeypatch.setattr("fairmf.data.read_csv._BLOCK_BYTES", 24)  # the two dates are in two blocks
    (tmp_path / "a.csv").write_text("user,item,t\n" + "".join(f"1,2,{text}\n" for text in texts))
    pq.write_table(pa.table({"user": [1, 1], "item": [2, 2], "t": list(texts)}), tmp_path / "a.parquet")
    for events in (read_csv(tmp_path / "a.csv", time="t"), read_parquet(tmp_path / "a.parquet", time="t")):
        assert events.times.tolist() == [978_307_200_000_000, 978_393_600_000_000]
        assert events.time_unit == "us"
        assert events.select([1]).compact().time_unit == "us"


def test_numbers_keep_their_unit_to_themselves_and_do_not_mix_with_dates(tmp_path):
    pq.write_table(pa.table({"user": [1], "item": [2], "t": [978_307_200]}), tmp_path / "a.parquet")
    dated = pa.table({"user": [1], "item": [2], "t": pa.array([978_307_200_000], pa.timestamp("ms"))})
    pq.write_table(dated, tmp_path / "b.parquet")
    assert read_parquet(tmp_path / "a.parquet", time="t").time_unit is None
    with pytest.raises(InvalidData, match="dates in one part and numbers in another"):
        read_parquet([tmp_path / "a.parquet", tmp_path / "b.parquet"], time="t")
