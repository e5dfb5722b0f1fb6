"""Hold what all requests share: the current model, the queue, the counts and the event log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fairmf.backends.contract import Vector
from fairmf.models.history_request import HistoryAnswer, HistoryRequest
from fairmf.serve import answers, logs
from fairmf.serve.answers import Answered, Refused
from fairmf.serve.event_log import EventLog
from fairmf.serve.figures import COUNTED, ExposureWindow, Figures, gauge
from fairmf.serve.messages import RecommendRequest
from fairmf.serve.micro_batches import MicroBatches
from fairmf.serve.served_model import ServedModel, state_file
from fairmf.serve.settings import Settings
from fairmf.version import __version__

LEAST_RECALL = 0.9  # below it the log has a warning, once per model
SAMPLED = 16  # lists of an index that each look at /metrics compares with exact ones
STORED_EVERY = 10.0  # seconds between two writes of the exposure control's state
Work = list[RecommendRequest] | Callable[[ServedModel], Any]
"""What the thread that ranks does: rank requests for lists, or call a function with the model."""


class Watch(Protocol):
    """Where models come from."""

    async def first(self, service: Service) -> None:
        """Load the model to begin with; raise if there is none."""

    async def forever(self, service: Service) -> None:
        """Wait for new models, and give them to the service."""


class Service:
    """The model that is served, and all that counts and logs what it answers.

    Parameters
    ----------
    current
        The model to begin with; None if `watch` brings one.
    settings
        Limits and sizes.
    routes
        Labels of the routes, for the counts.
    folder, worker
        Where workers share their counts, and the number of this one; None counts in this process alone.
    watch
        Loads the first model (`first`), and replaces it for as long as the service runs (`forever`).
    """

    def __init__(
        self,
        current: ServedModel | None,
        settings: Settings,
        routes: Sequence[str],
        *,
        folder: Path | None = None,
        worker: int = 0,
        watch: Watch | None = None,
    ):
        self.settings, self._folder, self._worker, self._watch = settings, folder, worker, watch
        self.figures = Figures(routes, folder, worker)
        self.queue = MicroBatches(self.rank, settings, self.figures)
        self.events = None if settings.events is None else EventLog(settings.events, settings.events_bytes, worker)
        self.sampled: deque[tuple[ServedModel, HistoryRequest, list[int], Vector | None]] = deque(maxlen=SAMPLED)
        """Lists that came from an index, with the prices they were ranked with, for the recall in /metrics."""
        self._warned = ""
        self._stored = time.monotonic()
        self._watcher: asyncio.Task[Any] | None = None
        self._held: tuple[ServedModel, ExposureWindow] | None = None
        if current is not None:
            self.replace(current)

    # -- the model ----------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether there is a model to answer with."""
        return self._held is not None

    def replace(self, served: ServedModel) -> None:
        """Let all requests that are not being ranked yet be answered by this model."""
        place = None if self._folder is None else self._folder / f"exposure-{served.fingerprint}"
        window = ExposureWindow(served.items.size, self.settings.window, place, self._worker)
        served.model.set_params(num_threads=self.settings.num_threads)
        self._held = served, window  # one assignment: nobody sees the one without the other

    def held(self) -> tuple[ServedModel, ExposureWindow]:
        """Return the current model and its window of exposure; Refused (503) while there is none."""
        held = self._held
        if held is None:
            raise Refused(503, "No model is loaded yet.", ((b"retry-after", b"1"),))
        return held

    async def start(self) -> None:
        """Load the first model, and begin to watch for new ones."""
        if self._watch is not None:
            await self._watch.first(self)
            self._watcher = asyncio.ensure_future(self._watch.forever(self))

    async def stop(self) -> None:
        """Stop watching, finish what is being ranked, and close the event log."""
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        await asyncio.to_thread(self.queue.close)
        if self._held is not None:
            self._store(self._held[0])
        if self.events is not None:
            self.events.close()

    # -- answers ------------------------------------------------------------------------------------------------------

    async def ask(self, work: Work, deadline: float | None = None) -> Any:
        """Do the work in the thread that ranks, and return its result."""
        size = len(work) if isinstance(work, list) else 1
        return await self.queue.ask(work, size, deadline or time.monotonic() + self.settings.deadline)

    def rank(self, works: Sequence[Work]) -> list[Any]:
        """Do the works of a batch with one model; return a result or an exception for each. Runs in the thread."""
        try:
            served, window = self.held()
        except Refused as error:
            return [error] * len(works)
        wanted = [request for work in works if isinstance(work, list) for request in work]
        lists = iter(self._lists(served, wanted, window))
        results: list[Any] = []
        for work in works:
            if isinstance(work, list):
                results.append([next(lists) for _ in work])
            else:
                results.append(_result(work, served))
        return results

    def _lists(
        self, served: ServedModel, wanted: list[RecommendRequest], window: ExposureWindow
    ) -> list[Answered | Refused]:
        if not wanted:
            return []
        try:
            found = answers.recommend(served, wanted, self.settings.limits)
        except Exception as error:  # not the fault of one request: all of them fail
            logs.failed("", "rank", error)
            return [Refused(500, "The server could not rank; its log says why.")] * len(wanted)
        answered = [one for one in found if isinstance(one, Answered)]
        window.count([row for one in answered for row in one.rows[:COUNTED]])
        self._steer(served, answered)
        levels = [one.answer.evenness for one in answered if one.answer.evenness is not None]
        self.figures.add("evenness_sum", sum(levels))
        self.figures.add("evenness_count", len(levels))
        self.figures.add("fallbacks", sum(bool(one.answer.fallback) for one in answered))
        self.figures.add("unknown_items", sum(len(one.answer.unknown_items or ()) for one in answered))
        return found

    def _steer(self, served: ServedModel, answered: list[Answered]) -> None:
        """Tell the exposure control what was shown, store its state now and then, and keep a list to measure recall."""
        if served.index is not None and answered:
            prices = None if served.control is None else served.control.prices
            self.sampled.append((served, answered[0].request, answered[0].rows, prices))
        if served.control is None or not answered:
            return
        longest = max(len(one.rows) for one in answered)
        served.control.record(np.array([one.rows + [-1] * (longest - len(one.rows)) for one in answered]))
        if time.monotonic() - self._stored > STORED_EVERY:
            self._store(served)

    def measure_recall(self) -> None:
        """Compare sampled lists with exact ones, and count what the index found. Runs in a thread of its own."""
        while self.sampled:
            served, request, rows, prices = self.sampled.popleft()
            (exact,) = served.model.recommend_histories([request], errors="return", prices=prices)
            if isinstance(exact, HistoryAnswer) and not exact.popular:
                wanted = served.rows(exact.ids[served.found(exact.ids)])
                found = self.figures.recall(len(set(wanted) & set(rows)), len(wanted))
                if found < LEAST_RECALL and self._warned != served.fingerprint:
                    self._warned = served.fingerprint
                    logs.write("warning", "the index misses items: build a new one", recall=round(found, 3))

    async def metrics(self) -> str:
        """Return the text of /metrics; exposure is computed in a thread: sorting a large catalogue takes a while."""
        held = self._held
        if self.sampled:
            await asyncio.to_thread(self.measure_recall)
        exposure = [] if held is None else await asyncio.to_thread(held[1].lines, held[0].groups)
        return self.figures.text(_more(held, exposure))

    def _store(self, served: ServedModel) -> None:
        """Write the state of the exposure control; a disk that is full must not stop the lists."""
        self._stored = time.monotonic()
        if served.control is None or self.settings.control is None:
            return
        try:
            served.control.save(state_file(self.settings.control, self._worker))
        except OSError as error:
            logs.write("error", "state of the exposure control not stored", reason=str(error))


