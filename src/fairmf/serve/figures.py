"""Count requests, times and exposure, in memory that all workers of a server share, and write them for Prometheus.

Every worker has a file of numbers of its own, which only it writes to. Whoever is asked for /metrics adds the files of
all workers. A worker that is started again goes on with the numbers of the one before, so that counters never fall.
"""

from __future__ import annotations

import math
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from fairmf.data.groups import Groups
from fairmf.data.popularity import gini
from fairmf.types import Floats

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the latency histogram, in seconds."""
STATUSES = (200, 202, 400, 401, 404, 405, 408, 413, 415, 422, 429, 499, 500, 503, 504)
COUNTERS = {
    "ranked": "Requests for lists that were ranked.",
    "batches": "Calls of the kernels; ranked / batches is the mean size of a batch.",
    "refused": "Requests refused because the queue was full.",
    "expired": "Requests given up because their deadline passed.",
    "cancelled": "Requests dropped before ranking because the client had gone.",
    "fallbacks": "Lists of popular items for users of whom nothing is known.",
    "unknown_items": "Items in requests that the model does not know.",
    "evenness_sum": "Sum of the evenness of all lists that were served with one.",
    "evenness_count": "Number of lists that were served with an evenness.",
    "reloads": "Models that replaced another one.",
    "reload_failures": "Models that were refused.",
    "events": "Events stored.",
    "event_failures": "Requests with events that could not be stored.",
}
GAUGES = {
    "waiting": "Requests that wait to be ranked.",
    "recall_hits": "",
    "recall_slots": "",
}
COUNTED = 20  # places of each list whose exposure is counted
RECALL_SLOTS = 4000  # places of sampled lists over which the recall of an index is measured
SLICES = 6  # the window of exposure moves on by this part of itself


class Figures:
    """The numbers of one worker, and the sum over all workers.

    Parameters
    ----------
    routes
        The labels of the routes.
    folder
        Where the workers' files are; None keeps the numbers in this process.
    worker
        The number of this worker.
    """

    def __init__(self, routes: Sequence[str], folder: Path | None = None, worker: int = 0):
        self._routes = {route: k for k, route in enumerate(routes)}
        self._statuses = {status: k for k, status in enumerate(STATUSES)}
        self._places = {name: k for k, name in enumerate((*COUNTERS, *GAUGES))}
        r, s, b = len(routes), len(STATUSES), len(BUCKETS) + 2  # buckets, the rest, and the sum of seconds
        self._parts = np.cumsum([0, r * s, r * b, len(self._places)])
        self._folder, self._name = folder, f"figures-{worker}"
        self._own = numbers(folder, self._name, int(self._parts[-1]))
        self._by_status, self._times, self._values = self._cut(self._own)
        self.set("waiting", 0)  # of a worker that was killed

    def _cut(self, whole: Floats) -> tuple[Floats, Floats, Floats]:
        a, b, c, d = self._parts
        r = len(self._routes)
        return whole[a:b].reshape(r, -1), whole[b:c].reshape(r, -1), whole[c:d]

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        k = self._routes[route]
        self._by_status[k, self._statuses.get(status, self._statuses[500])] += 1
        times = self._times[k]
        place = 0
        while place < len(BUCKETS) and seconds > BUCKETS[place]:
            place += 1
        times[place] += 1
        times[-1] += seconds

    def add(self, name: str, amount: float = 1) -> None:
        """Add to a counter or a gauge."""
        self._values[self._places[name]] += amount

    def set(self, name: str, value: float) -> None:
        """Set a gauge."""
        self._values[self._places[name]] = value

    def recall(self, hits: int, slots: int) -> float:
        """Count items that an index found, and return the share of this worker's last lists; 1 while there are few."""
        self.add("recall_hits", hits)
        self.add("recall_slots", slots)
        at, of = self._places["recall_hits"], self._places["recall_slots"]
        if self._values[of] > RECALL_SLOTS:  # older lists count less and less
            self._values[[at, of]] /= 2
        return 1.0 if self._values[of] < RECALL_SLOTS / 10 else float(self._values[at] / self._values[of])

    def total(self, name: str) -> float:
        """Return a counter, summed over all workers."""
        return float(self._cut(self._sum())[2][self._places[name]])

    def _sum(self) -> Floats:
        return sum_of_files(self._folder, "figures-*", self._own)

    def text(self, more: Iterator[str]) -> str:
        """Return all numbers in Prometheus' text format, with further lines after them."""
        by_status, times, values = self._cut(self._sum())
        lines = [*_head("requests_total", "counter", "Requests by route and status.")]
        for route, k in self._routes.items():
            for status, place in self._statuses.items():
                if by_status[k, place]:
                    lines.append(_line("requests_total", by_status[k, place], route=route, status=str(status)))
        lines += _head("request_seconds", "histogram", "Time from the first byte of a request to its answer.")
        for route, k in self._routes.items():
            if times[k, :-1].any():
                lines += _histogram("request_seconds", times[k], route)
        for name, meaning in COUNTERS.items():
            lines += _head(f"{name}_total", "counter", meaning)
            lines.append(_line(f"{name}_total", values[self._places[name]]))
        lines += _head("waiting", "gauge", GAUGES["waiting"])
        lines.append(_line("waiting", values[self._places["waiting"]]))
        slots = values[self._places["recall_slots"]]
        if slots:
            lines += _head(
                "index_recall", "gauge", "Share of the exact lists that the index found, on sampled requests."
            )
            lines.append(_line("index_recall", values[self._places["recall_hits"]] / slots))
        return "\n".join([*lines, *more]) + "\n"


