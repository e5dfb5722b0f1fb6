"""Run an experiment: compute the pieces that are missing, store each at once, and write what they come to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairmf.experiments.data import Data
from fairmf.experiments.estimating import Estimate, Speed, estimate, measure_speed, shape_of
from fairmf.experiments.experiment import Experiment
from fairmf.experiments.kinds import kind_of, later_pieces, total
from fairmf.experiments.measuring import measure
from fairmf.experiments.pieces import Outcome, Piece, Store
from fairmf.experiments.summary import Row
from fairmf.experiments.writing import write_results
from fairmf.models.progress import progress_bar

PIECES = "pieces"


@dataclass(frozen=True)
class Reproduction:
    """What came out: the content of results.json, its rows, the files written, how many pieces were computed now."""

    results: dict[str, Any]
    rows: tuple[Row, ...]
    files: tuple[Path, ...]
    computed: int


@dataclass(frozen=True)
class Run:
    """An experiment on some data, into a folder; nothing is computed yet."""

    experiment: Experiment
    data: Data
    folder: Path
    store: Store

    def plan(self, done: Sequence[Outcome] = ()) -> list[Piece]:
        """The pieces that are known so far, each once."""
        pieces: dict[str, Piece] = {}
        for piece in kind_of(self.experiment).plan(self.experiment, list(done)):
            pieces.setdefault(f"{piece.series} {piece.key(self.data.fingerprint)}", piece)
        return list(pieces.values())

    def done(self) -> tuple[list[Outcome], list[Piece]]:
        """What is stored already, over all rounds that can be told, and what is missing of them."""
        found: list[Outcome] = []
        while True:
            pieces = self.plan(found)
            read = [self.store.read(piece) for piece in pieces]
            missing = [piece for piece, outcome in zip(pieces, read, strict=True) if outcome is None]
            now = [outcome for outcome in read if outcome is not None]
            if missing or len(now) == len(found):
                return now, missing
            found = now

    def estimate(self, speed: Speed | None = None) -> Estimate:
        """Pieces done and left, time and memory. Measures this machine's speed where it is not given."""
        found, missing = self.done()
        to_come = total(self.experiment) - len(found) - len(missing)  # of a round that cannot be told yet
        left = [*missing, *later_pieces(self.experiment)[:to_come]]
        return estimate(self.experiment, shape_of(self.data), measure_speed() if speed is None else speed, left)


def open_run(
    experiment: Experiment,
    data: Data,
    folder: str | os.PathLike[str],
    *,
    seeds: int | None = None,
    epochs: int | None = None,
    without: Sequence[str] = (),
) -> Run:
    """The experiment as it will be run on this data: settings of a stand-in, fewer seeds or epochs, left-out models."""
    fitted = experiment.on(data.name).limited(seeds=seeds, epochs=epochs, without=tuple(without))
    place = Path(folder)
    return Run(fitted, data, place, Store(place / PIECES, data.fingerprint))


def reproduce(
    experiment: Experiment,
    data: Data,
    folder: str | os.PathLike[str],
    *,
    seeds: int | None = None,
    epochs: int | None = None,
    without: Sequence[str] = (),
    progress: bool | None = None,
    measure: Callable[[Piece, Any], dict[str, Any]] = measure,
) -> Reproduction:
    """Compute what is missing of the experiment in this folder, then write its table, plots and results.json.

    A piece that is stored there is not computed again, so the same call goes on where a killed one stopped; another
    setting, seed or data set is another piece.
    """
    run = open_run(experiment, data, folder, seeds=seeds, epochs=epochs, without=without)
    computed = 0
    done, missing = run.done()
    with progress_bar(experiment.name, total(run.experiment), progress) as advance:
        advance("", len(done))
        while missing:
            for piece in missing:
                if run.store.read(piece) is None:  # not the same fit as another series'
                    began = time.perf_counter()
                    result = measure(piece, data.split)
                    run.store.write(piece, result, time.perf_counter() - began)
                    computed += 1
                advance(piece.series)
            done, missing = run.done()
    rows = kind_of(run.experiment).rows(run.experiment, done)
    results, files = write_results(run.experiment, data, done, rows, run.folder)
    return Reproduction(results, tuple(rows), tuple(files), computed)
