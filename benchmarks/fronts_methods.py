"""Ways to trade accuracy for even exposure, each as a family of lists along one strength."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fairmf import EvennessPath, FairALS, Level, fit_offsets
from fairmf.backends.contract import ItemScale
from fairmf.data.interactions import Interactions
from fairmf.data.popularity import gini
from fairmf.data.split import HeldOut
from fairmf.metrics import accuracy, exposure
from fairmf.models.factor_model import FactorModel
from fairmf.models.recommend import ranked
from fairmf.types import Record

K, LONG = 20, 100
FAIRNESS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
DISCOUNT = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.75, 1.0)
FLATTEN = (0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.1, 1.4)
POWER = (0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.75)
EVENNESS = tuple(x / 16 for x in range(17))
TRAINED = (1.0, 4.0, 16.0, 64.0)
WEIGHTS = (0.25, 0.5, 0.75, 1.0)
FLOORS = (0.03, 0.06, 0.1, 0.17, 0.25, 0.35, 0.5)
SHARES = (0.15, 0.3, 0.5, 0.75, 1.0)
CAPS = (20.0, 10.0, 5.0, 3.0, 2.0)
OURS = "calibrated path"
ONE_LINERS = ("dialled by psi", "s - h log f", "s / f^g", "s / length(v)^g", "s / sd^g")


@dataclass(frozen=True)
class Point:
    """The lists of one strength, measured."""

    strength: float
    gini: float
    coverage: float
    tail: float
    ndcg20: np.ndarray
    ndcg100: np.ndarray
    recall20: np.ndarray


class Cohort:
    """The test users of a model, and how their lists are made and measured."""

    def __init__(self, model: FactorModel, held_out: HeldOut, train: Interactions, recall_by_targets: bool):
        self.model, self.held_out, self.by_targets = model, held_out, recall_by_targets
        self.rows = model._aligned(held_out.fold_in)
        self.popularity = train.by_user.column_counts(train.n_items)
        self._users: dict[float | None, np.ndarray] = {}

    def users(self, fairness: float | None) -> np.ndarray:
        """The users' vectors at a fairness; None takes them as they are."""
        if fairness not in self._users:
            options: Record = {} if fairness is None else {"fairness": fairness}
            self._users[fairness] = self.model._to_rank(self.held_out.fold_in, self.held_out.known_users, options)[1]
        return self._users[fairness]

    def lists(self, users: np.ndarray, dial: ItemScale | None) -> np.ndarray:
        """Lists of 100 items."""
        return np.concatenate([lists for _, lists in ranked(self.model, users, self.rows, LONG, dial)])

    def at(self, level: Level, strength: float) -> Point:
        """Measure a level of the item dial."""
        return self.measure(self.lists(self.users(level.fairness), self.model.fitted.item_scale(level)), strength)

    def measure(self, lists: np.ndarray, strength: float) -> Point:
        """Measure lists; a thread takes a block of users."""
        m, targets = self.model.n_items, self.held_out.targets.by_user
        starts = range(0, len(lists), 2048)

        def block(start: int) -> tuple[np.ndarray, ...]:
            part = lists[start : start + 2048]
            own = targets.block(start, start + len(part))
            hits, sizes = accuracy.find_hits(part, own, m), np.diff(own.indptr)
            recall = accuracy.recall(hits, sizes, K)
            if self.by_targets:
                recall = recall * np.minimum(K, np.maximum(sizes, 1)) / np.maximum(sizes, 1)
            return accuracy.ndcg(hits, sizes, K), accuracy.ndcg(hits, sizes, min(LONG, m)), recall

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = [np.concatenate(column) for column in zip(*pool.map(block, starts), strict=True)]
        scored = np.isfinite(found[0])
        shown = lists[:, :K]
        o = np.bincount(shown[shown >= 0], minlength=m).astype(np.float64)
        return Point(
            strength, float(gini(o)), float((o > 0).mean()), float(exposure.tail_share(o, self.popularity)),
            *(values[scored].astype(np.float32) for values in found),
        )  # fmt: skip


