"""The machine, in words that mean something to a reader elsewhere."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numba
import numpy as np
import scipy


def describe() -> str:
    return (
        f"{_processor()}, {os.cpu_count()} cores, {_memory()}; Python {platform.python_version()}, "
        f"NumPy {np.__version__}, SciPy {scipy.__version__}, Numba {numba.__version__}"
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return "memory unknown"
    return f"{size / 2**30:.0f} GiB"
