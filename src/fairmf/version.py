"""The version of this library and of its dependencies, for modules that may not import `fairmf` itself."""

from __future__ import annotations

import functools
import platform
from collections.abc import Sequence
from importlib import metadata

__version__ = "0.1.0"


def versions(libraries: Sequence[str] = ("numpy", "numba", "scipy")) -> dict[str, str]:
    """Return the versions that the bits of a fit may depend on, without importing anything."""
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
    except metadata.PackageNotFoundError:  # or it is bundled into one program without its metadata
        return None
