"""Open delimited text (a file or a member of an archive), guess its delimiter, and cut it into whole records.

A record ends at a line break outside quotes. A quote opens a field right after a delimiter or a line break; inside, two
quotes stand for one, and the quote that closes the field must be followed by a delimiter or a line break (RFC 4180).
Quotes elsewhere, as in 12" LP, are plain text. A file that breaks these rules raises an error: guessing could join or
divide rows.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import lzma
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData
from fairmf.lazy import lazy_module

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy_module("pyarrow")

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the bytes that were read and the bytes in all."""
BACKSLASH: dict[str, Any] = {"escapechar": "\\", "doublequote": False}
"""For Python's csv reader: quotes inside a value are written \\" instead of twice."""
_LONGEST_RECORD = 16 << 20  # a quote that is never closed would collect the whole file
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_QUOTE = ord('"')
# Compression shrinks text to a third or a tenth. A file that expands by more than this ratio, and to more than a few
# megabytes, is taken for a "zip bomb" that is meant to fill the memory. There is no limit for plain files.
LARGEST_RATIO = 200
SMALL_BYTES = 1 << 22
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


class Stream(Protocol):
    """Bytes that can be read in order: a file, or a decompressor."""

    @property
    def closed(self) -> bool:
        """Whether it is closed."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, at most `size` if that is not negative."""

    def close(self) -> None:
        """Close it."""


@dataclass(frozen=True)
class TextSource:
    """Hold a text that can be opened any number of times. `size` is that of its file, compressed or not."""

    name: str
    size: int
    open: Callable[[], AbstractContextManager[Stream]]
    report: Callable[[], None] = lambda: None
    """Tell the caller's `progress` how much was read."""

    def __str__(self) -> str:
        return self.name

    @classmethod
    def of_file(cls, file: Path, progress: Progress | None = None) -> TextSource:
        """Return the source of a plain or compressed file."""
        size = file.stat().st_size
        latest: list[pa.NativeFile | BinaryIO] = []  # the file opened last: its position says how much was read

        def opened() -> pa.NativeFile | Unpacked:
            suffix = file.suffix.lower()
            if suffix == ".xz":  # Arrow cannot decompress it
                latest[:] = [file.open("rb")]
                return Unpacked(lzma.open(latest[0]), latest[0], str(file), size)
            latest[:] = [pa.OSFile(str(file))]
            if suffix not in _CODECS:
                return latest[0]
            return Unpacked(pa.CompressedInputStream(latest[0], _CODECS[suffix]), latest[0], str(file), size)

        def report() -> None:
            if progress is not None and latest:
                progress(size if latest[0].closed else latest[0].tell(), size)

        return cls(str(file), size, opened, report)


