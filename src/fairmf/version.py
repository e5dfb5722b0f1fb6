"""Hold the version of fairmf, look up the versions of its dependencies, and say how to install its extras."""

from __future__ import annotations

import functools
import platform
import re
import sys
from collections.abc import Sequence
from importlib import metadata

__version__ = "1.0.0"


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


def extras() -> dict[str, list[str]]:
    """Return the packages that each extra brings, as this version declares them: {"ann": ["faiss-cpu>=1.9"], ...}."""
    found: dict[str, list[str]] = {}
    try:
        declared = metadata.requires("fairmf") or []
    except metadata.PackageNotFoundError:
        return found
    for requirement in declared:
        package, _, condition = requirement.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", condition)
        elsewhere = "sys_platform != 'win32'" in condition.replace('"', "'") and sys.platform == "win32"
        if extra is not None and not elsewhere:
            found.setdefault(extra[1], []).append(package.strip())
    return found


def install_command(extra: str) -> str:
    """Return the command that installs an extra, for messages.

    pip finds `fairmf[ann]` on an index only. Where fairmf came from a checkout, a file or a repository (PEP 610), the
    command names the packages of the extra instead, which works everywhere.

    Parameters
    ----------
    extra : str
        The name of an extra, such as "ann".

    Returns
    -------
    `pip install "fairmf[ann]"`, or `pip install "faiss-cpu>=1.9"`.
    """
    packages = extras().get(extra)
    if packages and metadata.distribution("fairmf").read_text("direct_url.json"):
        return "pip install " + " ".join(f'"{package}"' for package in packages)
    return f'pip install "fairmf[{extra}]"'
