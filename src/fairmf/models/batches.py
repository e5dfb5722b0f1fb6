"""Recommend to many users a batch at a time: as an iterator, an Arrow table or a Parquet file.

Memory holds one batch, for any number of users.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.data.ids import Ids, Names, named
from fairmf.errors import InvalidData
from fairmf.io.atomic import replacing
from fairmf.lazy import lazy_module
from fairmf.models.progress import progress_bar
from fairmf.models.recommend import USERS_AT_ONCE, Choice, Request, answer, read_request
from fairmf.params import check_count
from fairmf.types import Array, Record

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fairmf.models.factor_model import FactorModel
else:
    pa, pq = lazy_module("pyarrow"), lazy_module("pyarrow.parquet")

OPTIONS = tuple(field.name for field in dataclasses.fields(Choice))
"""Options that `recommend_batches` and the others pass on to `recommend`."""


class Batch(NamedTuple):
    """Some users and their lists, as `recommend` returns them."""

    users: Array
    ids: Array
    scores: NDArray[np.float32]


class Question(NamedTuple):
    """A checked request for many users, to be answered a batch at a time."""

    model: FactorModel
    request: Request
    who: Names
    batch_size: int
    progress: bool | None

    def answers(self) -> Iterator[tuple[int, int, NDArray[np.int32], NDArray[np.float32]]]:
        """Yield (start, stop, rows of items, scores) of every batch, and show a progress bar."""
        starts = range(0, self.request.count, self.batch_size)
        backend = self.model._backend()
        with backend.threads(self.model.num_threads):  # copied to a device once; its array outlives this block
            array = backend.array(self.model.fitted.item_factors)
        with progress_bar("recommend", len(starts), self.progress) as advance:
            for start in starts:
                stop = min(start + self.batch_size, self.request.count)
                yield start, stop, *answer(self.model, self.request, start, stop, self.who, array)
                advance(f"{stop:,} users")


def ask(
    model: FactorModel, users: Names | None, N: int, batch_size: int, progress: bool | None, options: Record
) -> Question:
    """Check all arguments before the first list is made."""
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise TypeError(f"There is no option {', '.join(map(repr, unknown))}; there are {', '.join(OPTIONS)}.")
    check_count("recommend", "batch_size", batch_size)
    choice = Choice(**options)
    if users is None:
        ids = None if choice.by == "row" else model.fitted.user_ids
        users = np.arange(model.n_users) if ids is None else ids.values
    return Question(model, read_request(model, users, N, choice), users, int(batch_size), progress)


def stream(
    model: FactorModel, users: Names | None, N: int, batch_size: int, progress: bool | None, options: Record
) -> Iterator[Batch]:
    """Return an iterator over batches of lists; see `FactorModel.recommend_batches`."""
    question = ask(model, users, N, batch_size, progress, options)  # errors at the call, not at the first batch

    def walk() -> Iterator[Batch]:
        for start, stop, items, scores in question.answers():
            part = question.who[start:stop]
            names = part if isinstance(part, np.ndarray) else Ids(part).values
            yield Batch(names, named(items, question.request.item_ids), scores)

    return walk()


def table(model: FactorModel, users: Names | None, N: int, options: Record) -> pa.Table:
    """Return all lists as one Arrow table; see `FactorModel.recommend_table`."""
    schema, parts = record_batches(model, users, N, options)
    return pa.Table.from_batches(list(parts), schema)


def to_parquet(model: FactorModel, path: str | os.PathLike[str], users: Names | None, N: int, options: Record) -> int:
    """Write all lists to a Parquet file and return the number of rows; see `FactorModel.recommend_to_parquet`."""
    schema, parts = record_batches(model, users, N, options)
    path, written = Path(path), 0
    if not path.parent.is_dir():
        raise InvalidData(f"There is no folder {str(path.parent)!r} to write {path.name!r} into.")
    with replacing(path) as file, pq.ParquetWriter(file, schema) as writer:
        for part in parts:
            writer.write_batch(part)
            written += part.num_rows
    return written


def record_batches(
    model: FactorModel,
    users: Names | None,
    N: int,
    options: Record,
    seen: Callable[[NDArray[np.int32]], None] | None = None,
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the lists as Arrow batches with columns user, item, score and rank, and the schema they all have.

    `seen` is called with the rows of the items in every batch of lists.
    """
    options = dict(options)
    batch_size, progress = options.pop("batch_size", USERS_AT_ONCE), options.pop("progress", None)
    question = ask(model, users, N, batch_size, progress, options)
    # One Arrow array of all names: taking from it gives every batch the same types.
    ids = question.request.item_ids
    who = _arrow(question.who, "user")
    names = _arrow(np.arange(model.n_items) if ids is None else ids.values, "item")
    schema = pa.schema([("user", who.type), ("item", names.type), ("score", pa.float32()), ("rank", pa.int32())])

    def walk() -> Iterator[pa.RecordBatch]:
        for start, _, items, scores in question.answers():
            if seen is not None:
                seen(items)
            row, slot = np.nonzero(items >= 0)
            found = scores[row, slot]
            columns = [
                who.take(pa.array(start + row)),
                names.take(pa.array(items[row, slot])),
                pa.array(found, mask=np.isnan(found)),
                pa.array((slot + 1).astype(np.int32)),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return schema, walk()


def _arrow(names: Names, kind: str) -> pa.Array:
    try:
        return pa.array(names)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise InvalidData(
            f"Arrow has no column type for these {kind} ids ({error}).", hint="by='row' writes row numbers instead"
        ) from error
