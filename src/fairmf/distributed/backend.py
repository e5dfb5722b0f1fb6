"""A backend over a team: users' arrays live in its workers, items' arrays in this process.

The fit loop and the solvers use it as any other. Operations on users run in all workers, operations on items alone run
here. No worker has whole rows of items: their sums over users are added over the shards.
"""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, Diagonalised, Effort, Factors, HalfStep, Matrix, RowSums, Vector, divides
from fairmf.backends.random_start import Stream
from fairmf.backends.solve import in_eigenbasis
from fairmf.data.csr import Rows
from fairmf.distributed import remote_arrays
from fairmf.distributed.remote_arrays import ITEMS, Drawn, Given, ShardedFactors, UserCount
from fairmf.distributed.team import Published, Team
from fairmf.distributed.worker import Turned
from fairmf.errors import InvalidParameter
from fairmf.types import Array

ROWS = 1024  # items of one block


def improve_items(team: Team, step: HalfStep, published: Turned, this: Factors, effort: Effort) -> RowSums:
    """Improve the items by conjugate gradients, each step a sum over all shards; see contract, `improve`.

    As on one machine, but for the order in which partial sums are added. With k steps the shards are sent k directions
    (items x d) and send back one residual and k - 1 products (items x d) and, last, a number per item. The workers
    make `this` of what is `published`.
    """
    from fairmf.backends.cpu import cg_split, threads  # compiled kernels are loaded by fits alone

    users: Any = step.other
    r, losses = team.reduce("item_residual", users.key, published)
    if step.rest is not None:
        r -= (this @ step.rest).astype(this.dtype)
    # Copies: arrays of one kind, whoever made them, so that the kernels are compiled once.
    known: list[Any] = [np.array(x, dtype=this.dtype) for x in (step.shared, step.ridge, step.shift)]
    known += [None, None] if step.rank_one is None else [np.array(x, dtype=this.dtype) for x in step.rank_one]
    bounds = np.append(np.arange(0, len(this), ROWS), len(this))
    p, rz, goal = np.empty_like(this), np.empty(len(this), this.dtype), np.empty(len(this), this.dtype)
    squares, change = np.zeros((len(bounds) - 1, 1)), np.zeros((len(bounds) - 1, 1))
    empty = team.popularity == 0
    inputs = (*known, empty, this.dtype.type(effort.tolerance), bounds)
    work = 8 * this.size
    threads.run(cg_split.begin, len(squares), *inputs, out=(this, r, p, rz, goal, squares), work=work)
    loss = sum(losses)
    for number in range(effort.steps):
        if not (rz > goal).any():
            break
        last = number + 1 == effort.steps
        sums = team.reduce("item_curvature" if last else "item_product", users.key, Turned(team.publish(p), None))[0]
        given = (sums, None, this.dtype.type(effort.relaxation)) if last else (rz, sums, this.dtype.type(1.0))
        threads.run(
            cg_split.advance, len(change), *known, *given, bounds, out=(this, r, p, rz, goal, change), work=work
        )
        loss += float(change.sum())
    squared_norms: Array = np.einsum("ja,ja->j", this, this, dtype=np.float64)
    return RowSums(loss, float(squares.sum()), float(step.ridge @ squared_norms))


CONVERGED_STEPS = 500  # of the items' exact step; on usual data 15 are enough


class Sent:
    """Remembers which arrays of items the workers can read already, perhaps up to a rotation they can apply.

    Contents change in place, but only by this backend's methods, which call `changed` or `turned`.
    """

    def __init__(self, team: Team):
        self._team = team
        self._known: dict[int, tuple[weakref.ref[Any], Published, Matrix | None]] = {}

    def of(self, array: Array) -> Turned:
        """Return what workers make the array of; send it if they have nothing."""
        found = self._known.get(id(array))
        if found is None or found[0]() is not array:
            self._remember(array, self._team.publish(array), None)
        _, published, matrix = self._known[id(array)]
        return Turned(published, matrix)

    def changed(self, array: Array) -> None:
        """Note that the array has other values now."""
        self._known.pop(id(array), None)

    def turned(self, this: Array, matrix: Matrix, out: Array) -> None:
        """Note that `out` has become `this` times a matrix."""
        found = self._known.get(id(this))
        self.changed(out)
        if found is not None and found[0]() is this and found[2] is None:
            self._remember(out, found[1], np.asarray(matrix))

    def _remember(self, array: Array, published: Published, matrix: Matrix | None) -> None:
        key = id(array)
        self._known[key] = (weakref.ref(array, lambda _: self._known.pop(key, None)), published, matrix)


