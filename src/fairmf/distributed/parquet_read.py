"""From the blocks of all chunks to a shard, as `Interactions` would have merged, filtered and numbered them.

Rows have positions: the chunk's number and the row's place in the chunk in one integer, so that positions are in the
order of the files. Whoever appears first has the lower number.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.data.collect import EventsCollector
from fairmf.data.columns import Columns, missing, to_numbers
from fairmf.data.csr import Rows, rows_from_pairs
from fairmf.data.encode import IdEncoder
from fairmf.data.events import Events, count_rows, first_of_pairs, number_by_appearance
from fairmf.data.fingerprint import id_text
from fairmf.data.ids import Ids
from fairmf.distributed.parquet_files import Chunk
from fairmf.distributed.shards import Shard
from fairmf.errors import InvalidData

# Which shard a user belongs to: a hash of the id that is the same in every process, on every machine, always.


_SEED = np.uint64(0x5DEECE66D1CE4E5B)
_A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


def mix(values: NDArray[np.uint64], seed: np.uint64 = _SEED) -> NDArray[np.uint64]:
    """A 64-bit hash of 64-bit numbers."""
    mixed = (values ^ seed) * _A
    mixed = (mixed ^ (mixed >> _HALF)) * _B
    return np.asarray(mixed ^ (mixed >> _HALF), dtype=np.uint64)


def id_hashes(ids: Ids) -> NDArray[np.uint64]:
    """A hash of every id; equal ids have equal ones, of whatever width their integers are."""
    values = ids.values
    if values.dtype.kind in "iu":
        return mix(values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64))
    return np.fromiter(map(_hash, values.tolist()), dtype=np.uint64, count=len(values))


def shards_of(ids: Ids, shards: int) -> NDArray[np.int32]:
    """The shard of every id."""
    return np.asarray(id_hashes(ids) % np.uint64(shards), dtype=np.int32)


def _hash(value: Any) -> int:
    if type(value) is int:  # one that is beyond int64, or beside such a one
        return int(mix(np.array([value % 2**64], dtype=np.uint64))[0])
    text = value if type(value) is str else id_text(value + 0.0 if type(value) is float else value)  # -0.0 is 0.0
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


# Reading chunks of a Parquet data set: first their items, then all, dealt out to shards. Each is a task's function.


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


_CHUNK_BITS = 32
NEVER = np.iinfo(np.int64).max
_SEEDS = np.array([0x243F6A8885A308D3, 0x13198A2E03707344], dtype=np.uint64)  # digits of pi: nothing up the sleeve


@dataclass(frozen=True)
class Gathered:
    """The rows of a shard in the order of the files, users numbered within the shard."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    user_ids: Ids
    firsts: NDArray[np.int64]
    """The position of each user's first row, ascending."""
    positions: NDArray[np.int64] | None
    """Of all rows, where rows may still be left out."""

    def select(self, kept: NDArray[np.bool_]) -> Gathered:
        """Fewer rows; users stay as they are."""
        if kept.all():
            return self
        weights = None if self.weights is None else self.weights[kept]
        positions = None if self.positions is None else self.positions[kept]
        return Gathered(self.users[kept], self.items[kept], weights, self.user_ids, self.firsts, positions)


class Tally(NamedTuple):
    """Rows of a shard: all with a weight, those left by the items' minimum, and those left by the users'."""

    rows: int
    after_items: int
    after_users: int


class Summary(NamedTuple):
    """What the whole needs to know of a shard."""

    nnz: int
    popularity: NDArray[np.float64]
    plain: bool
    """Whether every weight is 1."""
    digest: NDArray[np.uint64]
    """Sums over entries and users: they add up over shards to what does not depend on how users are dealt out."""


def gather(column: str | int, many: bool, keep_positions: bool, *blocks: Block) -> Gathered:
    """All blocks of a shard, in the order of the chunks."""
    encoder = IdEncoder(column, many)
    users, firsts, positions, known = [], [], [], 0
    for number, block in enumerate(blocks):
        codes = encoder.encode(as_values(block.user_ids))
        own = codes[block.users]
        place = block.places.astype(np.int64) + (np.int64(number) << _CHUNK_BITS)
        # Codes are handed out in the order of appearance: a row with the highest code so far is a user's first.
        highest = np.maximum.accumulate(np.concatenate(([known - 1], own)))
        firsts.append(place[own > highest[:-1]])
        known = max(known, int(codes.max(initial=-1)) + 1)
        users.append(own)
        if keep_positions:
            positions.append(place)
    weights = [block.weights for block in blocks if block.weights is not None]
    return Gathered(
        _joined(users, np.int32),
        _joined([block.items for block in blocks], np.int32),
        _joined(weights, np.float32) if weights else None,
        encoder.ids(),
        _joined(firsts, np.int64),
        _joined(positions, np.int64) if keep_positions else None,
    )


