"""`fairmf export MODEL -o FILE`: export the vectors of a model, or a nearest-neighbour index, for other programs."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from fairmf.cli.errors import Problem
from fairmf.cli.level_flags import Asked, Served, check_users_at, level_facts
from fairmf.cli.output import check_output, unknown_format
from fairmf.cli.session import Session
from fairmf.cli.sources import load_fitted
from fairmf.cli.terminal import marked
from fairmf.io.atomic import replacing
from fairmf.lazy import lazy_module
from fairmf.models.evenness import Level

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

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
    *,
    session: Session,
    what: Annotated[What, typer.Option(help="Whose vectors to write; an index always holds items.")] = What.items,
    served: Served,
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
    product of their vectors, not the cosine. In Python, fairmf.ranking.ann.AnnIndex.load opens an index (extra
    \\[ann]).

    --evenness changes the vectors: export items and users with the same --evenness. An index without --evenness also
    serves every evenness (fairmf serve --ann).

    [dim]Examples:[/dim]

      fairmf export model.fairmf -o items.parquet

      fairmf export model.fairmf -o users.parquet --what users --evenness 0.3

      fairmf export model.fairmf -o items.ann --probes 128 --evenness 0.3
    """
    kind = output.suffix.lower()
    _check(kind, output, what, served, groups is not None or probes is not None)
    check_output(output)
    loaded = load_fitted(model, session)
    asked = served.read(loaded, model, session)
    if what is What.users:
        check_users_at(loaded, model, asked)
    with session.busy("write"):
        if kind == ".ann":
            index = loaded.to_ann(groups=groups, probes=probes, evenness=asked, levels=asked is None)
            index.save(output)
            rows, width = index.n_items, index.item_vectors.shape[1]
            session.result |= {"groups": index.n_groups, "probes": index.probes}
        else:
            rows, width = _write_vectors(loaded, what, asked, output)
    session.result |= {"model": str(model), "output": str(output), "what": what.value, "rows": rows, "width": width}
    session.result |= level_facts(loaded, asked)
    session.record_beside(output)
    session.note(f"{'index' if kind == '.ann' else what.value}   {marked(output)}: {rows:,} vectors of {width} numbers")


def _check(kind: str, output: Path, what: What, served: Served, for_index: bool) -> None:
    if kind not in ENDINGS:
        raise unknown_format(output, ENDINGS)
    if kind == ".ann" and what is What.users:
        raise Problem("A nearest-neighbour index holds items, not users.", "to write users' vectors: -o users.parquet")
    if served.given() == ["fairness"] and what is What.items:
        raise Problem("--fairness changes users' vectors, not items'.", "--what users")
    if kind != ".ann" and for_index:
        raise Problem("--groups and --probes are for an index.", "-o items.ann")


def _write_vectors(loaded: FactorModel, what: What, asked: Asked, output: Path) -> tuple[int, int]:
    if asked is not None:
        level = loaded.fitted.served(asked)
        # Items do not depend on the fairness, so that no user is computed for them.
        loaded = loaded.with_evenness(Level(None, *level.on_items) if what is What.items else level)
    fitted = loaded.fitted
    if what is What.items:
        vectors, ids = fitted.serving_items, fitted.item_ids
    else:
        vectors, ids = fitted.serving_users(loaded.user_factors), fitted.user_ids
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
