"""Print text without control sequences, and format values as strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from fairmf.lazy import lazy_module
from fairmf.text import INVISIBLE, visible, whole

if TYPE_CHECKING:
    from rich import console as rich_console
    from rich import markup as rich_markup
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    from fairmf.types import Json
else:
    rich_console = lazy_module("rich.console")
    rich_markup = lazy_module("rich.markup")


def marked(value: object) -> str:
    """Escape text from data or from the user for rich's markup: one line, without control characters."""
    return rich_markup.escape(visible(value, one_line=True))


def terminal(*, stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console that makes control characters visible, even if a caller did not escape them."""

    class Terminal(rich_console.Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                shown = segment.text if segment.control else visible(segment.text)
                yield segment if shown == segment.text else segment._replace(text=shown)

    return Terminal(stderr=stderr, quiet=quiet, highlight=not stderr)


def echo(text: str, *, label: str = "", err: bool = False) -> None:
    """Print a label and a text, without interpreting markup."""
    typer.echo((f"{label} " if label else "") + visible(text), err=err)


def json_text(value: object) -> str:
    """Return the value as JSON. NaN and infinities become null; values of unknown types become text."""
    text = json.dumps(_plain(value), allow_nan=False, ensure_ascii=False)
    return INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)  # escape invisible characters as JSON does


def _plain(value: object) -> Json:
    if isinstance(value, dict):
        return {whole(str(name)): _plain(part) for name, part in value.items()}
    if hasattr(value, "tolist"):  # NumPy's arrays and scalars
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int)) else whole(str(value))
