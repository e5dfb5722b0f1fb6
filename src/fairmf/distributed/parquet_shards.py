"""Read a Parquet data set as shards that workers load on their own, so that no process ever holds all of it."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairmf.data.columns import ColumnName, Columns
from fairmf.data.csr import Rows
from fairmf.data.fingerprint import id_text
from fairmf.data.half_life import HalfLife
from fairmf.data.ids import Ids
from fairmf.distributed import parquet_pass, parquet_read
from fairmf.distributed.parquet_chunks import ROWS_PER_CHUNK, Chunk, FileSystem, Paths, find_files
from fairmf.distributed.parquet_pass import Found, Reading, ShardCache
from fairmf.distributed.parquet_read import Decay
from fairmf.distributed.shards import Shard
from fairmf.distributed.task_pool import RayTasks, Ref, Tasks, kept_value, lost_errors
from fairmf.errors import FairmfError, InvalidData, InvalidParameter
from fairmf.lazy import cached_property
from fairmf.params import check_count
from fairmf.types import Record

log = logging.getLogger("fairmf")
_ATTEMPTS = 3  # how often the files are read if nodes die meanwhile


@dataclass(frozen=True)
class Kept:
    """Hold what is as large as the catalogue or the list of files. It is in the object store, not in every copy."""

    item_ids: Ids
    popularity: NDArray[np.float64]
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True)
class ParquetShards:
    """Hold a Parquet data set split by users into shards. Make one with `read`; pass it to `fit` of a model on Ray.

    Users and items have the numbers that `Interactions.from_parquet` would give them. A user's shard follows from a
    hash of the id.

    Examples
    --------
    >>> from fairmf import FairALS, ParquetShards
    >>> data = ParquetShards.read("s3://bucket/train/", user="user", item="item")  # doctest: +SKIP
    >>> FairALS(engine="ray").fit(data)  # doctest: +SKIP
    """

    n_users: int
    n_items: int
    nnz: int
    is_binary: bool
    reading: Reading
    _digest: str
    _many: bool
    _kept: Ref
    _shards: tuple[Ref, ...]
    _numbers: tuple[Ref, ...]
    _cache: ShardCache | None
    n_dislikes: int = 0
    """Number of entries with a weight below 0."""
    _decay: Decay | None = None

    @classmethod
    def read(
        cls,
        path: Paths,
        *,
        user: ColumnName = "user",
        item: ColumnName = "item",
        weights: ColumnName | None = None,
        rating: ColumnName | None = None,
        rating_above: float | None = None,
        min_user: int = 0,
        min_item: int = 0,
        half_life: float | HalfLife | None = None,
        time: ColumnName = "time",
        shards: int | None = None,
        filesystem: FileSystem | None = None,
        cache: str | os.PathLike[str] | None = None,
        items: Ids | None = None,
        rows_per_chunk: int = ROWS_PER_CHUNK,
        tasks: Tasks | None = None,
    ) -> ParquetShards:
        """Read a Parquet file, a list of them or a directory, in tasks of the Ray cluster.

        Parameters
        ----------
        path
            A path, a list of paths, a directory or a URL (s3://, gs://, hdfs://, or any that fsspec knows). Every
            machine of the cluster reads it on its own.
        user, item, weights, rating, rating_above, min_user, min_item
            As in `Interactions.from_parquet`; a negative weight is a dislike.
        half_life, time
            As in `Interactions.from_parquet`: let old events count less, by the times in the column `time`. With
            `min_user` or `min_item` it needs `weights`.
        shards
            Number of shards; by default one per CPU of the cluster.
        filesystem
            A file system of pyarrow or fsspec in which `path` is.
        cache
            A folder that all machines see, in which shards are stored: the next `read` of the same files finds them,
            and a worker that replaces another reads its own shard only. Without a cache, shards are in Ray's object
            store, and one that is lost with its node is read again from all files.
        items
            Ids of the only items to read, in the order of their numbers: `item_ids` of another source or of a model.
        rows_per_chunk
            Rows that one task reads, if the files' row groups are not larger.
        tasks
            Where to run the tasks; by default the Ray cluster.

        Returns
        -------
        ParquetShards
            Pass it to `fit` of a model with `engine="ray"`.

        Raises
        ------
        InvalidData
            A file or column is missing, values are invalid, or no interactions are left.
        MissingDependency
            Ray is not installed.

        Examples
        --------
        ``FairALS(engine="ray").fit(ParquetShards.read("s3://bucket/events", user="user_id", item="item_id"))``
        """
        decay, times = (None, None) if half_life is None else (HalfLife.of(half_life), time)
        columns = Columns(user, item, None if weights == "sum" else weights, times, rating, rating_above)
        _check_counts(0, min_user=min_user, min_item=min_item)
        if decay is not None and weights is None and (min_user or min_item):
            raise InvalidParameter(
                "half_life with min_user or min_item needs weights in shards: without weights a pair counts as of its "
                "newest event, and users would be numbered by those.",
                hint="weights='sum' adds up all events of a pair",
            )
        _check_counts(1, shards=1 if shards is None else shards, rows_per_chunk=rows_per_chunk)
        files = find_files(path, filesystem)
        tasks = RayTasks() if tasks is None else tasks
        count, number = weights == "sum", int(shards or tasks.workers)
        least = int(min_user), int(min_item)
        cut = Reading(columns, count, *least, number, int(rows_per_chunk), items is not None, decay)
        folder = None if cache is None else ShardCache.of(cache, files, (cut, _ids_digest(items)))
        if folder is not None and (whole := folder.read_whole(cut.shards)) is not None:
            content, names, popularity = whole
            if (stored := content.pop("decay")) is not None:
                content["_decay"] = Decay(HalfLife(stored["days"], stored["as_of"]), stored["unit"])
            log.info("the shards of these files are in %s", folder.folder)
            return cls(**content, reading=cut, _many=True, _kept=tasks.keep(Kept(names, popularity, ())), _shards=(),
                       _numbers=(), _cache=folder)  # fmt: skip
        found = _attempts(tasks, lambda: parquet_pass.run(tasks, files, cut, folder, items))
        return cls._of(found, cut, tasks, folder)

    @classmethod
    def _of(cls, found: Found, cut: Reading, tasks: Tasks, cache: ShardCache | None) -> ParquetShards:
        content: Record = {
            "n_users": found.n_users, "n_items": len(found.item_ids), "nnz": found.nnz, "is_binary": found.plain,
            "_digest": _fingerprint(found), "n_dislikes": found.dislikes,
        }  # fmt: skip
        decay = found.decay
        if cache is not None:
            how = None if decay is None else {"unit": decay.unit, **dataclasses.asdict(decay.half_life)}
            cache.write_whole(content | {"decay": how}, found.item_ids, found.popularity)
        kept = tasks.keep(Kept(found.item_ids, found.popularity, found.chunks))
        return cls(**content, reading=cut, _many=found.many, _kept=kept, _shards=found.shards, _numbers=found.numbers,
                   _cache=cache, _decay=decay)  # fmt: skip

    # -- the whole data set -----------------------------------------------------------------------------------------

    @property
    def shards(self) -> int:
        """Return the number of shards."""
        return self.reading.shards

    @property
    def shape(self) -> tuple[int, int]:
        """Return (n_users, n_items)."""
        return self.n_users, self.n_items

    @cached_property
    def _catalogue(self) -> Kept:
        kept: Kept = kept_value(self._kept)
        return kept

    @property
    def item_ids(self) -> Ids:
        """Return the ids of the items, by number."""
        return self._catalogue.item_ids

    @property
    def popularity(self) -> NDArray[np.float64]:
        """Return the sum of every item's confidences; a dislike has one too."""
        return self._catalogue.popularity

    @property
    def weighting(self) -> HalfLife | None:
        """Return the half-life by which the confidences have decayed; None if they are as in the files."""
        return None if self._decay is None else self._decay.half_life

    def fingerprint(self) -> str:
        """Return a hash of the data, equal for equal data read the same way, for any number of files and shards."""
        return self._digest

    def __repr__(self) -> str:
        kind = "binary" if self.is_binary else "weighted"
        dislikes = f", {self.n_dislikes:,} of them dislikes" if self.n_dislikes else ""
        size = f"{self.n_users:,} users x {self.n_items:,} items, {self.nnz:,} {kind}{dislikes}"
        return f"ParquetShards({size}, {self.shards} shards)"

    def __getstate__(self) -> Record:
        # Sent to every worker, which fetches the catalogue itself if it needs it.
        return {name: value for name, value in vars(self).items() if name != "_catalogue"}

    # -- one shard ---------------------------------------------------------------------------------------------------

    def load(self, number: int) -> Shard:
        """Return a shard, in the process that calls: from the cache, the object store, or else from the files."""
        if self._cache is not None:
            return self._plain(self._cache.read_shard(number))
        try:
            shard: Shard = kept_value(self._shards[number])
        except lost_errors() as error:
            log.warning("shard %d is lost (%s): reading it again", number, type(error).__name__)
            return self.read_again(number)
        # Copies, because views would keep the shard in the object store for as long as the worker lives.
        weights = None if shard.rows.weights is None else np.array(shard.rows.weights)
        rows = Rows(np.array(shard.rows.indptr), np.array(shard.rows.indices), weights)
        return self._plain(Shard(rows, np.array(shard.users), shard.user_ids))

    def read_again(self, number: int) -> Shard:
        """Read all files again, and return the rows of one shard."""
        reading, columns = self.reading, self.reading.columns
        blocks = [
            parquet_read.read_block(chunk, columns, self.item_ids, reading.shards, self._many, number)
            for chunk in self._catalogue.chunks
        ]
        gathered = parquet_read.gather(columns.user, self._many, reading.filters, *blocks)
        del blocks
        if reading.filters:
            gathered, _ = parquet_read.filtered(gathered, self.n_items, None, reading.min_user)
        # The users' numbers depend on all shards, so they were kept; everything else follows from the files.
        numbers = np.array(kept_value(self._numbers[number]))
        if len(numbers) != len(gathered.user_ids):
            raise InvalidData(
                "The Parquet files have changed since they were first read.", hint="call ParquetShards.read again"
            )
        shard, _ = parquet_read.build(gathered, numbers, None, self.n_items, reading.count, self._decay)
        return self._plain(shard)

    def _plain(self, shard: Shard) -> Shard:
        """Drop the weights of a shard if all weights of the data set are 1, as in `Interactions`."""
        return Shard(shard.rows._replace(weights=None), shard.users, shard.user_ids) if self.is_binary else shard


def _check_counts(least: int, **counts: object) -> None:
    for name, value in counts.items():
        check_count("ParquetShards", name, value, least)


def _attempts(tasks: Tasks, work: Callable[[], Found]) -> Found:
    """Run the pass, and start again if a node dies on the way."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return work()
        except lost_errors() as error:
            if attempt == _ATTEMPTS:
                raise
            log.warning("a task that read data was lost (%s): reading starts again", type(error).__name__)
        except FairmfError:
            tasks.settle()
            raise
    raise AssertionError("unreachable")


def _fingerprint(found: Found) -> str:
    digest = hashlib.sha256(f"fairmf shards 1: {found.n_users} x {len(found.item_ids)}, {found.nnz}".encode())
    digest.update(found.digest.astype("<u8").tobytes())
    digest.update(_ids_digest(found.item_ids).encode())
    return digest.hexdigest()


def _ids_digest(ids: Ids | None) -> str:
    digest = hashlib.sha256()
    for value in [] if ids is None else ids.values.tolist():
        text = id_text(value).encode(errors="surrogatepass")
        digest.update(f"{len(text)}:".encode() + text)
    return digest.hexdigest()
