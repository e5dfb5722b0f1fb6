"""Recommend to all users of a sharded data set: each task ranks the users of one shard and writes a Parquet file.

Lists never leave the task that made them. Tasks return how often each item was shown, which is added up.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairmf.data.csr import Rows
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.popularity import gini
from fairmf.distributed.parquet_chunks import output_folder
from fairmf.distributed.shards import Shard, ShardSource
from fairmf.distributed.task_pool import RayTasks, Tasks
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.io.atomic import replacing
from fairmf.lazy import lazy_module
from fairmf.models import fold_in_systems
from fairmf.models.batches import record_batches
from fairmf.models.evenness import Level
from fairmf.models.factor_model import FactorModel
from fairmf.models.fitted import Fitted
from fairmf.models.fold_in import FoldInModel
from fairmf.types import Record

if TYPE_CHECKING:
    import pyarrow.fs
    import pyarrow.parquet as pq
else:
    pq = lazy_module("pyarrow.parquet")

Folder: TypeAlias = "tuple[pyarrow.fs.FileSystem | None, str]"
"""A folder of a file system; None stands for the disk of this machine."""

# -- a model over the users of one shard ------------------------------------------------------------------------------
#
# A task on a cluster folds the users of its shard in from their own histories, which gives the vectors that a fit
# leaves. So the model that is sent needs no users, and a task that is lost can be repeated on any machine.


def without_users(model: FactorModel) -> FactorModel:
    """Return the model without its users: as large as the catalogue, ready to be sent."""
    lean, fitted = copy.copy(model), model.fitted
    nobody = np.empty((0, fitted.item_factors.shape[1]), dtype=fitted.item_factors.dtype)
    side = fitted.user_features
    lean._fitted = dataclasses.replace(
        fitted, user_factors=nobody, user_ids=None, interactions=None, user_sensitivity=None,
        user_features=None if side is None else side.without_rows(), **_of_all_users(fitted),
    )  # fmt: skip
    return lean


def _of_all_users(fitted: Fitted) -> Record:
    """Return what the item dial needs of the training users, where a file of an older version lacks it."""
    if fitted.item_spread is not None and fitted.item_counts is not None:
        return {}
    return {"item_spread": fitted.item_dial.spread, "item_counts": fitted.item_dial.counts}


@dataclass(frozen=True)
class UserFeatures:
    """The features of users, for tasks that fold them in: found by id, or by number where there are no ids."""

    ids: Ids | None
    rows: Rows

    @classmethod
    def of(cls, model: FactorModel, source: ShardSource, given: Any) -> UserFeatures | None:
        """Read the features of the source's users; those that a model holds do not have to be given.

        Returns None for a model without user_features.
        """
        fitted, side = model.fitted, model.fitted.user_features
        if given is not None:
            names, rows = fold_in_systems.features_of(fitted, "user").encoded(given, "user")
            found = cls(None if names is None else Ids(names).check("user"), rows)
        elif side is None:
            return None
        elif side.rows.count == 0:
            raise InvalidParameter(
                "The model was fitted with user_features, and holds those of no user.",
                hint="give user_features=, as to fit",
            )
        else:
            found = cls(fitted.user_ids, side.rows)
        if found.ids is None and found.rows.count != source.n_users:
            raise InvalidData(
                f"user_features has {found.rows.count:,} rows, but the source has {source.n_users:,} users."
            )
        return found

    def of_shard(self, shard: Shard) -> Rows:
        """Return the features of a shard's users; none for users that are not known."""
        n, known = self.rows.count, self.ids
        if known is None:
            where = shard.users
        elif shard.user_ids is None:
            raise InvalidData("The features of users have ids, the users of the source have none.")
        else:
            where = np.array([known.position(x) if x in known else n for x in shard.user_ids.values.tolist()])
        return _with_empty_row(self.rows).take(where.astype(np.int64))


