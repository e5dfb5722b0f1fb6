"""Write /metrics: the counts of all workers, the age of the model, and the exposure of what was served."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from fairmf.serve.figures import ExposureWindow, gauge
from fairmf.serve.served_model import ServedModel
from fairmf.serve.service import Service
from fairmf.version import __version__


async def text(service: Service) -> str:
    """Return all metrics; exposure is computed in a thread, because sorting a large catalogue takes a while."""
    held = service.held() if service.ready else None
    if service.sampled:
        await asyncio.to_thread(service.measure_recall)
    exposure = [] if held is None else await asyncio.to_thread(held[1].lines, held[0].groups)
    return service.figures.text(_more(held, exposure))


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
