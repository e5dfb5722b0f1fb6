"""Database URLs: which database is meant, and the same URL without its secrets, for errors and records."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from fairmf.errors import InvalidParameter

_KINDS = {"sqlite": "sqlite", "postgresql": "postgresql", "postgres": "postgresql"}
_SECRET_OPTIONS = ("password", "sslpassword")
_HIDDEN = "***"
_EXAMPLES = "'sqlite:///events.db' or 'postgresql://user@host/database'"
_CONNECT_SECONDS = "10"


@dataclass(frozen=True)
class DatabaseUrl:
    """A URL taken apart. Its text, with the password, is shown nowhere: not by repr either."""

    kind: str
    """"sqlite" or "postgresql"."""
    shown: str
    """The URL with `***` for the password."""
    address: str = field(repr=False)
    """What the driver takes: the file of a SQLite database, libpq's URL of a PostgreSQL server."""
    secrets: tuple[str, ...] = field(repr=False, default=())

    def censored(self, text: str) -> str:
        """The text without the password, as it was written or as it is meant."""
        for secret in self.secrets:
            text = text.replace(secret, _HIDDEN)
        return text


def parse_database_url(url: object) -> DatabaseUrl:
    """Take a URL apart. What is wrong with it is said without quoting any part that may be a password."""
    text = url if isinstance(url, str) else getattr(url, "render_as_string", lambda **_: None)(hide_password=False)
    if not isinstance(text, str):
        raise InvalidParameter(f"'url' must be a database URL, such as {_EXAMPLES}. Got {type(url).__name__} instead.")
    scheme, colon, _ = text.partition("://")
    name = scheme.lower().partition("+")[0]  # SQLAlchemy's postgresql+psycopg2: the same server
    if not colon or not re.fullmatch(r"[a-zA-Z][\w.+-]*", scheme):
        raise InvalidParameter(f"'url' must be a database URL, such as {_EXAMPLES}; this one does not start so.")
    if name not in _KINDS:
        raise InvalidParameter(
            f"'url' must name a SQLite or PostgreSQL database, such as {_EXAMPLES}. Got one of {scheme}:// instead; "
            f"read another database with its own driver and give the batches to read_arrow."
        )
    return _sqlite(text) if _KINDS[name] == "sqlite" else _postgresql(text)


def without_password(url: object) -> str:
    """The URL as it may be shown and recorded, with `***` for the password."""
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
