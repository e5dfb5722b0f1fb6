"""Nearest-neighbour search on fitted factors: speed, recall, file size against other libraries; exposure afterwards."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import ann_peers, pareto_data
from benchmarks.result import Result
from fairmf.backends.registry import get_backend
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.data.split_methods import split_by_user
from fairmf.data.synthetic import synthetic_events
from fairmf.metrics.retrieval import evaluate_retrieval, recall_of_lists
from fairmf.models.als import FairALS
from fairmf.ranking.ann import AnnIndex, reduce_items, reduce_users

K = 100
THREADS = 2
USERS = 4000
EXPOSURE = ("ndcg@100", "recall@20", "gini@20", "coverage@20", "gini@100", "coverage@100")


def run(short: bool) -> Result:
    result = Result(
        f"Nearest-neighbour search: top-{K} of fitted factors",
        f"FairALS (fairness 1) on each data set, {USERS:,} of its users at once, {THREADS} threads. Recall of the "
        f"exact top-{K}, nothing excluded. fairmf is its own index: faiss's inverted lists on reduced vectors. Graphs "
        "(HNSW) have 16 links and a construction width of 200; libraries where installed (`pip install hnswlib usearch "
        "voyager`). `python -m benchmarks ann`",
        ("data", "index", "setting", "build, s", "µs per user", f"recall@{K}", "file, MB"),
    )
    for name, train, held_out, settings in tasks(short):
        model = FairALS(fairness=1.0, num_threads=THREADS, **settings).fit(train, progress=False, objective_every=0)
        vectors(result, f"{name} ({model.n_items:,} x {model.factors})", model)
        exposure(result, name, model, held_out)
    return result


def tasks(short: bool) -> list[tuple[str, Interactions, HeldOut, dict[str, float]]]:
    """ml-1m, and gowalla in the full run; where a file is absent, synthetic data of about its size."""
    chosen = []
    for task, factors, size in (
        (pareto_data.TASKS[0], 64, (4000, 3500)),
        (pareto_data.TASKS[3], 128, (30_000, 40_000)),
    ):
        if short and chosen:
            break
        name = task.name
        if task.path.exists():
            train, held_out = task.load(task.path)
        else:
            name = f"synthetic like {name}"
            split = split_by_user(synthetic_events(*size, 25 * sum(size)), heldout=1000)
            train, held_out = split.train, split.validation
        chosen.append((name, train, held_out, {"factors": factors, **task.weights}))
    return chosen


def vectors(result: Result, name: str, model: FairALS) -> None:
    """Every index on the model's vectors."""
    users = model.user_factors[np.random.default_rng(0).permutation(model.n_users)[:USERS]]
    items = model.item_factors
    exact_lists(users[:50], items)  # compile first
    began = time.perf_counter()
    exact = exact_lists(users, items)
    result.rows.append((name, "exact (all scores)", "", "", per_user(began, users), 1.0, f"{items.nbytes / 1e6:.1f}"))
    began = time.perf_counter()
    index = AnnIndex.build(items, num_threads=THREADS)
    built = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        index.save(Path(folder) / "index")
        size = (Path(folder) / "index").stat().st_size
    for probes in sorted({16, 32, index.probes, 2 * index.probes}):
        began = time.perf_counter()
        lists = index.search(users, K, probes=probes, num_threads=THREADS)[0]
        spent = per_user(began, users)
        label = f"{probes} of {index.n_groups} groups" + (" (default)" if probes == index.probes else "")
        row = (name, "**fairmf**", label, f"{built:.1f}", spent, f"{recall_of_lists(exact, lists).mean():.4f}")
        result.rows.append((*row, f"{size / 1e6:.1f}"))
    reduced, radius = reduce_items(items, None)
    for metric, x, y in (("plain", items, users), ("reduced", reduced, reduce_users(users, radius, False)[0])):
        for label, setting, built, searched, lists, size in ann_peers.measure(metric, x, y, K, THREADS):
            found = recall_of_lists(exact, lists.astype(np.int64)).mean()
            spent = f"{searched * 1e6 / len(users):.0f}"
            result.rows.append((name, label, setting, f"{built:.1f}", spent, f"{found:.4f}", f"{size / 1e6:.1f}"))


def exposure(result: Result, name: str, model: FairALS, held_out: HeldOut) -> None:
    """What the default index does to accuracy and exposure, and one that looks into far too few groups."""
    index = model.to_ann()
    for probes in (index.probes, 4):
        index.probes = probes
        found = evaluate_retrieval(model, model.with_ann(index), held_out, N=K, metrics=EXPOSURE, at=K, bootstrap=0)
        pairs = [f"{label} {found.exact[label]:.4f} -> {found.approximate[label]:.4f}" for label in EXPOSURE]
        result.findings.append(
            f"{name}, {probes} of {index.n_groups} groups, own items excluded: recall of the exact lists "
            f"{found.recall:.4f}; {', '.join(pairs)}."
        )


def exact_lists(users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """By scoring everything, as models do by default."""
    backend = get_backend("cpu")
    found, scores = np.empty((len(users), K), np.int32), np.empty((len(users), K), np.float32)
    with backend.threads(THREADS):
        backend.top_k(users, items, K, None, found, scores)
    return found


def per_user(began: float, users: np.ndarray) -> str:
    return f"{(time.perf_counter() - began) * 1e6 / len(users):.0f}"
