"""Score items by filtering histories on the graph of items: GF-CF (Shen et al., CIKM 2021).

With the degrees D_U of users and D_I of items, R~ = D_U^-1/2 R D_I^-1/2, and V its first k right singular vectors,

    s = x (R~' R~ + alpha D_I^-1/2 V V' D_I^1/2)

The first term is a linear filter, the second keeps low frequencies only. Nothing is trained. x R~' R~ is computed from
right to left in blocks of users: neither users x items nor items x items is held. Turbo-CF (Park et al., SIGIR 2024)
takes other exponents, R^ = D_U^-a R D_I^(a-1), and no second term: `user_exponent` is a. Its elementwise power of R^'R^
and its filters of higher order need that matrix, and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import svds

from fairmf.baselines.score_model import ScoreModel
from fairmf.params import setting


@dataclass(eq=False)
class GraphFilter(ScoreModel):
    """GF-CF: a linear and an ideal low-pass filter on the graph of items (docs/rivals.md).

    It has `rank`, `n_items` and `fit`; `evaluate` and all re-rankers take it. It has no files, since fitting is one
    truncated singular value decomposition, and no dial; confidences are not used.

    Parameters
    ----------
    factors
        k, the number of singular vectors of the low-pass filter.
    low_pass
        alpha, the weight of the low-pass filter; 0 leaves it out.
    user_exponent
        a: users are divided by the a-th power of their number of items, items by the (1 - a)-th; .5 is GF-CF.
    random_state
        Seed of the start of the decomposition.
    num_threads
        Number of threads; 0 uses all cores.

    Examples
    --------
    >>> from fairmf import GraphFilter, evaluate, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> found = evaluate(GraphFilter(factors=16).fit(split.train), split.test, metrics=["ndcg@20"])
    >>> found["ndcg@20"] > 0
    True
    """

    factors: int = setting(256, "Singular vectors of the low-pass filter.", symbol="k", low=1, integer=True)
    low_pass: float = setting(0.3, "Weight of the low-pass filter.", symbol="alpha", low=0)
    user_exponent: float = setting(0.5, "Power by which active users count less.", symbol="a", low=0, high=1)
    random_state: int | None = setting(0, "Seed of the decomposition.", low=0, integer=True, choices=(None,))
    num_threads: int = setting(0, "Number of threads; 0 uses all cores.", low=0, integer=True)

    def _learn(self, data: sp.csr_array) -> None:
        of_users, of_items = (np.asarray(data.sum(axis=axis), dtype=np.float32) for axis in (1, 0))
        a = self.user_exponent
        self.matrix = scaled(data, of_users, -a, of_items, a - 1)
        self.transposed = self.matrix.T.tocsr()
        self.low: NDArray[np.float32] | None = None
        k = min(self.factors, min(data.shape) - 1)
        if self.low_pass > 0 and k > 0:
            symmetric = scaled(data, of_users, -0.5, of_items, -0.5).astype(np.float64)
            start = np.random.default_rng(self.random_state).normal(size=min(data.shape))
            _, _, vectors = svds(symmetric, k=k, v0=start)
            root = np.sqrt(of_items)
            self.low = np.ascontiguousarray(vectors, dtype=np.float32)
            self.into = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0).astype(np.float32)
            self.out_of = root.astype(np.float32)

    def score_rows(self, history: sp.csr_array) -> NDArray[np.float32]:
        """Return the filtered rows."""
        scores: NDArray[np.float32] = ((history @ self.transposed) @ self.matrix).toarray()
        if self.low is not None:
            smooth = (history * self.into) @ self.low.T @ self.low
            scores += np.float32(self.low_pass) * smooth * self.out_of
        return scores


def scaled(
    data: sp.csr_array, of_users: NDArray[np.float32], power: float, of_items: NDArray[np.float32], item_power: float
) -> sp.csr_array:
    """Return the matrix with rows and columns multiplied by powers of their sums; empty ones stay 0."""

    def raised(sums: NDArray[np.float32], exponent: float) -> NDArray[np.float32]:
        return np.where(sums > 0, np.maximum(sums, 1.0) ** exponent, 0.0).astype(np.float32)

    made: sp.csr_array = sp.diags_array(raised(of_users, power)) @ data @ sp.diags_array(raised(of_items, item_power))
    return made.tocsr()
