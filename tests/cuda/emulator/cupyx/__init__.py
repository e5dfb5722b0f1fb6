"""Stand in for cupyx."""

import numpy as np


def empty_pinned(shape, dtype=float):
    """Return an array in the host's memory. It holds NaN, as any new memory of the emulator."""
    return np.frombuffer(bytearray(b"\xff" * (int(np.prod(shape)) * np.dtype(dtype).itemsize)), dtype=dtype).reshape(
        shape
    )
