"""Make text from data safe for a terminal, a page or a spreadsheet.

Ids, titles, names of columns and files, and what errors quote of them, can hold anything.
"""

from __future__ import annotations

import re

# Control characters (ESC begins what a terminal obeys), marks that turn the direction of writing, halves of characters.
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_HALVES = re.compile("[\ud800-\udfff]")
FORMULA = "^'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""How a text begins that a spreadsheet runs, or that `unescaped` would change (a pattern of Python's and Arrow's)."""
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
"""Text that is a number begins so too, and is harmless."""


def visible(text: object, *, one_line: bool = False) -> str:
    """The text with what a terminal would obey written out, as Python does: ESC is `\\x1b`.

    With `one_line` line breaks and tabs are written out as well: no id can pretend to be a line of ours.
    """
    shown = INVISIBLE.sub(_written_out, str(text))
    return shown.replace("\n", "\\n").replace("\t", "\\t") if one_line else shown


def whole(text: str) -> str:
    """The text with a replacement character for each half of one, which no encoding can write."""
    return _HALVES.sub("\ufffd", text)


def _written_out(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
