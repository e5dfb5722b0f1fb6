"""Stand in for cuBLAS: the routines that fairmf calls, with the arguments of CuPy's bindings."""

import numpy as np

from cupy_backends.cuda.libs.addresses import matrices, matrix, numbers

CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER = 0, 1
CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT = 0, 1
CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT = 0, 1


def sgemmStridedBatched(  # noqa: N802
    handle, transa, transb, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c, count
):  # fmt: skip
    """Set C = alpha op(A) op(B) + beta C for a stack of matrices."""
    alpha, beta = (numbers(x, 1, np.float32)[0] for x in (alpha, beta))
    for at in range(count):
        left = matrix(a + 4 * stride_a * at, *((m, k) if transa == CUBLAS_OP_N else (k, m)), lda)
        right = matrix(b + 4 * stride_b * at, *((k, n) if transb == CUBLAS_OP_N else (n, k)), ldb)
        out = matrix(c + 4 * stride_c * at, m, n, ldc)
        product = alpha * ((left if transa == CUBLAS_OP_N else left.T) @ (right if transb == CUBLAS_OP_N else right.T))
        out[...] = product if beta == 0 else product + beta * out


def strsmBatched(handle, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb, count):  # noqa: N802
    """Solve A X = alpha B in place of B, for upper triangular matrices A."""
    if (side, uplo, trans, diag) != (CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT):
        raise NotImplementedError("the emulator solves from the left with upper triangular matrices only")
    for upper, right in zip(matrices(a, count, m, m, lda), matrices(b, count, m, n, ldb), strict=True):
        right[...] = np.linalg.solve(np.triu(upper), numbers(alpha, 1, np.float32)[0] * right)
