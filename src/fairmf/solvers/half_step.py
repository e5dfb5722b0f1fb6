"""The problem every solver solves: all rows of one side, the other side fixed.

    (sum_j c_ij y_j y_j' + shared + ridge_i I) x_i  =  sum_j c_ij y_j - shift          for every row i

For users, shared = alpha0 G_V and shift = psi q1 (zero without fairness). For items, shared = alpha0 G_U plus
lambda_f s s' and shift = 0 (docs/mathematics.md 4 and 5); where items' fairness weights differ, what of
lambda_f w_j^2 s s' is not shared is the rank-one term of row j (5a). Each x_i minimises a strictly convex quadratic,
so solvers differ in cost alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairmf.backends import Backend, Factors, Matrix, RankOne, Vector
from fairmf.interactions import Rows


@dataclass(frozen=True)
class HalfStep:
    """One side's linear systems. `rows` belong to the side being solved, `other` are the fixed factors."""

    backend: Backend
    rows: Rows
    other: Factors
    shared: Matrix
    ridge: Vector
    shift: Vector
    rank_one: RankOne | None = None
