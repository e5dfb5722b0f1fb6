"""Read events from a SQLite or PostgreSQL database.

URLs are parsed here so that no error and no record shows a password (docs/decisions/0002-dependencies.md says why no
library is used).
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from fairmf.data.collect import collect_batches
from fairmf.data.columns import ColumnName, Columns
from fairmf.data.events import Events
from fairmf.data.read import existing
from fairmf.errors import InvalidData, InvalidParameter, MissingDependency
from fairmf.lazy import lazy_module
from fairmf.version import install_command

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy_module("pyarrow")

_KINDS = {"sqlite": "sqlite", "postgresql": "postgresql", "postgres": "postgresql"}
_SECRET_OPTIONS = ("password", "sslpassword")
_HIDDEN = "***"
_EXAMPLES = "'sqlite:///events.db' or 'postgresql://user@host/database'"
_CONNECT_SECONDS = "10"


@dataclass(frozen=True)
class DatabaseUrl:
    """Hold the parts of a database URL. Neither `shown` nor the repr contains the password."""

    kind: str
    """"sqlite" or "postgresql"."""
    shown: str
    """The URL with `***` for the password."""
    address: str = field(repr=False)
    """The address for the driver: the file of a SQLite database, libpq's URL of a PostgreSQL server."""
    secrets: tuple[str, ...] = field(repr=False, default=())

    def censored(self, text: str) -> str:
        """Return the text with `***` for the password, quoted or not."""
        for secret in self.secrets:
            text = text.replace(secret, _HIDDEN)
        return text


def parse_database_url(url: object) -> DatabaseUrl:
    """Parse a URL. Errors quote no part of it that may be a password."""
    # SQLAlchemy's URL objects hide their password unless asked not to.
    text = url if isinstance(url, str) else getattr(url, "render_as_string", lambda **_: None)(hide_password=False)
    if not isinstance(text, str):
        raise InvalidParameter(f"'url' must be a database URL, such as {_EXAMPLES}. Got {type(url).__name__} instead.")
    scheme, colon, _ = text.partition("://")
    name = scheme.lower().partition("+")[0]  # SQLAlchemy's postgresql+psycopg2: the same server
    if not colon or not re.fullmatch(r"[a-zA-Z][\w.+-]*", scheme):
        raise InvalidParameter(f"'url' must be a database URL, such as {_EXAMPLES}; this one starts differently.")
    if name not in _KINDS:
        raise InvalidParameter(
            f"'url' must name a SQLite or PostgreSQL database, such as {_EXAMPLES}. Got one of {scheme}:// instead.",
            hint="read another database with its own driver and give the batches to read_arrow",
        )
    return _sqlite(text) if _KINDS[name] == "sqlite" else _postgresql(text)


def without_password(url: object) -> str:
    """Return the URL with `***` for the password, to be shown or recorded."""
    return parse_database_url(url).shown


def _sqlite(text: str) -> DatabaseUrl:
    # Three slashes and a relative path, or four and an absolute one, as SQLAlchemy has it.
    path = unquote(text.partition("://")[2].partition("?")[0])
    if not path.startswith("/") or path == "/" or path == "/:memory:":
        raise InvalidParameter(
            "A SQLite URL names a file after three slashes, such as 'sqlite:///events.db' (four for an absolute path, "
            f"'sqlite:////data/events.db'). Got {text!r} instead."
        )
    return DatabaseUrl("sqlite", text, path[1:])


def _postgresql(text: str) -> DatabaseUrl:
    try:
        parts = urlsplit(text)
    except ValueError:  # brackets that do not match: in the host, or in a password
        raise InvalidParameter(_unreadable()) from None
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    # An unquoted /, ?, # or @ in a password moves the rest of it to where drivers take it for a host or a name.
    strays = (user, password, parts.path, parts.query, parts.fragment)
    bad_quoting = re.search(r"%(?![0-9a-fA-F]{2})", password) or re.search(r"[\s\[\]]", login)
    if any("@" in part for part in strays) or parts.fragment or bad_quoting:
        raise InvalidParameter(_unreadable())
    options = parse_qsl(parts.query, keep_blank_values=True)
    secrets = {password, unquote(password)}
    for name, value in options:
        if name.lower() in _SECRET_OPTIONS:
            secrets |= {value, quote(value), quote(value, safe="")}
    hidden = [(name, _HIDDEN if name.lower() in _SECRET_OPTIONS else value) for name, value in options]
    shown_login = f"{user}:{_HIDDEN}@" if password else f"{login}@" if login else ""
    shown = _joined(parts.scheme, shown_login + hosts, parts.path, urlencode(hidden, safe="/*", quote_via=quote))
    if not any(name == "connect_timeout" for name, _ in options):
        options.append(("connect_timeout", _CONNECT_SECONDS))  # the system's own limit is minutes
    # libpq takes %20 for a blank, not +.
    address = _joined("postgresql", parts.netloc, parts.path, urlencode(options, quote_via=quote))
    # The longest first: a part of a secret must not hide the rest from the search.
    return DatabaseUrl("postgresql", shown, address, tuple(sorted(secrets - {""}, key=len, reverse=True)))


def _joined(scheme: str, netloc: str, path: str, options: str) -> str:
    # urlunsplit would drop the slashes before an empty host.
    return f"{scheme}://{netloc}{path}" + (f"?{options}" if options else "")