def _with_empty_row(rows: Rows) -> Rows:
    return rows._replace(indptr=np.append(rows.indptr, rows.indptr[-1]))


def check_items(model: FactorModel, source: ShardSource, what: str) -> None:
    """Raise InvalidData unless the source has the model's items, in their order."""
    if source.n_items != model.n_items:
        raise InvalidData(f"The model knows {model.n_items:,} items, {what} has {source.n_items:,}.")
    trained, given = model.fitted.item_ids, source.item_ids
    if trained is not None and given is not None and trained is not given and trained != given:
        raise InvalidData(
            f"The items of {what} are not the model's, or in another order: read it with items=model.fitted.item_ids."
        )


def _owned(fitted: Fitted) -> Fitted:
    """Copy the arrays: those of the object store are read-only, for which kernels would be compiled once more."""
    arrays: Record = {name: np.array(value) for name, value in vars(fitted).items() if isinstance(value, np.ndarray)}
    return dataclasses.replace(fitted, **arrays)


def over_shard(
    lean: FactorModel, source: ShardSource, number: int, level: Level, features: UserFeatures | None = None
) -> FactorModel:
    """Return a model (`without_users`) with the users of one shard, which serves with this level."""
    model = copy.copy(lean)
    model.num_threads = 1  # the task has one CPU
    fitted = model._fitted = _owned(lean.fitted)
    shard = source.load(number)
    # With the weighting, so that the model weights raw ones, and no others.
    own = Interactions(shard.rows, len(fitted.item_factors), shard.user_ids, fitted.item_ids, source.weighting)
    psi = fitted.fairness if level.fairness is None else level.fairness
    side = fitted.user_features
    if side is not None and features is not None:
        rows = features.of_shard(shard)
        side = dataclasses.replace(side, rows=rows, counted=np.diff(own.by_user.indptr) > 0)
    own_features = None if side is None else side.rows
    users = model._fold_in_all(own, psi, own_features) if isinstance(model, FoldInModel) else model.fold_in(own)
    model._fitted = dataclasses.replace(
        fitted, user_factors=users, user_ids=own.user_ids, interactions=own, flatten=level.flatten,
        discount=level.discount, lift=level.lift, fairness=psi, user_features=side,
    )  # fmt: skip
    return model


OPTIONS = ("filter_already_liked_items", "filter_items", "items", "evenness", "fairness", "no_history")
"""Options of `recommend` that have one value for all users. Lists per user would have to be held in this process."""


@dataclass(frozen=True)
class ShardLists:
    """The files that `recommend_shards` wrote, and how often each item is in them."""

    folder: str
    files: tuple[str, ...]
    rows: int
    n_users: int
    exposure: NDArray[np.int64]
    """Number of lists with each item."""

    @property
    def gini(self) -> float:
        """Gini index of the exposure: 0 if all items are shown equally often, 1 if one item takes all."""
        return float(gini(self.exposure))

    @property
    def coverage(self) -> float:
        """Share of the items that are in at least one list."""
        return float(np.mean(self.exposure > 0))


