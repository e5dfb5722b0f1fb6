"""Show a progress bar for long work: by default on a terminal only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from fairmf.lazy import lazy_module
from fairmf.text import visible

if TYPE_CHECKING:
    import rich.console as rich_console
    import rich.markup as rich_markup
    import rich.progress as rich_progress
else:
    rich_console, rich_markup = lazy_module("rich.console"), lazy_module("rich.markup")
    rich_progress = lazy_module("rich.progress")


class Advance(Protocol):
    """A function that moves the bar by some steps and sets the note at its end."""

    def __call__(self, note: str, steps: int = 1) -> None:
        """Move the bar by `steps`."""


@contextlib.contextmanager
def progress_bar(title: str, total: int, show: bool | None) -> Iterator[Advance]:
    """Yield a function that advances the bar by one and sets its note. `show=None`: only if stderr is a terminal."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda note, steps=1: None  # noqa: ARG005
        return
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn("{task.fields[rate]}"),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TextColumn("left"),
        rich_progress.TimeRemainingColumn(),
        rich_progress.TextColumn("{task.fields[note]}"),
    )
    console = rich_console.Console(stderr=True)
    with rich_progress.Progress(*columns, console=console, transient=show is None) as bar:
        task = bar.add_task(rich_markup.escape(visible(title, one_line=True)), total=total, note="", rate="")

        def advance(note: str, steps: int = 1) -> None:
            bar.update(task, advance=steps, note=note, rate=_rate(bar.tasks[0]))

        yield advance


def _rate(task: rich_progress.Task) -> str:
    """Return steps per second, or seconds per step if they are slow."""
    speed = task.finished_speed or task.speed
    if not speed:
        return ""
    return f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s" if speed >= 1 else f"{1 / speed:.1f} s each"
