"""Read chunks of a Parquet data set in tasks, split them by shard, and build each shard from its blocks.

Rows are merged, filtered and numbered as `Interactions` would do it. The position of a row is one integer made of the
chunk's number and the row's place in the chunk, so that positions ascend in the order of the files. The user or item
that appears first gets the lower number.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairmf.data.collect import EventsCollector
from fairmf.data.columns import Columns, likely_unit, missing, to_numbers, unit_counts
from fairmf.data.csr import confidences, rows_from_pairs
from fairmf.data.encode import IdEncoder
from fairmf.data.events import Events, count_rows, first_of_pairs, number_by_appearance
from fairmf.data.fingerprint import id_text
from fairmf.data.half_life import HalfLife, nanoseconds, newest_of_pairs
from fairmf.data.ids import Ids
from fairmf.distributed.parquet_chunks import Chunk
from fairmf.distributed.shards import Shard
from fairmf.errors import InvalidData
from fairmf.types import Array

# A user's shard follows from a hash of the id, which (unlike Python's) is the same in every process and on any machine.


Number = TypeVar("Number", bound=np.generic)

_SEED = np.uint64(0x5DEECE66D1CE4E5B)
_A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


def mix(values: NDArray[np.uint64], seed: np.uint64 = _SEED) -> NDArray[np.uint64]:
    """Return 64-bit hashes of 64-bit numbers."""
    mixed = (values ^ seed) * _A
    mixed = (mixed ^ (mixed >> _HALF)) * _B
    return np.asarray(mixed ^ (mixed >> _HALF), dtype=np.uint64)


def id_hashes(ids: Ids) -> NDArray[np.uint64]:
    """Return a hash of every id. Equal integers have equal hashes, whatever their width."""
    values = ids.values
    if values.dtype.kind in "iu":
        return mix(values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64))
    return np.fromiter(map(_hash, values.tolist()), dtype=np.uint64, count=len(values))


def shards_of(ids: Ids, shards: int) -> NDArray[np.int32]:
    """Return the shard of every id."""
    return np.asarray(id_hashes(ids) % np.uint64(shards), dtype=np.int32)


def _hash(value: object) -> int:
    if type(value) is int:  # in a column with integers beyond int64, which NumPy holds as objects
        return int(mix(np.array([value % 2**64], dtype=np.uint64))[0])
    text = value if type(value) is str else id_text(value + 0.0 if type(value) is float else value)  # -0.0 is 0.0
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


# Functions of the tasks that read chunks: first the items (`item_ids_of`), then all columns (`split_chunk`).


@dataclass(frozen=True)
class Block:
    """Hold the rows of one chunk that belong to one shard, in the order of the file."""

    users: NDArray[np.int32]
    """Positions in `user_ids`, which is in order of first appearance if no row was left out."""
    items: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    user_ids: Ids
    places: NDArray[np.uint32]
    """The place of each row within the chunk."""
    times: Array | None = None
    """The time of each row, if weights are to decay."""


@dataclass(frozen=True)
class Report:
    """Describe the rows of a chunk: how many were kept, the highest rating, which weights, which times."""

    rows_kept: int
    highest_rating: float
    likes: int
    dislikes: int
    """Rows with a weight above and below 0."""
    time_unit: str | None = None
    """The unit of the times, if they are dates."""
    unit_counts: dict[str, int] = field(default_factory=dict)
    """Number of times in the range of each unit, if they are numbers."""
    newest: float = 0
    """The latest time of a row with a weight."""


@dataclass(frozen=True)
class Decay:
    """Say how the weights of rows decay: by which half-life, with a date, and in which unit their times are."""

    half_life: HalfLife
    unit: str

    @classmethod
    def of(cls, half_life: HalfLife, reports: Sequence[Report]) -> Decay:
        """Find the unit of all times, and the newest event if the half-life has no date: as if read at once."""
        some = [report for report in reports if report.rows_kept]
        if len({report.time_unit for report in some}) > 1:
            raise InvalidData("The times are dates in one part of the files and numbers in another.", hint="use one")
        counts = sum((Counter(report.unit_counts) for report in some), Counter[str]())
        unit = some[0].time_unit or likely_unit(counts, sum(report.likes + report.dislikes for report in some))
        newest = int(nanoseconds(np.array([report.newest for report in some]), unit).max(initial=0))
        assert unit is not None  # `nanoseconds` has raised an error
        return cls(half_life if half_life.as_of is not None else half_life.until(newest), unit)

    def decayed(self, gathered: Gathered, merged: bool, n_items: int) -> Gathered:
        """Return the rows with decayed weights; without `merged` weights, the newest row of every pair alone."""
        assert gathered.times is not None
        moments = nanoseconds(gathered.times, self.unit)
        found = replace(gathered, weights=self.half_life.weights_of(gathered.weights, moments))
        if merged:
            return found
        return found.select(np.sort(newest_of_pairs(found.users, found.items, n_items, moments)))


def item_ids_of(chunk: Chunk, columns: Columns, many: bool) -> Ids:
    """Return the items of a chunk in order of first appearance. Skips bad values: `split_chunk` reports them all."""
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
    """Return all ids of the parts, in order of first appearance."""
    encoder = IdEncoder(column, many)
    for part in parts:
        encoder.encode(as_values(part))
    return encoder.ids()


def split_chunk(chunk: Chunk, columns: Columns, items: Ids, shards: int, many: bool) -> list[Report | Block]:
    """Read a chunk; return a report, and a block for every shard."""
    events, report = _read(chunk, columns, many)
    numbers = _numbers_of(events.item_ids, items, columns.item, many)[events.items]
    owner = shards_of(events.user_ids, shards)
    # One sort serves all shards; a pass over the rows for each would cost shards x rows.
    order, ends = _by_owner(owner[events.users], shards)
    return [report, *(_block(events, numbers, order[ends[s] : ends[s + 1]], owner == s) for s in range(shards))]


def read_block(chunk: Chunk, columns: Columns, items: Ids, shards: int, many: bool, number: int) -> Block:
    """Read a chunk; return the block of one shard. Leaves out rows of items that are not among `items`."""
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
    weights, times = events.weights, events.times
    signs = (len(events), 0) if weights is None else (int((weights > 0).sum()), int((weights < 0).sum()))
    report = Report(len(events), collector.highest_rating, *signs)
    if times is None:
        return events, report
    times = times if weights is None else times[weights != 0]
    newest = times.max(initial=0).item()
    return events, replace(report, time_unit=events.time_unit, unit_counts=unit_counts(times), newest=newest)


def _numbers_of(found: Ids, known: Ids, column: str | int, many: bool) -> NDArray[np.int32]:
    """Return the position of each id of `found` in `known`; -1 if it is not there."""
    # An encoder numbers ids in order of appearance: the known ones first, so that new ones get numbers beyond them.
    encoder = IdEncoder(column, many)
    encoder.encode(as_values(known))
    numbers = encoder.encode(as_values(found))
    return np.where(numbers < len(known), numbers, -1).astype(np.int32)


def _by_owner(owner: NDArray[np.int32], shards: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows sorted by shard, in their order, and where the rows of each shard begin."""
    counts = np.bincount(owner, minlength=shards)
    return np.argsort(owner, kind="stable"), np.concatenate(([0], np.cumsum(counts)))


