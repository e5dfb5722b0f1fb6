"""Import Optuna when it is needed, silence it, and open the file or database in which it stores trials."""

from __future__ import annotations

import contextlib
import importlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fairmf.errors import InvalidParameter, MissingDependency
from fairmf.version import install_command

if TYPE_CHECKING:
    from optuna.storages import BaseStorage


def import_optuna() -> ModuleType:
    """Import Optuna; raise MissingDependency, which says how to install it, if it is missing."""
    try:
        return importlib.import_module("optuna")
    except ImportError as error:
        raise MissingDependency(f"Tuning needs Optuna, which is not installed: {install_command('tune')}") from error


@contextlib.contextmanager
def quietly(optuna: ModuleType) -> Iterator[None]:
    """Silence Optuna's messages on new studies and on experimental features."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


@contextlib.contextmanager
def opened(optuna: ModuleType, storage: str | os.PathLike[str] | None) -> Iterator[BaseStorage]:
    """Open a SQLite file (made if absent), a database by its URL, or memory; close its connections at the end."""
    store = _storage(optuna, storage)
    try:
        yield store
    finally:
        if hasattr(store, "engine"):  # an open connection would lock the file
            store.remove_session()
            store.engine.dispose()


def _storage(optuna: ModuleType, storage: str | os.PathLike[str] | None) -> BaseStorage:
    if storage is None:
        return optuna.storages.InMemoryStorage()
    url = os.fspath(storage)
    if "://" not in url:
        path = Path(url).absolute()
        if path.is_dir() or not path.parent.is_dir():
            raise InvalidParameter(
                f"The 'storage' parameter of tune must be a file in an existing folder. Got {url!r}."
            )
        if path.is_file() and path.stat().st_size and not _is_sqlite(path):
            raise InvalidParameter(
                f"The 'storage' parameter of tune must be a file of trials or a new one: {url!r} cannot be used "
                "(file is not a database)."
            )
        url = f"sqlite:///{path}"
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return optuna.storages.RDBStorage(url)
    except SQLAlchemyError as error:
        reason = getattr(error, "orig", None) or type(error).__name__  # its text may contain the password of a URL
        shown = "the database" if "://" in os.fspath(storage) else repr(os.fspath(storage))
        raise InvalidParameter(
            f"The 'storage' parameter of tune must be a file of trials or a new one: {shown} cannot be used ({reason})."
        ) from None


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"
