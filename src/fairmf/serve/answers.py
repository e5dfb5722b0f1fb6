"""Answer requests from one model: recommend, similar, score, explain, items. All run in the thread that ranks.

Each function takes the `ServedModel` as it was when the batch began. `Refused` is what a client is told when a request
cannot be answered.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import UNSET, UnsetType

from fairmf.backends.contract import ItemScale
from fairmf.data.interactions import Interactions
from fairmf.errors import FairmfError, NotFinite
from fairmf.models import explain as explanations
from fairmf.models.evenness import Level
from fairmf.models.fold_in import FoldInModel, one_user
from fairmf.models.history_request import HistoryAnswer, HistoryRequest
from fairmf.serve import messages
from fairmf.serve.messages import Asking, Id
from fairmf.serve.served_model import ServedModel
from fairmf.serve.settings import Limits
from fairmf.types import Array

SHOWN = 5  # contributions of each item that a list with explanations has


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, detail: str, headers: Sequence[tuple[bytes, bytes]] = ()):
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, tuple(headers)


@dataclass
class Answered:
    """The answer to one request for a list, and the rows of its items for the count of exposure."""

    answer: messages.RecommendAnswer
    rows: list[int]
    request: HistoryRequest
    """As it was put to the library."""


# -- recommend --------------------------------------------------------------------------------------------------------


def recommend(
    served: ServedModel, requests: Sequence[messages.RecommendRequest], limits: Limits
) -> list[Answered | Refused]:
    """Rank all requests together; an error of one does not concern the others."""
    evenness = [min(r.evenness, limits.evenness) if r.evenness is not None else None for r in requests]
    asked = [_asked(served, request, even) for request, even in zip(requests, evenness, strict=True)]
    prices = None if served.control is None else served.control.prices
    found = served.ranker.recommend_histories(asked, errors="return", prices=prices)
    return [
        _refused(answer) if isinstance(answer, FairmfError) else _answered(served, request, put, answer, even)
        for request, put, answer, even in zip(requests, asked, found, evenness, strict=True)
    ]


def _asked(served: ServedModel, request: messages.RecommendRequest, evenness: float | None) -> HistoryRequest:
    items = served.items
    return HistoryRequest(
        items=() if request.history is None else items.all_given(request.history),
        weights=request.weights if request.history is not None else None,
        N=request.n,
        evenness=evenness,
        fairness=request.fairness,
        candidates=None if request.items is None else items.all_given(request.items),
        exclude=items.all_given(request.exclude) if request.exclude else None,
        filter_liked=request.filter_liked,
        unknown="skip",
        user=None if request.history is not None or request.user is None else served.users.given(request.user),
    )


def _refused(error: FairmfError) -> Refused:
    return Refused(500 if isinstance(error, NotFinite) else 422, str(error))


def _answered(
    served: ServedModel,
    request: messages.RecommendRequest,
    put: HistoryRequest,
    found: HistoryAnswer,
    evenness: float | None,
) -> Answered | Refused:
    filled = served.found(found.ids)
    ids, scores = (found.ids, found.scores) if filled.all() else (found.ids[filled], found.scores[filled])
    rows = served.rows(ids)
    answer = messages.RecommendAnswer(
        ids=served.items.all_shown(ids),
        scores=[None] * len(ids) if found.popular else scores.tolist(),
        model=served.fingerprint,
        evenness=evenness,
        titles=served.titled(rows),
        fallback="popular" if found.popular else UNSET,
        unknown_items=_as_given(served, request, found.unknown),
        unknown_user=found.unknown_user or UNSET,
    )
    if request.explain and not found.popular:
        try:
            answer.explanations = _explanations(served, request, rows, found.level, SHOWN)
        except FairmfError as error:
            return _refused(error)
    return Answered(answer, rows, put)


def _as_given(
    served: ServedModel, request: messages.RecommendRequest, unknown: Sequence[Hashable]
) -> list[Id] | UnsetType:
    """Return unknown items as the request wrote them."""
    if not unknown:
        return UNSET
    names = [*(request.history or ()), *request.exclude, *(request.items or ())]
    written = dict(zip(names, served.items.all_given(names), strict=True))
    return [name for name, given in written.items() if given in set(unknown)]


# -- who asks ---------------------------------------------------------------------------------------------------------


def _level(served: ServedModel, asking: Asking, limits: Limits) -> tuple[Level, float | None]:
    """Return the level at which to answer, and the evenness it stands for."""
    evenness = None if asking.evenness is None else min(asking.evenness, limits.evenness)
    return served.model.fitted.served(evenness, asking.fairness), evenness


def _history(served: ServedModel, asking: Asking, unknown: list[Id]) -> Interactions:
    """Return the history of who asks, as one row, weighted as in training: the given one, or the stored user's."""
    model = served.model
    if asking.history is None:
        return model.fitted.histories("explaining a stored user's score").take_users(np.array([_user(served, asking)]))
    kept = [k for k, name in enumerate(asking.history) if served.items.row(name) >= 0]
    unknown += [name for name in asking.history if served.items.row(name) < 0]
    if not kept:
        raise Refused(422, "The history holds no item that the model knows.")
    names = served.items.all_given(asking.history[k] for k in kept)
    weights = None if asking.weights is None else [asking.weights[k] for k in kept]
    return model._aligned(one_user(model.fitted, names, weights))


