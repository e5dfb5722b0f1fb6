"""Compile the CUDA C sources for the present device."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import cupy as cp

from fairmf.backends.cuda.shapes import BlockShape

SOURCES = Path(__file__).parent / "kernels"


class RowKernels:
    """The kernels over sparse rows for one number of factors."""

    def __init__(self, factors: int, half: bool):
        self.shape = BlockShape(factors)
        self.groups = self.shape.groups
        sources = "gathering.cuh", "eigenbasis_rows.cu", "residual_rows.cu"
        self._module = compiled(*sources, **self.shape.defines(half))
        self._kernels: dict[str, Any] = {}

    def launch(self, name: str, blocks: int, arguments: tuple[Any, ...], vectors: int = 0, cache: bool = False) -> None:
        """Start a kernel whose blocks share `vectors` vectors of their own, and perhaps a cache of a row's entries."""
        if blocks == 0:
            return
        size = 4 * vectors * self.shape.factors + cache * self.shape.cache_bytes
        kernel = self._kernels.get(name)
        if kernel is None:
            kernel = self._kernels[name] = self._module.get_function(name)
            if size > 48 << 10:
                kernel.max_dynamic_shared_size_bytes = size
        kernel((blocks,), (self.shape.threads,), arguments, shared_mem=size)


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
