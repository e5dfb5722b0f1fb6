"""Test that ParquetShards has exactly the rows and numbers of Interactions.from_parquet, split by users."""

import itertools
import pickle
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmf.data.csr import is_ascending
from fairmf.data.half_life import HalfLife
from fairmf.data.interactions import Interactions
from fairmf.distributed.parquet_shards import ParquetShards
from fairmf.distributed.task_pool import InProcess
from fairmf.errors import BrokenFile, InvalidData, InvalidParameter, MissingDependency


def check_same(source, expected, *, again=False):
    """Shard by shard, and all of them together, against the whole."""
    assert (source.n_users, source.n_items, source.nnz) == (expected.n_users, expected.n_items, expected.nnz)
    assert source.is_binary == expected.is_binary
    assert source.item_ids == expected.item_ids
    assert type(source.item_ids.values[0]) is type(expected.item_ids.values[0])
    assert source.n_dislikes == expected.n_dislikes
    assert source.weighting == expected.weighting
    assert getattr(source.weighting, "as_of", None) == getattr(expected.weighting, "as_of", None)
    np.testing.assert_allclose(source.popularity, expected.confidences().by_item.sums(), rtol=1e-6)
    seen = []
    for number in range(source.shards):
        shard = source.read_again(number) if again else source.load(number)
        assert shard.rows.count == len(shard.users) == len(shard.user_ids)
        assert (np.diff(shard.users) > 0).all()
        own = expected.take_users(shard.users)
        assert shard.user_ids == own.user_ids
        np.testing.assert_array_equal(shard.rows.indptr, own.by_user.indptr)
        np.testing.assert_array_equal(shard.rows.indices, own.by_user.indices)
        assert (shard.rows.weights is None) == (own.by_user.weights is None)
        if shard.rows.weights is not None:
            np.testing.assert_array_equal(shard.rows.weights, own.by_user.weights)
        assert is_ascending(shard.rows.indices, shard.rows.indptr)
        seen.append(shard.users)
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(expected.n_users))


def write(folder, tables, row_group_size=None):
    folder.mkdir(exist_ok=True)
    for k, table in enumerate(tables):
        pq.write_table(table, folder / f"part-{k:03}.parquet", row_group_size=row_group_size)
    return folder


def outcome(work):
    """The result, or the message of the error."""
    try:
        return work(), None
    except InvalidData as error:
        return None, str(error)


def in_process(path, **options):
    return ParquetShards.read(path, tasks=InProcess(), **options)


USERS = {
    "integers": lambda k: k * 1_000_003 - 7,
    "text": lambda k: f"user-{k}",
    "floats": lambda k: k / 4 - 1,
    "huge": lambda k: 2**63 + k if k % 2 else k,
    "bytes": lambda k: bytes([k % 256, k // 256]),
    "lists": lambda k: [k, k + 1],
}
TYPES = {"huge": pa.uint64()}

rows = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 8), st.integers(-2, 3), st.integers(1, 5)), min_size=1, max_size=60
)


