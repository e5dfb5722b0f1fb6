"""Estimate roughly how long an experiment takes and how much memory it needs, before it starts.

The cost model counts operations. The time of one operation is measured on this machine with a small synthetic problem.
With n users, m items, nz interactions, d factors and blocks of b factors:

    conjugate gradients   2 nz d + (n + m) d^2                      per epoch
    exact                 nz d^2 + (n + m) d^3 / 3                  per epoch; FiADMM: its items' half, and 2 nz d
    blocks (iALS++)       nz d b + (n + m) d b^2 / 3 + (n + m) d^2  per epoch, in operations of the exact solver;
                          (n + m) d^3 / b in the last place where users and items alternate by blocks
    networks              12 n m h per pass over the data, h hidden units, in operations of a matrix product
    ranking               users x m x d for every list that is measured; FairRec three times that

An operation takes less time as d grows (longer rows, blocked factorisations). So both solvers are timed at two values
of d, and the time between and beyond them is a power of d.
"""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from fairmf.data.interactions import Interactions
from fairmf.data.synthetic import synthetic
from fairmf.models.als import IALS
from fairmf.models.registry import MODELS
from fairmf.reproduce.data import SOURCES, Data
from fairmf.reproduce.kinds import kind_of, later_pieces
from fairmf.reproduce.pieces import Piece
from fairmf.reproduce.spec import Experiment, Settings, effective


@dataclass(frozen=True)
class Shape:
    """Sizes of the data: of the training part, and the number of test users."""

    users: int
    items: int
    interactions: int
    held_out: int


@dataclass(frozen=True)
class Speed:
    """Seconds per operation of each kind. For the solvers: at SMALL factors, falling as d^-gain with more factors."""

    cg: float
    exact: float
    ranking: float
    dense: float
    cg_gain: float = 0.0
    exact_gain: float = 0.0


BLOCKWISE = "subspace", "alternating_subspace"
SMALL, LARGE, LARGEST = 32, 128, 512  # factors: the two that are timed, and the limit of further gains


def _cheaper(d: int, gain: float) -> float:
    return float((min(max(d, SMALL), LARGEST) / SMALL) ** -gain)


@dataclass(frozen=True)
class Estimate:
    """Number of pieces, number and seconds of those that are left, and memory of the largest."""

    pieces: int
    left: int
    seconds: float
    bytes: int

    def words(self) -> str:
        """Write the estimate as one line."""
        if not self.left:
            return f"{self.pieces} pieces, all done"
        done = self.pieces - self.left
        pieces = f"{self.pieces} pieces ({done} done, {self.left} left)"
        return f"{pieces}, about {duration(self.seconds)} (rough), about {self.bytes / 1e9:.1f} GB of memory"


def duration(seconds: float) -> str:
    """Write a number of seconds in a suitable unit."""
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(1, round(seconds))} s"


def shape_of(data: Data | str) -> Shape:
    """Return the sizes of loaded data, or the approximate sizes of a data set by name."""
    if isinstance(data, str):
        source = SOURCES[data]
        return Shape(source.users, source.items, source.interactions, source.heldout)
    train = data.split.train
    return Shape(train.n_users, train.n_items, train.nnz, data.split.test.n_users)


@functools.cache
def measure_speed() -> Speed:
    """Measure the time of operations on this machine, once per process (under two seconds if kernels are compiled)."""
    data = synthetic(3000, 1500, 90_000)
    shape = Shape(3000, 1500, 90_000, 1000)
    prices, gains = [], []
    for solver in ("eigenbasis_cg", "cholesky"):
        models = [IALS(factors=d, epochs=3, solver=solver) for d in (SMALL, LARGE)]
        low, high = (_epoch_seconds(one, data) / sum(_fit_work("ials", _one_epoch(one), shape)) for one in models)
        prices.append(low)
        # Never dearer with more factors, and at most d times cheaper: the rest is noise of a busy machine.
        gains.append(min(max(math.log(low / high) / math.log(LARGE / SMALL), 0.0), 1.0))
    some, model = data.take_users(np.arange(1000)), IALS(factors=SMALL, epochs=1).fit(data, progress=False)

    def rank() -> None:
        for _ in model.rank(some, 20):
            pass

    square = np.ones((512, 512), dtype=np.float32)
    # Users x items x factors.
    ranking = _best(rank) / (1000 * 1500 * SMALL)
    with threadpool_limits(1):  # with several threads, the time on a busy machine would depend on other processes
        # Timed on one core; a network is trained on all of them.
        dense = _best(lambda: square @ square, times=10) / (2 * 512**3) / (os.cpu_count() or 1)
    return Speed(prices[0], prices[1], ranking, dense, gains[0], gains[1])


