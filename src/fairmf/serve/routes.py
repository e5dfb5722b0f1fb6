"""List the routes and answer each: decode the body, check the limits, ask the service, encode the answer.

`ROUTES` is the one table: the application finds handlers in it, and /openapi.json is made from it.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from fairmf.errors import FairmfError
from fairmf.serve import answers, messages
from fairmf.serve.answers import Answered, Refused
from fairmf.serve.messages import Asking
from fairmf.serve.served_model import ServedModel
from fairmf.serve.service import Service
from fairmf.serve.settings import Limits
from fairmf.version import __version__

JSON = b"application/json"
PAGE_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
        b"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)


@dataclass(frozen=True)
class Reply:
    """An answer, encoded."""

    body: bytes
    status: int = 200
    kind: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


Handler: TypeAlias = Callable[[Service, bytes, float], Awaitable[Reply]]


@dataclass(frozen=True)
class Route:
    """One address: what it takes, what it answers, and who may ask."""

    method: str
    path: str
    handler: Handler
    summary: str
    answer: Any = None
    """Type of the answer; None for an answer that is not JSON."""
    body: Any = None
    """Type of the body; a tuple for one of several."""
    statuses: tuple[int, ...] = ()
    """Errors that it may answer beside those of all routes."""
    kind: str = "application/json"
    open: bool = False
    """Whether no key is needed."""
    waits: bool = False
    """Whether it waits for the thread that ranks: then a client that hangs up cancels it."""
    success: int = 200


_encode = msgspec.json.Encoder().encode
_one = msgspec.json.Decoder(messages.RecommendRequest)
_batch = msgspec.json.Decoder(messages.RecommendBatch)
_decoders = {
    kind: msgspec.json.Decoder(kind)
    for kind in (messages.SimilarRequest, messages.ScoreRequest, messages.ExplainRequest, messages.ItemsRequest,
                 messages.EventsRequest)
}  # fmt: skip


class _Peek(msgspec.Struct):
    """Tell a batch from a single request."""

    requests: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_peek = msgspec.json.Decoder(_Peek)


def decoded(decoder: Any, body: bytes) -> Any:
    """Decode a body; Refused with 400 if it is not JSON, with 422 if it is not what the route takes."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Refused(422, f"{error}.") from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Refused(400, f"The body is not valid JSON: {error}.") from None


# -- lists ------------------------------------------------------------------------------------------------------------


async def recommend(service: Service, body: bytes, deadline: float) -> Reply:
    """Answer one request for a list, or a batch of them."""
    limits = service.settings.limits
    # Looking for the word first saves most bodies a second pass.
    if b'"requests"' in body and decoded(_peek, body).requests is not msgspec.UNSET:
        requests = decoded(_batch, body).requests
        if len(requests) > limits.batch:
            raise Refused(422, f"A batch has at most {limits.batch:,} requests here; this one has {len(requests):,}.")
        for k, request in enumerate(requests):
            _check_list(request, limits, f" of request {k}")
        found = await service.ask(requests, deadline)
        return Reply(_encode(messages.BatchAnswer([_list(one) for one in found], _list(found[0]).model)))
    request = decoded(_one, body)
    _check_list(request, limits, "")
    found = await service.ask([request], deadline)
    return Reply(_encode(_list(found[0])))


def _list(found: Answered | Refused) -> messages.RecommendAnswer:
    if isinstance(found, Refused):
        raise found
    return found.answer


def _check_list(request: messages.RecommendRequest, limits: Limits, where: str) -> None:
    _check_asking(request, limits, where)
    if request.n > limits.n:
        raise Refused(422, f"n{where} is at most {limits.n:,} here; got {request.n:,}.")
    _check_length("exclude", request.exclude, limits.items, where)
    _check_length("items", request.items, limits.items, where)


def _check_asking(asking: Asking, limits: Limits, where: str = "") -> None:
    if asking.evenness is not None and asking.fairness is not None:
        raise Refused(422, f"Give evenness or fairness{where}, not both.")
    _check_length("history", asking.history, limits.history, where)
    if asking.weights is not None and len(asking.weights) != len(asking.history or ()):
        raise Refused(422, f"There must be one weight{where} for each item of the history.")


