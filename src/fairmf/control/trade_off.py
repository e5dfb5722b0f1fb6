"""`trade_off`: quality and exposure along the dial of one trained model. Nothing is trained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fairmf.control.curve import Curve
from fairmf.control.dial import Dial, rounded, validation_of
from fairmf.errors import InvalidParameter
from fairmf.models.iterative import IterativeModel, check_fairness
from fairmf.models.progress import progress_bar
from fairmf.splitting import HeldOut, Split

METRICS = ("ndcg@100", "recall@20", "gini@20", "coverage@20")


def trade_off(
    model: IterativeModel,
    split: Split | HeldOut,
    *,
    fairness: Iterable[float] | None = None,
    points: int = 12,
    metrics: Sequence[str] = METRICS,
    progress: bool | None = None,
) -> Curve:
    """Measure a fitted model on the validation users at the given fairness values, or at `points` chosen ones.

    Chosen values start at 0, double until the first Gini rises again (the dial's end: beyond it everybody is given the
    same unpopular items), and then fill the widest gaps, so that the curve is evenly covered. Rows beyond the Gini
    minimum are marked `past_minimum`. The first accuracy metric and the first Gini of `metrics` are the two axes.

    >>> from fairmf import FairALS, split_by_user, synthetic, trade_off
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> curve = trade_off(FairALS(factors=8, epochs=4).fit(split.train), split, points=6)
    >>> len(curve), curve.table().column_names[:3]
    (6, ['way', 'fairness', 'ndcg@100'])
    """
    held_out = validation_of(split)
    given = None if fairness is None else [check_fairness(psi) for psi in fairness]
    if given is not None and not given:
        raise InvalidParameter("fairness holds no values: leave it out to have them chosen.")
    if given is None and (isinstance(points, bool) or not isinstance(points, int) or points < 2):
        raise InvalidParameter(f"points must be an integer >= 2. Got {points!r} instead.")
    axes = Curve((), tuple(metrics))
    if given is None:
        _check_axes(axes)
    with progress_bar("trade-off", len(given) if given is not None else points, progress) as advance:
        dial = Dial(model, held_out, metrics, advance)
        if given is not None:
            return Curve(tuple(dial(psi) for psi in given), axes.metrics)
        cover(dial, points, axes.quality, axes.inequality)
    return Curve(tuple(marked(dial, axes.inequality)), axes.metrics)


def cover(dial: Dial, points: int, quality: str, inequality: str) -> None:
    """Measure `points` positions: upwards to the Gini minimum, then in the middle of the widest gap."""
    last = np.inf
    for psi in dial.first_steps():
        if len(dial.rows) == points:
            return
        here = dial(psi)[inequality]
        if here > last:
            break
        last = here
    while len(dial.rows) < points:
        positions = sorted(dial.rows)
        values = np.array([[dial.rows[psi][quality], dial.rows[psi][inequality]] for psi in positions])
        spread = np.ptp(values, axis=0)
        gaps = np.linalg.norm(np.diff(values, axis=0) / np.where(spread > 0, spread, 1), axis=1)
        for k in np.argsort(-gaps, kind="stable"):
            low, high = positions[k], positions[k + 1]
            middle = rounded(np.sqrt(low * high) if low > 0 else high / 2)
            if middle not in dial.rows:
                dial(middle)
                break
        else:
            return  # no three-digit number is left between any two


def marked(dial: Dial, inequality: str) -> list[dict[str, object]]:
    """The rows by rising fairness; those past the Gini minimum say so."""
    rows = [dial.rows[psi] for psi in sorted(dial.rows)]
    end = int(np.argmin([row[inequality] for row in rows]))
    return [{**row, "past_minimum": k > end} for k, row in enumerate(rows)]


def _check_axes(curve: Curve) -> None:
    if not any(name.startswith(("ndcg", "recall")) for name in curve.metrics) or not any(
        name.startswith("gini") for name in curve.metrics
    ):
        raise InvalidParameter(
            "To choose fairness values, metrics must hold an accuracy (ndcg@K or recall@K) and a gini@K. "
            f"Got {', '.join(curve.metrics) or 'none'} instead."
        )
