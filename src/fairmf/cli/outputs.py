"""Whether a result can be written where it is wanted: asked before an hour's work rather than after it."""

from __future__ import annotations

import os
from pathlib import Path

from fairmf.errors import CannotWrite


def check_output(path: Path) -> None:
    """Raise CannotWrite if a file of that name cannot be made; a folder that is missing is made."""
    reason = _obstacle(path)
    if reason:
        raise CannotWrite(None, f"{path} cannot be written: {reason}")


def _obstacle(path: Path) -> str:
    if path.is_dir():
        return "it is a folder"
    if path.exists() and not path.is_file():
        return "it is a device or a pipe"
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"its folder cannot be made ({error.strerror})"
    return "" if os.access(folder, os.W_OK) else f"there is no right to write in {folder}"


def make_folder(path: Path) -> None:
    """Make the folder, with those above it; CannotWrite says why not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(error.errno, f"{path} cannot be written: {error.strerror}") from error
