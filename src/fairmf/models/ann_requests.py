"""Answer `recommend_for` through a nearest-neighbour index, at any level of evenness (docs/ann.md).

An index ranks items at one level. A request at another level is ranked by exact scores among two kinds of candidates:

1. the best items of the index, several times as many as the list needs (`oversample`): found by the user's taste;
2. a shortlist of its level, the items with the largest upper tail (mu_j + 3 sigma_j) sigma_j^-g + offset_j, where mu_j
   and sigma_j are mean and spread of the item's scores over the users of training. The further a level evens, the more
   its lists consist of them.

What is approximate is which items are looked at; scores are those of the model. Shortlists are kept, for levels that
are rounded to steps of 1/32.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.backends.contract import Factors, ItemScale
from fairmf.data.csr import Rows
from fairmf.errors import FairmfError, InvalidData
from fairmf.models.fitted import Names
from fairmf.models.history_request import HistoryAnswer, HistoryRequest
from fairmf.models.recommend_for import Asked, answers_or_errors, joined, on_cpu
from fairmf.params import check_count, check_number
from fairmf.ranking.ann import AnnIndex
from fairmf.types import Array

if TYPE_CHECKING:
    from fairmf.models.factor_model import FactorModel

OVERSAMPLE = 10.0
SHORTLIST = 1000
TAIL = 3.0  # spreads above its mean that an item's scores reach for the users who are given it
STEPS = 32  # of a strength, to which levels are rounded for shortlists
LEVELS_KEPT = 256


class AnnRequests:
    """A model that answers requests through an index in place of scoring every item.

    Parameters
    ----------
    model
        A fitted model on the cpu.
    index
        An index of its items: `model.to_ann()`, best without evenness.
    oversample
        How many times the length of a list the index is asked for; more is more exact and slower.
    probes
        Number of groups that a search looks into; None takes the index's own.
    shortlist
        Number of items in the shortlist of a level.

    Examples
    --------
    >>> from fairmf import IALS, synthetic
    >>> from fairmf.models.ann_requests import AnnRequests
    >>> data = synthetic(60, 40, 600)
    >>> model = IALS(factors=4, epochs=2).fit(data, progress=False)
    >>> ids, scores = AnnRequests(model, model.to_ann()).recommend_for(data.item_ids.values[:3], N=5, evenness=0.4)
    >>> ids.shape
    (5,)
    """

    def __init__(
        self,
        model: FactorModel,
        index: AnnIndex,
        *,
        oversample: float = OVERSAMPLE,
        probes: int | None = None,
        shortlist: int = SHORTLIST,
    ):
        check_number("AnnRequests", "oversample", oversample, low=1)
        check_count("AnnRequests", "shortlist", shortlist, 0)
        fitted = model.fitted
        if not on_cpu(model):
            raise InvalidData("Requests through an index need a model on the cpu.", hint="set model.backend = 'cpu'")
        if index.item_vectors.shape != fitted.item_factors.shape or index.ids != fitted.item_ids:
            raise InvalidData("This index has other items than the model: build it with model.to_ann().")
        self.model, self.index, self.oversample, self.probes = model, index, float(oversample), probes
        self.shortlist = min(int(shortlist), model.n_items)
        self._shortlists: dict[tuple[int, ...], NDArray[np.int32]] = {}

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.model.n_items

    def recommend_for(
        self, items: Hashable | Names, weights: ArrayLike | None = None, N: int = 20, **options: Any
    ) -> tuple[Array, NDArray[np.float32]]:
        """Recommend to a history, as the model's `recommend_for` with the same options."""
        answer = self.recommend_histories([HistoryRequest(items, weights, N, **options)])[0]
        assert isinstance(answer, HistoryAnswer)  # errors are raised
        return answer.ids, answer.scores

    def recommend_histories(
        self, requests: Sequence[HistoryRequest], *, errors: str = "raise", prices: ArrayLike | None = None
    ) -> list[HistoryAnswer | FairmfError]:
        """Answer many requests, as the model's `recommend_histories` does. Candidates are found without `prices`."""
        return answers_or_errors(self.model, requests, errors, prices, self.retrieve)

    def retrieve(self, users: Factors, asked: Sequence[Asked], barred: Rows) -> Rows:
        """Return the candidates of each user vector, ascending, without the barred items."""
        count = min(self.n_items, int(self.oversample * max(one.N for one in asked)))
        lists, _ = self.index.search(
            users, count, exclude=barred, probes=self.probes, num_threads=self.model.num_threads
        )
        found: list[NDArray[np.integer]] = []
        for at, (one, row) in enumerate(zip(asked, lists, strict=True)):
            own = row[row >= 0]
            if any(one.level.on_items):
                more = self.level_shortlist(one.level.on_items)
                own = np.union1d(own, np.setdiff1d(more, barred.row(at)[0], assume_unique=True))
            found.append(own)
        return joined(found)

    def level_shortlist(self, strengths: tuple[float, float, float]) -> NDArray[np.int32]:
        """Return the shortlist of a level (g, h, t), rounded; it is computed once."""
        key = tuple(round(STEPS * strength) for strength in strengths)
        found = self._shortlists.get(key)
        if found is None:
            dial = self.model.fitted.item_dial
            scale, offset = dial._compute(*(part / STEPS for part in key)) or ItemScale()
            tails = dial.mean + TAIL * dial.spread
            tails = tails if scale is None else tails * scale
            tails = tails if offset is None else tails + offset
            best = np.argsort(-tails) if self.shortlist in (0, len(tails)) else np.argpartition(-tails, self.shortlist)
            found = np.sort(best[: self.shortlist]).astype(np.int32)
            if len(self._shortlists) >= LEVELS_KEPT:
                self._shortlists = {}  # a new one: other threads may be reading
            self._shortlists[key] = found
        return found
