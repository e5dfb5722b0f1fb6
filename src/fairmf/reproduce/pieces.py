"""Store the pieces of an experiment, so that a killed run can continue. A piece is one fit and what is measured of it.

The file of a piece is named by a digest of everything its numbers depend on: the model, all settings, what is measured,
the data, and the version of this format. If any of these change, the piece gets another file and is computed again.
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

FORMAT = 3
"""Version of the computation. Raise it when pieces are computed differently, so that old ones are not reused."""


Result = Record
"""The results of a fit, as values of JSON."""


@dataclass(frozen=True)
class Piece:
    """One fit, and what is measured of it."""

    series: str
    """The line or row it belongs to. It does not change the numbers, so it is not part of the key."""
    model: str
    settings: Settings
    how: Settings = field(default_factory=dict)
    """The name of the measure in `measure.MEASURES`, and its options."""

    @property
    def seed(self) -> int | None:
        """The seed of the fit."""
        seed: int | None = self.settings.get("random_state")
        return seed

    @property
    def without_seed(self) -> Settings:
        """The settings without the seed, which are equal for all seeds."""
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
        # Sorted, so that the order of settings does not matter. 128 bits are enough for a file name.
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Outcome:
    """A finished piece and its result."""

    piece: Piece
    result: Result
    seconds: float
    key: str


def seeded(model: str, settings: Settings, seeds: int) -> list[Settings]:
    """Return the settings with each of the seeds 0, 1, ...; only once for models without randomness."""
    if not MODELS[model].is_trained:
        return [settings]
    return [{**settings, "random_state": seed} for seed in range(seeds)]


def every_fit(experiment: Experiment, how: Callable[[Series], Settings]) -> list[Piece]:
    """Plan every combination of every series with every seed. `how` returns what to measure for a series."""
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
        """Return the stored outcome of a piece; None if it is missing or its file is damaged."""
        key = piece.key(self.fingerprint)
        try:
            stored = strict_json.parse((self.folder / f"{key}.json").read_text(encoding="utf-8"), "a piece")
            found = stored["key"], stored["result"], float(stored["seconds"])
        except (OSError, UnicodeDecodeError, strict_json.Malformed, KeyError, TypeError, ValueError):
            return None  # the piece is computed again and its file replaced
        # A file that was copied or renamed by hand holds another piece than its name says.
        return Outcome(piece, found[1], found[2], key) if found[0] == key else None

    def write(self, piece: Piece, result: Result, seconds: float) -> Outcome:
        """Store a finished piece atomically."""
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
        # Parsed again, so that this run sees what a later run will read.
        return Outcome(piece, json.loads(text)["result"], stored["seconds"], key)
