"""`fit_path`: re-trained models along a list of fairness values, each started from its neighbour."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Sequence

from fairmf.control.curve import Curve, Row
from fairmf.control.trade_off import METRICS
from fairmf.errors import InvalidParameter
from fairmf.metrics import evaluate
from fairmf.models import FairALS, FiADMM
from fairmf.models.iterative import IterativeModel, check_fairness
from fairmf.models.progress import progress_bar
from fairmf.splitting import Split

TOLERANCE = 5e-4  # relative fall of F per epoch at which a warm fit is about where a cold one ends (docs/trade-off.md)


def fit_path(
    model: FairALS | FiADMM,
    split: Split,
    *,
    fairness: Iterable[float],
    tolerance: float = TOLERANCE,
    metrics: Sequence[str] = METRICS,
    progress: bool | None = None,
) -> Curve:
    """Train at every fairness and measure on the validation users: what the dial's curve is to be compared with.

    The first (lowest) is a cold fit of `model.epochs` epochs; each next one starts from the one before and ends as soon
    as an epoch lowers F relatively by less than `tolerance`, which takes a few epochs unless the values lie far apart.
    The given model is left as it is. Rows also hold the objective F that training reached and its epochs.
    """
    if not isinstance(model, (FairALS, FiADMM)):
        raise InvalidParameter(f"A {type(model).__name__} has no fairness to train with: use FairALS or FiADMM.")
    if not isinstance(split, Split):
        raise InvalidParameter(f"fit_path trains, so it needs a whole Split. Got {type(split).__name__} instead.")
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not tolerance >= 0:
        raise InvalidParameter(f"tolerance must be a number >= 0. Got {tolerance!r} instead.")
    values = sorted({check_fairness(phi) for phi in fairness})
    if not values:
        raise InvalidParameter("fairness holds no values.")
    rows: list[Row] = []
    previous: IterativeModel | None = None
    with progress_bar("path", len(values), progress) as advance:
        for phi in values:
            began = time.perf_counter()
            trained = copy.copy(model)
            trained.fairness = phi
            trained.tolerance = model.tolerance if previous is None else tolerance
            # Only folded-in users are asked, so that the last half-step of the stored ones would be wasted.
            trained.fit(split.train, init=previous, objective_every=model.epochs, progress=False, settle=False)
            seconds = time.perf_counter() - began
            found = evaluate(trained, split.validation, metrics=metrics, bootstrap=0)
            objective = trained.history.records[-1]["objective"]["total"]
            rows.append({
                "way": "re-trained", "fairness": phi, **{name: found[name] for name in metrics},
                "objective": objective, "epochs": len(trained.history), "seconds": seconds,
            })  # fmt: skip
            previous = trained
            advance(f"fairness {phi:g}")
    return Curve(tuple(rows), tuple(metrics))
