"""Events from CSV and other delimited text, streamed through Arrow's CSV reader."""

from __future__ import annotations

import codecs
import csv
import os
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from fairmf.errors import InvalidData, InvalidParameter
from fairmf.interactions.collecting import EventsCollector
from fairmf.interactions.columns import ColumnName, Columns
from fairmf.interactions.events import Events
from fairmf.interactions.plain_csv import NotPlain, PlainColumns, lines
from fairmf.interactions.readers import existing, reading
from fairmf.interactions.text_source import Progress, TextSource

_BLOCK_BYTES = 2 << 20
_PLAIN_BLOCK_BYTES = 1 << 19  # smaller: what is cut from it stays in the cache until it is numbered
_MOST_CUTTERS = 4
# Below this size loading the compiled reader takes longer than reading.
_PLAIN_FROM_BYTES = 8 << 20
_SAMPLE_BYTES = 1 << 16
_DELIMITERS = ",\t;| "


def read_csv(
    path: str | os.PathLike[str],
    *,
    user: ColumnName = "user",
    item: ColumnName = "item",
    weights: ColumnName | None = None,
    time: ColumnName | None = None,
    rating: ColumnName | None = None,
    rating_above: float | None = None,
    delimiter: str | None = None,
    header: bool = True,
    text_ids: bool = False,
    encoding: str = "utf8",
    progress: Progress | None = None,
) -> Events:
    """Read a delimited text file, which may be compressed (.gz, .bz2, .xz, .zst).

    The columns are named as in `read_frame`; with `header=False` they are numbers counting from 0. Without a
    `delimiter` it is guessed from the first lines: comma, tab, semicolon, bar, space or MovieLens' `::`. Ids that are
    all integers come back as int, all others as str; `text_ids=True` keeps them as text, with leading zeros. The file
    is streamed; `progress` is called with the bytes read and the bytes in all.
    """
    columns = Columns(user, item, weights, time, rating, rating_above)
    check_text_options(delimiter, encoding)
    file = existing(path)
    if file.is_dir():
        raise InvalidData(f"{file} is a directory; give one CSV file.")
    return read_text(TextSource.of_file(file, progress), columns, delimiter, header, text_ids, encoding)


def check_text_options(delimiter: str | None, encoding: str) -> None:
    """Raise InvalidParameter for what no text can be cut or decoded by."""
    if delimiter is not None and (not isinstance(delimiter, str) or len(set(delimiter)) != 1):
        raise InvalidParameter(
            f"'delimiter' must be one character, or one repeated as in '::'. Got {delimiter!r} instead."
        )
    try:
        codecs.lookup(encoding)
    except (LookupError, TypeError):
        raise InvalidParameter(f"'encoding' must be one that Python knows. Got {encoding!r} instead.") from None


def read_text(
    source: TextSource,
    columns: Columns,
    delimiter: str | None,
    header: bool,
    text_ids: bool = False,
    encoding: str = "utf8",
    literal: bool = False,
) -> Events:
    """As `read_csv`, from any source. `literal`: quotes and words such as NA are text like any other."""
    with reading(source.name, "CSV"):
        sample = sample_of(source, encoding)
        layout = _Layout(source, delimiter or guess_delimiter(sample), header, encoding, literal)
        names = layout.column_names()
        columns.check(names, f"{source} (no header: columns are numbered)" if not header else source.name)
        layout = replace(layout, types=_first_types(columns, text_ids))
        try:
            return _read_plain(layout, columns, names)
        except NotPlain:
            pass
        # If a value does not fit the type tried first, read once more with a wider one; each column is widened at most
        # once.
        while True:
            try:
                return _collect(layout.batches(columns.names), columns, source)
            except ValueError as error:
                layout = layout.widened(error, names, columns)


@dataclass(frozen=True)
class _Layout:
    """How the text is to be cut into columns.

    A delimiter such as "::" is cut at every colon, so that every second column is empty: no slower than one character.
    """

    source: TextSource
    delimiter: str
    header: bool
    encoding: str
    literal: bool
    types: dict[ColumnName, str] = field(default_factory=dict)

    def column_names(self) -> list[ColumnName]:
        with self.source.open() as stream, self._reader(stream, None) as opened:
            names = opened.schema.names[:: self.stride]
        return list(names) if self.header else list(range(len(names)))

    @property
    def stride(self) -> int:
        """How many of the columns that are cut lie from one column to the next."""
        return len(self.delimiter)

    def batches(self, names: list[ColumnName]) -> Iterator[dict[ColumnName, Any]]:
        with self.source.open() as stream, self._reader(stream, names) as opened:
            for batch in opened:
                yield {name: batch.column(self._arrow_name(name)) for name in names}

    def widened(self, error: ValueError, names: list[ColumnName], columns: Columns) -> _Layout:
        """With another type for the column that Arrow could not convert; re-raises where there is none."""
        return replace(self, types={**self.types, **_wider(error, names, columns, self.types, self.stride)})

    def _arrow_name(self, name: ColumnName) -> str:
        return str(name) if self.header else f"f{int(name) * self.stride}"

    def _reader(self, stream: Any, names: list[ColumnName] | None) -> Any:
        import pyarrow as pa
        import pyarrow.csv

        return pyarrow.csv.open_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(
                block_size=_BLOCK_BYTES, autogenerate_column_names=not self.header, encoding=self.encoding
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.delimiter[0], quote_char=False if self.literal else '"'
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=[self._arrow_name(name) for name in names or []],
                column_types={self._arrow_name(name): pa.type_for_alias(t) for name, t in self.types.items()},
                strings_can_be_null=not self.literal,  # an empty id is nobody's
                quoted_strings_can_be_null=False,
            ),
        )


