"""Lists made shard by shard are those of the whole."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairmf.data.interactions import Interactions
from fairmf.distributed.parquet_shards import ParquetShards
from fairmf.distributed.task_pool import InProcess
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.models.als import IALS, FairALS
from fairmf.models.shard_lists import recommend_shards


def events(n=600, seed=0):
    rng = np.random.default_rng(seed)
    users, items = rng.integers(0, 70, n), (40 * rng.random(n) ** 2).astype(int)
    return pa.table({"user": [f"u{k}" for k in users], "item": items * 3, "plays": rng.integers(0, 4, n) / 2})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    cuts = np.linspace(0, 600, 4).astype(int)
    for k, (a, b) in enumerate(itertools.pairwise(cuts)):
        pq.write_table(events().slice(a, b - a), folder / f"part-{k}.parquet")
    return folder


@pytest.fixture(scope="module")
def whole(folder):
    return Interactions.from_parquet(folder, weights="plays")


@pytest.fixture(scope="module")
def model(whole):
    return FairALS(factors=6, epochs=3, fairness=2.0).fit(whole)


def source_of(folder, shards=3):
    return ParquetShards.read(folder, weights="plays", shards=shards, tasks=InProcess())


def rows_of(tables):
    listed = pa.concat_tables(tables).to_pylist()
    return sorted((row["user"], row["rank"], row["item"], row["score"]) for row in listed)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"N": 50, "filter_already_liked_items": False},
        {"fairness": 0.5, "filter_items": [0, 3, 6]},
        {"items": [0, 3, 9, 12, 30], "no_history": "popular"},
    ],
    ids=["plain", "long", "dialled", "chosen"],
)
def test_the_files_together_are_the_lists_of_the_whole(folder, whole, model, tmp_path, options):
    done = recommend_shards(model, source_of(folder), tmp_path / "lists", **options, tasks=InProcess())
    expected = model.recommend_table(None, recalculate_user=True, **options)
    parts = [pq.read_table(tmp_path / "lists" / name) for name in done.files]
    assert [p.name for p in sorted((tmp_path / "lists").iterdir())] == list(done.files)
    assert parts[0].schema.names == expected.schema.names
    assert rows_of(parts) == rows_of([expected])
    assert done.n_users == whole.n_users
    assert done.rows == len(expected)
    shown = np.zeros(whole.n_items, dtype=int)
    for row in expected.to_pylist():
        shown[whole.item_ids.position(row["item"])] += 1
    np.testing.assert_array_equal(done.exposure, shown)


def test_the_number_of_shards_does_not_matter(folder, model, tmp_path):
    found = []
    for shards in (1, 5, 200):  # of 200 shards most have nobody
        done = recommend_shards(model, source_of(folder, shards), tmp_path / str(shards), N=4, tasks=InProcess())
        assert sorted(path.name for path in (tmp_path / str(shards)).iterdir()) == list(done.files)
        found.append((rows_of([pq.read_table(tmp_path / str(shards) / name) for name in done.files]), done.gini))
    assert found[0] == found[1] == found[2]


def test_gini_and_coverage_are_those_of_the_lists(folder, whole, tmp_path):
    model = IALS(factors=4, epochs=2).fit(whole)
    done = recommend_shards(model, source_of(folder), tmp_path, N=3, tasks=InProcess())
    o = sorted(done.exposure.tolist())
    m = len(o)
    assert done.gini == pytest.approx(sum((2 * (r + 1) - m - 1) * x for r, x in enumerate(o)) / (m * sum(o)))
    assert done.coverage == sum(x > 0 for x in o) / m
    assert sum(o) == done.rows == 3 * whole.n_users


def test_another_file_system(folder, model, tmp_path):
    from pyarrow import fs

    inside = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    one = recommend_shards(model, source_of(folder), "a/b", N=3, filesystem=inside, tasks=InProcess())
    two = recommend_shards(model, source_of(folder), (tmp_path / "c").as_uri(), N=3, tasks=InProcess())
    for name in one.files:
        assert pq.read_table(tmp_path / "a" / "b" / name).equals(pq.read_table(tmp_path / "c" / name))
    assert one.files == two.files


def test_a_model_without_its_users_is_enough(folder, whole, model, tmp_path):
    from fairmf.models.shard_lists import without_users

    lean = without_users(model)
    assert lean.n_users == 0
    assert lean.fitted.interactions is None
    one = recommend_shards(model, source_of(folder), tmp_path / "1", N=3, tasks=InProcess())
    two = recommend_shards(lean, source_of(folder), tmp_path / "2", N=3, tasks=InProcess())
    np.testing.assert_array_equal(one.exposure, two.exposure)
    assert model.n_users == whole.n_users


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"N": 0}, "'N' parameter must be an integer >= 1"),
        ({"fairness": -1}, "'fairness' parameter must be a number >= 0"),
        ({"filter_items": [[0], [3]]}, "one list of items, for all users"),
        ({"filter_items": [1]}, "1 of 1 items are unknown"),
        ({"user_items": None}, "no option 'user_items'"),
        ({"by": "row"}, "no option 'by'"),
    ],
)
def test_bad_arguments_are_found_before_anything_is_written(folder, model, tmp_path, options, match):
    with pytest.raises((InvalidParameter, InvalidData), match=match):
        recommend_shards(model, source_of(folder), tmp_path / "none", tasks=InProcess(), **options)
    assert not (tmp_path / "none").exists()


def test_other_items_are_refused(folder, model, tmp_path):
    other = tmp_path / "other.parquet"
    pq.write_table(events(seed=5), other)
    with pytest.raises(InvalidData, match=r"read it with items=model.fitted.item_ids|items, the source has"):
        recommend_shards(model, source_of(other), tmp_path / "none", tasks=InProcess())
    mine = ParquetShards.read(other, items=model.fitted.item_ids, shards=2, tasks=InProcess())
    done = recommend_shards(model, mine, tmp_path / "lists", N=3, tasks=InProcess())
    assert done.n_users == mine.n_users > 0
