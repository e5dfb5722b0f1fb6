"""Collect batches of a table into Events: encode the ids, check the values, join the arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairmf.data.columns import BadValues, ColumnName, Columns, missing, to_numbers, to_times
from fairmf.data.encode import IdEncoder, TextWords, Values
from fairmf.data.events import Events
from fairmf.data.ids import is_missing
from fairmf.errors import InvalidData
from fairmf.lazy import lazy_module
from fairmf.types import Array

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy_module("pyarrow")

_FIRST = 1 << 16  # values that a growing array has room for at first


class GrowingArray:
    """Join arrays whose total length is not known: `append` each, then call `finish`.

    `np.concatenate` would need twice the memory of the result. Here one array grows by an eighth at a time with
    `realloc`, which moves large arrays by remapping their pages where the system can do so.
    """

    def __init__(self) -> None:
        self._values: Array | None = None
        self._length = 0
        self._expected = 0

    def expect(self, length: int) -> None:
        """Reserve memory for about this many values; `finish` releases what was not used."""
        self._expected = length

    def __len__(self) -> int:
        return self._length

    def append(self, values: Array) -> None:
        """Add values at the end. If their type differs, all values are converted to a type that holds both."""
        if len(values) == 0:
            return
        if self._values is None:
            self._values = np.empty(max(_FIRST, len(values), self._expected), dtype=values.dtype)
        if self._values.dtype != values.dtype:
            self._values = self._values.astype(np.result_type(self._values, values))
        end = self._length + len(values)
        if end > len(self._values):
            # refcheck=False: no other code holds a reference to this array, so it may move in memory.
            self._values.resize(max(end, len(self._values) + max(len(self._values) // 8, _FIRST)), refcheck=False)
        self._values[self._length : end] = values
        self._length = end

    def finish(self) -> Array:
        """Return all values in one array; this object is empty afterwards."""
        values, length = self._values, self._length
        self._values, self._length = None, 0
        if values is None:
            return np.empty(0, dtype=np.int32)
        values.resize(length, refcheck=False)
        return values


_REPAIR = "remove or correct these rows"


class EventsCollector:
    """Collect batches of a table into Events: `add` each batch in the order of the file, then call `finish`.

    Only the codes read so far and one batch are in memory. Bad values are counted over all batches and reported by
    `finish`, so that one error says how many there are.

    Parameters
    ----------
    columns
        The names of the columns in the batches.
    source
        What to call the table in errors.
    many
        Use compiled code from the first batch, because there will be many rows.
    first_row
        The number of the first row in errors, where the batches are a part of a file.
    """

    def __init__(self, columns: Columns, source: str, many: bool = False, first_row: int = 0):
        self._columns = columns
        self._source = source
        self._encoders = {"user": IdEncoder(columns.user, many), "item": IdEncoder(columns.item, many)}
        self._parts = {role: GrowingArray() for role in ("user", "item", "weights", "time")}
        self._bad = {role: BadValues() for role in columns.roles}
        self._rows_read = first_row
        self._time_units: set[str | None] = set()
        self.highest_rating = -np.inf

    def expect(self, rows: int) -> None:
        """Reserve memory for about this many rows; call it before the first batch."""
        for part in self._parts.values():
            part.expect(rows)

    def add(self, batch: Mapping[ColumnName, Values]) -> None:
        """Add one batch: the values of every column, by name."""
        names = self._columns
        length = len(batch[names.user])
        # Ratings first: ids of rows that are dropped must not get codes.
        kept = self._above_threshold(batch)
        rows: NDArray[np.int64] | int = self._rows_read if kept is None else self._rows_read + kept
        self._add_ids("item", _take(batch[names.item], kept), rows)
        self._add_ids("user", _take(batch[names.user], kept), rows)
        if names.weights is not None:
            self._add_weights(_take(batch[names.weights], kept), rows)
        if names.time is not None:
            self._add_times(_take(batch[names.time], kept), rows)
        self._rows_read += length

    def finish(self, *, allow_empty: bool = False) -> Events:
        """Return the events of all batches; raise InvalidData for bad values and, unless allowed, for no rows."""
        names, where = self._columns, f"of {self._source}"
        for role, what in (("user", "user ids"), ("item", "item ids"), ("time", "times"), ("rating", "ratings")):
            if role in self._bad:
                self._bad[role].check(f"Column {names.roles[role]!r} {where} ({what})", _REPAIR)
        if names.weights is not None:
            advice = f"weights must be finite, so {_REPAIR}"
            self._bad["weights"].check(f"Column {names.weights!r} {where} (weights)", advice)
        if not allow_empty:
            check_not_empty(names, self._source, self._rows_read, len(self._parts["user"]), self.highest_rating)
        return Events(
            users=self._parts["user"].finish(),
            items=self._parts["item"].finish(),
            user_ids=self._encoders["user"].ids(),
            item_ids=self._encoders["item"].ids(),
            weights=self._parts["weights"].finish() if names.weights is not None else None,
            times=self._parts["time"].finish() if names.time is not None else None,
            time_unit=next(iter(self._time_units), None),
        )

    def _above_threshold(self, batch: Mapping[ColumnName, Values]) -> NDArray[np.int64] | None:
        """Return the rows whose rating is above the threshold; None without a threshold, so that nothing is copied."""
        column, threshold = self._columns.rating, self._columns.rating_above
        if column is None or threshold is None:
            return None
        ratings = to_numbers(batch[column], column, "rating")
        self._bad["rating"].add("NaN or missing", np.isnan(ratings), self._rows_read)
        if len(ratings):
            # `fmax` passes over NaN.
            self.highest_rating = max(self.highest_rating, float(np.fmax.reduce(ratings)))
        return np.flatnonzero(ratings > threshold).astype(np.int64, copy=False)

    def _add_ids(self, role: str, values: Values, rows: NDArray[np.int64] | int) -> None:
        if isinstance(values, list):
            empty = np.fromiter((is_missing(value) for value in values), dtype=bool, count=len(values))
        elif isinstance(values, TextWords):  # the compiled reader leaves missing ids to Arrow's
            empty = np.zeros(0, dtype=bool)
        else:
            empty = missing(values)
        if empty.any():  # `finish` raises the error, with the count over all batches
            self._bad[role].add("null or NaN", empty, rows)
            return
        self._parts[role].append(self._encoders[role].encode(values))

    def _add_weights(self, values: Values, rows: NDArray[np.int64] | int) -> None:
        name = self._columns.roles["weights"]
        with np.errstate(over="ignore"):  # what is too large for float32 is reported as infinite
            weights = to_numbers(values, name, "weights").astype(np.float32)
        self._bad["weights"].add_weights(weights, rows)
        self._parts["weights"].append(weights)

    def _add_times(self, values: Values, rows: NDArray[np.int64] | int) -> None:
        empty = missing(values)
        if empty.any():
            self._bad["time"].add("null or NaN", empty, rows)
            return
        name = self._columns.roles["time"]
        times, unit = to_times(values, name)
        # A file of dates has the unit "us"; numbers have None. A mixture cannot be compared.
        self._time_units.add(unit)
        if len(self._time_units) > 1:
            raise InvalidData(
                f"Column {name!r} of {self._source} holds dates in one part and numbers in another.",
                hint="use one of them",
            )
        self._parts["time"].append(times)


def check_not_empty(columns: Columns, source: str, rows_read: int, rows_kept: int, highest_rating: float) -> None:
    """Raise InvalidData where there were no rows, or none with a rating above the threshold."""
    if rows_read == 0:
        raise InvalidData(f"There are no rows in {source}.", hint="at least one interaction is needed")
    if rows_kept == 0:
        raise InvalidData(
            f"No rows are left: none of the {rows_read:,} rows of {source} has {columns.rating!r} above "
            f"{columns.rating_above:g} (the highest is {highest_rating:g}).",
            hint="lower {parameter}",
            parameter="rating_above",
        )


def _take(values: Values, kept: NDArray[np.int64] | None) -> Values:
    if kept is None:
        return values
    return [values[k] for k in kept] if isinstance(values, list) else values.take(kept)


def collect_batches(
    names: Sequence[ColumnName], batches: Iterable[pa.RecordBatch], columns: Columns, source: str, most_rows: int
) -> Events:
    """Collect Arrow record batches with these column names, at most `most_rows` rows at a time."""
    columns.check(names, source)
    numbers = {name for role, name in columns.roles.items() if role not in ("user", "item")}
    collector = EventsCollector(columns, source)
    for batch in batches:
        for start in range(0, batch.num_rows, most_rows):
            part = batch.slice(start, most_rows)
            collector.add({name: _known(part.column(str(name)), name, name in numbers) for name in columns.names})
    return collector.finish()


def _known(values: pa.Array, name: ColumnName, number: bool) -> pa.Array:
    """Convert types that the collector cannot take: string views, and a database's decimals, which arrive as text."""
    if str(values.type) == "string_view":  # the compiled tables take plain text
        return values.cast(pa.string())
    if not isinstance(values, pa.ExtensionArray) or values.type.extension_name != "arrow.opaque":
        return values
    kept = values.storage
    if not number or not pa.types.is_string(kept.type):
        return kept
    try:
        return kept.cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise InvalidData(f"Column {name!r} must hold numbers, but {error}.", hint="convert it first") from error
