"""Hold the settings of the server: limits of a request, time-outs, the queue, and what is logged."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fairmf.errors import InvalidParameter
from fairmf.params import check_count, check_number


@dataclass(frozen=True)
class Limits:
    """The most that one request may ask for; more is refused with status 413 or 422."""

    body: int = 1 << 20
    """Bytes of a body."""
    batch: int = 64
    """Requests in one body."""
    n: int = 200
    """Items in one list."""
    history: int = 1000
    """Items in one history."""
    items: int = 10_000
    """Candidates, items to leave out, and items to score, each."""
    evenness: float = 1.0
    """Evenness that is served; a request for more is answered with this one, and the answer says so."""

    def __post_init__(self) -> None:
        for name in ("body", "batch", "n", "history", "items"):
            check_count("", name, getattr(self, name))
        check_number("", "evenness", self.evenness, low=0, high=1)


@dataclass(frozen=True)
class Settings:
    """All settings of one server; the same in every worker process."""

    limits: Limits = field(default_factory=Limits)
    name: str = "fairmf"
    """The name of the model in KServe's routes."""
    waiting: int = 256
    """Requests that may wait to be ranked; further ones get status 429."""
    ranked_together: int = 32
    """Requests that one call of the kernels ranks at most."""
    batch_wait: float = 0.002
    """Seconds that a request may wait for others to be ranked with it."""
    deadline: float = 2.0
    """Seconds after which a request that was not ranked is given up with status 504."""
    read_timeout: float = 10.0
    """Seconds that a client has to send its headers, and again its body."""
    drain: float = 20.0
    """Seconds that requests in flight have to finish after SIGTERM."""
    connections: int = 1000
    """Connections that one worker keeps open; requests beyond get status 503."""
    window: float = 600.0
    """Seconds over which the exposure of what was served is counted."""
    keys: tuple[bytes, ...] = ()
    """SHA-256 digests of the API keys; empty lets everybody in."""
    log_requests: bool = False
    """Log a line for every request."""
    log_histories: bool = False
    """Log the bodies of requests too."""
    events: Path | None = None
    """Folder of the event log; None answers /v1/events with status 404."""
    events_bytes: int = 64 << 20
    """Size at which a file of events is closed and the next one begun."""
    num_threads: int = 0
    """Threads that rank; 0 uses all cores."""
    index: Path | None = None
    """File of a nearest-neighbour index of the model's items; None ranks all items."""
    control: Path | None = None
    """File with floors and caps of exposure (control/exposure_control.py); its state is kept beside it."""

    def __post_init__(self) -> None:
        check_count("", "waiting", self.waiting)
        check_count("", "ranked_together", self.ranked_together)
        check_count("", "connections", self.connections)
        check_count("", "events_bytes", self.events_bytes)
        for name in ("deadline", "read_timeout", "drain", "window"):
            check_number("", name, getattr(self, name), low=0)
            if getattr(self, name) == 0:
                raise InvalidParameter(f"{name} must be above 0.", parameter=name)
        check_number("", "batch_wait", self.batch_wait, low=0, high=1)
