"""Rank requests that arrive within a few milliseconds by one call of the kernels, in one thread.

1. `ask` puts an entry into the queue and waits for its result. A full queue refuses it (status 429).
2. When the thread is free and the oldest entry has waited `batch_wait` seconds, or enough have gathered, `_start` takes
   a batch. Entries whose client has gone or whose deadline has passed are dropped first, so that they cost nothing.
3. The thread reads the current model once for the whole batch and ranks; `_finish` hands the results out.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fairmf.serve.answers import Refused
from fairmf.serve.figures import Figures
from fairmf.serve.settings import Settings

SWEEP = 0.05  # seconds between two looks for entries whose deadline has passed
RETRY = ((b"retry-after", b"1"),)


class Entry:
    """One request in the queue."""

    __slots__ = ("arrived", "deadline", "dropped", "future", "size", "work")

    def __init__(self, work: Any, size: int, deadline: float, future: asyncio.Future[Any]):
        self.work, self.size, self.deadline, self.future = work, size, deadline, future
        self.arrived, self.dropped = time.monotonic(), False


class MicroBatches:
    """The queue before the thread that ranks.

    Parameters
    ----------
    rank
        Called in the thread with the works of a batch; returns a result or an exception for each.
    settings
        The size of the queue and of a batch, and how long requests may wait.
    figures
        Where requests and batches are counted.
    """

    def __init__(self, rank: Callable[[Sequence[Any]], Sequence[Any]], settings: Settings, figures: Figures):
        self._rank, self._settings, self._count = rank, settings, figures.add
        self._entries: deque[Entry] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rank")
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self.waiting = 0
        """Requests in the queue."""

    async def ask(self, work: Any, size: int, deadline: float) -> Any:
        """Return the result of `work`; `size` counts the requests in it, `deadline` is a time of time.monotonic.

        Raises Refused if the queue is full (429) or the deadline passes (504). If the caller is cancelled, the entry is
        dropped.
        """
        loop = asyncio.get_running_loop()
        entry = self._put(work, size, deadline, loop)
        try:
            return await entry.future
        except asyncio.CancelledError:
            if self._drop(entry):
                self._count("cancelled", size)
            raise

    def _put(self, work: Any, size: int, deadline: float, loop: asyncio.AbstractEventLoop) -> Entry:
        if self.waiting + size > self._settings.waiting and self.waiting:
            self._count("refused", size)
            raise Refused(429, "Too many requests are waiting; try again in a second.", RETRY)
        entry = Entry(work, size, deadline, loop.create_future())
        self._entries.append(entry)
        self.waiting += size
        self._count("waiting", size)
        if not self._busy:
            self._schedule(loop)
        if self._sweeper is None:
            self._sweeper = loop.call_later(SWEEP, self._sweep, loop)
        return entry

    def _drop(self, entry: Entry) -> bool:
        """Take an entry out of account; False if it is being ranked already."""
        if entry.dropped:
            return False
        entry.dropped = True
        self.waiting -= entry.size
        self._count("waiting", -entry.size)
        return True

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start a batch now, or when the oldest entry has waited long enough."""
        entries = self._entries
        while entries and entries[0].dropped:
            entries.popleft()
        if not entries:
            return
        wait = entries[0].arrived + self._settings.batch_wait - time.monotonic()
        if wait <= 0 or self.waiting >= self._settings.ranked_together:
            self._start(loop)
        elif self._timer is None:
            self._timer = loop.call_later(wait, self._start, loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._busy:
            return
        batch: list[Entry] = []
        size, now = 0, time.monotonic()
        while self._entries:
            entry = self._entries[0]
            if not entry.dropped:
                if entry.deadline <= now:
                    self._expire(entry)
                elif batch and size + entry.size > self._settings.ranked_together:
                    break
                else:
                    self._drop(entry)  # it no longer waits
                    batch.append(entry)
                    size += entry.size
            self._entries.popleft()
        if batch:
            self._busy = True
            self._count("batches")
            self._count("ranked", size)
            running = loop.run_in_executor(self._thread, self._rank, [entry.work for entry in batch])
            running.add_done_callback(lambda done: self._finish(batch, done, loop))

    def _finish(self, batch: list[Entry], done: asyncio.Future[Sequence[Any]], loop: asyncio.AbstractEventLoop) -> None:
        self._busy = False
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        results = [error] * len(batch) if error is not None else done.result()
        for entry, result in zip(batch, results, strict=True):
            if entry.future.done():
                continue
            if isinstance(result, BaseException):
                entry.future.set_exception(result)
            else:
                entry.future.set_result(result)
        self._schedule(loop)

    def _expire(self, entry: Entry) -> None:
        if self._drop(entry):
            self._count("expired", entry.size)
            if not entry.future.done():
                entry.future.set_exception(Refused(504, "The request was not ranked before its deadline.", RETRY))

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        for entry in self._entries:
            if not entry.dropped and entry.deadline <= now:
                self._expire(entry)
        self._sweeper = loop.call_later(SWEEP, self._sweep, loop) if self.waiting else None

    def close(self) -> None:
        """End the thread, after the batch that it is ranking."""
        for timer in (self._timer, self._sweeper):
            if timer is not None:
                timer.cancel()
        self._timer = self._sweeper = None
        self._thread.shutdown(wait=True)
