"""Make models of a given shape without training, for benchmarks of serving: random vectors, skewed popularity."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fairmf.backends.registry import get_backend
from fairmf.data.ids import Ids
from fairmf.models.als import FairALS
from fairmf.models.evenness import EvennessPath, Knot, Level
from fairmf.models.fitted import Fitted, History
from fairmf.ranking.item_dial import score_spreads


def synthetic_model(n_items: int, factors: int, n_users: int = 20_000, seed: int = 0) -> FairALS:
    """A FairALS model whose vectors are random around a few tastes; popular items have longer vectors."""
    draw = np.random.default_rng(seed)
    tastes = draw.normal(size=(64, factors)).astype(np.float32)
    counts = np.maximum(1, n_users * (np.arange(n_items) + 10.0) ** -0.8 / 10.0**-0.8 / 3).astype(np.float64)
    draw.shuffle(counts)
    items = tastes[draw.integers(64, size=n_items)] + draw.normal(size=(n_items, factors)).astype(np.float32)
    items *= (0.3 * (counts / counts.max()) ** 0.25 / np.sqrt(factors)).astype(np.float32)[:, None]
    users = tastes[draw.integers(64, size=n_users)] + draw.normal(size=(n_users, factors)).astype(np.float32)
    users = (users / np.sqrt(factors)).astype(np.float32)
    model = FairALS(factors=factors)
    backend = get_backend("cpu")
    with backend.threads(0):
        spread = score_spreads(backend, users, n_users, items)
    mean = users.mean(axis=0, dtype=np.float64)
    model._fitted = Fitted(
        user_factors=users, item_factors=items, user_ids=None, item_ids=Ids(np.arange(n_items)),
        popularity=counts, mean_user=mean, merit=np.zeros(factors), trained_fairness=0.0, fairness=0.0,
        history=History(), settings=model.get_params(), item_counts=counts, item_spread=spread,
        path=some_path(n_users),
    )  # fmt: skip
    return model


def some_path(n_users: int) -> EvennessPath:
    """A path of evenness as a calibration gives it; its Gini and quality are invented."""
    strengths = ((0.0, 0.0), (0.3, 0.1), (0.6, 0.25), (0.9, 0.5))
    return EvennessPath(
        tuple(Knot(Level(None, g, h), 0.9 - 0.15 * k, 0.4 - 0.03 * k) for k, (g, h) in enumerate(strengths)),
        at=20, quality="ndcg@100", n_users=n_users,
    )  # fmt: skip


def save_for_implicit(model: FairALS, path: Path) -> None:
    """Store the same vectors as a model of implicit."""
    from implicit.cpu.als import AlternatingLeastSquares

    peer = AlternatingLeastSquares(factors=model.factors, regularization=0.01)
    peer.item_factors, peer.user_factors = model.item_factors, model.user_factors
    peer.save(str(path))
