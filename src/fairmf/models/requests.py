"""What `recommend` is asked: its arguments checked, and every name turned into a position."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairmf.errors import InvalidData, InvalidParameter
from fairmf.interactions import Ids, Interactions, Rows
from fairmf.models.naming import positions
from fairmf.ranking import list_length

if TYPE_CHECKING:
    from fairmf.models.factor_model import FactorModel


@dataclass(frozen=True)
class Request:
    """A checked question for `count` users, everything by position."""

    count: int
    users: NDArray[np.int64] | None
    """Their rows in the model; None for users who need not be in it."""
    given: Interactions | None
    """Their histories as the caller has them (user_items)."""
    N: int
    """Slots of each list: as asked for, and no more than there are items."""
    filter_liked: bool
    filtered: Rows | None
    """What each user must not be given besides."""
    allowed: NDArray[np.int64] | None
    """The items that may be given at all, ascending; None for all."""
    recalculate: bool
    dial_only: bool
    """Whether only the dial asks for other vectors: then stored sensitivities will do."""
    fairness: float | None
    no_history: str


def read_request(
    model: FactorModel,
    users: Sequence[Hashable] | NDArray[Any],
    user_items: Interactions | Any | None,
    *,
    N: int,
    filter_already_liked_items: bool,
    filter_items: Any,
    recalculate_user: bool,
    items: Sequence[Hashable] | NDArray[Any] | None,
    fairness: float | None,
    no_history: str,
    by: str,
) -> Request:
    """Check the arguments of `recommend` and turn every name into a position."""
    length = list_length(N, model.n_items)
    check_choice("no_history", no_history, ("popular", "error"))
    check_choice("by", by, ("id", "row"))
    user_ids, item_ids = names_of(model, by)
    count = len(users)
    given = None if user_items is None else read_user_items(model, user_items, count, recalculate_user)
    # A vector made from the given rows needs no stored one: such users need not be known.
    made = given is not None and (recalculate_user or fairness is not None)
    rows = None if made else positions(users, user_ids, model.n_users, "user")
    everyone, each = read_filter(filter_items, item_ids, model.n_items, count)
    return Request(
        count=count,
        users=rows,
        given=given,
        N=length,
        filter_liked=bool(filter_already_liked_items),
        filtered=each,
        allowed=allowed_items(items, everyone, item_ids, model.n_items),
        recalculate=bool(recalculate_user) or fairness is not None,
        dial_only=fairness is not None and not recalculate_user,
        fairness=fairness,
        no_history=no_history,
    )


def names_of(model: FactorModel, by: str) -> tuple[Ids | None, Ids | None]:
    """The ids of users and items that a call speaks of; None where it speaks of row numbers."""
    return (None, None) if by == "row" else (model.fitted.user_ids, model.fitted.item_ids)


def read_user_items(model: FactorModel, user_items: Any, count: int, values_matter: bool) -> Interactions:
    """The histories of the call: one row per user asked for, columns as in training."""
    if isinstance(user_items, (int, np.integer)) and not isinstance(user_items, bool):
        raise InvalidParameter(
            f"The second argument of recommend is user_items, as in implicit; write N={user_items} if you meant N."
        )
    if sp.issparse(user_items):
        matrix: Any = user_items
        if len(matrix.shape) == 1:  # what indexing a csr_array by one user gives
            user_items = matrix.reshape(1, -1).tocsr()
        if not values_matter:  # as_interactions would warn of values that nobody is going to use
            user_items = Interactions.from_csr(user_items, allow_empty=True)
    given = model._aligned(user_items)
    if given.n_users != count:
        raise InvalidData(
            f"user_items must have one row per user asked for, in their order: {count:,} users, "
            f"{given.n_users:,} rows. For users of training, pass user_items[users]."
        )
    return given


def read_filter(
    filter_items: Any, item_ids: Ids | None, n_items: int, count: int
) -> tuple[NDArray[np.int64] | None, Rows | None]:
    """filter_items as (positions for everyone, rows for each user): it is one of the two."""
    if filter_items is None:
        return None, None
    if isinstance(filter_items, Interactions) or sp.issparse(filter_items):
        rows = (
            filter_items
            if isinstance(filter_items, Interactions)
            else Interactions.from_csr(filter_items, allow_empty=True)
        )
        if rows.shape != (count, n_items):
            raise InvalidData(
                f"filter_items must be {count:,} users x {n_items:,} items. Got {rows.n_users:,} x {rows.n_items:,}."
            )
        return None, rows.by_user
    if not _is_list(filter_items):
        raise InvalidParameter(f"filter_items must be a list of items, or one per user. Got {filter_items!r} instead.")
    listed = list(filter_items)
    if not any(isinstance(entry, (list, set, frozenset, range, np.ndarray)) for entry in listed):
        return positions(listed, item_ids, n_items, "item"), None
    if len(listed) != count:
        raise InvalidData(f"filter_items holds {len(listed):,} lists for {count:,} users; give one list per user.")
    each = [np.unique(positions(list(entry), item_ids, n_items, "item")) for entry in listed]
    indptr = np.concatenate(([0], np.cumsum([len(entry) for entry in each]))).astype(np.int64)
    return None, Rows(indptr, np.concatenate(each).astype(np.int32), None)


def allowed_items(
    items: Sequence[Hashable] | NDArray[Any] | None,
    without: NDArray[np.int64] | None,
    item_ids: Ids | None,
    n_items: int,
) -> NDArray[np.int64] | None:
    """Candidates less what is filtered for everyone, ascending and without repeats; None for the whole catalogue."""
    if items is not None and not _is_list(items):
        raise InvalidParameter(f"items must be a list of items. Got {items!r} instead.")
    chosen = None if items is None else np.unique(positions(list(items), item_ids, n_items, "item"))
    if without is None or len(without) == 0:
        return chosen
    return np.setdiff1d(np.arange(n_items) if chosen is None else chosen, without)


def _is_list(value: Any) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, (str, bytes))


def check_count(value: Any, name: str) -> None:
    """Raise InvalidParameter unless the value is an integer >= 1."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InvalidParameter(f"{name} must be an integer >= 1. Got {value!r} instead.")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise InvalidParameter unless the value is one of the words."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidParameter(f"{name} must be {' or '.join(map(repr, choices))}. Got {value!r} instead.")
