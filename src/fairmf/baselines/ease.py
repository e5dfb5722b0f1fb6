"""Fit EASE (Steck, WWW 2019): a linear autoencoder over items in closed form, as an anchor of accuracy.

    minimise  |X - X B|^2 + lambda |B|^2  with B_kk = 0:    P = (X'X + lambda I)^-1,   B_jk = -P_jk / P_kk

Scores of a history x are x B. Fitting takes m^3 operations and 12 m^2 bytes for m items, however many users there are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri

from fairmf.baselines.score_model import ScoreModel
from fairmf.errors import NotEnoughMemory
from fairmf.params import setting

BYTES = 12  # per pair of items: P in float64, then B in float32


@dataclass(eq=False)
class EASE(ScoreModel):
    """EASE: item weights by ridge regression with a zero diagonal (docs/rivals.md).

    It has `rank`, `n_items` and `fit`; `evaluate` and all re-rankers take it. It has no files (an m x m matrix is
    quickly made again) and no dial, and confidences are not used.

    Parameters
    ----------
    regularization
        lambda; the larger, the smaller the weights.
    num_threads
        Number of threads; 0 uses all cores.

    Examples
    --------
    >>> from fairmf import EASE, evaluate, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> found = evaluate(EASE(regularization=50).fit(split.train), split.test, metrics=["ndcg@20"])
    >>> found["ndcg@20"] > 0
    True
    """

    regularization: float = setting(200.0, "L2 regularization.", symbol="lambda", above=0)
    num_threads: int = setting(0, "Number of threads; 0 uses all cores.", low=0, integer=True)

    def _learn(self, data: sp.csr_array) -> None:
        m = data.shape[1]
        check_memory(m)
        matrix = np.zeros((m, m), order="F")
        items = data.T.tocsr()
        for start in range(0, m, 1024):
            matrix[:, start : start + 1024] = (items[start : start + 1024] @ data).T.toarray()
        matrix[np.diag_indices(m)] += self.regularization
        # Cholesky, then the inverse from it, both in place; the matrix is positive definite.
        matrix, _ = dpotrf(matrix, lower=1, overwrite_a=1)
        matrix, _ = dpotri(matrix, lower=1, overwrite_c=1)
        diagonal = matrix.diagonal().copy()
        weights = np.empty((m, m), dtype=np.float32)
        for start in range(0, m, 1024):
            stop = min(start + 1024, m)
            # The lower triangle holds P. Rows of it are columns of the upper one.
            part = np.tril(matrix[start:stop], start) + np.triu(matrix[:, start:stop].T, start + 1)
            weights[start:stop] = part / -diagonal
        weights[np.diag_indices(m)] = 0.0
        self.weights: NDArray[np.float32] = weights

    def score_rows(self, history: sp.csr_array) -> NDArray[np.float32]:
        """Return x B for every row x."""
        scores: NDArray[np.float32] = history @ self.weights
        return scores


def check_memory(n_items: int) -> None:
    """Raise NotEnoughMemory if two m x m matrices do not fit into the memory that is free."""
    needed, free = BYTES * n_items**2, free_memory()
    if needed > free:
        raise NotEnoughMemory(
            f"EASE needs two matrices of {n_items:,} x {n_items:,} items: {needed / 2**30:.1f} GiB, "
            f"and {free / 2**30:.1f} GiB are free.",
            hint="keep fewer items, or use GraphFilter or a factor model, which have no such matrix",
        )


def free_memory() -> float:
    """Return the bytes of memory that are available; infinite where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123
            found = next(line for line in lines if line.startswith("MemAvailable"))
        return 1024.0 * int(found.split()[1])
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
