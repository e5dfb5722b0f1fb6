"""Choose items greedily by group and score: the compiled part of the re-rankers by popularity groups."""

from __future__ import annotations

import numpy as np

from fairmf.kernels import kernel

BINARY, CALIBRATED = 1, 2  # rules; 0 is smooth
TIE = 1e-12  # values of two groups that differ by rounding alone are equal


@kernel
def next_of(group, groups, found, c):
    """Return the first candidate from c on that belongs to the group; the number of candidates if there is none."""
    while c < len(found) and (found[c] < 0 or groups[c] != group):
        c += 1
    return c


@kernel
def divergence(p, have, chosen, n):
    """Return the Jensen-Shannon divergence, in bits, of p and the shares of a list that gains an item of `chosen`."""
    total = 0.0
    for g in range(len(p)):
        q = (have[g] + (1 if g == chosen else 0)) / (n + 1)
        middle = 0.5 * (p[g] + q)
        if p[g] > 0:
            total += 0.5 * p[g] * np.log2(p[g] / middle)
        if q > 0:
            total += 0.5 * q * np.log2(q / middle)
    return total


@kernel
def choose(found, score, groups, wanted, strength, rule, lists):
    """Fill lists from candidates, best first; of equal values the earlier candidate wins.

    `score`, `groups` and `found` belong to candidates; wanted[i, g] is the share of group g in user i's history.
    in: all but lists   out: lists
    """
    count = wanted.shape[1]
    at, have = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for i in range(len(found)):
        for g in range(count):
            at[g], have[g] = next_of(g, groups[i], found[i], 0), 0
        for n in range(lists.shape[1]):
            best, chosen = -np.inf, -1
            for g in range(count):
                if at[g] == found.shape[1]:
                    continue
                if rule == CALIBRATED:
                    gain = -divergence(wanted[i], have, g, n)
                elif rule == BINARY:
                    gain = wanted[i, g] if have[g] == 0 else 0.0
                else:
                    gain = wanted[i, g] * (1.0 - have[g] / n if n > 0 else 1.0)
                value = (1.0 - strength) * score[i, at[g]] + strength * gain
                if value > best + TIE or (chosen >= 0 and value >= best - TIE and at[g] < at[chosen]):
                    best, chosen = value, g
            if chosen < 0:
                break
            lists[i, n] = found[i, at[chosen]]
            have[chosen] += 1
            at[chosen] = next_of(chosen, groups[i], found[i], at[chosen] + 1)
