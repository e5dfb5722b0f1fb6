"""Make text from data safe for a terminal, a page or a spreadsheet.

Ids, titles, names of columns and files, and errors that quote them, may contain control characters or formulas.
"""

from __future__ import annotations

import re

# Control characters (ESC starts terminal commands), marks that change the writing direction, and lone surrogates.
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_HALVES = re.compile("[\ud800-\udfff]")
FORMULA = "^'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""Start of a text that a spreadsheet would run as a formula (a pattern for both Python and Arrow)."""
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
"""A number, which may start like a formula but is harmless."""


def visible(text: object, *, one_line: bool = False) -> str:
    """Escape control characters as Python does: ESC becomes `\\x1b`.

    With `one_line`, line breaks and tabs are escaped as well, so that an id cannot imitate a line of our output.
    """
    shown = INVISIBLE.sub(_written_out, str(text))
    # INVISIBLE leaves out line breaks and tabs, which are harmless in longer texts.
    return shown.replace("\n", "\\n").replace("\t", "\\t") if one_line else shown


def whole(text: str) -> str:
    """Replace lone surrogates, which no encoding can write, by the replacement character."""
    return _HALVES.sub("\ufffd", text)


def _written_out(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
