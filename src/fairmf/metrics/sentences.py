"""Write metrics, numbers and the sentences of audits and reports for people.

Sentences state losses as clearly as gains. A change whose interval contains 0 is called not statistically significant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fairmf.metrics.audit_change import Change, UserChange
from fairmf.metrics.metric_kinds import ExposureMetric
from fairmf.metrics.registry import GROUP, METRICS, parse_metric

if TYPE_CHECKING:
    from fairmf.metrics.audit_result import Audit, GroupChange, ItemChange

NAMED = 3  # items or groups that a sentence names
SHARE = "tail_share@1"  # stands for any share of exposure: all are written alike
HARDLY = 0.005  # a smaller share of exposure tells little: the sentence is about a larger part of the catalogue
LONGEST_NAME = 120
MINUS, MISSING = "\N{MINUS SIGN}", "\N{EN DASH}"
VERDICTS = {True: "better", False: "worse", None: "no clear change"}
SPREAD = {
    "coverage": "the part of the catalogue that appears in any list",
    "gini": "the Gini of exposure",
    "top1_share": "the exposure share of the most-shown 1% of items",
}


# -- names and numbers ------------------------------------------------------------------------------------------------


def title(metric: str) -> str:
    """Return a metric's name as people write it, such as "nDCG@100"; other columns keep their name."""
    known = metric.partition("@")[0].removeprefix(GROUP) in METRICS
    return parse_metric(metric).title if known else metric.replace("_", " ")


def arrow(metric: str) -> str:
    """Return an arrow that points in the better (or fairer) direction."""
    return "↓" if parse_metric(metric).lower_is_better else "↑"


def written(metric: str, value: float | None) -> str:
    """Write a value for tables and sentences, in per cent if the metric is a share."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{value:.1%}" if parse_metric(metric).metric.percent else f"{value:.3f}"


def written_change(metric: str, difference: float | None) -> str:
    """Write a difference; in points if the metric is written in per cent."""
    if difference is None or not math.isfinite(difference):
        return MISSING
    return points(difference) if parse_metric(metric).metric.percent else signed(difference, 3)


def shown_change(metric: str, change: Change) -> str:
    """Write the difference of the two values as they are written, so that before + change = after on the page."""
    # Both are written with three digits: 0.123, or 12.3%.
    return written_change(metric, round(change.after, 3) - round(change.before, 3))


def points(difference: float) -> str:
    """Write the difference of two shares in percentage points."""
    return f"{signed(100 * difference, 1)} points"


def signed(value: float, digits: int) -> str:
    """Write a number with its sign; without a sign if it rounds to 0."""
    # "+0.000" would look like a change.
    text = f"{value:+,.{digits}f}"
    return text.replace("-", MINUS) if any(digit in text for digit in "123456789") else text[1:]


def cut(name: str, longest: int = LONGEST_NAME) -> str:
    """Shorten a name that is longer than a page can show."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


# -- one change -------------------------------------------------------------------------------------------------------


def better(metric: str, change: Change) -> bool | None:
    """Return whether a change is for the better; None if nothing changes or the interval contains 0."""
    if change.beyond_chance is False or not math.isfinite(change.difference) or change.difference == 0:
        return None
    return (change.difference < 0) == parse_metric(metric).lower_is_better


def with_ends(metric: str, change: Change) -> str:
    """Write "−0.024 (−0.031 to −0.018)", or the difference alone if there is no interval."""
    text = written_change(metric, change.difference)
    return text if change.beyond_chance is None else f"{text} ({ends_of(metric, change)})"


def ends_of(metric: str, change: Change) -> str:
    """Write the ends of the interval: "−0.031 to −0.018"."""
    return " to ".join(written_change(metric, end).removesuffix(" points") for end in (change.low, change.high))


def difference(metric: str, change: Change, confidence: float) -> str:
    """Write "+8.0 points, 95% interval +7.0 to +9.0"; without an interval the difference alone."""
    text = shown_change(metric, change)
    if change.beyond_chance is None or change.low == change.high:  # an interval without width says nothing
        return text
    return f"{text}, {confidence:.0%} interval {ends_of(metric, change)}"


# -- parts of sentences that audits and reports share -----------------------------------------------------------------


