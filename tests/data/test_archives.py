"""Archives that are what they should be, and archives made to do harm: nothing is ever unpacked."""

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import tracemalloc
import zipfile

import pytest
from conftest import slow_values

from fairmf.data.dataset_load import find_text
from fairmf.data.interactions import Interactions
from fairmf.data.text_source import TextSource
from fairmf.errors import InvalidData

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


def test_bombs(tmp_path):
    """A declared size that is absurd is refused before a byte is read, an expansion that is while it is read."""
    path = zipped(tmp_path / "a.zip", {"u.data": TEXT})
    raw = bytearray(path.read_bytes())
    place = raw.index(b"PK\x01\x02")
    struct.pack_into("<I", raw, place + 24, 4_000_000_000)
    path.write_bytes(raw)
    refuses(path, "more than 200 times its 17 bytes", "malicious", "unpack it")
    zeros = bytes(8 << 20)
    refuses(zipped(tmp_path / "b.zip", {"u.data": zeros}), "200 times", "malicious")
    refuses(tarred(tmp_path / "b.tar.gz", {"u.data": zeros}), "200 times", "malicious")
    refuses(tarred(tmp_path / "c.tar.gz", {"README": zeros, "u.data": TEXT}), "200 times")


HEADERS = b"user,item\n"
BOMBS = {"bz2": bz2.compress, "gz": gzip.compress, "xz": lzma.compress}


@pytest.fixture(scope="module")
def bombs(tmp_path_factory):
    """A text of 100 MB that is a few kilobytes when packed, in every packing, also as an archive's header."""
    folder = tmp_path_factory.mktemp("bombs")
    for ending, pack in BOMBS.items():
        # Packed in pieces: compressors append, and one piece is quickly made.
        (folder / f"a.csv.{ending}").write_bytes(pack(HEADERS) + pack(b"1,1\n" * (1 << 18)) * 100)
    entry = tarfile.TarInfo("u.data")
    entry.type, entry.size = tarfile.XHDTYPE, 100 << 20
    start, zeros = gzip.compress(entry.tobuf(tarfile.PAX_FORMAT)), gzip.compress(bytes(1 << 20))
    (folder / "header.tar.gz").write_bytes(start + zeros * 101)
    return folder


def whole(source):
    with source.open() as stream:
        return stream.read()


@pytest.mark.parametrize("name", ["a.csv.gz", "header.tar.gz", *slow_values("a.csv.bz2", "a.csv.xz")])
def test_what_expands_without_end_is_left_after_little_of_it(name, bombs):
    path = bombs / name
    with pytest.raises(InvalidData, match=r"200 times its .* unpack it and read the plain file"):
        Interactions.from_csv(path) if name.startswith("a.csv") else find_text(path, "u.data").open().__enter__()
    tracemalloc.start()
    try:
        with pytest.raises(InvalidData, match="200 times"):
            whole(TextSource.of_file(path) if name.startswith("a.csv") else find_text(path, "u.data"))
        assert tracemalloc.get_traced_memory()[1] < 80e6
    finally:
        tracemalloc.stop()


def test_repetitive_text_may_be_packed(tmp_path):
    """A few megabytes may expand as they like, more of it up to 200 times."""
    small, large = HEADERS + b"1,1\n" * (1 << 19), HEADERS + b"".join(b"%d,%d\n" % (k, k) for k in range(500_000))
    for text in (small, large):
        (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text, 1))
        assert whole(TextSource.of_file(tmp_path / "a.csv.gz")) == text


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
