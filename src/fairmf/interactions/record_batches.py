"""Arrow record batches, from a file, a database or another library, into Events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fairmf.errors import InvalidData
from fairmf.interactions.collecting import EventsCollector
from fairmf.interactions.columns import ColumnName, Columns
from fairmf.interactions.events import Events


def collect_batches(
    names: Sequence[ColumnName], batches: Iterable[Any], columns: Columns, source: str, most_rows: int
) -> Events:
    """The events of batches whose columns have these names; at most `most_rows` rows are worked on at once."""
    columns.check(names, source)
    numbers = {name for role, name in columns.roles.items() if role not in ("user", "item")}
    collector = EventsCollector(columns, source)
    for batch in batches:
        for start in range(0, batch.num_rows, most_rows):
            part = batch.slice(start, most_rows)
            collector.add({name: _known(part.column(str(name)), name, name in numbers) for name in columns.names})
    return collector.finish()


def _known(values: Any, name: ColumnName, number: bool) -> Any:
    """The array in a type the collector knows; a database's decimals, which arrive as text, as numbers where needed."""
    import pyarrow as pa

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
        raise InvalidData(f"Column {name!r} must hold numbers, but {error}; convert it first.") from error
