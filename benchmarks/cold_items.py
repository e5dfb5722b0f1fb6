"""New items from their words: citeulike-t with a fifth of the items held out entirely, against irspack in the same run.

A fifth of the other entries is held out too. Recall@20 divides by min(20, |T|): among cold items (only these are
ranked), among warm items, and over all items. Settings are those of docs/mathematics.md 11, not tuned on these seeds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.pareto_data import DATA
from benchmarks.result import Result
from fairmf import IALS, Interactions, synthetic

FILE = "citeulike-t.npz"
SETTINGS: dict[str, Any] = {"factors": 64, "regularization": 0.01, "unobserved_weight": 0.01}
GOALS = {"cold": 0.25, "warm": 0.228, "all": 0.138, "exposure": 0.07}
COLUMNS = ("data", "model", "recall@20, cold", "warm", "all", "exposure of cold items", "seconds")
K = 20
USERS_AT_ONCE = 1000


def run(short: bool) -> Result:
    seeds = range(1 if short else 5)
    result = Result(
        "New items from features",
        "citeulike-t, words by tf-idf, 64 factors, 20 % of the items and 20 % of the other entries held out; means "
        f"over {len(seeds)} seeds. `python -m benchmarks {'' if short else '--full '}cold_items`",
        COLUMNS,
    )
    if not (DATA / FILE).exists():
        result.findings.append(f"not run: {FILE} is absent (FAIRMF_DATA names the folder).")
        return result
    found: dict[str, list[np.ndarray]] = {}
    for seed in seeds:
        for name, values in measured(seed):
            found.setdefault(name, []).append(values)
    for name, values in found.items():
        mean = np.mean(values, axis=0)
        result.rows.append(("citeulike-t", name, *(f"{x:.3f}" for x in mean[:4]), f"{mean[4]:.1f}"))
    best = np.mean(found["fairmf, features"], axis=0)
    for (what, goal), value in zip(GOALS.items(), best[:4], strict=True):
        result.findings.append(f"{what}: {value:.3f}, goal {goal} ({'met' if value >= goal else 'MISSED'}).")
    for evenness, values in along_evenness(0):
        result.findings.append(
            f"Evenness {evenness:g}, uncalibrated (seed 0): cold items have {100 * values[3]:.1f} % of exposure (20 % "
            f"of the catalogue), recall@20 of all items {values[2]:.3f}."
        )
    result.findings.append(epoch_cost())
    return result


def words() -> tuple[sp.csr_array, sp.csr_array]:
    """Return the interactions and the items' words by tf-idf, as rows of length 1."""
    z = np.load(DATA / FILE)
    R = sp.csr_array((np.ones(len(z["indices"]), dtype=np.float32), z["indices"], z["indptr"]), shape=tuple(z["shape"]))
    counts = sp.csr_array(
        (z["words_counts"].astype(float), z["words_indices"], z["words_indptr"]), shape=tuple(z["words_shape"])
    )
    idf = np.log(counts.shape[0] / np.maximum(np.bincount(counts.indices, minlength=counts.shape[1]), 1))
    X = counts @ sp.diags_array(idf)
    length = np.sqrt(X.power(2).sum(axis=1))
    return R, sp.csr_array(sp.diags_array(1 / np.maximum(length, 1e-9)) @ X).astype(np.float32)