def _one_epoch(model: IALS) -> Settings:
    """Return the settings of the model with one epoch."""
    return {**vars(model), "epochs": 1}


def estimate(experiment: Experiment, shape: Shape, speed: Speed, left: Sequence[Piece] | None = None) -> Estimate:
    """Estimate the pieces that are left; by default all pieces."""
    every = [*kind_of(experiment).plan(experiment, []), *later_pieces(experiment)]
    wanted = every if left is None else left
    seconds = sum(_seconds(piece, shape, speed) for piece in wanted)
    # The largest piece decides about memory, since pieces run one after the other.
    return Estimate(len(every), len(wanted), seconds, max(_bytes(piece, shape) for piece in every))


def _seconds(piece: Piece, shape: Shape, speed: Speed) -> float:
    settings, how = effective(piece.model, piece.settings), piece.how
    cg, exact, dense = _fit_work(piece.model, settings, shape)
    lists = 0.0
    if how["measure"] in ("points", "exposure"):
        # Points are measured on validation and test users.
        parts = 2 if how["measure"] == "points" else 1
        shares = how.get("shares") or [0.0]
        lists = parts * max(1, len(how.get("dials") or ())) * sum(3.0 if share else 1.0 for share in shares)
    elif how["measure"] == "epochs":
        lists = settings["epochs"] / how["every"]
    ranked: float = lists * shape.held_out * shape.items * settings.get("factors", 1)
    d = settings.get("factors", 1)
    # The factorisations of iALS++ are as large as a block, not as the number of factors.
    block = min(d, settings["block_size"]) if settings.get("solver") in BLOCKWISE else d
    fit = cg * speed.cg * _cheaper(d, speed.cg_gain) + exact * speed.exact * _cheaper(block, speed.exact_gain)
    return float(fit + dense * speed.dense + ranked * speed.ranking)


def _fit_work(model: str, settings: Settings, shape: Shape) -> tuple[float, float, float]:
    """Count the operations of conjugate gradients, of exact solving and of matrix products."""
    n, m, nz = shape.users, shape.items, shape.interactions
    epochs, d = settings.get("epochs", 0), settings.get("factors", 1)
    if not MODELS[model].is_trained:
        return 0.0, 0.0, 0.0
    if "hidden" in settings:  # a network
        passes = settings.get("encoder_passes", 1) + settings.get("decoder_passes", 0)
        return 0.0, 0.0, 12.0 * epochs * passes * n * m * settings["hidden"]
    by_cg = 2 * nz * d + (n + m) * d**2
    if model == "fiadmm":
        if settings["solver"] != "cholesky":
            return float(epochs * by_cg), 0.0, 0.0
        return float(epochs * (2 * nz * d + n * d**2)), epochs * (nz * d**2 / 2 + m * d**3 / 3), 0.0
    if settings["solver"] == "cholesky":
        return 0.0, epochs * (nz * d**2 + (n + m) * d**3 / 3), 0.0
    if settings["solver"] in BLOCKWISE:
        b = min(d, settings["block_size"])
        # Where users and items take turns, their Gramians are computed for every block.
        gramians = (n + m) * d**2 * (d / b if settings["solver"] == BLOCKWISE[1] else 1)
        return 0.0, epochs * (nz * d * b + (n + m) * d * b**2 / 3 + gramians), 0.0
    return float(epochs * by_cg), 0.0, 0.0


def _bytes(piece: Piece, shape: Shape) -> int:
    """Estimate the bytes of the data (twice), the factors (three copies) and the lists; for networks also the batch."""
    settings = effective(piece.model, piece.settings)
    rows, d = shape.users + shape.items, settings.get("factors", 1)
    needed = 2 * shape.interactions * 8 + 3 * rows * d * 4 + shape.held_out * 100 * 16
    if "hidden" in settings:
        needed += 16 * settings["batch_size"] * shape.items + 32 * settings["hidden"] * shape.items
    return int(needed + 150e6)  # Python and its libraries


def _epoch_seconds(model: IALS, data: Interactions) -> float:
    """Return the seconds of the fastest epoch; the first is left out, because it may compile kernels."""
    model.fit(data, objective_every=0, settle=False, progress=False)
    return float(min(record["seconds"] for record in model.fitted.history.records[1:]))


def _best(call: Callable[[], object], times: int = 3) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    # The fastest run is the one that other processes disturbed least.
    return min(found)