def _head(name: str, kind: str, meaning: str) -> list[str]:
    return [f"# HELP fairmf_{name} {meaning}", f"# TYPE fairmf_{name} {kind}"]


def _line(name: str, value: float, **labels: str) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"fairmf_{name}{'{' + inside + '}' if inside else ''} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else str(int(value)) if value == int(value) else repr(float(value))


def _histogram(name: str, times: Floats, route: str) -> list[str]:
    totals = np.cumsum(times[:-1])
    bounds = [*map(str, BUCKETS), "+Inf"]
    lines = [_line(f"{name}_bucket", total, route=route, le=bound) for bound, total in zip(bounds, totals, strict=True)]
    return [*lines, _line(f"{name}_sum", times[-1], route=route), _line(f"{name}_count", totals[-1], route=route)]


def gauge(name: str, meaning: str, values: dict[str | None, float], label: str = "") -> list[str]:
    """Return the lines of a gauge, by the value of its label; None stands for no label."""
    found = [_line(name, value, **({} if key is None else {label: key})) for key, value in values.items()]
    return [*_head(name, "gauge", meaning), *found]


# -- exposure of what was served --------------------------------------------------------------------------------------


class ExposureWindow:
    """Count how often each item was in a list, over a window that moves on in slices; for one model.

    Parameters
    ----------
    n_items
        Number of items.
    seconds
        Length of the window.
    folder, worker
        As in `Figures`. The folder belongs to one model: another one has other items.
    clock
        Returns the time in seconds, the same in all workers.
    """

    def __init__(
        self,
        n_items: int,
        seconds: float,
        folder: Path | None = None,
        worker: int = 0,
        clock: Callable[[], float] = time.time,
    ):
        self._length, self._clock, self._folder, self.n_items = seconds / SLICES, clock, folder, n_items
        # Of each slice: the number of its period, then a count per item.
        self._own = numbers(folder, f"exposure-{worker}", SLICES * (n_items + 1)).reshape(SLICES, -1)

    def count(self, rows: Sequence[int]) -> None:
        """Count items that were served, by their rows."""
        period = int(self._clock() / self._length)
        part = self._own[period % SLICES]
        if part[0] != period:
            part[:] = 0
            part[0] = period
        np.add.at(part, np.asarray(rows, dtype=np.int64) + 1, 1.0)

    def counts(self) -> Floats:
        """Return how often each item was served in the window, by all workers."""
        newest = int(self._clock() / self._length)
        total = np.zeros(self.n_items)
        for whole in files(self._folder, "exposure-*", self._own.reshape(-1)):
            for part in whole.reshape(SLICES, -1):
                if newest - SLICES < part[0] <= newest:
                    total += part[1:]
        return total

    def lines(self, groups: Groups | None, most: int = 50) -> list[str]:
        """Return Gini and coverage of the window, and the share of each group, for Prometheus."""
        counts = self.counts()
        shown = float(counts.sum())
        if not shown:
            return []
        k = str(COUNTED)
        found = gauge(
            "served_gini", "Gini index of how often items were in the first k places.", {k: float(gini(counts))}, "k"
        )
        found += gauge("served_coverage", "Share of items that were served.", {k: float((counts > 0).mean())}, "k")
        found += gauge("served_slots", "Places of lists that were counted in the window.", {k: shown}, "k")
        if groups is not None:
            names, shares = [str(name) for name in groups.names], groups.add_up(counts) / shown
            largest = np.argsort(-groups.weights, kind="stable")[:most]
            by_group: dict[str | None, float] = {names[k]: float(shares[k]) for k in largest}
            if len(names) > most:
                by_group["(other groups)"] = 1.0 - sum(by_group.values())
            found += gauge("served_exposure_share", "Share of the window's places by group.", by_group, "group")
        return found


# -- numbers that processes share -------------------------------------------------------------------------------------


def numbers(folder: Path | None, name: str, size: int) -> Floats:
    """Return zeros, or the numbers of the file if it is there; what is written to them is in the file at once."""
    if folder is None:
        return np.zeros(size)
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(handle).st_size != 8 * size:
            os.ftruncate(handle, 8 * size)
        return np.frombuffer(mmap.mmap(handle, 8 * size), dtype=np.float64)
    finally:
        os.close(handle)


def files(folder: Path | None, pattern: str, own: Floats) -> Iterator[Floats]:
    """Yield the numbers of every worker."""
    if folder is None:
        yield own
        return
    for path in sorted(folder.glob(pattern)):
        if path.stat().st_size == own.nbytes:
            yield np.fromfile(path, dtype=np.float64)


def sum_of_files(folder: Path | None, pattern: str, own: Floats) -> Floats:
    """Return the sum of the numbers of all workers."""
    total = np.zeros(len(own))
    for part in files(folder, pattern, own):
        total += part
    return total
