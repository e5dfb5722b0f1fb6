"""Keep what requests need of a fitted model, so that of the whole catalogue a request computes only the scores.

`ServingState` is made once per fit, by the first request, and never changes: threads share it. It holds the shared
matrix and its eigenbasis for fold-ins (backends/cpu/fold_rows.py), and the numbers of the item dial with S(g) as a
polynomial, for levels that no request has asked for before (backends/cpu/top_k_each.py).
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from fairmf.backends.contract import Factors, Matrix, Vector, frozen
from fairmf.backends.cpu import fold_rows, top_k_each, top_k_groups
from fairmf.backends.registry import get_backend
from fairmf.data.csr import Rows
from fairmf.data.weighting import SHORT as SHORT_HISTORY
from fairmf.data.weighting import Balance
from fairmf.lazy import cached_property
from fairmf.models.evenness import Level
from fairmf.ranking.top_n import Lists, empty_lists
from fairmf.threads import run, use

if TYPE_CHECKING:
    from fairmf.models.fitted import Fitted

MOST_FLATTEN = 2.0  # largest g that the tables cover; others are computed when they are asked for
DEGREE = 48  # of the polynomial of log S(g)
GRID = np.linspace(0.0, MOST_FLATTEN, 17)  # values of g at which the largest item is known
LARGEST_POWER = 64.0  # of 2 in the polynomial for sigma^-g
NOTHING = frozen(np.empty(0))
ONES = frozen(np.ones(SHORT_HISTORY, dtype=np.float32))
NOTHING32 = frozen(np.empty(0, dtype=np.float32))
Doubles: TypeAlias = tuple[Vector, ...]
Singles: TypeAlias = tuple[NDArray[np.float32], ...]
PLAIN: tuple[Doubles, Singles] = (NOTHING,) * 4, (NOTHING32,) * 4  # the dial of requests that change no score
USERS_AT_ONCE = 32  # users whose candidates a thread holds at once
LEVELS_KEPT = 256
MOST_TURNED = 1 << 26  # bytes of item vectors that are held a second time, in the eigenbasis
Strength: TypeAlias = tuple[float, float, float, float, float]
"""(g, h S(g), t S(g), largest |v_j| sigma_j^-g, largest amount that is added to a score)."""


class ServingState:
    """What a fitted model on the cpu keeps for requests; see the module."""

    def __init__(self, fitted: Fitted):
        # It does not hold `fitted`, which holds this object: a cycle would keep their memory.
        settings = fitted.settings
        self.items: Factors = frozen(np.ascontiguousarray(fitted.item_factors))
        self._item_dial, self._has_offsets = fitted.item_dial, fitted.item_offsets is not None
        self._weighting = fitted.weighting
        self.folds = (
            bool(settings)
            and settings["regularization"] > 0
            and self.items.dtype == np.float32
            and get_backend(settings["backend"]).name == "cpu"
            and fitted.user_features is None
        )
        """Whether `fold` takes histories: there is a ridge, the backend is the cpu, users have no features."""
        if self.folds:
            self._systems = _Systems(fitted, self.items)
        self._kept: dict[tuple[float, float, float], Strength] = {}

    # -- fold-in ----------------------------------------------------------------------------------------------------

    def is_short(self, length: int) -> bool:
        """Return whether a history of this length is solved in the space of its items (backends/cpu/fold_rows.py)."""
        return bool(fold_rows.is_short.py_func(length, self.items.shape[1]))

    def fold(self, rows: Rows, psi: Vector) -> Factors:
        """Return u = H^-1 (b - psi q1) of every row. Bits depend on the row and its psi alone.

        Call it inside `backend.threads`, unless all rows are short (`is_short`).
        """
        d, given = self.items.shape[1], self._systems
        out = np.empty((len(rows.indptr) - 1, d), dtype=np.float32)
        weights = np.ones(len(rows.indices), dtype=np.float32) if rows.weights is None else rows.weights
        own, shared = (rows.indptr, rows.indices, weights, self.items), (given.l2, psi)
        short = self.is_short(len(rows.indices)) if len(out) == 1 else None
        # Where there are both, each kernel leaves out the rows of the other.
        if short is not False:
            inputs = (*own, *given.basis, *shared)
            run(fold_rows.fold_short, len(out), *inputs, out=(out,), work=4 * d * d * len(rows.indices))
        if short is not True:
            systems, work = (given.matrix, given.merit, *shared), d * d * (len(rows.indices) + len(out) * d / 3)
            run(fold_rows.fold_long, len(out), *own, *systems, out=(out,), work=work)
        return out

    def fold_ones(self, indices: NDArray[np.int32], psi: float) -> Factors | None:
        """Return what `fold_binary` does for ascending items; None where it cannot."""
        k = len(indices)
        return self.fold_binary(indices, ONES[:k], psi) if 0 < k <= SHORT_HISTORY else None

    def fold_binary(self, indices: NDArray[np.int32], values: NDArray[np.float32], psi: float) -> Factors | None:
        """Return what `fold` gives for one history of ones, weighted as in training; None where it cannot."""
        weighting, k = self._weighting, len(indices)
        if weighting is None:
            popular, scale = NOTHING, (1.0, 1.0)
        elif isinstance(weighting, Balance) and k <= SHORT_HISTORY and weighting.is_plain:
            popular, scale = weighting._popular, (weighting._busy[k], weighting.norm)
        else:
            return None
        given, out = self._systems, np.empty((1, self.items.shape[1]), dtype=np.float32)
        ends, weights = np.array([0, k]), np.empty(k, dtype=np.float32)
        systems = (*given.basis, given.matrix, given.merit, given.l2, np.array([psi]))
        inputs = (ends, indices, values, popular, scale, self.items, *systems)
        with contextlib.nullcontext() if self.is_short(k) else use(None):  # short ones need no BLAS
            run(fold_rows.fold_binary, 1, *inputs, out=(weights, out), work=0)
        return None if out.item(0) == math.inf else out

    # -- ranking ----------------------------------------------------------------------------------------------------

    @cached_property
    def _dial(self) -> tuple[Doubles, Singles]:
        """The numbers of the item dial, in float64 and in float32: (spread or its log2, offsets, logs, prices)."""
        dial = self._item_dial
        spread, logs = dial.floored_spread, np.log(np.maximum(dial.counts, 1.0))
        offsets = NOTHING if dial.offsets is None else dial.offsets.astype(np.float64)
        prices = NOTHING if dial.prices is None else dial.prices.astype(np.float64)
        double = tuple(frozen(np.ascontiguousarray(x)) for x in (spread, offsets, logs - logs.mean(), prices))
        single = tuple(frozen(x.astype(np.float32)) for x in (np.log2(spread), *double[1:]))
        return double, single

    @cached_property
    def _largest_log(self) -> float:
        return float(np.abs(self._dial[1][0]).max(initial=0.0))

    @cached_property
    def _largest(self) -> Vector:
        """max_j |v_j| sigma_j^-g on GRID. It is convex in g: between two values it is at most the larger one."""
        norms = np.sqrt(np.einsum("ij,ij->i", self.items, self.items, dtype=np.float64))
        logs = np.log(self._dial[0][0])
        return np.array([(norms * np.exp(-g * logs)).max(initial=0.0) for g in GRID])

    @cached_property
    def _longest(self) -> float:
        return float(np.sqrt(np.einsum("ij,ij->i", self.items, self.items).max(initial=0.0))) * 1.00001

    @cached_property
    def _score_spread(self) -> list[float] | None:
        """Log S(g) on 0..MOST_FLATTEN, as coefficients for `_clenshaw`; None if not exact to 1e-9, or S is 0."""
        dial = self._item_dial
        with np.errstate(divide="ignore", invalid="ignore"):
            found = chebyshev.Chebyshev.interpolate(
                lambda gs: np.log([dial.score_spread(float(g)) for g in gs]), DEGREE, domain=[0.0, MOST_FLATTEN]
            )
            tried = np.array([0.0, 0.013, 0.29, 0.51, 0.77, 1.31, MOST_FLATTEN])
            missed = np.abs(np.exp(found(tried)) / [dial.score_spread(g) for g in tried] - 1.0)
        coefficients: list[float] = found.coef.tolist()
        return coefficients if (missed < 1e-9).all() else None

    @cached_property
    def _most_added(self) -> tuple[float, float, float]:
        """The largest |o_j|, |l_j| and p_j."""
        _, offsets, logs, prices = self._dial[0]
        return (
            float(np.abs(offsets).max(initial=0.0)),
            float(np.abs(logs).max(initial=0.0)),
            float(prices.max(initial=0.0)),
        )

    def strength(self, flatten: float, discount: float, lift: float) -> Strength:
        """Return the numbers of a level; those of some recent levels are kept."""
        found = self._kept.get((flatten, discount, lift))
        if found is None:
            found = self._strength(flatten, discount, lift)
            if len(self._kept) >= LEVELS_KEPT:
                self._kept = {}  # a new one: other threads may be reading
            self._kept[flatten, discount, lift] = found
        return found

    def _strength(self, flatten: float, discount: float, lift: float) -> Strength:
        offset, log, price = self._most_added
        spread = 0.0
        if discount > 0 or lift > 0:
            table = self._score_spread if flatten <= MOST_FLATTEN else None
            spread = self._item_dial.score_spread(flatten) if table is None else math.exp(_clenshaw(table, flatten))
        at = int(np.searchsorted(GRID, flatten))
        if at >= len(GRID):
            norms = np.sqrt(np.einsum("ij,ij->i", self.items, self.items, dtype=np.float64))
            largest = float((norms * self._item_dial.scale(flatten)).max(initial=0.0))
        else:
            largest = float(self._largest[max(at - 1, 0) : at + 1].max())
        added = discount * spread * log + lift * spread * price + offset
        lift_strength = lift * spread if len(self._dial[0][3]) else 0.0
        return flatten, discount * spread, lift_strength, largest, added

    def ranks(self, level: Level) -> bool:
        """Return whether `rank` takes this level: sigma^-g must be in the range of its polynomial."""
        return level.flatten == 0 or level.flatten * self._largest_log <= LARGEST_POWER

    def rank(
        self, users: Factors, levels: list[Level], ks: NDArray[np.int64], barred: Rows, prices: Vector | None = None
    ) -> Lists:
        """Return the ks[i] best items of each user at its own level, without the items of its row of `barred`.

        Rows have as many slots as the largest of `ks`; slots that are not filled hold -1 and NaN. Rows of `barred`
        ascend. `prices` are added to all scores. Bits depend on the user, its level and prices alone.
        """
        n, (lists, scores) = len(users), empty_lists(len(users), int(ks.max()))
        strengths, dial64, dial32 = self._strengths(levels, prices)
        bounds = np.array([*range(0, n, USERS_AT_ONCE), n])
        inputs = (bounds, users, self.items, dial64, dial32, strengths, ks)
        run(
            top_k_each.top_k_each, len(bounds) - 1, *inputs, barred.indices, barred.indptr, out=(lists, scores),
            work=2 * n * self.items.size,
        )  # fmt: skip
        return lists, scores

    def rank_candidates(
        self, users: Factors, levels: list[Level], ks: NDArray[np.int64], candidates: Rows, prices: Vector | None = None
    ) -> Lists:
        """Return the ks[i] best of each user's candidates (a row each, no repeats); otherwise as `rank`."""
        lists, scores = empty_lists(len(users), int(ks.max()))
        strengths, dial64, _ = self._strengths(levels, prices)
        inputs = (users, self.items, dial64, strengths, ks, candidates.indices, candidates.indptr)
        work = 4 * candidates.nnz * self.items.shape[1]
        run(top_k_each.top_k_of, len(users), *inputs, out=(lists, scores), work=work)
        return lists, scores

    def pack(self, members: NDArray[np.int32], prices: Vector | None, before: Singles | None = None) -> Singles:
        """Return vectors and dial of all items in another order; `before` has all but what the prices change."""
        log_spread, offsets, logs, gains = self._dial[1]
        if prices is not None:
            offsets = prices.astype(np.float32) if not len(offsets) else (prices + self._dial[0][1]).astype(np.float32)
        added = offsets[members] if len(offsets) else NOTHING32
        if before is not None:
            return before[0], before[1], frozen(added), *before[3:]
        rest = (frozen(part[members] if len(part) else NOTHING32) for part in (logs, gains))
        return frozen(np.take(self.items, members, axis=0)), frozen(log_spread[members]), frozen(added), *rest

    def rank_in_groups(
        self,
        users: Factors,
        levels: list[Level],
        ks: NDArray[np.int64],
        barred: Rows,
        prices: Vector | None,
        groups: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]],
        packed: Singles,
    ) -> Lists:
        """Return the ks[i] best items of each user among those of its groups; otherwise as `rank`.

        `groups` is (chosen, members, starts): user i looks into the groups chosen[i], up to the first -1; group q holds
        the items members[starts[q]:starts[q + 1]]. `packed` is `pack(members, prices)`.
        """
        lists, scores = empty_lists(len(users), int(ks.max()))
        strengths, dial64, _ = self._strengths(levels, prices)
        inputs = (users, self.items, dial64, packed, strengths[:, :3].copy(), _rounding(users, strengths), ks, *groups)
        share = groups[0].shape[1] / max(1, len(groups[2]) - 1)
        run(
            top_k_groups.top_k_groups, len(users), *inputs, barred.indices, barred.indptr, out=(lists, scores),
            work=int(4 * len(users) * self.items.size * share),
        )  # fmt: skip
        return lists, scores

    def _strengths(self, levels: list[Level], prices: Vector | None) -> tuple[NDArray[np.float64], Doubles, Singles]:
        """Return the numbers of all levels, and the dial's in float64 and in float32, with prices in its offsets."""
        if prices is None and not self._has_offsets and not any(any(level.on_items) for level in levels):
            plain = np.zeros((len(levels), 5))
            plain[:, 3] = self._longest
            return plain, *PLAIN
        strengths, (double, single) = np.array([self.strength(*level.on_items) for level in levels]), self._dial
        if prices is not None:
            both = frozen(prices.copy() if len(double[1]) == 0 else prices + double[1])
            double, single = (double[0], both, *double[2:]), (single[0], frozen(both.astype(np.float32)), *single[2:])
            strengths[:, 4] += np.abs(prices).max(initial=0.0)
        return strengths, double, single


