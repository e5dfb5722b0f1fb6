"""Compile the CUDA C sources for the current device, and launch the kernels."""

from __future__ import annotations

import functools
from pathlib import Path

import cupy as cp

from fairmf.backends.cuda.thread_blocks import BlockShape

SOURCES = Path(__file__).parent / "kernels"


class RowKernels:
    """Hold the kernels over sparse rows, compiled for one number of factors."""

    def __init__(self, factors: int, half: bool, own: bool = False):
        self.shape = BlockShape(factors)
        self.groups = self.shape.groups
        sources = "gathering.cuh", "eigenbasis_rows.cu", "residual_rows.cu"
        self._module = compiled(*sources, **self.shape.defines(half, own))
        self._kernels: dict[str, cp.RawKernel] = {}

    def launch(
        self, name: str, blocks: int, arguments: tuple[object, ...], vectors: int = 0, cache: bool = False
    ) -> None:
        """Start a kernel. Each block gets shared memory for `vectors` d-vectors, and for a cache of a row's entries."""
        if blocks == 0:
            return
        size = 4 * vectors * self.shape.factors + cache * self.shape.cache_bytes
        kernel = self._kernels.get(name)
        if kernel is None:
            kernel = self._kernels[name] = self._module.get_function(name)
            # CUDA gives a kernel more than 48 KiB of shared memory only if it asks.
            if size > 48 << 10:
                kernel.max_dynamic_shared_size_bytes = size
        kernel((blocks,), (self.shape.threads,), arguments, shared_mem=size)


@functools.cache
def row_kernels(factors: int, half: bool, own: bool, device: int) -> RowKernels:  # noqa: ARG001 - a module is a device's
    """Return the kernels for that many factors, compiled or loaded from CuPy's disk cache on first use."""
    return RowKernels(factors, half, own)


@functools.cache
def kernel(source: str, name: str, device: int) -> cp.RawKernel:  # noqa: ARG001 - a module belongs to a device
    """Return a kernel that takes the number of factors as an argument, from a source file of its own."""
    return compiled(source).get_function(name)


@functools.cache
def compiled(*sources: str, **defines: int) -> cp.RawModule:
    """Compile these sources together as one module."""
    text = "\n".join((SOURCES / name).read_text(encoding="utf-8") for name in sources)
    options = ("-std=c++17", *(f"-D{name}={value}" for name, value in defines.items()))
    return cp.RawModule(code=text, options=options)
