"""Choose settings from the data: `FairALS(settings="auto")`.

No default of unobserved_weight fits all data: the best one runs from .001 to 1. So a fifth of the items of some users
is held out, and short fits with few factors look for the settings with the best nDCG@20 on them, in stages:

1. unobserved_weight alone, from a guess by the density of the data upwards and downwards while quality rises, with a
   quarter of the factors.
2. regularization at the best weight, then balances, with half of the factors.
3. Both weights again, in smaller steps and against each other: a larger unobserved_weight goes with a smaller
   regularization. Last the exponent.

Fits within a stage start from the factors of the best fit so far, so that a few epochs are enough. Their cost is
counted, and the search ends when all together have cost about as much as two and a half whole fits.
docs/decisions/0018-automatic-settings.md has the evidence.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Factors, ScoreWindow
from fairmf.data.csr import Rows, entries_where, liked
from fairmf.data.interactions import Interactions, as_interactions
from fairmf.errors import InvalidData, InvalidParameter, NotFinite
from fairmf.models import feature_fit
from fairmf.models.progress import Advance, progress_bar
from fairmf.params import settings_of, store_settings
from fairmf.ranking.top_n import top_n
from fairmf.types import Record, SparseMatrix

if TYPE_CHECKING:
    from fairmf.distributed.shards import ShardSource
    from fairmf.models.als import AlternatingModel
    from fairmf.models.base import IterativeModel
    from fairmf.models.factor_model import FactorModel

log = logging.getLogger("fairmf")
ModelT = TypeVar("ModelT", bound="IterativeModel[Any]")

WEIGHTS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
PENALTIES = (0.001, 0.003, 0.01, 0.03)
BALANCES = ((0.4, 0.0), (0.0, 0.5))  # tried beside those that the model has by default
EXPONENTS = (0.75,)
WEIGHED = ("unobserved_weight", "regularization")
LOWEST, HIGHEST = 1e-4, 2.0  # of unobserved_weight
FIRST_PENALTY = 0.01
CHOSEN = ("unobserved_weight", "regularization", "regularization_exponent", "item_balance", "user_balance")
"""The settings that are chosen, where the model's own are the defaults of its class."""
MOVES = (
    # Factors of unobserved_weight and regularization, and by what quality must be better at least; the second of a pair
    # is tried if the first is not taken. With all factors a larger weight and less regularization is better than short
    # fits with few factors say, so that a tie goes there.
    ((3.0, 1 / 3, 0.995), (1 / 3, 3.0, 1.01)),
    ((1.7, 1.0, 1.0), (1 / 1.7, 1.0, 1.0)),
    ((1.0, 1.7, 1.0), (1.0, 1 / 1.7, 1.0)),
)
HELD_OUT = 0.2
K = 20
USERS = 4096  # users who have items held out, if there are twice as many; otherwise half of all
TARGETS = 25_000  # held-out items that are enough: fewer users where each has many items
MARGIN = 1.01  # by what an exponent other than the default has to be better: it moves the best weights, too
WORK = 2.2  # whole fits, as `cost` counts: what all short fits together may take
THOROUGH = 5.0  # work of an epoch that solves rows thoroughly (als.py), against one that does not
MOST_EPOCHS = 16  # of a whole fit: short fits are shares of it, however many epochs are asked for
EXPECTED = 17  # short fits, as a rule: for the progress bar
FEWEST = 50  # held-out interactions without which nothing can be chosen


@dataclass(frozen=True)
class Found:
    """The settings that were chosen, and how."""

    settings: Record
    quality: float
    """nDCG@20 on the held-out interactions, of a short fit."""
    trials: int
    """Number of short fits."""
    users: int
    """Number of users who had items held out."""

    def __str__(self) -> str:
        chosen = ", ".join(f"{name}={value:g}" for name, value in self.settings.items())
        on = f"on held-out items of {self.users:,} users"
        return f"{chosen} (nDCG@{K} {self.quality:.3f} {on}, {self.trials} short fits)"