class Part(NamedTuple):
    """The file that one task has written."""

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
    user_features: Any = None,
    filesystem: pyarrow.fs.FileSystem | None = None,
    tasks: Tasks | None = None,
    **options: Any,
) -> ShardLists:
    """Write the N best items of every user of `source` to `folder`/part-00000.parquet and so on, one file per shard.

    The files have the columns of `recommend_to_parquet`, and each appears when it is complete; a shard without users
    has no file. Users are folded in from their histories.

    Parameters
    ----------
    model
        A fitted model; its own users are not needed.
    source
        The data set in shards, such as `ParquetShards`, with the model's items.
    folder
        A path or URL (s3://...) that every machine of the cluster sees, or a path of `filesystem`.
    N
        Length of the lists.
    user_features
        For a model that was fitted with features of users: theirs, as given to `fit`. A model that holds its users has
        them already. Users without a row have no features.
    filesystem
        A PyArrow file system; None finds it from `folder`.
    tasks
        Who runs the tasks; None takes a Ray cluster.
    **options
        Options of `recommend` with one value for all users: filter_already_liked_items, filter_items (a list of
        items), items, evenness, fairness, no_history.

    Returns
    -------
    The files, and how often each item is in them.

    Raises
    ------
    InvalidData
        If the source has other items than the model.
    InvalidParameter
        If an option is unknown or not one for all users.

    Examples
    --------
    >>> import tempfile
    >>> from fairmf import FairALS, recommend_shards, synthetic
    >>> from fairmf.distributed.shards import InMemoryShards
    >>> from fairmf.distributed.task_pool import InProcess
    >>> data = synthetic(60, 40, 600)
    >>> model = FairALS(factors=4, epochs=2).fit(data, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = recommend_shards(model, InMemoryShards(data, 2), folder, N=5, tasks=InProcess())
    >>> len(written.files), written.n_users
    (2, 60)
    """
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        known = ", ".join(OPTIONS)
        raise InvalidParameter(f"recommend_shards has no option {', '.join(map(repr, unknown))}; there are {known}.")
    check_items(model, source, "the source")
    _check_request(model, N, options)
    features = UserFeatures.of(model, source, user_features)
    tasks = RayTasks(gpus=float(model.fitted.settings["backend"] == "cuda")) if tasks is None else tasks
    where = output_folder(folder, filesystem)
    cases = [(number,) for number in range(source.shards)]
    exposure, files, rows, users = np.zeros(source.n_items, dtype=np.int64), [], 0, 0
    for part in tasks.each(write_part, cases, (without_users(model), source, features, where, (int(N), options))):
        files += [part.file] if part.n_users else []
        rows, users = rows + part.rows, users + part.n_users
        exposure += part.exposure
    return ShardLists(str(folder), tuple(files), rows, users, exposure)


def _check_request(model: FactorModel, N: int, options: Record) -> None:
    """Check the arguments by a request for no users, before anything is sent to the cluster."""
    model.fitted.served(options.get("evenness"), options.get("fairness"))
    barred = options.get("filter_items")
    if barred is not None and (not isinstance(barred, (list, tuple, np.ndarray)) or any(np.ndim(x) for x in barred)):
        raise InvalidParameter("filter_items of recommend_shards must be one list of items, for all users.")
    record_batches(without_users(model), np.zeros(0, dtype=np.int64), N, options)


def write_part(
    lean: FactorModel,
    source: ShardSource,
    features: UserFeatures | None,
    where: Folder,
    request: tuple[int, Record],
    number: int,
) -> Part:
    """Write the lists of one shard; `request` is N and the options."""
    N, options = request[0], dict(request[1])
    level = lean.fitted.served(options.pop("evenness", None), options.pop("fairness", None))
    model = over_shard(lean, source, number, level, features)
    exposure = np.zeros(model.n_items, dtype=np.int64)

    def count(items: NDArray[np.int32]) -> None:
        np.add(exposure, np.bincount(items[items >= 0], minlength=len(exposure)), out=exposure)

    schema, batches = record_batches(model, None, N, options | {"progress": False}, count)
    name, rows = f"part-{number:05}.parquet", 0
    if model.n_users == 0:  # without ids their type is not known, so there is no schema to write
        return Part(name, 0, 0, exposure)
    with _output(where, name) as file, pq.ParquetWriter(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return Part(name, rows, model.n_users, exposure)


@contextlib.contextmanager
def _output(where: Folder, name: str) -> Iterator[BinaryIO]:
    file_system, folder = where
    if file_system is None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with replacing(Path(folder) / name) as file:
            yield file
        return
    # In an object store a file appears when it is closed, so it needs no temporary name.
    with file_system.open_output_stream(f"{folder}/{name}") as stream:
        yield stream
