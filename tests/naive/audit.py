"""The audit's figures by plain loops over users, items and resamples."""

from __future__ import annotations

import numpy as np
from naive import metrics as naive
from scipy import stats


def per_user(lists, targets, K, metric):
    """Each user's quality; None without targets."""
    return [
        naive.accuracy([row], [wanted], K)[metric] if wanted else None
        for row, wanted in zip(lists, targets, strict=True)
    ]


def user_differences(before, after, targets, K, metric):
    """After minus before of every user with targets, in the users' order."""
    pairs = zip(per_user(before, targets, K, metric), per_user(after, targets, K, metric), strict=True)
    return [b - a for a, b in pairs if a is not None]


def worst_decile(differences):
    """Every user cut into ten equal parts; the mean over the lowest tenth of all parts."""
    if not differences:
        return float("nan")
    parts = sorted(x for x in differences for _ in range(10))
    return sum(parts[: len(differences)]) / len(differences)


def paired_interval(before, after, measure, draws, confidence, shifted):
    """Percentiles of measure(after) - measure(before) over resampled users, both sides with the same draw."""
    found = [measure([after[i] for i in d], d) - measure([before[i] for i in d], d) for d in draws]
    low, high = np.nanquantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    everyone = range(len(before))
    centre = measure(after, everyone) - measure(before, everyone)
    shift = centre - np.nanmean(found) if shifted else 0.0
    return low + shift, high + shift


def leave_one_out_interval(before, after, measure, confidence):
    """Jackknife interval of measure(after) - measure(before), both sides without the same user."""
    n = len(before)
    found = [measure(after[:i] + after[i + 1 :]) - measure(before[:i] + before[i + 1 :]) for i in range(n)]
    reach = stats.t(n - 1).ppf((1 + confidence) / 2) * np.sqrt((n - 1) / n * np.sum((found - np.mean(found)) ** 2))
    centre = measure(after) - measure(before)
    return centre - reach, centre + reach