def with_chosen(
    model: ModelT,
    data: Interactions | SparseMatrix | ShardSource,
    progress: bool | None,
    item_features: Any,
    user_features: Any,
) -> ModelT:
    """Return a copy of a model with settings that are chosen for the data."""
    if isinstance(getattr(data, "shards", None), int):
        raise InvalidParameter(
            "settings='auto' needs Interactions in this process, not data in shards.",
            hint="choose the settings on a sample of the users, and give them to this fit",
        )
    data = as_interactions(data)
    feature_fit.check_sides(data, item_features, user_features)  # before the search, which takes a while
    found = choose(cast("AlternatingModel", model), data, progress)
    own = copy.copy(model)
    store_settings(own, {**found.settings, "settings": "given"})
    return own


def choose(model: AlternatingModel, data: Interactions, progress: bool | None) -> Found:
    """Return the settings with the best nDCG@20 on held-out interactions.

    Settings of the model that differ from the defaults of its class stay as they are.
    """
    defaults = settings_of(type(model)())
    free = [name for name in CHOSEN if getattr(model, name) == defaults[name]]
    if type(model).__name__ == "IALS":  # plain by definition
        free = [name for name in free if not name.endswith("balance")]
    search = Search.of(model, data)
    best: Record = {name: getattr(model, name) for name in CHOSEN}
    if "regularization" in free:
        best["regularization"] = FIRST_PENALTY
    epochs = min(model.epochs, MOST_EPOCHS)
    small, middle = max(8, min(32, model.factors // 4)), max(8, min(64, model.factors // 2))
    with progress_bar("settings", EXPECTED, progress) as search.advance:
        if "unobserved_weight" in free:
            search.stage(min(small, model.factors), max(1, epochs // 4))
            best = search.climb(best, "unobserved_weight", WEIGHTS, likely_weight(data))
        search.stage(min(middle, model.factors), max(1, round(0.375 * epochs)))
        if "regularization" in free:
            best = search.climb(best, "regularization", PENALTIES, FIRST_PENALTY)
        if "item_balance" in free and "user_balance" in free:
            best = search.best([best, *({**best, "item_balance": b, "user_balance": u} for b, u in BALANCES)])
        best = search.refine(best, [name for name in WEIGHED if name in free])
        if "regularization_exponent" in free:
            other = search.best([{**best, "regularization_exponent": value} for value in EXPONENTS])
            best = other if search.quality(other) > MARGIN * search.quality(best) else best
    found = Found({name: best[name] for name in free}, search.quality(best), len(search.scores), len(search.users))
    log.info("settings: %s", found, extra={"kind": "settings"})
    return found


@dataclass
class Search:
    """Short fits without some items of some users, scored on these."""

    model: AlternatingModel
    train: Interactions
    users: NDArray[np.int64]
    """The users whose lists are scored."""
    liked: Rows
    """The items that they keep."""
    targets: Rows
    """Their held-out items."""
    observed: float
    """The sum of the weights of all interactions."""
    spent: float = 0.0
    """The work of all short fits so far, in the unit of `work`."""
    advance: Advance = lambda note, steps=1: None  # noqa: ARG005
    scores: dict[tuple[float, ...], float] = field(default_factory=dict)
    """What was measured, by number of factors and settings."""
    factors: int = 0
    epochs: int = 0
    _init: FactorModel | None = None
    """The best fit of this stage, from which the next one starts."""

    @classmethod
    def of(cls, model: AlternatingModel, data: Interactions) -> Search:
        """Hold out a fifth of the items of some users, at least one of each.

        Users count alike, as they do in a test. A tenth of all interactions would be mostly those of active users.
        """
        rows = liked(data.by_user)
        rng = np.random.default_rng(0)
        sizes = np.diff(rows.indptr)
        able = np.flatnonzero(sizes >= 2)  # every user keeps at least one
        each = HELD_OUT * sizes[able].mean() if len(able) else 1.0
        count = min(USERS, len(able) // 2, int(TARGETS / max(1.0, each)))
        users = np.sort(rng.choice(able, count, replace=False))
        # The entries of the users in a random order, user by user; the first ones of each are held out.
        owner = np.repeat(np.arange(count), sizes[users])
        entries = np.concatenate([np.empty(0, np.int64), *(np.arange(*rows.indptr[u : u + 2]) for u in users)])
        shuffled = entries[np.lexsort((rng.random(len(entries)), owner))]
        place = np.arange(len(entries)) - np.repeat(np.cumsum(sizes[users]) - sizes[users], sizes[users])
        wanted = np.maximum(1, np.round(HELD_OUT * sizes[users]))
        held = np.zeros(rows.nnz, dtype=np.bool_)
        held[shuffled[place < wanted[owner]]] = True
        if held.sum() < FEWEST:
            raise InvalidData(
                f"settings='auto' needs at least {FEWEST} interactions to choose by, a fifth of the items of half of "
                f"the users. These data have {int(held.sum())}.",
                hint="set unobserved_weight and regularization yourself",
            )
        train, targets = entries_where(rows, ~held), entries_where(rows, held)
        observed = float(train.nnz if train.weights is None else train.weights.sum(dtype=np.float64))
        return cls(model, Interactions(train, data.n_items), users, train.take(users), targets.take(users), observed)

    def stage(self, factors: int, epochs: int) -> None:
        """Begin with fits of this size."""
        self.factors, self.epochs, self._init = factors, epochs, None

    def best(self, trials: Iterable[Record]) -> Record:
        """Fit and score the trials, as far as the budget allows; return the best one, of equal ones the first."""
        return max(trials, key=self.quality)

    def refine(self, best: Record, names: Sequence[str]) -> Record:
        """Change both weights, or the one of them that is free, by factors as long as quality rises enough."""
        top = self.quality(best)
        for pair in MOVES:
            before = best
            for *move, least in pair:
                factors = dict(zip(WEIGHED, move, strict=True))
                if best is not before or any(factors[name] != 1 for name in WEIGHED if name not in names):
                    continue  # the way back, or a setting that is given
                while True:
                    new = best | {name: float(f"{best[name] * factors[name]:.2g}") for name in names}
                    if not LOWEST <= new["unobserved_weight"] <= HIGHEST or self.quality(new) <= least * top:
                        break
                    best, top = new, max(top, self.quality(new))
        return best

    def climb(self, start: Record, name: str, values: Sequence[float], likely: float) -> Record:
        """Try the values of a setting, from the likely one on towards where quality rises; return the best."""
        at = first = int(np.argmin(np.abs(np.log(np.array(values) / likely))))
        done = {first: {**start, name: values[first]}}
        for step in (-1, 1):
            at = first
            while 0 <= at + step < len(values):
                done[at + step] = {**start, name: values[at + step]}
                if self.quality(done[at + step]) <= self.quality(done[at]):
                    break
                at += step
            if at != first:  # it rises on this side, so not on the other
                break
        return self.best(done.values())

    def quality(self, settings: Record) -> float:
        """Return the nDCG of a short fit with these settings; -inf where it diverges or the budget is spent."""
        key = self.factors, *(float(settings[name]) for name in CHOSEN)
        if key in self.scores:
            return self.scores[key]
        epochs = self.epochs if self._init is None else self.epochs // 2 + 1
        cost = self.cost(settings, epochs)
        if self.scores and self.spent + cost > self.allowed(settings):
            return -np.inf
        self.spent += cost
        score, fitted = self._score(settings, epochs)
        if fitted is not None and score >= max(self.scores.values(), default=-np.inf):
            self._init = fitted
        self.scores[key] = score
        self.advance(f"nDCG@{K} {max(self.scores.values()):.4f}")
        return score

    def cost(self, settings: Record, epochs: int) -> float:
        """Return the work of a short fit: its epochs, what surrounds them, and its lists."""
        lists = len(self.users) * (self.train.n_items / 8 + 1300.0) + 80.0 * self.targets.nnz
        around = work(self.train, self.factors) + 500.0 * self.train.nnz  # the latter on one thread
        return epochs * self._harder(settings) * work(self.train, self.factors) + around + self.factors * lists

    def allowed(self, settings: Record) -> float:
        """Return what all short fits may cost if these settings win. The last half-step counts as an epoch."""
        return WORK * (self.model.epochs + 1) * self._harder(settings) * work(self.train, self.model.factors)

    def _harder(self, settings: Record) -> float:
        """Return the work of an epoch with these settings, against a usual one."""
        pairs = self.train.n_users * self.train.n_items
        hard = self.model.is_hard(self.observed, settings["unobserved_weight"], pairs)
        return THOROUGH if hard and self.model.cg_steps == "auto" else 1.0

    def _score(self, settings: Record, epochs: int) -> tuple[float, FactorModel | None]:
        """Return the nDCG of a short fit, and the fit; -inf and None where it diverges."""
        trial = copy.copy(self.model)
        short = {"factors": self.factors, "epochs": epochs, "settings": "given", "engine": "local"}
        store_settings(trial, {**settings, **short})
        try:
            # The users are those of the last epoch: solving them once more would take as long as the fit.
            trial.fit(self.train, init=self._init, objective_every=0, progress=False, settle=False)
        except NotFinite:
            return -np.inf, None
        if trial.history.verdict == "interrupted":
            raise KeyboardInterrupt
        backend, U, V = trial._backend(), trial.user_factors[self.users], trial.item_factors
        with backend.threads(trial.num_threads):
            lists, _ = top_n(backend, U, V, K, self.liked, window=score_window(U, V, self.targets))
        return mean_ndcg(lists, self.targets), trial


def score_window(U: Factors, V: Factors, targets: Rows) -> ScoreWindow:
    """Return the lowest and the highest score of each user's targets; every user must have a target.

    Other scores decide nothing: most users have 20 items above their best target soon, and are done.
    """
    owners = np.repeat(np.arange(len(U)), np.diff(targets.indptr))
    scores = np.einsum("ec,ec->e", U[owners], V[targets.indices])
    return ScoreWindow(*(choice.reduceat(scores, targets.indptr[:-1]) for choice in (np.minimum, np.maximum)))


def likely_weight(data: Interactions) -> float:
    """Guess unobserved_weight from the share of all pairs that are observed: the denser, the larger it should be."""
    return 3.0 * math.pow(data.nnz / (data.n_users * data.n_items), 0.7)


def work(data: Interactions, factors: int) -> float:
    """Estimate the work of one epoch: passes over the interactions, and dense products of all rows.

    The constants are from the seconds of epochs with 32, 64 and 128 factors.
    """
    rows = data.n_users + data.n_items
    return 8.0 * data.nnz * factors + 0.75 * rows * factors * (factors + 64.0)


def mean_ndcg(lists: NDArray[np.integer], targets: Rows) -> float:
    """Return the mean nDCG of lists, as docs/metrics.md defines it; every user must have a target."""
    sizes = np.diff(targets.indptr)
    owners = np.repeat(np.arange(len(lists)), sizes)
    entry, place = np.nonzero(lists[owners] == targets.indices[:, None])  # each target in the list of its user
    gain = 1.0 / np.log2(np.arange(2, lists.shape[1] + 2))
    ideal = np.concatenate(([0.0], np.cumsum(gain)))
    gained = np.bincount(owners[entry], gain[place], minlength=len(lists))
    return float(np.mean(gained / ideal[np.minimum(sizes, lists.shape[1])]))
