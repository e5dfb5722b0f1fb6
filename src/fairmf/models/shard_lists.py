"""Lists for all users of a sharded data set: every task ranks the users of one shard and writes its own Parquet file.

Lists never leave the task that made them. What comes back is how often each item was shown, added up over all shards.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.data.interactions import Interactions
from fairmf.data.popularity import gini
from fairmf.distributed.parquet_files import output_folder
from fairmf.distributed.shards import Shard, ShardSource
from fairmf.distributed.task_pool import RayTasks, Tasks
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.io.atomic import replacing
from fairmf.models.batches import DEFAULTS, record_batches
from fairmf.models.factor_model import FactorModel
from fairmf.models.fitted import Fitted
from fairmf.models.fold_in import check_fairness

# A model over the users of one shard: what a task on a cluster ranks with.
#
# Users are folded in from their own histories, which is what a fit leaves them as. So a model needs none of its users
# to serve all of them, and a task that is lost can be done again anywhere.


def without_users(model: FactorModel) -> FactorModel:
    """The model with nothing of its users: as large as the catalogue, ready to be sent."""
    lean, fitted = copy.copy(model), model.fitted
    nobody = np.empty((0, fitted.item_factors.shape[1]), dtype=fitted.item_factors.dtype)
    lean._fitted = dataclasses.replace(
        fitted, user_factors=nobody, user_ids=None, interactions=None, user_sensitivity=None
    )
    return lean


def check_items(model: FactorModel, source: ShardSource, what: str) -> None:
    """Raise InvalidData unless the source has the model's items, in their order."""
    if source.n_items != model.n_items:
        raise InvalidData(f"The model knows {model.n_items:,} items, {what} has {source.n_items:,}.")
    trained, given = model.fitted.item_ids, source.item_ids
    if trained is not None and given is not None and trained is not given and trained != given:
        raise InvalidData(
            f"The items of {what} are not the model's, or in another order: read it with items=model.fitted.item_ids."
        )


def histories(shard: Shard, fitted: Fitted) -> Interactions:
    """The interactions of a shard's users over the model's items."""
    return Interactions(shard.rows, len(fitted.item_factors), shard.user_ids, fitted.item_ids)


def _owned(fitted: Fitted) -> Fitted:
    """With arrays of this process: those of the object store are read-only, and kernels would be compiled anew."""
    arrays: dict[str, Any] = {
        name: np.array(value) for name, value in vars(fitted).items() if isinstance(value, np.ndarray)
    }
    return dataclasses.replace(fitted, **arrays)


def over_shard(lean: Any, source: ShardSource, number: int, fairness: float | None) -> FactorModel:
    """The model (`without_users`) over the users of one shard, at another fairness where one is given."""
    model: Any = copy.copy(lean)
    model.num_threads = 1  # the task has one CPU
    fitted = model._fitted = _owned(lean.fitted)
    own = histories(source.load(number), fitted)
    options = {} if fairness is None else {"fairness": fairness}
    users: NDArray[Any] = model.fold_in(own, **options)
    model._fitted = dataclasses.replace(
        fitted, user_factors=users, user_ids=own.user_ids, interactions=own,
        fairness=fitted.fairness if fairness is None else float(fairness),
    )  # fmt: skip
    return model  # type: ignore[no-any-return]


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


class Part(NamedTuple):
    """What one task has written."""

    file: str
    rows: int
    n_users: int
    exposure: NDArray[np.int64]


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
    exposure, files, rows, users = np.zeros(source.n_items, dtype=np.int64), [], 0, 0
    for part in tasks.each(write_part, cases, (without_users(model), source, where, int(N), options)):
        files += [part.file] if part.n_users else []
        rows, users = rows + part.rows, users + part.n_users
        exposure += part.exposure
    return ShardLists(str(folder), tuple(files), rows, users, exposure)


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
) -> Part:
    """Write the lists of one shard."""
    import pyarrow.parquet as pq

    options = dict(options)
    model = over_shard(lean, source, number, options.pop("fairness", None))
    exposure = np.zeros(model.n_items, dtype=np.int64)

    def count(items: NDArray[np.int32]) -> None:
        np.add(exposure, np.bincount(items[items >= 0], minlength=len(exposure)), out=exposure)

    schema, batches = record_batches(model, None, N, options | {"progress": False}, count)
    name, rows = f"part-{number:05}.parquet", 0
    if model.n_users == 0:  # nobody's ids have no type to write
        return Part(name, 0, 0, exposure)
    with _output(where, name) as file, pq.ParquetWriter(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return Part(name, rows, model.n_users, exposure)


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
