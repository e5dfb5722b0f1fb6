"""Evenness by request through nearest-neighbour indexes: one index and a shortlist, or an index per level."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.result import Result
from fairmf.data.synthetic import synthetic
from fairmf.models.als import IALS
from fairmf.models.ann_requests import AnnRequests
from fairmf.models.history_request import HistoryRequest

ASKED = (0.0, 0.1, 0.25, 0.4, 0.6, 1.0)
SHORTLISTS, OVERSAMPLE = (0, 1000, 4000), (5.0, 25.0)


def run(short: bool) -> Result:
    m, groups, users = (100_000, 500, 40) if short else (1_000_000, 1000, 40)
    data = synthetic(m // 4, m, 10 * m)
    model = IALS(factors=64, epochs=3).fit(data, progress=False)
    began = time.perf_counter()
    index = model.to_ann(groups=groups, probes=groups // 16)
    built = time.perf_counter() - began
    result = Result(
        "Evenness by request through an index",
        f"{m:,} items, 64 factors, {users} histories of up to 20 items, {groups // 16} of {groups:,} groups looked "
        "into: share of the 20 best items that are found, by evenness (without a path, so g = h = evenness), and "
        "milliseconds per request in batches of 10, all threads. Last row: an index built at the evenness asked "
        "for, without shortlist. `python -m benchmarks ann_levels`",
        ("shortlist", "retrieved", *(f"e = {e:g}" for e in ASKED), "ms"),
    )  # fmt: skip
    rows = data.by_user
    chosen = [i for i in range(data.n_users) if rows.indptr[i + 1] - rows.indptr[i] >= 10][:users]
    histories = [data.item_ids.values[rows.row(i)[0][:20]].tolist() for i in chosen]
    exact = {e: lists(model, histories, e)[0] for e in ASKED}
    spent = lists(model, histories, 0.3)[1]
    for shortlist in SHORTLISTS:
        for oversample in OVERSAMPLE:
            served = AnnRequests(model, index, oversample=oversample, shortlist=shortlist)
            found, times = zip(*(lists(served, histories, e) for e in ASKED), strict=True)
            recalls = [f"{overlap(exact[e], own):.3f}" for e, own in zip(ASKED, found, strict=True)]
            result.rows.append((shortlist, int(20 * oversample), *recalls, f"{1e3 * np.mean(times):.1f}"))
    if short:  # an index for each level, each for itself
        found = [
            lists(AnnRequests(model, model.to_ann(evenness=e, groups=groups), oversample=25, shortlist=0), histories, e)
            for e in ASKED
        ]
        recalls = [f"{overlap(exact[e], own):.3f}" for e, (own, _) in zip(ASKED, found, strict=True)]
        result.rows.append(("own index", 500, *recalls, f"{1e3 * np.mean([t for _, t in found]):.1f}"))
    result.findings.append(
        f"Scoring every item takes {1e3 * spent:.1f} ms per request; the index was built in {built:.0f} s."
    )
    return result


def lists(model, histories, evenness):
    """All lists, and seconds per request."""
    requests = [HistoryRequest(own, N=20, evenness=evenness) for own in histories]
    model.recommend_histories(requests[:1])
    began, found = time.perf_counter(), []
    for start in range(0, len(requests), 10):
        found += model.recommend_histories(requests[start : start + 10])
    return [answer.ids for answer in found], (time.perf_counter() - began) / len(requests)


def overlap(exact, found) -> float:
    shares = [len(set(a.tolist()) & set(b.tolist())) / len(a) for a, b in zip(exact, found, strict=True)]
    return float(np.mean(shares))