def one_liners(cohort: Cohort, start: Point) -> dict[str, list[Point]]:
    """Every method that changes the scores of a trained model by one line."""
    fitted = cohort.model.fitted
    f, lengths = np.maximum(cohort.popularity, 1), np.linalg.norm(fitted.item_factors, axis=1)
    lengths = np.maximum(lengths, 1e-3 * np.median(lengths))
    users = cohort.users(0.0)

    def scaled(values: np.ndarray, power: float) -> Point:
        scale = (values**-power / np.mean(values**-power)).astype(np.float32)
        return cohort.measure(cohort.lists(users, ItemScale(scale, None)), power)

    return {
        "dialled by psi": [start, *(cohort.at(Level(psi), psi) for psi in FAIRNESS)],
        "s - h log f": [start, *(cohort.at(Level(0.0, 0.0, h), h) for h in DISCOUNT)],
        "s / f^g": [start, *(scaled(f, g) for g in POWER)],
        "s / length(v)^g": [start, *(scaled(lengths, g) for g in FLATTEN)],
        "s / sd^g": [start, *(cohort.at(Level(0.0, g), g) for g in FLATTEN)],
    }


def along(cohort: Cohort, path: EvennessPath) -> list[Point]:
    """The calibrated path."""
    return [cohort.at(path.level(e), e) for e in EVENNESS]


def slow(cohort: Cohort, start: Point, large: bool) -> dict[str, list[Point]]:
    """Methods that make all lists together, or learn from lists: offsets, FairRec, capped lists."""
    model = cohort.model
    iterations = 100  # a third of the default: what is left to learn after them is little
    offsets = [start]
    for floor in FLOORS[2::2] if large else FLOORS:
        learned = fit_offsets(
            model, K=K, min_exposure=floor, iterations=iterations, progress=False, check=False
        ).model.fitted
        lists = cohort.lists(cohort.users(None), learned.item_scale(learned.served()))
        offsets.append(cohort.measure(lists, floor))
    fair = [start]
    for share in SHARES[1::2] if large else SHARES:
        # Lists of 20, because exposure is counted there; what follows them is not defined.
        if share * K * len(cohort.users(None)) / model.n_items >= 1:
            made = model.with_fairrec(share, K=K).lists(cohort.users(None), cohort.rows, K).items
            fair.append(cohort.measure(np.pad(made, ((0, 0), (0, LONG - K)), constant_values=-1), share))
    return {"offsets": offsets, "FairRec": fair, "capped lists": [start, *(capped(cohort, cap) for cap in CAPS)]}


def capped(cohort: Cohort, cap: float) -> Point:
    """Users take turns in a random order; an item that has `cap` times an equal share is in no further list."""
    model, users, rows = cohort.model, cohort.users(None), cohort.rows.by_user
    n, m = len(users), model.n_items
    most = max(1.0, cap * K * n / m)
    shown, lists = np.zeros(m), np.full((n, LONG), -1, dtype=np.int32)
    backend = model._backend()
    for part in _turns(n):
        full = np.where(shown >= most, -1e9, 0.0).astype(np.float32)
        found, scores = np.empty((len(part), LONG), np.int32), np.empty((len(part), LONG), np.float32)
        with backend.threads(model.num_threads):
            backend.top_k(
                backend.array(users[part]), backend.array(model.item_factors), LONG, rows.take(part), found, scores,
                ItemScale(None, full),
            )  # fmt: skip
        found[scores < -1e8] = -1
        lists[part] = found
        first = found[:, :K]
        shown += np.bincount(first[first >= 0], minlength=m)
    return cohort.measure(lists, cap)


def _turns(n: int) -> Iterator[np.ndarray]:
    """Users in a random order, in 64 batches."""
    yield from np.array_split(np.random.default_rng(0).permutation(n), min(64, n))


def retrained(
    train: Interactions, settings: Record, held_out: HeldOut, start: Point, by_targets: bool
) -> dict[str, list[Point]]:
    """Methods that need another fit for each strength."""

    def measured(strength: float, **changes: float) -> Point:
        model = FairALS(**{**settings, **changes}).fit(train, objective_every=0, progress=False)
        return Cohort(model, held_out, train, by_targets).at(Level(), strength)

    return {
        "fairness, trained": [start, *(measured(phi, fairness=phi) for phi in TRAINED)],
        "weights f^-b": [start, *(measured(b, item_balance=b) for b in WEIGHTS)],
    }
