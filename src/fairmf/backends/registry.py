"""Backends by name: `backend="cpu"`. A new one is one line here."""

from __future__ import annotations

import functools
import importlib
import logging

from fairmf.backends.contract import Backend
from fairmf.backends.cuda.devices import require_device, what_is_missing
from fairmf.errors import InvalidParameter

_MODULES = {
    "cpu": "fairmf.backends.cpu.backend",
    "cuda": "fairmf.backends.cuda.backend",
    "reference": "fairmf.backends.reference.backend",
}

NAMES = tuple(_MODULES)
CHOICES = (*NAMES, "auto")
PAYS = 1e8  # interactions times factors from which sending the data to a device costs less than it saves

log = logging.getLogger("fairmf")


@functools.cache
def get_backend(name: str, factor_dtype: str = "float32") -> Backend:
    """The backend of that name, imported on first use. "auto" is cuda where there is a device, else cpu."""
    if name not in CHOICES:
        raise InvalidParameter(f"There is no backend {name!r}. Available: {', '.join(map(repr, CHOICES))}.")
    name = chosen(name, PAYS)
    if factor_dtype != "float32" and name != "cuda":
        raise InvalidParameter(f"factor_dtype={factor_dtype!r} needs backend='cuda'. Got backend={name!r} instead.")
    if name == "cuda":
        require_device()  # looked at first: CuPy itself is imported without a device and fails much later
    module = importlib.import_module(_MODULES[name])
    backend: Backend = module.BACKEND if factor_dtype == "float32" else module.HALF
    return backend


def chosen(name: str, work: float) -> str:
    """What "auto" stands for with that much work, in interactions times factors; any other name is itself."""
    if name != "auto":
        return name
    return "cuda" if work >= PAYS and what_is_missing() is None else "cpu"


def available(name: str) -> str:
    """The backend itself, or "cpu" where it cannot run here: for models that were trained elsewhere."""
    reason = what_is_missing() if name == "cuda" else None
    if reason is None:
        return name
    log.warning("the model was trained with backend='cuda'; here it answers with 'cpu': %s", reason)
    return "cpu"
