"""Find backends by name, and say why the cuda backend cannot run where it cannot."""

from __future__ import annotations

import functools
import importlib
import logging
from types import ModuleType

from fairmf.backends.contract import Backend
from fairmf.errors import InvalidParameter, MissingDependency
from fairmf.version import install_command

BACKENDS = {
    "cpu": "fairmf.backends.cpu.backend",
    "cuda": "fairmf.backends.cuda.backend",
    "reference": "fairmf.backends.reference",
    "auto": "",
}
"""The module of each name that `backend=` accepts; it has a `BACKEND`. "auto" means cuda or cpu: see `auto_backend`."""

PAYS = 1e8  # interactions x factors above which a GPU saves more time than copying the data to it costs

OLDEST = (7, 0)  # the oldest compute capability that the kernels support: Volta

log = logging.getLogger("fairmf")


@functools.cache
def get_backend(name: str, factor_dtype: str = "float32") -> Backend:
    """Return the backend of that name, imported on first use. "auto" is cuda where there is a device, else cpu."""
    if name not in BACKENDS:
        raise InvalidParameter(f"There is no backend {name!r}. Available: {', '.join(map(repr, BACKENDS))}.")
    if name == "auto":
        name = auto_backend(PAYS)
    if factor_dtype != "float32" and name != "cuda":
        raise InvalidParameter(f"factor_dtype={factor_dtype!r} needs backend='cuda'. Got backend={name!r} instead.")
    if name == "cuda":
        require_device()  # checked first: CuPy imports fine without a device and fails much later
    module = importlib.import_module(BACKENDS[name])
    backend: Backend = module.BACKEND if factor_dtype == "float32" else module.HALF
    return backend


def auto_backend(work: float) -> str:
    """Return what "auto" means for that much work, in interactions times factors."""
    return "cuda" if work >= PAYS and what_is_missing() is None else "cpu"


def available(name: str) -> str:
    """Return the name, or "cpu" where that backend cannot run here: for models trained on another machine."""
    reason = what_is_missing() if name == "cuda" else None
    if reason is None:
        return name
    log.warning("the model was trained with backend='cuda'; using 'cpu' here: %s", reason)
    return "cpu"


def require_device() -> None:
    """Raise MissingDependency where the cuda backend cannot run."""
    reason = what_is_missing()
    if reason is not None:
        raise MissingDependency(reason)


def what_is_missing() -> str | None:
    """Return why the cuda backend cannot run here, or None if it can."""
    try:
        import cupy
    except ImportError as error:
        hint = f"{install_command('cuda')} (CUDA 12) or pip install cupy-cuda13x (CUDA 13)"
        return f"backend='cuda' needs CuPy, which cannot be imported ({error}): {hint}."
    return _problem_with_device(cupy)


def _problem_with_device(cupy: ModuleType) -> str | None:
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        return f"backend='cuda' found no usable driver ({str(error).split(':')[0]}): install or update NVIDIA's driver."
    if count == 0:
        return "backend='cuda' found no NVIDIA device on this machine: use backend='cpu'."
    device = cupy.cuda.Device()
    capability = tuple(int(c) for c in (device.compute_capability[:-1], device.compute_capability[-1]))
    if capability < OLDEST:
        name = runtime.getDeviceProperties(device.id)["name"].decode()
        found, needed = (".".join(map(str, c)) for c in (capability, OLDEST))
        return f"backend='cuda' needs compute capability {needed}; {name} has {found}: use backend='cpu'."
    return None
