"""Stand in for cuSOLVER: Cholesky factors of many matrices, with the arguments of CuPy's bindings."""

import numpy as np

from cupy_backends.cuda.libs.addresses import matrices, numbers
from cupy_backends.cuda.libs.cublas import CUBLAS_FILL_MODE_UPPER


def spotrfBatched(handle, uplo, n, a, lda, info, count):  # noqa: N802
    """Factorise A = U'U in place, reading and writing the upper triangle alone; info > 0 where A is not definite."""
    _check(uplo)
    results = numbers(info, count, np.int32)
    for at, upper in enumerate(matrices(a, count, n, n, lda)):
        whole = np.triu(upper) + np.triu(upper, 1).T
        try:
            lower = np.linalg.cholesky(whole) if np.isfinite(whole).all() else None
        except np.linalg.LinAlgError:
            lower = None
        results[at] = int(lower is None)
        upper[np.triu_indices(n)] = np.nan if lower is None else lower.T[np.triu_indices(n)]


def spotrsBatched(handle, uplo, n, nrhs, a, lda, b, ldb, info, count):  # noqa: N802
    """Solve U'U X = B in place of B."""
    _check(uplo)
    for upper, right in zip(matrices(a, count, n, n, lda), matrices(b, count, n, nrhs, ldb), strict=True):
        whole = np.triu(upper)
        with np.errstate(invalid="ignore"):
            right[...] = np.linalg.solve(whole, np.linalg.solve(whole.T, right))
    numbers(info, 1, np.int32)[0] = 0


def _check(uplo):
    if uplo != CUBLAS_FILL_MODE_UPPER:
        raise NotImplementedError("the emulator knows upper triangles only")