def _check_length(name: str, values: Sequence[object] | None, most: int, where: str = "") -> None:
    if values is not None and len(values) > most:
        raise Refused(422, f"{name}{where} has at most {most:,} items here; got {len(values):,}.")


# -- what is asked of the model beside lists --------------------------------------------------------------------------


async def similar(service: Service, body: bytes, deadline: float) -> Reply:
    """Answer with the nearest items of an item."""
    request, limits = decoded(_decoders[messages.SimilarRequest], body), service.settings.limits
    if request.n > limits.n:
        raise Refused(422, f"n is at most {limits.n:,} here; got {request.n:,}.")
    _check_length("exclude", request.exclude, limits.items)
    _check_length("items", request.items, limits.items)
    return await _asked(service, lambda served: answers.similar(served, request), deadline)


async def score(service: Service, body: bytes, deadline: float) -> Reply:
    """Answer with the scores of items for a user."""
    request, limits = decoded(_decoders[messages.ScoreRequest], body), service.settings.limits
    _check_asking(request, limits)
    _check_length("items", request.items, limits.items)
    return await _asked(service, lambda served: answers.score(served, request, limits), deadline)


async def explain(service: Service, body: bytes, deadline: float) -> Reply:
    """Answer with the parts of a score."""
    request, limits = decoded(_decoders[messages.ExplainRequest], body), service.settings.limits
    _check_asking(request, limits)
    return await _asked(service, lambda served: answers.explain(served, request, limits), deadline)


async def items(service: Service, body: bytes, deadline: float) -> Reply:
    """Look items up by title or id."""
    request, limits = decoded(_decoders[messages.ItemsRequest], body), service.settings.limits
    if (request.query is None) == (request.ids is None):
        raise Refused(422, "Give query or ids, one of the two.")
    _check_length("ids", request.ids, limits.n)
    served, window = service.held()
    counts = window.counts()

    def look_up(current: ServedModel) -> messages.ItemsAnswer:
        return answers.items(current, request, counts if current is served else None)

    return await _asked(service, look_up, deadline)


async def _asked(service: Service, work: Callable[[Any], Any], deadline: float) -> Reply:
    try:
        return Reply(_encode(await service.ask(work, deadline)))
    except FairmfError as error:
        raise Refused(422, str(error)) from error


# -- events -----------------------------------------------------------------------------------------------------------


async def events(service: Service, body: bytes, deadline: float) -> Reply:  # noqa: ARG001
    """Append events to the log."""
    if service.events is None:
        raise Refused(404, "This server keeps no event log: start it with --events FOLDER.")
    request = decoded(_decoders[messages.EventsRequest], body)
    for event in request.events:
        _check_length("items of an event", event.items, service.settings.limits.items)
    try:
        await service.events.append(request.events)
    except OSError as error:
        service.figures.add("event_failures")
        reason = error.strerror or "it cannot be written"
        raise Refused(503, f"The events were not stored: {reason}.", ((b"retry-after", b"10"),)) from error
    service.figures.add("events", len(request.events))
    return Reply(_encode(messages.EventsAnswer(len(request.events))), 202)


# -- about the server -------------------------------------------------------------------------------------------------


async def model(service: Service, body: bytes, deadline: float) -> Reply:  # noqa: ARG001
    """Describe the model."""
    return Reply(_encode(answers.describe(service.held()[0], service.settings.name, service.settings.limits)))


async def live(service: Service, body: bytes, deadline: float) -> Reply:  # noqa: ARG001
    """Say that the process answers."""
    return Reply(_encode(messages.Health(live=True)))


async def ready(service: Service, body: bytes, deadline: float) -> Reply:  # noqa: ARG001
    """Say whether a model is loaded."""
    if not service.ready:
        return Reply(_encode(messages.Health(ready=False)), 503)
    return Reply(_encode(messages.Health(ready=True)))


async def metrics(service: Service, body: bytes, deadline: float) -> Reply:  # noqa: ARG001
    """Write the counts of all workers for Prometheus."""
    return Reply((await service.metrics()).encode(), kind=b"text/plain; version=0.0.4; charset=utf-8")


