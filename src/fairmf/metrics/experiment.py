"""Plan an A/B test: how many users it takes to see a change in accuracy or in the exposure of rare items.

An experiment shows list A to some users and list B to others, and compares the means of a metric of their lists. With
N users in all, a share r of them in B, and deviations s_A, s_B between users, the difference of the means has the
variance

    v / N,   v = s_A^2 / (1 - r) + s_B^2 / r,

and a two-sided test at level alpha finds a true difference delta with probability `power` for

    N = (z(1 - alpha/2) + z(power))^2 v / delta^2      (z: quantiles of the normal distribution).

Deviations come from the held-out users of an evaluation, and so does delta, unless it is given. Held-out users see both
lists, so delta has an interval from paired differences; its end nearer to 0 gives the cautious number of users.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist

import numpy as np

from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.evaluation import Evaluation
from fairmf.params import check_share
from fairmf.types import Record


@dataclass(frozen=True)
class ExperimentPlan:
    """The number of users for one metric.

    Attributes
    ----------
    metric
        Its full name, such as "ndcg@20" or "aplt@20" (the share of tail items in a list).
    control, treatment
        Means over the held-out users. With a given change, `treatment` is `control` plus that change.
    change
        The difference that the experiment is to find.
    interval
        The 95 % interval of the measured difference; None if the change was given.
    users
        Users in both arms together; None if the difference is 0.
    cautious_users
        The same for the end of the interval that is nearer to 0; None if the interval contains 0.
    alpha, power, share
        As in `plan_experiment`.

    Examples
    --------
    >>> plan = ExperimentPlan("ndcg@20", 0.30, 0.32, 0.02, (0.01, 0.03), 1500, 6000, 0.05, 0.8, 0.5)
    >>> f"{plan.metric}: {plan.users:,} users, {plan.cautious_users:,} to be on the safe side"
    'ndcg@20: 1,500 users, 6,000 to be on the safe side'
    """

    metric: str
    control: float
    treatment: float
    change: float
    interval: tuple[float, float] | None
    users: int | None
    cautious_users: int | None
    alpha: float
    power: float
    share: float

    def to_dict(self) -> Record:
        """Return the plan as plain values."""
        return asdict(self)


def sample_size(
    change: float, deviations: tuple[float, float], *, alpha: float = 0.05, power: float = 0.8, share: float = 0.5
) -> int:
    """Return the number of users, in both arms together, that a two-sided test of two means needs.

    Parameters
    ----------
    change
        The true difference of the means; its sign does not matter.
    deviations
        Standard deviations between users, of control and treatment.
    alpha
        Probability of a false alarm where there is no difference.
    power
        Probability of finding a difference of this size.
    share
        Share of the users that get the treatment.

    Returns
    -------
    The number of users. It is at least 4: two in each arm.

    Raises
    ------
    InvalidParameter
        If the change is 0, or a number is out of its range.

    Examples
    --------
    >>> sample_size(0.5, (1.0, 1.0))  # the textbooks' 63 in each arm
    126
    """
    for name, value in {"alpha": alpha, "power": power, "share": share}.items():
        check_share("sample_size", name, value)
    if not math.isfinite(change) or change == 0:
        raise InvalidParameter(
            f"The 'change' of sample_size must be a finite number other than 0. Got {change} instead."
        )
    before, after = deviations
    if not (math.isfinite(before) and math.isfinite(after) and before >= 0 and after >= 0):
        raise InvalidParameter(f"The 'deviations' of sample_size must be two numbers >= 0. Got {deviations} instead.")
    variance = before**2 / (1 - share) + after**2 / share
    quantiles = NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(power)
    return max(4, math.ceil((quantiles / change) ** 2 * variance))


def plan_experiment(
    control: Evaluation,
    treatment: Evaluation,
    *,
    metrics: Sequence[str] = ("ndcg@20", "aplt@20"),
    change: float | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
    share: float = 0.5,
) -> list[ExperimentPlan]:
    """Plan an A/B test of two models, or of two levels of evenness, from their evaluations on the same held-out users.

    Parameters
    ----------
    control, treatment
        Results of `evaluate` on the same users, with all metrics asked for.
    metrics
        Metrics that are means over users: accuracy ("ndcg@20"), or "aplt@20", the share of tail items in a list.
    change
        Plan for this difference instead of the measured one.
    alpha, power, share
        As in `sample_size`.

    Returns
    -------
    One `ExperimentPlan` for each metric.

    Raises
    ------
    InvalidData
        If the evaluations are of different users, or one lacks a metric or is not a mean over users.

    Examples
    --------
    >>> from fairmf import FairALS, Popularity, evaluate, plan_experiment, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> models = Popularity().fit(split.train), FairALS(factors=8, epochs=4).fit(split.train)
    >>> results = [evaluate(model, split.test, metrics=["ndcg@20"], bootstrap=0) for model in models]
    >>> [plan] = plan_experiment(*results, metrics=["ndcg@20"], change=0.02)
    >>> plan.users > 100
    True
    """
    return [_plan(control, treatment, metric, change, (alpha, power, share)) for metric in metrics]


def _plan(
    control: Evaluation, treatment: Evaluation, metric: str, change: float | None, test: tuple[float, float, float]
) -> ExperimentPlan:
    before, after = _scores(control, treatment, metric)
    alpha, power, share = test
    deviations = float(np.std(before, ddof=1)), float(np.std(after, ddof=1))
    options = {"alpha": alpha, "power": power, "share": share}
    mean = float(before.mean())
    if change is not None:
        users = sample_size(change, deviations, **options)
        return ExperimentPlan(metric, mean, mean + change, change, None, users, users, alpha, power, share)
    differences = after - before
    measured = float(differences.mean())
    half = NormalDist().inv_cdf(0.975) * float(np.std(differences, ddof=1)) / math.sqrt(len(differences))
    nearest = math.copysign(max(abs(measured) - half, 0.0), measured)
    found, cautious = (sample_size(size, deviations, **options) if size else None for size in (measured, nearest))
    interval = (measured - half, measured + half)
    return ExperimentPlan(metric, mean, float(after.mean()), measured, interval, found, cautious, alpha, power, share)


def _scores(control: Evaluation, treatment: Evaluation, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of the users that both evaluations scored."""
    for found in (control, treatment):
        if metric not in found.per_user:
            known = ", ".join(sorted(found.per_user)) or "none"
            raise InvalidData(f"There is no score of each user for {metric!r}", hint=f"evaluate it; there are: {known}")
    before, after = control.per_user[metric], treatment.per_user[metric]
    scored = np.isfinite(before)
    if len(before) != len(after) or not np.array_equal(scored, np.isfinite(after)):
        raise InvalidData("Control and treatment were evaluated on different users.")
    if scored.sum() < 2:
        raise InvalidData(f"{metric} needs at least two users with scores, and there are {scored.sum()}.")
    return before[scored], after[scored]
