"""Is there a device that the cuda backend can use? If not, one line that says what is missing."""

from __future__ import annotations

from typing import Any

from fairmf.errors import MissingDependency

OLDEST = (7, 0)  # compute capability: Volta


def require_device() -> None:
    """Raise MissingDependency where the cuda backend cannot run."""
    reason = what_is_missing()
    if reason is not None:
        raise MissingDependency(reason)


def what_is_missing() -> str | None:
    """Why the cuda backend cannot run here, or None."""
    try:
        import cupy
    except ImportError as error:
        hint = 'pip install "fairmf[cuda]" (CUDA 12) or pip install cupy-cuda13x (CUDA 13)'
        return f"backend='cuda' needs CuPy, which cannot be imported ({error}): {hint}."
    return _problem_with_device(cupy)


def _problem_with_device(cupy: Any) -> str | None:
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