class Unpacked:
    """Limit a decompressed stream to the size that text of its packed size can have."""

    def __init__(self, stream: Stream, below: Stream, name: str, packed_bytes: int):
        self._stream, self._below, self._name, self._packed = stream, below, name, packed_bytes
        self._left = max(SMALL_BYTES, LARGEST_RATIO * packed_bytes)

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; raise InvalidData once there are too many."""
        most = self._left + 1  # one byte more than allowed shows that there are too many
        content = self._stream.read(most if size is None or size < 0 else min(size, most))
        self._left -= len(content)
        if self._left < 0:
            raise InvalidData(too_much(self._name, self._packed))
        return content

    def close(self) -> None:
        """Close the stream and the file below it."""
        self._stream.close()
        self._below.close()

    @property
    def closed(self) -> bool:
        """Whether the stream is closed."""
        return self._stream.closed

    def __enter__(self) -> Unpacked:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def too_much(name: str, packed_bytes: int) -> str:
    """Return the error message for a file that expands more than text does."""
    return (
        f"{name} expands to more than {LARGEST_RATIO} times its {packed_bytes:,} bytes, which no text of interactions "
        f"does; it is damaged or malicious. If you trust it, unpack it and read the plain file."
    )


def guess_delimiter(sample: str) -> str:
    """Return the delimiter that cuts the first lines into equally many columns, at least two; a comma if none does."""
    lines = sample.splitlines()
    # The sample's last line may be cut off, unless it is the only one.
    lines = [line for line in (lines[:-1] or lines)[:10] if line]
    colons = len({line.count("::") for line in lines}) == 1 and "::" in lines[0]
    # In files with double colons, titles hold commas and blanks, so :: is tried first. Ids before it must be numbers,
    # because URLs and IPv6 addresses hold two colons as well.
    if colons and all(line.partition("::")[0].isdecimal() for line in lines[1:] or lines):
        return "::"
    ways: list[dict[str, Any]] = [{"strict": True}, {"strict": True, **BACKSLASH}, {}]
    for way in ways:
        for delimiter in (",", "\t", ";", "::", "|", " "):
            if colons if delimiter == "::" else _cuts_evenly(sample, delimiter, way):
                return delimiter
    return ","


def _cuts_evenly(sample: str, delimiter: str, way: dict[str, Any]) -> bool:
    """Return whether the first ten rows, with quotes read in this way, have equally many columns, at least two."""
    whole = sample[: sample.rfind("\n") + 1] or sample
    widths = set()
    rows = filter(None, csv.reader(io.StringIO(whole, newline=""), delimiter=delimiter, **way))
    try:
        for row in itertools.islice(rows, 10):
            widths.add(len(row))
    except csv.Error as error:
        if "end of data" not in str(error):  # the sample ends inside quotes: the rows before count
            return False
    return len(widths) == 1 and max(widths) > 1


@dataclass(frozen=True)
class Block:
    """Hold whole records as UTF-8, each ended by a line break; `line` is the number of the first line, from 1."""

    text: bytes
    line: int

    def split_first(self, delimiter: bytes | None) -> tuple[bytes, Block]:
        """Return the first record that is not an empty line, and the rest. `delimiter` as in `record_blocks`."""
        start = len(self.text) - len(self.text.lstrip(b"\r\n"))
        end = _first_break(self.text, start, _field_quotes(self.text, delimiter)) + 1
        if self.text[end - 1 : end + 1] == b"\r\n":
            end += 1
        return self.text[start:end], Block(self.text[end:], self.line + _lines_in(self.text[:end]))


def record_blocks(
    source: TextSource, block_bytes: int, delimiter: bytes | None, encoding: str = "utf8"
) -> Iterator[Block]:
    """Divide a text into blocks of whole records, of about `block_bytes` each unless a record is longer.

    `delimiter` is one byte, or None where quotes are plain text. Raises InvalidData for a quote that is not closed
    properly, and for a record longer than 16 MiB.
    """
    # Incremental, because a read may end in the middle of a character.
    decoder = None if is_utf8(encoding) else codecs.getincrementaldecoder(encoding)()
    rest, line, at_start = b"", 1, True
    with source.open() as stream:
        while True:
            read = stream.read(block_bytes)
            more = read if decoder is None else decoder.decode(read, final=not read).encode()
            text = rest + more
            # The mark may be divided between two reads, so wait until there are three bytes.
            if at_start and (len(text) >= len(_BYTE_ORDER_MARK) or not read):
                text, at_start = text.removeprefix(_BYTE_ORDER_MARK), False
            quotes = _field_quotes(text, delimiter)
            _check_quotes(Block(text, line), quotes, delimiter, source, at_end=not read)
            if not read:
                if text:
                    # The last line of a file may lack its line break.
                    yield Block(text if text[-1] in b"\r\n" else text + b"\n", line)
                return
            end = _last_break(text, quotes) + 1
            if end:
                yield Block(text[:end], line)
                line += _lines_in(text[:end])
            rest = text[end:]


def is_utf8(encoding: str) -> bool:
    """Return whether text in this encoding needs no recoding."""
    return codecs.lookup(encoding).name in ("utf-8", "ascii")


def _field_quotes(text: bytes, delimiter: bytes | None) -> NDArray[np.int64]:
    """Return the positions of the quotes that open and close fields, in turn: the first opens, the second closes.

    Two quotes that stand for one count as a closing and an opening quote.
    """
    if delimiter is None or b'"' not in text:
        return np.zeros(0, dtype=np.int64)
    data = np.frombuffer(text, dtype=np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    at_start = _is_one_of(delimiter + b"\r\n")
    # Fast check for the usual case, no literal quotes: every other quote begins a field, or follows a quote directly.
    doubtful = 2 * np.flatnonzero(~at_start[data[quotes[0::2] - 1]])
    # A quote at the very beginning has no byte before it: index -1 has read the last one, which says nothing.
    if quotes[0] == 0:
        doubtful = doubtful[doubtful > 0]
    if len(doubtful) == 0 or (doubtful[0] > 0 and (quotes[doubtful] - quotes[doubtful - 1] == 1).all()):
        return quotes
    return _without_literal_quotes(quotes, (quotes == 0) | at_start[data[quotes - 1]])


def _is_one_of(letters: bytes) -> NDArray[np.bool_]:
    """Return a table of 256 flags: whether a byte is one of these letters."""
    table = np.zeros(256, dtype=bool)
    table[list(letters)] = True
    return table


def _without_literal_quotes(quotes: NDArray[np.int64], begins: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the quotes that open or close a field, without those that are text.

    `begins` says for every quote whether a field may begin there. This loop is slow, but such files are rare.
    """
    # A quote counts if it closes an open field, begins a field, or follows the closing quote directly (a doubled
    # quote re-opens the field). All others are text.
    kept, inside, latest = [], False, -2
    for place, starts_field in zip(quotes.tolist(), begins.tolist(), strict=True):
        if inside or starts_field or place == latest + 1:
            kept.append(place)
            inside = not inside
            latest = place
    return np.asarray(kept, dtype=np.int64)


