"""Show progress bars for bytes that are read or downloaded, and for users whose lists are ranked."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fairmf.cli.terminal import marked, terminal
from fairmf.lazy import lazy_module
from fairmf.models.progress import progress_bar

if TYPE_CHECKING:
    from rich import progress as rich_progress

    from fairmf.cli.session import Session
    from fairmf.data.interactions import Interactions
    from fairmf.metrics.evaluate import Blocks, Ranker
else:
    rich_progress = lazy_module("rich.progress")


@contextlib.contextmanager
def byte_bar(session: Session, title: str) -> Iterator[Callable[[int, int | None], None] | None]:
    """Yield a function to call with the bytes so far and in total; None if no bar is shown."""
    if session.quiet or not sys.stderr.isatty():
        yield None
        return
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.DownloadColumn(),
        rich_progress.TransferSpeedColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=terminal(stderr=True), transient=True) as bar:
        task = bar.add_task(marked(title), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Watched:
    """Wrap a ranker so that it advances a progress bar."""

    def __getattr__(self, name: str) -> object:
        return getattr(self._ranker, name)

    def __init__(self, ranker: Ranker, advance: Callable[[str, int], None]):
        self._ranker = ranker
        self._advance = advance

    @property
    def n_items(self) -> int:
        return self._ranker.n_items

    def rank(self, history: Interactions, N: int, *, known_users: bool = False, **options: object) -> Blocks:
        for start, lists in self._ranker.rank(history, N, known_users=known_users, **options):
            yield start, lists
            if "items" not in options:  # a second ranking, of some items alone, is short: the bar stays full
                self._advance("", len(lists))


@contextlib.contextmanager
def watched(ranker: Ranker, n_users: int, session: Session, title: str = "rank") -> Iterator[Ranker]:
    """Yield the ranker with a progress bar, for functions such as `evaluate` that rank all users in one call."""
    with progress_bar(title, n_users, session.progress) as advance:
        yield _Watched(ranker, advance)
