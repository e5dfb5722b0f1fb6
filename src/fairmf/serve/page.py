"""Read the page at /, which has its styles and scripts inside and asks only this server."""

from __future__ import annotations

import functools
from pathlib import Path

HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
        b"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)


@functools.cache
def content() -> bytes:
    """Return the page."""
    return (Path(__file__).parent / "assets" / "try.html").read_bytes()