def _user(served: ServedModel, asking: Asking) -> int:
    if asking.user is None:
        raise Refused(422, "Give a user or a history.")
    row = served.users.row(asking.user)
    if row < 0:
        raise Refused(404, f"The model does not know the user {asking.user!r}; give a history instead.")
    return row


def _solver(served: ServedModel) -> FoldInModel:
    if not isinstance(served.model, FoldInModel):
        raise Refused(422, f"A {type(served.model).__name__} model has no vectors of users to score or explain with.")
    return served.model


# -- score, explain, similar ------------------------------------------------------------------------------------------


def score(served: ServedModel, request: messages.ScoreRequest, limits: Limits) -> messages.ScoreAnswer:
    """Return the scores of the items asked for."""
    unknown: list[Id] = []
    level, evenness = _level(served, request, limits)
    rows = _known(served, request.items, unknown)
    vector = _vector(served, request, level, unknown)
    scale, offset = served.model.fitted.item_scale(level) or ItemScale()
    scores = served.model.item_factors[rows] @ vector
    scores = scores if scale is None else scores * scale[rows]
    scores = scores if offset is None else scores + offset[rows]
    return messages.ScoreAnswer(
        ids=served.items.of_rows(np.array(rows, dtype=np.int64)), scores=scores.tolist(), model=served.fingerprint,
        evenness=evenness, unknown_items=unknown or UNSET,
    )  # fmt: skip


def _vector(served: ServedModel, request: messages.ScoreRequest, level: Level, unknown: list[Id]) -> Array:
    model = served.model
    if request.history is None:
        row = _user(served, request)
        stored: Array = model.user_factors[row]
        return stored if level.fairness is None else model._at_fairness(np.array([row]), level.fairness)[0]
    folded: Array = _solver(served).fold_in(_history(served, request, unknown), fairness=level.fairness)[0]
    return folded


def _known(served: ServedModel, names: Sequence[Id], unknown: list[Id]) -> list[int]:
    rows = [served.items.row(name) for name in names]
    unknown += [name for name, row in zip(names, rows, strict=True) if row < 0]
    return [row for row in rows if row >= 0]


def explain(served: ServedModel, request: messages.ExplainRequest, limits: Limits) -> messages.ExplainAnswer:
    """Return the parts of one score."""
    unknown: list[Id] = []
    level, evenness = _level(served, request, limits)
    row = served.items.row(request.item)
    if row < 0:
        raise Refused(404, f"The model does not know the item {request.item!r}.")
    parts = _explanations(served, request, [row], level, request.contributions, unknown)[0]
    named = [parts.id, *(part.id for part in parts.contributions)]
    titles = served.titled([served.items.row(name) for name in named])
    return messages.ExplainAnswer(
        explanation=parts,
        fairness=served.model.fitted.fairness if level.fairness is None else level.fairness,
        model=served.fingerprint,
        evenness=evenness,
        titles=dict(zip(map(str, named), titles, strict=True)) if isinstance(titles, list) else UNSET,
        unknown_items=unknown or UNSET,
    )