def _rounding(users: Factors, strengths: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return bounds of the rounding of float32 scores, one per user."""
    d, lengths = users.shape[1], np.sqrt(np.einsum("ij,ij->i", users, users, dtype=np.float64))
    sizes, added = lengths * strengths[:, 3], strengths[:, 4]
    # As in CpuBackend.top_k: d products and sums, and the last rounding; a dial adds its own errors.
    errors = (d + 2) * 2.0**-24 * sizes + 1e-37 + (d + 64) * 2.0**-24 * added
    errors += sizes * np.where(strengths[:, 0] > 0, top_k_each.SCALE_ERROR, 2.0**-22)
    rounded: NDArray[np.float32] = errors.astype(np.float32)
    return rounded


def _clenshaw(coefficients: list[float], flatten: float) -> float:
    """Evaluate a Chebyshev series on 0..MOST_FLATTEN at one point; NumPy's takes 20 times as long for a number."""
    x, after, later = 2.0 * flatten / MOST_FLATTEN - 1.0, 0.0, 0.0
    for coefficient in reversed(coefficients[1:]):
        after, later = coefficient + 2.0 * x * after - later, after
    return coefficients[0] + x * after - later


class _Systems:
    """Hold what the systems of all users share."""

    def __init__(self, fitted: Fitted, items: Factors):
        self._items = items
        settings, unobserved = fitted.settings, fitted.settings["unobserved_weight"]
        with get_backend(settings["backend"]).threads(0):
            self._shared: Matrix = unobserved * fitted.item_gramian.astype(np.float64)
        m = len(fitted.item_factors) if fitted.item_features is None else fitted.item_features.n_counted
        self.l2 = frozen(np.array([settings["regularization"], settings["regularization_exponent"], unobserved * m]))
        """(lambda2, eta, alpha0 m): the ridge of a user is lambda2 (c + alpha0 m)^eta."""
        self.merit = frozen(fitted.merit.astype(np.float64))
        self.matrix: Factors = frozen(np.ascontiguousarray(self._shared, dtype=np.float32))
        """alpha0 G_V."""

    @cached_property
    def basis(self) -> tuple[Factors, Factors, Vector, Vector]:
        """(Items in the eigenbasis of alpha0 G_V, its eigenvectors as rows, eigenvalues, q1 in that basis).

        A large catalogue is not held a second time: then the first is empty.
        """
        backend = get_backend("cpu")
        with backend.threads(0):
            values, vectors = np.linalg.eigh(self._shared)
            turned = np.empty((0, len(values)), dtype=np.float32)
            if self._items.nbytes <= MOST_TURNED:
                turned = backend.empty(*self._items.shape)
                backend.multiply(self._items, vectors, turned)
        basis = np.ascontiguousarray(vectors.T, dtype=np.float32)
        return frozen(turned), frozen(basis), frozen(np.maximum(values, 0.0)), frozen(vectors.T @ self.merit)
