"""The table of models: their names on the command line and in files, and what each needs.

The command line, model files and experiments read `MODELS`; a class is imported only when it is used. To add a model,
write its class in a file of its own, its row here, and its public name in fairmf/__init__.py.
"""

from __future__ import annotations

import dataclasses
import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """One kind of model."""

    name: str
    """On the command line and in experiments."""
    class_name: str
    """In Python and in model files."""
    module: str
    extra: str = ""
    """The extra of the package that it needs."""
    has_factors: bool = True
    """It has user and item factors: the command line fits it, and a model file holds it."""
    has_dial: bool = True
    """It can be asked at another fairness after training."""
    is_trained: bool = True
    """By epochs, from a seed."""

    def load(self) -> Any:
        """Import and return the class."""
        return getattr(importlib.import_module(self.module), self.class_name)

    def settings(self) -> list[str]:
        """Return the names of its settings."""
        return [field.name for field in dataclasses.fields(self.load())]


_TABLE = (
    Kind("fair-als", "FairALS", "fairmf.models.als"),
    Kind("ials", "IALS", "fairmf.models.als"),
    Kind("fiadmm", "FiADMM", "fairmf.models.fiadmm"),
    Kind("popularity", "Popularity", "fairmf.models.popularity", has_dial=False, is_trained=False),
    Kind("mult-vae", "MultVAE", "fairmf.baselines.mult_vae", extra="vae", has_factors=False, has_dial=False),
    Kind("rec-vae", "RecVAE", "fairmf.baselines.rec_vae", extra="vae", has_factors=False, has_dial=False),
)
MODELS: dict[str, Kind] = {kind.name: kind for kind in _TABLE}


def factor_models() -> dict[str, Kind]:
    """Return the models with factors by their class names: those that a model file may hold."""
    return {kind.class_name: kind for kind in MODELS.values() if kind.has_factors}
