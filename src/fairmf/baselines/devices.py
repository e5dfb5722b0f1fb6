"""PyTorch, where it is installed: the device, its threads and its random numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from fairmf.errors import InvalidParameter, MissingDependency


def torch_or_error(who: str) -> Any:
    """The package; MissingDependency where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependency(f'{who} needs PyTorch: pip install "fairmf[vae]"') from error
    return torch


def find_device(torch: Any, name: str, who: str) -> Any:
    """The device of that name ("auto": a GPU if there is one); InvalidParameter where this machine has none."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidParameter(
            f"The 'device' parameter of {who} is 'cuda', but PyTorch finds no GPU here. Use device='cpu'."
        )
    return torch.device(name)


@contextlib.contextmanager
def threads(torch: Any, num_threads: int) -> Iterator[None]:
    """Use that many threads (0: as many as PyTorch is set to); restores on exit."""
    before = torch.get_num_threads()
    if num_threads > 0:
        torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def generator(torch: Any, device: Any, random_state: int | None) -> Any:
    """Random numbers of one fit: from its seed, or a drawn one. PyTorch's global numbers are left alone."""
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if random_state is None else int(random_state)
    return torch.Generator(device=device).manual_seed(seed)
