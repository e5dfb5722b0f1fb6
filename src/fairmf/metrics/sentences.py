"""Findings as people read them: names of metrics, written numbers, and the sentences of audits and reports.

Every number in a sentence is computed, and what gets worse is said as clearly as what gets better. A change whose
interval contains 0 is called not statistically significant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fairmf.metrics.audit_change import Change, UserChange
from fairmf.metrics.registry import GROUP, METRICS, ExposureMetric, parse_metric

if TYPE_CHECKING:
    from fairmf.metrics.audit_result import Audit, GroupChange, ItemChange

NAMED = 3  # items and groups that a sentence names
HARDLY = 0.005  # a share of exposure below which a sentence speaks of the next larger part of the catalogue
LONGEST_NAME = 120
MINUS, MISSING = "\N{MINUS SIGN}", "\N{EN DASH}"
VERDICTS = {True: "better", False: "worse", None: "no clear change"}
SPREAD = {
    "coverage": "the part of the catalogue shown to anybody",
    "gini": "the Gini of exposure",
    "top1_share": "the share of the 1% of items shown most",
}


# -- names and numbers ------------------------------------------------------------------------------------------------


def title(metric: str) -> str:
    """Return a metric's name as people write it: "nDCG@100"; a column that is no metric keeps its own name."""
    known = metric.partition("@")[0].removeprefix(GROUP) in METRICS
    return parse_metric(metric).title if known else metric.replace("_", " ")


def arrow(metric: str) -> str:
    """Return an arrow in the direction that is better (or fairer)."""
    return "↓" if parse_metric(metric).lower_is_better else "↑"


def written(metric: str, value: float | None) -> str:
    """Write a value as tables and sentences show it."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{value:.1%}" if parse_metric(metric).metric.percent else f"{value:.3f}"


def written_change(metric: str, difference: float | None) -> str:
    """Write a difference, in points where the metric is written in per cent."""
    if difference is None or not math.isfinite(difference):
        return MISSING
    return points(difference) if parse_metric(metric).metric.percent else signed(difference, 3)


def points(difference: float) -> str:
    """Write a difference of two shares."""
    return f"{signed(100 * difference, 1)} points"


def signed(value: float, digits: int) -> str:
    """Write a number with its sign, and without one where it rounds to 0."""
    text = f"{value:+,.{digits}f}"
    return text.replace("-", MINUS) if any(digit in text for digit in "123456789") else text[1:]


def cut(name: str, longest: int = LONGEST_NAME) -> str:
    """Shorten a name that is longer than a page can show."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


# -- one change -------------------------------------------------------------------------------------------------------


def better(metric: str, change: Change) -> bool | None:
    """Whether a change is for the better; None where there is none or the interval contains 0."""
    if change.beyond_chance is False or not math.isfinite(change.difference) or change.difference == 0:
        return None
    return (change.difference < 0) == parse_metric(metric).lower_is_better


def with_ends(metric: str, change: Change) -> str:
    """Write "−0.024 (−0.031 to −0.018)", or the difference alone where there is no interval."""
    text = written_change(metric, change.difference)
    return text if change.beyond_chance is None else f"{text} ({ends_of(metric, change)})"


def ends_of(metric: str, change: Change) -> str:
    """Write the ends of the interval: "−0.031 to −0.018"."""
    return " to ".join(written_change(metric, end).removesuffix(" points") for end in (change.low, change.high))


def difference(metric: str, change: Change, confidence: float) -> str:
    """Write "+8.0 points, 95% interval +7.0 to +9.0"; without an interval the difference alone."""
    text = written_change(metric, change.difference)
    if change.beyond_chance is None:
        return text
    return f"{text}, {confidence:.0%} interval {ends_of(metric, change)}"


# -- parts of sentences that audits and reports share -----------------------------------------------------------------


def spoken_share(values: Mapping[str, float], at: int) -> str | None:
    """Return the share of the smallest part of the catalogue that gets a noticeable share of the exposure."""
    owned = [name for name, metric in METRICS.items() if isinstance(metric, ExposureMetric) and metric.owners]
    known = [f"{name}@{at}" for name in owned if f"{name}@{at}" in values]
    return next((metric for metric in known if values[metric] >= HARDLY), known[-1] if known else None)


def told_share(metric: str, change: Change, confidence: float) -> str:
    """Tell how the share of exposure of a part of the catalogue changes."""
    where = f"{written(metric, change.before)} to {written(metric, change.after)} of the exposure"
    owners = parse_metric(metric).exposure.owners
    return f"{owners} goes from {where} ({difference(metric, change, confidence)})"


def told_inequality(metric: str, change: Change, confidence: float) -> str:
    """Tell how an inequality of exposure changes."""
    where = f"{written(metric, change.before)} to {written(metric, change.after)}"
    return f"{title(metric)} of exposure goes from {where} ({difference(metric, change, confidence)})"


