"""Hold the problem of a fit: the data, the weights of the objective's terms, and where arithmetic runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, Factors, HalfStep, Matrix, RankOne, Vector, frozen
from fairmf.backends.registry import get_backend
from fairmf.data.csr import Rows, disliked, transpose
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.lazy import cached_property
from fairmf.models.feature_maps import SideFeatures
from fairmf.types import Record, Settings

if TYPE_CHECKING:
    from fairmf.models.fitted import Fitted

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Dislikes:
    """The entries that should score 0 instead of 1, each with a confidence (docs/mathematics.md 12).

    The problem's interactions hold them like likes, which is right for every matrix H. What they add too much to the
    right-hand sides, sum_j |w_ij| y_j over the dislikes, is subtracted here, through the rows' own right-hand sides.
    """

    given: Interactions
    """The interactions with negative weights for dislikes."""

    @cached_property
    def by_user(self) -> Rows:
        """The dislikes of every user, with confidences |w|."""
        return disliked(self.given.by_user).read_only()

    @cached_property
    def by_item(self) -> Rows:
        """The dislikes of every item."""
        return transpose(self.by_user, self.given.n_items).read_only()

    def right(self, backend: Backend, rows: Rows, other: Factors, own: Factors | None) -> Factors:
        """Return what the right-hand sides gain: what features add (`own`), minus the dislikes' part."""
        surplus = backend.sparse_product(rows, other)
        return -surplus if own is None else own - surplus

    def change(self, backend: Backend, U: Factors, V: Factors) -> float:
        """Return sum |w| ((0 - u.v)^2 - (1 - u.v)^2) over the dislikes: what corrects the observed loss."""
        return 2.0 * backend.score_sum(self.by_user, U, V) - float(self.by_user.sums().sum())


