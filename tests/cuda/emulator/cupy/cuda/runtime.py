"""Stand in for cupy.cuda.runtime."""

import shutil

from cupy.arrays import TOTAL_BYTES, allocated


class CUDARuntimeError(RuntimeError):
    """An error of the driver."""


def getDeviceCount():  # noqa: N802 - CuPy's name
    """Return 1: the emulator, where there is a compiler for its kernels."""
    if shutil.which("g++") is None:
        raise CUDARuntimeError("the emulator in tests/cuda needs g++, which is not installed")
    return 1


def getDeviceProperties(device):  # noqa: N802
    """Return the properties of the device."""
    return {"name": b"emulator"}


def memGetInfo():  # noqa: N802
    """Return free and total bytes."""
    return TOTAL_BYTES - allocated["bytes"], TOTAL_BYTES
