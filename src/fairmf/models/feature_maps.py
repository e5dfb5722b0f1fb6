"""Regress vectors on features: the maps M of items and users (docs/mathematics.md 11).

Items have features X (m x p). With a map M (p x d) their L2 term is, for kappa > 0,

    1/2 sum_j lambda_V(j) |v_j - M'x_j|^2  +  kappa/2 |M|^2

so that an item is drawn to the vector that its features predict, and not to 0. An item without interactions is that
vector. It equals today's term when kappa is infinite (M = 0), and features alone when lambda is. Users alike.

Order of calls in an epoch, on each side that has features:

1. `SideFeatures.improved_map`: a few conjugate gradient steps on (X'LX + kappa I) M = X'L V, from the last M.
2. The half-step of that side, with the right-hand sides lambda_V(j) M'x_j (`SideFeatures.own`).
3. `SideFeatures.penalty`: both terms, for F.

An epoch takes STEPS = 2 steps, and so four products with X or X': one for the residual, one and two for the steps. No
matrix is p x p: a product costs O(nnz(X) d), and memory is linear in nnz(X) and p.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairmf.backends.contract import Backend, Factors, Vector, beside, frozen
from fairmf.data.csr import Rows, transpose
from fairmf.lazy import cached_property
from fairmf.types import Array

STEPS = 2  # conjugate gradient steps of an epoch
CONVERGED_STEPS = 200  # most steps of a map that is solved to convergence
TOLERANCE = 1e-4  # factor by which its residual falls


@dataclass(frozen=True, eq=False)
class SideFeatures:
    """The features of all items (or users) in a fit, and the weights of their terms."""

    rows: Rows
    """One sparse row of features per item (X)."""
    by_feature: Rows
    """The same, one row per feature (X')."""
    ridge: Vector
    """The L2 weight of every item (lambda_V(j))."""
    kappa: float
    """The L2 weight of the map."""
    diagonal: Vector
    """The diagonal of X'LX + kappa I, which preconditions the steps."""

    @classmethod
    def of(cls, rows: Rows, n_features: int, ridge: Vector, strength: float) -> SideFeatures:
        """Prepare the features of one side. kappa is `strength` times the mean ridge.

        So a feature is shrunk as if `strength` more items had it with value 1 and vector 0, whatever the number of
        users, the regularization and its exponent are.
        """
        kappa = strength * float(ridge.mean())
        values = np.ones(rows.nnz) if rows.weights is None else rows.weights.astype(np.float64) ** 2
        diagonal = kappa + np.bincount(rows.indices, values * np.repeat(ridge, np.diff(rows.indptr)), n_features)
        return cls(rows.read_only(), transpose(rows, n_features).read_only(), ridge, kappa, frozen(diagonal))

    @cached_property
    def inverse(self) -> Vector:
        """The inverse of `diagonal`."""
        return frozen(1.0 / self.diagonal)

    @property
    def n_features(self) -> int:
        """Number of features (p)."""
        return self.by_feature.count

    def predicted(self, backend: Backend, M: Factors) -> Factors:
        """Return M'x_j for every row."""
        return backend.sparse_product(self.rows, M)

    def own(self, backend: Backend, predicted: Factors) -> Factors:
        """Return lambda_V(j) M'x_j: what the features add to each row's right-hand side."""
        right: Factors = predicted * self._weights(backend, predicted)
        return right

    def improved_map(
        self,
        backend: Backend,
        M: Factors,
        this: Factors,
        steps: int = STEPS,
        tolerance: float = 0.0,
        predicted: Factors | None = None,
    ) -> tuple[Factors, Factors]:
        """Return M after conjugate gradient steps, each column on its own, and the vectors that it predicts.

        The term falls with every step. A column stops when its preconditioned residual has fallen by `tolerance`.
        `predicted` is what M predicts before, if that is known; it is overwritten.
        """
        kappa = this.dtype.type(self.kappa)
        inverse = beside(backend, self.inverse, M)[:, None]
        M, (predicted, r) = M.copy(), self._residual(backend, M, this, predicted)
        scratch = np.multiply(M, kappa)  # products are computed in place: new arrays of this size are slow to come by
        r -= scratch
        p = r * inverse
        rz = backend.column_products(r, p)
        goal = np.maximum(tolerance**2 * rz, np.finfo(np.float32).tiny)
        for done in range(steps):
            if not (rz > goal).any():
                break
            along, squares = self._along(backend, p)
            # p'Ap = sum_j lambda_j (M'x_j)^2 + kappa |p|^2, in float64: a step that is too long would raise F.
            curvature = squares + self.kappa * backend.column_products(p, p)
            length = np.where(rz > goal, rz / np.maximum(curvature, np.finfo(np.float64).tiny), 0.0)
            lengths, last = beside(backend, length, M), done + 1 == steps
            M += np.multiply(p, lengths, out=scratch)
            predicted = self._moved(predicted, beside(backend, length, along), along, last)
            if last:  # no further step needs a residual, which is another product
                break
            step = self._gathered(backend, along)
            step += np.multiply(p, kappa, out=scratch)
            step *= lengths
            r -= step
            z = np.multiply(r, inverse, out=step)
            before, rz = rz, backend.column_products(r, z)
            p *= beside(backend, np.where(rz > goal, rz / np.maximum(before, np.finfo(np.float64).tiny), 0.0), p)
            p += z
        return M, self._kept(backend, M, predicted)

    # The five steps that touch the rows: shards do them elsewhere (shard_terms.py).

    def _kept(self, backend: Backend, M: Factors, predicted: Factors) -> Factors:  # noqa: ARG002
        """Return the predictions of M, given those that were moved along with it."""
        return predicted

    def _residual(
        self, backend: Backend, M: Factors, this: Factors, predicted: Factors | None
    ) -> tuple[Factors, Factors]:
        """Return what M predicts, and X'L (this - predicted)."""
        predicted = self.predicted(backend, M) if predicted is None else predicted
        missing = this - predicted
        missing *= self._weights(backend, missing)
        return predicted, backend.sparse_product(self.by_feature, missing)

    def _along(self, backend: Backend, p: Factors) -> tuple[Factors, Vector]:
        """Return X p, and the sum of lambda_V(j) (X p)_jk^2 over the rows."""
        along = backend.sparse_product(self.rows, p)
        return along, backend.weighted_squares(along, self.ridge)

    def _gathered(self, backend: Backend, along: Factors) -> Factors:
        """Return X'L X p; overwrites X p."""
        along *= self._weights(backend, along)
        return backend.sparse_product(self.by_feature, along)

    def _moved(self, predicted: Factors, lengths: Vector, along: Factors, last: bool) -> Factors:
        """Return what the map predicts after a step; overwrites `predicted`, and X p after the last step."""
        predicted += np.multiply(along, lengths, out=along if last else None)
        return predicted

    def _weights(self, backend: Backend, like: Factors) -> Factors:
        """Return the ridges as a column."""
        column: Factors = beside(backend, self.ridge, like)[:, None]
        return column

    def penalty(self, backend: Backend, M: Factors, this: Factors, predicted: Factors | None = None) -> float:
        """Return sum_j lambda_V(j) |v_j - M'x_j|^2 + kappa |M|^2: twice this side's part of F's L2 term."""
        expected = self.predicted(backend, M) if predicted is None else predicted
        missing = float(backend.weighted_squares(this - expected, self.ridge).sum())
        return missing + self.kappa * float(backend.column_products(M, M).sum())


def own_right(backend: Backend, side: SideFeatures | None, M: Factors | None) -> Factors | None:
    """Return what features add to each row's right-hand side at the map M; None for a side without features."""
    return None if side is None or M is None else side.own(backend, side.predicted(backend, M))


def improved(
    backend: Backend, side: SideFeatures | None, M: Factors | None, this: Factors
) -> tuple[Factors | None, Factors | None]:
    """Improve the map of one side for its present vectors; return it and each row's right-hand side, or None twice."""
    if side is None or M is None:
        return None, None
    M, predicted = side.improved_map(backend, M, this)
    return M, side.own(backend, predicted)


def turned(backend: Backend, M: Factors | None, rotation: Array) -> Factors | None:
    """Return a copy of a map in another basis of the factors; None for None."""
    return None if M is None else rotated(backend, M, rotation)


def rotated(backend: Backend, M: Factors, rotation: Array) -> Factors:
    """Return a copy of a map, or of what it predicts, in another basis of the factors."""
    out = backend.empty(*M.shape)
    backend.multiply(M, rotation, out)
    return out


def start(
    backend: Backend, user_side: SideFeatures | None, item_side: SideFeatures | None, d: int
) -> tuple[Factors | None, Factors | None]:
    """Return the maps of users and items before the first epoch: 0, or None for a side without features."""
    users, items = (
        None if side is None else backend.array(np.zeros((side.n_features, d))) for side in (user_side, item_side)
    )
    return users, items


def settled(
    backend: Backend, side: SideFeatures | None, M: Factors | None, this: Factors
) -> tuple[Factors | None, Factors | None]:
    """Return the map that fits these vectors best, and what it predicts; None twice for a side without features."""
    if side is None or M is None:
        return None, None
    return side.improved_map(backend, M, this, CONVERGED_STEPS, TOLERANCE)
