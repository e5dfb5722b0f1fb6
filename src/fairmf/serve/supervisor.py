"""Run several worker processes at one address: start them, start those that died again, stop them together.

Workers are spawned, not forked: each has an interpreter of its own, and maps the same model file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fairmf.errors import ClusterFailed
from fairmf.serve import http_server, logs
from fairmf.serve.reload import Pointer
from fairmf.serve.settings import Settings

ATTEMPTS = 5  # of a worker that ends before it is ready, one after the other
PAUSE = 1.0  # seconds before such a worker is started again
READY = "ready"


@dataclass(frozen=True)
class Plan:
    """What every worker needs."""

    pointer: Pointer
    settings: Settings
    folder: Path


@dataclass
class _Worker:
    number: int
    process: Any
    pipe: Connection
    """Our end: the worker tells when it is ready, and ends when we have gone."""
    ready: bool = False
    failures: int = 0
    told: str = ""
    start_at: float = 0.0


class Supervisor:
    """Keep a worker running for each socket until SIGTERM or Ctrl-C.

    Parameters
    ----------
    plan
        What every worker needs.
    socks
        A socket that listens for each worker.
    on_ready
        Called once, when all workers are ready.
    on_hangup
        Called on SIGHUP.
    """

    def __init__(
        self,
        plan: Plan,
        socks: Sequence[socket.socket],
        *,
        on_ready: Callable[[], None] = lambda: None,
        on_hangup: Callable[[], None] = lambda: None,
    ):
        self._plan, self._socks = plan, socks
        self._on_ready, self._on_hangup = on_ready, on_hangup
        self._context = multiprocessing.get_context("spawn")
        self._stopping = False

    def run(self) -> None:
        """Run until told to stop; raise ClusterFailed if workers cannot start."""
        wanted: dict[int, Callable[..., None]] = {signal.SIGTERM: self._end, signal.SIGINT: self._end}
        if hasattr(signal, "SIGHUP"):
            wanted[signal.SIGHUP] = lambda *_: self._on_hangup()
        with http_server.signal_handlers(wanted):
            workers = [self._started(number) for number in range(len(self._socks))]
            announced = False
            try:
                while not self._stopping:
                    self._look(workers)
                    if not announced and all(worker.ready for worker in workers):
                        announced = True
                        self._on_ready()
            finally:
                self._stop(workers)

    def _end(self, *_: object) -> None:
        self._stopping = True

    def _started(self, number: int, failures: int = 0) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=work,
            args=(self._plan, number, self._socks[number], theirs),
            name=f"fairmf-worker-{number}",
            daemon=False,
        )
        process.start()
        theirs.close()
        return _Worker(number, process, ours, failures=failures)

    def _look(self, workers: list[_Worker]) -> None:
        """Wait for something to happen, and replace workers that ended."""
        pipes = [worker.pipe for worker in workers if not worker.ready and worker.process.is_alive()]
        wait([*(worker.process.sentinel for worker in workers if worker.process.is_alive()), *pipes], timeout=0.2)
        for place, worker in enumerate(workers):
            with contextlib.suppress(EOFError, OSError):
                while worker.pipe.poll():
                    worker.told = str(worker.pipe.recv())
                    worker.ready = worker.told == READY
            if worker.process.is_alive() or self._stopping:
                continue
            self._replace(workers, place)

    def _replace(self, workers: list[_Worker], place: int) -> None:
        worker, now = workers[place], time.monotonic()
        if not worker.start_at:
            failures = 0 if worker.ready else worker.failures + 1
            if failures >= ATTEMPTS or (failures and worker.told and worker.told != READY):
                reason = worker.told or f"exit code {worker.process.exitcode}"
                raise ClusterFailed(f"Worker {worker.number} cannot start: {reason}")
            logs.write("error", "worker ended", worker=worker.number, exit_code=worker.process.exitcode)
            worker.failures, worker.start_at = failures, now + (PAUSE if failures else 0.0)
        if now >= worker.start_at:
            worker.pipe.close()
            workers[place] = self._started(worker.number, worker.failures)

    def _stop(self, workers: list[_Worker]) -> None:
        """Let workers finish their requests, and kill those that do not end in time."""
        for worker in workers:
            if worker.process.is_alive():
                worker.process.terminate()
        until = time.monotonic() + self._plan.settings.drain + 2.0
        for worker in workers:
            worker.process.join(max(0.1, until - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.pipe.close()


def work(plan: Plan, number: int, sock: socket.socket, pipe: Connection) -> None:
    """Run one worker; the spawned process begins here."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor reloads
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    try:
        http_server.run(
            dataclasses.replace(plan.pointer, worker=number),
            plan.settings,
            sock,
            folder=plan.folder,
            worker=number,
            on_ready=lambda: pipe.send(READY),
        )
    except Exception as error:
        logs.write("error", "worker cannot start", worker=number, reason=str(error))
        with contextlib.suppress(OSError):
            pipe.send(str(error))
        raise SystemExit(1) from None


def _end_with(pipe: Connection) -> None:
    """Wait until the supervisor is gone, even if it was killed; then end this worker."""
    with contextlib.suppress(EOFError, OSError):
        pipe.recv()
    os.kill(os.getpid(), signal.SIGTERM)