def _explanations(
    served: ServedModel, asking: Asking, rows: Sequence[int], level: Level, most: int, unknown: list[Id] | None = None
) -> list[messages.Explanation]:
    model = _solver(served)
    history = _history(served, asking, [] if unknown is None else unknown)
    with model._backend().threads(model.num_threads):
        made = [explanations.explain(model.fitted, asking.user, history, row, level) for row in rows]
    shown = served.items.shown
    return [
        messages.Explanation(
            id=shown(one.item), score=one.score, fairness_cost=one.fairness_cost, offset=one.offset,
            contributions=[messages.Part(shown(item), amount) for item, amount in one.contributions[:most]],
        )
        for one in made
    ]  # fmt: skip


def similar(served: ServedModel, request: messages.SimilarRequest) -> messages.SimilarAnswer:
    """Return the nearest items of an item."""
    unknown: list[Id] = []
    items, row = served.items, served.items.row(request.item)
    if row < 0:
        raise Refused(404, f"The model does not know the item {request.item!r}.")
    among = None if request.items is None else _given(served, _known(served, request.items, unknown))
    without = _given(served, [row, *_known(served, request.exclude, unknown)])
    if among is not None and not set(among) - set(without):
        return messages.SimilarAnswer([], [], served.fingerprint, unknown_items=unknown or UNSET)
    ids, cosines = served.model.similar_items(items.given(request.item), request.n, filter_items=without, items=among)
    filled = served.found(ids)
    rows = served.rows(ids[filled])
    return messages.SimilarAnswer(
        ids=items.all_shown(ids[filled]), similarities=cosines[filled].tolist(), model=served.fingerprint,
        titles=served.titled(rows), unknown_items=unknown or UNSET,
    )  # fmt: skip


def _given(served: ServedModel, rows: Sequence[int]) -> list[Hashable]:
    names = np.array(rows, dtype=np.int64)
    return (names if served.items.ids is None else served.items.ids.named(names)).tolist()  # type: ignore[no-any-return]


def items(served: ServedModel, request: messages.ItemsRequest, exposure: Array | None) -> messages.ItemsAnswer:
    """Look items up by a text in their titles or by their ids; `exposure` has how often each was served."""
    unknown: list[Id] = []
    if request.ids is not None:
        rows = _known(served, request.ids, unknown)
    else:
        wanted = (request.query or "").casefold()
        rows = [row for row, text in enumerate(served.lowered) if wanted in text]
        rows = sorted(rows, key=lambda row: -served.model.fitted.popularity[row])[: request.n]
    counts = served.model.fitted.item_dial.counts
    titles, groups = served.titles, served.groups
    found = [
        messages.Item(
            id=name, users=int(counts[row]), served=0 if exposure is None else int(exposure[row]),
            title=UNSET if titles is None else titles[row],
            group=UNSET if groups is None else str(groups.of_item(row)),
        )
        for name, row in zip(served.items.of_rows(np.array(rows, dtype=np.int64)), rows, strict=True)
    ]  # fmt: skip
    return messages.ItemsAnswer(found, served.fingerprint, unknown or UNSET)


def describe(served: ServedModel, name: str, limits: Limits) -> messages.ModelAnswer:
    """Describe the model that is served."""
    model, fitted = served.model, served.model.fitted
    path = fitted.path
    stops = [] if path is None else [k / 10 for k in range(11)]
    return messages.ModelAnswer(
        name=name, model=served.fingerprint, kind=type(model).__name__, items=model.n_items, users=model.n_users,
        factors=model.item_factors.shape[1], histories=fitted.interactions is not None,
        titles=served.titles is not None,
        created=fitted.provenance.get("created"), loaded=served.loaded.isoformat(timespec="seconds"),
        index=served.index is not None,
        max_evenness=limits.evenness,
        path=[messages.Point(e, *path.expected(e)) for e in stops] if path is not None else [],
        quality=None if path is None else path.quality, gini_at=None if path is None else path.at,
    )  # fmt: skip
