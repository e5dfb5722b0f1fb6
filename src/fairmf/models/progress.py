"""Show a progress bar for long work: by default on a terminal and in a notebook only.

`Pace` estimates the time left. It gives recent steps more weight, and a step that takes longer than those before raises
the estimate while it runs, so that the bar never says "one second left" for minutes.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from fairmf.lazy import lazy_module
from fairmf.text import visible

if TYPE_CHECKING:
    import rich.console as rich_console
    import rich.markup as rich_markup
    import rich.progress as rich_progress

    from fairmf import html
else:
    html = lazy_module("fairmf.html")  # for notebooks only
    rich_console, rich_markup = lazy_module("rich.console"), lazy_module("rich.markup")
    rich_progress = lazy_module("rich.progress")

RECENT = 0.3  # weight of the newest step in the mean time of a step
REDRAW = 0.2  # seconds between two pictures of a bar in a notebook


class Advance(Protocol):
    """A function that moves the bar by some steps and sets the note at its end."""

    def __call__(self, note: str, steps: int = 1) -> None:
        """Move the bar by `steps`."""


@contextlib.contextmanager
def progress_bar(title: str, total: int, show: bool | None) -> Iterator[Advance]:
    """Yield a function that advances the bar by one and sets its note.

    `show=None` shows it if stderr is a terminal, or in a notebook. `total` may be a guess: where more steps follow, the
    bar is longer.
    """
    notebook = None if show is False else _notebook_display()
    if not (notebook is not None or sys.stderr.isatty() if show is None else show):
        yield lambda note, steps=1: None  # noqa: ARG005
        return
    pace = Pace(total)
    if notebook is not None:
        with _in_notebook(title, pace, notebook) as advance:
            yield advance
        return
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn("{task.fields[rate]}"),
        rich_progress.TimeElapsedColumn(),
        _left_column(pace),
        rich_progress.TextColumn("{task.fields[note]}"),
    )
    console = rich_console.Console(stderr=True)
    with rich_progress.Progress(*columns, console=console, transient=show is None) as bar:
        task = bar.add_task(rich_markup.escape(visible(title, one_line=True)), total=total, note="", rate="")

        def advance(note: str, steps: int = 1) -> None:
            pace.step(steps)
            bar.update(task, completed=pace.done, total=pace.total, note=note, rate=pace.rate())

        yield advance


@dataclass
class Pace:
    """How fast steps follow each other, and how long the rest will take.

    Attributes
    ----------
    total
        Number of steps that are expected.
    done
        Number of steps so far.
    each
        Seconds that a step takes: a mean in which recent steps count more. None before the first one.
    """

    total: int
    done: int = 0
    each: float | None = None
    began: float = field(default_factory=time.monotonic)
    last: float = 0.0

    def __post_init__(self) -> None:
        self.last = self.began

    def step(self, steps: int = 1, now: float | None = None) -> None:
        """Count some steps that are done now; none only changes the note."""
        if steps == 0:
            return
        now = time.monotonic() if now is None else now
        took = (now - self.last) / max(steps, 1)
        self.each = took if self.each is None else RECENT * took + (1 - RECENT) * self.each
        self.done, self.last = self.done + steps, now
        self.total = max(self.total, self.done)

    def left(self, now: float | None = None) -> float | None:
        """Return the seconds that are probably left; None before the first step is done."""
        if self.each is None:
            return None
        running = (time.monotonic() if now is None else now) - self.last
        steps = self.total - self.done
        if steps == 0:
            return 0.0
        if running <= self.each:
            return steps * self.each - running
        # The step that runs is slower than those before. Expect it to take as long again, and the others to be slower.
        slower = RECENT * running + (1 - RECENT) * self.each
        return (steps - 1) * slower + running

    def rate(self) -> str:
        """Return steps per second, or seconds per step if they are slow."""
        if not self.each:
            return ""
        speed = 1 / self.each
        return f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s" if speed >= 1 else f"{self.each:.1f} s each"


def clock(seconds: float) -> str:
    """Write a time as 0:07, 12:30 or 1:02:03."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def _left(pace: Pace) -> str:
    left = pace.left()
    return "" if left is None or pace.done == pace.total else f"about {clock(left)} left"


def _left_column(pace: Pace) -> Any:
    class Left(rich_progress.ProgressColumn):  # drawn anew all the time, also while a step runs
        def render(self, task: rich_progress.Task) -> str:  # noqa: ARG002
            return _left(pace)

    return Left()


# -- notebooks --------------------------------------------------------------------------------------------------------


def _notebook_display() -> Any:
    """Return IPython's `display` in a notebook; None anywhere else, also in IPython's terminal."""
    ipython = sys.modules.get("IPython")  # a notebook has imported it
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not getattr(shell, "kernel", None):
        return None
    return sys.modules["IPython"].display.display


@contextlib.contextmanager
def _in_notebook(title: str, pace: Pace, display: Any) -> Iterator[Advance]:
    """Show the bar as HTML, which needs no widgets, and draw it anew at most every REDRAW seconds."""
    drawn, words = time.monotonic(), ""
    handle = display(_Picture(title, pace, words), display_id=True)

    def advance(note: str, steps: int = 1) -> None:
        nonlocal drawn, words
        pace.step(steps)
        words = note
        if time.monotonic() - drawn >= REDRAW:
            handle.update(_Picture(title, pace, note))
            drawn = time.monotonic()

    try:
        yield advance
    finally:
        handle.update(_Picture(title, pace, words))


class _Picture:
    """A bar as it is now, as text and as HTML."""

    def __init__(self, title: str, pace: Pace, note: str):
        elapsed = clock(time.monotonic() - pace.began)
        parts = (f"{pace.done:,}/{pace.total:,}", pace.rate(), elapsed, _left(pace), note)
        self.title, self.words = title, " ".join(part for part in parts if part)
        self.done, self.total = pace.done, pace.total

    def __repr__(self) -> str:
        return f"{visible(self.title, one_line=True)} {visible(self.words, one_line=True)}"

    def _repr_html_(self) -> str:
        return html.bar(self.title, self.done, self.total, self.words)