def with_weight(gathered: Gathered) -> Gathered:
    """Without rows of weight 0, which are no interactions."""
    return gathered if gathered.weights is None else gathered.select(gathered.weights > 0)


def pairs_of_items(gathered: Gathered, n_items: int) -> NDArray[np.int64]:
    """How many different users of this shard each item has."""
    kept = with_weight(gathered)
    return count_rows(kept.items, _counted(kept, n_items), n_items)


def filtered(
    gathered: Gathered, n_items: int, item_kept: NDArray[np.bool_] | None, min_user: int
) -> tuple[Gathered, Tally]:
    """As `Events.at_least` and `Events.compact`, where which items stay has been found out over all shards."""
    some = with_weight(gathered)
    counted = _counted(some, n_items)
    kept = np.ones(len(some.users), dtype=bool) if item_kept is None else item_kept[some.items]
    after_items = int(np.count_nonzero(kept))
    if min_user > 1:
        kept &= (count_rows(some.users, counted & kept, len(some.user_ids)) >= min_user)[some.users]
    left = some.select(kept)
    tally = Tally(len(some.users), after_items, len(left.users))
    users, order = number_by_appearance(left.users, len(left.user_ids))
    assert left.positions is not None  # kept for this
    first_rows = np.flatnonzero(users > np.maximum.accumulate(np.concatenate(([-1], users)))[:-1])
    compact = Gathered(
        users, left.items, left.weights, left.user_ids.take(order), left.positions[first_rows], left.positions
    )
    return compact, tally


def first_positions(gathered: Gathered, n_items: int) -> NDArray[np.int64]:
    """The position of each item's first row in this shard; NEVER where it has none."""
    firsts = np.full(n_items, NEVER, dtype=np.int64)
    if gathered.positions is not None:
        np.minimum.at(firsts, gathered.items, gathered.positions)
    return firsts


def build(
    gathered: Gathered, numbers: NDArray[np.int64], item_numbers: NDArray[np.int32] | None, n_items: int, count: bool
) -> tuple[Shard, Summary]:
    """Merge repeated pairs. `numbers` are the users' in the whole; `item_numbers` says what items are called now."""
    kept = with_weight(gathered)
    items = kept.items if item_numbers is None else item_numbers[kept.items]
    rows = rows_from_pairs(kept.users, items, (len(numbers), n_items), kept.weights, count=count)
    popularity = np.bincount(rows.indices, rows.weights, n_items).astype(np.float64)
    plain = rows.weights is None or not (rows.weights != 1).any()
    shard = Shard(rows, numbers, kept.user_ids)
    return shard, Summary(rows.nnz, popularity, plain, _digest(shard))


def _digest(shard: Shard) -> NDArray[np.uint64]:
    rows, numbers = shard.rows, shard.users.view(np.uint64)
    entries = (np.repeat(numbers, np.diff(rows.indptr)) << np.uint64(_CHUNK_BITS)) | rows.indices.astype(np.uint64)
    weights = np.ones(1, dtype=np.float32) if rows.weights is None else rows.weights
    names = np.zeros(1, dtype=np.uint64) if shard.user_ids is None else id_hashes(shard.user_ids)
    sums = []
    for seed in _SEEDS:
        of_entries = mix(mix(entries, seed) ^ weights.view(np.uint32).astype(np.uint64), seed)
        of_users = mix(mix(numbers, ~seed) ^ names, ~seed)
        sums += [of_entries.sum(dtype=np.uint64), of_users.sum(dtype=np.uint64)]
    return np.array(sums, dtype=np.uint64)


def plain_rows(rows: Rows) -> Rows:
    """Rows without their weights."""
    return rows._replace(weights=None)


def _counted(gathered: Gathered, n_items: int) -> NDArray[np.bool_]:
    first = first_of_pairs(gathered.users, gathered.items, n_items)
    return np.ones(len(gathered.users), dtype=bool) if first is None else first


def _joined(parts: list, kind: type) -> NDArray:  # type: ignore[type-arg]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)
