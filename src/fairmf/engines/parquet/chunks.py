"""Reading chunks of a Parquet data set: first their items, then all, dealt out to shards. Each is a task's function."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.engines.parquet.files import Chunk
from fairmf.engines.parquet.hashing import shards_of
from fairmf.errors import InvalidData
from fairmf.interactions import Events, Ids
from fairmf.interactions.collecting import EventsCollector
from fairmf.interactions.columns import Columns
from fairmf.interactions.encoding import IdEncoder
from fairmf.interactions.values import missing, to_numbers


@dataclass(frozen=True)
class Block:
    """The rows of one chunk that belong to one shard, in the order of the file."""

    users: NDArray[np.int32]
    """Positions in `user_ids`, which is in order of first appearance where no row was left out."""
    items: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    user_ids: Ids
    places: NDArray[np.uint32]
    """Of the rows, within the chunk."""


@dataclass(frozen=True)
class Report:
    """What a chunk held."""

    rows_kept: int
    highest_rating: float


def item_ids_of(chunk: Chunk, columns: Columns, many: bool) -> Ids:
    """The items of a chunk in order of first appearance. Bad values are passed over: `deal` reports them all."""
    encoder = IdEncoder(columns.item, many)
    names = [columns.item] if columns.rating is None else [columns.item, columns.rating]
    with _naming(chunk):
        for batch in chunk.batches(list(dict.fromkeys(names))):
            items = batch.column(str(columns.item))
            if columns.rating is not None and columns.rating_above is not None:
                ratings = to_numbers(batch.column(str(columns.rating)), columns.rating, "rating")
                items = items.take(np.flatnonzero(ratings > columns.rating_above))
            if not missing(items).any():
                encoder.encode(items)
    return encoder.ids()


def merge_ids(column: str | int, many: bool, *parts: Ids) -> Ids:
    """All ids of the parts, in order of first appearance."""
    encoder = IdEncoder(column, many)
    for part in parts:
        encoder.encode(as_values(part))
    return encoder.ids()


def deal(chunk: Chunk, columns: Columns, items: Ids, shards: int, many: bool) -> list[Report | Block]:
    """Read a chunk: a report, and a block for every shard."""
    events, report = _read(chunk, columns, many)
    numbers = _numbers_of(events.item_ids, items, columns.item, many)[events.items]
    owner = shards_of(events.user_ids, shards)
    order, ends = _by_owner(owner[events.users], shards)
    return [report, *(_block(events, numbers, order[ends[s] : ends[s + 1]], owner == s) for s in range(shards))]


def pick(chunk: Chunk, columns: Columns, items: Ids, shards: int, many: bool, number: int) -> Block:
    """Read a chunk for the block of one shard. Rows of items that are not among `items` are left out."""
    events, _ = _read(chunk, columns, many)
    numbers = _numbers_of(events.item_ids, items, columns.item, many)[events.items]
    mine = shards_of(events.user_ids, shards) == number
    return _block(events, numbers, np.flatnonzero(mine[events.users]), mine)


def _read(chunk: Chunk, columns: Columns, many: bool) -> tuple[Events, Report]:
    collector = EventsCollector(columns, chunk.source, many, chunk.first_row)
    with _naming(chunk):
        for batch in chunk.batches(columns.names):
            collector.add({name: batch.column(str(name)) for name in columns.names})
        events = collector.finish(allow_empty=True)
    return events, Report(len(events), collector.highest_rating)


def _numbers_of(found: Ids, known: Ids, column: str | int, many: bool) -> NDArray[np.int32]:
    """The number of each of the ids found among those known; -1 where it is not."""
    encoder = IdEncoder(column, many)
    encoder.encode(as_values(known))
    numbers = encoder.encode(as_values(found))
    return np.where(numbers < len(known), numbers, -1).astype(np.int32)


def _by_owner(owner: NDArray[np.int32], shards: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of every shard, in their order, and where each shard's begin."""
    counts = np.bincount(owner, minlength=shards)
    return np.argsort(owner, kind="stable"), np.concatenate(([0], np.cumsum(counts)))


def _block(events: Events, numbers: NDArray[np.int32], rows: NDArray[np.int64], mine: NDArray[np.bool_]) -> Block:
    rows = rows[numbers[rows] >= 0]
    users = np.flatnonzero(mine)
    code = np.zeros(len(mine), dtype=np.int32)
    code[users] = np.arange(len(users), dtype=np.int32)
    weights = None if events.weights is None else events.weights[rows]
    own = code[events.users[rows]]
    return Block(own, numbers[rows], weights, events.user_ids.take(users), rows.astype(np.uint32))


def as_values(ids: Ids) -> Any:
    """Ids as an encoder takes them: an Arrow array where that is quicker, else a list."""
    import pyarrow as pa

    values = ids.values
    if values.dtype.kind in "iu":
        return pa.array(values)
    listed = values.tolist()
    texts = bool(listed) and all(type(value) is str for value in listed)  # none at all are of no kind
    return pa.array(listed, pa.large_string()) if texts else listed


@contextlib.contextmanager
def _naming(chunk: Chunk) -> Iterator[None]:
    """Put the name of the file before an error that does not name it."""
    try:
        yield
    except InvalidData as error:
        if chunk.file.path in str(error):
            raise
        raise InvalidData(f"In {chunk.source}: {error}") from error
