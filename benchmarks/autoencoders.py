"""The baselines MultVAE and RecVAE on MovieLens-1M's validation users: quality by epoch, beside iALS and popularity.

Short: few epochs, which show that they learn. Full: to the epoch after which validation has not improved for 20.
Needs PyTorch (extra `[vae]`) and the data beside the checkout.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.pareto_data import DATA, whole_split
from benchmarks.result import Result
from fairmf import IALS, EarlyStopping, MultVAE, Popularity, RecVAE, evaluate

METRIC = "ndcg@100"
SMALL_BATCHES = {"batch_size": 100, "num_threads": 1}  # 41 updates an epoch; batches of 500 would be 9


class Shown:
    """Prints an epoch's line: a full run takes long."""

    def on_epoch(self, progress) -> None:
        print(progress.record, flush=True)


def run(short: bool) -> Result:
    result = Result(
        "Autoencoders on MovieLens-1M",
        "nDCG@100 of the 1,000 validation users after some epochs and at the best one; CPU seconds per epoch on one "
        "thread. Batches of 100 users, all else as published but for anneal_steps 5,000. "
        "`python -m benchmarks autoencoders`",
        ("model", "epochs", "first", "a third", "two thirds", "last", "best", "at epoch", "CPU seconds per epoch"),
    )
    path = DATA / "ml-1m-split.npz"
    if not path.exists():
        result.findings.append("Not run: MovieLens-1M is not beside the checkout.")
        return result
    split = whole_split(path)
    models = {
        "MultVAE": MultVAE(**SMALL_BATCHES, anneal_steps=5_000, epochs=6 if short else 300),
        "RecVAE": RecVAE(**SMALL_BATCHES, epochs=3 if short else 200),
    }
    for name, model in models.items():
        stopping = EarlyStopping(split.validation, METRIC, patience=20)
        print(name, flush=True)
        began = time.process_time()
        model.fit(split.train, callbacks=[stopping, Shown()])
        seconds = (time.process_time() - began) / len(model.history)
        curve = [value for _, value in stopping.scores]
        at = [0, len(curve) // 3, 2 * len(curve) // 3, len(curve) - 1]
        shown = [f"{curve[k]:.4f}" for k in at]
        result.rows.append((name, len(curve), *shown, f"{max(curve):.4f}", stopping.best_epoch, f"{seconds:.1f}"))
        print(result.rows[-1], flush=True)
    others = {"Popularity": Popularity(), "IALS": IALS(factors=64, regularization=0.003)}
    values = [f"{name} {evaluate(m.fit(split.train), split.validation, metrics=[METRIC])[METRIC]:.4f}"
              for name, m in others.items()]  # fmt: skip
    result.findings.append(f"For comparison: {', '.join(values)} (64 factors, regularization .003, 16 epochs).")
    if not short:
        result.findings += by_users(split)
    return result


def by_users(split, seeds=3):
    """How far Mult-VAE is behind iALS on the test users, by the number of users it learns from."""
    found = []
    for share in (0.25, 0.5, 1.0):
        differences = []
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(split.train.n_users)
            train = split.train.take_users(np.sort(order[: int(share * len(order))]))
            stopping = EarlyStopping(split.validation, METRIC, patience=20)
            vae = MultVAE(device="auto", batch_size=100, anneal_steps=5_000, epochs=200, random_state=seed)
            vae.fit(train, callbacks=[stopping], progress=False)
            ials = IALS(factors=64, regularization=0.01, random_state=seed).fit(train, progress=False)
            one, other = (evaluate(m, split.test, metrics=[METRIC])[METRIC] for m in (vae, ials))
            differences.append(one - other)
        found.append(f"{train.n_users:,} users {np.mean(differences):+.4f}")
    return [f"Mult-VAE's {METRIC} minus iALS's on the test users, mean of {seeds} draws of users: {'; '.join(found)}."]
