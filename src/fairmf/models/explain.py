"""Explain a score: how much each past item adds to it, and what fairness takes away.

u = H^-1 (sum_j c_j v_j - psi q1), so the score u.v of an item is a sum over the user's history:

    score = sum_j c_j v'H^-1 v_j  -  psi v'H^-1 q1  (+ lambda_U v'H^-1 M_U'z, where the user has features z)

Where items have features x, v itself is M_I'x plus what the item's users taught: u.v = u.(M_I'x) + u.(v - M_I'x).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fairmf import html
from fairmf.backends.contract import ItemScale
from fairmf.data.ids import named
from fairmf.data.interactions import Interactions
from fairmf.errors import NotFinite
from fairmf.io.values import plain
from fairmf.models.evenness import Level
from fairmf.models.fitted import Fitted
from fairmf.models.fold_in_systems import user_predictions
from fairmf.models.problem import serving_problem
from fairmf.types import Record

SHOWN = 5  # contributions that the printed text lists


@dataclass(frozen=True)
class Explanation:
    """One score and its parts: `score` = the sum of all contributions - `fairness_cost` + `offset` + `user_features`.

    At a level of evenness, all parts are those of the dialled score: multiplied by the item's scale.
    """

    user: Hashable
    """Id of the user (None if only a history was given)."""
    item: Hashable
    """Id of the item."""
    score: float
    """The score that is explained."""
    contributions: tuple[tuple[Hashable, float], ...]
    """(past item, amount it adds), the largest first; negative if it lowers the score."""
    fairness: float
    """The fairness of this score (psi)."""
    fairness_cost: float
    """Amount that fairness takes away; negative if it adds, as it does for rarely recommended items."""
    offset: float = 0.0
    """The part that all users share: the item's learned exposure offset, and what evenness adds or takes away."""

    user_features: float = 0.0
    """Amount that the user's own features add."""
    item_features: float | None = None
    """The part of the score that the item's features explain; the rest is what its users taught. None without."""

    def to_dict(self) -> Record:
        """Return plain values, for JSON; ids stay as they are."""
        past = [{"item": item, "amount": amount} for item, amount in self.contributions]
        own = {**vars(self), "contributions": past}
        if self.item_features is None and not self.user_features:  # a model without features
            own = {name: value for name, value in own.items() if name not in ("item_features", "user_features")}
        return own

    def _repr_html_(self) -> str:
        who = "" if self.user is None else f"for user {self.user}"
        rows: list[tuple[object, str]] = [
            (f"past item {item}", f"{amount:+.4f}") for item, amount in self.contributions[:SHOWN]
        ]
        if rest := self.contributions[SHOWN:]:
            rows.append((f"{len(rest):,} more past items", f"{sum(amount for _, amount in rest):+.4f}"))
        if self.fairness_cost:
            rows.append(("fairness", f"{-self.fairness_cost:+.4f}"))
        if self.offset:
            rows.append(("evenness and offset of the item", f"{self.offset:+.4f}"))
        rows.append(("score", f"{self.score:+.4f}"))
        return html.title(f"Why item {self.item}", who) + html.table(["part", "adds"], rows)

    def __str__(self) -> str:
        who = "" if self.user is None else f" for user {self.user!r}"
        lines = [f"item {self.item!r}{who}: score {self.score:.4f} at fairness {self.fairness:g}"]
        lines += [f"  {amount:+.4f}  item {item!r}" for item, amount in self.contributions[:SHOWN]]
        rest = self.contributions[SHOWN:]
        if rest:
            lines.append(f"  {sum(amount for _, amount in rest):+.4f}  {len(rest)} other items")
        lines.append(f"  {-self.fairness_cost:+.4f}  fairness")
        if self.user_features:
            lines.append(f"  {self.user_features:+.4f}  features of the user")
        if self.offset:
            lines.append(f"  {self.offset:+.4f}  exposure offset")
        if self.item_features is not None:
            behaviour = self.score - self.offset - self.item_features
            lines.append(f"of this {self.item_features:+.4f} by the item's features, {behaviour:+.4f} by its users")
        return "\n".join(lines)


def explain(fitted: Fitted, user: Hashable, history: Interactions, item: int, level: Level) -> Explanation:
    """Explain the score of the item at that row for the one user in `history`. Call it inside `backend.threads`."""
    fairness = fitted.fairness if level.fairness is None else level.fairness
    scales, offsets = fitted.item_scale(level) or ItemScale()
    scale = 1.0 if scales is None else float(scales[item])
    problem = serving_problem(fitted, history)
    columns, weights = history.by_user.row(0)
    # In float64, so that the parts add up to the score; one small system costs little.
    past = fitted.item_factors[columns].astype(np.float64)
    signed = np.ones(len(columns)) if weights is None else weights.astype(np.float64)
    matrix = problem.unobserved_weight * fitted.item_gramian + (past.T * np.abs(signed)) @ past
    confidence = np.maximum(signed, 0.0)  # a dislike has the target 0, so that it adds nothing to the right-hand side
    matrix[np.diag_indices_from(matrix)] += problem.user_ridge[0]
    try:
        response = scipy.linalg.solve(matrix, fitted.item_factors[item].astype(np.float64), assume_a="pos")
    except np.linalg.LinAlgError as error:
        raise NotFinite("This user's system is singular: raise regularization or unobserved_weight.") from error
    amounts = scale * confidence * (past @ response)
    predicted = user_predictions(fitted, history)
    own = 0.0 if predicted is None else scale * float(problem.user_ridge[0] * (response @ predicted[0]))
    by_features = None
    if fitted.item_features is not None:
        # u.(M'x), with u = H^-1 (b - psi q1 + lambda prior).
        right = past.T @ confidence - fairness * fitted.merit
        if predicted is not None:
            right = right + problem.user_ridge[0] * predicted[0]
        side = fitted.item_features
        expected = side.predicted(side.rows.take(np.array([item])))[0].astype(np.float64)
        by_features = scale * float(scipy.linalg.solve(matrix, right, assume_a="pos") @ expected)
    cost = scale * fairness * float(response @ fitted.merit)
    offset = 0.0 if offsets is None else float(offsets[item])
    order = np.argsort(-amounts, kind="stable")
    names = named(columns[order], fitted.item_ids).tolist()
    return Explanation(
        user=plain(user),
        item=named(np.array([item]), fitted.item_ids).tolist()[0],
        score=float(amounts.sum()) - cost + offset + own,
        contributions=tuple(zip(names, amounts[order].tolist(), strict=True)),
        fairness=fairness,
        fairness_cost=cost,
        offset=offset,
        user_features=own,
        item_features=by_features,
    )
