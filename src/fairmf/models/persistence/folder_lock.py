"""One fit at a time in a folder of checkpoints. The system releases the lock of a process that dies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from fairmf.errors import CannotWrite, InvalidParameter

try:
    import fcntl
except ImportError:  # Windows: nothing guards the folder there
    fcntl = None  # type: ignore[assignment]

NAME = "lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder if need be, and hold it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / NAME).open("ab")
    except OSError as error:
        reason = error.strerror or str(error)
        raise CannotWrite(error.errno, f"{folder} cannot be used for checkpoints: {reason}") from error
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InvalidParameter(
                    f"Another fit is using the checkpoint folder {folder}: give each its own."
                ) from error
            except OSError:  # a file system without locks: as on Windows, nothing guards the folder
                pass
        yield
