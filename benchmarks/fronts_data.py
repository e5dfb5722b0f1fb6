"""The six data sets of the comparison of fronts: what is chosen on, what is shown on, and with which sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.pareto_data import DATA, whole_split
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut


@dataclass(frozen=True)
class Parts:
    """Settings are chosen by fits on `chosen_on`, measured on `validation`; results are shown on `test`."""

    chosen_on: Interactions
    validation: HeldOut
    train: Interactions
    test: HeldOut


@dataclass(frozen=True)
class Set:
    """One data set. Recall divides by |T| or by min(K, |T|), as in the literature on it."""

    name: str
    file: str
    load: Callable[[Path], Parts]
    levels: tuple[float, ...]
    """Gini@20 at which methods are compared."""
    factors: int = 128
    recall_by_targets: bool = False
    large: bool = False

    @property
    def path(self) -> Path:
        """Where its file should be."""
        return DATA / self.file


def held_out_users(path: Path) -> Parts:
    """A stored split by user: nobody who is measured is in training."""
    split = whole_split(path)
    return Parts(split.train, split.validation, split.train, split.test)


def held_out_items(path: Path) -> Parts:
    """All users are in training. A part of what each did is the test: as published, or a random fifth.

    A tenth of the rest is hidden for validation, and comes back for the model that is shown.
    """
    arrays = np.load(path)
    rng = np.random.default_rng(0)
    values = np.ones(len(arrays["indices"]), dtype=np.float32)
    if "ratings" in arrays:  # play counts
        values = arrays["ratings"].astype(np.float32)
    whole = sp.csr_array((values, arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
    test = arrays["split"] == 1 if "split" in arrays else _some(whole, 0.2, rng)
    rest = _where(whole, ~test)
    hidden = _some(rest, 0.1, rng)
    return Parts(
        _interactions(_where(rest, ~hidden)),
        HeldOut(_interactions(_where(rest, ~hidden)), _interactions(_where(rest, hidden)), known_users=True),
        _interactions(rest),
        HeldOut(_interactions(rest), _interactions(_where(whole, test)), known_users=True),
    )


def _some(matrix: sp.csr_array, share: float, rng: np.random.Generator) -> np.ndarray:
    """Mark a random share of every user's entries."""
    marked = np.zeros(matrix.nnz, dtype=bool)
    for start, stop in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        count = round(share * (stop - start))
        marked[start + rng.choice(stop - start, count, replace=False)] = True
    return marked


def _where(matrix: sp.csr_array, kept: np.ndarray) -> sp.csr_array:
    before = np.concatenate(([0], np.cumsum(kept)))
    return sp.csr_array((matrix.data[kept], matrix.indices[kept], before[matrix.indptr]), shape=matrix.shape)


def _interactions(matrix: sp.csr_array) -> Interactions:
    """Play counts are weighted by a logarithm; everything else is binary."""
    if (matrix.data == 1).all():
        return Interactions.from_csr(matrix, allow_empty=True)
    return Interactions.from_csr(matrix, allow_empty=True, weights="values").reweighted("log")


SETS = (
    Set("ml-1m", "ml-1m-split.npz", held_out_users, (0.87, 0.84, 0.8, 0.75, 0.7)),
    Set("epinions", "epinions-split.npz", held_out_users, (0.85, 0.82, 0.78, 0.74, 0.7)),
    Set("lastfm", "lastfm-hetrec.npz", held_out_items, (0.95, 0.93, 0.9, 0.87, 0.84)),
    Set("citeulike-t", "citeulike-t.npz", held_out_items, (0.78, 0.74, 0.7, 0.65, 0.6)),
    Set("gowalla", "gowalla.npz", held_out_items, (0.84, 0.8, 0.75, 0.7, 0.65), 512, True, True),
    Set("amazon-cds", "amazon-cds.npz", held_out_items, (0.82, 0.78, 0.74, 0.7, 0.65), 128, True, True),
)