@dataclass(frozen=True)
class Problem:
    """Everything that stays fixed during a fit. The paper's symbols: docs/notation.md."""

    interactions: Interactions
    """With confidences: that of a dislike is |w|."""
    backend: Backend
    regularization: float
    regularization_exponent: float
    unobserved_weight: float
    lambda_f: float = 0.0
    fairness_weights: Vector | None = field(default=None, compare=False)
    """The weight of every item in the fairness term (w_j); None stands for 1 (docs/mathematics.md 5a)."""
    item_side: SideFeatures | None = field(default=None, compare=False)
    """The features of the items, if they have any (docs/mathematics.md 11)."""
    user_side: SideFeatures | None = field(default=None, compare=False)
    """The features of the users."""
    counted_items: int | None = None
    """Number of items that count in the objective, where that is not the number of all (None)."""
    dislikes: Dislikes | None = field(default=None, compare=False)
    """Which interactions are dislikes; None for most data."""
    holds_users: ClassVar[bool] = True
    """Whether the users are in this process."""
    _derived: Record = field(default_factory=dict, repr=False, compare=False)

    @property
    def n_users(self) -> int:
        """Number of users (n)."""
        return self.interactions.n_users

    @property
    def n_items(self) -> int:
        """Number of items that count in the objective (m)."""
        return self.interactions.n_items if self.counted_items is None else self.counted_items

    @property
    def has_features(self) -> bool:
        """Whether users or items have features."""
        return self.user_side is not None or self.item_side is not None

    @cached_property
    def has_empty_users(self) -> bool:
        """Whether some users have no interactions."""
        return bool(self.user_sums.min() == 0)

    @cached_property
    def user_sums(self) -> Vector:
        """The sum of every user's confidences."""
        return self.interactions.by_user.sums()

    @cached_property
    def item_sums(self) -> Vector:
        """The sum of every item's confidences."""
        return frozen(self.interactions.by_item.sums())

    @cached_property
    def user_ridge(self) -> Vector:
        """The L2 weight of every user (lambda_U(i))."""
        return frozen(frequency_scaled(self.user_sums, self.n_items, *self._l2))

    @cached_property
    def item_ridge(self) -> Vector:
        """The L2 weight of every item (lambda_V(j))."""
        return frozen(frequency_scaled(self.item_sums, self.n_users, *self._l2))

    def side_features(self, name: str, rows: Rows, n_features: int, strength: float) -> SideFeatures:
        """Prepare the features of one side ("item" or "user"); see SideFeatures.of."""
        ridge = self.item_ridge if name == "item" else self.user_ridge
        if not (ridge > 0).all():
            raise InvalidParameter(f"{name}_features needs regularization > 0: it is the weight of what they say.")
        return SideFeatures.of(rows, n_features, ridge, strength)

    @property
    def _l2(self) -> tuple[float, float, float]:
        return self.regularization, self.regularization_exponent, self.unobserved_weight

    @cached_property
    def least_user_ridge(self) -> float:
        """The smallest L2 weight of a user."""
        return float(self.user_ridge.min())

    @cached_property
    def least_item_ridge(self) -> float:
        """The smallest L2 weight of an item."""
        return float(self.item_ridge.min())

    @cached_property
    def fairness_squares(self) -> Vector | None:
        """The squared fairness weight of every item (w_j^2); None where all are 1."""
        return None if self.fairness_weights is None else frozen(np.square(self.fairness_weights))

    @property
    def largest_fairness_square(self) -> float:
        """The largest squared fairness weight: how many times stronger the fairness term is for that item."""
        return 1.0 if self.fairness_squares is None else float(self.fairness_squares.max())

    @cached_property
    def observed_weight(self) -> float:
        """The sum of all confidences."""
        return float(self.user_sums.sum())

    def merit_gramian(self, item_factors: Factors, gramian: Matrix | None = None) -> Matrix:
        """Return G_W = V' W^2 V, which with t gives the fairness term and q.

        Without fairness weights that is G_V: `gramian`, if given, is returned as it is.
        """
        if self.fairness_squares is None and gramian is not None:
            return gramian
        return self.backend.gramian(item_factors, self.fairness_squares)

    def cached(self, name: str, make: Callable[[], T]) -> T:
        """Return a value that a model derives from the problem; it is computed once and used in every epoch."""
        if name not in self._derived:
            self._derived[name] = make()
        return self._derived[name]  # type: ignore[no-any-return]

    def user_groups(self, most: int) -> Groups:
        """Group the users by their sum of confidences, into at most that many groups."""
        return grouped(self.user_sums, lambda sums: frequency_scaled(sums, self.n_items, *self._l2), most)

    def sampled_users(self, count: int) -> tuple[Rows, Vector]:
        """Return rows and ridge of users spread evenly along their sums of confidences."""
        rows = self.interactions.by_user
        chosen = spread_evenly(self.user_sums, count)
        return rows.take(chosen), self.user_ridge[chosen]

    def user_half_step(
        self,
        item_factors: Factors,
        shift: Vector | None = None,
        gramian: Matrix | None = None,
        own: Factors | None = None,
    ) -> HalfStep:
        """Return the users' systems given V: H_i u_i = b_i - shift + own_i. `gramian` is G_V, computed if not given."""
        vector = self.backend.vector
        shared = self.backend.gramian(item_factors) if gramian is None else vector(gramian)
        if self.dislikes is not None:
            own = self.dislikes.right(self.backend, self.dislikes.by_user, item_factors, own)
        return HalfStep(
            self.backend,
            self.interactions.by_user,
            item_factors,
            self.unobserved_weight * shared,
            self.user_ridge,
            vector(np.zeros(item_factors.shape[1]) if shift is None else shift),
            own=own,
        )

    def item_half_step(
        self,
        user_factors: Factors,
        mean_user: Vector | None = None,
        gramian: Matrix | None = None,
        own: Factors | None = None,
    ) -> HalfStep:
        """Return the items' systems given U, with the fairness term lambda_f s s' where a mean user (s or t) is given.

        `gramian` is G_U, computed if not given.
        """
        if gramian is None:
            gramian = self.backend.gramian(user_factors)
        shared: Matrix = self.unobserved_weight * gramian
        term = None
        if mean_user is not None:
            mean_user = self.backend.vector(mean_user)
            common = self.lambda_f
            if (squares := self.fairness_squares) is not None:
                common, term = self.fairness_pull(squares, mean_user)
            shared = shared + common * np.outer(mean_user, mean_user)
        zero = self.backend.vector(np.zeros(user_factors.shape[1]))
        rows, ridge = self.interactions.by_item, self.item_ridge
        if self.dislikes is not None:
            own = self.dislikes.right(self.backend, self.dislikes.by_item, user_factors, own)
        return HalfStep(self.backend, rows, user_factors, shared, ridge, zero, term, own=own)

    def fairness_pull(self, squares: Vector, mean_user: Vector) -> tuple[float, RankOne | None]:
        """Split lambda_f w_j^2 into the part that all items share and what each has beyond that (None: nothing).

        `squares` are the `fairness_squares`. Without fairness weights all items share lambda_f.
        """
        least = float(squares.min())
        own = self.lambda_f * (squares - least)
        return self.lambda_f * least, RankOne(mean_user, own) if own.any() else None


