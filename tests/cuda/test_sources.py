"""Test that the CUDA C sources compile for every kind of width, if a compiler is installed; no GPU is needed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from fairmf.backends.cuda import thread_blocks

SOURCES = Path(thread_blocks.__file__).parent / "kernels"
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="nvcc is not installed, so the CUDA sources cannot be compiled")


def compiles(text, tmp_path):
    source = tmp_path / "kernels.cu"
    source.write_text(text)
    command = [NVCC, "-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", "-cubin", "-o", tmp_path / "out", source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize(("factors", "half"), [(1, 0), (7, 0), (66, 1), (256, 0), (256, 1), (1030, 0), (8192, 0)])
@pytest.mark.parametrize("own", [False, True])
def test_row_kernels(factors, half, own, tmp_path):
    macros = thread_blocks.BlockShape(factors).defines(bool(half), own)
    defines = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    names = ("gathering.cuh", "eigenbasis_rows.cu", "residual_rows.cu")
    compiles(defines + "".join((SOURCES / name).read_text() for name in names), tmp_path)


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["random_start.cu", "reductions.cu", "row_matrices.cu", "subspace_rows.cu", "top_k.cu"]
)
def test_other_kernels(name, tmp_path):
    compiles((SOURCES / name).read_text(), tmp_path)


@pytest.mark.parametrize("factors", [1, 7, 32, 33, 64, 66, 100, 128, 130, 256, 257, 512, 1023, 1024, 1025, 4096, 8192])
def test_blocks_cover_every_column_and_fit_a_multiprocessor(factors):
    shape = thread_blocks.BlockShape(factors)
    assert factors % shape.floats_at_once == 0
    assert shape.slices * 32 * shape.lane_floats >= factors
    assert shape.threads <= 1024
    assert shape.lane_floats <= 32
    # Two vectors, a partial sum per group and the cache: what improve_rows asks for.
    assert 4 * factors * (2 + shape.groups) + shape.cache_bytes <= 227 << 10
