"""Hold the version of fairmf, and look up the versions of its dependencies."""

from __future__ import annotations

import functools
import platform
from collections.abc import Sequence
from importlib import metadata

__version__ = "0.1.0"


def versions(libraries: Sequence[str] = ("numpy", "numba", "scipy")) -> dict[str, str]:
    """Return the versions of Python and of libraries that can change the bits of a fit, without importing them."""
    return {
        "fairmf": __version__,
        "python": platform.python_version(),
        **{name: installed(name) or "unknown" for name in libraries},
    }


@functools.cache
def installed(distribution: str) -> str | None:
    """Return the version of an installed distribution; None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:  # or a bundled program came without its metadata
        return None