def problem_for(
    data: Interactions, lambda_f: float, settings: Settings, fairness_weights: Vector | None = None
) -> Problem:
    """Return the problem of these settings on this data."""
    names = ("regularization", "regularization_exponent", "unobserved_weight")
    backend = get_backend(settings["backend"], settings.get("factor_dtype", "float32"))
    dislikes = None
    if data.n_dislikes:
        data, dislikes = data.confidences(), Dislikes(data)
    return Problem(
        data, backend, **{name: settings[name] for name in names}, lambda_f=lambda_f, fairness_weights=fairness_weights,
        dislikes=dislikes,
    )  # fmt: skip


def serving_problem(fitted: Fitted, data: Interactions, lambda_f: float = 0.0) -> Problem:
    """Return the problem of new histories under a model: its settings, and the number of items it was trained with."""
    problem = problem_for(data, lambda_f, fitted.settings, fitted.fairness_weights)
    counted = None if fitted.item_features is None else fitted.item_features.n_counted
    return problem if counted is None else replace(problem, counted_items=counted)


def frequency_scaled(sums: Vector, others: int, regularization: float, exponent: float, unobserved: float) -> Vector:
    """Return every row's L2 weight: lambda2 * (c_i + alpha0 * size of the other side)^eta (docs/mathematics.md 1)."""
    # Only 0 to a negative power is infinite: an empty row where alpha0 is 0. The check below finds it.
    with np.errstate(divide="ignore"):
        weights: Vector = regularization * (sums + unobserved * others) ** exponent
    if not np.isfinite(weights).all():
        raise InvalidData(
            "An empty row has no finite L2 weight with a negative regularization_exponent and unobserved_weight 0: "
            "drop users and items without interactions, or set unobserved_weight > 0."
        )
    return weights


# -- groups and samples of users, by their sum of confidences ----------------------------------------------------------


class Groups(NamedTuple):
    """Users grouped by their sum of confidences, ascending."""

    sums: Vector
    ridge: Vector
    counts: NDArray[np.int64]


def grouped(sums: Vector, ridge_of: Callable[[Vector], Vector], most: int) -> Groups:
    """Group users with equal sums; beyond `most` groups, merge neighbours. `ridge_of` returns the ridges of sums."""
    distinct, counts = np.unique(sums, return_counts=True)
    found = Groups(distinct, ridge_of(distinct), counts)
    return found if len(distinct) <= most else _merged(found, most)


def together(parts: Sequence[Groups], most: int) -> Groups:
    """Merge the groups of several populations."""
    sums, ridge, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    distinct, where = np.unique(sums, return_inverse=True)
    people = np.bincount(where, counts)
    mean_ridge = np.bincount(where, ridge * counts) / people
    found = Groups(distinct, mean_ridge, people.astype(np.int64))
    return found if len(distinct) <= most else _merged(found, most)


def _merged(groups: Groups, most: int) -> Groups:
    sums, ridge, counts = groups
    starts = (np.arange(most) * len(sums)) // most
    total = np.add.reduceat(counts, starts)
    merged = (np.add.reduceat(x * counts, starts) / total for x in (sums, ridge))
    return Groups(next(merged), next(merged), total)


def spread_evenly(sums: Vector, count: int) -> NDArray[np.int64]:
    """Return `count` users spread evenly along their sorted sums (all, if they are few)."""
    order = np.argsort(sums, kind="stable")
    count = min(count, len(order))
    chosen: NDArray[np.int64] = np.sort(order[((np.arange(count) + 0.5) * len(order) / max(count, 1)).astype(np.int64)])
    return chosen
