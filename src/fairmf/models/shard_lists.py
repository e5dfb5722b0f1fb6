"""Lists for all users of a sharded data set: every task ranks the users of one shard and writes its own Parquet file.

Lists never leave the task that made them. What comes back is how often each item was shown, added up over all shards.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairmf.engines.parquet.files import output_folder
from fairmf.engines.shards import ShardSource
from fairmf.engines.tasks import RayTasks, Tasks
from fairmf.errors import InvalidParameter
from fairmf.files.atomic import replacing
from fairmf.inequality import gini
from fairmf.models.batches import DEFAULTS, record_batches
from fairmf.models.folding import check_fairness
from fairmf.models.shard_models import check_items, over_shard, without_users

if TYPE_CHECKING:
    from fairmf.models.factor_model import FactorModel

# What has one value for all users. Histories are the source's own, and lists per user would have to be held here.
OPTIONS = ("filter_already_liked_items", "filter_items", "items", "fairness", "no_history")


@dataclass(frozen=True)
class ShardLists:
    """What was written, and how often each item is in it."""

    folder: str
    files: tuple[str, ...]
    rows: int
    n_users: int
    exposure: NDArray[np.int64]
    """The number of lists with each item."""

    @property
    def gini(self) -> float:
        """Gini index of the exposure: 0 all items alike, 1 one takes all."""
        return float(gini(self.exposure))

    @property
    def coverage(self) -> float:
        """Share of items that are in any list."""
        return float(np.mean(self.exposure > 0))


def recommend_shards(
    model: FactorModel,
    source: ShardSource,
    folder: str | os.PathLike[str],
    N: int = 10,
    *,
    filesystem: Any = None,
    tasks: Tasks | None = None,
    **options: Any,
) -> ShardLists:
    """Write the N best items of every user of `source` to `folder`/part-00000.parquet and so on, one file per shard.

    The files have the columns of `recommend_to_parquet`, and each appears when it is complete; a shard without users
    has none. `folder` must be one that every machine of the cluster sees: a path, a URL (s3://...), or a path of a
    `filesystem`. Users are folded in from their histories; `options` are those of `recommend` with one value for all
    users: filter_already_liked_items, filter_items (a list of items), items, fairness, no_history.
    """
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        known = ", ".join(OPTIONS)
        raise InvalidParameter(f"recommend_shards has no option {', '.join(map(repr, unknown))}; there are {known}.")
    check_items(model, source, "the source")
    _check_request(model, N, options)
    tasks = RayTasks(gpus=float(model.fitted.settings["backend"] == "cuda")) if tasks is None else tasks
    where = output_folder(folder, filesystem)
    cases = [(number,) for number in range(source.shards)]
    parts = tasks.each(write_part, cases, (without_users(model), source, where, int(N), options))
    exposure = sum((part[3] for part in parts), start=np.zeros(source.n_items, dtype=np.int64))
    rows, users = (sum(part[k] for part in parts) for k in (1, 2))
    return ShardLists(str(folder), tuple(part[0] for part in parts if part[2]), rows, users, exposure)


def _check_request(model: FactorModel, N: int, options: dict[str, Any]) -> None:
    """What is wrong with the arguments is wrong for nobody at all: found here, before anything is sent."""
    if options.get("fairness") is not None:
        check_fairness(options["fairness"])
    barred = options.get("filter_items")
    if barred is not None and (not isinstance(barred, (list, tuple, np.ndarray)) or any(np.ndim(x) for x in barred)):
        raise InvalidParameter("filter_items of recommend_shards must be one list of items, for all users.")
    record_batches(without_users(model), np.zeros(0, dtype=np.int64), N, DEFAULTS | options)


def write_part(
    lean: Any, source: ShardSource, where: tuple[Any, str], N: int, options: dict[str, Any], number: int
) -> tuple[str, int, int, NDArray[np.int64]]:
    """The lists of one shard: its file, the number of its rows and of its users, and the exposure."""
    import pyarrow.parquet as pq

    options = dict(options)
    model = over_shard(lean, source, number, options.pop("fairness", None))
    exposure = np.zeros(model.n_items, dtype=np.int64)

    def count(items: NDArray[np.int32]) -> None:
        np.add(exposure, np.bincount(items[items >= 0], minlength=len(exposure)), out=exposure)

    schema, batches = record_batches(model, None, N, options | {"progress": False}, count)
    name, rows = f"part-{number:05}.parquet", 0
    if model.n_users == 0:  # nobody's ids have no type to write
        return name, 0, 0, exposure
    with _output(where, name) as file, pq.ParquetWriter(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return name, rows, model.n_users, exposure


@contextlib.contextmanager
def _output(where: tuple[Any, str], name: str) -> Iterator[Any]:
    file_system, folder = where
    if file_system is None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with replacing(Path(folder) / name) as file:
            yield file
        return
    # Where files are objects, one is there when it is closed, and not before.
    with file_system.open_output_stream(f"{folder}/{name}") as stream:
        yield stream
