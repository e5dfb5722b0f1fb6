"""Run the application in one process with uvicorn, and defend it against clients that are slow or send too much."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fairmf.serve import logs
from fairmf.serve.application import Application
from fairmf.serve.reload import Pointer
from fairmf.serve.routes import LABELS
from fairmf.serve.service import Service
from fairmf.serve.settings import Settings

MAX_HEAD = 32 << 10  # bytes of request line and headers
KEEP_ALIVE = 30  # seconds that an idle connection stays open


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with a time-out and a limit for the head of a request, which uvicorn itself lacks."""

    head_timeout = 10.0
    _timer: asyncio.TimerHandle | None = None
    _head = 0

    def connection_made(self, transport: Any) -> None:
        """Give a new connection some seconds to send a head."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Close the connection if the head is too long."""
        if self._timer is not None:
            self._head += len(data)
            if self._head > MAX_HEAD and self.transport is not None and len(data) < self._head:
                self.transport.close()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Begin to wait for the rest of a head."""
        super().on_message_begin()
        if self._timer is None:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        """Stop waiting: the application waits for the body itself."""
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time-out of a closed connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._head = 0
        self._timer = self.loop.call_later(self.head_timeout, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """uvicorn's server that ends quietly when told to: requests in flight finish, and no signal is raised again."""

    on_hangup: Callable[[], None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let SIGTERM and Ctrl-C drain, and SIGHUP reload, while the server runs."""

        def drain(number: int, frame: FrameType | None) -> None:
            logs.write("info", "draining", signal=signal.Signals(number).name)
            self.handle_exit(number, frame)

        wanted: dict[int, Callable[[int, FrameType | None], None]] = {signal.SIGTERM: drain, signal.SIGINT: drain}
        if self.on_hangup is not None and hasattr(signal, "SIGHUP"):
            reload = self.on_hangup
            wanted[signal.SIGHUP] = lambda *_: reload()
        with signal_handlers(wanted):
            yield


@contextlib.contextmanager
def signal_handlers(wanted: Mapping[int, Callable[..., None]]) -> Iterator[None]:
    """Handle signals, by their numbers, in this way for the block, and as before afterwards."""
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def server(application: Application, settings: Settings) -> Server:
    """Return a uvicorn server for the application."""
    guarded: Any = type("Guarded", (GuardedProtocol,), {"head_timeout": settings.read_timeout})
    config = uvicorn.Config(
        application,
        http=guarded,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(settings.drain)),
        limit_concurrency=settings.connections,
    )
    return Server(config)


def run(
    pointer: Pointer,
    settings: Settings,
    sock: socket.socket,
    *,
    folder: Path | None = None,
    worker: int = 0,
    on_ready: Callable[[], None] = lambda: None,
    on_hangup: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; raise what kept the first model from being loaded."""
    logs.capture("uvicorn", "uvicorn.error", "fairmf")
    watch = _First(pointer, on_ready)
    service = Service(None, settings, LABELS, folder=folder, worker=worker, watch=watch)
    running = server(Application(service, settings), settings)
    running.on_hangup = on_hangup
    running.run(sockets=[sock])
    if watch.error is not None:
        raise watch.error


class _First:
    """Watch a pointer, and tell when the first model is there or why it is not."""

    def __init__(self, pointer: Pointer, on_ready: Callable[[], None]):
        self._pointer, self._on_ready = pointer, on_ready
        self.error: Exception | None = None
        self.forever = functools.partial(pointer.forever)

    async def first(self, service: Service) -> None:
        try:
            await self._pointer.first(service)
        except Exception as error:
            self.error = error
            raise
        self._on_ready()


def listening(host: str, port: int, count: int = 1) -> list[socket.socket]:
    """Return sockets that listen at one address, one per worker. Port 0 takes a free one.

    The kernel deals connections out to them evenly (SO_REUSEPORT), where workers on one socket would race: whoever is
    awake takes all. Keep them open here as well: connections to a worker that died then wait for the next one. Where
    the system has no such option, all workers get the same socket.
    """
    shared = count > 1 and hasattr(socket, "SO_REUSEPORT")
    made: list[socket.socket] = []
    try:
        for _ in range(count if shared else 1):
            made.append(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM))
            made[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                made[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            made[-1].bind((host, made[0].getsockname()[1] if len(made) > 1 else port))
            made[-1].listen(2048)
            made[-1].set_inheritable(True)
    except OSError:
        for sock in made:
            sock.close()
        raise
    return made if shared else made * count
