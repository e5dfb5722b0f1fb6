"""Lines of a user followed by their items, as the NGCF and LightGCN files have them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairmf.errors import InvalidData
from fairmf.interactions.collecting import EventsCollector
from fairmf.interactions.columns import Columns
from fairmf.interactions.events import Events
from fairmf.interactions.text_source import TextSource, record_blocks

_BLOCK_BYTES = 1 << 20


def read_adjacency(sources: Sequence[TextSource], columns: Columns) -> tuple[Events, list[int]]:
    """The events of all sources, one after the other, and how many rows each has."""
    collector = EventsCollector(columns, " and ".join(source.name for source in sources))
    sizes = []
    for source in sources:
        number = rows = 0
        for block in record_blocks(source, _BLOCK_BYTES, delimiter=None):
            numbers, lengths = _numbers(block.text, source, number)
            number += len(lengths)
            rows += _add(collector, columns, numbers, lengths)
        sizes.append(rows)
    return collector.finish(), sizes


def _add(collector: EventsCollector, columns: Columns, numbers: np.ndarray, lengths: np.ndarray) -> int:
    import pyarrow as pa

    first = np.zeros(len(numbers), dtype=bool)
    first[np.cumsum(lengths) - lengths] = True
    users, items = np.repeat(numbers[first], lengths - 1), numbers[~first]
    if len(items):
        collector.add({columns.user: pa.array(users), columns.item: pa.array(items)})
    return len(items)


def _numbers(block: bytes, source: TextSource, before: int) -> tuple[np.ndarray, np.ndarray]:
    """All numbers of the lines, and how many each line has; empty lines have none and are left out."""
    rows = [line.split() for line in block.splitlines()]
    try:
        numbers = np.array([word for row in rows for word in row], dtype=np.int64)
    except (ValueError, OverflowError):
        bad = next(k for k, row in enumerate(rows) if not all(word.lstrip(b"-").isdigit() for word in row))
        raise InvalidData(
            f"Line {before + bad + 1:,} of {source} is not a user followed by items, all as integers; it is another "
            f"file than expected, or damaged."
        ) from None
    return numbers, np.array([len(row) for row in rows if row], dtype=np.int64)
