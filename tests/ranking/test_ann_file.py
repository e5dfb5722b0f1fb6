"""Index files: what comes back, what a broken file says, and that no half-written file is ever seen."""

import datetime
import errno
import json

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from full_disk import fail_after

from fairmf.data.ids import Ids
from fairmf.errors import BrokenFile, CannotWrite, InvalidData
from fairmf.io import container
from fairmf.io.container import Format
from fairmf.ranking import ann
from fairmf.ranking.ann import AnnIndex

pytest.importorskip("faiss", reason='needs the ann extra: pip install "fairmf[ann]"')

RANDOM = np.random.default_rng(0)
ITEMS, USERS = RANDOM.normal(size=(90, 6)), RANDOM.normal(size=(20, 6))


def saved(path, ids=None, **options):
    index = AnnIndex.build(ITEMS, ids, **options)
    index.save(path)
    return index


@pytest.mark.parametrize("offsets", [None, np.linspace(-1, 1, 90)])
@pytest.mark.parametrize(
    "ids",
    [
        None,
        np.arange(90) + 500,
        np.arange(90, dtype=np.uint64) + 2**63,
        [f"é{j}\ud800" for j in range(90)],
        [(f"a{j}", (j, True)) for j in range(89)] + [2.5],
        [datetime.date(2024, 1, 1) + datetime.timedelta(j) for j in range(90)],
    ],
    ids=["none", "integers", "unsigned", "strings", "tuples", "dates"],
)
def test_a_loaded_index_answers_with_the_same_bits(tmp_path, ids, offsets):
    index = saved(tmp_path / "items.ann", ids, offsets=offsets, probes=3)
    loaded = AnnIndex.load(tmp_path / "items.ann")
    assert loaded.probes == 3
    assert (loaded.ids is None) if ids is None else loaded.ids == index.ids
    for a, b in zip(index.recommend(USERS, N=95), loaded.recommend(USERS, N=95), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def test_every_truncation_is_told(tmp_path):
    path = tmp_path / "items.ann"
    saved(path, [f"i{j}" for j in range(90)])
    whole = path.read_bytes()
    for length in [*range(0, 64), *range(64, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(BrokenFile):
            AnnIndex.load(path)


def test_every_flipped_bit_is_told(tmp_path):
    """600 bits, half of them in the header: an error that names the file, whatever they mean."""
    path = tmp_path / "items.ann"
    saved(path, [f"i{j}" for j in range(90)])
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for k in range(600):
        position = int(RANDOM.integers(0, header if k % 2 else len(whole)))
        changed = bytearray(whole)
        changed[position] ^= 1 << int(RANDOM.integers(0, 8))
        path.write_bytes(changed)
        with pytest.raises(BrokenFile, match=r"items\.ann"):
            AnnIndex.load(path)


def arrays_of(index):
    return {"item_vectors": index.item_vectors, "centroids": index.centroids, "assignment": index.assignment}


@pytest.mark.parametrize(
    ("change", "ids", "probes", "problem"),
    [
        ({"assignment": np.full(90, 10**6, np.int32)}, None, 1, "a group that does not exist"),
        ({"assignment": np.full(90, -1, np.int32)}, None, 1, "a group that does not exist"),
        ({"assignment": np.zeros(89, np.int32)}, None, 1, "do not fit each other"),
        ({"assignment": np.zeros(90, np.int64)}, None, 1, "assignment must hold finite numbers of type i4"),
        ({"centroids": np.zeros((5, 6), np.float32)}, None, 1, "do not fit each other"),
        ({"centroids": np.full((37, 7), np.nan, np.float32)}, None, 1, "centroids must hold finite"),
        ({"item_vectors": np.zeros(4, np.float32)}, None, 1, "no item_vectors, or not in the right shape"),
        ({"centroids": np.zeros(37, np.float32)}, None, 1, "no centroids, or not in the right shape"),
        ({"item_vectors": np.zeros((0, 6), np.float32)}, None, 1, "do not fit each other"),
        ({"more": np.zeros(3)}, None, 1, "an array 'more' that does not belong there"),
        ({"offsets": np.zeros(90, np.float32)}, None, 1, "do not fit each other"),
        ({}, None, 0, "probes must be from 1"),
        ({}, None, 10**9, "probes must be from 1"),
        ({}, [1, 2], 1, "item_ids are not 90 integers"),
        ({}, ["a", "b"], 1, "offsets of item_ids do not describe 90 pieces"),
        ({}, [*range(89), 3], 1, "unique"),
        ({}, [("a", j) for j in range(89)] + [("a", 3)], 1, "unique"),
    ],
)
def test_a_hostile_file_with_a_right_checksum_is_told_too(tmp_path, change, ids, probes, problem):
    index = AnnIndex.build(ITEMS)
    path = tmp_path / "items.ann"
    ann.write(path, arrays_of(index) | change, None if ids is None else Ids(ids), probes)
    with pytest.raises(BrokenFile, match=problem):
        AnnIndex.load(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "other parts than an index's"),
        ([], "other parts than an index's"),
        ({"probes": 1}, "other parts than an index's"),
        ({"probes": 1, "item_ids": "none", "code": "x"}, "other parts than an index's"),
        ({"probes": "1", "item_ids": "none"}, "probes must be from 1"),
        ({"probes": True, "item_ids": "none"}, "probes must be from 1"),
        ({"probes": 1, "item_ids": "integers"}, "item_ids are not 90 integers"),
        ({"probes": 1, "item_ids": ["texts"]}, "item_ids are of an unknown kind"),
        ({"probes": 1, "item_ids": "typed"}, "item_ids are incomplete"),
    ],
)
def test_a_hostile_document_is_told_too(tmp_path, content, problem):
    path = tmp_path / "items.ann"
    container.write(path, ann.INDEX, content, arrays_of(AnnIndex.build(ITEMS)))
    with pytest.raises(BrokenFile, match=problem):
        AnnIndex.load(path)


@pytest.mark.parametrize("missing", ["item_vectors", "centroids", "assignment"])
def test_a_missing_array_is_told(tmp_path, missing):
    arrays = arrays_of(AnnIndex.build(ITEMS))
    del arrays[missing]
    ann.write(tmp_path / "items.ann", arrays, None, 1)
    with pytest.raises(BrokenFile, match=f"it has no {missing}"):
        AnnIndex.load(tmp_path / "items.ann")


def test_the_safetensors_library_reads_it(tmp_path):
    index = saved(tmp_path / "items.ann", [f"é{j}" for j in range(90)], offsets=np.linspace(-1, 1, 90), probes=3)
    arrays = safetensors.numpy.load_file(tmp_path / "items.ann")
    own = arrays_of(index) | {"offsets": index.offsets}
    assert arrays.keys() == {*own, "item_ids.bytes", "item_ids.offsets"}
    for name, array in own.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)
    assert bytes(arrays["item_ids.bytes"]).decode() == "".join(f"é{j}" for j in range(90))
    with safetensors.safe_open(tmp_path / "items.ann", framework="np") as file:
        assert json.loads(file.metadata()["document"])["content"] == {"probes": 3, "item_ids": "texts"}


