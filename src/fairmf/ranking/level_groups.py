"""Group items so that one search finds the best items at any level of the item dial.

An index of plain vectors cannot do that: rare items have short vectors, which all lie close together there, and a high
level of evenness gives just these. Here items are grouped by what a level leaves of them (ranking/item_dial.py): with
W W' = Cov(U), item j is the point

    (W' v_j / sigma_j,  beta log sigma_j,  beta l_j,  beta p_j)

The first part has length 1 for every item: it is the direction of its taste, in which equal distances are equal
differences of scores. Group q has means c_q of v_j / sigma_j, of log sigma_j, l_j and p_j, and the spread r_q of its
directions. At a level (g, h, t) its best score for user u is estimated as

    sigma_q^(1 - g) (u.c_q + kappa r_q |W^-1 u| sqrt(2 log n_q / d)) - h S(g) l_q + t S(g) p_q + the largest of o_j

and a search looks into the `probes` groups with the largest estimates. Which groups are looked into is all that is
approximate: their items are ranked by exact scores (backends/cpu/top_k_groups.py).

Order of calls: `build` once per model (faiss, extra `[ann]`), `choose` for each batch of requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Factors, frozen
from fairmf.backends.cpu.top_k_groups import choose_groups
from fairmf.io.container import Arrays
from fairmf.io.strict_json import Malformed
from fairmf.lazy import cached_property
from fairmf.ranking.item_dial import ItemDial
from fairmf.threads import run
from fairmf.types import Array, Floats

BETA = 0.5  # weight of log spread, log popularity and price beside the direction, when items are grouped
KAPPA = 1.0  # spreads that the best item of a group lies above its mean, relative to the largest of normal numbers
SMALLEST = 1e-4  # of the largest eigenvalue of Cov(U): directions in which users hardly differ are not blown up
LEVELS_KEPT = 4096  # whose share is remembered
PREFIX = "levels_"
SHAPES = {"assignment": ("i4", 1), "centres": ("f4", 2), "facts": ("f4", 2), "metric": ("f4", 2), "effort": ("f4", 2)}
LOG_SPREAD, LOG_COUNT, PRICE, RESIDUAL = range(4)


@dataclass(frozen=True, eq=False)
class LevelGroups:
    """Groups of items that serve every level, and how many of them to look into at some levels."""

    assignment: NDArray[np.int32]
    """The group of each item."""
    centres: NDArray[np.float32]
    """c_q, groups x factors."""
    facts: NDArray[np.float32]
    """Of each group: log sigma_q, l_q, p_q and r_q."""
    metric: NDArray[np.float32]
    """W^-1, factors x factors: u W^-1 is a user in the coordinates of the directions."""
    effort: NDArray[np.float32]
    """Rows (g, h, t, share): the share of the groups to look into at that level; 1 ranks every item."""

    @classmethod
    def build(
        cls,
        items: Array,
        dial: ItemDial,
        covariance: Array,
        groups: int,
        cluster: Callable[[NDArray[np.float32], int], NDArray[np.int32]],
    ) -> LevelGroups:
        """Group the items; `cluster(points, groups)` returns the group of each point."""
        values, vectors = np.linalg.eigh(np.asarray(covariance, dtype=np.float64))
        largest = float(values[-1])
        roots = np.sqrt(np.maximum(values, SMALLEST * largest)) if largest > 0 else np.ones(len(values))
        spread, logs = dial.floored_spread, _centred_logs(dial)
        directions = np.asarray(items @ (vectors * roots).astype(np.float32) / spread[:, None], dtype=np.float32)
        plain = np.stack([np.log(spread), logs, np.zeros(len(logs)) if dial.prices is None else dial.prices], axis=1)
        points = np.concatenate([directions, (BETA * (plain - plain.mean(axis=0))).astype(np.float32)], axis=1)
        assignment = cluster(points, groups)
        members, starts = _by_group(assignment, groups)
        sizes = np.maximum(np.diff(starts), 1)[:, None]
        middles = _sums(directions, members, starts) / sizes
        squares = _sums(np.einsum("ij,ij->i", directions, directions)[:, None], members, starts) / sizes
        residual = np.sqrt(np.maximum(squares[:, 0] - np.einsum("ij,ij->i", middles, middles), 0.0))
        metric = vectors / roots
        facts = np.concatenate([_sums(plain, members, starts) / sizes, residual[:, None]], axis=1)
        f4 = np.float32
        return cls(
            assignment, (middles @ metric.T).astype(f4), facts.astype(f4), metric.astype(f4), np.zeros((0, 4), f4)
        )

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.centres)

    @cached_property
    def by_group(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """(members, starts): group q holds the items members[starts[q]:starts[q + 1]], ascending."""
        return _by_group(self.assignment, self.n_groups)

    def largest(self, added: Floats) -> Floats:
        """Return the largest number of each group, of one number per item; -inf for an empty group."""
        members, starts = self.by_group
        filled = np.flatnonzero(np.diff(starts))
        found = np.full(self.n_groups, -np.inf)
        found[filled] = np.maximum.reduceat(added[members], starts[filled])
        return found

    @cached_property
    def _tables(self) -> tuple[NDArray[np.float32], ...]:
        """Return the facts of every group that `choose_groups` reads, one array each.

        These are log2 sigma_q, l_q, p_q, its reach in units of |W^-1 u|, and 0, or -inf for an empty group.
        """
        sizes, facts = np.diff(self.by_group[1]), self.facts.astype(np.float64)
        reach = KAPPA * facts[:, RESIDUAL] * np.sqrt(2.0 * np.log(np.maximum(sizes, 2)) / self.centres.shape[1])
        columns = (facts[:, LOG_SPREAD] / math.log(2.0), facts[:, LOG_COUNT], facts[:, PRICE], reach)
        empty = np.where(sizes > 0, 0.0, -np.inf)
        return tuple(frozen(column.astype(np.float32)) for column in (*columns, empty))

    @cached_property
    def _turn(self) -> NDArray[np.float32]:
        return frozen(np.ascontiguousarray(self.metric.T))

    def choose(
        self, users: Factors, strengths: Floats, probes: NDArray[np.int64], added: Floats | None = None
    ) -> NDArray[np.int64]:
        """Return the groups that each user looks into: probes[i] of them for user i, then -1. Bits depend on i alone.

        `strengths` has rows (g, h S(g), t S(g)); `added` is the largest offset of each group (`largest`).
        """
        counts = np.minimum(probes, self.n_groups)
        chosen = np.empty((len(users), int(counts.max(initial=1))), dtype=np.int64)
        more = np.empty(0, dtype=np.float32) if added is None else added.astype(np.float32)
        inputs = (users, self._turn, self.centres, self._tables, strengths, more, counts)
        run(choose_groups, len(users), *inputs, out=(chosen,), work=2 * len(users) * self.centres.size)
        return chosen

    # -- how much to look at --------------------------------------------------------------------------------------

    def share(self, strengths: tuple[float, float, float]) -> float:
        """Return the share of the groups to look into at a level; between known levels the larger of two."""
        if not len(self.effort):
            return 1.0
        known = self._shares.get(strengths)
        if known is None:
            distance = ((self.effort[:, :3] - np.asarray(strengths, dtype=np.float32)) ** 2).sum(axis=1)
            nearest = np.argsort(distance, kind="stable")[: 1 if distance.min() == 0 else 2]
            known = float(self.effort[nearest, 3].max())
            if len(self._shares) < LEVELS_KEPT:
                self._shares[strengths] = known
        return known

    @cached_property
    def _shares(self) -> dict[tuple[float, float, float], float]:
        return {}

    # -- the file of an index ---------------------------------------------------------------------------------------

    def arrays(self) -> Arrays:
        """Return the arrays of a file."""
        return {PREFIX + name: getattr(self, name) for name in SHAPES}

    @classmethod
    def taken(cls, arrays: Arrays, n_items: int, factors: int) -> LevelGroups | None:
        """Remove the arrays of groups from those of a file and check them; None if it has none."""
        if PREFIX + "assignment" not in arrays:
            return None
        found = {}
        for name, (kind, dimensions) in SHAPES.items():
            array = arrays.pop(PREFIX + name, None)
            if array is None or array.ndim != dimensions or array.dtype != kind or not np.isfinite(array).all():
                raise Malformed(f"its {PREFIX}{name} must hold finite numbers of type {kind}")
            found[name] = array
        made = cls(**found)
        k = made.n_groups
        fitting = made.assignment.shape == (n_items,) and made.centres.shape == (k, factors) and k > 0
        if not fitting or made.facts.shape != (k, 4) or made.metric.shape != (factors, factors):
            raise Malformed("its groups for all levels do not fit its vectors")
        if made.assignment.min() < 0 or made.assignment.max() >= k or made.effort.shape[1:] != (4,):
            raise Malformed("an item is in a group that does not exist")
        if len(made.effort) and not ((made.effort[:, 3] > 0) & (made.effort[:, 3] <= 1)).all():
            raise Malformed("the share of groups to look into must be above 0 and at most 1")
        return made


def default_groups(n_items: int) -> int:
    """Return the number of groups for a catalogue: four times the square root of its size."""
    return min(n_items, max(1, math.isqrt(16 * n_items)))


def _centred_logs(dial: ItemDial) -> Floats:
    logs = dial.log_counts
    centred: Floats = logs - logs.mean()
    return centred


def _by_group(assignment: NDArray[np.int32], groups: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    starts = np.zeros(groups + 1, dtype=np.int64)
    np.cumsum(np.bincount(assignment, minlength=groups), out=starts[1:])
    return np.argsort(assignment, kind="stable").astype(np.int32), starts


def _sums(values: Array, members: NDArray[np.int32], starts: NDArray[np.int64]) -> Floats:
    """Return the sums of rows by group, in float64."""
    found = np.zeros((len(starts) - 1, values.shape[1]))
    filled = np.flatnonzero(np.diff(starts))
    found[filled] = np.add.reduceat(values[members], starts[filled], axis=0, dtype=np.float64)
    return found
