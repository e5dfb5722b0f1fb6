"""Backends by name: `backend="cpu"`. A new one is one line here."""

from __future__ import annotations

import functools
import importlib

from fairmf.backends.contract import Backend
from fairmf.errors import InvalidParameter

_MODULES = {
    "cpu": "fairmf.backends.cpu.backend",
    "cuda": "fairmf.backends.cuda.backend",
    "reference": "fairmf.backends.reference.backend",
}

NAMES = tuple(_MODULES)


@functools.cache
def get_backend(name: str) -> Backend:
    """The backend of that name, imported on first use."""
    if name not in _MODULES:
        raise InvalidParameter(f"There is no backend {name!r}. Available: {', '.join(map(repr, NAMES))}.")
    if name == "cuda":
        # Looked at first: CuPy itself is imported without a device and fails much later.
        importlib.import_module("fairmf.backends.cuda.devices").require_device()
    backend: Backend = importlib.import_module(_MODULES[name]).BACKEND
    return backend
