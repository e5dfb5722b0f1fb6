"""The models that experiments may name, and what each of them takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairmf.errors import InvalidParameter
from fairmf.parameters import check_settings, settings_of


@dataclass(frozen=True)
class Kind:
    """A model's class, and what an experiment has to know of it."""

    load: Callable[[], Any]
    """Its class; a function, because only what is used should be imported."""
    extra: str = ""
    """The extra of the package that it needs."""
    has_dial: bool = False
    is_trained: bool = True
    """By epochs, from a seed."""

    def settings(self) -> list[str]:
        """Names of its settings."""
        return [part.name for part in dataclasses.fields(self.load())]


def _public(name: str) -> Callable[[], Any]:
    def load() -> Any:
        import fairmf

        return getattr(fairmf, name)

    return load


MODELS: dict[str, Kind] = {
    "popularity": Kind(_public("Popularity"), is_trained=False),
    "ials": Kind(_public("IALS"), has_dial=True),
    "fair-als": Kind(_public("FairALS"), has_dial=True),
    "fiadmm": Kind(_public("FiADMM"), has_dial=True),
    "mult-vae": Kind(_public("MultVAE"), extra="vae"),
    "rec-vae": Kind(_public("RecVAE"), extra="vae"),
}

# The result does not depend on them, and they depend on the machine.
_ELSEWHERE = ("num_threads", "engine")


def build(model: str, settings: dict[str, Any]) -> Any:
    """The model with these settings, which are checked."""
    kind = MODELS[model]
    known = kind.settings()
    for name in settings:
        if name not in known:
            raise InvalidParameter(f"The model {model} has no setting {name!r}. It has {', '.join(known)}.")
    made = kind.load()(**settings)
    check_settings(made)
    return made


def effective(model: str, settings: dict[str, Any]) -> dict[str, Any]:
    """All settings, defaults included, so that another default is another fit."""
    every = settings_of(build(model, settings))
    return {name: value for name, value in every.items() if name not in _ELSEWHERE}
