"""Export vectors to a store: `export_vectors(model, "qdrant", target)`. `STORES` lists what stores there are.

1. `vectors_of` computes ids, titles and vectors (vectors.py).
2. The row of `STORES` says who writes them: a client or a bulk file (databases.py), or SQL (pgvector.py).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fairmf.errors import CannotWrite, FairmfError, InvalidParameter, MissingDependency
from fairmf.lazy import lazy_module
from fairmf.stores.vectors import Vectors, What, vectors_of
from fairmf.version import install_command

if TYPE_CHECKING:
    from fairmf.models.evenness import Level
    from fairmf.models.factor_model import FactorModel
    from fairmf.stores import databases, pgvector
else:
    databases, pgvector = lazy_module("fairmf.stores.databases"), lazy_module("fairmf.stores.pgvector")

_NAME = re.compile("[a-z_][a-z0-9_]{0,54}")  # what all stores accept without quotes


@dataclass(frozen=True)
class Store:
    """A kind of store: where it is, what it needs, and who writes to it."""

    title: str
    targets: str
    """What a target looks like, for help and errors."""
    extra: str | None
    """The extra with the client; None if none is needed."""
    write: Callable[[Vectors, Any, str, bool], str]
    """(vectors, target, name, replace) -> a note on what to do next."""


@dataclass(frozen=True)
class Exported:
    """What was written, and a note on how to search it."""

    rows: int
    width: int
    name: str
    note: str


STORES: dict[str, Store] = {
    "qdrant": Store(
        "Qdrant", "a folder for the embedded one, or http://host:6333", "qdrant", lambda *a: databases.to_qdrant(*a)
    ),
    "pgvector": Store(
        "PostgreSQL with pgvector", "postgresql://user@host/database, or a file items.sql for psql", "pgvector",
        lambda *a: pgvector.to_pgvector(*a),
    ),
    "redis": Store("Redis", "redis://host:6379/0", "redis", lambda *a: databases.to_redis(*a)),
    "milvus": Store(
        "Milvus", "a file items.db for Milvus Lite, or http://host:19530", "milvus", lambda *a: databases.to_milvus(*a)
    ),
    "opensearch": Store("OpenSearch", "a file items.ndjson for _bulk", None, lambda *a: databases.to_opensearch(*a)),
    "elasticsearch": Store(
        "Elasticsearch", "a file items.ndjson for _bulk", None, lambda *a: databases.to_elasticsearch(*a)
    ),
}  # fmt: skip


def export_vectors(
    model: FactorModel,
    to: str,
    target: object,
    *,
    what: What = "items",
    evenness: float | Level | None = None,
    titles: Sequence[str] | None = None,
    name: str | None = None,
    replace: bool = False,
) -> Exported:
    """Write the vectors of items or users to a store that ranks by inner product.

    Balance, evenness and offsets are in the vectors: search with those of `query_vectors`, at the same evenness.

    Parameters
    ----------
    model
        A fitted model of factors.
    to
        "qdrant", "pgvector", "redis", "milvus", "opensearch" or "elasticsearch".
    target
        A URL, a file or a folder, as `STORES[to].targets` says; or an open client of the store: QdrantClient,
        MilvusClient, redis.Redis, psycopg.Connection.
    what
        "items" or "users".
    evenness
        As in `recommend`.
    titles
        A title for every item.
    name
        Name of the collection, table, index or prefix of keys. Default: fairmf_items or fairmf_users.
    replace
        Replace what the store has under this name.

    Returns
    -------
    Exported

    Raises
    ------
    InvalidParameter
        If there is no such store, or the name or the target cannot be used.
    CannotWrite
        If the store refuses, or has the name already and `replace` is False.
    MissingDependency
        If the client of the store is not installed.

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from fairmf import FairALS, synthetic
    >>> model = FairALS(factors=4, epochs=2).fit(synthetic(60, 40, 600), progress=False)
    >>> file = Path(tempfile.mkdtemp()) / "items.ndjson"
    >>> export_vectors(model, "opensearch", file, evenness=0.3).rows
    40
    >>> len(json.loads(file.read_text().splitlines()[1])["vector"])
    5
    """
    store = STORES.get(to)
    if store is None:
        raise InvalidParameter(f"'to' must be one of {', '.join(STORES)}. Got {to!r} instead.", parameter="to")
    if name is not None and not _NAME.fullmatch(name):
        raise InvalidParameter(
            f"A name has small letters, digits and _, and at most 55 of them. Got {name!r} instead.", parameter="name"
        )
    found = vectors_of(model, what, evenness=evenness, titles=titles)
    called = name or f"fairmf_{what}"
    note = store.write(found, target, called, replace)
    return Exported(len(found), found.width, called, note)


# -- what the stores share --------------------------------------------------------------------------------------------


def is_address(target: object) -> bool:
    """Return whether a target is a URL, a file or a folder, rather than an open client."""
    return isinstance(target, (str, Path))


def is_url(target: object) -> bool:
    """Return whether a target is a URL."""
    return isinstance(target, str) and "://" in target


def without_secrets(target: object) -> str:
    """Return a target without user, password and options, to be shown or recorded."""
    if not is_url(target):
        return str(target)
    try:
        parts = urlsplit(str(target))
        place = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
    except ValueError:
        return str(target).partition("://")[0] + "://***"
    return f"{parts.scheme}://{'***@' if parts.password or parts.username else ''}{place}"


def bad_target(to: str, target: object) -> InvalidParameter:
    """Return the error for a target that the store cannot have."""
    return InvalidParameter(
        f"{STORES[to].title} cannot be found at {without_secrets(target)}.", hint=f"give {STORES[to].targets}"
    )


def taken(to: str, name: str) -> CannotWrite:
    """Return the error for a name that is in use."""
    return CannotWrite(None, f"{STORES[to].title} has {name!r} already: replace it, or choose another name.")


@contextlib.contextmanager
def client_of(to: str, target: object) -> Iterator[None]:
    """Turn a missing client, and whatever the client raises, into errors of fairmf that show no password."""
    store = STORES[to]
    try:
        yield
    except FairmfError:
        raise
    except ImportError as error:
        raise MissingDependency(f"{store.title} needs a client: {install_command(store.extra or '')}") from error
    except Exception as error:  # every client has its own errors, without a base in common
        place = without_secrets(target) if is_address(target) else "the given client"
        said = " ".join(str(error).split()) or type(error).__name__
        if is_url(target) and (secret := urlsplit(str(target)).password):
            said = said.replace(secret, "***")
        raise CannotWrite(None, f"{store.title} at {place} refused: {said}") from error