@settings(max_examples=25)
@given(
    rows=rows,
    kind=st.sampled_from(list(USERS)),
    files=st.integers(1, 4),
    groups=st.integers(1, 20),
    chunk=st.integers(1, 40),
    shards=st.integers(1, 5),
    weights=st.sampled_from([None, "sum", "plays"]),
    rating_above=st.sampled_from([None, 2]),
    minima=st.sampled_from([(0, 0), (1, 0), (2, 0), (0, 2), (2, 3)]),
    half_life=st.sampled_from([None, 2.0, HalfLife(3, as_of="2020-09-14")]),
)
def test_any_way_of_cutting_gives_the_same_as_reading_the_whole(
    tmp_path_factory, rows, kind, files, groups, chunk, shards, weights, rating_above, minima, half_life
):
    if half_life is not None and weights is None:
        minima = (0, 0)  # which shards refuse: see TestHalfLife
    folder = tmp_path_factory.mktemp("data")
    who, what, plays, stars = zip(*rows, strict=True)
    table = pa.table(
        {
            "user": pa.array([USERS[kind](k) for k in who], type=TYPES.get(kind)),
            "item": pa.array([f"i{k}" for k in what]),
            "plays": pa.array([0.3 * k for k in plays]),
            "stars": pa.array(stars),
            "time": pa.array([1_600_000_000 + 40_000 * (k * 7 % 11) for k in range(len(rows))]),
        }
    )
    cuts = np.linspace(0, len(table), files + 1).astype(int)
    write(folder, [table.slice(a, b - a) for a, b in itertools.pairwise(cuts)], groups)
    options = {"weights": weights, "min_user": minima[0], "min_item": minima[1], "half_life": half_life}
    if rating_above is not None:
        options |= {"rating": "stars", "rating_above": rating_above}
    expected, refused = outcome(lambda: Interactions.from_parquet(folder, **options))
    if expected is None:
        _, error = outcome(lambda: in_process(folder, shards=shards, rows_per_chunk=chunk, **options))
        assert error == refused.replace(str(folder), str(folder / "part-000.parquet"))
        return
    if expected.nnz == 0:
        _, error = outcome(lambda: in_process(folder, shards=shards, rows_per_chunk=chunk, **options))
        assert "likes and dislikes of every pair cancel" in error
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairmf.distributed.parquet_pass._USERS_PER_RANKING", 3)
        patch.setattr("fairmf.distributed.parquet_pass._MERGED_AT_ONCE", 2)
        source = in_process(folder, shards=shards, rows_per_chunk=chunk, **options)
    check_same(source, expected)
    check_same(pickle.loads(pickle.dumps(source)), expected, again=True)


def events(n=400, seed=0, text=True):
    rng = np.random.default_rng(seed)
    users, items = rng.integers(0, 60, n), (20 * rng.random(n) ** 2).astype(int)
    return pa.table(
        {
            "user": pa.array([f"u{k}" for k in users]) if text else pa.array(users * 11),
            "item": pa.array([f"i{k}" for k in items]) if text else pa.array(items * 7),
            "plays": pa.array(rng.integers(1, 4, n).astype(np.float32)),
        }
    )


