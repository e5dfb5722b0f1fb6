"""Implement the backend of a cluster: users' arrays live in the workers of a team, items' arrays in this process.

The fit loop and the solvers use it like any other backend. Operations on users run in all workers, operations on items
alone run here. No worker has all interactions of an item: sums over users are added over the shards.
"""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, SupportsFloat, cast

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import (
    Backend,
    Deferred,
    Diagonalised,
    Effort,
    Factors,
    HalfStep,
    ItemScale,
    Matrix,
    RowSums,
    ScoreWindow,
    Vector,
)
from fairmf.backends.random_start import Stream
from fairmf.backends.solve import in_eigenbasis
from fairmf.data.csr import Rows
from fairmf.distributed import remote_arrays
from fairmf.distributed.remote_arrays import (
    ITEMS,
    Drawn,
    Given,
    ShardedFactors,
    ShardedRows,
    UserCount,
    UserTerms,
    key_of,
)
from fairmf.distributed.team import Published, Team
from fairmf.distributed.worker import Turned
from fairmf.errors import InvalidParameter
from fairmf.lazy import lazy_module
from fairmf.types import Array

if TYPE_CHECKING:
    from fairmf import threads
    from fairmf.backends.cpu import cg_split
else:  # compiled kernels, which only fits need
    cg_split, threads = lazy_module("fairmf.backends.cpu.cg_split"), lazy_module("fairmf.threads")

ROWS = 1024  # items of one block


def improve_items(team: Team, step: HalfStep, published: Turned, this: Factors, effort: Effort) -> RowSums:
    """Improve the items by conjugate gradients, each step with a sum over all shards (`Backend.improve`).

    The result differs from one machine only by the order in which partial sums are added. For k steps the driver sends
    V and k directions (items x d); the shards send back a residual, k - 1 products (items x d) and, last, a number per
    item. `published` is `this` as the workers can read it.
    """
    # 1. Residual: every shard sums over its users; the terms that are the same for all items are added here.
    users = key_of(step.other)
    r, losses = team.reduce("item_residual", users, published)
    empty, own = team.popularity == 0, step.own
    if step.rest is not None:  # times the items, it is one more right-hand side of their own
        off = this @ step.rest
        off[empty] = 0.0
        own = -off if own is None else own - off
    # Copies have the same layout and flags whatever the origin, so that Numba compiles the kernels once.
    known: list[Array | None] = [np.array(x, dtype=this.dtype) for x in (step.shared, step.ridge, step.shift)]
    known.append(None if own is None else np.array(own, dtype=this.dtype))
    known += [None, None] if step.rank_one is None else [np.array(x, dtype=this.dtype) for x in step.rank_one]
    bounds = np.append(np.arange(0, len(this), ROWS), len(this))
    p, rz, goal = np.empty_like(this), np.empty(len(this), this.dtype), np.empty(len(this), this.dtype)
    squares, change = np.zeros((len(bounds) - 1, 1)), np.zeros((len(bounds) - 1, 1))
    inputs = (*known, empty, this.dtype.type(effort.tolerance), bounds)
    work = 8 * this.size
    threads.run(cg_split.begin, len(squares), *inputs, out=(this, r, p, rz, goal, squares), work=work)
    # 2. Steps: send a direction for every item, get the sums along it, move the items here.
    loss: float = sum(losses)
    for number in range(effort.steps):
        if not (rz > goal).any():
            break
        # The last step needs p'Hp alone, one number per item instead of d.
        last = number + 1 == effort.steps
        sums, _ = team.reduce("item_curvature" if last else "item_product", users, Turned(team.publish(p), None))
        # The kernel reads curvatures or products; where it has products, rz only stands for the other array.
        given = (sums, None, this.dtype.type(effort.relaxation)) if last else (rz, sums, this.dtype.type(1.0))
        threads.run(
            cg_split.advance, len(change), *known, *given, bounds, out=(this, r, p, rz, goal, change), work=work
        )
        loss += float(change.sum())
    squared_norms: Array = np.einsum("ja,ja->j", this, this, dtype=np.float64)
    return RowSums(loss, float(squares.sum()), float(step.ridge @ squared_norms))


