"""Does a run satisfy the paper's convergence theorem (docs/mathematics.md 4, with its misprints mended)?

Practical settings usually do not: the guarantee asks for a rho and a gamma far from what trains well.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fairmf.models.problem import Problem


@dataclass(frozen=True)
class Bounds:
    """The largest squared norms |V|_F^2, |U|_F^2, |s|^2 seen so far."""

    items: float = 0.0
    users: float = 0.0
    consensus: float = 0.0

    def grown(self, items: float, users: float, consensus: float) -> Bounds:
        """The bounds after one more epoch."""
        return Bounds(max(self.items, items), max(self.users, users), max(self.consensus, consensus))


def required_rho(problem: Problem, seen: Bounds) -> float:
    """The smallest rho the theorem allows. Its proof bounds lambda_f V'V, so weights enter by the largest of them."""
    lam, c_v, c_s = problem.lambda_f * problem.largest_fairness_square, seen.items, seen.consensus
    smallest_ridge = float(problem.item_ridge.min())
    first = 24 * lam**2 * c_v * c_s / smallest_ridge if smallest_ridge > 0 else float("inf")
    return max(first, 0.5 + float(np.sqrt(0.25 + 6 * lam**2 * c_v**2)), lam * c_v)


def allowed_gamma(problem: Problem, seen: Bounds) -> float:
    """The largest gamma the theorem allows. (Its statement prints sqrt(m); the lemma behind it needs sqrt(n).)"""
    weights = problem.interactions.by_user.weights
    c_max = 1.0 if weights is None else float(weights.max())
    smoothness = (c_max + problem.unobserved_weight) * seen.items + float(problem.user_ridge.max())
    return 1.0 / (float(np.sqrt(problem.n_users)) * smoothness + 1.0)


def check(problem: Problem, seen: Bounds, rho: float, gamma: float, exact_items: bool = True) -> dict[str, Any]:
    """The theorem's conditions for the run so far, as a record. It speaks of exact item steps only."""
    rho_needed, gamma_allowed = required_rho(problem, seen), allowed_gamma(problem, seen)
    return {
        "satisfied": bool(exact_items and rho >= rho_needed and gamma <= gamma_allowed),
        "required_rho": rho_needed,
        "allowed_gamma": gamma_allowed,
        "bounds": asdict(seen),
    }