def _read_plain(layout: _Layout, columns: Columns, names: list[ColumnName]) -> Events:
    """The file by the fast reader. Raises NotPlain where that one is not sure to read it as Arrow does."""
    if layout.source.size < _PLAIN_FROM_BYTES or layout.encoding.lower().replace("-", "") != "utf8":
        raise NotPlain
    while True:  # Arrow says what the first block holds
        try:
            first = next(layout.batches(columns.names), None)
            break
        except ValueError as error:
            layout = layout.widened(error, names, columns)
    if first is None:
        raise NotPlain
    if any(str(first[name].type) == "string" for name in first if name not in (columns.user, columns.item)):
        raise NotPlain
    stride = layout.stride
    wanted = {names.index(name) * stride: (name, str(values.type)) for name, values in first.items()}
    cutter = PlainColumns((len(names) - 1) * stride + 1, wanted, layout.delimiter[0], layout.literal)
    return _collect_plain(lines(layout.source, _PLAIN_BLOCK_BYTES, skip_first=layout.header), cutter, columns, layout)


def _collect(batches: Iterator[dict[ColumnName, Any]], columns: Columns, source: TextSource) -> Events:
    collector = EventsCollector(columns, source.name)
    # The next batch is parsed while this one is numbered: neither holds the interpreter's lock for long.
    with ThreadPoolExecutor(1) as worker:
        following = worker.submit(next, batches, None)
        while (batch := following.result()) is not None:
            following = worker.submit(next, batches, None)
            collector.add(batch)
            source.report()
    return collector.finish()


def _collect_plain(blocks: Iterator[bytes], cutter: PlainColumns, columns: Columns, layout: _Layout) -> Events:
    """Blocks are cut by several threads and numbered, in the order of the file, by this one."""
    collector = EventsCollector(columns, layout.source.name, many=True)
    threads = min(_MOST_CUTTERS, os.cpu_count() or 1)
    waiting: deque[tuple[int, Future[dict[ColumnName, Any]]]] = deque()
    size = layout.source.size

    def take(first: bool = False) -> None:
        length, future = waiting.popleft()
        batch = future.result()
        if first:  # a compressed file has more rows than that
            collector.expect(int(1.02 * len(batch[columns.user]) * (size / length)))
        collector.add(batch)
        layout.source.report()

    with ThreadPoolExecutor(threads) as workers:
        for number, block in enumerate(blocks):
            # One more room than there are blocks on their way: that of the block being numbered.
            waiting.append((len(block), workers.submit(cutter.cut, block, number % (threads + 2))))
            if len(waiting) > threads:
                take(first=number == threads)
        while waiting:
            take()
    return collector.finish()


def _first_types(columns: Columns, text_ids: bool) -> dict[ColumnName, str]:
    # Confidences and ratings are floats from the start: "4" may be followed by "3.5" far down the file.
    numbers = (columns.weights, columns.rating)
    types: dict[ColumnName, str] = {name: "float64" for name in numbers if name is not None}
    # Ids are integers or text. Left to guess, Arrow makes floats of 1.10 and 1.1, and of integers beyond 64 bits: two
    # ids become one.
    return types | dict.fromkeys((columns.user, columns.item), "string" if text_ids else "int64")


def _wider(
    error: ValueError, names: list[ColumnName], columns: Columns, types: dict[ColumnName, str], stride: int
) -> dict[ColumnName, str]:
    """The type to try next for the column that Arrow could not convert; re-raises where there is none."""
    found = re.match(r"In CSV column #(\d+): CSV conversion error to (\w+)", str(error))
    if found is None:
        raise error
    name = names[int(found[1]) // stride]
    if name in (columns.weights, columns.rating):
        raise InvalidData(
            f"Column {name!r} must hold numbers to be used as weights or rating, but {error}; mend these rows."
        ) from error
    if name in (columns.user, columns.item) and types.get(name) != "string":
        return {name: "string"}
    if name == columns.time and found[2] == "int64":
        return {name: "float64"}
    raise error


def sample_of(file: TextSource, encoding: str) -> str:
    """The beginning of the text; InvalidData where it is empty, or no text."""
    with file.open() as stream:
        start: bytes = stream.read(_SAMPLE_BYTES)
    if not start.strip():
        raise InvalidData(f"{file} is empty; at least one interaction is needed.")
    if start.startswith(b"PAR1"):
        raise InvalidData(f"{file} is a Parquet file; read it with from_parquet or read_parquet.")
    if start.startswith(b"PK\x03\x04"):
        raise InvalidData(f"{file} is a zip archive; unpack it first.")
    if b"\0" in start and encoding.lower().replace("-", "") in ("utf8", "latin1", "ascii"):
        raise InvalidData(f"{file} is a binary file, not text; if it is UTF-16 text say encoding='utf-16'.")
    return start.decode(encoding, errors="replace").lstrip("\ufeff")


def guess_delimiter(sample: str) -> str:
    """The delimiter that cuts the first lines into the same number (above one) of columns; a comma if none does."""
    lines = sample.splitlines()
    # The sample's last line may be cut off, unless it is the only one.
    lines = [line for line in (lines[:-1] or lines)[:10] if line]
    for delimiter in _DELIMITERS:
        widths = {len(row) for row in csv.reader(lines, delimiter=delimiter)}
        if len(widths) == 1 and widths.pop() > 1:
            return delimiter
    # Last, because an id may hold two colons.
    return "::" if len({line.count("::") for line in lines} - {0}) == 1 and "::" in lines[0] else ","
