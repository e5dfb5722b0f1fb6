"""A bar for what is counted in bytes, files that are read or fetched: how much, how fast, how long still."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fairmf.cli.printed import marked, terminal

if TYPE_CHECKING:
    from fairmf.cli.session import Session


@contextlib.contextmanager
def byte_bar(session: Session, title: str) -> Iterator[Callable[[int, int | None], None] | None]:
    """A function to call with the bytes there are and will be; None where nothing is to be shown."""
    if session.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=terminal(stderr=True), transient=True) as bar:
        task = bar.add_task(marked(title), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
