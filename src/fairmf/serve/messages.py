"""Define the requests and answers of the server. Bodies are checked against these types, and /openapi.json is made from
them, so that the two cannot differ."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

Id: TypeAlias = int | str
"""An id of a user or an item, as in the data that the model was trained on."""
Evenness: TypeAlias = Annotated[float, Meta(ge=0, le=1, description="How evenly exposure is spread, from 0 to 1.")]
Fairness: TypeAlias = Annotated[float, Meta(ge=0, le=1e6, description="For experts: fold users in at this fairness.")]
Weight: TypeAlias = Annotated[float, Meta(ge=0, le=1e6)]
Length: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000, description="Length of the list.")]


class Asking(Struct, forbid_unknown_fields=True, kw_only=True):
    """Who asks, and at which level: a stored user, or a history of items, or both (then the history counts)."""

    user: Id | None = None
    history: list[Id] | None = None
    weights: list[Weight] | None = None
    evenness: Evenness | None = None
    fairness: Fairness | None = None


class RecommendRequest(Asking, kw_only=True):
    """Ask for the best items of one user."""

    n: Length = 20
    exclude: list[Id] = []
    items: list[Id] | None = None
    filter_liked: bool = True
    explain: bool = False


class RecommendBatch(Struct, forbid_unknown_fields=True):
    """Ask for several lists at once. One model answers all of them."""

    requests: Annotated[list[RecommendRequest], Meta(min_length=1)]


class Part(Struct):
    """What one item of the history adds to a score."""

    id: Id
    amount: float


class Explanation(Struct):
    """A score as a sum: all contributions, less `fairness_cost`, plus `offset`. The largest ones are listed."""

    id: Id
    score: float
    contributions: list[Part]
    fairness_cost: float
    offset: float


class RecommendAnswer(Struct, omit_defaults=True):
    """A list, best item first. `ids`, `scores` and `titles` are parallel."""

    ids: list[Id]
    scores: list[float | None]
    model: str
    """Fingerprint of the model that answered."""
    evenness: float | None
    """The evenness that was served; null where fairness was asked for, or the model serves as it was stored."""
    titles: list[str] | UnsetType = UNSET
    fallback: str | UnsetType = UNSET
    """"popular" if nothing was known about the user, and popular items were given."""
    unknown_items: list[Id] | UnsetType = UNSET
    """Items of the request that the model does not know; they were left out of account."""
    unknown_user: bool | UnsetType = UNSET
    """True if the request named a user that the model does not know, and gave no history."""
    explanations: list[Explanation] | UnsetType = UNSET


class BatchAnswer(Struct):
    """The lists of a batch, in the order of its requests."""

    answers: list[RecommendAnswer]
    model: str


class SimilarRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Ask for the items that are most similar to an item."""

    item: Id
    n: Length = 20
    exclude: list[Id] = []
    items: list[Id] | None = None


class SimilarAnswer(Struct, omit_defaults=True):
    """Similar items with their cosines, without the item itself."""

    ids: list[Id]
    similarities: list[float]
    model: str
    titles: list[str] | UnsetType = UNSET
    unknown_items: list[Id] | UnsetType = UNSET


class ScoreRequest(Asking, kw_only=True):
    """Ask for the scores of some items for one user."""

    items: Annotated[list[Id], Meta(min_length=1)]


class ScoreAnswer(Struct, omit_defaults=True):
    """Scores in the order of the items; items that the model does not know are left out and named."""

    ids: list[Id]
    scores: list[float]
    model: str
    evenness: float | None
    unknown_items: list[Id] | UnsetType = UNSET


class ExplainRequest(Asking, kw_only=True):
    """Ask why an item has its score for one user."""

    item: Id
    contributions: Annotated[int, Meta(ge=1, le=1000)] = 10


class ExplainAnswer(Struct, omit_defaults=True):
    """The parts of a score."""

    explanation: Explanation
    fairness: float
    model: str
    evenness: float | None
    titles: dict[str, str] | UnsetType = UNSET
    """Titles of the items that are named, by id."""
    unknown_items: list[Id] | UnsetType = UNSET


class ItemsRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Look items up: those whose title or id holds a text, or those with these ids."""

    query: Annotated[str, Meta(max_length=200)] | None = None
    ids: list[Id] | None = None
    n: Annotated[int, Meta(ge=1, le=100)] = 10


class Item(Struct, omit_defaults=True):
    """One item of the catalogue."""

    id: Id
    users: int
    """Number of training users who have it."""
    served: int
    """How often it was in a list since the beginning of the window (all workers)."""
    title: str | UnsetType = UNSET
    group: str | UnsetType = UNSET
    """Its group; several are separated by commas."""


class ItemsAnswer(Struct, omit_defaults=True):
    """The items that were found; with a query, those that most users have first."""

    items: list[Item]
    model: str
    unknown_items: list[Id] | UnsetType = UNSET


class Event(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Something that happened: a list was shown, an item was clicked."""

    kind: Annotated[str, Meta(min_length=1, max_length=40, description='Such as "shown" or "clicked".')]
    items: list[Id]
    user: Id | None = None
    request: Annotated[str, Meta(max_length=128)] | None = None
    """The x-request-id of the answer that was shown."""
    time: Annotated[str, Meta(max_length=40)] | None = None
    """When it happened, as the client wants it stored; the server adds its own time."""


class EventsRequest(Struct, forbid_unknown_fields=True):
    """Events to append to the log."""

    events: Annotated[list[Event], Meta(min_length=1)]


class EventsAnswer(Struct):
    """How many events were stored."""

    stored: int


class Point(Struct):
    """What an evenness gave on the users of the calibration."""

    evenness: float
    gini: float
    quality: float


class ModelAnswer(Struct):
    """The model that answers now."""

    name: str
    model: str
    """Its fingerprint."""
    kind: str
    items: int
    users: int
    factors: int
    histories: bool
    """Whether it holds the histories of its users."""
    titles: bool
    created: str | None
    loaded: str
    index: bool
    """Whether lists come from a nearest-neighbour index."""
    max_evenness: float
    path: list[Point]
    """Gini and quality along the calibrated path of evenness; empty where the model was not calibrated."""
    quality: str | None
    gini_at: int | None


class Health(Struct, omit_defaults=True):
    """Whether the server lives or is ready."""

    live: bool | UnsetType = UNSET
    ready: bool | UnsetType = UNSET


class Tensor(Struct):
    """An input or output in KServe's metadata."""

    name: str
    datatype: str
    shape: list[int]


class ServerMetadata(Struct):
    """KServe's description of a server."""

    name: str
    version: str
    extensions: list[str]


class ModelMetadata(Struct):
    """KServe's description of a model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[Tensor]
    outputs: list[Tensor]


class Problem(Struct):
    """An error, in the form of RFC 9457 (application/problem+json)."""

    title: str
    status: int
    detail: str
