"""Print text without control sequences, and JSON that every reader accepts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from fairmf.text import INVISIBLE, visible, whole

if TYPE_CHECKING:
    from rich.console import Console


def marked(value: object) -> str:
    """Escape text from data or from the user for rich's markup: one line, without control characters."""
    from rich.markup import escape

    return escape(visible(value, one_line=True))


def terminal(*, stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console that makes control characters visible, also where a caller forgot to."""
    from rich.console import Console
    from rich.segment import Segment

    class Terminal(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                shown = segment.text if segment.control else visible(segment.text)
                yield segment if shown == segment.text else Segment(shown, segment.style)

    return Terminal(stderr=stderr, quiet=quiet, highlight=not stderr)


def echo(text: str, *, label: str = "", err: bool = False) -> None:
    """Print one text without markup, after a label."""
    typer.echo((f"{label} " if label else "") + visible(text), err=err)


def json_text(value: Any) -> str:
    """Return one JSON text. NaN and infinities become null; values of other types become text."""
    text = json.dumps(_plain(value), allow_nan=False, ensure_ascii=False)
    return INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)  # escaped as JSON does


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {whole(str(name)): _plain(part) for name, part in value.items()}
    if hasattr(value, "tolist"):  # NumPy's arrays and scalars
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int)) else whole(str(value))
