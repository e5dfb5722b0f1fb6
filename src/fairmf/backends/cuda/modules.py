"""The CUDA C sources, compiled for the present device and number of factors when they are first needed."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import cupy as cp

SOURCES = Path(__file__).parent / "kernels"
WIDEST = 1024  # factors one warp holds in registers; longer vectors are shared by several warps
WARPS = 4  # warps of a block where a vector needs no more
CACHED = 64  # entries of a row whose vectors are kept from one pass to the next
CACHE_BYTES = 48 << 10  # and how much of a multiprocessor's memory a block may take for it


class RowKernels:
    """The kernels over sparse rows for one number of factors, and the shape of their blocks."""

    def __init__(self, factors: int, half: bool):
        self.slices = -(-factors // WIDEST)
        self.groups = max(1, WARPS // self.slices)
        self.threads = 32 * self.slices * self.groups
        at_once = self.groups * entries_at_once(factors)
        padded = 4 * 32 * self.slices * lane_floats(factors)
        rounds = min(CACHED, CACHE_BYTES // padded) // at_once
        self.cache_bytes = rounds * at_once * padded
        self._row_bytes = 4 * factors
        defines = {
            "D": factors, "VEC": floats_at_once(factors), "SLICES": self.slices, "GROUPS": self.groups,
            "HALF": int(half), "CACHED": rounds,
        }  # fmt: skip
        self._module = compiled("gathering.cuh", "eigenbasis_rows.cu", "residual_rows.cu", **defines)
        self._kernels: dict[str, Any] = {}

    def launch(self, name: str, blocks: int, arguments: tuple[Any, ...], vectors: int = 0, cache: bool = False) -> None:
        """Start a kernel whose blocks share `vectors` vectors of their own, and perhaps a cache of a row's entries."""
        if blocks == 0:
            return
        size = vectors * self._row_bytes + cache * self.cache_bytes
        kernel = self._kernels.get(name)
        if kernel is None:
            kernel = self._kernels[name] = self._module.get_function(name)
            if size > 48 << 10:
                kernel.max_dynamic_shared_size_bytes = size
        kernel((blocks,), (self.threads,), arguments, shared_mem=size)


@functools.cache
def row_kernels(factors: int, half: bool, device: int) -> RowKernels:  # noqa: ARG001 - a module belongs to a device
    """The kernels for that many factors; compiled, or taken from CuPy's cache on disk, on first use."""
    return RowKernels(factors, half)


@functools.cache
def kernel(source: str, name: str, device: int) -> Any:  # noqa: ARG001
    """A kernel that takes the number of factors as an argument."""
    return compiled(source).get_function(name)


@functools.cache
def compiled(*sources: str, **defines: int) -> Any:
    """A module of these sources together."""
    text = "\n".join((SOURCES / name).read_text(encoding="utf-8") for name in sources)
    options = ("-std=c++17", *(f"-D{name}={value}" for name, value in defines.items()))
    return cp.RawModule(code=text, options=options)


def lane_floats(factors: int) -> int:
    """LANE of gathering.cuh: floats of a vector that one lane holds."""
    slices, at_once = -(-factors // WIDEST), floats_at_once(factors)
    columns = math.ceil(factors / slices / at_once) * at_once
    return math.ceil(columns / (32 * at_once)) * at_once


def entries_at_once(factors: int) -> int:
    """BATCH of gathering.cuh."""
    lane = lane_floats(factors)
    return 8 if lane <= 4 else 4 if lane <= 8 else 2 if lane <= 16 else 1


def floats_at_once(factors: int) -> int:
    """Floats of one load by a lane: as many as divide the vector, and keep all 32 lanes busy."""
    if factors % 4 == 0 and factors >= 128:
        return 4
    return 2 if factors % 2 == 0 and factors >= 64 else 1
