"""Pieces: one fit and what is measured of it. Each is stored the moment it is done, so that a killed run goes on.

A piece's file is named by a digest of everything its numbers depend on: the model, all its settings, what is measured,
the data, and the version of this format. Whatever changes, changes the name; nothing is ever taken for something else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fairmf.errors import CannotWrite
from fairmf.io import strict_json
from fairmf.io.atomic import replacing
from fairmf.models.registry import MODELS
from fairmf.reproduce.spec import Experiment, Series, Settings, effective
from fairmf.types import Record

FORMAT = 2
"""Raised when pieces are computed differently, so that older ones are computed anew."""


Result = Record
"""What was measured of a fit, as JSON holds it."""


@dataclass(frozen=True)
class Piece:
    """One fit, and what is measured of it."""

    series: str
    """The line or row it belongs to; a name alone, so no part of the key."""
    model: str
    settings: Settings
    how: Settings = field(default_factory=dict)
    """What is measured (`measure`: a name in `measure.MEASURES`) and with what options."""

    @property
    def seed(self) -> int | None:
        """The seed of the fit."""
        seed: int | None = self.settings.get("random_state")
        return seed

    @property
    def without_seed(self) -> Settings:
        """The settings without the seed: what runs with different seeds have in common."""
        return {name: value for name, value in self.settings.items() if name != "random_state"}

    def key(self, fingerprint: str) -> str:
        """Return the digest of everything the piece's numbers depend on."""
        parts = {
            "format": FORMAT,
            "model": self.model,
            "settings": effective(self.model, self.settings),
            "how": self.how,
            "data": fingerprint,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Outcome:
    """A piece that is done."""

    piece: Piece
    result: Result
    seconds: float
    key: str


def seeded(model: str, settings: Settings, seeds: int) -> list[Settings]:
    """Return the settings with each of the seeds 0, 1, ...; once for models that draw nothing."""
    if not MODELS[model].is_trained:
        return [settings]
    return [{**settings, "random_state": seed} for seed in range(seeds)]


def every_fit(experiment: Experiment, how: Callable[[Series], Settings]) -> list[Piece]:
    """Plan every combination of every series with every seed; `how` says what is measured of a series."""
    return [
        Piece(series.name, series.model, one, how(series))
        for series in experiment.series
        for settings in series.combinations
        for one in seeded(series.model, settings, experiment.seeds)
    ]


class Store:
    """The folder of finished pieces, created when the first is written."""

    def __init__(self, folder: Path, fingerprint: str):
        self.folder, self.fingerprint = folder, fingerprint

    def read(self, piece: Piece) -> Outcome | None:
        """Return the stored outcome of a piece; None if there is none or its file is damaged."""
        key = piece.key(self.fingerprint)
        try:
            stored = strict_json.parse((self.folder / f"{key}.json").read_text(encoding="utf-8"), "a piece")
            found = stored["key"], stored["result"], float(stored["seconds"])
        except (OSError, UnicodeDecodeError, strict_json.Malformed, KeyError, TypeError, ValueError):
            return None  # computed again, and written over
        return Outcome(piece, found[1], found[2], key) if found[0] == key else None

    def write(self, piece: Piece, result: Result, seconds: float) -> Outcome:
        """Store a finished piece in one atomic step."""
        key = piece.key(self.fingerprint)
        about = {"series": piece.series, "model": piece.model, "settings": piece.settings, "how": piece.how}
        stored: Result = {"key": key, "piece": about, "seconds": round(seconds, 3), "result": result}
        text = json.dumps(stored, allow_nan=False)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotWrite(error.errno, f"{self.folder} cannot be written: {error.strerror}") from error
        with replacing(self.folder / f"{key}.json") as file:
            file.write(text.encode())
        return Outcome(piece, json.loads(text)["result"], stored["seconds"], key)  # as a later run will read it