def _result(work: Callable[[ServedModel], Any], served: ServedModel) -> Any:
    try:
        return work(served)
    except Exception as error:
        return error


# -- /metrics beside the counts of all workers ------------------------------------------------------------------------


def _more(held: tuple[ServedModel, ExposureWindow] | None, exposure: list[str]) -> Iterator[str]:
    yield from gauge("info", "Version of fairmf.", {__version__: 1.0}, "version")
    yield from gauge("ready", "Whether a model is loaded.", {None: float(held is not None)})
    memory = resident_bytes()
    if memory is not None:
        yield from gauge("resident_bytes", "Memory of this worker.", {str(os.getpid()): memory}, "pid")
    if held is None:
        return
    served, now = held[0], datetime.now(timezone.utc)
    yield from gauge("model_info", "Fingerprint of the model.", {served.fingerprint: 1.0}, "model")
    yield from gauge("model_loaded_seconds", "Seconds since the model was loaded.", {None: _age(served.loaded, now)})
    created = served.model.fitted.provenance.get("created")
    if created is not None:
        age = _age(datetime.fromisoformat(created), now)
        yield from gauge("model_age_seconds", "Seconds since the model was saved.", {None: age})
    if served.control is not None:
        highest = float(abs(served.control.prices).max())
        yield from gauge("control_largest_price", "Largest price of the exposure control.", {None: highest})
    yield from exposure


def _age(then: datetime, now: datetime) -> float:
    return (now - then).total_seconds()


def resident_bytes() -> float | None:
    """Return the resident memory of this process; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return float(pages * os.sysconf("SC_PAGE_SIZE"))
