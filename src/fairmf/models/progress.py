"""A progress bar for long work: on a terminal only, and never in the way of one who asked for silence."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, Protocol

from fairmf.text import visible


class Advance(Protocol):
    """Moves the bar by some steps, one by default, and sets the note at its end."""

    def __call__(self, note: str, steps: int = 1) -> None:
        """Advance."""


@contextlib.contextmanager
def progress_bar(title: str, total: int, show: bool | None) -> Iterator[Advance]:
    """Yield a function that advances the bar by one and sets its note. `show=None`: only if stderr is a terminal."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda note, steps=1: None  # noqa: ARG005
        return
    from rich.console import Console
    from rich.markup import escape
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
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=show is None) as bar:
        task = bar.add_task(escape(visible(title, one_line=True)), total=total, note="", rate="")

        def advance(note: str, steps: int = 1) -> None:
            bar.update(task, advance=steps, note=note, rate=_rate(bar.tasks[0]))

        yield advance


def _rate(task: Any) -> str:
    """Steps a second, or seconds a step where that says more."""
    speed = task.finished_speed or task.speed
    if not speed:
        return ""
    return f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s" if speed >= 1 else f"{1 / speed:.1f} s each"
