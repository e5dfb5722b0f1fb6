"""Read a Parquet data set with tasks: number its items and users, and bring every row to the shard of its user.

This process sees only footers, item ids and sums over items; interactions and users go from task to task. Users and
items get the numbers that `Interactions.from_parquet` would give them, and a shard holds exactly the rows of its users.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairmf.data import stored_arrays
from fairmf.data.collect import check_not_empty
from fairmf.data.columns import Columns
from fairmf.data.half_life import HalfLife
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.distributed import parquet_read
from fairmf.distributed.parquet_chunks import ROWS_PER_CHUNK, Chunk, DataFile, check_kinds, chunks_of, outlines_of
from fairmf.distributed.parquet_read import NEVER, Decay, Gathered, Report, Summary, Tally
from fairmf.distributed.shards import Shard
from fairmf.distributed.task_pool import Function, Ref, Tasks, Value
from fairmf.errors import InvalidData
from fairmf.io import container
from fairmf.io.strict_json import Malformed
from fairmf.types import Record

# Number users globally by first appearance, without any process holding all ids.
#
# A user's number is the rank of the position of its first row. All shards split their positions at the same borders,
# and one task ranks the positions between two borders.


Positions: TypeAlias = NDArray[np.int64]
_SAMPLES = 256  # positions of a shard from which the borders are estimated


def sample(firsts: Positions) -> Positions:
    """Return an evenly spaced sample of a shard's ascending positions."""
    return firsts[:: max(1, len(firsts) // _SAMPLES)]


def borders(samples: Sequence[Positions], parts: int) -> Positions:
    """Return borders that split all positions into parts of about equal size."""
    together = np.sort(np.concatenate(samples))
    if parts <= 1 or len(together) == 0:
        return np.zeros(0, dtype=np.int64)
    return together[(np.arange(1, parts) * len(together)) // parts]


def cut(firsts: Positions, at: Positions) -> list[Positions]:
    """Split a shard's positions at the borders."""
    return np.split(firsts, np.searchsorted(firsts, at))


def rank_users(*parts: Positions) -> list[Positions]:
    """Return the number of positions of all parts together, then the ranks of each part's positions among them."""
    everything = np.concatenate(parts)
    ranks = np.empty(len(everything), dtype=np.int64)
    ranks[np.argsort(everything, kind="stable")] = np.arange(len(everything))
    split = np.split(ranks, np.cumsum([len(part) for part in parts])[:-1])
    return [np.array([len(everything)]), *split]


def joined(offsets: Sequence[int], *ranks: Positions) -> Positions:
    """Return the numbers of a shard's users, from their ranks between the borders."""
    return np.concatenate([part + offset for part, offset in zip(ranks, offsets, strict=True)])


# A cache folder of shards, which are read instead of the data set. In fairmf's own file format, not pickle.
#
# File names contain a hash of what was read and how, so that a folder can hold several data sets, and the shards of a
# data set that has changed since are never used. All machines of the cluster must see the folder.


WHOLE = container.Format("fairmf sharded data", 1)
SHARD = container.Format("fairmf shard", 1)


@dataclass(frozen=True)
class ShardCache:
    """Read and write the cached shards of one data set, split in one way."""

    folder: str
    key: str

    @classmethod
    def of(cls, folder: str | os.PathLike[str], files: Sequence[DataFile], how: object) -> ShardCache:
        """Return the cache of these files, read in the way that `repr(how)` names; create the folder if needed."""
        path = Path(folder).absolute()
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidData(f"Cannot create the cache folder {path}: {error}.") from error
        # Size and time of change stand for the content: hashing it would take as long as reading it.
        digest = hashlib.sha256(repr(how).encode())
        for file in files:
            digest.update(f"{file.path} {file.size} {file.changed}\n".encode(errors="surrogatepass"))
        return cls(str(path), digest.hexdigest()[:16])

    def _path(self, part: str) -> Path:
        return Path(self.folder) / f"{self.key}-{part}.fairmf"

    def write_shard(self, number: int, shard: Shard, n_items: int) -> None:
        """Write a shard."""
        kind, arrays = stored_arrays.ids_to_arrays("user_ids", shard.user_ids)
        arrays |= stored_arrays.rows_to_arrays("interactions", Interactions(shard.rows, n_items))
        arrays["users"] = shard.users
        content = {"users": len(shard.users), "items": n_items, "user_ids": kind}
        container.write(self._path(f"{number:05}"), SHARD, content, arrays)

    def read_shard(self, number: int) -> Shard:
        """Read a shard; raise BrokenFile if the file is damaged."""
        path = self._path(f"{number:05}")
        if not path.exists():
            raise InvalidData(
                f"There is no {path} on this machine: the cache must be in a folder that all machines see."
            )
        content, arrays = container.read(path, SHARD)
        with container.reading(path, SHARD.name):
            if not isinstance(content, dict) or set(content) != {"users", "items", "user_ids"}:
                raise Malformed("it has other parts than this format")
            n, m = content["users"], content["items"]
            users = arrays.pop("users", np.zeros(0))
            if users.dtype != np.int64 or users.shape != (n,) or (users[1:] <= users[:-1]).any():
                raise Malformed("its users have no ascending numbers")
            ids = stored_arrays.ids_from_arrays("user_ids", content["user_ids"], n, arrays)
            data = stored_arrays.rows_from_arrays("interactions", n, m, None, None, arrays)
            return Shard(data.by_user, users, ids)

    def write_whole(self, content: Record, item_ids: Ids, popularity: NDArray[np.float64]) -> None:
        """Write the description of the whole data set. Its file comes last: it says that all shards are written."""
        kind, arrays = stored_arrays.ids_to_arrays("item_ids", item_ids)
        container.write(self._path("data"), WHOLE, content | {"item_ids": kind}, arrays | {"popularity": popularity})

    def read_whole(self, shards: int) -> tuple[Record, Ids, NDArray[np.float64]] | None:
        """Read the description of the whole data set; return None if it or a shard is missing."""
        path = self._path("data")
        if not path.exists() or not all(self._path(f"{number:05}").exists() for number in range(shards)):
            return None
        content, arrays = container.read(path, WHOLE)
        with container.reading(path, WHOLE.name):
            ids = stored_arrays.ids_from_arrays("item_ids", content.pop("item_ids", None), content["n_items"], arrays)
            popularity = arrays.pop("popularity", None)
            if ids is None or popularity is None or popularity.shape != (len(ids),):
                raise Malformed("its items are incomplete")
            return content, ids, popularity


_FOOTERS_PER_TASK = 64  # reading a footer takes milliseconds, so one task reads several
_MERGED_AT_ONCE = 16  # dictionaries of items that one task merges
_MANY_ROWS = 1 << 19  # rows from which compiled code encodes ids faster, its loading included
_USERS_PER_RANKING = 1 << 20  # users that one task ranks: 8 MB of positions


@dataclass(frozen=True)
class Reading:
    """Say what to read, and how."""

    columns: Columns
    count: bool
    """Whether the weight of a repeated pair is its number of rows."""
    min_user: int
    min_item: int
    shards: int
    rows_per_chunk: int = ROWS_PER_CHUNK
    given_items: bool = False
    """Whether the items are given, and rows of other items left out."""
    half_life: HalfLife | None = None

    @property
    def filters(self) -> bool:
        """Return whether rows are left out, so that users without rows have to be dropped."""
        return bool(self.min_user or self.min_item or self.given_items)


@dataclass(frozen=True)
class Found:
    """Hold the result of the pass: sums of the whole data set, and references to its shards."""

    n_users: int
    nnz: int
    plain: bool
    dislikes: int
    decay: Decay | None
    digest: NDArray[np.uint64]
    item_ids: Ids
    popularity: NDArray[np.float64]
    chunks: tuple[Chunk, ...]
    many: bool
    shards: tuple[Ref, ...]
    numbers: tuple[Ref, ...]
    """The numbers of every shard's users, kept by this process: reading a shard again does not give them."""


def run(
    tasks: Tasks,
    files: Sequence[DataFile],
    reading: Reading,
    cache: ShardCache | None = None,
    items: Ids | None = None,
) -> Found:
    """Read everything once (the item column twice, unless items are given) and bring every row to its shard."""
    columns, shards = reading.columns, range(reading.shards)
    # 1. Footers: which chunks there are.
    chunks = _chunks(tasks, files, reading)
    many = sum(chunk.rows for chunk in chunks) >= _MANY_ROWS
    source = files[0].path if len(files) == 1 else f"these {len(files)} Parquet files"
    if not chunks:
        check_not_empty(columns, source, 0, 0, -np.inf)
    # 2. The items' ids, from all chunks: every row gets its item's number from here on.
    item_ids = _items(tasks, chunks, columns, many) if items is None else tasks.keep(items)
    # 3. All columns: split each chunk by shard, then join each shard's blocks.
    reports, blocks = _split(tasks, chunks, reading, item_ids, many, source)
    rows = sum(report.rows_kept for report in reports)
    decay = None if reading.half_life is None else Decay.of(reading.half_life, reports)
    gathered = [tasks.submit(parquet_read.gather, columns.user, many, reading.filters, *blocks[s])[0] for s in shards]
    del blocks  # so that the object store can free each block when it has been gathered
    # 4. Minimum counts, which need sums over all shards; the items left are numbered again.
    names: Ids = tasks.get(item_ids)
    renumbered = None
    if reading.filters:
        gathered, renumbered = _filtered(tasks, gathered, len(names), reading, rows)
        names = names if renumbered is None else names.take(_order(renumbered))
    # 5. The users' numbers, then the shards themselves and their sums.
    n_users, numbers = _numbered(tasks, gathered)
    made = _built(tasks, gathered, numbers, renumbered, len(names), (reading.count, decay), cache)
    kept = tuple(tasks.keep(tasks.get(number)) for number in numbers)
    whole = _added(tasks, [summary for _, summary in made], len(names))
    if whole.nnz == 0:
        raise InvalidData("No interactions are left: the likes and dislikes of every pair cancel.")
    return Found(
        n_users, whole.nnz, whole.plain, whole.dislikes, decay, whole.digest, names, whole.popularity, tuple(chunks),
        many, tuple(shard for shard, _ in made), kept,
    )  # fmt: skip


def _chunks(tasks: Tasks, files: Sequence[DataFile], reading: Reading) -> list[Chunk]:
    parts = [files[k : k + _FOOTERS_PER_TASK] for k in range(0, len(files), _FOOTERS_PER_TASK)]
    refs = [tasks.submit(outlines_of, part, reading.columns)[0] for part in parts]
    outlines = [outline for ref in refs for outline in tasks.get(ref)]
    check_kinds(files, outlines, reading.columns)
    return chunks_of(files, outlines, reading.rows_per_chunk)


def _items(tasks: Tasks, chunks: Sequence[Chunk], columns: Columns, many: bool) -> Ref:
    """Return the items' ids in order of first appearance, by merging neighbouring chunks, level by level."""
    refs = [tasks.submit(parquet_read.item_ids_of, chunk, columns, many)[0] for chunk in chunks]
    while len(refs) > 1:
        groups = [refs[k : k + _MERGED_AT_ONCE] for k in range(0, len(refs), _MERGED_AT_ONCE)]
        refs = [tasks.submit(parquet_read.merge_ids, columns.item, many, *group)[0] for group in groups]
    return refs[0]


def _split(
    tasks: Tasks, chunks: Sequence[Chunk], reading: Reading, item_ids: Ref, many: bool, source: str
) -> tuple[list[Report], list[list[Ref]]]:
    """Split every chunk by shard; return what was found in each, and each shard's blocks in the order of chunks."""
    shards = reading.shards
    parts = [
        tasks.submit(parquet_read.split_chunk, chunk, reading.columns, item_ids, shards, many, parts=shards + 1)
        for chunk in chunks
    ]
    reports = [tasks.get(part[0]) for part in parts]
    kept, highest = sum(report.rows_kept for report in reports), max(report.highest_rating for report in reports)
    check_not_empty(reading.columns, source, sum(chunk.rows for chunk in chunks), kept, highest)
    if not any(report.likes for report in reports):
        raise _without_likes(kept, any(report.dislikes for report in reports))
    return reports, [[part[s + 1] for part in parts] for s in range(shards)]


def _filtered(
    tasks: Tasks, gathered: Sequence[Ref], n_items: int, reading: Reading, rows_read: int
) -> tuple[list[Ref], NDArray[np.int32] | None]:
    """Apply `min_item`, then `min_user`; return the rows left, and the items' new numbers.

    The number of an item that is gone is -1; None instead of the numbers means that they have not changed.
    """
    item_kept = None
    if reading.min_item > 1:
        counts = [tasks.submit(parquet_read.pairs_of_items, ref, n_items)[0] for ref in gathered]
        item_kept = sum(tasks.get(ref) for ref in counts) >= reading.min_item
    kept = tasks.keep(item_kept)
    parts = [tasks.submit(_filter, ref, n_items, kept, reading.min_user, parts=3) for ref in gathered]
    rows, after_items, after_users = np.sum([tasks.get(part[1]) for part in parts], axis=0).tolist()
    if rows == 0:
        raise InvalidData(
            f"No rows are left: none of the {rows_read:,} rows is about one of the {n_items:,} given items."
        )
    if after_users == 0:
        raise InvalidData(
            f"No interactions are left: of {rows:,} rows min_item={reading.min_item} removed "
            f"{rows - after_items:,} and then min_user={reading.min_user} removed {after_items:,}.",
            hint="lower them",
        )
    if reading.given_items:
        return [part[0] for part in parts], None
    firsts = np.full(n_items, NEVER, dtype=np.int64)
    for part in parts:
        np.minimum(firsts, tasks.get(part[2]), out=firsts)
    # Items are numbered by their first row that is left; those without rows come last and are cut off.
    order = np.argsort(firsts, kind="stable")[: np.count_nonzero(firsts < NEVER)]
    renumbered = np.full(n_items, -1, dtype=np.int32)
    renumbered[order] = np.arange(len(order), dtype=np.int32)
    return [part[0] for part in parts], renumbered


def _without_likes(rows: int, dislikes: bool) -> InvalidData:
    what = "are 0 or dislikes" if dislikes else "are 0"
    return InvalidData(f"All {rows:,} weights {what}, so there are no interactions.", hint="check the weights' column")


def _filter(
    gathered: Gathered, n_items: int, item_kept: NDArray[np.bool_] | None, min_user: int
) -> tuple[Gathered, Tally, NDArray[np.int64]]:
    kept, tally = parquet_read.filtered(gathered, n_items, item_kept, min_user)
    return kept, tally, parquet_read.first_positions(kept, n_items)


def _order(renumbered: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the old number of every new one."""
    # Items that are gone have -1, so they sort first.
    return np.argsort(renumbered, kind="stable")[np.count_nonzero(renumbered < 0) :]


def _firsts(gathered: Gathered) -> tuple[NDArray[np.int64], tuple[int, NDArray[np.int64]]]:
    return gathered.firsts, (len(gathered.firsts), sample(gathered.firsts))


def _numbered(tasks: Tasks, gathered: Sequence[Ref]) -> tuple[int, list[Ref]]:
    """Return the number of users, and the numbers of every shard's users."""
    firsts = [tasks.submit(_firsts, ref, parts=2) for ref in gathered]
    seen = [tasks.get(about) for _, about in firsts]
    n_users = sum(count for count, _ in seen)
    at = borders([some for _, some in seen], min(len(gathered), 1 + n_users // _USERS_PER_RANKING))
    pieces = [_several(tasks, cut, positions, at, parts=len(at) + 1) for positions, _ in firsts]
    # A column is what all shards have between the same two borders.
    ranks = [tasks.submit(rank_users, *column, parts=len(gathered) + 1) for column in zip(*pieces, strict=True)]
    counts = [int(tasks.get(rank[0])[0]) for rank in ranks]
    offsets = np.concatenate(([0], np.cumsum(counts)))[:-1].tolist()
    return n_users, [tasks.submit(joined, offsets, *(rank[s + 1] for rank in ranks))[0] for s in range(len(gathered))]


def _several(tasks: Tasks, function: Function, *arguments: object, parts: int) -> list[Ref]:
    """Submit a function that returns a list of `parts` values, also if there is only one."""
    return tasks.submit(function, *arguments, parts=parts) if parts > 1 else tasks.submit(_only, function, *arguments)


def _only(function: Function, *arguments: object) -> Value:
    (result,) = function(*arguments)
    return result


def _built(
    tasks: Tasks,
    gathered: Sequence[Ref],
    numbers: Sequence[Ref],
    renumbered: NDArray[np.int32] | None,
    n_items: int,
    merging: tuple[bool, Decay | None],
    cache: ShardCache | None,
) -> list[list[Ref]]:
    items = tasks.keep(renumbered)
    return [
        tasks.submit(_build, ref, own, items, n_items, merging, cache, number, parts=2)
        for number, (ref, own) in enumerate(zip(gathered, numbers, strict=True))
    ]


def _added(tasks: Tasks, summaries: Sequence[Ref], n_items: int) -> Summary:
    """Add the summaries of all shards. They are fetched one by one, because each is as large as the catalogue."""
    nnz, plain, dislikes = 0, True, 0
    popularity, digest = np.zeros(n_items), np.zeros(4, dtype=np.uint64)
    for ref in summaries:
        summary: Summary = tasks.get(ref)
        nnz, plain, dislikes = nnz + summary.nnz, plain and summary.plain, dislikes + summary.dislikes
        popularity += summary.popularity
        digest += summary.digest
    return Summary(nnz, popularity, plain, dislikes, digest)


def _build(
    gathered: Gathered,
    numbers: NDArray[np.int64],
    items: NDArray[np.int32] | None,
    n_items: int,
    merging: tuple[bool, Decay | None],
    cache: ShardCache | None,
    number: int,
) -> tuple[Shard | None, Summary]:
    shard, summary = parquet_read.build(gathered, numbers, items, n_items, *merging)
    if cache is None:
        return shard, summary
    cache.write_shard(number, shard, n_items)
    return None, summary