def spoken_share(values: Mapping[str, float], at: int) -> str | None:
    """Choose the share that sentences are about: of the smallest part of the catalogue with noticeable exposure."""
    # METRICS lists the smaller part of the catalogue before the larger one.
    owned = [name for name, metric in METRICS.items() if isinstance(metric, ExposureMetric) and metric.owners]
    known = [f"{name}@{at}" for name in owned if f"{name}@{at}" in values]
    return next((metric for metric in known if values[metric] >= HARDLY), known[-1] if known else None)


def told_share(metric: str, change: Change, confidence: float) -> str:
    """Tell how the share of exposure of a part of the catalogue changes."""
    owners, before, after = (
        parse_metric(metric).exposure.owners,
        written(metric, change.before),
        written(metric, change.after),
    )
    turn = "as before" if before == after else f"{'down' if change.difference < 0 else 'up'} from {before}"
    return f"{owners} gets {after} of the exposure, {turn} ({difference(metric, change, confidence)})"


def told_inequality(metric: str, change: Change, confidence: float) -> str:
    """Tell how an inequality of exposure changes."""
    return f"{title(metric)} of exposure {moved(metric, change)} ({difference(metric, change, confidence)})"


def short_exposure(metric: str, change: Change) -> str:
    """Tell in a few words how exposure changes: the share of a part of the catalogue, or its inequality."""
    before, after = written(metric, change.before), written(metric, change.after)
    if not metric.startswith(("bottom", "tail")):
        return f"{title(metric)}, the inequality of exposure, {moved(metric, change)}"
    owners = parse_metric(metric).exposure.owners
    instead = "as before" if before == after else f"instead of {before}"
    return f"{owners} gets {after} of all places in lists, {instead}"


def short_quality(metric: str, change: Change) -> str:
    """Tell in a few words how the quality for users changes."""
    if math.isnan(change.before) or math.isnan(change.after):
        return f"{title(metric)} cannot be measured, since no user has held-out items"
    relative = "" if math.isnan(change.relative) else f" ({signed(100 * change.relative, 1)}%)"
    doubt = ", which may be chance" if change.beyond_chance is False else ""
    return f"{title(metric)}, the accuracy of lists, {moved(metric, change)}{relative}{doubt}"


def moved(metric: str, change: Change) -> str:
    """Write "rises from 8.3% to 24.5%", "falls from ... to ..." or "stays at ..."."""
    # The texts are compared, not the numbers: "rises from 8.3% to 8.3%" would puzzle a reader.
    before, after = written(metric, change.before), written(metric, change.after)
    if before == after:
        return f"stays at {before}"
    return f"{'falls' if change.difference < 0 else 'rises'} from {before} to {after}"


def told_quality(metric: str, change: Change, confidence: float) -> str:
    """Tell how the quality for users changes, and whether the change is statistically significant."""
    if math.isnan(change.before) or math.isnan(change.after):
        return f"{title(metric)} cannot be measured, since no user has held-out items"
    if change.difference == 0:
        return f"{title(metric)} {moved(metric, change)}"
    relative = "" if math.isnan(change.relative) else f"{signed(100 * change.relative, 1)}%, "
    doubt = ", which contains 0: not statistically significant" if change.beyond_chance is False else ""
    return f"{title(metric)} {moved(metric, change)} ({relative}{difference(metric, change, confidence)}{doubt})"


