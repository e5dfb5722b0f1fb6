"""Exact rows: form each d x d matrix, factorise, solve. O(nnz d^2 + rows d^3).

Equals any other solver at convergence; leaves a zero gradient (solvers/gradient.py), which is the test.
"""

from __future__ import annotations

from fairmf.backends import Factors
from fairmf.solvers.half_step import HalfStep


def solve(step: HalfStep) -> Factors:
    """The exact solution of every row."""
    out = step.backend.empty(step.rows.count, step.other.shape[1])
    step.backend.solve_rows(step.rows, step.other, step.shared, step.ridge, step.shift, out, step.rank_one)
    return out
