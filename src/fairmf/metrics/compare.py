"""Compare models on the same users, with tests of every difference: `compare`.

1. `_sides` evaluates each model or its lists, or takes evaluations that were made before.
2. Means over users: `sign_flip_p` swaps users' scores, `draw_weights` resamples users.
3. Other metrics (Gini, coverage, JME): users' lists are swapped between the two models, and the metric of each side is
   counted anew. For this, the lists of both are stacked, and weights say which of a user's two lists a side has.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.data.csr import Rows
from fairmf.data.groups import GroupLabels, Groups
from fairmf.data.split import HeldOut
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.bootstrap import Bootstrap, draw_weights, interval, jackknife_interval, weighted_means
from fairmf.metrics.comparison import Comparison, PairedTest
from fairmf.metrics.evaluate import Counted, count_lists, count_ranked, given_lists, resample
from fairmf.metrics.evaluation import Evaluation
from fairmf.metrics.given import Extras, ListBlock
from fairmf.metrics.list_case import ListOptions, match_lists
from fairmf.metrics.plan import Plan, make_plan
from fairmf.metrics.registry import INPUTS, Wanted, parse_metric, parse_metrics
from fairmf.metrics.significance import bootstrap_p, holm, sign_flip_p, swap_p, swaps
from fairmf.models.progress import progress_bar
from fairmf.params import check_count, check_seed, check_share
from fairmf.types import Record

Values = NDArray[np.float64]
METRICS = ("ndcg", "recall", "gini", "coverage")
READING = tuple(field.name for field in dataclasses.fields(ListOptions))
EXTRAS = ("merit", *Extras._fields)


class _Side(NamedTuple):
    name: str
    values: Mapping[str, float]
    per_user: Mapping[str, Values]
    counted: Counted | None


@dataclasses.dataclass(frozen=True)
class _Settings:
    resamples: int
    confidence: float
    random_state: int


def compare(
    models: Mapping[str, Any],
    test: Any = None,
    *,
    metrics: Sequence[str] | None = None,
    at: int | Sequence[int] = 20,
    baseline: str | None = None,
    train: Any = None,
    groups: GroupLabels | None = None,
    resamples: int = 2000,
    alpha: float = 0.05,
    confidence: float = 0.95,
    random_state: int = 0,
    progress: bool | None = None,
    **options: Any,
) -> Comparison:
    """Compare two or more models on the same users, and test every difference (docs/metrics.md, Significance).

    Parameters
    ----------
    models
        By name: fitted models, lists in any form that `evaluate_lists` reads, or results of `evaluate` on the same
        users. Results hold no lists, so only metrics that are means over users can be tested with them.
    test
        Held-out data as in `evaluate_lists`; a HeldOut for models. Not for results.
    metrics, at
        Names with or without a cut-off. By default nDCG, recall, Gini and coverage, or all means that results share.
    baseline
        Compare every model with this one only; by default all pairs are compared.
    train, groups
        As in `evaluate_lists`.
    resamples
        Number of random swaps, and of bootstrap resamples.
    alpha, confidence
        Level of significance after Holm's correction, and confidence of the intervals of single differences.
    random_state
        Seed of swaps and resamples.
    progress
        Whether to show a progress bar; by default on a terminal only.
    **options
        Other inputs of metrics and options of `evaluate_lists`: merit, user_groups, features, group_target, items, ...

    Returns
    -------
    Comparison
        Values, tests, `table()` and `to_latex()`.

    Raises
    ------
    InvalidData
        If the models were not evaluated on the same users.
    InvalidParameter
        If fewer than two models are given, or a metric cannot be tested.

    Examples
    --------
    >>> from fairmf import FairALS, Popularity, compare, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> models = {"popular": Popularity().fit(split.train), "als": FairALS(factors=8, epochs=4).fit(split.train)}
    >>> found = compare(models, split.test, metrics=["gini@20"], resamples=200)
    >>> found.beaten("gini@20", "als")
    ['popular']
    """
    check_count("compare", "resamples", resamples, 1)
    check_share("compare", "alpha", alpha)
    check_share("compare", "confidence", confidence)
    check_seed("compare", random_state)
    if not isinstance(models, Mapping) or len(models) < 2:
        raise InvalidParameter("'models' of compare must map at least two names to models, lists or results.")
    if baseline is not None and baseline not in models:
        raise InvalidParameter(f"There is no model {baseline!r} to compare with; there are {', '.join(models)}.")
    if any(isinstance(model, Evaluation) for model in models.values()):
        sides, labels = _from_results(models, test, metrics, at)
    else:
        wanted = METRICS if metrics is None else [metrics] if isinstance(metrics, str) else metrics
        names = parse_metrics(wanted, at, INPUTS)
        sides = _from_lists(models, test, names, train, groups, options)
        labels = [w.label for w in names]
    settings = _Settings(resamples, float(confidence), random_state)
    found, pairs = [], _pairs(sides, baseline)
    with progress_bar("compare", len(pairs), progress) as advance:
        for first, second in pairs:
            found += _tests(first, second, labels, settings)
            advance(f"{first.name} - {second.name}")
    corrected = zip(found, holm([t.p for t in found]), holm([t.p_bootstrap for t in found]), strict=True)
    tests = tuple(dataclasses.replace(t, p_holm=p, p_bootstrap_holm=b) for t, p, b in corrected)
    values = {label: {side.name: float(side.values[label]) for side in sides} for label in labels}
    return Comparison(values, tests, float(alpha), float(confidence))


def _pairs(sides: list[_Side], baseline: str | None) -> list[tuple[_Side, _Side]]:
    if baseline is None:
        return [(second, first) for first, second in itertools.combinations(sides, 2)]
    base = next(side for side in sides if side.name == baseline)
    return [(side, base) for side in sides if side is not base]


# -- what is compared -------------------------------------------------------------------------------------------------


def _from_results(
    models: Mapping[str, Any], test: Any, metrics: Sequence[str] | None, at: int | Sequence[int]
) -> tuple[list[_Side], list[str]]:
    """Take results of `evaluate`; check that they are of the same users and have the metrics."""
    other = [name for name, model in models.items() if not isinstance(model, Evaluation)]
    if other or test is not None:
        raise InvalidData(
            "Results of evaluate are compared with each other, without test data; "
            + (f"{other[0]!r} is none." if other else "test was given.")
        )
    sizes = {name: (found.n_users, found.n_scored) for name, found in models.items()}
    if len(set(sizes.values())) > 1:
        raise InvalidData(f"The results are of different users: (users, with targets) are {sizes}.")
    results = list(models.values())
    shared = [label for label in results[0].per_user if all(label in found.per_user for found in results)]
    labels = shared if metrics is None else [w.label for w in parse_metrics(metrics, at, INPUTS)]
    for label in labels:
        if label not in shared:
            what = "was not evaluated for all models" if parse_metric(label).is_mean else "is not a mean over users"
            raise InvalidParameter(
                f"The metric {label!r} {what}, so results alone cannot be tested.",
                hint="pass the models or their lists, with test=",
            )
    if not labels:
        raise InvalidParameter("The results share no metric that is a mean over users.")
    return [_Side(name, found.values, found.per_user, None) for name, found in models.items()], labels


def _from_lists(
    models: Mapping[str, Any], test: Any, wanted: list[Wanted], train: Any, groups: GroupLabels | None, options: Record
) -> list[_Side]:
    """Make or match the lists of every model, and count them for the same users."""
    if test is None:
        raise InvalidData("compare needs test data, unless all models are results of evaluate.", parameter="test")
    unknown = sorted(set(options) - {*READING, *EXTRAS})
    if unknown:
        raise TypeError(f"compare has no option {unknown[0]!r}.")
    extras = Extras(**{name: options[name] for name in Extras._fields if name in options})
    reading = ListOptions(**{name: options[name] for name in READING if name in options})
    labels, longest = [w.label for w in wanted], max(w.K for w in wanted)
    sides: list[_Side] = []
    users: tuple[HeldOut, list[Any]] | None = None
    for name, model in models.items():
        if hasattr(model, "rank") and hasattr(model, "n_items"):
            if not isinstance(test, HeldOut):
                raise InvalidData(f"{name!r} is a model, which is compared on a HeldOut such as split.test.")
            held_out, training = test, train
            plan = make_plan(held_out, (), labels, groups, training, options.get("merit"), extras, [model])
            count = functools.partial(count_ranked, model, held_out, plan, {})
        else:
            matched = match_lists(model, test, train, longest, reading)
            held_out, training = matched.held_out, matched.train
            plan = make_plan(held_out, (), labels, groups, training, options.get("merit"), extras)
            blocks = [(first, items[:, : plan.longest]) for first, items in given_lists(matched.lists)]
            count = functools.partial(count_lists, blocks, held_out, plan)
        ids = held_out.fold_in.user_ids
        who = [held_out.n_users] if ids is None else ids.values.tolist()
        if users is not None and (who != users[1] or held_out.targets.by_user.nnz != users[0].targets.by_user.nnz):
            raise InvalidData(f"{name!r} has lists of other users than {sides[0].name!r}: compare the same users.")
        users = users or (held_out, who)
        counted = count(keep_lists=True)
        sides.append(_Side(name, counted.values(), counted.per_user, counted))
    return sides


# -- tests ------------------------------------------------------------------------------------------------------------


def _tests(first: _Side, second: _Side, labels: list[str], settings: _Settings) -> list[PairedTest]:
    means = [label for label in labels if label in first.per_user]
    others = [label for label in labels if label not in first.per_user]
    found = {label: _test_of_mean(label, first, second, settings) for label in means}
    if others:
        found |= _tests_of_lists(others, first, second, settings)
    return [found[label] for label in labels]


def _test_of_mean(label: str, first: _Side, second: _Side, settings: _Settings) -> PairedTest:
    one, other = first.per_user[label], second.per_user[label]
    if len(one) != len(other):
        raise InvalidData(f"{first.name!r} and {second.name!r} have scores of different users.")
    difference = one - other  # NaN for users whom one side does not score
    n = int(np.isfinite(difference).sum())
    mean = float(difference[np.isfinite(difference)].mean()) if n else float("nan")
    p, exact = sign_flip_p(difference, settings.resamples, settings.random_state) if n else (float("nan"), False)
    draws = draw_weights(len(difference), settings.resamples, 0, settings.random_state) if n else ()
    replicates = np.concatenate([np.empty(0), *(weighted_means(difference, weights) for weights in draws)])
    ends = interval(replicates, settings.confidence)
    nan = float("nan")
    p_bootstrap = bootstrap_p(mean, replicates)
    return PairedTest(label, first.name, second.name, mean, *ends, p, p_bootstrap, nan, nan, n, exact)


def _tests_of_lists(labels: list[str], first: _Side, second: _Side, settings: _Settings) -> dict[str, PairedTest]:
    """Test metrics that are not means: swap the lists of users, and resample users."""
    if first.counted is None or second.counted is None:
        raise ValueError("Lists are needed.")
    plan = first.counted.plan
    n = plan.of_items.n_lists
    measured = _stacked(first.counted, second.counted, labels)
    swapped: dict[str, list[Values]] = {label: [] for label in labels}
    for keep in swaps(n, settings.resamples, plan.n_items, settings.random_state):
        one, other = measured(np.concatenate((keep, 1 - keep))), measured(np.concatenate((1 - keep, keep)))
        for label in labels:
            swapped[label].append(one[label] - other[label])

    def differences(weights: Values) -> dict[str, Values]:
        none = np.zeros_like(weights)
        one, other = measured(np.concatenate((weights, none))), measured(np.concatenate((none, weights)))
        return {label: one[label] - other[label] for label in labels}

    draws = Bootstrap(settings.resamples, settings.confidence, settings.random_state)
    size, jackknifed = max(2 * n, plan.n_items), plan.jackknifed & set(labels)
    drawn = resample(differences, n, size, draws)
    left_out = resample(differences, n, size, dataclasses.replace(draws, count=0), jackknifed)
    found, nan = {}, float("nan")
    for label in labels:
        difference = float(first.values[label] - second.values[label])
        span = {"centre": difference, "lowest": -np.inf}  # resampling biases these metrics: see `interval`
        if label in jackknifed:
            ends = jackknife_interval(left_out[label], settings.confidence, **span)
        else:
            ends = interval(drawn[label], settings.confidence, **span)
        ps = swap_p(difference, np.concatenate(swapped[label])), bootstrap_p(difference, drawn[label])
        found[label] = PairedTest(label, first.name, second.name, difference, *ends, *ps, nan, nan, n, False)
    return found


def _stacked(first: Counted, second: Counted, labels: list[str]) -> Callable[[Values], dict[str, Values]]:
    """Return a function from weights of both sides' lists (first, then second) to metrics."""
    if first.lists is None or second.lists is None:
        raise ValueError("Lists are needed.")
    wanted = [w for w in first.plan.wanted if w.label in labels]
    given = first.plan.given
    groups = given.user_groups
    if groups is not None:  # every user is there twice
        given = dataclasses.replace(given, user_groups=Groups(np.tile(groups.codes, 2), groups.names))
    plan: Plan = dataclasses.replace(first.plan, wanted=wanted, given=given)
    width = max(first.lists.shape[1], second.lists.shape[1])
    lists = np.concatenate([_widened(counted.lists, width, -1) for counted in (first, second)])
    block = None
    if first.block is not None and second.block is not None:
        one, other = first.block, second.block
        hits = np.concatenate([_widened(side.hits, width, False) for side in (one, other)])
        block = ListBlock(lists, hits, _twice(one.targets), _twice(one.history), given)
    return Counted(plan, {}, {}, lists, block).statistics()


def _widened(array: Any, width: int, value: int) -> Any:
    """Return the array with columns of `value` on the right, so that it has `width` of them."""
    more = np.full((len(array), width - array.shape[1]), value, dtype=array.dtype)
    return np.concatenate((array, more), axis=1)


def _twice(rows: Rows) -> Rows:
    indptr = np.concatenate((rows.indptr, rows.indptr[1:] + rows.nnz))
    return Rows(indptr, np.tile(rows.indices, 2), None)
