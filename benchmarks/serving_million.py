"""`fairmf serve --ann` with a million items: requests a second at a latency, and how much of the exact lists is found.

The model is fitted to synthetic data (250,000 users, ten interactions for each item on average), because random vectors
have no neighbours that an index could find. Histories are up to 20 items of users of these data, and every request has
an evenness of its own. The load generator is that of `benchmarks/serving.py`.

Fitting and grouping take minutes; FAIRMF_BENCHMARKS names a folder in which their results are kept for the next run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import re
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from benchmarks.result import Result
from benchmarks.serving import add, load, ours, server
from benchmarks.serving_model import some_path
from fairmf.data.synthetic import synthetic
from fairmf.models.als import IALS
from fairmf.models.ann_requests import AnnRequests, level_groups
from fairmf.models.history_request import HistoryRequest
from fairmf.models.model_file import load_model

FACTORS, LENGTH, ASKED = 128, 20, (0.0, 0.25, 0.5, 0.75, 1.0)
BODIES = 3000


def run(short: bool) -> Result:
    """Half a minute at 400 requests a second and higher rates; short: 50,000 items and a few seconds."""
    n_items, seconds = (50_000, 5.0) if short else (1_000_000, 45.0)
    result = Result(
        "Serving a large catalogue over HTTP",
        f"{n_items:,} items, {FACTORS} factors, through an index (`--ann`); histories of up to {LENGTH} items, lists "
        f"of {LENGTH}, evenness random per request; open loop on 127.0.0.1, the generator on the same machine.",
        ["server", "workers", "rate asked", "seconds", "answered", "errors", "p50, ms", "p90", "p99", "max"],
    )
    with kept() as folder:
        if not (folder / "made.json").exists():
            prepare(folder, n_items)
        made = json.loads((folder / "made.json").read_text())
        for workers, flags, name in ((1, ["--ann", str(folder / "items.ann")], "with the index"), (1, [], "exact")):
            with server(ours(folder / "model.fairmf", workers, *flags)) as running:
                load(running.port, folder, 50.0, 3.0)
                rates = (400.0, 600.0, 800.0) if flags else (25.0, 50.0)
                for rate in rates:
                    told = load(running.port, folder, rate, seconds if rate == 400 else seconds / 8)
                    add(result, f"fairmf serve, {name}", workers, rate, told)
                    if told["p99"] > 200 or told["errors"]:
                        break
                if flags:
                    result.findings.append(f"Recall in /metrics after these runs: {metric(running.port)}.")
                    result.findings.append(f"From start to ready {running.seconds:.1f} s.")
    result.findings.append(
        f"Share of the exact lists that is found, by evenness: {made['recalls']}; share of the groups looked into: "
        f"{made['shares']}. The groups were made in {made['seconds']:.0f} s."
    )
    return result


@contextlib.contextmanager
def kept() -> Iterator[Path]:
    """A folder for the model and its index: a temporary one, or FAIRMF_BENCHMARKS."""
    named = os.environ.get("FAIRMF_BENCHMARKS")
    if named is None:
        with tempfile.TemporaryDirectory() as made:
            yield Path(made)
    else:
        Path(named).mkdir(parents=True, exist_ok=True)
        yield Path(named)


def prepare(folder: Path, n_items: int) -> None:
    """Fit the model, group its items, write requests, and measure recall on histories that are not in the sample."""
    folder.mkdir(parents=True, exist_ok=True)
    data = synthetic(n_items // 4, n_items, 10 * n_items)
    if not (folder / "model.fairmf").exists():
        # The default unobserved_weight shrinks the vectors of a million items to nothing: this one gives unobserved
        # pairs as much weight in all as the default does for 40,000 items.
        fitted = IALS(factors=FACTORS, epochs=2, unobserved_weight=4000 / n_items).fit(data, progress=False)
        fitted._fitted = dataclasses.replace(fitted.fitted, path=some_path(data.n_users))
        fitted.save(folder / "model.fairmf", interactions=False)
    model = load_model(folder / "model.fairmf", mmap=True)
    began = time.perf_counter()
    groups = level_groups(model)
    seconds = time.perf_counter() - began
    index, served = model.to_ann(groups=100), AnnRequests(model, groups)  # the server does not use groups of one level
    index.levels = groups
    index.save(folder / "items.ann")
    histories = list(some_histories(data, BODIES))
    draw = random.Random(1)
    bodies = [{"history": own, "n": LENGTH, "evenness": round(draw.random(), 3)} for own in histories]
    (folder / "bodies.jsonl").write_text("".join(json.dumps(body) + "\n" for body in bodies), encoding="utf-8")
    recalls = {e: found(model, served, histories[:40], e) for e in ASKED}
    shares = {e: f"{served.groups.share(model.fitted.served(e).on_items):.3f}" for e in ASKED}
    told = {"recalls": tell(recalls), "shares": tell(shares), "seconds": seconds}
    (folder / "made.json").write_text(json.dumps(told))


def some_histories(data, count: int) -> Iterator[list[int]]:
    """Yield up to 20 items, at random, of users who have at least 10."""
    draw, rows, names = random.Random(0), data.by_user, data.item_ids.values
    while count:
        own = rows.row(draw.randrange(data.n_users))[0]
        if len(own) >= 10:
            count -= 1
            yield names[draw.sample(own.tolist(), min(LENGTH, len(own)))].tolist()


def found(model, served: AnnRequests, histories: list[list[int]], evenness: float) -> str:
    asked = [HistoryRequest(own, N=LENGTH, evenness=evenness) for own in histories]
    pairs = zip(model.recommend_histories(asked), served.recommend_histories(asked), strict=True)
    shares = [len(set(exact.ids.tolist()) & set(ours.ids.tolist())) / LENGTH for exact, ours in pairs]
    return f"{sum(shares) / len(shares):.3f}"


def tell(values: dict[float, str]) -> str:
    return ", ".join(f"{value} at {key:g}" for key, value in values.items())


def metric(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        line = re.search(r"^fairmf_index_recall (\S+)", answer.read().decode(), re.MULTILINE)
    return "none" if line is None else f"{float(line[1]):.3f}"
