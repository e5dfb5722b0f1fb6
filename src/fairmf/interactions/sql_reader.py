"""Events from a database: the answer to a query, streamed as Arrow batches by an ADBC driver."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from fairmf.errors import InvalidData, InvalidParameter, MissingDependency
from fairmf.interactions.columns import ColumnName, Columns
from fairmf.interactions.database_urls import DatabaseUrl, parse_database_url
from fairmf.interactions.events import Events
from fairmf.interactions.readers import existing
from fairmf.interactions.record_batches import collect_batches

_DRIVERS = {"sqlite": "adbc_driver_sqlite", "postgresql": "adbc_driver_postgresql"}
_DATABASES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
_SOURCE = "the query's answer"
# The SQLite driver takes the types of columns from the first batch, so a batch should say something about the whole.
_SQLITE_BATCH_ROWS = 1 << 17
_MOST_ROWS = 1 << 19
_READING_WORDS = ("SELECT", "WITH", "VALUES", "TABLE")
_TEXTS = r"'(?:[^']|'')*(?:'|\Z)|\"(?:[^\"]|\"\")*(?:\"|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)"
_REST = r"\s+|\w+|."
# What one piece of a statement is. A text that is not closed goes on to the end, as it does for the database.
_PIECES = {
    "sqlite": re.compile(rf"{_TEXTS}|`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)|{_REST}", re.DOTALL),
    "postgresql": re.compile(
        rf"\b[eE]'(?:[^'\\]|''|\\.)*(?:'|\Z)|(?<![\w$])\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z)|{_TEXTS}|{_REST}",
        re.DOTALL,
    ),
}
_SKIPPED = re.compile(r"\s|--|/\*")


def read_sql(
    query: str,
    url: str,
    *,
    user: ColumnName = "user",
    item: ColumnName = "item",
    weights: ColumnName | None = None,
    time: ColumnName | None = None,
    rating: ColumnName | None = None,
    rating_above: float | None = None,
) -> Events:
    """Read the answer to `query` from the SQLite or PostgreSQL database at `url`. Needs the extra `[sql]`.

    `url` is written as for SQLAlchemy: `sqlite:///events.db`, `postgresql://user:password@host:5432/database`. The
    password may as well come from PGPASSWORD or ~/.pgpass; it never appears in an error. The columns are named as in
    `read_frame`. `query` is one statement that reads: SELECT, WITH, VALUES or TABLE. The answer is streamed in Arrow
    batches, and the database is opened for reading only.
    """
    columns = Columns(user, item, weights, time, rating, rating_above)
    database = parse_database_url(url)
    statement = _statement(query, database.kind)
    driver = _driver(database.kind)
    file = existing(database.address) if database.kind == "sqlite" else None
    with contextlib.ExitStack() as opened:
        with _explained(f"The database {database.shown} cannot be opened", database, driver):
            address = database.address if file is None else f"file:{quote(str(file))}?mode=ro"
            connection = driver.dbapi.connect(address)
            opened.callback(_close, connection)
            cursor = connection.cursor()
            opened.callback(_close, cursor)
        with _explained("The query failed", database, driver):
            if database.kind == "sqlite":
                cursor.adbc_statement.set_options(**{driver.StatementOptions.BATCH_ROWS.value: str(_SQLITE_BATCH_ROWS)})
            else:
                cursor.execute("SET TRANSACTION READ ONLY")
            cursor.execute(statement)
            answer = opened.enter_context(cursor.fetch_record_batch())
            if not answer.schema.names:
                raise InvalidData("The query gives no columns; it must be one that reads, such as SELECT.")
            return collect_batches(answer.schema.names, answer, columns, _SOURCE, _MOST_ROWS)


def _close(opened: Any) -> None:
    """Close a cursor or a connection. After a failed query drivers before 1.13 raise a second error here."""
    with contextlib.suppress(Exception):
        opened.close()


def _statement(query: object, kind: str) -> str:
    """The query without what follows it. Raises InvalidParameter unless it is one statement, and one that reads.

    This is checked before a database sees it, because a connection that is read-only in name still does some things:
    SQLite's ATTACH makes files, and its driver runs the first of several statements and forgets the others.
    """
    if not isinstance(query, str):
        raise InvalidParameter(f"'query' must be an SQL query, such as 'SELECT user, item FROM events'. Got {query!r}.")
    # Texts, names and comments are taken whole, so that what is left are the words and semicolons of the statement.
    found = [(piece[0], piece.end()) for piece in _PIECES[kind].finditer(query) if not _SKIPPED.match(piece[0])]
    while found and found[-1][0] == ";":
        found.pop()
    if not found:
        raise InvalidParameter(f"'query' must be an SQL query, such as 'SELECT user, item FROM events'. Got {query!r}.")
    statement = query[: found[-1][1]].strip()
    words = [word for word, _ in found]
    if re.fullmatch(r"[\w.\"]+", statement):
        raise InvalidParameter(
            f"'query' must be an SQL query, not the name of a table alone; write 'SELECT * FROM {statement}'."
        )
    if ";" in words:
        raise InvalidParameter("'query' must be one SQL statement. Got several, separated by semicolons.")
    first = next((word for word in words if word != "("), "")
    if first.upper() not in _READING_WORDS:
        raise InvalidParameter(
            f"'query' must be a statement that reads, one of {', '.join(_READING_WORDS)}. Got {first!r} instead."
        )
    return statement


def _driver(kind: str) -> Any:
    name = _DRIVERS[kind]
    try:
        importlib.import_module(f"{name}.dbapi")
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingDependency(
            f"Reading from {_DATABASES[kind]} needs {name.replace('_', '-')}, which is not installed: "
            f'pip install "fairmf[sql]"'
        ) from error


@contextlib.contextmanager
def _explained(what: str, database: DatabaseUrl, driver: Any) -> Iterator[None]:
    """Turn what the driver raises into one line of InvalidData in which the password does not occur."""
    import pyarrow as pa

    try:
        yield
    except InvalidData:
        raise
    except (driver.dbapi.Error, pa.ArrowException, OSError) as error:
        reason = _reason(str(error))
        if "Type mismatch" in reason:
            reason += "; give that column one type, such as CAST(user AS TEXT) AS user or CAST(plays AS REAL) AS plays"
        # Not "from error": the driver's own words may quote the password, and a trace would show them.
        raise InvalidData(database.censored(f"{what}: {reason}.")) from None


def _reason(message: str) -> str:
    """What the database says, without what drivers write around it."""
    said = re.search(r"(?:ERROR|FATAL):\s+([^\n]*)", message)
    if said is not None:
        return said[1].strip().rstrip(".")
    text = re.split(r"\n\s*query: |\nQuery was: |\n\s*Is the server running", message)[0]
    text = re.sub(r"^[A-Z_]+: |\[\w+\] |Failed to (prepare query|execute query|step query|connect): ", "", text)
    return " ".join(text.split()).rstrip(".?") or "the driver gives no reason"