def _block(events: Events, numbers: NDArray[np.int32], rows: NDArray[np.int64], mine: NDArray[np.bool_]) -> Block:
    rows = rows[numbers[rows] >= 0]
    users = np.flatnonzero(mine)
    code = np.zeros(len(mine), dtype=np.int32)
    code[users] = np.arange(len(users), dtype=np.int32)
    weights = None if events.weights is None else events.weights[rows]
    own = code[events.users[rows]]
    times = None if events.times is None else events.times[rows]
    return Block(own, numbers[rows], weights, events.user_ids.take(users), rows.astype(np.uint32), times)


def as_values(ids: Ids) -> pa.Array | list[object]:
    """Return ids in the form that is fastest for an encoder: an Arrow array, or a list for mixed ids."""
    values = ids.values
    if values.dtype.kind in "iu":
        return pa.array(values)
    listed = values.tolist()
    texts = bool(listed) and all(type(value) is str for value in listed)  # an empty list has no kind
    return pa.array(listed, pa.large_string()) if texts else listed


@contextlib.contextmanager
def _naming(chunk: Chunk) -> Iterator[None]:
    """Add the name of the file to InvalidData that does not name it."""
    try:
        yield
    except InvalidData as error:
        if chunk.file.path in str(error):
            raise
        raise InvalidData(f"In {chunk.source}: {error}") from error


