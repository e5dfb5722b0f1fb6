"""The distributed pass over a Parquet data set: dictionaries of items and users, and every row brought to its shard.

This process sees footers, item ids and sums over items; interactions and users go from task to task. The order is that
of `Interactions.from_parquet`, and so is every number: a shard holds exactly its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.engines.parquet import building, ranking
from fairmf.engines.parquet import chunks as reading_chunks
from fairmf.engines.parquet.building import NEVER, Gathered, Summary, Tally
from fairmf.engines.parquet.cache import ShardCache
from fairmf.engines.parquet.files import ROWS_PER_CHUNK, Chunk, DataFile, check_kinds, chunks_of, outlines_of
from fairmf.engines.shards import Shard
from fairmf.engines.tasks import Ref, Tasks
from fairmf.errors import InvalidData
from fairmf.interactions import Ids
from fairmf.interactions.collecting import check_not_empty
from fairmf.interactions.columns import Columns

_FOOTERS_PER_TASK = 64
_MERGED_AT_ONCE = 16
_MANY_ROWS = 1 << 19
# Below this many users one task ranks them all: 8 MB of positions.
_USERS_PER_RANKING = 1 << 20


@dataclass(frozen=True)
class Reading:
    """What to read, and how."""

    columns: Columns
    count: bool
    """Whether a repeated pair counts its rows."""
    min_user: int
    min_item: int
    shards: int
    rows_per_chunk: int = ROWS_PER_CHUNK
    given_items: bool = False
    """Whether the items are given, and rows of others left out."""

    @property
    def filters(self) -> bool:
        """Whether users who do not occur any more are dropped."""
        return bool(self.min_user or self.min_item or self.given_items)


@dataclass(frozen=True)
class Found:
    """The outcome: sums of the whole here, shards where they were made."""

    n_users: int
    nnz: int
    plain: bool
    digest: NDArray[np.uint64]
    item_ids: Ids
    popularity: NDArray[np.float64]
    chunks: tuple[Chunk, ...]
    many: bool
    shards: tuple[Ref, ...]
    numbers: tuple[Ref, ...]
    """The users' numbers of every shard, kept by this process: what cannot be found again from a shard's rows."""


def run(
    tasks: Tasks,
    files: Sequence[DataFile],
    reading: Reading,
    cache: ShardCache | None = None,
    items: Ids | None = None,
) -> Found:
    """Read everything once (the items' column twice, unless they are given) and bring every row to its shard."""
    columns, shards = reading.columns, range(reading.shards)
    chunks = _chunks(tasks, files, reading)
    many = sum(chunk.rows for chunk in chunks) >= _MANY_ROWS
    source = files[0].path if len(files) == 1 else f"these {len(files)} Parquet files"
    if not chunks:
        check_not_empty(columns, source, 0, 0, -np.inf)
    item_ids = _items(tasks, chunks, columns, many) if items is None else tasks.keep(items)
    rows, blocks = _dealt(tasks, chunks, reading, item_ids, many, source)
    gathered = [tasks.submit(building.gather, columns.user, many, reading.filters, *blocks[s])[0] for s in shards]
    del blocks  # the store may let go of each as soon as it is gathered
    names: Ids = tasks.get(item_ids)
    renumbered = None
    if reading.filters:
        gathered, renumbered = _filtered(tasks, gathered, len(names), reading, rows)
        names = names if renumbered is None else names.take(_order(renumbered))
    n_users, numbers = _numbered(tasks, gathered)
    made = _built(tasks, gathered, numbers, renumbered, len(names), reading, cache)
    kept = tuple(tasks.keep(tasks.get(number)) for number in numbers)
    summaries = [tasks.get(summary) for _, summary in made]
    nnz = sum(summary.nnz for summary in summaries)
    if nnz == 0:
        raise _without_weight(rows)
    return Found(
        n_users, nnz, all(summary.plain for summary in summaries),
        sum((summary.digest for summary in summaries), start=np.zeros(4, dtype=np.uint64)),
        names, sum((summary.popularity for summary in summaries), start=np.zeros(len(names))),
        tuple(chunks), many, tuple(shard for shard, _ in made), kept,
    )  # fmt: skip


def _chunks(tasks: Tasks, files: Sequence[DataFile], reading: Reading) -> list[Chunk]:
    parts = [files[k : k + _FOOTERS_PER_TASK] for k in range(0, len(files), _FOOTERS_PER_TASK)]
    refs = [tasks.submit(outlines_of, part, reading.columns)[0] for part in parts]
    outlines = [outline for ref in refs for outline in tasks.get(ref)]
    check_kinds(files, outlines, reading.columns)
    return chunks_of(files, outlines, reading.rows_per_chunk)


def _items(tasks: Tasks, chunks: Sequence[Chunk], columns: Columns, many: bool) -> Ref:
    """The items' ids in order of first appearance: neighbours are merged, then neighbours of these."""
    refs = [tasks.submit(reading_chunks.item_ids_of, chunk, columns, many)[0] for chunk in chunks]
    while len(refs) > 1:
        groups = [refs[k : k + _MERGED_AT_ONCE] for k in range(0, len(refs), _MERGED_AT_ONCE)]
        refs = [tasks.submit(reading_chunks.merge_ids, columns.item, many, *group)[0] for group in groups]
    return refs[0]


def _dealt(
    tasks: Tasks, chunks: Sequence[Chunk], reading: Reading, item_ids: Ref, many: bool, source: str
) -> tuple[int, list[list[Ref]]]:
    """How many rows are kept, and the blocks of every shard, in the order of the chunks."""
    shards = reading.shards
    parts = [
        tasks.submit(reading_chunks.deal, chunk, reading.columns, item_ids, shards, many, parts=shards + 1)
        for chunk in chunks
    ]
    reports = [tasks.get(part[0]) for part in parts]
    kept, highest = sum(report.rows_kept for report in reports), max(report.highest_rating for report in reports)
    check_not_empty(reading.columns, source, sum(chunk.rows for chunk in chunks), kept, highest)
    return kept, [[part[s + 1] for part in parts] for s in range(shards)]


def _filtered(
    tasks: Tasks, gathered: Sequence[Ref], n_items: int, reading: Reading, rows_read: int
) -> tuple[list[Ref], NDArray[np.int32] | None]:
    """The rows that `min_item` and `min_user` leave, and the items' new numbers (-1: gone; None: as they are)."""
    item_kept = None
    if reading.min_item > 1:
        counts = [tasks.submit(building.pairs_of_items, ref, n_items)[0] for ref in gathered]
        item_kept = sum(tasks.get(ref) for ref in counts) >= reading.min_item
    kept = tasks.keep(item_kept)
    parts = [tasks.submit(_filter, ref, n_items, kept, reading.min_user, parts=3) for ref in gathered]
    rows, after_items, after_users = np.sum([tasks.get(part[1]) for part in parts], axis=0).tolist()
    if rows == 0:
        raise _without_weight(rows_read) if reading.columns.weights is not None else _without_items(rows_read, n_items)
    if after_users == 0:
        raise InvalidData(
            f"No interactions are left: of {rows:,} rows min_item={reading.min_item} removed "
            f"{rows - after_items:,} and then min_user={reading.min_user} removed {after_items:,}; lower them."
        )
    if reading.given_items:
        return [part[0] for part in parts], None
    firsts = np.full(n_items, NEVER, dtype=np.int64)
    for part in parts:
        np.minimum(firsts, tasks.get(part[2]), out=firsts)
    order = np.argsort(firsts, kind="stable")[: np.count_nonzero(firsts < NEVER)]
    renumbered = np.full(n_items, -1, dtype=np.int32)
    renumbered[order] = np.arange(len(order), dtype=np.int32)
    return [part[0] for part in parts], renumbered


def _without_weight(rows: int) -> InvalidData:
    return InvalidData(f"All {rows:,} weights are 0, so there are no interactions; check the weights' column.")


def _without_items(rows: int, n_items: int) -> InvalidData:
    return InvalidData(f"No rows are left: none of the {rows:,} rows is about one of the {n_items:,} given items.")


def _filter(
    gathered: Gathered, n_items: int, item_kept: NDArray[np.bool_] | None, min_user: int
) -> tuple[Gathered, Tally, NDArray[np.int64]]:
    kept, tally = building.filtered(gathered, n_items, item_kept, min_user)
    return kept, tally, building.first_positions(kept, n_items)


def _order(renumbered: NDArray[np.int32]) -> NDArray[np.int64]:
    """The old number of every new one."""
    return np.argsort(renumbered, kind="stable")[np.count_nonzero(renumbered < 0) :]


def _firsts(gathered: Gathered) -> tuple[NDArray[np.int64], tuple[int, NDArray[np.int64]]]:
    return gathered.firsts, (len(gathered.firsts), ranking.sample(gathered.firsts))


def _numbered(tasks: Tasks, gathered: Sequence[Ref]) -> tuple[int, list[Ref]]:
    """The number of users, and the numbers of those of every shard."""
    firsts = [tasks.submit(_firsts, ref, parts=2) for ref in gathered]
    seen = [tasks.get(about) for _, about in firsts]
    n_users = sum(count for count, _ in seen)
    at = ranking.borders([some for _, some in seen], min(len(gathered), 1 + n_users // _USERS_PER_RANKING))
    pieces = [_several(tasks, ranking.cut, positions, at, parts=len(at) + 1) for positions, _ in firsts]
    ranks = [tasks.submit(ranking.rank, *column, parts=len(gathered) + 1) for column in zip(*pieces, strict=True)]
    counts = [int(tasks.get(rank[0])[0]) for rank in ranks]
    offsets = np.concatenate(([0], np.cumsum(counts)))[:-1].tolist()
    return n_users, [
        tasks.submit(ranking.joined, offsets, *(rank[s + 1] for rank in ranks))[0] for s in range(len(gathered))
    ]


def _several(tasks: Tasks, function: Any, *arguments: Any, parts: int) -> list[Ref]:
    """A task that returns a list, also where that has one element."""
    return tasks.submit(function, *arguments, parts=parts) if parts > 1 else tasks.submit(_only, function, *arguments)


def _only(function: Any, *arguments: Any) -> Any:
    (result,) = function(*arguments)
    return result


def _built(
    tasks: Tasks,
    gathered: Sequence[Ref],
    numbers: Sequence[Ref],
    renumbered: NDArray[np.int32] | None,
    n_items: int,
    reading: Reading,
    cache: ShardCache | None,
) -> list[list[Ref]]:
    items = tasks.keep(renumbered)
    return [
        tasks.submit(_build, ref, own, items, n_items, reading.count, cache, number, parts=2)
        for number, (ref, own) in enumerate(zip(gathered, numbers, strict=True))
    ]


def _build(
    gathered: Gathered,
    numbers: NDArray[np.int64],
    items: NDArray[np.int32] | None,
    n_items: int,
    count: bool,
    cache: ShardCache | None,
    number: int,
) -> tuple[Shard | None, Summary]:
    shard, summary = building.build(gathered, numbers, items, n_items, count)
    if cache is None:
        return shard, summary
    cache.write_shard(number, shard, n_items)
    return None, summary
