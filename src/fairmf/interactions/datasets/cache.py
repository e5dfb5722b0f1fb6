"""The folder that keeps downloaded data sets, which terms were accepted, and one process at a time per file."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from fairmf.errors import DownloadFailed, LicenceNotAccepted
from fairmf.interactions.datasets.registry import DataSet

_VARIABLE = "FAIRMF_DATA_CACHE"


def cache_folder() -> Path:
    """`FAIRMF_DATA_CACHE` where that is set, else the platform's folder for caches."""
    if given := os.environ.get(_VARIABLE):
        return Path(given).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fairmf" / "datasets"


def folder_of(entry: DataSet) -> Path:
    """The data set's own folder, made if it is not there."""
    folder = cache_folder() / entry.name
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says against writing there into DownloadFailed."""
    try:
        yield
    except DownloadFailed:
        raise
    except OSError as error:
        raise DownloadFailed(
            f"{path} cannot be written ({error.strerror or error}); make room or rights there, or name another folder "
            f"in the environment variable {_VARIABLE}."
        ) from error


def require_licence(entry: DataSet, accept: bool) -> None:
    """Note that the terms are accepted, once; LicenceNotAccepted shows them where they are not."""
    if licence_accepted(entry):
        return
    if not accept:
        raise LicenceNotAccepted(
            f"The data set {entry.name} comes under terms that you have to accept once. {entry.licence} "
            f"See {entry.home}. To accept, pass accept_licence=True."
        )
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    write_json(folder_of(entry) / "accepted.json", {"licence": entry.licence, "accepted": now})


def licence_accepted(entry: DataSet) -> bool:
    """Whether these very terms were accepted before."""
    return read_json(cache_folder() / entry.name / "accepted.json").get("licence") == entry.licence


def use_copy(entry: DataSet, path: Path) -> None:
    """Note that the data set is read from this copy from now on, which stays where it is."""
    write_json(folder_of(entry) / "copy.json", {"path": str(path.resolve())})


def registered_copy(entry: DataSet) -> Path | None:
    """The copy that `use_copy` noted, if it is still there."""
    noted = read_json(cache_folder() / entry.name / "copy.json").get("path")
    return Path(noted) if isinstance(noted, str) and Path(noted).exists() else None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a small record: whole, or not at all."""
    with writing(path):
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
        partial.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """The record, or an empty one where there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process holds this lock. The system lets go of it when a process ends, however it ends."""
    with writing(path):
        file = path.open("ab")
    with file:
        _lock(file)
        yield


def _lock(file: IO[bytes]) -> None:
    if sys.platform == "win32":
        import msvcrt
        import time

        while True:
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)  # gives up after ten seconds
                return
            except OSError:
                time.sleep(0.1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
