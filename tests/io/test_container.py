"""The file itself: a safetensors file that others can read, versioned, and told from everything else."""

import json
import os

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from fairmf.errors import BrokenFile, InvalidData
from fairmf.io import container
from fairmf.io.container import Format

KIND = Format("fairmf test", version=3, oldest=2)
ARRAYS = {
    "a": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b": np.array([1, -1], dtype=np.int8),
    "c": np.zeros((0, 5)),
    "d": np.array(7.5),
    "e": np.asfortranarray(np.arange(6, dtype=np.uint16).reshape(2, 3)),
    "f": np.arange(10, dtype=">i8")[::3],
}


def read(path):
    return container.read(path, KIND)


@pytest.mark.parametrize("mmap", [False, True])
def test_there_and_back(tmp_path, mmap):
    container.write(tmp_path / "file", KIND, {"x": [1, None]}, ARRAYS)
    content, arrays = container.read(tmp_path / "file", KIND, mmap=mmap)
    assert content == {"x": [1, None]}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype.newbyteorder("<")
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].flags.c_contiguous
        assert arrays[name].flags.aligned
        assert arrays[name].flags.writeable


def test_the_safetensors_library_reads_it(tmp_path):
    container.write(tmp_path / "file", KIND, {"x": [1, None]}, ARRAYS)
    with safetensors.safe_open(tmp_path / "file", framework="np") as file:
        assert file.metadata()["format"] == "fairmf test"
        assert json.loads(file.metadata()["document"])["content"] == {"x": [1, None]}
    arrays = safetensors.numpy.load_file(tmp_path / "file")
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype.newbyteorder("<")
        np.testing.assert_array_equal(arrays[name], array)


def rewritten(path, **metadata):
    """The same file with other metadata, and a checksum that fits them."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    table = json.loads(raw[8 : 8 + length])
    table["__metadata__"] |= metadata
    if "checksum" not in metadata:
        table["__metadata__"]["checksum"] = container._seal(table["__metadata__"])
    text = json.dumps(table).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("4", "fairmf 9.9 wrote it in format 4, this version reads formats 2 to 3: upgrade fairmf"),
        ("1", "in format 1, this version reads formats 2 to 3: load and save it with an older fairmf first"),
        ("2", None),
        ("x", "its format version is not a number"),
        ("-1", "its format version is not a number"),
        ("9" * 5000, "its format version is not a number"),
        ("²", "its format version is not a number"),
    ],
)
def test_other_versions_say_so(tmp_path, version, message):
    container.write(tmp_path / "file", KIND, None, ARRAYS)
    rewritten(tmp_path / "file", format_version=version, written_by="fairmf 9.9")
    if message is None:
        container.read(tmp_path / "file", KIND)
        return
    with pytest.raises(BrokenFile) as error:
        container.read(tmp_path / "file", KIND)
    assert message in str(error.value)
    assert str(tmp_path / "file") in str(error.value)


def test_what_is_no_such_file_says_what_it_is(tmp_path):
    path = tmp_path / "file"
    for raw, message in [
        (b"", "it has only 0 bytes"),
        (b"\x80\x04K\x01.", "it has only 5 bytes"),
        (b"PK\x03\x04" + b"x" * 100, "it is no safetensors file, or is truncated"),
        (b"\x80\x04\x95" + b"\x00" * 100, "it is no safetensors file, or is truncated"),
        (b"\x10" + b"\x00" * 7 + b"[1,2,3]" + b" " * 9, "it is no safetensors file"),
        (b"\xff" * 8 + b"{}" * 20, "it is no safetensors file, or is truncated"),
    ]:
        path.write_bytes(raw)
        with pytest.raises(BrokenFile, match=message):
            read(path)
    safetensors.numpy.save_file({"x": np.ones(3)}, path)
    with pytest.raises(BrokenFile, match="it is a safetensors file, but not one of fairmf's"):
        read(path)
    container.write(path, Format("fairmf other", version=3), None, ARRAYS)
    with pytest.raises(BrokenFile, match="file cannot be read as a fairmf test: it is a fairmf other"):
        read(path)
    with pytest.raises(BrokenFile, match="it is not a file"):
        read(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BrokenFile, match="it is not a file"):
        read(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nothing")


def test_a_header_that_claims_terabytes_costs_nothing(tmp_path):
    shape = [1 << 40, 4]
    for end in (1 << 44, 16):
        table = {"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}
        text = json.dumps(table).encode()
        (tmp_path / "file").write_bytes(len(text).to_bytes(8, "little") + text + b"\x00" * 16)
        with pytest.raises(BrokenFile, match="'x'"):
            read(tmp_path / "file")


def test_a_header_has_its_limit_when_writing_too(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "MAX_BYTES", 2000)
    with pytest.raises(InvalidData, match=r"cannot be written: The header would take .* beside its arrays"):
        container.write(tmp_path / "file", KIND, "x" * 3000, ARRAYS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mmap", [False, True])
def test_a_changed_array_is_found_unless_told_otherwise(tmp_path, mmap):
    path = tmp_path / "file"
    container.write(path, KIND, None, ARRAYS)
    raw = bytearray(path.read_bytes())
    raw[raw.index(ARRAYS["a"].tobytes())] ^= 1
    path.write_bytes(raw)
    with pytest.raises(BrokenFile, match="array 'a' has another checksum than when it was written"):
        container.read(path, KIND, mmap=mmap)
    _, arrays = container.read(path, KIND, mmap=mmap, verify=False)
    assert (arrays["a"] != ARRAYS["a"]).sum() == 1


def test_a_changed_document_is_found(tmp_path):
    container.write(tmp_path / "file", KIND, {"x": 1}, ARRAYS)
    rewritten(tmp_path / "file", checksum="0" * 64)
    with pytest.raises(BrokenFile, match="its document has another checksum than when it was written"):
        read(tmp_path / "file")
