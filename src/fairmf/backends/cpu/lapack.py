"""SciPy's own BLAS and LAPACK, callable inside Numba kernels without Python and without allocation.

The addresses are registered with LLVM under a name of ours, so that compiled kernels can still be cached on disk (a
ctypes pointer inside a kernel could not). All arguments are addresses, as Fortran passes them.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from numba import types
from numba.extending import get_cython_function_address


def _external(module: str, name: str, arguments: int) -> Any:
    symbol = f"fairmf_{name}"
    llvm.add_symbol(symbol, get_cython_function_address(f"scipy.linalg.{module}", name))
    return types.ExternalFunction(symbol, types.void(*[types.uintp] * arguments))


# C = alpha A A' + beta C on one triangle: (uplo, trans, n, k, alpha, a, lda, beta, c, ldc)
ssyrk = _external("cython_blas", "ssyrk", 10)
# Solve A X = B for symmetric positive definite A, in place: (uplo, n, nrhs, a, lda, b, ldb, info)
sposv = _external("cython_lapack", "sposv", 8)
# Inverse from the Cholesky factor that sposv leaves, in place, one triangle: (uplo, n, a, lda, info)
spotri = _external("cython_lapack", "spotri", 5)
