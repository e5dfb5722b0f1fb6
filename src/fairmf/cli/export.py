"""`fairmf export MODEL -o FILE`: export the vectors of a model, or a nearest-neighbour index, for other programs."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import numpy as np
import typer

from fairmf.cli.errors import Problem
from fairmf.cli.output import check_output, unknown_format
from fairmf.cli.session import Session
from fairmf.cli.sources import check_dial, check_stored_users, load_fitted
from fairmf.cli.terminal import marked
from fairmf.io.atomic import replacing
from fairmf.lazy import lazy_module

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

    from fairmf.models.base import IterativeModel
    from fairmf.models.factor_model import FactorModel
    from fairmf.types import Array
else:
    pa = lazy_module("pyarrow")
    parquet = lazy_module("pyarrow.parquet")


ENDINGS = (".ann", ".parquet", ".arrow")
_ROWS_AT_ONCE = 1 << 16


class What(str, Enum):
    """Whose vectors to write."""

    items = "items"
    users = "users"


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by fit.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="File to write: .parquet or .arrow for vectors, .ann for an index."),
    ],
    session: Session,
    what: Annotated[What, typer.Option(help="Whose vectors to write; an index always holds items.")] = What.items,
    fairness: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER", help="With --what users: write their vectors for this fairness. Default: the model's own."
        ),
    ] = None,
    groups: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Index: number of groups that items are divided into. Default: four times the square root of the "
            "number of items.",
        ),
    ] = None,
    probes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Index: number of groups that a search visits. More groups take longer and miss fewer items."
        ),
    ] = None,
) -> None:
    """Export the vectors of items or users as a table, or the items as a nearest-neighbour index.

    A table has one row per item or user, with its id and its vector. The score of an item for a user is the inner
    product of their vectors, not the cosine. If the model has exposure offsets, item vectors end with the offset and
    user vectors end with 1. In Python, fairmf.ranking.ann.AnnIndex.load opens an index (extra \\[ann]).

    [dim]Examples:[/dim]

      fairmf export model.fairmf -o items.parquet

      fairmf export model.fairmf -o users.parquet --what users --fairness 2

      fairmf export model.fairmf -o items.ann --probes 128
    """
    kind = output.suffix.lower()
    _check(kind, output, what, fairness, groups, probes)
    check_output(output)
    loaded = load_fitted(model, session)
    if fairness is not None:
        check_dial(loaded, model)
        check_stored_users(loaded, model)
    with session.busy("write"):
        if kind == ".ann":
            index = loaded.to_ann(groups=groups, probes=probes)
            index.save(output)
            rows, width = index.n_items, index.item_vectors.shape[1]
            session.result |= {"groups": index.n_groups, "probes": index.probes}
        else:
            rows, width = _write_vectors(loaded, what, fairness, output)
    session.result |= {"model": str(model), "output": str(output), "what": what.value, "rows": rows, "width": width}
    session.record_beside(output)
    session.note(f"{'index' if kind == '.ann' else what.value}   {marked(output)}: {rows:,} vectors of {width} numbers")


def _check(kind: str, output: Path, what: What, fairness: float | None, groups: int | None, probes: int | None) -> None:
    if kind not in ENDINGS:
        raise unknown_format(output, ENDINGS)
    if kind == ".ann" and what is What.users:
        raise Problem("A nearest-neighbour index holds items, not users.", "to write users' vectors: -o users.parquet")
    if fairness is not None and what is What.items:
        raise Problem("--fairness changes users' vectors, not items'.", "--what users")
    if kind != ".ann" and (groups is not None or probes is not None):
        raise Problem("--groups and --probes are for an index.", "-o items.ann")


def _write_vectors(loaded: FactorModel, what: What, fairness: float | None, output: Path) -> tuple[int, int]:
    fitted = loaded.fitted
    if what is What.items:
        vectors, ids = fitted.serving_items, fitted.item_ids
    else:
        turned = loaded if fairness is None else cast("IterativeModel", loaded).with_fairness(fairness)
        vectors, ids = fitted.serving_users(turned.user_factors), fitted.user_ids
    name = what.value.removesuffix("s")
    names = pa.array(range(len(vectors)) if ids is None else ids.values)
    schema = pa.schema([(name, names.type), ("vector", pa.list_(pa.float32(), vectors.shape[1]))])
    with replacing(output) as file:
        if output.suffix.lower() == ".arrow":
            writer = pa.ipc.new_file(file, schema)
        else:
            writer = parquet.ParquetWriter(file, schema)
        with writer:
            for part in _batches(names, vectors, schema):
                writer.write_batch(part)
    return len(vectors), vectors.shape[1]


def _batches(names: pa.Array, vectors: Array, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        part = np.ascontiguousarray(vectors[start : start + _ROWS_AT_ONCE], dtype=np.float32)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), part.shape[1])
        yield pa.RecordBatch.from_arrays([names.slice(start, len(part)), lists], schema=schema)
