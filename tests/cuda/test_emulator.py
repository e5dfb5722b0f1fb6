"""Test the emulated device itself: it finds what would be an error on a real one, and the cuda tests run on it.

`test_the_cuda_tests_pass_on_an_emulated_device` starts pytest once more with FAIRMF_CUDA_EMULATOR=1, so that machines
without a GPU check the arithmetic of the cuda backend too. All others run within that.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import EMULATED

from fairmf import FairALS, synthetic
from fairmf.backends.registry import what_is_missing

TESTS = Path(__file__).resolve().parents[1]
MISSING = what_is_missing() if EMULATED else "runs within test_the_cuda_tests_pass_on_an_emulated_device"
emulated = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

CHOSEN = (
    "backends", "contracts", "models/test_features.py", "models/test_dislikes.py", "cuda/test_emulator.py",
    "cuda/test_devices.py", "cuda/test_streaming.py", "cuda/test_fits.py",
)  # fmt: skip
# What the contract tests show in less time: whole fits are long.
LEFT_OUT = (
    "not weighted-iALS and not weighted-FairALS and not 40 and not lists_and_fold_in and not gradients_are_zero"
    " and not fiadmm_uses_features"
)


@pytest.mark.slow
@pytest.mark.skipif(EMULATED or what_is_missing() is None, reason="the cuda tests run here as they are")
@pytest.mark.skipif(
    shutil.which("g++") is None, reason="g++, which compiles kernels for the emulator, is not installed"
)
def test_the_cuda_tests_pass_on_an_emulated_device():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", f"cuda and {LEFT_OUT}"]
    done = subprocess.run(
        [*command, *(str(TESTS / name) for name in CHOSEN)], cwd=TESTS.parent, capture_output=True, text=True,
        env=os.environ | {"FAIRMF_CUDA_EMULATOR": "1"}, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passed = int(done.stdout.rpartition(" passed")[0].split()[-1])
    assert passed >= 280, done.stdout[-2000:]


def kernel(body, name="k", parameters="float* out"):
    import cupy

    return cupy.RawModule(code=f'extern "C" __global__ void {name}({parameters}) {{ {body} }}').get_function(name)


def run(body, threads=64, blocks=1, size=64):
    """What a kernel writes to an array of floats."""
    import cupy

    out = cupy.empty(size, dtype=cupy.float32)
    kernel(body)((blocks,), (threads,), (out,))
    return out.get()


@emulated
def test_shuffles_and_barriers_mean_what_they_mean_on_a_device():
    found = run("""
        __shared__ float shared[64];
        float lane = threadIdx.x % 32, sum = lane;
        for (int bit = 16; bit >= 1; bit /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
        shared[threadIdx.x] = sum + __shfl_sync(0xffffffffu, lane, 3) + threadIdx.x;
        __syncthreads();
        out[threadIdx.x] = shared[63 - threadIdx.x];
    """)
    np.testing.assert_array_equal(found, 31 * 32 / 2 + 3 + 63 - np.arange(64))


@emulated
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("if (threadIdx.x == 7) return; __syncthreads();", "which others never reach; 1 of 64 threads have left"),
        ("if (threadIdx.x < 40) __shfl_sync(0xffffffffu, 1.0f, 0);", "wait at __shfl_sync .* others never reach"),
        ("if (threadIdx.x < 32)\n __syncthreads();\n else\n __syncthreads();", "threads diverge"),
        ("out[64 + threadIdx.x % 4] = 1;", "k writes beyond the array of argument 0"),
        ("out[-1] = 1;", "k writes beyond the array of argument 0"),
        ("extern __shared__ float memory[]; memory[3] = 1;", "writes beyond its dynamic shared memory"),
    ],
)
def test_errors_that_a_device_would_not_tell(body, message):
    with pytest.raises(RuntimeError, match=message):
        run(body)


@emulated
def test_memory_that_nobody_wrote_is_nan():
    import cupy

    assert np.isnan(run("__shared__ float sum; out[threadIdx.x] = sum;")).all()
    assert np.isnan(cupy.empty(3).get()).all()


@emulated
def test_launches_with_the_wrong_arguments():
    import cupy

    launch, out = kernel("out[0] = n;", parameters="float* out, long long n"), cupy.empty(4, dtype=cupy.float32)
    launch((1,), (32,), (out, np.int64(5)))
    assert out.get()[0] == 5
    matrix = cupy.zeros((4, 4), dtype=cupy.float32)
    for arguments in [(out,), (out, np.int32(5)), (out, 5), (cupy.empty(4), np.int64(5)), (matrix[:, 1], np.int64(5))]:
        with pytest.raises(TypeError):
            launch((1,), (32,), arguments)
    for grid, block, shared in [((0,), (32,), 0), ((1,), (2048,), 0), ((1, 65536), (32,), 0), ((1,), (32,), 49_153)]:
        with pytest.raises(RuntimeError):
            launch(grid, block, (out, np.int64(5)), shared_mem=shared)


@emulated
def test_host_and_device_do_not_mix():
    import cupy

    device, host = cupy.ones(3), np.ones(3)
    for call in (
        lambda: device + host,
        lambda: host * device,
        lambda: np.asarray(device),
        lambda: np.dot(host, device),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError):
        device[:] = host
    with pytest.raises(TypeError, match="has no function fft"):
        np.fft.fft(device)
    assert isinstance(np.outer(device, device) + 1.0, cupy.ndarray)


@emulated
@pytest.mark.parametrize("solver", ["eigenbasis_cg", "cholesky", "subspace"])
def test_the_order_of_blocks_and_threads_does_not_matter(solver, monkeypatch):
    """No sum of the cuda backend depends on the schedule: the last threads may as well run first."""
    for name, entries in {"LONG": 24, "CHUNK": 8}.items():  # so that some of these rows are cut into chunks
        monkeypatch.setattr(f"fairmf.backends.cuda.memory.{name}", entries)
    data = synthetic(40, 60, 800, random_state=0)
    model = FairALS(factors=12, epochs=2, solver=solver, backend="cuda", fairness=1.0)
    forward = model.fit(data, progress=False)
    lists = forward.recommend(data.user_ids.values, N=5)
    monkeypatch.setenv("FAIRMF_CUDA_EMULATOR_ORDER", "backward")
    backward = FairALS(factors=12, epochs=2, solver=solver, backend="cuda", fairness=1.0).fit(data, progress=False)
    np.testing.assert_array_equal(forward.user_factors, backward.user_factors)
    np.testing.assert_array_equal(forward.item_factors, backward.item_factors)
    for ours, theirs in zip(lists, backward.recommend(data.user_ids.values, N=5), strict=True):
        np.testing.assert_array_equal(ours, theirs)
