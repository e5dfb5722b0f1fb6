"""Ids as people write them, turned into the kind a model has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairmf.cli.failures import Problem
from fairmf.cli.reading import unclear

if TYPE_CHECKING:
    from fairmf.interactions import Ids

_TABLES = (".parquet", ".pq", ".arrow", ".arrows", ".feather", ".ipc")


def as_ids(texts: list[str], known: Ids | None) -> list[Any]:
    """Integers where the model's ids are integers (or it has none, and rows are meant); else the texts."""
    from fairmf.interactions.ids import written_id

    if known is not None and known.values.dtype.kind not in "iu":
        return list(texts)
    return [written_id(text) for text in texts]  # a text is unknown, and called so by whoever looks it up


def read_ids(path: Path, known: Ids | None, kind: str) -> list[Any]:
    """One id a line."""
    return ids_from_file(path, None, known, kind)


def ids_from_file(path: Path, column: str | None, known: Ids | None, kind: str) -> list[Any]:
    """Ids from a list with one a line, or from a column of a table."""
    if not path.is_file():
        raise Problem(f"There is no file {path} with {kind} ids.", "one id a line, or a table with --user COLUMN")
    texts = _lines(path) if column is None and path.suffix.lower() not in _TABLES else _column(path, column, kind)
    if not texts:
        raise Problem(f"{path} holds no {kind} ids.")
    return as_ids(list(dict.fromkeys(texts)), known)


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise Problem(f"{path} is not text.", "one id a line") from None
    return [line.strip() for line in lines if line.strip()]


def _column(path: Path, column: str | None, kind: str) -> list[str]:
    from fairmf.interactions.guessing import guess_columns, peek

    seen = peek(path)
    guess = guess_columns(seen)
    name: Any = column if column is not None else guess.columns.get(kind)
    if name is None:
        if len(seen.names) > 1:
            raise unclear(path, seen, guess, kind, "--user COLUMN")
        name = seen.names[0]
    name = int(name) if not seen.header and str(name).isdigit() else name
    if name not in seen.names:
        raise Problem(
            f"Column {name!r} is not in {path}: there are {', '.join(map(str, seen.names))}.", "--user COLUMN"
        )
    return [str(value) for value in _values(path, seen, name) if value is not None]


def _values(path: Path, seen: Any, name: Any) -> list[Any]:
    from fairmf.interactions.readers import reading

    if seen.kind == "csv":
        from fairmf.interactions.csv_reader import text_rows
        from fairmf.interactions.text_source import TextSource

        with reading(path, "CSV"):
            rows = list(text_rows(TextSource.of_file(path), seen.delimiter))
        place = seen.names.index(name)
        return [row[place] for row in rows[1 if seen.header else 0 :] if len(row) > place]
    with reading(path, seen.kind.capitalize()):
        if seen.kind == "parquet":
            import pyarrow.parquet as pq

            return list(pq.read_table(path, columns=[name]).column(0).to_pylist())
        from pyarrow import feather

        return list(feather.read_table(path, columns=[name]).column(0).to_pylist())
