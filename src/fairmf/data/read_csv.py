"""Read events from CSV and other delimited text, in a stream.

1. `guess_delimiter` and `column_names` look at the beginning of the text.
2. `record_blocks` divides it into blocks of whole records.
3. `_Layout.parse` lets Arrow cut a block into columns; `PlainColumns` cuts large plain files, which is faster.
4. `_collect` encodes the ids, block after block.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import itertools
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fairmf.data.collect import EventsCollector
from fairmf.data.columns import ColumnName, Columns, TextFormat, TextKeywords
from fairmf.data.encode import Values
from fairmf.data.events import Events
from fairmf.data.plain_csv import NotPlain, PlainColumns
from fairmf.data.read import existing, reading
from fairmf.data.text_source import BACKSLASH, Block, Progress, TextSource, guess_delimiter, is_utf8, record_blocks
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.lazy import lazy_module
from fairmf.params import takes_keywords

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv
    from typing_extensions import Unpack
else:
    pa = lazy_module("pyarrow")
    arrow_csv = lazy_module("pyarrow.csv")

_BLOCK_BYTES = 2 << 20
_PLAIN_BLOCK_BYTES = 1 << 19  # smaller, so that its columns are still in the CPU's cache when they are encoded
_MOST_CUTTERS = 4
# For smaller files, loading the compiled reader takes longer than reading the file with Arrow.
_PLAIN_FROM_BYTES = 8 << 20
_SAMPLE_BYTES = 1 << 16
_MOST_COLUMNS = 10_000  # more mean a wrong delimiter, or a matrix instead of a row per interaction
# Arrow takes delimiters of one byte only: a longer one is replaced by the first of these that a block does not hold.
_STAND_INS = (b"\x1f", b"\x1e", b"\x1d", b"\x1c", b"\x01", b"\x02", b"\x03", b"\x04")


@takes_keywords(TextKeywords, of=TextFormat)
def read_csv(
    path: str | os.PathLike[str],
    *,
    user: ColumnName = "user",
    item: ColumnName = "item",
    weights: ColumnName | None = None,
    time: ColumnName | None = None,
    rating: ColumnName | None = None,
    rating_above: float | None = None,
    progress: Progress | None = None,
    **text: Unpack[TextKeywords],
) -> Events:
    """Read a delimited text file in a stream. Fields in quotes may hold line breaks.

    Parameters
    ----------
    path : path
        The file, which may be compressed (.gz, .bz2, .xz, .zst).
    user, item, weights, time, rating, rating_above
        The columns, as in `read_frame`; with `header=False` they are numbers counting from 0.
    delimiter : str, optional
        By default guessed from the first lines: comma, tab, semicolon, bar, space or MovieLens' `::`. It may have
        several characters; then quotes are text like any other.
    header : bool
        Whether the first line names the columns.
    text_ids : bool
        Keep all ids as text. By default a column of ids that are all written as integers comes back as int, any other
        as str: with 007 or 0x10 among them all are text.
    encoding : str
        One that Python knows.
    progress : callable, optional
        Called with the bytes read and the size of the file.

    Returns
    -------
    Events

    Raises
    ------
    InvalidData
        If the file is missing or damaged, a quote is not closed, and as in `read_frame`.
    InvalidParameter
        If the delimiter or the encoding cannot be used.

    Examples
    --------
    >>> read_csv("ml-1m/ratings.dat", user=0, item=1, time=3, header=False)  # doctest: +SKIP
    """
    columns = Columns(user, item, weights, time, rating, rating_above)
    form = TextFormat(**text)
    check_text_options(form.delimiter, form.encoding)
    file = existing(path)
    if file.is_dir():
        raise InvalidData(f"{file} is a directory.", hint="give one CSV file")
    return read_text(TextSource.of_file(file, progress), columns, form)


def check_text_options(delimiter: str | None, encoding: str) -> None:
    """Raise InvalidParameter for a delimiter or an encoding that cannot be used."""
    if delimiter is not None and (not isinstance(delimiter, str) or not delimiter or set(delimiter) & set('"\r\n')):
        raise InvalidParameter(
            f"'delimiter' must be text without quotes and line breaks, such as ',' or '::'. Got {delimiter!r} instead.",
            parameter="delimiter",
        )
    try:
        codecs.lookup(encoding)
    except (LookupError, TypeError):
        raise InvalidParameter(
            f"'encoding' must be one that Python knows. Got {encoding!r} instead.", parameter="encoding"
        ) from None


def read_text(
    source: TextSource,
    columns: Columns,
    form: TextFormat,
    literal: bool = False,
) -> Events:
    """Read delimited text from any source, as `read_csv` does. `literal`: quotes and words such as NA are text."""
    with reading(source.name, "CSV"):
        header, encoding = form.header, form.encoding
        cut = form.delimiter or guess_delimiter(sample_of(source, encoding))
        names = column_names(source, cut, header, encoding, literal)
        columns.check(names, f"{source} (no header: columns are numbered)" if not header else source.name)
        layout = _Layout(source, cut, header, encoding, literal, tuple(names), _first_types(columns, form.text_ids))
        # Types are guessed from the first block. If a later value does not fit, read all again with a wider type.
        while True:
            try:
                return _read(layout, columns)
            except _Unfit as unfit:
                layout = replace(layout, types=layout.types | {unfit.column: unfit.wider})


def column_names(
    source: TextSource, delimiter: str, header: bool, encoding: str = "utf8", literal: bool = False
) -> list[ColumnName]:
    """Return the names in the first record; numbers from 0 where there is no header."""
    first = next(text_rows(source, delimiter, encoding, literal, errors="replace"), [])
    return [name.strip() for name in first] if header else list(range(len(first)))


def text_rows(
    source: TextSource, delimiter: str, encoding: str = "utf8", literal: bool = False, errors: str = "strict"
) -> Iterator[list[str]]:
    """Yield the rows of a text as lists of strings: slow, for the first look at a file and for small tables."""
    quotes = None if literal else _quoting(delimiter)
    for block in record_blocks(source, _SAMPLE_BYTES, quotes, encoding):
        if block.line == 1:
            _check_width(block.split_first(quotes)[0], delimiter, source)
        text = block.text.decode(errors=errors)
        if quotes is None:
            yield from (line.split(delimiter) for line in re.split("\r\n|\r|\n", text) if line)
        else:
            yield from filter(None, _csv_rows(text, delimiter, source))


def table_rows(source: TextSource, delimiter: str, encoding: str = "utf8", most: int | None = None) -> list[list[str]]:
    """Return the rows of a small table, or the first `most` rows of any text (where bytes that fit no letter are �).

    Some programs write a quote inside a value as \\" instead of twice, as in the books of Book-Crossing. A text that
    `text_rows` refuses is read in this way if it holds \\".
    """
    errors = "replace" if most else "strict"
    try:
        return list(itertools.islice(text_rows(source, delimiter, encoding, errors=errors), most))
    except InvalidData:
        with source.open() as stream:
            parts = itertools.islice(iter(lambda: stream.read(_SAMPLE_BYTES), b""), 1 if most else None)
            text = b"".join(parts).decode(encoding, errors=errors)
        if '\\"' not in text or len(delimiter) != 1:
            raise
        rows = _csv_rows(text.lstrip("\ufeff"), delimiter, source, **BACKSLASH)
        return list(itertools.islice(filter(None, rows), most))


def _csv_rows(text: str, delimiter: str, source: TextSource, **way: Any) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, **way)
    except csv.Error as error:
        raise _not_csv(source, str(error)) from error


def _not_csv(source: TextSource, reason: str) -> InvalidData:
    return InvalidData(
        f"{source} cannot be read as CSV: {reason}.",
        hint="check {parameter}, the header and the encoding",
        parameter="delimiter",
    )


def _quoting(delimiter: str) -> bytes | None:
    """Return the delimiter as a byte if fields may be quoted, or None if quotes are plain text.

    Files with longer delimiters (MovieLens' `::`) quote no fields: one of their titles is '"Great Performances" Cats'.
    """
    return delimiter.encode() if len(delimiter.encode()) == 1 else None


def _check_width(record: bytes, delimiter: str, source: TextSource) -> None:
    width = record.count(delimiter.encode()) + 1
    if width > _MOST_COLUMNS:
        raise InvalidData(
            f"The first line of {source} has {width:,} columns when cut at {delimiter!r}, more than {_MOST_COLUMNS:,}.",
            hint="name another delimiter, or write one row per interaction",
        )


class _Unfit(Exception):
    """A column holds something that its type cannot; `wider` is the type to try next."""

    def __init__(self, column: ColumnName, wider: str):
        super().__init__(column, wider)
        self.column, self.wider = column, wider


@dataclass(frozen=True)
class _Layout:
    """Describe how to cut the text into columns, and the Arrow type (or its name) of each column that is read.

    Ids are "int64" or "string": see `_integers`.
    """

    source: TextSource
    delimiter: str
    header: bool
    encoding: str
    literal: bool
    names: tuple[ColumnName, ...]
    types: dict[ColumnName, str | pa.DataType]

    @property
    def quotes(self) -> bytes | None:
        return None if self.literal else _quoting(self.delimiter)

    def blocks(self, block_bytes: int) -> Iterator[Block]:
        """Yield the records after the header, in blocks."""
        before = self.header
        for block in record_blocks(self.source, block_bytes, self.quotes, self.encoding):
            rest = block
            if before:
                first, rest = block.split_first(self.quotes)
                before = not first
            if rest.text:
                yield rest

    def parse(self, block: Block, columns: Columns) -> dict[ColumnName, pa.Array]:
        """Parse a block with Arrow; return the columns that are read. Raise _Unfit if a wider type should be tried."""
        text, delimiter = self._with_short_delimiter(block.text)
        places = {name: str(self.names.index(name)) for name in columns.names}
        ids = (columns.user, columns.item)
        types = {places[name]: "string" if name in ids else kind for name, kind in self.types.items()}
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(text),
                read_options=arrow_csv.ReadOptions(
                    # One block, so that Arrow never has to search for the end of a record itself.
                    block_size=len(text) + 1,
                    column_names=[str(k) for k in range(len(self.names))],
                    use_threads=False,
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=delimiter, quote_char='"' if self.quotes else False, newlines_in_values=True
                ),
                convert_options=arrow_csv.ConvertOptions(
                    include_columns=list(places.values()),
                    column_types={
                        place: pa.type_for_alias(kind) if isinstance(kind, str) else kind
                        for place, kind in types.items()
                    },
                    strings_can_be_null=not self.literal,  # an empty field is a missing id
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            raise self._explained(error, block, columns) from error
        arrays = {name: table.column(place).combine_chunks() for name, place in places.items()}
        for name in ids:
            if self.types[name] == "int64":
                arrays[name] = _integers(arrays[name], name)
        return arrays

    def learn(self, first: dict[ColumnName, pa.Array]) -> _Layout:
        """Return a layout with the types that Arrow has found in the first block, to be used for all blocks."""
        kinds = {name: "int64" if str(array.type) == "null" else array.type for name, array in first.items()}
        return replace(self, types=kinds | self.types)

    def _with_short_delimiter(self, text: bytes) -> tuple[bytes, str]:
        """Replace a longer delimiter by a single byte that the text does not hold; return both."""
        cut = self.delimiter.encode()
        if len(cut) == 1:
            return text, self.delimiter
        for stand_in in _STAND_INS:
            if stand_in not in text:
                return text.replace(cut, stand_in), stand_in.decode()
        raise InvalidData(f"{self.source} is full of control characters, so it cannot be cut at {self.delimiter!r}.")

    def _explained(self, error: Exception, block: Block, columns: Columns) -> Exception:
        """Return what to raise for Arrow's error: _Unfit if a wider type may help, else InvalidData with the line."""
        message = re.sub(r"Row #(\d+)", lambda row: f"line {self._line(block, int(row[1])):,}", str(error))
        if "UTF8" in message:
            return InvalidData(
                f"{self.source} cannot be read as CSV: {message}.",
                hint="name the encoding of the file, such as {parameter}='latin-1'",
                parameter="encoding",
            )
        found = re.match(r"In CSV column #(\d+): (.*)CSV conversion error to (\w+)", message)
        if found is None:
            return _not_csv(self.source, message)
        name, kind = self.names[int(found[1])], found[3]
        if name in (columns.weights, columns.rating):
            said = message.partition(": ")[2]
            return InvalidData(
                f"Column {name!r} must hold numbers to be used as weights or rating, but {said}.",
                hint="correct these rows",
            )
        if name == columns.time and kind != "string":
            return _Unfit(name, "float64" if kind == "int64" else "string")
        return _not_csv(self.source, message)

    def _line(self, block: Block, row: int) -> int:
        """Return the number of the line in which a row of the block ends. Empty lines do not count as rows."""
        if self.quotes is None:
            ends = [k for k, line in enumerate(re.split(b"\r\n|\r|\n", block.text)) if line]
            return block.line + ends[row - 1]
        text = io.StringIO(block.text.decode(errors="replace"), newline="")
        rows = csv.reader(text, delimiter=self.delimiter)
        next(itertools.islice(filter(None, rows), row - 1, None), None)
        return block.line + rows.line_num - 1


def _integers(texts: pa.Array, name: ColumnName) -> pa.Array:
    """Convert ids to integers if all are written as Python writes integers: 0x10, 016 and +16 are other ids than 16."""
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        raise _Unfit(name, "string") from None
    if not numbers.cast(pa.string()).equals(texts):
        raise _Unfit(name, "string")
    return numbers


def _read(layout: _Layout, columns: Columns) -> Events:
    """Read the file with the compiled reader if it is large and plain, else with Arrow's."""
    first = next(layout.blocks(_BLOCK_BYTES), None)
    if first is not None:
        found = layout.parse(first, columns)
        layout = layout.learn(found)
        with contextlib.suppress(NotPlain):
            return _read_plain(layout, columns, found)
    blocks, many = layout.blocks(_BLOCK_BYTES), layout.source.size >= _PLAIN_FROM_BYTES
    return _collect(blocks, lambda block, _: layout.parse(block, columns), columns, layout.source, many)


def _read_plain(layout: _Layout, columns: Columns, first: dict[ColumnName, pa.Array]) -> Events:
    """Read the file with the compiled reader. Raise NotPlain if `parse` might read it differently."""
    if layout.source.size < _PLAIN_FROM_BYTES or not is_utf8(layout.encoding):
        raise NotPlain
    if any(str(first[name].type) == "string" for name in first if name not in (columns.user, columns.item)):
        raise NotPlain
    wanted = {layout.names.index(name): (name, str(values.type)) for name, values in first.items()}
    cutter = PlainColumns(len(layout.names), wanted, layout.delimiter, layout.quotes is None, layout.literal)
    blocks = layout.blocks(_PLAIN_BLOCK_BYTES)
    return _collect(blocks, lambda block, room: cutter.cut(block.text, room), columns, layout.source, True)


def _collect(
    blocks: Iterator[Block],
    cut: Callable[[Block, int], Mapping[ColumnName, Values]],
    columns: Columns,
    source: TextSource,
    many: bool,
) -> Events:
    """Cut blocks in several threads, and encode them in this one, in the order of the file."""
    collector = EventsCollector(columns, source.name, many)
    threads = min(_MOST_CUTTERS, os.cpu_count() or 1)
    waiting: deque[tuple[int, Future[Mapping[ColumnName, Values]]]] = deque()

    def take(first: bool = False) -> None:
        length, future = waiting.popleft()
        batch = future.result()
        if first:  # estimate the rows from the size; a compressed file has more, and arrays grow when needed
            collector.expect(int(1.02 * len(batch[columns.user]) * (source.size / length)))
        collector.add(batch)
        source.report()

    with ThreadPoolExecutor(threads) as workers:
        for number, block in enumerate(blocks):
            # threads + 1 blocks may wait or be cut, and one more is being encoded: each needs its own buffers.
            waiting.append((len(block.text), workers.submit(cut, block, number % (threads + 2))))
            if len(waiting) > threads:
                take(first=number == threads)
        while waiting:
            take()
    return collector.finish()


def _first_types(columns: Columns, text_ids: bool) -> dict[ColumnName, str]:
    """Return the types to try first; Arrow guesses the type of times."""
    # Confidences and ratings are floats from the start: "4" may be followed by "3.5" far down the file.
    numbers = (columns.weights, columns.rating)
    types: dict[ColumnName, str] = {name: "float64" for name in numbers if name is not None}
    # Ids are integers or text. Arrow's own guess would turn 1.10 and 1.1, or integers beyond 64 bits, into floats, and
    # two ids into one.
    return types | dict.fromkeys((columns.user, columns.item), "string" if text_ids else "int64")


def sample_of(file: TextSource, encoding: str) -> str:
    """Return the beginning of the text; raise InvalidData if it is empty or not text."""
    with file.open() as stream:
        start: bytes = stream.read(_SAMPLE_BYTES)
    if not start.strip():
        raise InvalidData(f"{file} is empty.", hint="at least one interaction is needed")
    if start.startswith(b"PAR1"):
        raise InvalidData(f"{file} is a Parquet file.", hint="read it with from_parquet or read_parquet")
    if start.startswith(b"PK\x03\x04"):
        raise InvalidData(f"{file} is a zip archive.", hint="unpack it first")
    if b"\0" in start and encoding.lower().replace("-", "") in ("utf8", "latin1", "ascii"):
        raise InvalidData(
            f"{file} is a binary file, not text.",
            hint="if it is UTF-16 text, say so: {parameter}='utf-16'",
            parameter="encoding",
        )
    return start.decode(encoding, errors="replace").lstrip("\ufeff")
