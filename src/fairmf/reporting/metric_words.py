"""Metrics in the words of people: what each is called, what it tells, and how its numbers are written."""

from __future__ import annotations

import math
from typing import NamedTuple

from fairmf.metrics.registry import parse_metric


class Words(NamedTuple):
    """How one metric is spoken of. `share`: it is written in per cent."""

    title: str
    meaning: str
    share: bool = False


WORDS = {
    "ndcg": Words("nDCG", "how well held-out items are found and placed high, over users with targets"),
    "recall": Words("Recall", "part of a user's held-out items that the list finds"),
    "hit_rate": Words("Hit rate", "part of users whose list holds a held-out item"),
    "mrr": Words("MRR", "one over the rank of the first held-out item"),
    "gini": Words("Gini", "inequality of exposure: 0 all items alike, 1 one item has all"),
    "gini_dcg": Words("Gini (DCG)", "inequality of exposure where higher places count for more"),
    "gini_rbp": Words("Gini (RBP)", "inequality of exposure where the first places count for most"),
    "coverage": Words("Coverage", "part of the catalogue that is shown to anybody", share=True),
    "entropy": Words("Entropy", "evenness of exposure: 1 all items alike, 0 one item has all"),
    "max_exposure": Words("Most shown item", "part of users who are shown the most shown item", share=True),
    "top1_share": Words("Top-1% share", "share of exposure of the 1% of items shown most", share=True),
    "top10_share": Words("Top-10% share", "share of exposure of the 10% of items shown most", share=True),
    "bottom50_share": Words("Bottom-half share", "share of exposure of the half of items shown least", share=True),
    "bottom80_share": Words("Bottom-80% share", "share of exposure of the 80% of items shown least", share=True),
    "tail_share": Words("Tail share", "share of exposure of the 80% of items with fewest interactions", share=True),
    "popularity": Words("Popularity", "mean training interactions of what is shown"),
}
GROUP = "group_"
MINUS, MISSING = "\N{MINUS SIGN}", "\N{EN DASH}"


def words_of(metric: str) -> Words:
    """The words for a full name such as "ndcg@100"; a metric without any is called by its own name."""
    name, _, _ = metric.partition("@")
    if name.startswith(GROUP):
        found = words_of(name.removeprefix(GROUP))
        return found._replace(title=f"{found.title} of groups", meaning=f"{found.meaning} (of groups)")
    return WORDS.get(name, Words(name.replace("_", " "), ""))


def title(metric: str) -> str:
    """A metric's name as people write it: "nDCG@100"."""
    words, cut_off = words_of(metric), metric.partition("@")[2]
    return f"{words.title}@{cut_off}" if cut_off else words.title


def arrow(metric: str) -> str:
    """Which way is better (or fairer)."""
    return "↓" if lower_is_better(metric) else "↑"


def lower_is_better(metric: str) -> bool:
    """True where less is better or fairer."""
    return parse_metric(metric).lower_is_better


def written(metric: str, value: float | None) -> str:
    """A value as it stands in tables and sentences."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{value:.1%}" if words_of(metric).share else f"{value:.3f}"


def written_change(metric: str, difference: float | None) -> str:
    """A difference: in points where the metric is a share."""
    if difference is None or not math.isfinite(difference):
        return MISSING
    return f"{signed(100 * difference, 1)} points" if words_of(metric).share else signed(difference, 3)


def signed(value: float, digits: int) -> str:
    """A number with its sign, and no sign before what rounds to nothing."""
    text = f"{value:+,.{digits}f}"
    return text.replace("-", MINUS) if any(digit in text for digit in "123456789") else text[1:]
