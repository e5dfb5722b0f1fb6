"""Data that benchmarks share: synthetic always, MovieLens-1M where its split lies beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.data.synthetic import synthetic

FOLDER = Path(os.environ.get("FAIRMF_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def medium() -> Interactions:
    """30,000 x 8,000 with 1.7 million interactions."""
    return synthetic(30_000, 8_000, 1_700_000)


def movielens() -> Interactions | None:
    """The training part of MovieLens-1M's public split, or None."""
    path = FOLDER / "ml-1m-split.npz"
    if not path.exists():
        return None
    arrays = np.load(path)
    rows = Rows(arrays["train_indptr"].astype(np.int64), arrays["train_indices"].astype(np.int32), None)
    return Interactions(rows, int(arrays["train_shape"][1]))


def gowalla() -> Interactions | None:
    """The training part of Gowalla's published split, or None."""
    path = FOLDER / "gowalla.npz"
    if not path.exists():
        return None
    arrays = np.load(path)
    kept = (arrays["split"] == 0).astype(np.float32)
    matrix = sp.csr_matrix((kept, arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
    matrix.eliminate_zeros()
    return Interactions.from_csr(matrix)


def lastfm_counts() -> Interactions | None:
    """Last.fm with raw play counts as confidences, or None."""
    path = FOLDER / "lastfm-hetrec.npz"
    if not path.exists():
        return None
    arrays = np.load(path)
    counts = arrays["ratings"].astype(np.float32)
    matrix = sp.csr_matrix((counts, arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
    return Interactions.from_csr(matrix, weights="values")


def speed_sets() -> dict[str, Interactions]:
    """The data on which speed is compared."""
    found = {"synthetic 1.7M": medium()}
    ratings = movielens()
    return found if ratings is None else found | {"ml-1m": ratings}
