"""List the models in one table: their names on the command line and in files, and what each needs.

The command line, model files and experiments read `MODELS`; a class is imported only when it is used. To add a model,
write its class in a file of its own, its row here, and its public name in fairmf/__init__.py.
"""

from __future__ import annotations

import dataclasses
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from fairmf.models.factor_model import FactorModel


@dataclass(frozen=True)
class Kind:
    """One kind of model."""

    name: str
    """Its name on the command line and in experiments."""
    class_name: str
    """Its name in Python and in model files."""
    module: str
    """The module that defines the class."""
    extra: str = ""
    """The extra of the package that it needs."""
    has_factors: bool = True
    """It has user and item factors: the command line fits it, and a model file holds it."""
    has_dial: bool = True
    """Its fairness can be changed after training."""
    is_trained: bool = True
    """It is trained in epochs from a random start."""

    def load(self) -> type[FactorModel]:
        """Import and return the class."""
        return cast("type[FactorModel]", getattr(importlib.import_module(self.module), self.class_name))

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
