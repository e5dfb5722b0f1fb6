"""A progress bar for long work: on a terminal only, and never in the way of one who asked for silence."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Advance = Callable[[str], None]


@contextlib.contextmanager
def progress_bar(title: str, total: int, show: bool | None) -> Iterator[Advance]:
    """Yield a function that advances the bar by one and sets its note. `show=None`: only if stderr is a terminal."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda _note: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=show is None) as bar:
        task = bar.add_task(title, total=total, note="")
        yield lambda note: bar.update(task, advance=1, note=note)