def _unreadable() -> str:
    return (
        "The database URL cannot be taken apart; characters such as @ / ? # : % and blanks in a user name or password "
        "must be written as urllib.parse.quote(password, safe='') gives them."
    )


_DRIVERS = {"sqlite": "adbc_driver_sqlite", "postgresql": "adbc_driver_postgresql"}
_DATABASES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
_SOURCE = "the query's answer"
# The SQLite driver infers the types of columns from the first batch, so that batch should be large.
_SQLITE_BATCH_ROWS = 1 << 17
_MOST_ROWS = 1 << 19
_READING_WORDS = ("SELECT", "WITH", "VALUES", "TABLE")
_TEXTS = r"'(?:[^']|'')*(?:'|\Z)|\"(?:[^\"]|\"\")*(?:\"|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)"
_REST = r"\s+|\w+|."
# Patterns that cut a statement into pieces. A quote that is not closed extends to the end, as in the database.
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
    """Read the result of a query from a SQLite or PostgreSQL database, in Arrow batches. Needs the extra `[sql]`.

    Parameters
    ----------
    query : str
        One statement that reads: SELECT, WITH, VALUES or TABLE. The database is opened for reading only.
    url : str
        As for SQLAlchemy: `sqlite:///events.db`, `postgresql://user:password@host:5432/database`. The password may
        also come from PGPASSWORD or ~/.pgpass; it never appears in an error.
    user, item, weights, time, rating, rating_above
        The columns, as in `read_frame`.

    Returns
    -------
    Events

    Raises
    ------
    InvalidData
        If the database cannot be opened or refuses the query, and as in `read_frame`.
    InvalidParameter
        If the URL is not one of these databases, or the query is not one statement that reads.
    MissingDependency
        If the driver is not installed.

    Examples
    --------
    >>> read_sql("SELECT customer AS user, product AS item FROM orders", "sqlite:///shop.db")  # doctest: +SKIP
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
                raise InvalidData("The query gives no columns.", hint="it must be one that reads, such as SELECT")
            return collect_batches(answer.schema.names, answer, columns, _SOURCE, _MOST_ROWS)


class _Closable(Protocol):
    def close(self) -> None: ...


def _close(opened: _Closable) -> None:
    """Close a cursor or a connection. After a failed query drivers before 1.13 raise a second error here."""
    with contextlib.suppress(Exception):
        opened.close()


def _statement(query: object, kind: str) -> str:
    """Return the query without trailing semicolons and comments; raise InvalidParameter unless it only reads.

    This is checked before the query is sent, because a read-only connection is not enough: SQLite's ATTACH creates
    files, and its driver runs the first of several statements and ignores the others.
    """
    if not isinstance(query, str):
        raise InvalidParameter(f"'query' must be an SQL query, such as 'SELECT user, item FROM events'. Got {query!r}.")
    # Quoted texts, names and comments are one piece each, so that semicolons inside them do not count.
    found = [(piece[0], piece.end()) for piece in _PIECES[kind].finditer(query) if not _SKIPPED.match(piece[0])]
    while found and found[-1][0] == ";":
        found.pop()
    if not found:
        raise InvalidParameter(f"'query' must be an SQL query, such as 'SELECT user, item FROM events'. Got {query!r}.")
    statement = query[: found[-1][1]].strip()
    words = [word for word, _ in found]
    if re.fullmatch(r"[\w.\"]+", statement):
        raise InvalidParameter(
            "'query' must be an SQL query, not the name of a table alone.", hint=f"write 'SELECT * FROM {statement}'"
        )
    if ";" in words:
        raise InvalidParameter("'query' must be one SQL statement. Got several, separated by semicolons.")
    # A query may begin with brackets: (SELECT ...) UNION (SELECT ...).
    first = next((word for word in words if word != "("), "")
    if first.upper() not in _READING_WORDS:
        raise InvalidParameter(
            f"'query' must be a statement that reads, one of {', '.join(_READING_WORDS)}. Got {first!r} instead."
        )
    return statement


def _driver(kind: str) -> ModuleType:
    name = _DRIVERS[kind]
    try:
        importlib.import_module(f"{name}.dbapi")
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingDependency(
            f"Reading from {_DATABASES[kind]} needs {name.replace('_', '-')}, which is not installed: "
            f"{install_command('sql')}"
        ) from error


@contextlib.contextmanager
def _explained(what: str, database: DatabaseUrl, driver: ModuleType) -> Iterator[None]:
    """Turn the driver's errors into InvalidData with a message of one line, without the password."""
    try:
        yield
    except InvalidData:
        raise
    except (driver.dbapi.Error, pa.ArrowException, OSError) as error:
        reason = _reason(str(error))
        if "Type mismatch" in reason:
            reason += "; give that column one type, such as CAST(user AS TEXT) AS user or CAST(plays AS REAL) AS plays"
        # Not "from error": the driver's message may quote the password, and a traceback would show it.
        raise InvalidData(database.censored(f"{what}: {reason}.")) from None


def _reason(message: str) -> str:
    """Return the database's own message, without the text that drivers add before and after it."""
    said = re.search(r"(?:ERROR|FATAL):\s+([^\n]*)", message)
    if said is not None:
        return said[1].strip().rstrip(".")
    text = re.split(r"\n\s*query: |\nQuery was: |\n\s*Is the server running", message)[0]
    text = re.sub(r"^[A-Z_]+: |\[\w+\] |Failed to (prepare query|execute query|step query|connect): ", "", text)
    return " ".join(text.split()).rstrip(".?") or "the driver gives no reason"