CONVERGED_STEPS = 500  # most steps of the items' exact solution; on usual data 15 are enough


class Sent:
    """Cache which arrays of items the workers can read already, possibly times a matrix that they can apply.

    Arrays change in place, but only by this backend's methods, which call `changed` or `turned`.
    """

    def __init__(self, team: Team):
        self._team = team
        self._known: dict[int, tuple[weakref.ref[Array], Published, Matrix | None]] = {}

    def of(self, array: Array) -> Turned:
        """Return the array as workers can read it; publish it first if they cannot."""
        found = self._known.get(id(array))
        # An id is used again when its array is gone, so the array itself is compared.
        if found is None or found[0]() is not array:
            self._remember(array, self._team.publish(array), None)
        _, published, matrix = self._known[id(array)]
        return Turned(published, matrix)

    def changed(self, array: Array) -> None:
        """Note that the array has changed."""
        self._known.pop(id(array), None)

    def turned(self, this: Array, matrix: Matrix, out: Array) -> None:
        """Note that `out` has become `this` times a matrix."""
        found = self._known.get(id(this))
        self.changed(out)
        # Only one matrix can be remembered: an array that is already a product is published again when needed.
        if found is not None and found[0]() is this and found[2] is None:
            self._remember(out, found[1], np.asarray(matrix))

    def _remember(self, array: Array, published: Published, matrix: Matrix | None) -> None:
        key = id(array)
        self._known[key] = (weakref.ref(array, lambda _: self._known.pop(key, None)), published, matrix)


