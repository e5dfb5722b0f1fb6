"""The data sets of the trade-off benchmark, each with the settings chosen for it. Absent files are skipped by name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split
from fairmf.data.split_methods import split_by_user

DATA = Path(os.environ.get("FAIRMF_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
COMPETITOR = DATA.parent / "reference" / "authors_cpp.json"


@dataclass(frozen=True)
class Task:
    """What is trained on, who is scored, and with which settings."""

    name: str
    file: str
    load: Callable[[Path], tuple[Interactions, HeldOut]]
    what: str
    regularization: float
    unobserved_weight: float
    seeds: int = 3
    admm: tuple[float, ...] = (0.4, 1, 4, 10, 40)
    admm_seeds: int = 3
    cohort: bool = False

    @property
    def path(self) -> Path:
        """Where its file should be."""
        return DATA / self.file

    @property
    def weights(self) -> dict[str, float]:
        """Both weights, as the models' arguments."""
        return {"regularization": self.regularization, "unobserved_weight": self.unobserved_weight}


def stored_split(path: Path) -> tuple[Interactions, HeldOut]:
    """A strong-generalisation split as it was stored: train and the validation users."""
    split = whole_split(path)
    return split.train, split.validation


def whole_split(path: Path) -> Split:
    """The same with its test users."""
    arrays = np.load(path)

    def part(prefix: str) -> Interactions:
        rows = Rows(arrays[prefix + "_indptr"].astype(np.int64), arrays[prefix + "_indices"].astype(np.int32), None)
        return Interactions(rows, int(arrays[prefix + "_shape"][1]))

    held_out = (HeldOut(part(f"{name}_tr"), part(f"{name}_te")) for name in ("validation", "test"))
    return Split(part("train"), *held_out)


def published_split(path: Path) -> tuple[Interactions, HeldOut]:
    """All users are trained on; 20 % of what each did is the target. A seeded sample of 5,000 of them is scored.

    Their vectors come by fold-in of their own training rows, which is what the model stores for them.
    """
    arrays = np.load(path)
    users = np.repeat(np.arange(arrays["shape"][0]), np.diff(arrays["indptr"]))

    def part(number: int) -> Interactions:
        mine = arrays["split"] == number
        pairs = (users[mine], arrays["indices"][mine])
        ones = np.ones(int(mine.sum()), dtype=np.float32)
        return Interactions.from_csr(sp.csr_array((ones, pairs), shape=tuple(arrays["shape"])), allow_empty=True)

    train = part(0)
    scored = np.sort(np.random.default_rng(0).choice(train.n_users, 5000, replace=False))
    return train, HeldOut(train.take_users(scored), part(1).take_users(scored))


def seeded_split(path: Path) -> tuple[Interactions, HeldOut]:
    """Binary; 300 users each for validation and test, seed 0."""
    arrays = np.load(path)
    ones = np.ones(len(arrays["indices"]), dtype=np.float32)
    matrix = sp.csr_array((ones, arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
    split = split_by_user(Interactions.from_csr(matrix), 300, protocol="seeded", random_state=0)
    return split.train, split.validation


# Settings by a small check of IALS at fairness 0: regularization .003, .01, .03 with unobserved_weight .01, .03, .1 on
# the validation users; gowalla .001, .003, .01, on a tenth of the training part held out.
# ml-1m's are those of the goals.
TASKS = (
    Task("ml-1m", "ml-1m-split.npz", stored_split, "1,000 validation users", 0.01, 0.1, 5, cohort=True),
    Task("epinions", "epinions-split.npz", stored_split, "500 validation users", 0.01, 0.1),
    Task(
        "lastfm-hetrec", "lastfm-hetrec.npz", seeded_split, "300 validation users, binary", 0.003, 0.1,
        admm=(1, 10), admm_seeds=1,
    ),
    Task(
        "gowalla", "gowalla.npz", published_split, "published 80/20 split, 5,000 of the trained users", 0.003, 0.01,
        seeds=1, admm=(1, 10), admm_seeds=1,
    ),
)  # fmt: skip


def competitor_rows(name: str) -> list[dict[str, float]]:
    """The stored runs of the fiADMM authors' C++, which there are for ml-1m only; [] where absent."""
    if name != "ml-1m" or not COMPETITOR.exists():
        return []
    rows: list[dict[str, float]] = json.loads(COMPETITOR.read_text(encoding="utf-8"))["rows"]
    return rows