_CHUNK_BITS = 32  # bits of a position that hold the row's place in its chunk
NEVER = np.iinfo(np.int64).max  # the first position of an item without rows
_SEEDS = np.array([0x243F6A8885A308D3, 0x13198A2E03707344], dtype=np.uint64)  # digits of pi: arbitrary, but not chosen


@dataclass(frozen=True)
class Gathered:
    """Hold the rows of a shard in the order of the files, users numbered within the shard."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    user_ids: Ids
    firsts: NDArray[np.int64]
    """The position of each user's first row, ascending."""
    positions: NDArray[np.int64] | None
    """The positions of all rows; None if no rows will be left out, so that they are not needed."""
    times: Array | None = None

    def select(self, kept: NDArray[np.bool_] | NDArray[np.int64]) -> Gathered:
        """Return the chosen rows, by a mask or their numbers; users keep their numbers."""
        if kept.dtype == np.bool_ and kept.all():
            return self
        weights = None if self.weights is None else self.weights[kept]
        positions = None if self.positions is None else self.positions[kept]
        times = None if self.times is None else self.times[kept]
        return Gathered(self.users[kept], self.items[kept], weights, self.user_ids, self.firsts, positions, times)


class Tally(NamedTuple):
    """Count the rows of a shard: with a weight, left after `min_item`, and left after `min_user`."""

    rows: int
    after_items: int
    after_users: int


class Summary(NamedTuple):
    """Describe a shard for the sums over all shards."""

    nnz: int
    popularity: NDArray[np.float64]
    """The sum of every item's confidences: |w| for a weight w."""
    plain: bool
    """Whether every weight is 1."""
    dislikes: int
    """Number of entries with a weight below 0."""
    digest: NDArray[np.uint64]
    """Sums of hashes of entries and users. Their totals over all shards do not depend on which user is in which."""


def gather(column: str | int, many: bool, keep_positions: bool, *blocks: Block) -> Gathered:
    """Join the blocks of a shard, in the order of the chunks."""
    encoder = IdEncoder(column, many)
    users, firsts, positions, known = [], [], [], 0
    for number, block in enumerate(blocks):
        codes = encoder.encode(as_values(block.user_ids))
        own = codes[block.users]
        place = block.places.astype(np.int64) + (np.int64(number) << _CHUNK_BITS)
        # Codes are given in order of appearance: a row whose code is higher than all before is its user's first.
        highest = np.maximum.accumulate(np.concatenate(([known - 1], own)))
        firsts.append(place[own > highest[:-1]])
        known = max(known, int(codes.max(initial=-1)) + 1)
        users.append(own)
        if keep_positions:
            positions.append(place)
    weights = [block.weights for block in blocks if block.weights is not None]
    times = [block.times for block in blocks if block.times is not None]
    return Gathered(
        _joined(users, np.int32),
        _joined([block.items for block in blocks], np.int32),
        _joined(weights, np.float32) if weights else None,
        encoder.ids(),
        _joined(firsts, np.int64),
        _joined(positions, np.int64) if keep_positions else None,
        np.concatenate(times) if times else None,
    )


def with_weight(gathered: Gathered) -> Gathered:
    """Drop rows of weight 0, which are not interactions. Those below 0 are dislikes."""
    return gathered if gathered.weights is None else gathered.select(gathered.weights != 0)


def pairs_of_items(gathered: Gathered, n_items: int) -> NDArray[np.int64]:
    """Return how many different users of this shard each item has."""
    kept = with_weight(gathered)
    return count_rows(kept.items, _counted(kept, n_items), n_items)


