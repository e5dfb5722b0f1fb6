"""Lists for all users, a batch at a time: to an iterator, an Arrow table or a Parquet file. Memory holds one batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.data.ids import Ids
from fairmf.errors import InvalidData
from fairmf.io.atomic import replacing
from fairmf.models.fitted import named
from fairmf.models.progress import progress_bar
from fairmf.models.recommend import USERS_AT_ONCE, Request, answer, names_of, read_request
from fairmf.params import check_count

if TYPE_CHECKING:
    import pyarrow

    from fairmf.models.factor_model import FactorModel


DEFAULTS: dict[str, Any] = {
    "user_items": None, "filter_already_liked_items": True, "filter_items": None, "recalculate_user": False,
    "items": None, "fairness": None, "no_history": "popular", "by": "id",
}  # fmt: skip


class Batch(NamedTuple):
    """Some users and their lists, as `recommend` gives them."""

    users: NDArray[Any]
    ids: NDArray[Any]
    scores: NDArray[np.float32]


class Question(NamedTuple):
    """A request with what is needed to walk through it."""

    model: FactorModel
    request: Request
    who: NDArray[Any] | Sequence[Hashable]
    item_ids: Ids | None
    batch_size: int
    progress: bool | None

    def answers(self) -> Iterator[tuple[int, int, NDArray[np.int32], NDArray[np.float32]]]:
        """(start, stop, item positions, scores) of every batch, with a progress bar."""
        starts = range(0, self.request.count, self.batch_size)
        with progress_bar("recommend", len(starts), self.progress) as advance:
            for start in starts:
                stop = min(start + self.batch_size, self.request.count)
                yield start, stop, *answer(self.model, self.request, start, stop, self.who)
                advance(f"{stop:,} users")


def ask(
    model: FactorModel, users: Any, N: int, batch_size: int, progress: bool | None, options: dict[str, Any]
) -> Question:
    """Check everything before the first list is made."""
    unknown = sorted(set(options) - set(DEFAULTS))
    if unknown:
        raise TypeError(f"There is no option {', '.join(map(repr, unknown))}; there are {', '.join(DEFAULTS)}.")
    check_count("recommend", "batch_size", batch_size)
    options = DEFAULTS | options
    user_ids, item_ids = names_of(model, options["by"]) if options["by"] in ("id", "row") else (None, None)
    if users is None:
        users = np.arange(model.n_users) if user_ids is None else user_ids.values
    given = options.pop("user_items")
    request = read_request(model, users, given, N=N, **options)
    return Question(model, request, users, item_ids, int(batch_size), progress)


def stream(
    model: FactorModel, users: Any, N: int, batch_size: int, progress: bool | None, options: dict[str, Any]
) -> Iterator[Batch]:
    """See FactorModel.recommend_batches."""
    question = ask(model, users, N, batch_size, progress, options)  # errors at the call, not at the first batch

    def walk() -> Iterator[Batch]:
        for start, stop, items, scores in question.answers():
            yield Batch(_some(question.who, start, stop), named(items, question.item_ids), scores)

    return walk()


def table(model: FactorModel, users: Any, N: int, options: dict[str, Any]) -> pyarrow.Table:
    """See FactorModel.recommend_table."""
    import pyarrow as pa

    schema, parts = record_batches(model, users, N, options)
    return pa.Table.from_batches(list(parts), schema)


def to_parquet(model: FactorModel, path: str | os.PathLike[str], users: Any, N: int, options: dict[str, Any]) -> int:
    """See FactorModel.recommend_to_parquet."""
    import pyarrow.parquet as pq

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
    users: Any,
    N: int,
    options: dict[str, Any],
    seen: Callable[[NDArray[np.int32]], None] | None = None,
) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
    """The lists as Arrow batches with columns user, item, score and rank, and the schema they all have.

    `seen` is shown the positions of the items in every batch of lists.
    """
    import pyarrow as pa

    options = dict(options)
    batch_size, progress = options.pop("batch_size", USERS_AT_ONCE), options.pop("progress", None)
    question = ask(model, users, N, batch_size, progress, options)
    # One Arrow array of all names: taking from it gives every batch the same types.
    who = _arrow(question.who, "user")
    names = _arrow(np.arange(model.n_items) if question.item_ids is None else question.item_ids.values, "item")
    schema = pa.schema([("user", who.type), ("item", names.type), ("score", pa.float32()), ("rank", pa.int32())])

    def walk() -> Iterator[pyarrow.RecordBatch]:
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


def _arrow(names: Any, kind: str) -> pyarrow.Array:
    import pyarrow as pa

    try:
        return pa.array(names)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise InvalidData(
            f"Arrow has no column type for these {kind} ids ({error}).", hint="by='row' writes row numbers instead"
        ) from error


def _some(who: NDArray[Any] | Sequence[Hashable], start: int, stop: int) -> NDArray[Any]:
    part = who[start:stop]
    return part if isinstance(part, np.ndarray) else Ids(part).values