def told_quality(metric: str, change: Change, confidence: float) -> str:
    """Tell how the quality for users changes, and whether the change is statistically significant."""
    if math.isnan(change.before) or math.isnan(change.after):
        return f"{title(metric)} cannot be measured, since no user has held-out items"
    if change.difference == 0:
        return f"{title(metric)} stays at {written(metric, change.before)}"
    relative = "" if math.isnan(change.relative) else f"{signed(100 * change.relative, 1)}%, "
    doubt = ", which contains 0: not statistically significant" if change.beyond_chance is False else ""
    return (
        f"{title(metric)} {'falls' if change.difference < 0 else 'rises'} from {written(metric, change.before)} to "
        f"{written(metric, change.after)} ({relative}{difference(metric, change, confidence)}{doubt})"
    )


def told_spread(changes: Mapping[str, Change], at: int | None) -> str:
    """Tell how coverage, Gini and the share of the most shown items change, of those that were measured."""
    told = []
    for name, words in SPREAD.items():
        metric = f"{name}@{at}"
        if metric in changes:
            change = changes[metric]
            told.append(f"{words} goes from {written(metric, change.before)} to {written(metric, change.after)}")
    return sentence(", ".join(told))


def told_users(metric: str, users: UserChange | None) -> str:
    """Tell how many users are worse and better off, and what the tenth that loses most loses."""
    if users is None or not users.n_scored:
        return ""
    return (
        f"By {title(metric)}, {users.worse_off.value:.1%} of the {users.n_scored:,} users with held-out items "
        f"are worse off, {users.better_off.value:.1%} better off; the tenth that loses most changes by "
        f"{written_change(metric, users.worst_decile.value)} on average."
    )


def told_groups(groups: Sequence[GroupChange], confidence: float | None = None) -> str:
    """Name the groups that gain and lose the largest shares; with a confidence also the intervals."""
    order = sorted(groups, key=lambda g: -g.share.difference)
    up = [g for g in order if g.share.difference > 0][:NAMED]
    down = [g for g in reversed(order) if g.share.difference < 0][:NAMED]
    if not groups:
        return ""
    if not up:
        return f"The {len(order):,} groups keep their shares of the exposure."

    def listed(some: Sequence[GroupChange]) -> str:
        return ", ".join(f"{cut(str(g.group))} ({written_share_change(g.share, confidence)})" for g in some)

    return (
        f"Of {len(order):,} groups these gain the largest shares of the exposure: {listed(up)}; "
        f"these lose most: {listed(down)}."
    )


def written_share_change(share: Change, confidence: float | None) -> str:
    """Write the change of a group's share of the exposure."""
    metric = "tail_share@1"  # any share of the exposure is written alike
    return points(share.difference) if confidence is None else difference(metric, share, confidence)


def told_verdicts(changes: Mapping[str, Change]) -> str:
    """List which metrics get better, which worse, and which show no clear change."""
    verdicts = {metric: better(metric, change) for metric, change in changes.items()}
    told = []
    for wanted, word in VERDICTS.items():
        names = [title(metric) for metric, found in verdicts.items() if found is wanted]
        if names:
            told.append(f"{word.capitalize()}: {', '.join(names)}.")
    return " ".join(told)


def sentence(text: str) -> str:
    """Make a sentence of a phrase; nothing of nothing."""
    return f"{text[:1].upper()}{text[1:]}." if text else ""


# -- the statements of an audit ---------------------------------------------------------------------------------------


def statements(audit: Audit) -> list[str]:
    """Tell what changed for items, groups and users, most general first."""
    K = audit.at
    what = f"{audit.before_name} to {audit.after_name}"
    found = [f"{what}: top-{K} lists of {audit.n_users:,} users over {audit.n_items:,} items."]
    share = audit[f"bottom80_share@{K}"]
    if math.isnan(share.before) or math.isnan(share.after):
        return [*found, "One side shows no item to anybody: there is no exposure to compare."]
    for metric in (f"bottom80_share@{K}", f"tail_share@{K}"):
        if metric in audit.metrics:
            found.append(sentence(told_share(metric, audit[metric], audit.confidence)))
    found.append(sentence(told_inequality(f"gini@{K}", audit[f"gini@{K}"], audit.confidence)))
    found.append(told_spread({m: change for m, change in audit.metrics.items() if m != f"gini@{K}"}, K))
    found.append(_items(audit))
    found.append(told_groups(audit.groups, audit.confidence))
    if not audit.n_scored:
        found.append("Quality for users could not be measured: none of them has held-out items.")
    else:
        for metric, users in audit.users.items():
            # Not `sentence`: a metric's name keeps its small letter (nDCG).
            quality = f"{told_quality(metric, audit[metric], audit.confidence)}."
            found.append(f"{quality} {told_users(metric, users)}")
    return [text for text in found if text]


def _items(audit: Audit) -> str:
    change = audit.items.after - audit.items.before
    gain, lose = int((change > 0).sum()), int((change < 0).sum())
    never = int(((audit.items.before == 0) & (audit.items.after == 0)).sum())
    text = f"{gain:,} items gain exposure, {lose:,} lose; {never:,} are shown to nobody on either side."
    if gain:
        text += f" Most gained: {_listed(audit.gainers(NAMED))}."
    if lose:
        text += f" Most lost: {_listed(audit.losers(NAMED))}."
    return text


def _listed(items: Sequence[ItemChange]) -> str:
    return ", ".join(f"{cut(item.name)} ({item.before:,} to {item.after:,} users)" for item in items)
