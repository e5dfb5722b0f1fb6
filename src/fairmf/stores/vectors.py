"""Compute the vectors that a store holds, and those to search it with: score = inner product, nothing else to add.

Evenness changes items (a factor per item, and a number to add) and users (their fairness). The factor is in the item
vectors. The number is their last coordinate, to which the users' vectors have a 1. So any store that ranks by inner
product gives the lists of `recommend` at that level, if it looks at all items (docs/vector-stores.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairmf.data.ids import Ids, Names
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.models.evenness import Level
from fairmf.text import whole

if TYPE_CHECKING:
    from fairmf.data.interactions import Interactions
    from fairmf.models.factor_model import FactorModel
    from fairmf.types import SparseMatrix

What = Literal["items", "users"]
KINDS = ("items", "users")


@dataclass(frozen=True)
class Vectors:
    """Vectors of items or users with their ids and titles, as stores take them."""

    what: What
    ids: list[int] | list[str]
    """Whole numbers where all ids are, else texts."""
    vectors: NDArray[np.float32]
    titles: list[str] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def width(self) -> int:
        """Length of a vector."""
        return int(self.vectors.shape[1])

    @property
    def numbered(self) -> bool:
        """Whether the ids are whole numbers of 64 bits."""
        return not self.ids or isinstance(self.ids[0], int)

    def parts(self, size: int) -> Iterator[Vectors]:
        """Yield the rows in parts of this size."""
        for start in range(0, len(self), size):
            stop = start + size
            titles = None if self.titles is None else self.titles[start:stop]
            yield replace(self, ids=self.ids[start:stop], vectors=self.vectors[start:stop], titles=titles)

    def rows(self) -> Iterator[tuple[int | str, str | None, NDArray[np.float32]]]:
        """Yield id, title and vector of every row."""
        titles: Sequence[str | None] = [None] * len(self) if self.titles is None else self.titles
        yield from zip(self.ids, titles, self.vectors, strict=True)


def vectors_of(
    model: FactorModel,
    what: What = "items",
    *,
    evenness: float | Level | None = None,
    titles: Sequence[str] | None = None,
) -> Vectors:
    """Return the vectors of all items or users at a level of evenness, whose inner products are the model's scores.

    Parameters
    ----------
    model
        A fitted model of factors.
    what
        "items" or "users".
    evenness
        As in `recommend`. Take the same for items and users.
    titles
        A title for every item, in the order of the model's items.

    Returns
    -------
    Vectors

    Raises
    ------
    InvalidParameter
        If there is nothing called `what`, or titles are given for users.
    InvalidData
        If the number of titles is not that of the items.

    Examples
    --------
    >>> from fairmf import FairALS, synthetic
    >>> model = FairALS(factors=4, epochs=2).fit(synthetic(60, 40, 600), progress=False)
    >>> items = vectors_of(model, evenness=0.3)
    >>> len(items), items.width
    (40, 5)
    """
    if what not in KINDS:
        raise InvalidParameter(f"'what' must be one of {', '.join(KINDS)}. Got {what!r} instead.", parameter="what")
    fitted = model.fitted
    if what == "users":
        if titles is not None:
            raise InvalidParameter("Titles are for items, not for users.", parameter="titles")
        fitted.check_users("an export of users")
        return Vectors("users", _ids(fitted.user_ids, model.n_users), query_vectors(model, evenness=evenness))
    if titles is not None and len(titles) != model.n_items:
        raise InvalidData(f"There are {len(titles):,} titles for {model.n_items:,} items: give one for each.")
    if evenness is not None:
        # Items do not depend on the fairness, so no user is computed for them.
        model = model.with_evenness(Level(None, *fitted.served(evenness).on_items))
    named = None if titles is None else [whole(str(title)) for title in titles]
    return Vectors("items", _ids(fitted.item_ids, model.n_items), _float32(model.fitted.serving_items), named)


def query_vectors(
    model: FactorModel,
    users: Names | None = None,
    *,
    histories: Interactions | SparseMatrix | None = None,
    evenness: float | Level | None = None,
) -> NDArray[np.float32]:
    """Return the vectors to search a store of items with, for training users or for histories.

    Parameters
    ----------
    model
        The model whose items were exported.
    users
        Training users by id (by row if the model has no ids); None takes all.
    histories
        Histories of users whom the model need not know: rows are users, columns the model's items.
    evenness
        The evenness of the export.

    Returns
    -------
    Array of float32, one row per user.

    Raises
    ------
    InvalidParameter
        If both users and histories are given.

    Examples
    --------
    >>> from fairmf import FairALS, synthetic
    >>> data = synthetic(60, 40, 600)
    >>> model = FairALS(factors=4, epochs=2).fit(data, progress=False)
    >>> query_vectors(model, data.user_ids.values[:2], evenness=0.3).shape
    (2, 5)
    """
    if users is not None and histories is not None:
        raise InvalidParameter("Give users or histories, not both.", parameter="histories")
    level = model.fitted.served(evenness)
    if histories is not None:
        options: dict[str, Any] = {} if level.fairness is None else {"fairness": level.fairness}
        found = model.fold_in(histories, **options)
        model = model.with_evenness(Level(None, *level.on_items))
    else:
        rows = None if users is None else model._user_rows(users)
        model = model if evenness is None else model.with_evenness(level)
        found = model.user_factors if rows is None else model.user_factors[rows]
    return _float32(model.fitted.serving_users(found))


def _float32(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _ids(ids: Ids | None, count: int) -> list[int] | list[str]:
    """Return ids as whole numbers where all are, else as texts."""
    values = list(range(count)) if ids is None else ids.values.tolist()
    if all(type(value) is int and -(1 << 63) <= value < 1 << 63 for value in values):
        return values
    return [whole(str(value)) for value in values]
