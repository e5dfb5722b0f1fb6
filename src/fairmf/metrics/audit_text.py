"""An audit in sentences. Every number is computed; what the interval does not bear out is said to be unclear."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairmf.metrics.audit_change import Change

if TYPE_CHECKING:
    from fairmf.metrics.audit_result import Audit, GroupChange, ItemChange


NAMED = 3  # items and groups a sentence names
WORDS = {"ndcg": "nDCG", "recall": "Recall", "mrr": "MRR", "hit_rate": "Hit rate"}


def statements(audit: Audit) -> list[str]:
    """What changed for items, groups and users, most general first."""
    K = audit.at
    what = f"{audit.before_name} to {audit.after_name}"
    found = [f"{what}: top-{K} lists of {audit.n_users:,} users over {audit.n_items:,} items."]
    share = audit[f"bottom80_share@{K}"]
    if math.isnan(share.before) or math.isnan(share.after):
        return [*found, "One side shows no item to anybody: there is no exposure to compare."]
    found.append(f"The 80% of items shown least {_share(audit, share)}.")
    if f"tail_share@{K}" in audit.metrics:
        tail = audit[f"tail_share@{K}"]
        found.append(f"The 80% of items with the fewest training interactions {_share(audit, tail)}.")
    found.append(_spread(audit))
    found.append(_who(audit))
    if audit.groups:
        found.append(_groups(audit))
    return [*found, *_quality(audit)]


def _share(audit: Audit, change: Change) -> str:
    where = f"{change.before:.1%} to {change.after:.1%} of the exposure"
    return f"go from {where} ({_points(change.difference)}{_interval(audit, change, percent=True)})"


def _spread(audit: Audit) -> str:
    K = audit.at
    gini, cover, top = (audit[f"{name}@{K}"] for name in ("gini", "coverage", "top1_share"))
    return (
        f"Gini@{K} of exposure goes from {gini.before:.3f} to {gini.after:.3f} "
        f"({gini.difference:+.3f}{_interval(audit, gini)}), the part of the catalogue shown to anybody from "
        f"{cover.before:.1%} to {cover.after:.1%}, the share of the most shown 1% of items from {top.before:.1%} "
        f"to {top.after:.1%}."
    )


def _who(audit: Audit) -> str:
    difference = audit.items.after - audit.items.before
    gain, lose = int((difference > 0).sum()), int((difference < 0).sum())
    never = int(((audit.items.before == 0) & (audit.items.after == 0)).sum())
    text = f"{gain:,} items gain exposure, {lose:,} lose; {never:,} are shown to nobody on either side."
    if gain:
        text += f" Most gained: {_listed(audit.gainers(NAMED))}."
    if lose:
        text += f" Most lost: {_listed(audit.losers(NAMED))}."
    return text


def _listed(items: Sequence[ItemChange]) -> str:
    return ", ".join(f"{item.name} ({item.before:,} to {item.after:,} users)" for item in items)


def _groups(audit: Audit) -> str:
    order = sorted(audit.groups, key=lambda g: -g.share.difference)
    up = [g for g in order if g.share.difference > 0][:NAMED]
    down = [g for g in reversed(order) if g.share.difference < 0][:NAMED]
    if not up:
        return f"The {len(audit.groups):,} groups keep their shares of the exposure."
    return (
        f"Of {len(audit.groups):,} groups these gain the largest shares of the exposure: {_named(audit, up)}; "
        f"these lose the most: {_named(audit, down)}."
    )


def _named(audit: Audit, groups: Sequence[GroupChange]) -> str:
    return ", ".join(
        f"{g.group} ({_points(g.share.difference)}{_interval(audit, g.share, percent=True)})" for g in groups
    )


def _quality(audit: Audit) -> list[str]:
    if not audit.n_scored:
        return ["Quality for users could not be measured: none of them has targets."]
    found = []
    for label, users in audit.users.items():
        change = audit[label]
        name, _, K = label.partition("@")
        relative = "" if math.isnan(change.relative) else f", {change.relative:+.1%}"
        doubt = ", not statistically significant" if change.beyond_chance is False else ""
        if change.difference == 0:
            doubt = ""
        found.append(
            f"{WORDS.get(name, name)}@{K} goes from {change.before:.4f} to {change.after:.4f}{relative} "
            f"({change.difference:+.4f}{_interval(audit, change, digits=4)}){doubt}. "
            f"Of {audit.n_scored:,} users with targets {users.worse_off.value:.1%} are worse off, "
            f"{users.better_off.value:.1%} better off; the tenth that loses most changes by "
            f"{users.worst_decile.value:+.4f} on average."
        )
    return found


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f} points"


def _interval(audit: Audit, change: Change, *, percent: bool = False, digits: int = 3) -> str:
    if change.beyond_chance is None:
        return ""
    scale, digits = (100, 1) if percent else (1, digits)
    low, high = (scale * (x or 0.0) for x in (change.low, change.high))
    return f", {audit.confidence:.0%} interval {low:+.{digits}f} to {high:+.{digits}f}"
