"""Show progress bars for bytes that are read or downloaded, and for users whose lists are ranked."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from fairmf.cli.terminal import marked, terminal
from fairmf.models.progress import progress_bar

if TYPE_CHECKING:
    from fairmf.cli.session import Session


@contextlib.contextmanager
def byte_bar(session: Session, title: str) -> Iterator[Callable[[int, int | None], None] | None]:
    """Yield a function to call with the bytes so far and in total; None where no bar is to be shown."""
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


class _Watched:
    """A ranker that advances a progress bar."""

    def __init__(self, ranker: Any, advance: Any):
        self._ranker = ranker
        self._advance = advance

    @property
    def n_items(self) -> int:
        return int(self._ranker.n_items)

    def rank(self, history: Any, N: int, **options: Any) -> Iterator[Any]:
        for start, lists in self._ranker.rank(history, N, **options):
            yield start, lists
            self._advance("", len(lists))


@contextlib.contextmanager
def watched(ranker: Any, n_users: int, session: Session, title: str = "rank") -> Iterator[Any]:
    """Yield the same ranker with a progress bar, for `evaluate` and others that rank all users in one call."""
    with progress_bar(title, n_users, session.progress) as advance:
        yield _Watched(ranker, advance)
