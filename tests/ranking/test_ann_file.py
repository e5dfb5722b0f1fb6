"""Index files: what comes back, what a broken file says, and that no half-written file is ever seen."""

import json

import numpy as np
import pytest

from fairmf.errors import BrokenFile, InvalidData
from fairmf.interactions import Ids
from fairmf.ranking import ann_file
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
    ],
    ids=["none", "integers", "unsigned", "strings", "tuples"],
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
        ({"item_vectors": np.zeros(4, np.float32)}, None, 1, "damaged"),
        ({"offsets": np.zeros(90, np.float32)}, None, 1, "do not fit each other"),
        ({}, None, 0, "probes must be from 1"),
        ({}, None, 10**9, "probes must be from 1"),
        ({}, [1, 2], 1, "2 ids for 90 items"),
        ({}, [*range(89), 3], 1, "unique"),
    ],
)
def test_a_hostile_file_with_a_right_checksum_is_told_too(tmp_path, change, ids, probes, problem):
    index = AnnIndex.build(ITEMS)
    path = tmp_path / "items.ann"
    ann_file.write(path, arrays_of(index) | change, None if ids is None else Ids(ids), probes)
    with pytest.raises(BrokenFile, match=problem):
        AnnIndex.load(path)


def test_other_files(tmp_path):
    from safetensors.numpy import save_file

    with pytest.raises(FileNotFoundError, match="There is no file"):
        AnnIndex.load(tmp_path / "nothing.ann")
    with pytest.raises(FileNotFoundError):
        AnnIndex.load(tmp_path)
    save_file({"x": np.zeros(3)}, tmp_path / "other")
    for words in ("[]", "{}", "not json", "[" * 100_000, json.dumps({"format": "something", "version": 1})):
        save_file({"x": np.zeros(3)}, tmp_path / "other", metadata={"index": words})
        with pytest.raises(BrokenFile, match="is not a fairmf nearest-neighbour index"):
            AnnIndex.load(tmp_path / "other")
    newer = json.dumps({"format": "fairmf-ann", "version": 2})
    save_file({"x": np.zeros(3)}, tmp_path / "other", metadata={"index": newer})
    with pytest.raises(BrokenFile, match="format version 2; this fairmf reads 1"):
        AnnIndex.load(tmp_path / "other")


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "items.ann"
    before = saved(path)

    def half(arrays, name, metadata):
        name.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("safetensors.numpy.save_file", half)
    with pytest.raises(OSError, match="disk full"):
        AnnIndex.build(2 * ITEMS).save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["items.ann"]
    np.testing.assert_array_equal(AnnIndex.load(path).item_vectors, before.item_vectors)


def test_ids_that_no_file_can_hold_are_refused(tmp_path):
    with pytest.raises(InvalidData, match="Ids of type frozenset cannot be stored"):
        saved(tmp_path / "items.ann", [frozenset([j]) for j in range(90)])
    assert list(tmp_path.iterdir()) == []
