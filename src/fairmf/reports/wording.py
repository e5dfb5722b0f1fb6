"""A report in plain words. Every number is computed, and what gets worse is said as clearly as what gets better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fairmf.metrics.audit_change import Change
from fairmf.metrics.audit_result import GroupChange
from fairmf.metrics.registry import lower_is_better, signed, title, written, written_change
from fairmf.reports.content import Content, Position, cut

NAMED = 3  # groups that a sentence names
SHARES = {
    "bottom50_share": "the half of the catalogue that is shown least",
    "bottom80_share": "the 80% of the catalogue that is shown least",
    "tail_share": "the 80% of items with the fewest interactions",
}
VERDICTS = {True: "better", False: "worse", None: "no clear change"}
HARDLY = 0.005  # a share of exposure below which the next larger part of the catalogue is spoken of


def headline(content: Content, now: Position) -> str:
    """One sentence: what the less shown part of the catalogue gets, and what users lose or win."""
    before = content.before
    if now is before:
        values = ", ".join(f"{title(m)} {written(m, before.values[m])}" for m in (content.quality, content.inequality))
        return f"At {before.name}, which all else is compared with: {values}."
    told = [f"From {before.name} to {now.name},", _share_of_exposure(content, now) or _inequality(content, now)]
    return " ".join([*told, "and", _quality(content, now)]) + "."


def summary(content: Content) -> list[str]:
    """The headline's companions: spread, users, groups, what gets better and worse, and how sure that is."""
    now = content.after
    if now is content.before:
        return []
    found = [_spread(content, now), _users(content, now), _groups(now), _verdict(content, now), _end_of_dial(now)]
    return [text for text in found if text]


def spoken_share(values: Mapping[str, float], at: int) -> str | None:
    """The smallest part of the catalogue that gets anything worth speaking of."""
    known = [f"{name}@{at}" for name in SHARES if f"{name}@{at}" in values]
    return next((metric for metric in known if values[metric] >= HARDLY), known[-1] if known else None)


def better(metric: str, change: Change) -> bool | None:
    """Whether a change is for the better; None where there is none or the interval does not bear it out."""
    if change.beyond_chance is False or not math.isfinite(change.difference) or change.difference == 0:
        return None
    return (change.difference < 0) == lower_is_better(metric)


def change_of(content: Content, now: Position, metric: str) -> Change:
    """A metric's change against the first stop; without an interval where none was computed."""
    if metric in now.changes:
        return now.changes[metric]
    return Change(content.before.values.get(metric, math.nan), now.values.get(metric, math.nan))


def with_ends(metric: str, change: Change) -> str:
    """ "−0.024 (−0.031 to −0.018)", or the difference alone where there is no interval."""
    text = written_change(metric, change.difference)
    return text if change.beyond_chance is None else f"{text} ({ends_of(metric, change)})"


def ends_of(metric: str, change: Change) -> str:
    """The ends of the interval: "−0.031 to −0.018"."""
    return " to ".join(written_change(metric, end).removesuffix(" points") for end in (change.low, change.high))


def interval(content: Content, metric: str, change: Change) -> str:
    """ ", 95% interval +1.0 to +2.0", or nothing."""
    if change.beyond_chance is None:
        return ""
    return f", {content.confidence:.0%} interval {ends_of(metric, change)}"


def _share_of_exposure(content: Content, now: Position) -> str:
    metric = content.share
    if metric is None:
        return ""
    name = metric.partition("@")[0]
    change = change_of(content, now, metric)
    where = f"{written(metric, change.before)} to {written(metric, change.after)} of the exposure"
    return f"{SHARES[name]} goes from {where} ({_difference(content, metric, change)})"


def _inequality(content: Content, now: Position) -> str:
    metric = content.inequality
    change = change_of(content, now, metric)
    return (
        f"{title(metric)} of exposure goes from {written(metric, change.before)} to {written(metric, change.after)} "
        f"({_difference(content, metric, change)})"
    )


def _quality(content: Content, now: Position) -> str:
    metric = content.quality
    change = change_of(content, now, metric)
    if math.isnan(change.before) or math.isnan(change.after):
        return f"{title(metric)} cannot be measured, since no user has held-out items"
    if change.difference == 0:
        return f"{title(metric)} stays at {written(metric, change.before)}"
    relative = "" if math.isnan(change.relative) else f"{signed(100 * change.relative, 1)}%, "
    doubt = ", not statistically significant" if change.beyond_chance is False else ""
    return (
        f"{title(metric)} {'falls' if change.difference < 0 else 'rises'} from {written(metric, change.before)} to "
        f"{written(metric, change.after)} ({relative}{_difference(content, metric, change)}{doubt})"
    )


def _spread(content: Content, now: Position) -> str:
    told = []
    for name, words in (
        ("coverage", "the part of the catalogue shown to anybody"),
        ("gini", "the Gini of exposure"),
        ("top1_share", "the share of the 1% of items shown most"),
    ):
        metric = f"{name}@{content.at}"
        if metric in now.values:
            change = change_of(content, now, metric)
            told.append(f"{words} goes from {written(metric, change.before)} to {written(metric, change.after)}")
    text = ", ".join(told)
    return f"{text[:1].upper()}{text[1:]}." if told else ""


def _users(content: Content, now: Position) -> str:
    users = now.users.get(content.quality)
    if users is None or not users.n_scored:
        return ""
    return (
        f"By {title(content.quality)}, {users.worse_off.value:.1%} of the {users.n_scored:,} users with held-out items "
        f"are worse off, {users.better_off.value:.1%} better off; the tenth that loses most changes by "
        f"{written_change(content.quality, users.worst_decile.value)} on average."
    )


def _groups(now: Position) -> str:
    if not now.groups:
        return ""
    order = sorted(now.groups, key=lambda g: -g.share.difference)
    up = [g for g in order if g.share.difference > 0][:NAMED]
    down = [g for g in reversed(order) if g.share.difference < 0][:NAMED]
    if not up:
        return f"The {len(order):,} groups keep their shares of the exposure."

    def listed(groups: Sequence[GroupChange]) -> str:
        return ", ".join(f"{cut(str(g.group))} ({signed(100 * g.share.difference, 1)} points)" for g in groups)

    return f"Of {len(order):,} groups these gain the largest shares: {listed(up)}; these lose most: {listed(down)}."


def _verdict(content: Content, now: Position) -> str:
    verdicts = {metric: better(metric, change_of(content, now, metric)) for metric in content.metrics}
    told = []
    for wanted, words in ((True, "Better"), (False, "Worse"), (None, "No clear change")):
        names = [title(metric) for metric, found in verdicts.items() if found is wanted]
        if names:
            told.append(f"{words}: {', '.join(names)}.")
    sure = f" Judged by {content.confidence:.0%} intervals over resampled users." if now.changes else ""
    return " ".join(told) + sure


def _end_of_dial(now: Position) -> str:
    if not now.past_minimum:
        return ""
    return "This stop lies beyond the lowest Gini that the dial reaches: a lower stop spreads exposure more evenly."


def _difference(content: Content, metric: str, change: Change) -> str:
    return written_change(metric, change.difference) + interval(content, metric, change)
