"""The items' step over shards of users: conjugate gradients in step, each step a sum over all shards.

As `improve_rows` of one machine, but for the order in which partial sums are added. With k steps the shards are sent k
directions (items x d) and send back one residual and k - 1 products (items x d) and, last, a number per item.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.backends import Factors, Matrix, RankOne, RowSums, Vector
from fairmf.engines.handles import ShardedFactors
from fairmf.engines.team import Team
from fairmf.engines.worker import Turned

ROWS = 1024  # items of one block


def improve_items(
    team: Team,
    users: ShardedFactors,
    published: Turned,
    diagonal: Vector,
    ridge: Vector,
    shift: Vector,
    steps: int,
    tolerance: float,
    relaxation: float,
    this: Factors,
    rank_one: RankOne | None,
    rest: Matrix | None,
) -> RowSums:
    """See contract, improve_rows; `published` is what the workers make `this` of."""
    from fairmf.backends.cpu import lockstep_rows, threads  # compiled kernels are loaded by fits alone

    r, losses = team.reduce("item_residual", users.key, published)
    if rest is not None:
        r -= (this @ rest).astype(this.dtype)
    # Copies: arrays of one kind, whoever made them, so that the kernels are compiled once.
    known: list[Any] = [np.array(x, dtype=this.dtype) for x in (diagonal, ridge, shift)]
    known += [None, None] if rank_one is None else [np.array(x, dtype=this.dtype) for x in rank_one]
    bounds = np.append(np.arange(0, len(this), ROWS), len(this))
    p, rz, goal = np.empty_like(this), np.empty(len(this), this.dtype), np.empty(len(this), this.dtype)
    squares, change = np.zeros((len(bounds) - 1, 1)), np.zeros((len(bounds) - 1, 1))
    empty = team.popularity == 0
    inputs = (*known, empty, this.dtype.type(tolerance), bounds)
    work = 8 * this.size
    threads.run(lockstep_rows.begin, len(squares), *inputs, this, r, p, rz, goal, squares, work=work)
    loss = sum(losses)
    for step in range(steps):
        if not (rz > goal).any():
            break
        last = step + 1 == steps
        sums = team.reduce("item_curvature" if last else "item_product", users.key, Turned(team.publish(p), None))[0]
        given = (sums, None, this.dtype.type(relaxation)) if last else (rz, sums, this.dtype.type(1.0))
        threads.run(lockstep_rows.advance, len(change), *known, *given, bounds, this, r, p, rz, goal, change, work=work)
        loss += float(change.sum())
    squared_norms: NDArray[Any] = np.einsum("ja,ja->j", this, this, dtype=np.float64)
    return RowSums(loss, float(squares.sum()), float(ridge @ squared_norms))
