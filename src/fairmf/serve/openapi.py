"""Make /openapi.json (OpenAPI 3.1) from the table of routes and the types of requests and answers."""

from __future__ import annotations

from typing import Any

import msgspec

from fairmf.serve import messages
from fairmf.serve.routes import ROUTES, Route
from fairmf.serve.settings import Limits, Settings
from fairmf.types import Record
from fairmf.version import __version__

ERRORS = {
    400: "The body is not valid JSON.",
    401: "The API key is missing or wrong.",
    404: "Something that the request names does not exist.",
    405: "The method is not allowed.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The request is not valid, or asks for more than the server allows.",
    429: "Too many requests are waiting.",
    500: "The server failed; its log says why.",
    503: "No model is loaded, or nothing can be stored now.",
    504: "The request was not ranked before its deadline.",
}
_REF = "#/components/schemas/{name}"


def document(settings: Settings) -> bytes:
    """Return the document for a server with these settings."""
    kinds = [kind for route in ROUTES for kind in (*_kinds(route.body), *_kinds(route.answer)) if kind is not dict]
    schemas, parts = msgspec.json.schema_components([*kinds, messages.Problem], ref_template=_REF)
    known: dict[Any, Record] = dict(zip([*kinds, messages.Problem], schemas, strict=True))
    _limit(parts, settings.limits)
    paths: dict[str, Record] = {}
    for route in ROUTES:
        path = route.path.replace("{name}", settings.name)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, known, bool(settings.keys))
    made: Record = {
        "openapi": "3.1.0",
        "info": {
            "title": "fairmf serve",
            "version": __version__,
            "description": "Recommendations with an evenness for each request. See docs/serving.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": parts},
    }
    if settings.keys:
        made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return msgspec.json.encode(made)


def _kinds(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    if isinstance(given, tuple):
        return given
    return tuple(getattr(given, "__args__", (given,)))


def _limit(parts: dict[str, Record], limits: Limits) -> None:
    """Write the server's limits into the schemas, so that they say what is refused."""
    for name in ("RecommendRequest", "ScoreRequest", "ExplainRequest"):
        for field, most in (("history", limits.history), ("weights", limits.history)):
            _most(parts[name]["properties"][field], most)
    for name, field in (("RecommendRequest", "exclude"), ("RecommendRequest", "items"), ("SimilarRequest", "exclude"),
                        ("SimilarRequest", "items"), ("ScoreRequest", "items"), ("Event", "items")):  # fmt: skip
        _most(parts[name]["properties"][field], limits.items)
    _most(parts["ItemsRequest"]["properties"]["ids"], limits.n)
    _most(parts["RecommendBatch"]["properties"]["requests"], limits.batch)
    for name in ("RecommendRequest", "SimilarRequest"):
        parts[name]["properties"]["n"]["maximum"] = limits.n


def _most(schema: Record, most: int) -> None:
    for part in schema.get("anyOf", [schema]):
        if part.get("type") == "array":
            part["maxItems"] = most


def _operation(route: Route, known: dict[Any, Record], with_keys: bool) -> Record:
    made: Record = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}{route.path.replace('/', '_').replace('{', '').replace('}', '')}",
        "responses": {str(route.success): {"description": "The answer.", "content": _content(route, known)}},
    }
    if route.body is not None:
        made["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _one_of([known[kind] for kind in _kinds(route.body)])}},
        }
    statuses = {*route.statuses, 500, *((400, 408) if route.body is not None else ())}
    if with_keys and not route.open:
        made["security"] = [{"key": []}]
        statuses.add(401)
    problem = {"application/problem+json": {"schema": known[messages.Problem]}}
    for status in sorted(statuses):
        content = problem
        if status == 503 and messages.Health in _kinds(route.answer):  # the health routes say ready: false
            content = {"application/json": {"schema": known[messages.Health]}}
        made["responses"][str(status)] = {"description": ERRORS[status], "content": content}
    return made


def _content(route: Route, known: dict[Any, Record]) -> Record:
    if route.answer is None:
        return {route.kind: {"schema": {"type": "string"}}}
    if route.answer is dict:
        return {route.kind: {"schema": {"type": "object"}}}
    return {route.kind: {"schema": _one_of([known[kind] for kind in _kinds(route.answer)])}}


def _one_of(schemas: list[Record]) -> Record:
    return schemas[0] if len(schemas) == 1 else {"oneOf": schemas}