def told_spread(changes: Mapping[str, Change], at: int | None) -> str:
    """Tell how coverage, Gini and the share of the most shown items change, as far as they were measured."""
    told = []
    for name, words in SPREAD.items():
        metric = f"{name}@{at}"
        if metric in changes:
            told.append(f"{words} {moved(metric, changes[metric])}")
    return sentence(" and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told))


def told_users(metric: str, users: UserChange | None) -> str:
    """Tell for how many users lists get worse and better, and how much the tenth of users who lose most lose."""
    if users is None or not users.n_scored:
        return ""
    return (
        f"{title(metric)} falls for {users.worse_off.value:.1%} and rises for {users.better_off.value:.1%} of the "
        f"{users.n_scored:,} users with held-out items. For the 10% of users who lose most, it changes by "
        f"{written_change(metric, users.worst_decile.value)} on average."
    )


def told_groups(groups: Sequence[GroupChange], confidence: float | None = None) -> str:
    """Name the groups that gain and lose most exposure; with a confidence, add the intervals."""
    order = sorted(groups, key=lambda g: -g.share.difference)
    up = [g for g in order if g.share.difference > 0][:NAMED]
    down = [g for g in reversed(order) if g.share.difference < 0][:NAMED]
    if not groups:
        return ""
    # Shares add up to 1: if none rises, none falls.
    if not up:
        return f"The {len(order):,} groups keep their shares of exposure."

    def listed(some: Sequence[GroupChange]) -> str:
        return ", ".join(f"{cut(str(g.group))} ({written_share_change(g.share, confidence)})" for g in some)

    return (
        f"Of {len(order):,} groups, the shares of exposure that rise most: {listed(up)}; "
        f"those that fall most: {listed(down)}."
    )


def written_share_change(share: Change, confidence: float | None) -> str:
    """Write the change of a group's share of the exposure."""
    return points(share.difference) if confidence is None else difference(SHARE, share, confidence)


def told_cold_share(n_cold: int, n_items: int, metric: str, change: Change, confidence: float) -> str:
    """Tell which share of exposure the items without interactions get, beside their share of the catalogue."""
    before, after = written(metric, change.before), written(metric, change.after)
    turn = "as before" if before == after else f"{'down' if change.difference < 0 else 'up'} from {before}"
    return (
        f"The {n_cold:,} items without interactions in training are {n_cold / n_items:.1%} of the catalogue and get "
        f"{after} of the exposure, {turn} ({difference(metric, change, confidence)})."
    )


def told_cold(n_cold: int, n_items: int) -> str:
    """Tell how many items had no interaction in training, and which part of the catalogue they are."""
    return f"{n_cold:,} of {n_items:,} items ({n_cold / n_items:.1%} of the catalogue) had no interaction in training."


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
    """Make a sentence of a phrase; return "" for an empty one."""
    return f"{text[:1].upper()}{text[1:]}." if text else ""


# -- the statements of an audit ---------------------------------------------------------------------------------------


def statements(audit: Audit) -> list[str]:
    """Return the sentences of an audit: what changes for items, then groups, then users."""
    K = audit.at
    what = f'From "{audit.before_name}" to "{audit.after_name}"'
    found = [f"{what}, in the top-{K} lists of {audit.n_users:,} users, with {audit.n_items:,} items:"]
    share = audit[f"bottom80_share@{K}"]
    if math.isnan(share.before) or math.isnan(share.after):
        return [*found, "The lists of one side are all empty: there is no exposure to compare."]
    for metric in (f"bottom80_share@{K}", f"tail_share@{K}"):
        if metric in audit.metrics:
            found.append(sentence(told_share(metric, audit[metric], audit.confidence)))
    found.append(sentence(told_inequality(f"gini@{K}", audit[f"gini@{K}"], audit.confidence)))
    # Gini has a sentence of its own, just before.
    found.append(told_spread({m: change for m, change in audit.metrics.items() if m != f"gini@{K}"}, K))
    if audit.cold is not None:
        n_cold, label = audit.cold.n_cold, f"cold_share@{K}"
        found.append(told_cold_share(n_cold, audit.n_items, label, audit[label], audit.confidence))
    found.append(_items(audit))
    found.append(told_groups(audit.groups, audit.confidence))
    if not audit.n_scored:
        found.append("Quality for users could not be measured: none of them has held-out items.")
    else:
        for metric, users in audit.users.items():
            # Not `sentence`, which would write "NDCG".
            quality = f"{told_quality(metric, audit[metric], audit.confidence)}."
            found.append(f"{quality} {told_users(metric, users)}")
    return [text for text in found if text]


def _items(audit: Audit) -> str:
    change = audit.items.after - audit.items.before
    gain, lose = int((change > 0).sum()), int((change < 0).sum())
    never = int(((audit.items.before == 0) & (audit.items.after == 0)).sum())
    text = f"{gain:,} items gain exposure, {lose:,} lose exposure, {never:,} are in no list before or after."
    if gain:
        text += f" Largest gains: {_listed(audit.gainers(NAMED))}."
    if lose:
        text += f" Largest losses: {_listed(audit.losers(NAMED))}."
    return text


def _listed(items: Sequence[ItemChange]) -> str:
    return ", ".join(f"{cut(item.name)} (from {item.before:,} to {item.after:,} users)" for item in items)
