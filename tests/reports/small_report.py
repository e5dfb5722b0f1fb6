"""A small model with names that bite, and its report: what the tests of the page share."""

import functools
import html
import json
import re

import numpy as np

from fairmf import FairALS, split_by_user, synthetic_events

HOSTILE = '</script><script>window.hacked=1</script><img src=x onerror="window.hacked=2">'


@functools.cache
def small_split():
    return split_by_user(synthetic_events(300, 120, 5000, random_state=3), heldout=60, protocol="seeded")


@functools.cache
def small_model(**settings):
    return FairALS(factors=6, epochs=4, **settings).fit(small_split().train)


def lists_at(psi, N=100):
    """The small model's lists of the test users at one stop of the dial."""
    blocks = small_model().rank(small_split().test.fold_in, N, fairness=psi)
    return np.concatenate([np.array(items) for _, items in blocks])


def hostile_names(n_items):
    """Every name is hostile, each in its own way."""
    return [f"{HOSTILE} & ITEM '{j}' <b>\u2028{{{{x}}}} ${j}" for j in range(n_items)]


def some_groups(n_items, count=4):
    return [f"<i>group</i> {j % count}" for j in range(n_items)]


def data_of(page):
    """The JSON that a page's scripts read."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    assert found, "the page has no data"
    return json.loads(found.group(1))


def text_of(page):
    """What a page says to a reader, tags and scripts taken out."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))


def naive_exposure(lists, n_items, K):
    """How many lists hold each item in their first K places, by a double loop."""
    counts = np.zeros(n_items, dtype=int)
    for row in lists:
        for item in row[:K]:
            if item >= 0:
                counts[item] += 1
    return counts
