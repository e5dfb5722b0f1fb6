"""The ASGI application: find the route, read and check the body, answer, count. It needs no web framework.

Order of calls for a request: `__call__`, `_answer` (route, key, body), the route's handler (routes.py), `_send`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from fairmf.serve import logs
from fairmf.serve.answers import Refused
from fairmf.serve.messages import Problem
from fairmf.serve.routes import ROUTES, Reply, Route
from fairmf.serve.service import Service
from fairmf.serve.settings import Settings

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON, PROBLEM = b"application/json", b"application/problem+json"
LISTEN_AFTER = 0.02  # seconds after which a request that still waits is watched for a client that hangs up
TITLES = {
    400: "Not valid JSON", 401: "API key missing or wrong", 404: "Not found", 405: "Method not allowed",
    408: "Body not received in time", 413: "Body too large", 415: "Not JSON", 422: "Not a valid request",
    429: "Too many requests", 500: "Internal error", 503: "Not ready", 504: "Deadline passed",
}  # fmt: skip
_problem = msgspec.json.Encoder()


class ClientGone(Exception):
    """The client closed the connection before it was answered."""


@dataclass
class Call:
    """One request, as handlers see it."""

    body: bytes
    deadline: float
    """Until when it must be ranked, in time.monotonic."""
    receive: Receive
    request_id: str


class Application:
    """Serve a model over HTTP, as an ASGI application.

    Parameters
    ----------
    service
        Holds the model, the queue and the counts.
    settings
        Limits, time-outs and keys.
    """

    def __init__(self, service: Service, settings: Settings):
        self.service, self.settings = service, settings
        self._routes: dict[str, dict[str, Route]] = {}
        for route in ROUTES:
            self._routes.setdefault(route.path.replace("{name}", settings.name), {})[route.method] = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or start and stop with the server that runs this application."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.service.start()
                except Exception as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.service.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        headers = dict(scope["headers"])
        request_id = headers.get(b"x-request-id", b"")[:64].decode("latin-1") or os.urandom(8).hex()
        label, body = "none", b""
        try:
            found = self._routes.get(scope["path"], {})
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            route = found.get(method)
            if route is None:
                raise _unrouted(found)
            label = route.path
            if self.settings.keys and not route.open:
                self._check_key(headers)
            if method == "POST":
                body = await self._body(headers, receive)
            call = Call(body, time.monotonic() + self._patience(headers), receive, request_id)
            reply = await self._answer(route, call)
        except Refused as error:
            reply = _refusal(error)
        except ClientGone:
            reply = None
        except Exception as error:
            logs.failed(request_id, scope["path"], error)
            reply = _refusal(Refused(500, "The server could not answer; its log says why."))
        status = 499 if reply is None else reply.status
        if reply is not None:
            await self._send(send, reply, request_id)
        seconds = time.perf_counter() - began
        self.service.figures.answered(label, status, seconds)
        if self.settings.log_requests:
            shown = body if self.settings.log_histories else None
            logs.answered(request_id, scope["method"], scope["path"], status, seconds, shown)

    async def _answer(self, route: Route, call: Call) -> Reply:
        """Run a handler; give up if the client hangs up meanwhile."""
        if not route.waits:
            return await route.handler(self.service, call.body, call.deadline)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        listener: asyncio.Task[None] | None = None

        def listen() -> None:
            nonlocal listener
            listener = loop.create_task(_hung_up(call.receive, task))

        timer = loop.call_later(LISTEN_AFTER, listen)
        try:
            return await route.handler(self.service, call.body, call.deadline)
        except asyncio.CancelledError:
            if listener is not None and listener.done():
                _uncancel(task)
                raise ClientGone from None
            raise
        finally:
            timer.cancel()
            if listener is not None:
                listener.cancel()

    def _check_key(self, headers: dict[bytes, bytes]) -> None:
        given = headers.get(b"x-api-key", b"")
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        if not given and kind.lower() == b"bearer":
            given = token.strip()
        digest = hashlib.sha256(given).digest()
        # All keys are compared, each in constant time, so that the time tells nothing about them.
        right = [hmac.compare_digest(digest, key) for key in self.settings.keys]
        if not any(right):
            raise Refused(401, "Send a key as 'Authorization: Bearer KEY'.", ((b"www-authenticate", b"Bearer"),))

    def _patience(self, headers: dict[bytes, bytes]) -> float:
        """Return how many seconds a request may wait: the server's deadline, or less if x-timeout-ms says so."""
        asked = headers.get(b"x-timeout-ms", b"")
        if not asked:
            return self.settings.deadline
        if not asked.isdigit() or len(asked) > 9:
            raise Refused(422, "x-timeout-ms is a number of milliseconds.")
        return min(self.settings.deadline, int(asked) / 1000)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """Read the body; refuse it as soon as it is known to be too large, and if it does not arrive in time."""
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != JSON and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
            raise Refused(415, "Send JSON, with the header 'Content-Type: application/json'.", CLOSE)
        most = self.settings.limits.body
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > most:
            raise _too_large(most)
        message = await self._next_part(receive)
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            body = await self._rest(body, receive, most)
        if len(body) > most:
            raise _too_large(most)
        return body

    async def _rest(self, first: bytes, receive: Receive, most: int) -> bytes:
        parts, size, until = [first], len(first), time.monotonic() + self.settings.read_timeout
        while True:
            message = await self._next_part(receive, until - time.monotonic())
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise _too_large(most)
            if not message.get("more_body"):
                return b"".join(parts)

    async def _next_part(self, receive: Receive, patience: float | None = None) -> MutableMapping[str, Any]:
        # Not asyncio.wait_for, which starts a task for each call.
        loop, task, late = asyncio.get_running_loop(), asyncio.current_task(), False

        def give_up() -> None:
            nonlocal late
            late = True
            if task is not None:
                task.cancel()

        timer = loop.call_later(self.settings.read_timeout if patience is None else max(patience, 0.0), give_up)
        try:
            message = await receive()
        except asyncio.CancelledError:
            if not late:
                raise
            _uncancel(task)
            raise Refused(408, "The body did not arrive in time.", CLOSE) from None
        finally:
            timer.cancel()
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message

    async def _send(self, send: Send, reply: Reply, request_id: str) -> None:
        headers = [
            (b"content-type", reply.kind),
            (b"content-length", str(len(reply.body)).encode()),
            (b"x-request-id", request_id.encode("latin-1")),
            *reply.headers,
        ]
        try:
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            await send({"type": "http.response.body", "body": reply.body})
        except OSError:  # the client has gone: ASGI servers may say so in this way
            pass


CLOSE = ((b"connection", b"close"),)


async def _hung_up(receive: Receive, task: asyncio.Task[Any] | None) -> None:
    """Wait until the client closes the connection, then cancel the task that answers it."""
    while (await receive())["type"] != "http.disconnect":
        pass
    if task is not None:
        task.cancel()


def _uncancel(task: asyncio.Task[Any] | None) -> None:
    """Take a cancellation back that was our own; before Python 3.11 there is nothing to take back."""
    if task is not None and hasattr(task, "uncancel"):
        task.uncancel()


def _unrouted(found: dict[str, Route]) -> Refused:
    if not found:
        return Refused(404, "There is no such address; /openapi.json lists all.")
    allowed = ", ".join(sorted(found))
    return Refused(405, f"Use {allowed} here.", ((b"allow", allowed.encode()),))


def _too_large(most: int) -> Refused:
    return Refused(413, f"A body has at most {most:,} bytes here.", CLOSE)


def _refusal(error: Refused) -> Reply:
    problem = Problem(TITLES.get(error.status, "Error"), error.status, error.detail)
    return Reply(_problem.encode(problem), error.status, PROBLEM, error.headers)
