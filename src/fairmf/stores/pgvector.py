"""Write vectors to PostgreSQL with the extension pgvector: by a connection, or as a file for psql.

The table is replaced in one transaction: other sessions see the old one or the new one, whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.data.read_sql import parse_database_url
from fairmf.io.atomic import replacing
from fairmf.stores.export import bad_target, client_of, is_address, is_url, taken
from fairmf.stores.vectors import Vectors

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\x00": None})


def to_pgvector(found: Vectors, target: object, name: str, replace: bool) -> str:
    """Create the table with columns id, title and vector, and fill it with COPY."""
    if is_address(target) and not is_url(target):
        path = Path(str(target))
        if path.suffix.lower() != ".sql":
            raise bad_target("pgvector", target)
        _write_file(found, path, name, replace)
        return f"load it: psql DATABASE -v ON_ERROR_STOP=1 -f {path}. {_next(name)}"
    if is_url(target) and not str(target).startswith(("postgresql://", "postgres://")):
        raise bad_target("pgvector", target)
    with client_of("pgvector", target):
        import psycopg

        if isinstance(target, psycopg.Connection):
            _write(found, target, name, replace)
        else:
            with psycopg.connect(parse_database_url(target).address) as connection:
                _write(found, connection, name, replace)
    return _next(name)


def _next(name: str) -> str:
    return (
        f"search: SELECT id FROM {name} ORDER BY vector <#> QUERY LIMIT 10 (without an index, this looks at all rows)"
    )


def _write(found: Vectors, connection: Any, name: str, replace: bool) -> None:
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s)", [name])
        if cursor.fetchone()[0] is not None and not replace:
            raise taken("pgvector", name)
        for statement in _statements(found, name, replace):
            cursor.execute(statement)
        with cursor.copy(_copy(found, name)) as copy:
            for line in lines(found):
                copy.write(line)


def _write_file(found: Vectors, path: Path, name: str, replace: bool) -> None:
    with replacing(path) as file:
        file.write(b"BEGIN;\n")
        for statement in _statements(found, name, replace):
            file.write(f"{statement};\n".encode())
        file.write(f"{_copy(found, name)};\n".encode())
        for line in lines(found):
            file.write(line.encode())
        file.write(b"\\.\nCOMMIT;\n")


def _statements(found: Vectors, name: str, replace: bool) -> Iterator[str]:
    yield "CREATE EXTENSION IF NOT EXISTS vector"
    if replace:
        yield f"DROP TABLE IF EXISTS {name}"
    kind = "bigint" if found.numbered else "text"
    title = "" if found.titles is None else "title text, "
    yield f"CREATE TABLE {name} (id {kind} PRIMARY KEY, {title}vector vector({found.width}) NOT NULL)"


def _copy(found: Vectors, name: str) -> str:
    return f"COPY {name} (id, {'' if found.titles is None else 'title, '}vector) FROM STDIN"


def lines(found: Vectors) -> Iterator[str]:
    """Yield the rows in the text format of COPY. Nine digits are enough for every bit of a float32."""
    for id_, title, vector in found.rows():
        fields = [str(id_)] if title is None else [str(id_), title]
        yield "\t".join([*(field.translate(_ESCAPES) for field in fields), vector_text(vector)]) + "\n"


def vector_text(vector: NDArray[np.floating]) -> str:
    """Return a vector as pgvector reads it."""
    return "[" + ",".join(f"{x:.9g}" for x in vector.tolist()) + "]"
