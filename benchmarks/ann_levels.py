"""Evenness by request without scoring every item: three ways to find candidates, and what each of them misses.

1. One index of the plain vectors: many items are retrieved, and ranked by their exact scores at the level asked for.
2. An index of the item vectors of each level (`to_ann(evenness=...)`).
3. Groups that serve every level (`to_ann(levels=True)`, ranking/level_groups.py): what `fairmf serve --ann` uses.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.datasets import gowalla
from benchmarks.result import Result
from fairmf.data.synthetic import synthetic
from fairmf.models.als import IALS, FairALS
from fairmf.models.ann_requests import AnnRequests, level_groups
from fairmf.models.recommend_for import Asked, joined

ASKED = (0.0, 0.25, 0.4, 0.6, 0.8, 1.0)
N, USERS, AT_ONCE, RETRIEVED = 20, 40, 10, 500


def run(short: bool) -> Result:
    result = Result(
        "Evenness by request through an index",
        f"Share of the {N} best items that are found, by evenness (without a path, so flatten and discount are both "
        f"the evenness), for {USERS} users folded in from up to 20 items of theirs, and milliseconds per request in "
        f"batches of {AT_ONCE}, all threads. Indexes look into a sixteenth of their groups.",
        ("data", "candidates from", *(f"e = {e:g}" for e in ASKED), "ms"),
    )
    m = 100_000
    data = synthetic(m // 4, m, 10 * m)
    compare(result, f"{m:,} synthetic items", data, IALS(factors=64, epochs=3).fit(data, progress=False))
    real = None if short else gowalla()
    if real is not None:
        compare(result, "gowalla, 40,981 items", real, FairALS(factors=128, epochs=8).fit(real, progress=False))
    return result


def compare(result, name, data, model):
    serving, users = model.fitted.serving, some_users(data, model)
    levels = {e: model.fitted.served(e) for e in ASKED}
    nobody = joined([np.empty(0, dtype=np.int32)] * AT_ONCE)
    lengths = np.full(AT_ONCE, N)

    def exactly(part, level):
        return serving.rank(part, [level] * AT_ONCE, lengths, nobody)[0]

    exact = {e: asked(users, exactly, level) for e, level in levels.items()}
    plain = model.to_ann()
    sixteenth = max(1, plain.n_groups // 16)

    def rescored(part, level):
        found, _ = plain.search(part, RETRIEVED, probes=sixteenth)
        return serving.rank_candidates(part, [level] * AT_ONCE, lengths, joined(list(found)))[0]

    def own_index(e):
        index = model.to_ann(evenness=e)
        return lambda part, _: index.search(part, N, probes=sixteenth)[0]

    began = time.perf_counter()
    groups = level_groups(model)
    spent = time.perf_counter() - began
    served = AnnRequests(model, groups)

    def grouped(part, level):
        request = Asked(N, level, nobody.indices, None, nobody.indices, None, False, None)
        return served.rank(part, [request] * AT_ONCE, nobody, None)[0]

    ways = {
        "every item": lambda _: exactly,
        f"one plain index, {RETRIEVED} retrieved": lambda _: rescored,
        "an index of the level": own_index,
        "groups for all levels": lambda _: grouped,
    }
    for way, ranker in ways.items():
        found = {e: asked(users, ranker(e), level) for e, level in levels.items()}
        recalls = [f"{overlap(exact[e][0], found[e][0]):.3f}" for e in ASKED]
        result.rows.append((name, way, *recalls, f"{1e3 * np.mean([own[1] for own in found.values()]):.2f}"))
    shares = ", ".join(f"{groups.share(level.on_items):.3f} at {e:g}" for e, level in levels.items())
    result.findings.append(
        f"{name}: {groups.n_groups:,} groups for all levels, made in {spent:.0f} s; share of them looked into: "
        f"{shares}."
    )


def some_users(data, model):
    """Vectors of users who have at least ten items, folded in from up to 20 of them."""
    rng, rows = np.random.default_rng(0), data.by_user
    chosen = rng.choice(np.flatnonzero(np.diff(rows.indptr) >= 10), USERS, replace=False)
    names = np.arange(data.n_items) if data.item_ids is None else data.item_ids.values
    histories = [names[rng.permutation(rows.row(i)[0])[:20]].tolist() for i in chosen]
    return np.array([np.ravel(model.fold_in_user(own)) for own in histories], dtype=np.float32)


def asked(users, ranker, level):
    """All lists, and seconds per request."""
    ranker(users[:AT_ONCE], level)
    began = time.perf_counter()
    lists = [ranker(users[start : start + AT_ONCE], level) for start in range(0, len(users), AT_ONCE)]
    return np.concatenate(lists), (time.perf_counter() - began) / len(users)


def overlap(exact, found):
    return float(np.mean([len(np.intersect1d(a, b)) / len(a) for a, b in zip(exact, found, strict=True)]))