def sliced(table, files):
    cuts = np.linspace(0, len(table), files + 1).astype(int)
    return [table.slice(a, b - a) for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize("text", [True, False])
def test_compiled_tables_give_the_same(tmp_path, monkeypatch, text):
    monkeypatch.setattr("fairmf.distributed.parquet_pass._MANY_ROWS", 1)
    folder = write(tmp_path / "data", sliced(events(text=text), 3), 50)
    source = in_process(folder, shards=3, rows_per_chunk=100, weights="plays")
    check_same(source, Interactions.from_parquet(folder, weights="plays"))
    check_same(source, Interactions.from_parquet(folder, weights="plays"), again=True)


def test_integers_of_different_width_are_the_same_ids(tmp_path):
    narrow, wide = events(text=False), events(seed=1, text=False)
    narrow = narrow.set_column(0, "user", narrow["user"].cast(pa.int32()))
    wide = wide.set_column(0, "user", wide["user"].cast(pa.uint64()))
    folder = write(tmp_path / "data", [narrow, wide])
    check_same(in_process(folder, shards=4), Interactions.from_parquet(folder))


def test_a_fingerprint_tells_data_apart_and_nothing_else(tmp_path):
    table = events()
    one = write(tmp_path / "one", [table])
    many = write(tmp_path / "many", sliced(table, 5), 20)
    options = {"weights": "plays"}
    prints = {in_process(path, shards=s, **options).fingerprint() for path in (one, many) for s in (1, 3)}
    assert len(prints) == 1
    others = {in_process(one, shards=2).fingerprint(), in_process(one, shards=2, weights="sum").fingerprint()}
    for name, values in (("user", "someone"), ("item", "something"), ("plays", 9.0)):
        column = table[name].to_pylist()
        place = table.column_names.index(name)
        changed = table.set_column(place, name, pa.array([values, *column[1:]], type=table[name].type))
        others.add(in_process(write(tmp_path / name, [changed]), shards=2, **options).fingerprint())
    renamed = [{"u7": "someone else"}.get(user, user) for user in table["user"].to_pylist()]
    changed = table.set_column(0, "user", pa.array(renamed))
    others.add(in_process(write(tmp_path / "renamed", [changed]), shards=2, **options).fingerprint())
    turned = table.take(pa.array(np.arange(len(table))[::-1]))
    others.add(in_process(write(tmp_path / "turned", [turned]), shards=2, **options).fingerprint())
    assert len(others | prints) == 8


def test_users_are_spread_evenly():
    from fairmf.data.ids import Ids
    from fairmf.distributed.parquet_read import shards_of

    for ids in (np.arange(20_000), np.arange(20_000) * 1024, [f"user{k}" for k in range(20_000)]):
        counts = np.bincount(shards_of(Ids(ids), 16), minlength=16)
        assert counts.min() > 1100
        assert counts.max() < 1400


def test_nought_and_its_negative_are_one_user(tmp_path):
    users = pa.array([0.0, -0.0, 1.5, 0.0, -0.0, 2.5])
    table = pa.table({"user": users, "item": [1, 2, 3, 4, 5, 6]})
    folder = write(tmp_path / "data", sliced(table, 3))
    for shards in (2, 3, 5, 8):
        check_same(in_process(folder, shards=shards), Interactions.from_parquet(folder))


def test_a_users_shard_never_changes():
    from fairmf.data.ids import Ids
    from fairmf.distributed.parquet_read import shards_of

    assert shards_of(Ids([0, 1, 2, -1, 10**12]), 1000).tolist() == [891, 377, 794, 459, 913]
    assert shards_of(Ids(["", "a", "user-7", "ü"]), 1000).tolist() == [756, 928, 814, 525]


def test_without_ray_a_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not there
    folder = write(tmp_path / "data", [events(5)])
    with pytest.raises(MissingDependency, match=r"Data in shards needs Ray: pip install .*\bray"):
        ParquetShards.read(folder)
    check_same(in_process(folder, shards=2), Interactions.from_parquet(folder))


class TestFileSystems:
    def test_a_url_an_arrow_and_an_fsspec_file_system_read_the_same(self, tmp_path):
        fsspec = pytest.importorskip("fsspec")
        from pyarrow import fs

        folder = write(tmp_path / "data", sliced(events(), 3))
        (folder / "nested").mkdir()
        pq.write_table(events(50, seed=9), folder / "nested" / "part-9.parquet")
        pq.write_table(events(50, seed=8), folder / "_hidden.parquet")
        expected = Interactions.from_parquet(folder)
        inside = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
        check_same(in_process(folder.as_uri(), shards=2), expected)
        check_same(in_process("data", filesystem=inside, shards=2), expected)
        check_same(in_process(str(folder), filesystem=fsspec.filesystem("file"), shards=2), expected)

    def test_a_file_system_of_fsspec_by_its_url(self):
        fsspec = pytest.importorskip("fsspec")
        memory = fsspec.filesystem("memory")
        for k, table in enumerate(sliced(events(), 2)):
            with memory.open(f"/shards-test/p{k}.parquet", "wb") as file:
                pq.write_table(table, file)
        try:
            source = in_process("memory://shards-test", shards=2)
            assert source.nnz == Interactions.from_frame(events()).nnz
        finally:
            memory.rm("/shards-test", recursive=True)

    def test_nothing_there(self, tmp_path):
        with pytest.raises(InvalidData, match=r"no file .*absent.parquet"):
            in_process((tmp_path / "absent.parquet").as_uri(), shards=2)
        (tmp_path / "empty").mkdir()
        for path in (tmp_path / "empty", (tmp_path / "empty").as_uri()):
            with pytest.raises(InvalidData, match=r"empty holds no \*.parquet file"):
                in_process(path, shards=2)
        with pytest.raises(InvalidData, match="Cannot open the file system"):
            in_process("nonsense://bucket/x", shards=2)
        with pytest.raises(InvalidData, match="list of Parquet files is empty"):
            in_process([], shards=2)
        with pytest.raises(InvalidData, match="string or a path, not by int"):
            in_process(7, shards=2)


class TestBadInput:
    def refused(self, tmp_path, tables, match, row_group_size=None, **options):
        folder = write(tmp_path / "data", tables, row_group_size)
        with pytest.raises(InvalidData, match=match):
            in_process(folder, shards=2, **options)

    def test_a_missing_column_names_the_file(self, tmp_path):
        odd = events(5).rename_columns(["user", "product", "plays"])
        self.refused(tmp_path, [events(5), odd], r"'item' is not in .*part-001.parquet.*item='product'")

    def test_one_type_in_one_file_and_another_in_another(self, tmp_path):
        self.refused(
            tmp_path, [events(5), events(5, text=False)],
            r"'user' holds text in .*part-000.parquet and integers in .*part-001.parquet",
        )  # fmt: skip

    @pytest.mark.parametrize("name", ["user", "item"])
    def test_nulls_name_file_and_row(self, tmp_path, name):
        table = events(30)
        place = table.column_names.index(name)
        holes = table.set_column(place, name, pa.array([*table[name].to_pylist()[:-2], None, None]))
        self.refused(
            tmp_path, [events(5), holes], rf"'{name}' of .*part-001.parquet.* holds 2 null or NaN, the first in row 28",
            row_group_size=7, rows_per_chunk=14,
        )  # fmt: skip

    def test_bad_weights(self, tmp_path):
        bad = events(5).set_column(2, "plays", pa.array([1.0, float("nan"), -1.0, float("inf"), 2.0]))
        self.refused(
            tmp_path, [events(5), bad], "part-001.parquet .weights. holds 1 NaN or missing and 1 infinite",
            weights="plays",
        )  # fmt: skip
        dislikes = events(5).set_column(2, "plays", pa.array([-1.0, -1.0, 0.0, -1.0, -2.0]))
        self.refused(tmp_path, [dislikes, dislikes], "All 10 weights are 0 or dislikes", weights="plays")
        zero = events(5).set_column(2, "plays", pa.array([0.0] * 5))
        for minimum in (0, 1):
            self.refused(tmp_path, [zero, zero], "All 10 weights are 0", weights="plays", min_user=minimum)

    def test_text_where_numbers_are_needed(self, tmp_path):
        self.refused(tmp_path, [events(5)], "In .*part-000.parquet: Column 'item' is used as weights", weights="item")
        self.refused(
            tmp_path, [events(5)], "In .*part-000.parquet: Column 'item' is used as rating", rating="item",
            rating_above=1,
        )  # fmt: skip

    def test_no_rows(self, tmp_path):
        self.refused(tmp_path, [events(0), events(0)], "There are no rows in these 2 Parquet files")
        self.refused(
            tmp_path, [events(5), events(6)], r"none of the 11 rows of these 2 Parquet files has 'plays' above 9 ",
            rating="plays", rating_above=9,
        )  # fmt: skip
        self.refused(tmp_path, [events(5), events(0)], r"of 5 rows min_item=6 removed 5", min_item=6)

    def test_a_damaged_file_is_named(self, tmp_path):
        folder = write(tmp_path / "data", [events(5), events(5)])
        (folder / "part-001.parquet").write_bytes(b"PAR1 and nothing else")
        with pytest.raises(InvalidData, match=r"part-001.parquet cannot be read as Parquet"):
            in_process(folder, shards=2)

    def test_a_file_that_changes_after_the_pass_is_not_mixed_with_what_was(self, tmp_path):
        folder = write(tmp_path / "data", [events(5), events(5)])
        source = in_process(folder, shards=2)
        pq.write_table(events(7), folder / "part-001.parquet")
        with pytest.raises(InvalidData, match=r"part-001.parquet has changed"):
            source.read_again(0)

    @pytest.mark.parametrize("bad", [{"shards": 0}, {"shards": 1.5}, {"min_user": -1}, {"min_item": True}])
    def test_bad_arguments(self, tmp_path, bad):
        ((name, value),) = bad.items()
        with pytest.raises(
            InvalidParameter,
            match=f"'{name}' parameter of ParquetShards must be an integer >= .[.] Got {value} instead",
        ):
            in_process(tmp_path, **bad)


class TestHalfLife:
    @staticmethod
    def dated(n, times):
        return events(n).append_column("time", pa.array(times))

    def test_the_unit_is_that_of_all_files_and_files_that_differ_are_refused(self, tmp_path):
        # Of the first file alone nobody could tell the unit.
        unclear = self.dated(2, [0, 1_600_000_000])
        clear = self.dated(5, [1_600_000_000 + 10_000 * k for k in range(5)])
        folder = write(tmp_path / "data", [unclear, clear])
        options = {"half_life": 1.0, "weights": "sum"}
        check_same(in_process(folder, shards=2, **options), Interactions.from_parquet(folder, **options))
        dates = self.dated(2, np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[us]"))
        with pytest.raises(InvalidData, match="dates in one part of the files and numbers in another"):
            in_process(write(tmp_path / "mixed", [dates, clear]), shards=2, **options)
        with pytest.raises(InvalidData, match="not clear which unit the times have"):
            in_process(write(tmp_path / "unclear", [self.dated(3, [1, 2, 3])]), shards=2, **options)

    def test_dates_count_from_the_newest_of_all_files(self, tmp_path):
        old = self.dated(4, np.array(["2020-01-01", "2020-01-05", "2020-02-01", "2019-01-01"], dtype="datetime64[us]"))
        new = self.dated(2, np.array(["2021-01-01", "2020-01-05"], dtype="datetime64[us]"))
        folder = write(tmp_path / "data", [new, old])
        source = in_process(folder, shards=2, half_life=100, cache=tmp_path / "cache")
        assert source.weighting.as_of == "2021-01-01"
        check_same(source, Interactions.from_parquet(folder, half_life=100))
        again = in_process(folder, shards=2, half_life=100, cache=tmp_path / "cache")
        check_same(again, Interactions.from_parquet(folder, half_life=100))

    def test_what_shards_refuse_says_what_to_do(self, tmp_path):
        with pytest.raises(InvalidParameter, match=r"half_life with min_user or min_item needs weights"):
            in_process(tmp_path, shards=2, half_life=3, min_user=2)
        folder = write(tmp_path / "data", [events(5)])
        with pytest.raises(InvalidData, match="'time' is not in"):
            in_process(folder, shards=2, half_life=3)


class TestCache:
    def test_the_second_reading_takes_the_shards_that_are_there(self, tmp_path, monkeypatch):
        folder = write(tmp_path / "data", sliced(events(), 3))
        options = {"weights": "plays", "min_user": 2, "min_item": 2, "cache": tmp_path / "cache", "shards": 3}
        expected = Interactions.from_parquet(folder, weights="plays", min_user=2, min_item=2)
        first = in_process(folder, **options)
        check_same(first, expected)
        monkeypatch.setattr("fairmf.distributed.parquet_pass.run", None)  # whoever calls it now fails
        second = in_process(folder, **options)
        check_same(second, expected)
        assert second.fingerprint() == first.fingerprint()
        with pytest.raises(TypeError):
            in_process(folder, **options | {"min_user": 3})
        pq.write_table(events(7), folder / "part-001.parquet")
        with pytest.raises(TypeError):
            in_process(folder, **options)

    def test_a_damaged_shard_is_an_error_and_a_missing_one_is_made_again(self, tmp_path):
        folder = write(tmp_path / "data", sliced(events(), 3))
        source = in_process(folder, cache=tmp_path / "cache", shards=2)
        shard = next((tmp_path / "cache").glob("*-00001.fairmf"))
        content = bytearray(shard.read_bytes())
        content[-1] ^= 1
        shard.write_bytes(content)
        with pytest.raises(BrokenFile, match="checksum"):
            source.load(1)
        shard.unlink()
        with pytest.raises(InvalidData, match="folder that all machines see"):
            source.load(1)
        check_same(in_process(folder, cache=tmp_path / "cache", shards=2), Interactions.from_parquet(folder))
