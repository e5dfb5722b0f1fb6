"""Recommend to histories that are given in the call: the requests, their answers, and the calls that take them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.data.ids import Names
from fairmf.errors import FairmfError
from fairmf.lazy import lazy_module
from fairmf.models.evenness import Level
from fairmf.models.fitted import FittedModel, on_snapshot
from fairmf.types import Array

if TYPE_CHECKING:
    from fairmf.models import recommend_for
else:  # models that answer for stored users do without
    recommend_for = lazy_module("fairmf.models.recommend_for")


@dataclass(frozen=True, eq=False)
class HistoryRequest:
    """One request for a list: from a history of items, or for a user of training.

    Examples
    --------
    >>> from fairmf import HistoryRequest, IALS, synthetic
    >>> data = synthetic(60, 40, 600)
    >>> model = IALS(factors=4, epochs=2).fit(data, progress=False)
    >>> first = HistoryRequest(data.item_ids.values[:3], N=5, evenness=0.2)
    >>> answers = model.recommend_histories([first, HistoryRequest(user=data.user_ids.values[7], N=3)])
    >>> [len(answer.ids) for answer in answers]
    [5, 3]
    """

    items: Hashable | Names = ()
    """The history, by item ids (row numbers in a model without ids); repeats count once, or their weights are added."""
    weights: ArrayLike | None = None
    """A raw confidence >= 0 for each item of the history; None stands for 1. An item of weight 0 is not in it."""
    N: int = 20
    """Length of the list; no list is longer than the catalogue."""
    evenness: float | Level | None = None
    """As in `recommend`."""
    fairness: float | None = None
    """As in `recommend`, for experts."""
    candidates: Names | None = None
    """The only items that may be given; None allows all."""
    exclude: Names | None = None
    """Items that must not be given."""
    filter_liked: bool = True
    """Leave out the items of the history."""
    unknown: str = "error"
    """What to do with ids that the model does not know: "error" names them, "skip" leaves them out."""
    user: Hashable | None = None
    """A user of training, in place of a history."""


class HistoryAnswer(NamedTuple):
    """The list of one request, best first, and how it was made.

    Examples
    --------
    >>> from fairmf import HistoryRequest, IALS, synthetic
    >>> data = synthetic(60, 40, 600)
    >>> model = IALS(factors=4, epochs=2).fit(data, progress=False)
    >>> [answer] = model.recommend_histories([HistoryRequest(data.item_ids.values[:3], N=5)])
    >>> len(answer.ids), answer.popular, answer.unknown
    (5, False, ())
    """

    ids: Array
    """Ids of the items; -1 (None where ids are not integers) in slots that could not be filled."""
    scores: NDArray[np.float32]
    """Their scores; NaN in missing slots and in lists of popular items."""
    level: Level
    """The level at which it was ranked."""
    popular: bool
    """Whether these are popular items, evened by the level, because there is no history."""
    unknown: tuple[Hashable, ...]
    """Items of the request that the model does not know and that were left out, each once, as they were given."""
    unknown_user: bool
    """Whether the user of the request is not in the model."""


class HistoryModel(FittedModel):
    """A model that answers for histories that are given in the call, without matrices built by hand."""

    @on_snapshot
    def recommend_for(
        self,
        items: Hashable | Names,
        weights: ArrayLike | None = None,
        N: int = 20,
        *,
        evenness: float | Level | None = None,
        fairness: float | None = None,
        candidates: Names | None = None,
        exclude: Names | None = None,
        filter_liked: bool = True,
        unknown: str = "error",
    ) -> tuple[Array, NDArray[np.float32]]:
        """Recommend the N best items to somebody who has had these items, best first; ties go to the lower item.

        The answer is that of `recommend` with the history as a row of `user_items` and recalculate_user=True. A user
        without any history gets popular items, evened by the level, with score NaN (docs/recommending.md).

        Parameters
        ----------
        items
            The history, by item ids as the data had them (row numbers in a model without ids). May be empty.
        weights
            A confidence for each item, 1 by default.
        N
            Length of the list; no list is longer than the catalogue.
        evenness, fairness
            As in `recommend`.
        candidates
            The only items that may be given.
        exclude
            Items that must not be given.
        filter_liked
            Leave out the items of the history.
        unknown
            What to do with item ids that the model does not know: "error", or "skip" to leave them out;
            `recommend_histories` says which they were.

        Returns
        -------
        (ids, scores): two 1-d arrays. Missing slots hold id -1 (None where ids are not integers) and score NaN.

        Raises
        ------
        UnknownItems
            If the model does not know an item; its `unknown` holds all of them.
        InvalidData
            If weights do not match the items, or are negative.

        Examples
        --------
        >>> from fairmf import IALS, synthetic
        >>> data = synthetic(60, 40, 600)
        >>> model = IALS(factors=4, epochs=2).fit(data, progress=False)
        >>> ids, scores = model.recommend_for(data.item_ids.values[:3], N=5, evenness=0.3)
        >>> ids.shape
        (5,)
        """
        request = HistoryRequest(items, weights, N, evenness, fairness, candidates, exclude, filter_liked, unknown)
        answer = recommend_for.answers(self, [request])[0]
        return answer.ids, answer.scores

    @on_snapshot
    def recommend_histories(
        self, requests: Sequence[HistoryRequest], *, errors: str = "raise", prices: ArrayLike | None = None
    ) -> list[HistoryAnswer | FairmfError]:
        """Answer many requests of `recommend_for` in one call, each with its own level, length and filters.

        Each gets the list that it would get alone, to the bit. Together they cost less than one by one.

        Parameters
        ----------
        requests
            `HistoryRequest`s: histories, or users of training.
        errors
            "raise" raises the error of the first request that cannot be answered; "return" puts the error in the place
            of its answer, and answers the others.
        prices
            A number for each item, in the order of the model's items, that is added to its scores at any level
            (`control.exposure_control`).

        Returns
        -------
        A `HistoryAnswer` for each request, in their order.

        Raises
        ------
        UnknownItems, InvalidData, InvalidParameter
            As `recommend_for`, with errors="raise".
        MissingHistories
            If a stored user's history is needed and the model was stored without.
        """
        return recommend_for.answers_or_errors(self, requests, errors, prices)
