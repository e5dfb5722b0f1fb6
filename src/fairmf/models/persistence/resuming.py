"""Which fit is this? What has to be equal for a fit to go on from a checkpoint and end with the same bits."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairmf.errors import InvalidParameter
from fairmf.models.factor_model import FactorModel
from fairmf.models.fitting import Checkpoints
from fairmf.models.persistence.checkpoints import FolderOfCheckpoints
from fairmf.models.persistence.document import parameters_of
from fairmf.models.persistence.folder_lock import locked
from fairmf.models.problem import Problem
from fairmf.version import versions

FREE = ("epochs", "num_threads")
"""Settings that may change between a fit and its continuation: neither changes the bits of an epoch."""


@contextlib.contextmanager
def open_checkpoints(
    folder: str | os.PathLike[str] | None,
    every: int,
    model: Any,
    problem: Problem,
    init: Any,
    callbacks: Sequence[Any],
    objective_every: int,
) -> Iterator[Checkpoints | None]:
    """The checkpoints of one fit, held while it runs; None where none are asked for."""
    if isinstance(every, bool) or not isinstance(every, (int, np.integer)) or every < 1:
        raise InvalidParameter(f"checkpoint_every must be an integer >= 1. Got {every!r} instead.")
    if folder is None:
        yield None
        return
    settings = {name: value for name, value in parameters_of(model).items() if name not in FREE}
    identity = {
        "model": type(model).__name__,
        **settings,
        "init": None if init is None else _fingerprint(init),
        "fairness_weights": None if problem.fairness_weights is None else digest_of(problem.fairness_weights),
        "objective_every": objective_every,
        "callbacks": [type(callback).__name__ for callback in callbacks],
        "data": problem.interactions.fingerprint(),
    }
    path = Path(folder)
    with locked(path):
        yield FolderOfCheckpoints(path, int(every), identity, versions(), int(model.epochs), problem.backend)


def _fingerprint(init: Any) -> str:
    """SHA-256 of the factors a fit starts from."""
    return digest_of(*((init.user_factors, init.item_factors) if isinstance(init, FactorModel) else init))


def digest_of(*arrays: Any) -> str:
    """SHA-256 of numbers and their shapes."""
    digest = hashlib.sha256()
    for numbers in arrays:
        array = np.ascontiguousarray(numbers, dtype="<f8")
        digest.update(f"{array.shape}:".encode())
        digest.update(array.data)
    return digest.hexdigest()