class ShardedBackend:
    """See `contract.Backend` for what each method does."""

    def __init__(self, team: Team, local: Backend, rounding: float | None = None):
        self.team = team
        self.local = local
        self.name, self.dtype, self.tolerance = local.name, local.dtype, local.tolerance
        self.rounding = local.rounding if rounding is None else rounding  # workers may store less than this process
        self._sent = Sent(team)

    def threads(self, num_threads: int) -> AbstractContextManager[None]:
        """See contract; of this process. Workers have their own."""
        return self.local.threads(num_threads)

    def compiles_now(self) -> bool:
        """See contract."""
        return self.local.compiles_now()

    # -- arrays -------------------------------------------------------------------------------------------------------

    def array(self, values: Array) -> Factors:
        """See contract; of items."""
        return self.local.array(values)

    def empty(self, rows: int, factors: int) -> Factors:
        """See contract."""
        if not isinstance(rows, UserCount):
            return self.local.empty(rows, factors)
        made: Any = ShardedFactors(self.team, factors, self.dtype)
        self.team.send("empty", made.key, factors)
        return made  # type: ignore[no-any-return]

    def draw_normal(self, stream: Stream, numbers: NDArray[np.int64] | None, scale: float, out: Factors) -> None:
        """See contract. Each worker draws the rows of its own users."""
        if isinstance(out, ShardedFactors):
            out.recipe = Drawn(stream, scale)
            self.team.make(out)
            return
        self.local.draw_normal(stream, numbers, scale, out)

    def host(self, factors: Factors) -> Array:
        """See contract; no rows at all for users that are to stay in the workers."""
        return factors.stored() if isinstance(factors, ShardedFactors) else self.local.host(factors)

    def vector(self, values: Array) -> Array:
        """See contract."""
        return self.local.vector(values)

    def numbers(self, *values: Any) -> list[float]:
        """See contract."""
        return self.local.numbers(*values)

    def diagonalise(self, matrix: Matrix, ridge: float, guess: Matrix | None) -> Diagonalised:
        """See contract."""
        return self.local.diagonalise(matrix, ridge, guess)

    # -- reductions ---------------------------------------------------------------------------------------------------

    def gramian(self, this: Factors, weights: Vector | None = None) -> Matrix:
        """See contract; users have no weights."""
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
        key = weights.key  # type: ignore[attr-defined]
        squares: Vector = remote_arrays.total(self.team.ask("weighted_squares", this.key, key))
        return squares

    def squared_norms(self, this: Factors) -> Vector:
        """See contract; of items."""
        return self.local.squared_norms(_here(this))

    def squared_distance(self, this: Factors, other: Factors) -> float:
        """See contract; of items."""
        return self.local.squared_distance(_here(this), _here(other))

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

    def observed_loss(self, rows: Rows, this: Factors, other: Factors) -> float:  # noqa: ARG002 - all rows
        """See contract; of all users' rows."""
        return float(remote_arrays.total(self.team.ask("observed_loss", this.key, self._sent.of(other))))  # type: ignore[attr-defined]

    # -- rows ---------------------------------------------------------------------------------------------------------

    def multiply(self, this: Factors, matrix: Matrix, out: Factors) -> None:
        """See contract."""
        if isinstance(this, ShardedFactors):
            self.team.send("multiply", this.key, np.asarray(matrix), out.key)  # type: ignore[attr-defined]
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
        """See contract; of users, all rows at once."""
        if isinstance(out, ShardedFactors):
            out.recipe = Given(values)
            self.team.make(out)
            return
        self.local.put(values, rows, out)
        self._sent.changed(out)

    def mean_inverse(self, step: HalfStep) -> tuple[Matrix, Vector]:
        """See contract. Where the rows are a sample each shard's counts by its number of users."""
        keys: Any = step.rows, step.ridge
        parts = self.team.ask("mean_inverse", keys[0].key, self._sent.of(step.other), step.matrix, keys[1].key)
        n = self.team.n_users
        A, b = (remote_arrays.total([part[k] * (part[2] / n) for part in parts]) for k in (0, 1))
        return A, b

    @divides
    def improve(self, step: HalfStep, this: Factors, effort: Effort) -> RowSums:
        """See contract."""
        side: Any = step.rows
        if side.side == ITEMS:
            sums = improve_items(self.team, step, self._sent.of(this), this, effort)
            self._sent.changed(this)
            return sums
        keys: Any = this, step.ridge
        limits = effort.steps, effort.tolerance, effort.relaxation
        parts = self.team.ask(
            "improve_users", keys[0].key, self._sent.of(step.other), step.shared, keys[1].key, step.shift, limits
        )
        return RowSums(*remote_arrays.total([np.array(part) for part in parts]).tolist())

    def solve(self, step: HalfStep) -> Factors:
        """See contract; for items, whose matrices no shard has whole, conjugate gradients until all have converged."""
        if step.right is not None:
            raise InvalidParameter("engine='ray' solves for no other right-hand side: use engine='local' for that.")
        side: Any = step.rows
        if side.side == ITEMS:
            return self._solve_items(step)
        out = self.empty(step.rows.count, step.other.shape[1])
        keys: Any = step.ridge, out
        self.team.send("solve_users", self._sent.of(step.other), step.matrix, keys[0].key, step.shift, keys[1].key)
        return out

    def _solve_items(self, step: HalfStep) -> Factors:
        turned, vectors = in_eigenbasis(step)
        this = self.local.array(np.zeros((step.rows.count, len(vectors))))
        self.improve(turned, this, Effort(CONVERGED_STEPS, 0.01 * self.tolerance))
        return self.turned(this, vectors.T)

    def residual(self, step: HalfStep, this: Factors) -> Factors:  # noqa: ARG002
        """See contract; not over shards."""
        raise InvalidParameter("engine='ray' has no gradients of single rows: use engine='local' for that.")

    def top_k(
        self,
        this: Factors,
        other: Factors,
        k: int,
        exclude: Rows | None,
        items: NDArray[np.int32],
        scores: NDArray[np.float32],
    ) -> None:
        """See contract; of users whose factors are here."""
        self.local.top_k(_here(this), other, k, exclude, items, scores)


def _here(factors: Factors) -> Factors:
    if isinstance(factors, ShardedFactors):
        raise InvalidParameter("engine='ray' leaves users' factors in the workers: use engine='local' for that.")
    return factors
