"""ParquetShards: a Parquet data set that actors read by themselves, so that nobody ever holds all of it."""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.data.columns import ColumnName, Columns
from fairmf.data.csr import Rows
from fairmf.data.fingerprint import id_text
from fairmf.data.ids import Ids
from fairmf.distributed import parquet_pass, parquet_read
from fairmf.distributed.parquet_files import ROWS_PER_CHUNK, Chunk, Paths, find_files
from fairmf.distributed.parquet_pass import Found, Reading, ShardCache
from fairmf.distributed.shards import Shard
from fairmf.distributed.task_pool import RayTasks, Ref, Tasks, kept_value, lost_errors
from fairmf.errors import FairmfError, InvalidData
from fairmf.lazy import cached_property
from fairmf.params import check_count

log = logging.getLogger("fairmf")
_ATTEMPTS = 3


@dataclass(frozen=True)
class Kept:
    """What is as large as the catalogue or the list of files: in the object store, not in every copy of the source."""

    item_ids: Ids
    popularity: NDArray[np.float64]
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True)
class ParquetShards:
    """A Parquet data set, cut by users into shards. Make one with `read`; give it to `fit` of a model on Ray.

    Users and items have the numbers that `Interactions.from_parquet` would give them. A user's shard follows from a
    hash of the id.
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
        shards: int | None = None,
        filesystem: Any = None,
        cache: str | os.PathLike[str] | None = None,
        items: Ids | None = None,
        rows_per_chunk: int = ROWS_PER_CHUNK,
        tasks: Tasks | None = None,
    ) -> ParquetShards:
        """Read a Parquet file, a list of them or a directory, in tasks of the Ray cluster.

        `path` may be a URL (s3://, gs://, hdfs://, or any that fsspec knows), or belong to a `filesystem` of pyarrow's
        or fsspec's: every machine reads by itself. The other arguments are those of `Interactions.from_parquet`.
        `shards`: how many, by default one per CPU of the cluster. With `cache`, a folder that all machines see, shards
        are kept there: the next `read` of the same files finds them, and an actor that is replaced reads its own alone.
        Without it shards are in Ray's object store, and one that is lost with its node is read again from all files.
        `items` (such as `item_ids` of another source, or of a model) are the only ones that count, numbered like that.
        `rows_per_chunk` is what one task reads, where the files' row groups are not larger.
        """
        columns = Columns(user, item, None if weights == "sum" else weights, None, rating, rating_above)
        _check_counts(0, min_user=min_user, min_item=min_item)
        _check_counts(1, shards=1 if shards is None else shards, rows_per_chunk=rows_per_chunk)
        files = find_files(path, filesystem)
        tasks = RayTasks() if tasks is None else tasks
        count, number = weights == "sum", int(shards or tasks.workers)
        cut = Reading(columns, count, int(min_user), int(min_item), number, int(rows_per_chunk), items is not None)
        folder = None if cache is None else ShardCache.of(cache, files, (cut, _ids_digest(items)))
        if folder is not None and (whole := folder.read_whole(cut.shards)) is not None:
            content, names, popularity = whole
            log.info("the shards of these files are in %s", folder.folder)
            return cls(**content, reading=cut, _many=True, _kept=tasks.keep(Kept(names, popularity, ())), _shards=(),
                       _numbers=(), _cache=folder)  # fmt: skip
        found = _attempts(tasks, lambda: parquet_pass.run(tasks, files, cut, folder, items))
        return cls._of(found, cut, tasks, folder)

    @classmethod
    def _of(cls, found: Found, cut: Reading, tasks: Tasks, cache: ShardCache | None) -> ParquetShards:
        content: dict[str, Any] = {
            "n_users": found.n_users, "n_items": len(found.item_ids), "nnz": found.nnz, "is_binary": found.plain,
            "_digest": _fingerprint(found),
        }  # fmt: skip
        if cache is not None:
            cache.write_whole(content, found.item_ids, found.popularity)
        kept = tasks.keep(Kept(found.item_ids, found.popularity, found.chunks))
        return cls(**content, reading=cut, _many=found.many, _kept=kept, _shards=found.shards, _numbers=found.numbers,
                   _cache=cache)  # fmt: skip

    # -- what is known of the whole ---------------------------------------------------------------------------------

    @property
    def shards(self) -> int:
        """How many there are."""
        return self.reading.shards

    @property
    def shape(self) -> tuple[int, int]:
        """(n_users, n_items)."""
        return self.n_users, self.n_items

    @cached_property
    def _catalogue(self) -> Kept:
        kept: Kept = kept_value(self._kept)
        return kept

    @property
    def item_ids(self) -> Ids:
        """What the items are called, by number."""
        return self._catalogue.item_ids

    @property
    def popularity(self) -> NDArray[np.float64]:
        """The sum of every item's confidences."""
        return self._catalogue.popularity

    def fingerprint(self) -> str:
        """Equal for equal data read the same way, whatever the number of files and of shards."""
        return self._digest

    def __repr__(self) -> str:
        kind = "binary" if self.is_binary else "weighted"
        size = f"{self.n_users:,} users x {self.n_items:,} items, {self.nnz:,} {kind}"
        return f"ParquetShards({size}, {self.shards} shards)"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_catalogue"}

    # -- one shard ---------------------------------------------------------------------------------------------------

    def load(self, number: int) -> Shard:
        """One shard, in the process that asks: from the cache, the object store, or else from the files themselves."""
        if self._cache is not None:
            return self._plain(self._cache.read_shard(number))
        try:
            shard: Shard = kept_value(self._shards[number])
        except lost_errors() as error:
            log.warning("shard %d is lost (%s): it is read again", number, type(error).__name__)
            return self.read_again(number)
        # Copies: what is only viewed could not leave the store's memory while the actor lives.
        weights = None if shard.rows.weights is None else np.array(shard.rows.weights)
        rows = Rows(np.array(shard.rows.indptr), np.array(shard.rows.indices), weights)
        return self._plain(Shard(rows, np.array(shard.users), shard.user_ids))

    def read_again(self, number: int) -> Shard:
        """One shard from the files themselves: all of them, keeping only what belongs to it."""
        reading, columns = self.reading, self.reading.columns
        blocks = [
            parquet_read.pick(chunk, columns, self.item_ids, reading.shards, self._many, number)
            for chunk in self._catalogue.chunks
        ]
        gathered = parquet_read.gather(columns.user, self._many, reading.filters, *blocks)
        del blocks
        if reading.filters:
            gathered, _ = parquet_read.filtered(gathered, self.n_items, None, reading.min_user)
        numbers = np.array(kept_value(self._numbers[number]))
        if len(numbers) != len(gathered.user_ids):
            raise InvalidData(
                "The Parquet files have changed since they were first read.", hint="build the shards anew"
            )
        shard, _ = parquet_read.build(gathered, numbers, None, self.n_items, reading.count)
        return self._plain(shard)

    def _plain(self, shard: Shard) -> Shard:
        """Without weights where all weights of the whole are 1, as in `Interactions`."""
        return Shard(parquet_read.plain_rows(shard.rows), shard.users, shard.user_ids) if self.is_binary else shard


def _check_counts(least: int, **counts: Any) -> None:
    for name, value in counts.items():
        check_count("ParquetShards", name, value, least)


def _attempts(tasks: Tasks, work: Any) -> Found:
    """The pass, begun again where a node has died on the way."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            found: Found = work()
            return found
        except lost_errors() as error:
            if attempt == _ATTEMPTS:
                raise
            log.warning("a part of the reading was lost (%s): it begins again", type(error).__name__)
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