class ShardedBackend:
    """Compute over shards; see `contract.Backend` for what each method does."""

    def __init__(self, team: Team, local: Backend, rounding: float | None = None):
        self.team = team
        self.local = local
        self.name, self.dtype, self.tolerance = local.name, local.dtype, local.tolerance
        self.slow_eigenvectors = local.slow_eigenvectors
        self.rounding = local.rounding if rounding is None else rounding  # workers may store less than this process
        self._sent = Sent(team)

    def threads(self, num_threads: int) -> AbstractContextManager[None]:
        """See contract. Limits this process; workers have threads of their own."""
        return self.local.threads(num_threads)

    def compiles_now(self) -> bool:
        """See contract."""
        return self.local.compiles_now()

    # -- arrays -------------------------------------------------------------------------------------------------------

    def array(self, values: Array) -> Factors:
        """See contract. Makes arrays of items."""
        return self.local.array(values)

    def empty(self, rows: int, factors: int) -> Factors:
        """See contract. Makes an array in the workers if `rows` is the number of users."""
        if not isinstance(rows, UserCount):
            return self.local.empty(rows, factors)
        made = ShardedFactors(self.team, factors, self.dtype)
        self.team.send("empty", made.key, factors)
        return cast("Factors", made)  # it stands in for an array

    def draw_normal(self, stream: Stream, numbers: NDArray[np.int64] | None, scale: float, out: Factors) -> None:
        """See contract. Each worker draws the rows of its own users."""
        if isinstance(out, ShardedFactors):
            out.recipe = Drawn(stream, scale)
            self.team.make(out)
            return
        self.local.draw_normal(stream, numbers, scale, out)

    def host(self, factors: Factors) -> Array:
        """See contract. Returns no rows (0 x d) for users that stay in the workers."""
        return factors.stored() if isinstance(factors, ShardedFactors) else self.local.host(factors)

    def deferred(self, factors: Factors) -> Array | Deferred:
        """See contract."""
        return factors.stored() if isinstance(factors, ShardedFactors) else self.local.deferred(factors)

    def vector(self, values: Array) -> Array:
        """See contract."""
        return self.local.vector(values)

    def numbers(self, *values: SupportsFloat) -> list[float]:
        """See contract."""
        return self.local.numbers(*values)

    def diagonalise(self, matrix: Matrix, ridge: float, guess: Matrix | None) -> Diagonalised:
        """See contract."""
        return self.local.diagonalise(matrix, ridge, guess)

    # -- reductions ---------------------------------------------------------------------------------------------------

    def gramian(self, this: Factors, weights: Vector | None = None) -> Matrix:
        """See contract. Weights are supported for items only."""
        if not isinstance(this, ShardedFactors):
            return self.local.gramian(this, weights)
        gramian: Matrix = remote_arrays.total(self.team.ask("gramian", this.key))
        return gramian

    def mean(self, this: Factors) -> Vector:
        """See contract."""
        if not isinstance(this, ShardedFactors):
            return self.local.mean(this)
        mean: Vector = remote_arrays.total(self.team.ask("total", this.key)) / self.team.n_users
        return mean

    def weighted_squares(self, this: Factors, weights: Vector) -> Vector:
        """See contract."""
        if not isinstance(this, ShardedFactors):
            return self.local.weighted_squares(this, weights)
        squares: Vector = remote_arrays.total(self.team.ask("weighted_squares", this.key, key_of(weights)))
        return squares

    def squared_norms(self, this: Factors) -> Vector:
        """See contract. For items only."""
        return self.local.squared_norms(_here(this))

    def squared_distance(self, this: Factors, other: Factors) -> float:
        """See contract. For items only."""
        return self.local.squared_distance(_here(this), _here(other))

    def column_products(self, this: Factors, other: Factors) -> Vector:
        """See contract. For items, and for maps of features."""
        return self.local.column_products(this, other)

    def mean_response(
        self, shares: Vector, ridge: Vector, slopes: Vector, values: Vector, typical: Vector, mix: float
    ) -> Vector:
        """See contract."""
        return self.local.mean_response(shares, ridge, slopes, values, typical, mix)

    def corrected_shift(
        self, shift: Vector, mean: Vector, strength: Vector, response: Vector, rest: Vector | None
    ) -> tuple[Vector, Vector]:
        """See contract."""
        return self.local.corrected_shift(shift, mean, strength, response, rest)

    def all_finite(self, this: Factors) -> bool:
        """See contract."""
        if not isinstance(this, ShardedFactors):
            return self.local.all_finite(this)
        return all(self.team.ask("all_finite", this.key))

    def observed_loss(self, rows: Rows, this: Factors, other: Factors) -> float:  # noqa: ARG002 - always all rows
        """See contract. For the rows of all users."""
        return float(remote_arrays.total(self.team.ask("observed_loss", key_of(this), self._sent.of(other))))

    # -- rows ---------------------------------------------------------------------------------------------------------

    def multiply(self, this: Factors, matrix: Matrix, out: Factors) -> None:
        """See contract."""
        if isinstance(this, ShardedFactors):
            self.team.send("multiply", this.key, np.asarray(matrix), key_of(out))
            return
        self.local.multiply(this, matrix, out)
        self._sent.turned(this, matrix, out)

    def turned(self, this: Factors, matrix: Matrix) -> Factors:
        """See contract."""
        if isinstance(this, ShardedFactors):
            self.team.send("turn", this.key, np.asarray(matrix))
            return this
        out = self.local.turned(this, matrix)
        self._sent.turned(this, matrix, out)
        return out

    def add_vector(self, vector: Vector, out: Factors) -> None:
        """See contract."""
        if isinstance(out, ShardedFactors):
            self.team.send("add_vector", vector, out.key)
            return
        self.local.add_vector(vector, out)
        self._sent.changed(out)

    def put(self, values: Factors, rows: NDArray[np.integer] | slice, out: Factors) -> None:
        """See contract. For users, `values` are all rows."""
        if isinstance(out, ShardedFactors):
            out.recipe = Given(values)
            self.team.make(out)
            return
        self.local.put(values, rows, out)
        self._sent.changed(out)

    def mean_inverse(self, step: HalfStep) -> tuple[Matrix, Vector]:
        """See contract. If the rows are a sample, each shard's mean is weighted by its number of users."""
        rows, ridge = key_of(step.rows), key_of(step.ridge)
        parts = self.team.ask("mean_inverse", rows, self._sent.of(step.other), step.matrix, ridge, *_terms(step))
        n = self.team.n_users
        A, b = (remote_arrays.total([part[k] * (part[2] / n) for part in parts]) for k in (0, 1))
        return A, b

    def improve(self, step: HalfStep, this: Factors, effort: Effort) -> RowSums:
        """See contract."""
        if _of_items(step.rows):
            sums = improve_items(self.team, step, self._sent.of(this), this, effort)
            self._sent.changed(this)
            return sums
        ridge = key_of(step.ridge)
        limits = effort.steps, effort.tolerance, effort.relaxation, effort.accuracy
        vectors = np.stack((step.shared, step.shift))
        parts = self.team.ask(
            "improve_users", key_of(this), self._sent.of(step.other), vectors, ridge, limits, step.rest, *_terms(step)
        )
        return RowSums(*remote_arrays.total([np.array(part) for part in parts]).tolist())

    def sparse_product(self, rows: Rows, other: Factors) -> Factors:
        """See contract. For features of items, which are in this process."""
        return self.local.sparse_product(rows, other)

    def score_sum(self, rows: Rows, this: Factors, other: Factors) -> float:
        """See contract. For rows and factors in this process."""
        return self.local.score_sum(rows, this, other)

    def disliked_users(self, this: Factors) -> Factors:
        """Return sum_i |w_ij| u_i over the dislikes of every item j."""
        return self.team.reduce("disliked_users", key_of(this))[0]

    def dislike_scores(self, this: Factors, other: Factors) -> float:
        """Return sum |w_ij| u_i.v_j over the dislikes."""
        return float(remote_arrays.total(self.team.ask("dislike_change", key_of(this), self._sent.of(other))))

    def solve(self, step: HalfStep) -> Factors:
        """See contract. Items are solved by conjugate gradients to convergence: no shard has an item's whole matrix."""
        if step.right is not None:
            raise InvalidParameter("engine='ray' cannot solve for a given right-hand side: use engine='local'.")
        if _of_items(step.rows):
            return self._solve_items(step)
        out = self.empty(step.rows.count, step.other.shape[1])
        ridge, other = key_of(step.ridge), self._sent.of(step.other)
        self.team.send("solve_users", other, step.matrix, ridge, step.shift, key_of(out), *_terms(step))
        return out

    def _solve_items(self, step: HalfStep) -> Factors:
        turned, vectors = in_eigenbasis(step)
        this = self.local.array(np.zeros((step.rows.count, len(vectors))))
        self.improve(turned, this, Effort(CONVERGED_STEPS, 0.01 * self.tolerance))
        return self.turned(this, vectors.T)

    def residual(self, step: HalfStep, this: Factors) -> Factors:  # noqa: ARG002
        """Raise InvalidParameter: shards do not support it."""
        raise InvalidParameter("engine='ray' cannot compute gradients of single rows: use engine='local'.")

    def top_k(
        self,
        this: Factors,
        other: Factors,
        k: int,
        exclude: Rows | None,
        items: NDArray[np.int32],
        scores: NDArray[np.float32],
        dial: ItemScale | None = None,
        window: ScoreWindow | None = None,
    ) -> None:
        """See contract. For users whose factors are in this process."""
        self.local.top_k(_here(this), other, k, exclude, items, scores, dial, window)


def _terms(step: HalfStep) -> UserTerms:
    """Return what features and dislikes add to the users' right-hand sides, as workers compute it."""
    return UserTerms() if step.own is None else cast(UserTerms, step.own)


def _of_items(rows: object) -> bool:
    return isinstance(rows, ShardedRows) and rows.side == ITEMS


def _here(factors: Factors) -> Factors:
    if isinstance(factors, ShardedFactors):
        raise InvalidParameter("engine='ray' cannot do this with users' factors in the workers: use engine='local'.")
    return factors