def _check_quotes(
    block: Block, quotes: NDArray[np.int64], delimiter: bytes | None, source: TextSource, at_end: bool
) -> None:
    """Raise InvalidData for a quote that is never closed, or closed inside a value, and for a record without an end."""
    remedy = "close it, and write a quote that is a part of the value twice"
    too_long = not at_end and len(block.text) > _LONGEST_RECORD and _last_break(block.text, quotes) < 0
    if len(quotes) and delimiter is not None:
        data, closing = np.frombuffer(block.text, dtype=np.uint8), quotes[1::2]
        if len(closing) and closing[-1] == len(data) - 1:  # the byte after it has not been read yet, or it is the last
            closing = closing[:-1]
        bad = np.flatnonzero(~_is_one_of(delimiter + b'\r\n"')[data[closing + 1]])
        if len(bad):
            closed = 2 * int(bad[0]) + 1
            opened, where = _opening_line(block, quotes, closed - 1), _line_at(block, quotes[closed])
            raise InvalidData(
                f"A quote opened in line {opened:,} of {source} is closed inside a value in line {where:,}.",
                hint=remedy,
            )
        if len(quotes) % 2 and (at_end or too_long):
            opened = _opening_line(block, quotes, len(quotes) - 1)
            raise InvalidData(f"A quote opened in line {opened:,} of {source} is never closed.", hint=remedy)
    if too_long:
        raise InvalidData(
            f"The record in line {block.line:,} of {source} is longer than {_LONGEST_RECORD >> 20} MiB.",
            hint="delimited text has a record a line, so this is another kind of file, or its line breaks are lost",
        )


def _opening_line(block: Block, quotes: NDArray[np.int64], place: int) -> int:
    """Return the line in which a field begins; `place` is the number of a quote that opens (or re-opens) it."""
    while place >= 2 and quotes[place] - quotes[place - 1] == 1:
        place -= 2
    return _line_at(block, quotes[place])


def _line_at(block: Block, position: int | np.int64) -> int:
    return block.line + _lines_in(block.text[:position])


def _lines_in(text: bytes) -> int:
    """Count line breaks: LF, CR LF, or CR alone."""
    return text.count(b"\n") + (text.count(b"\r") - text.count(b"\r\n") if b"\r" in text else 0)


def _last_break(text: bytes, quotes: NDArray[np.int64]) -> int:
    """Return the position of the last line break outside quotes, -1 if there is none."""
    stop = len(text) - text.endswith(b"\r")  # the line feed of a CR LF may follow
    count = len(quotes)
    # An odd number of quotes: the text ends inside quotes, where line breaks do not count.
    if count % 2:
        count, stop = count - 1, int(quotes[-1])
    while True:
        start = int(quotes[count - 1]) if count else 0
        # Search backwards between the last closing quote and the end, then between earlier pairs of quotes.
        feed = text.rfind(b"\n", start, stop)
        found = max(feed, text.rfind(b"\r", max(feed, start), stop))
        if found >= 0 or not count:
            return found
        count, stop = count - 2, int(quotes[count - 2])


def _first_break(text: bytes, start: int, quotes: NDArray[np.int64]) -> int:
    """Return the position of the first line break outside quotes; the text must have one."""
    for place in range(0, len(quotes) + 1, 2):
        stop = int(quotes[place]) if place < len(quotes) else len(text)
        feed = text.find(b"\n", start, stop)
        back = text.find(b"\r", start, stop if feed < 0 else feed)
        if feed >= 0 or back >= 0:
            return back if back >= 0 else feed
        start = int(quotes[place + 1]) if place + 1 < len(quotes) else start
    return len(text) - 1
