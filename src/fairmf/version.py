"""The version of this library, and of those it stands on, also for parts of it that may not import the front door."""

from __future__ import annotations

import functools
import platform
from collections.abc import Sequence
from importlib import metadata

__version__ = "0.1.0"


def versions(libraries: Sequence[str] = ("numpy", "numba", "scipy")) -> dict[str, str]:
    """What a fit's bits may depend on. Nothing is imported for it."""
    return {
        "fairmf": __version__,
        "python": platform.python_version(),
        **{name: installed(name) or "unknown" for name in libraries},
    }


@functools.cache
def installed(distribution: str) -> str | None:
    """The version of an installed distribution; None where there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:  # or packed into one program, without the records of what is in it
        return None
