"""Replace files atomically (a reader sees the old file or the new one, never a part), and lock them."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fairmf.errors import CannotWrite
from fairmf.lazy import lazy_module

if TYPE_CHECKING:
    import filelock
else:
    filelock = lazy_module("filelock")

TEMPORARY = ".tmp"


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """Yield a file to write to. When the block ends, it replaces `target` in one step; after an error nothing changes.

    It is written beside `target` under another name, flushed to the disk, and renamed. A process that is killed
    meanwhile leaves a file `NAME.<random>.tmp` behind, and the old file as it was.
    """
    target = Path(os.path.realpath(target))  # if it is a link, replace the file that it points to
    temporary = target.with_name(f"{target.name}.{secrets.token_hex(6)}{TEMPORARY}")
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        if target.exists() and not target.is_file():  # renaming over a device would remove the device
            raise OSError(errno.EINVAL, "it is a device or a pipe")
        # 0o666 is what open() asks for: the user's umask decides, as for any other file.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise _refusal(target, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            # Keep the permissions of the file that is replaced.
            if target.exists() and hasattr(os, "fchmod"):
                os.fchmod(handle, target.stat().st_mode & 0o7777)
            yield file
            file.flush()
            os.fsync(handle)
        temporary.replace(target)
    except BaseException as error:  # also on Ctrl-C: never leave half a file
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise _refusal(target, error) from error
        raise
    _sync_folder(target.parent)


class Busy(Exception):
    """Another process holds the lock."""


@contextlib.contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock file `path`, which other processes respect; the file stays behind.

    The system releases the lock when the process ends, even when it is killed. Without `wait`, a lock that another
    process holds raises Busy. On a file system without locks this does nothing.
    """
    # -1 waits without end, 0 not at all.
    lock = filelock.FileLock(path, timeout=-1 if wait else 0)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise Busy from error
    except NotImplementedError:
        pass
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
    try:
        yield
    finally:
        lock.release()


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder that fairmf writes; raise CannotWrite if it is a link to another folder.

    The folder may come from somebody else: a link in it must not let us overwrite files elsewhere.
    """
    path = folder / name
    if path.is_symlink() and Path(os.path.realpath(path)).parent != Path(os.path.realpath(folder)):
        raise CannotWrite(errno.ELOOP, f"{path} cannot be written: it is a link to a file outside of the folder")
    return path


def _refusal(target: Path, error: OSError) -> CannotWrite:
    reason = error.strerror or str(error)
    return CannotWrite(error.errno, f"{target} cannot be written: {reason}. An earlier file is unchanged")


def _sync_folder(folder: Path) -> None:
    """Flush the folder to the disk, so that the rename survives a power cut."""
    if os.name == "nt":  # folders cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