def divided(R: sp.csr_array, seed: int) -> tuple[np.ndarray, sp.csr_array, sp.csr_array, sp.csr_array]:
    """Return which items are cold, the training entries, and the targets among warm and among cold items."""
    random = np.random.default_rng(seed)
    cold = np.zeros(R.shape[1], dtype=bool)
    cold[random.permutation(R.shape[1])[: R.shape[1] // 5]] = True
    entries = R.tocoo()
    is_cold = cold[entries.col]
    held = ~is_cold & (random.random(entries.nnz) < 0.2)

    def part(chosen: np.ndarray) -> sp.csr_array:
        ones, places = np.ones(int(chosen.sum()), dtype=np.float32), (entries.row[chosen], entries.col[chosen])
        return sp.csr_array((ones, places), shape=R.shape)

    return cold, part(~is_cold & ~held), part(held), part(is_cold)


def measured(seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the figures of every model on one seed."""
    R, X = words()
    cold, train, warm_targets, cold_targets = divided(R, seed)
    data, targets = Interactions.from_csr(train), (cold_targets, warm_targets)
    for name, features in (("fairmf, no features", None), ("fairmf, features", X)):
        model = IALS(**SETTINGS, random_state=seed)
        began = time.perf_counter()
        model.fit(data, item_features=features, objective_every=0, progress=False)
        seconds = time.perf_counter() - began
        yield name, np.array([*figures(model.user_factors, model.item_factors, cold, train, *targets), seconds])
    yield from irspack(X, train, cold, targets, seed)


def irspack(
    X: sp.csr_array, train: sp.csr_array, cold: np.ndarray, targets: tuple[sp.csr_array, sp.csr_array], seed: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield irspack's figures: with its own vectors of cold items, and with those that features predict."""
    try:
        from irspack import IALSRecommender
    except ImportError:
        return
    model = IALSRecommender(
        sp.csr_matrix(train), n_components=64, alpha0=0.01, reg=0.01, train_epochs=16, random_seed=seed,
        item_features=sp.csr_matrix(X), lambda_item_feature=0.1,
    )  # fmt: skip
    began = time.perf_counter()
    model.learn()
    seconds = time.perf_counter() - began
    U, V = model.get_user_embedding(), np.array(model.get_item_embedding())
    yield "irspack, features", np.array([*figures(U, V, cold, train, *targets), seconds])
    V[cold] = model.trainer_as_ials.core_trainer.transform_item_feature(sp.csr_matrix(X)[cold])
    yield "irspack, features, cold items predicted", np.array([*figures(U, V, cold, train, *targets), seconds])


def figures(
    U: np.ndarray, V: np.ndarray, cold: np.ndarray, train: sp.csr_array, cold_t: sp.csr_array, warm_t: sp.csr_array,
    scale: tuple[Any, Any] = (None, None),
) -> tuple[float, float, float, float]:  # fmt: skip
    """Return recall@20 among cold, warm and all items, and the share of exposure of cold items."""
    all_t = sp.csr_array(cold_t + warm_t)
    totals, shown = {"cold": [], "warm": [], "all": []}, np.zeros(len(cold))
    for start in range(0, len(U), USERS_AT_ONCE):
        users = slice(start, min(start + USERS_AT_ONCE, len(U)))
        scores = U[users] @ V.T
        scores = scores if scale[0] is None else scores * scale[0]
        scores = scores if scale[1] is None else scores + scale[1]
        scores[train[users].toarray() > 0] = -np.inf
        for name, allowed, wanted in (("cold", cold, cold_t), ("warm", ~cold, warm_t), ("all", cold | True, all_t)):
            best = np.argpartition(-np.where(allowed, scores, -np.inf), K, axis=1)[:, :K]
            targets = wanted[users].toarray() > 0
            n = targets.sum(axis=1)
            hits = np.take_along_axis(targets, best, axis=1).sum(axis=1)
            totals[name].extend((hits[n > 0] / np.minimum(K, n[n > 0])).tolist())
            if name == "all":
                shown += np.bincount(best.ravel(), minlength=len(cold))
    recalls = (float(np.mean(totals[name])) for name in ("cold", "warm", "all"))
    return *recalls, float(shown[cold].sum() / shown.sum())  # type: ignore[return-value]


def along_evenness(seed: int) -> Iterator[tuple[float, tuple[float, float, float, float]]]:
    """Yield the figures of the model with features at levels of evenness."""
    R, X = words()
    cold, train, warm_targets, cold_targets = divided(R, seed)
    model = IALS(**SETTINGS, random_state=seed).fit(Interactions.from_csr(train), item_features=X, progress=False)
    for evenness in (0.0, 0.1, 0.2, 0.4, 0.6):
        changed = model.fitted.item_scale(model.fitted.served(evenness)) or (None, None)
        yield (
            evenness,
            figures(model.user_factors, model.item_factors, cold, train, cold_targets, warm_targets, changed),
        )


def epoch_cost() -> str:
    """Return how much longer an epoch takes with as many features as interactions."""
    data = synthetic(20_000, 8_000, 600_000)
    X = sp.random(data.n_items, 5_000, 600_000 / (data.n_items * 5_000), format="csr", random_state=0)
    seconds = {}
    for name, features in (("without", None), ("with", X)) * 2:
        model = IALS(factors=64, epochs=6).fit(
            data, item_features=features, objective_every=0, progress=False, settle=False
        )
        seconds[name] = min(seconds.get(name, np.inf), min(model.history.column("seconds")))
    ratio = seconds["with"] / seconds["without"]
    verdict = "met" if ratio <= 2 else "MISSED"
    return (
        f"An epoch with 600,000 features and 600,000 interactions takes {seconds['with']:.3f} s, without features "
        f"{seconds['without']:.3f} s: {ratio:.2f} times as long (goal 2: {verdict})."
    )
