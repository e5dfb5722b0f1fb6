"""Archives that are what they should be, and archives made to do harm: nothing is ever unpacked."""

import bz2
import gzip
import io
import struct
import tarfile
import zipfile

import pytest

from fairmf.errors import InvalidData
from fairmf.interactions.datasets.archives import find_text

TEXT = b"1\t2\t5\t100\n" * 50


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def tarred(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def text_of(source):
    with source.open() as stream:
        return stream.read(1 << 30)


def refuses(path, *words, member="u.data"):
    with pytest.raises(InvalidData) as caught:
        text_of(find_text(path, member))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "kind", ["zip", "tar.gz", "tar", "folder", "flat folder", "file", "bz2", "gz", "packed in folder"]
)
def test_the_text_is_found_wherever_it_is(kind, tmp_path):
    path = tmp_path / f"a.{kind}"
    if kind == "zip":
        zipped(path, {"ml-100k/README": b"?", "ml-100k/u.data": TEXT, "__MACOSX/ml-100k/u.data": b"mac"})
    elif kind.startswith("tar"):
        tarred(path, {"x/README": b"?", "x/u.data": TEXT}, mode="w:gz" if kind == "tar.gz" else "w")
    elif "folder" in kind:
        inner = path if kind == "flat folder" else path / "ml-100k"
        inner.mkdir(parents=True)
        (inner / "u.data.old").write_bytes(b"?")
        name = "u.data.gz" if kind == "packed in folder" else "u.data"
        (inner / name).write_bytes(gzip.compress(TEXT) if name.endswith("gz") else TEXT)
    else:
        path.write_bytes({"file": lambda x: x, "bz2": bz2.compress, "gz": gzip.compress}[kind](TEXT))
    source = find_text(path, "u.data")
    assert text_of(source) == TEXT
    assert text_of(source) == TEXT, "it can be opened again"
    assert str(path) in source.name


@pytest.mark.parametrize(
    "name", ["../u.data", "x/../../u.data", "/etc/u.data", "C:/u.data", "..\\u.data", "\\\\host\\u.data"]
)
def test_names_that_point_outside(name, tmp_path):
    refuses(zipped(tmp_path / "a.zip", {"u.data": TEXT, name: TEXT}), "points outside")
    refuses(tarred(tmp_path / "a.tar.gz", {name: TEXT, "u.data": TEXT}), "points outside")
    assert [file.name for file in tmp_path.iterdir()] in (["a.zip", "a.tar.gz"], ["a.tar.gz", "a.zip"])


def test_links(tmp_path):
    entry = zipfile.ZipInfo("u.data")
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    refuses(tmp_path / "a.zip", "holds a link")
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
            link = tarfile.TarInfo("u.data")
            link.type, link.linkname = kind, "/etc/passwd"
            archive.addfile(link)
        refuses(tmp_path / "a.tar.gz", "is a link or something else")


def test_bombs(tmp_path, monkeypatch):
    """A declared size that is absurd is refused before a byte is read."""
    path = zipped(tmp_path / "a.zip", {"u.data": TEXT})
    raw = bytearray(path.read_bytes())
    place = raw.index(b"PK\x01\x02")
    struct.pack_into("<I", raw, place + 24, 4_000_000_000)
    path.write_bytes(raw)
    refuses(path, "4,000,000,000 bytes", "malicious")
    monkeypatch.setattr("fairmf.interactions.datasets.archives._LARGE_BYTES", 1 << 20)
    zeros = bytes(8 << 20)
    refuses(zipped(tmp_path / "b.zip", {"u.data": zeros}), "8,388,608 bytes", "malicious")
    refuses(tarred(tmp_path / "b.tar.gz", {"u.data": zeros}), "8,388,608 bytes", "malicious")


def test_what_is_missing_or_there_twice(tmp_path):
    refuses(zipped(tmp_path / "a.zip", {"ratings.csv": TEXT}), "holds no u.data")
    refuses(tarred(tmp_path / "a.tar.gz", {"ratings.csv": TEXT}), "holds no u.data")
    refuses(zipped(tmp_path / "b.zip", {"x/u.data": TEXT, "y/u.data": TEXT}), "holds several u.data")
    refuses(tmp_path, "holds no u.data")
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "u.data").write_bytes(TEXT)
    refuses(tmp_path, "holds several u.data")


def test_damaged_archives(tmp_path):
    content = bytes(range(256)) * 400
    for path in (zipped(tmp_path / "a.zip", {"u.data": content}), tarred(tmp_path / "a.tar.gz", {"u.data": content})):
        raw = path.read_bytes()
        path.write_bytes(raw[: len(raw) // 2])
        refuses(path, "damaged or cut short")
        path.write_bytes(raw[:100] + bytes(60) + raw[160:])
        refuses(path, "damaged or cut short")
    path = zipped(tmp_path / "b.zip", {"u.data": content})
    raw = bytearray(path.read_bytes())
    raw[36:46] = b"\xff" * 10  # the first bytes of the compressed text: a block of no known kind
    path.write_bytes(raw)
    refuses(path, "damaged or cut short", "invalid block type")
    path = zipped(tmp_path / "c.zip", {"u.data": b"x"})
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(raw)
    refuses(path, "encrypted")
