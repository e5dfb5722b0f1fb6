"""Stand in for the part of CuPy that fairmf uses, on a machine without a GPU: for tests alone.

Arrays are NumPy's behind a class that keeps host and device apart (arrays.py); kernels are compiled by g++ and run as
fibers (kernels.py, threads.h). Put the folder above on PYTHONPATH, or set FAIRMF_CUDA_EMULATOR=1 for pytest.
"""

from types import SimpleNamespace

import numpy as np

from cupy import cuda
from cupy.arrays import empty, ndarray
from cupy.functions import KNOWN, asarray, ascontiguousarray, asnumpy, full, ones, zeros
from cupy.kernels import RawKernel, RawModule

__version__ = "0 (emulator)"
__all__ = [
    "RawKernel", "RawModule", "asarray", "ascontiguousarray", "asnumpy", "cuda", "empty", "full", "ndarray", "ones",
    "zeros",
]  # fmt: skip

float16, float32, float64 = np.float16, np.float32, np.float64
int32, int64, uint8, uint32, uint64, uintp = np.int32, np.int64, np.uint8, np.uint32, np.uint64, np.uintp
nan, generic = np.nan, np.generic
linalg = SimpleNamespace(**{name.partition(".")[2]: f for name, f in KNOWN.items() if name.startswith("linalg.")})
globals().update({name: f for name, f in KNOWN.items() if "." not in name})
