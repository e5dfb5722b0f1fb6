"""A folder of shards, read again instead of the data set they were made from. In fairmf's own file format, no pickle.

Names carry a key of what was read and how, so that one folder can serve several data sets, and a data set that has
changed is never taken for what it was. The folder must be one that all machines of the cluster see.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.engines.parquet.files import DataFile
from fairmf.engines.shards import Shard
from fairmf.errors import InvalidData
from fairmf.files import container, id_arrays, sparse_arrays
from fairmf.files.strict_json import Malformed
from fairmf.interactions import Ids, Interactions

WHOLE = container.Format("fairmf sharded data", 1)
SHARD = container.Format("fairmf shard", 1)


@dataclass(frozen=True)
class ShardCache:
    """The files of one data set, cut one way."""

    folder: str
    key: str

    @classmethod
    def of(cls, folder: str | os.PathLike[str], files: Sequence[DataFile], how: Any) -> ShardCache:
        """The cache of these files, read that way. The folder is made where it is not there."""
        path = Path(folder).absolute()
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidData(f"The cache folder {path} cannot be made: {error}.") from error
        digest = hashlib.sha256(repr(how).encode())
        for file in files:
            digest.update(f"{file.path} {file.size} {file.changed}\n".encode(errors="surrogatepass"))
        return cls(str(path), digest.hexdigest()[:16])

    def _path(self, part: str) -> Path:
        return Path(self.folder) / f"{self.key}-{part}.fairmf"

    def write_shard(self, number: int, shard: Shard, n_items: int) -> None:
        """Keep a shard."""
        kind, arrays = id_arrays.to_arrays("user_ids", shard.user_ids)
        arrays |= sparse_arrays.to_arrays("interactions", Interactions(shard.rows, n_items))
        arrays["users"] = shard.users
        content = {"users": len(shard.users), "items": n_items, "user_ids": kind}
        container.write(self._path(f"{number:05}"), SHARD, content, arrays)

    def read_shard(self, number: int) -> Shard:
        """A shard that was kept. BrokenFile where it is damaged."""
        path = self._path(f"{number:05}")
        if not path.exists():
            raise InvalidData(f"There is no {path} on this machine: the cache must be a folder that all of them see.")
        content, arrays = container.read(path, SHARD)
        with container.reading(path, SHARD.name):
            if not isinstance(content, dict) or set(content) != {"users", "items", "user_ids"}:
                raise Malformed("it has other parts than this format")
            n, m = content["users"], content["items"]
            users = arrays.pop("users", np.zeros(0))
            if users.dtype != np.int64 or users.shape != (n,) or (users[1:] <= users[:-1]).any():
                raise Malformed("its users have no ascending numbers")
            ids = id_arrays.from_arrays("user_ids", content["user_ids"], n, arrays)
            data = sparse_arrays.from_arrays("interactions", n, m, None, None, arrays)
            return Shard(data.by_user, users, ids)

    def write_whole(self, content: dict[str, Any], item_ids: Ids, popularity: NDArray[np.float64]) -> None:
        """Keep what is known of the whole, once all shards are there."""
        kind, arrays = id_arrays.to_arrays("item_ids", item_ids)
        container.write(self._path("data"), WHOLE, content | {"item_ids": kind}, arrays | {"popularity": popularity})

    def read_whole(self, shards: int) -> tuple[dict[str, Any], Ids, NDArray[np.float64]] | None:
        """What is known of the whole; None where it is not there, or not complete."""
        path = self._path("data")
        if not path.exists() or not all(self._path(f"{number:05}").exists() for number in range(shards)):
            return None
        content, arrays = container.read(path, WHOLE)
        with container.reading(path, WHOLE.name):
            ids = id_arrays.from_arrays("item_ids", content.pop("item_ids", None), content["n_items"], arrays)
            popularity = arrays.pop("popularity", None)
            if ids is None or popularity is None or popularity.shape != (len(ids),):
                raise Malformed("its items are incomplete")
            return content, ids, popularity