async def openapi(service: Service, body: bytes, deadline: float) -> Reply:  # noqa: ARG001
    """Describe all routes."""
    from fairmf.serve.openapi import document

    return Reply(document(service.settings))


async def page(service: Service, body: bytes, deadline: float) -> Reply:  # noqa: ARG001
    """Show the page to try the server with. It has its styles and scripts inside and asks only this server."""
    return Reply(_page(), kind=b"text/html; charset=utf-8", headers=PAGE_HEADERS)


@functools.cache
def _page() -> bytes:
    return (Path(__file__).parent / "assets" / "try.html").read_bytes()


async def server_metadata(service: Service, body: bytes, deadline: float) -> Reply:  # noqa: ARG001
    """Describe the server in KServe's form."""
    return Reply(_encode(messages.ServerMetadata("fairmf", __version__, [])))


async def model_metadata(service: Service, body: bytes, deadline: float) -> Reply:  # noqa: ARG001
    """Describe the model in KServe's form."""
    served = service.held()[0]
    tensor = messages.Tensor
    return Reply(
        _encode(
            messages.ModelMetadata(
                name=service.settings.name, versions=[served.fingerprint], platform="fairmf",
                inputs=[tensor("history", "BYTES", [-1]), tensor("evenness", "FP32", [1])],
                outputs=[tensor("ids", "BYTES", [-1]), tensor("scores", "FP32", [-1])],
            )
        )
    )  # fmt: skip


_M = messages
_LIMITS = (404, 413, 415, 422, 429, 503, 504)
_NOT_READY = (503,)
ROUTES = (
    Route("POST", "/v1/recommend", recommend, "Recommend items to one user, or to several in a batch.",
          _M.RecommendAnswer | _M.BatchAnswer, (_M.RecommendRequest, _M.RecommendBatch), _LIMITS, waits=True),
    Route("POST", "/v1/similar", similar, "Find the items that are most similar to an item.",
          _M.SimilarAnswer, _M.SimilarRequest, _LIMITS, waits=True),
    Route("POST", "/v1/score", score, "Score some items for a user.",
          _M.ScoreAnswer, _M.ScoreRequest, _LIMITS, waits=True),
    Route("POST", "/v1/explain", explain, "Explain why an item has its score for a user.",
          _M.ExplainAnswer, _M.ExplainRequest, _LIMITS, waits=True),
    Route("POST", "/v1/items", items, "Look items up by a text in their titles, or by their ids.",
          _M.ItemsAnswer, _M.ItemsRequest, _LIMITS, waits=True),
    Route("POST", "/v1/events", events, "Append what was shown and clicked to the event log.",
          _M.EventsAnswer, _M.EventsRequest, (404, 413, 415, 422, 503), success=202),
    Route("GET", "/v1/model", model, "Describe the model that answers.", _M.ModelAnswer, statuses=_NOT_READY),
    Route("GET", "/healthz/live", live, "Say that the process answers.", _M.Health, open=True),
    Route("GET", "/healthz/ready", ready, "Say whether a model is loaded.", _M.Health, statuses=(503,), open=True),
    Route("GET", "/v2", server_metadata, "KServe: describe the server.", _M.ServerMetadata),
    Route("GET", "/v2/health/live", live, "KServe: say that the process answers.", _M.Health, open=True),
    Route("GET", "/v2/health/ready", ready, "KServe: say whether a model is loaded.", _M.Health, statuses=(503,),
          open=True),
    Route("GET", "/v2/models/{name}", model_metadata, "KServe: describe the model.", _M.ModelMetadata,
          statuses=_NOT_READY),
    Route("GET", "/v2/models/{name}/ready", ready, "KServe: say whether the model is loaded.", _M.Health,
          statuses=(503,), open=True),
    Route("GET", "/metrics", metrics, "Write counts and times for Prometheus.", kind="text/plain"),
    Route("GET", "/openapi.json", openapi, "Describe all routes.", dict, open=True),
    Route("GET", "/", page, "Show a page to try the server with.", kind="text/html", open=True),
)  # fmt: skip
LABELS = ("none", *(route.path for route in ROUTES))
"""The routes as the counts name them; "none" is for addresses that do not exist."""
