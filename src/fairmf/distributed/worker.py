"""Hold a shard of users with their factors, and run the operations that the driver requests on it.

Nothing here depends on a cluster. A worker runs programs, lists of (operation, arguments), so that one message carries
all requests since the last answer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, Effort, Factors, HalfStep, beside, frozen
from fairmf.backends.registry import get_backend
from fairmf.backends.solve import solve_to_convergence
from fairmf.data.csr import Rows, confidences, disliked, has_dislikes, item_sums, transpose
from fairmf.data.weighting import Balance
from fairmf.distributed.partial_sums import PartialSums, partial_sums
from fairmf.distributed.remote_arrays import Drawn, Solved
from fairmf.distributed.shards import Shard, ShardLoader
from fairmf.lazy import cached_property
from fairmf.types import Array


class Argument(NamedTuple):
    """Stand in a program for an array that is sent along with it, once for all workers."""

    number: int


class Turned(NamedTuple):
    """Request an array of all items, multiplied by a d x d matrix if there is one; the worker multiplies.

    The driver writes a published array, which `Team` replaces by an `Argument` when it sends the program.
    """

    array: object
    matrix: object


class Missing(Exception):
    """Raised when a worker that replaced another is asked for factors that it does not have."""


Step: TypeAlias = tuple[str, tuple[object, ...]]
"""An operation, which is a method of `Worker`, and its arguments."""
Answer: TypeAlias = Any
"""The result of an operation. Its type depends on the operation."""


class Worker:
    """Hold a shard and its part of U. The public methods are the operations of programs."""

    def __init__(self, source: ShardLoader, number: int, backend: str, factor_dtype: str, threads: int):
        self.backend: Backend = get_backend(backend, factor_dtype)
        self._open = contextlib.ExitStack()
        self._open.enter_context(self.backend.threads(threads))
        self.number, self.n_users, self.n_items = number, source.n_users, source.n_items
        self.rows: dict[str, Rows] = {}
        self.vectors: dict[str, NDArray[np.float64]] = {}
        self.factors: dict[str, Factors] = {}
        self.partials: dict[str, Array] = {}
        self._is_balanced = self._is_reduced = False
        self._hold(source.load(number))

    def _hold(self, shard: Shard) -> None:
        """Use this shard, with its dislikes apart: in `rows` they look like likes, as in models/problem.py."""
        own = shard.rows
        self.shard = shard
        self.rows["rows"] = (confidences(own) if has_dislikes(own) else own).read_only()
        self.vectors["sums"] = self.rows["rows"].sums()
        for made in ("_sums", "_dislikes", "_users_of_dislikes"):
            vars(self).pop(made, None)

    @cached_property
    def _sums(self) -> PartialSums:
        return partial_sums(self.backend, self.rows["rows"], self.n_items)

    @cached_property
    def _dislikes(self) -> Rows:
        return disliked(self.shard.rows).read_only()

    @cached_property
    def _users_of_dislikes(self) -> Rows:
        return transpose(self._dislikes, self.n_items).read_only()

    def run(self, program: Sequence[Step], arguments: Sequence[object]) -> tuple[Answer, float]:
        """Run a program; return the answer of its last step, and the seconds it took."""
        began = time.perf_counter()
        answer = None
        for operation, values in program:
            answer = getattr(self, operation)(*(self._resolved(value, arguments) for value in values))
        return answer, time.perf_counter() - began

    def close(self) -> None:
        """Release threads and device memory."""
        self.factors.clear()
        self._open.close()

    def _resolved(self, value: Any, arguments: Sequence[object]) -> Any:
        """Replace `Argument` and `Turned` by the arrays that they stand for."""
        if isinstance(value, Argument):
            return arguments[value.number]
        if isinstance(value, Turned):
            return self._turn(self._resolved(value.array, arguments), self._resolved(value.matrix, arguments))
        return value

    def _turn(self, array: Array, matrix: NDArray[np.float64] | None) -> Factors:
        own = self.backend.array(array)
        if matrix is None:
            return own
        out = self.backend.empty(*array.shape)
        self.backend.multiply(own, self.backend.vector(matrix), out)
        return out

    def _factors(self, key: str) -> Factors:
        if key not in self.factors:
            raise Missing(key)
        return self.factors[key]

    # -- balanced confidences -----------------------------------------------------------------------------------------

    def balance_totals(self, balance: tuple[float, float], item_counts: NDArray[np.float64]) -> tuple[float, float]:
        """Return this shard's part of the sums that z is computed from; see `Balance.totals`."""
        assert not self._is_balanced  # the sums are those of raw confidences
        return Balance(*balance, item_counts, 1.0).totals(self.shard.rows)

    def balance(self, balance: tuple[float, float], item_counts: NDArray[np.float64], norm: float) -> None:
        """Replace the raw confidences by balanced ones; `balance` is (item_balance, user_balance).

        A second request changes nothing: it comes where another worker was lost during the first.
        """
        if self._is_balanced:
            return
        rows = self.shard.rows
        # The raw confidences are freed: a worker that replaces this one loads them again.
        self._hold(replace(self.shard, rows=rows._replace(weights=Balance(*balance, item_counts, norm).balanced(rows))))
        self._is_balanced = True

    # -- users and items without interactions -------------------------------------------------------------------------

    def empty_users(self) -> NDArray[np.int64]:
        """Return the numbers of the users without interactions."""
        empty: NDArray[np.int64] = self.shard.users[np.diff(self.shard.rows.indptr) == 0]
        return empty

    def leave_out(self, place: NDArray[np.int32], n_items: int, users: NDArray[np.int64]) -> None:
        """Renumber the items (`place`: the new numbers), and drop `users`, who have no interactions in any shard.

        A second request changes nothing, as in `balance`.
        """
        if self._is_reduced:
            return
        shard, rows = self.shard, self.shard.rows
        rows = rows._replace(indices=place[rows.indices])
        kept = np.flatnonzero(~np.isin(shard.users, users))
        numbers, ids = shard.users[kept], None if shard.user_ids is None else shard.user_ids.take(kept)
        self.n_users, self.n_items, self._is_reduced = self.n_users - len(users), n_items, True
        self._hold(Shard(rows.take(kept), numbers - np.searchsorted(users, numbers), ids))

    # -- factors ------------------------------------------------------------------------------------------------------

    def empty(self, key: str, factors: int) -> None:
        """Allocate factors."""
        self.factors[key] = self.backend.empty(len(self.shard.users), factors)

    def free(self, keys: Sequence[str]) -> None:
        """Free factors."""
        for key in keys:
            self.factors.pop(key, None)

    def retain(self, keys: Sequence[str]) -> list[str]:
        """Free all factors but these, and return which of these are missing."""
        self.factors = {key: self.factors[key] for key in keys if key in self.factors}
        # Partial sums of the action that was interrupted are made anew.
        self.partials.clear()
        return [key for key in keys if key not in self.factors]

    def set(self, key: str, values: Array) -> None:
        """Store these values as factors."""
        # A copy: what arrives in a message is read-only memory of the object store.
        self.factors[key] = self.backend.array(np.array(values, dtype=self.backend.dtype))

    def get(self, key: str) -> tuple[NDArray[np.int64], Array]:
        """Return the numbers of the users, and the factors."""
        return self.shard.users, self.backend.host(self._factors(key))

    def user_numbers(self) -> NDArray[np.int64]:
        """Return the numbers of these users in the whole data."""
        return self.shard.users

    def draw(self, key: str, factors: int, recipe: Drawn) -> None:
        """Draw these users' rows of the random start: the same for any number of shards."""
        self.empty(key, factors)
        self.backend.draw_normal(recipe.stream, self.shard.users, recipe.scale, self.factors[key])

    def solve(self, key: str, recipe: Solved, V: Factors, M: Array | None = None, dislikes: bool = False) -> None:
        """Solve the users' half-step to convergence: so a worker that replaces another gets its factors."""
        shared = recipe.unobserved_weight * self.backend.gramian(V)
        step = self._half_step(V, shared, recipe.ridge, recipe.coupling)
        self.factors[key] = solve_to_convergence(replace(step, own=self._own(V, recipe.ridge, M, dislikes)))

    # -- one number per user, and samples of users --------------------------------------------------------------------

    def map_vector(self, key: str, out: str, function: Callable[..., Array], args: tuple[object, ...]) -> None:
        """Store function(numbers, *args) as the numbers `out`."""
        self.vectors[out] = frozen(function(self.vectors[key], *args))

    def vector_min(self, key: str) -> float:
        """Return the smallest number."""
        # A shard may have no users at all.
        return float(self.vectors[key].min(initial=np.inf))

    def vector_sum(self, key: str) -> float:
        """Return the sum of the numbers."""
        return float(self.vectors[key].sum())

    def sample(
        self, key: str, ridge: str, choose: Callable[[NDArray[np.float64], int], NDArray[np.intp]], count: int
    ) -> None:
        """Store rows and ridges of the users that `choose(sums, count)` returns, under `key`."""
        # Each shard samples in proportion to its number of users, rounded up.
        chosen = choose(self.vectors["sums"], -(-count * len(self.shard.users) // self.n_users))
        self.rows[key], self.vectors[key] = self.rows["rows"].take(chosen), self.vectors[ridge][chosen]

    # -- the contract's kernels on this shard -------------------------------------------------------------------------

    def total(self, key: str) -> NDArray[np.float64]:
        """Return the sum of all rows."""
        U = self._factors(key)
        return self.backend.host(self.backend.mean(U)) * len(U) if len(U) else np.zeros(U.shape[1])

    def gramian(self, key: str) -> NDArray[np.float64]:
        """Return U'U."""
        return self.backend.host(self.backend.gramian(self._factors(key)))

    def weighted_squares(self, key: str, weights: str) -> NDArray[np.float64]:
        """See contract."""
        return self.backend.host(self.backend.weighted_squares(self._factors(key), self.vectors[weights]))

    def all_finite(self, key: str) -> bool:
        """See contract."""
        return self.backend.all_finite(self._factors(key))

    def observed_loss(self, key: str, V: Factors) -> float:
        """See contract."""
        return float(self.backend.observed_loss(self.rows["rows"], self._factors(key), V))

    def multiply(self, key: str, matrix: NDArray[np.float64], out: str) -> None:
        """See contract."""
        self.backend.multiply(self._factors(key), self.backend.vector(matrix), self._factors(out))

    def turn(self, key: str, matrix: NDArray[np.float64]) -> None:
        """See contract, turned."""
        self.factors[key] = self.backend.turned(self._factors(key), self.backend.vector(matrix))

    def add_vector(self, vector: NDArray[np.float64], out: str) -> None:
        """See contract."""
        self.backend.add_vector(self.backend.vector(vector), self._factors(out))

    def mean_inverse(
        self, rows: str, V: Factors, shared: NDArray[np.float64], ridge: str, M: Array | None = None,
        dislikes: bool = False,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:  # fmt: skip
        """Return means over these rows (see contract), and the number of users they represent."""
        host = self.backend.host
        if self.rows[rows].count == 0:
            return np.zeros_like(shared), np.zeros(len(shared)), 0
        step = self._half_step(V, shared, ridge, np.zeros(len(shared)), rows)
        A, b = self.backend.mean_inverse(replace(step, own=self._own(V, ridge, M, dislikes)))
        return host(A), host(b), len(self.shard.users)

    def improve_users(
        self, key: str, V: Factors, vectors: Array, ridge: str, limits: tuple[int, float, float, float],
        rest: Array | None, M: Array | None = None, dislikes: bool = False,
    ) -> list[float]:  # fmt: skip
        """Take conjugate gradient steps on the users' rows: see contract, `improve`. M and dislikes: see UserTerms.

        `vectors` are the diagonal that all rows share, and the shift.
        """
        off = None if rest is None else self.backend.vector(rest)
        step = replace(self._half_step(V, vectors[0], ridge, vectors[1]), rest=off)
        step = replace(step, own=self._own(V, ridge, M, dislikes))
        return self.backend.numbers(*self.backend.improve(step, self._factors(key), Effort(*limits)))

    def solve_users(
        self, V: Factors, shared: NDArray[np.float64], ridge: str, shift: NDArray[np.float64], out: str,
        M: Array | None = None, dislikes: bool = False,
    ) -> None:  # fmt: skip
        """Solve the users' rows exactly: see contract, `solve`."""
        step = self._half_step(V, shared, ridge, shift)
        self.factors[out] = self.backend.solve(replace(step, own=self._own(V, ridge, M, dislikes)))

    def _half_step(
        self, V: Factors, shared: NDArray[np.float64], ridge: str, shift: NDArray[np.float64], rows: str = "rows"
    ) -> HalfStep:
        vector = self.backend.vector
        return HalfStep(self.backend, self.rows[rows], V, vector(shared), self.vectors[ridge], vector(shift))

    # -- features and dislikes of users (models/shard_terms.py) -------------------------------------------------------

    def take_rows(
        self, key: str, indptr: NDArray[np.int64], indices: NDArray[np.int32], weights: NDArray[np.float32] | None
    ) -> None:
        """Store the rows of these users, from sparse rows of all users."""
        own = Rows(indptr, indices, weights).take(self.shard.users)
        self.rows[key] = own.read_only()

    def transpose_rows(self, key: str, columns: int, out: str) -> None:
        """Store rows by column, as `out`."""
        self.rows[out] = transpose(self.rows[key], columns).read_only()

    def _own(self, V: Factors, ridge: str, M: Array | None, dislikes: bool) -> Factors | None:
        """Return what features and dislikes add to each user's right-hand side; see UserTerms."""
        own = None if M is None else self._weighted(self._predicted(M), ridge)
        if not dislikes:
            return own
        surplus = self.backend.sparse_product(self._dislikes, V)
        return -surplus if own is None else own - surplus

    def _predicted(self, M: Array) -> Factors:
        return self.backend.sparse_product(self.rows["features"], self.backend.array(M))

    def _weighted(self, values: Factors, ridge: str) -> Factors:
        return values * beside(self.backend, self.vectors[ridge], values)[:, None]

    def _product(self, rows: Rows, factors: Factors) -> Array:
        return self.backend.host(self.backend.sparse_product(rows, factors))

    def feature_residual(self, out: str, key: str, M: Array, ridge: str) -> None:
        """Store X'L(U - X M) under `out`."""
        missing = self._weighted(self._factors(key) - self._predicted(M), ridge)
        self.partials[out] = self._product(self.rows["users_of_features"], missing)

    def feature_along(self, P: Array, ridge: str) -> NDArray[np.float64]:
        """Compute X P and keep it as factors `along`; return the sum of ridge_i (X P)_ik^2 over the users."""
        self.factors["along"] = self._predicted(P)
        return self.backend.host(self.backend.weighted_squares(self.factors["along"], self.vectors[ridge]))

    def feature_gathered(self, out: str, ridge: str) -> None:
        """Store X'L(X P) under `out`, with the P of the last `feature_along`."""
        weighted = self._weighted(self._factors("along"), ridge)
        self.partials[out] = self._product(self.rows["users_of_features"], weighted)

    def feature_missing(self, key: str, M: Array, ridge: str) -> float:
        """Return sum_i ridge_i |u_i - M'x_i|^2."""
        missing = self._factors(key) - self._predicted(M)
        return float(self.backend.weighted_squares(missing, self.vectors[ridge]).sum())

    def disliked_users(self, out: str, key: str) -> None:
        """Store sum_i |w_ij| u_i over the dislikes of every item j under `out`."""
        self.partials[out] = self._product(self._users_of_dislikes, self._factors(key))

    def dislike_confidence(self) -> float:
        """Return the sum of the confidences of all dislikes."""
        return float(self._dislikes.sums().sum())

    def dislike_change(self, key: str, V: Factors) -> float:
        """Return sum |w_ij| u_i.v_j over the dislikes."""
        return self.backend.score_sum(self._dislikes, self._factors(key), V)

    # -- partial sums over all items ----------------------------------------------------------------------------------

    def item_counts(self, out: str) -> None:
        """Store the number of users of every item under `out`; dislikes do not count."""
        self.partials[out] = self.shard.rows.column_counts(self.n_items)

    def item_likes(self, out: str) -> None:
        """Store the sum of the confidences of every item's likes under `out`."""
        self.partials[out] = item_sums(self.shard.rows, self.n_items)

    def item_confidences(self, out: str) -> None:
        """Store the sum of every item's confidences, of dislikes too, under `out`."""
        self.partials[out] = item_sums(self.rows["rows"], self.n_items)

    def item_residual(self, out: str, key: str, V: Factors) -> float:
        """Store sum_i c_ij (1 - v_j.u_i) u_i of every item under `out`; return sum c_ij (1 - v_j.u_i)^2."""
        self.partials[out], loss = self._sums.residual(self._factors(key), V)
        return loss

    def item_product(self, out: str, key: str, P: Factors) -> None:
        """Store sum_i c_ij (p_j.u_i) u_i of every item under `out`."""
        self.partials[out] = self._sums.product(self._factors(key), P)

    def item_curvature(self, out: str, key: str, P: Factors) -> None:
        """Store sum_i c_ij (p_j.u_i)^2 of every item under `out`."""
        self.partials[out] = self._sums.curvature(self._factors(key), P)

    def add_partial(self, key: str, other: Array) -> None:
        """Add another shard's partial sum to this one's."""
        self.partials[key] += other

    def take_partial(self, key: str) -> Array:
        """Return a partial sum, and free it here."""
        return self.partials.pop(key)

    # -- anything else ------------------------------------------------------------------------------------------------

    def call(self, function: Callable[..., Answer], *args: object) -> Answer:
        """Return function(worker, *args)."""
        return function(self, *args)
