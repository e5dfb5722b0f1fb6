"""`fairmf export MODEL -o FILE`: export vectors, neighbours or popular items to files and vector databases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fairmf.cli.catalogue import Titles
from fairmf.cli.errors import Problem
from fairmf.cli.level_flags import Asked, Served, check_users_at, level_facts
from fairmf.cli.options import Flags
from fairmf.cli.output import check_output, check_table_output, unknown_format
from fairmf.cli.output import write_table as write_whole_table
from fairmf.cli.session import Session
from fairmf.cli.sources import load_fitted
from fairmf.cli.terminal import marked
from fairmf.io.atomic import replacing
from fairmf.lazy import lazy_module

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

    from fairmf import stores
    from fairmf.models import neighbour_tables, recommend_for
    from fairmf.models.factor_model import FactorModel
    from fairmf.stores.vectors import Vectors
else:
    pa = lazy_module("pyarrow")
    parquet = lazy_module("pyarrow.parquet")
    stores, neighbour_tables = lazy_module("fairmf.stores"), lazy_module("fairmf.models.neighbour_tables")
    recommend_for = lazy_module("fairmf.models.recommend_for")


ENDINGS = (".ann", ".parquet", ".arrow")
_ROWS_AT_ONCE = 1 << 16


class What(str, Enum):
    """Name what can be exported."""

    items = "items"
    users = "users"
    similar_items = "similar-items"
    similar_users = "similar-users"
    popular = "popular"

    @property
    def is_vectors(self) -> bool:
        """Whether these are vectors, rather than a table of neighbours or of popular items."""
        return self in (What.items, What.users)


class To(str, Enum):
    """Name the stores that take vectors (fairmf.stores.STORES)."""

    file = "file"
    qdrant = "qdrant"
    pgvector = "pgvector"
    redis = "redis"
    milvus = "milvus"
    opensearch = "opensearch"
    elasticsearch = "elasticsearch"


@dataclass
class Place(Flags):
    """The file or the database, and what to write there."""

    what: Annotated[
        What,
        typer.Option(
            help="items, users: their vectors. similar-items, similar-users: for every item or user, those most "
            "similar to it. popular: the most popular items."
        ),
    ] = What.items
    to: Annotated[
        To,
        typer.Option(
            help="Database or search engine for the vectors. Give its place with -o. qdrant: a folder or "
            "http://host:6333. pgvector: postgresql://user@host/database or items.sql. redis: "
            "redis://host:6379/0. milvus: items.db or http://host:19530. opensearch, elasticsearch: "
            "items.ndjson."
        ),
    ] = To.file
    name: Annotated[
        str | None,
        typer.Option(help="Database: name of the collection, table or index. Default: fairmf_items or fairmf_users."),
    ] = None
    replace: Annotated[
        bool, typer.Option("--replace", help="Database: replace an existing collection, table or index of this name.")
    ] = False
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            "-n",
            min=1,
            help="Number of neighbours per item or user (default 20), or of popular items (default 100).",
        ),
    ] = None


@dataclass
class Index(Flags):
    """Set how a nearest-neighbour index groups items."""

    groups: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Index: number of groups that items are divided into. Default: four times the square root of the "
            "number of items.",
        ),
    ] = None
    probes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Index: number of groups that a search visits. More groups take longer and miss fewer items."
        ),
    ] = None

    def given(self) -> bool:
        """Return whether any of them was given."""
        return self.groups is not None or self.probes is not None


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by fit.")],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="PLACE",
            help="Where to write. Vectors: a .parquet or .arrow file, an .ann file (an index), or the address of a "
            "database (see --to). Neighbours and popular items: .parquet, .csv, .arrow or .json.",
        ),
    ],
    *,
    session: Session,
    place: Place,
    served: Served,
    index: Index,
    catalogue: Titles,
) -> None:  # fmt: skip
    """Export vectors to files or vector databases, or write tables of similar or popular items.

    A table has one row per item or user, with its id and its vector. The score of an item for a user is the inner
    product of their vectors, not the cosine. An .ann file is a nearest-neighbour index; in Python,
    fairmf.ranking.ann.AnnIndex.load opens it (extra \\[ann]).

    --evenness changes the vectors: export items and users with the same --evenness. Exception: for
    fairmf serve --ann, export the index without --evenness. The server can then use it for every evenness.

    [dim]Examples:[/dim]

      fairmf export model.fairmf -o items.parquet

      fairmf export model.fairmf -o users.parquet --what users --evenness 0.3

      fairmf export model.fairmf -o items.ann --probes 128 --evenness 0.3

      fairmf export model.fairmf --to pgvector -o postgresql://me@localhost/shop --catalogue movies.csv

      fairmf export model.fairmf --to qdrant -o qdrant-folder --evenness 0.3 --replace

      fairmf export model.fairmf --what similar-items -o neighbours.parquet --top 50

      fairmf export model.fairmf --what popular -o fallback.csv
    """
    shown = stores.without_secrets(output)
    session.run.settings["output"] = shown
    _check(output, place, served, index)
    loaded = load_fitted(model, session)
    asked = served.read(loaded, model, session)
    what = place.what
    if what is What.users:
        check_users_at(loaded, model, asked)
    titles = None if what is What.similar_users else catalogue.titles(loaded.fitted.item_ids, loaded.n_items)
    with session.busy("write"):
        done = _write(loaded, output, place, index, asked, titles)
    note = done.pop("note")
    session.result |= {"model": str(model), "output": shown, "what": what.value, **done}
    session.result |= level_facts(loaded, asked)
    if "://" not in output:
        session.record_beside(Path(output))
    size = f"{done['rows']:,} vectors of {done['width']} numbers" if what.is_vectors else f"{done['rows']:,} rows"
    session.note(f"{'index' if shown.endswith('.ann') else what.value}   {marked(shown)}: {size}")
    if note:
        session.note(f"next    {marked(note)}")


def _check(target: str, place: Place, served: Served, index: Index) -> None:
    output, what = Path(target), place.what
    kind = output.suffix.lower()
    if served.given() == ["fairness"] and what is not What.users:
        raise Problem("--fairness changes users' vectors, not items'.", "--what users")
    if index.given() and kind != ".ann":
        raise Problem("--groups and --probes are for an index.", "-o items.ann")
    if place.top is not None and what.is_vectors:
        raise Problem("--top is the number of neighbours or of popular items.", "--what similar-items")
    if place.to is not To.file:
        if not what.is_vectors:
            raise Problem(f"--to {place.to.value} takes vectors, not {what.value}.", "--what items or --what users")
        return
    if place.name is not None or place.replace:
        raise Problem("--name and --replace are for a database.", "--to qdrant, pgvector, redis, milvus or opensearch")
    if "://" in target:
        raise Problem(f"{stores.without_secrets(target)} is not a file.", "name the kind of database: --to pgvector")
    if not what.is_vectors:
        if served.given():
            raise Problem(f"Evenness does not change {what.value}.", f"drop --{served.given()[0]}")
        check_table_output(output)
        return
    if kind not in ENDINGS:
        raise unknown_format(output, ENDINGS)
    if kind == ".ann" and what is What.users:
        raise Problem("A nearest-neighbour index holds items, not users.", "to write users' vectors: -o users.parquet")
    check_output(output)


def _write(
    model: FactorModel, target: str, place: Place, index: Index, asked: Asked, titles: list[str] | None
) -> dict[str, Any]:
    """Write what was asked for; return rows, width, other facts and a note."""
    what, output = place.what, Path(target)
    if what is What.popular:
        table = neighbour_tables.popular_table(model, place.top or 100, titles)
    elif not what.is_vectors:
        table = neighbour_tables.similar_table(model, what.value.removeprefix("similar-"), place.top or 20, titles)
    elif place.to is not To.file:
        done = stores.export_vectors(
            model, place.to.value, target, what=what.value, evenness=asked,
            titles=titles if what is What.items else None, name=place.name, replace=place.replace,
        )  # fmt: skip
        return {"rows": done.rows, "width": done.width, "name": done.name, "to": place.to.value, "note": done.note}
    elif output.suffix.lower() == ".ann":
        levels = asked is None and recommend_for.on_cpu(model)  # requests by level are answered on the cpu
        made = model.to_ann(groups=index.groups, probes=index.probes, evenness=asked, levels=levels)
        made.save(output)
        facts = {"groups": made.n_groups, "probes": made.probes}
        return {"rows": made.n_items, "width": made.item_vectors.shape[1], **facts, "note": ""}
    else:
        found = stores.vectors_of(model, what.value, evenness=asked, titles=titles if what is What.items else None)
        _write_vectors(found, model, output)
        return {"rows": len(found), "width": found.width, "note": ""}
    write_whole_table(table, output)
    return {"rows": table.num_rows, "note": ""}


def _write_vectors(found: Vectors, model: FactorModel, output: Path) -> None:
    name = found.what.removesuffix("s")
    ids = model.fitted.item_ids if found.what == "items" else model.fitted.user_ids
    names = pa.array(range(len(found)) if ids is None else ids.values)
    columns = [(name, names.type), *([("title", pa.string())] if found.titles is not None else [])]
    schema = pa.schema([*columns, ("vector", pa.list_(pa.float32(), found.width))])
    with replacing(output) as file:
        if output.suffix.lower() == ".arrow":
            writer = pa.ipc.new_file(file, schema)
        else:
            writer = parquet.ParquetWriter(file, schema)
        with writer:
            for part in _batches(names, found, schema):
                writer.write_batch(part)


def _batches(names: pa.Array, found: Vectors, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    start = 0
    for part in found.parts(_ROWS_AT_ONCE):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(np.ravel(part.vectors)), part.width)
        titles = [] if part.titles is None else [pa.array(part.titles, pa.string())]
        yield pa.RecordBatch.from_arrays([names.slice(start, len(part)), *titles, lists], schema=schema)
        start += len(part)