def test_other_files(tmp_path):
    path = tmp_path / "other"
    with pytest.raises(FileNotFoundError, match=r"nothing\.ann"):
        AnnIndex.load(tmp_path / "nothing.ann")
    with pytest.raises(BrokenFile, match="it is not a file"):
        AnnIndex.load(tmp_path)
    for metadata in (None, {}, {"format": "something"}, {"format": "[" * 100_000}):
        safetensors.numpy.save_file({"x": np.zeros(3)}, path, metadata=metadata)
        with pytest.raises(BrokenFile, match=r"other cannot be read as a fairmf nearest-neighbour index: .*not one of"):
            AnnIndex.load(path)
    container.write(path, Format("fairmf model", version=1), {"probes": 1, "item_ids": "none"}, {})
    with pytest.raises(BrokenFile, match="it is a fairmf model"):
        AnnIndex.load(path)
    container.write(path, Format(ann.INDEX.name, version=2), None, {})
    with pytest.raises(BrokenFile, match="wrote it in format 2, this version reads formats 1 to 1: upgrade fairmf"):
        AnnIndex.load(path)


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "items.ann"
    before, after = saved(path), AnnIndex.build(2 * ITEMS)
    with monkeypatch.context() as patch:
        fail_after(patch, 3000, OSError(errno.ENOSPC, "disk full"))
        with pytest.raises(CannotWrite, match="disk full"):
            after.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["items.ann"]
    np.testing.assert_array_equal(AnnIndex.load(path).item_vectors, before.item_vectors)


def test_ids_that_no_file_can_hold_are_refused(tmp_path):
    with pytest.raises(InvalidData, match=r"The item_ids cannot be stored: .*complex"):
        saved(tmp_path / "items.ann", [complex(j, 1) for j in range(90)])
    assert list(tmp_path.iterdir()) == []