def filtered(
    gathered: Gathered, n_items: int, item_kept: NDArray[np.bool_] | None, min_user: int
) -> tuple[Gathered, Tally]:
    """Filter rows and renumber users as `Events.at_least` and `Events.compact` do.

    `item_kept` says which items stay: it was counted over all shards.
    """
    some = with_weight(gathered)
    counted = _counted(some, n_items)
    kept = np.ones(len(some.users), dtype=bool) if item_kept is None else item_kept[some.items]
    after_items = int(np.count_nonzero(kept))
    if min_user > 1:
        kept &= (count_rows(some.users, counted & kept, len(some.user_ids)) >= min_user)[some.users]
    left = some.select(kept)
    tally = Tally(len(some.users), after_items, len(left.users))
    users, order = number_by_appearance(left.users, len(left.user_ids))
    assert left.positions is not None  # `gather` kept them, because rows are left out
    first_rows = np.flatnonzero(users > np.maximum.accumulate(np.concatenate(([-1], users)))[:-1])
    compact = Gathered(
        users, left.items, left.weights, left.user_ids.take(order), left.positions[first_rows], left.positions,
        left.times,
    )  # fmt: skip
    return compact, tally


def first_positions(gathered: Gathered, n_items: int) -> NDArray[np.int64]:
    """Return the position of each item's first row in this shard; NEVER if it has none."""
    firsts = np.full(n_items, NEVER, dtype=np.int64)
    if gathered.positions is not None:
        np.minimum.at(firsts, gathered.items, gathered.positions)
    return firsts


def build(
    gathered: Gathered,
    numbers: NDArray[np.int64],
    item_numbers: NDArray[np.int32] | None,
    n_items: int,
    count: bool,
    decay: Decay | None = None,
) -> tuple[Shard, Summary]:
    """Build a shard: let weights decay, merge repeated pairs, and renumber items.

    `numbers` are the users' numbers in the whole data, `item_numbers` the items' new numbers (None: unchanged).
    """
    kept = with_weight(gathered)
    items = kept.items if item_numbers is None else item_numbers[kept.items]
    kept = replace(kept, items=items)
    if decay is not None:
        kept = decay.decayed(kept, count or kept.weights is not None, n_items)
    rows = rows_from_pairs(kept.users, kept.items, (len(numbers), n_items), kept.weights, count=count)
    popularity = np.bincount(rows.indices, confidences(rows).weights, n_items).astype(np.float64)
    plain = rows.weights is None or not (rows.weights != 1).any()
    dislikes = 0 if rows.weights is None else int((rows.weights < 0).sum())
    shard = Shard(rows, numbers, kept.user_ids)
    return shard, Summary(rows.nnz, popularity, plain, dislikes, _digest(shard))


def _digest(shard: Shard) -> NDArray[np.uint64]:
    rows, numbers = shard.rows, shard.users.view(np.uint64)
    entries = (np.repeat(numbers, np.diff(rows.indptr)) << np.uint64(_CHUNK_BITS)) | rows.indices.astype(np.uint64)
    weights = np.ones(1, dtype=np.float32) if rows.weights is None else rows.weights
    names = np.zeros(1, dtype=np.uint64) if shard.user_ids is None else id_hashes(shard.user_ids)
    # A sum does not depend on the order, and so not on the shards. Two seeds give 128 bits for entries and for users.
    sums = []
    for seed in _SEEDS:
        of_entries = mix(mix(entries, seed) ^ weights.view(np.uint32).astype(np.uint64), seed)
        of_users = mix(mix(numbers, ~seed) ^ names, ~seed)
        sums += [of_entries.sum(dtype=np.uint64), of_users.sum(dtype=np.uint64)]
    return np.array(sums, dtype=np.uint64)


def _counted(gathered: Gathered, n_items: int) -> NDArray[np.bool_]:
    first = first_of_pairs(gathered.users, gathered.items, n_items)
    return np.ones(len(gathered.users), dtype=bool) if first is None else first


def _joined(parts: list[NDArray[Number]], kind: type[Number]) -> NDArray[Number]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)
