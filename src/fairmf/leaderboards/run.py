"""Run a leaderboard: choose settings on validation data, test each model once, store every step: `leaderboard`."""

from __future__ import annotations

import copy
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairmf.control.calibrate import calibrate, recalibrate
from fairmf.errors import CannotWrite, InvalidParameter
from fairmf.io import strict_json
from fairmf.leaderboards import show
from fairmf.leaderboards.boards import Board, load_board
from fairmf.leaderboards.search import BALANCES, MODELS, TITLES, WEIGHTS, Budget, Chosen, checked_sizes, search
from fairmf.metrics.evaluate import evaluate
from fairmf.models.base import IterativeModel
from fairmf.models.popularity import Popularity
from fairmf.params import check_number, check_seed, settings_of
from fairmf.reproduce.pieces import Piece, Store
from fairmf.types import Record
from fairmf.version import versions

TRIALS = "trials.db"
EXPOSURE = ("gini@20", "coverage@20")
PUBLISHED = Path(__file__).with_name("published.json")
DEFINITIONS = {"|T|": "hits / |T|", "min(K, |T|)": "hits / min(K, |T|)"}


def leaderboard(
    data: str,
    *,
    from_path: str | os.PathLike[str] | None = None,
    models: Sequence[str] = MODELS,
    factors: Sequence[int] = (128, 512),
    budget: int | str = 24,
    evenness: Sequence[float] = (0.25, 0.5, 0.75),
    others: Mapping[str, Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
    random_state: int = 0,
    progress: bool | None = None,
) -> Leaderboard:
    """Tune our models on the validation data of a public leaderboard, test them once, and add published rows.

    Parameters
    ----------
    data
        "gowalla", "yelp2018", "amazon-book", "ml-1m", "ml-20m" or "msd"; or the path of a file or folder with data
        (docs/leaderboard.md says which).
    from_path
        Your copy of the named data set.
    models
        Which of "ials" (plain) and "fair-als" (with balanced weights) to tune.
    factors
        Numbers of factors. Each is tuned, starting from the best settings of the one before, and tested.
    budget
        For each model: trials in all (24), or seconds after which no trial starts ("600s").
    evenness
        Levels of evenness at which the best model by validation is tested as well; none for an empty sequence.
    others
        Further models by name, for example of another library: anything with `fit(train)`, `n_items` and `rank`. They
        are trained and tested as they are, without tuning.
    folder
        Where to store trials, results.json, table.md and plots. The same call with the same folder continues a run
        that was killed. None stores nothing.
    random_state
        Seed of the search and of the models.
    progress
        Whether to show progress bars; None shows them in a terminal.

    Returns
    -------
    Leaderboard
        Rows of measured models, and the published rows of these data.

    Raises
    ------
    InvalidParameter
        If the data are unknown or a parameter is wrong.
    LicenceNotAccepted, DownloadFailed
        If the data are neither here nor fetched; the message says which files to put where.
    InvalidData
        If a file cannot be read.
    MissingDependency
        If Optuna is not installed (extra `[tune]`).

    Examples
    --------
    >>> from fairmf import leaderboard
    >>> board = leaderboard("gowalla", factors=(128, 512), budget=24, folder="gowalla")  # doctest: +SKIP
    >>> board.best()["values"]["ndcg@20"]  # doctest: +SKIP
    0.15
    """
    sizes, limit = checked_sizes(factors), Budget.read(budget)
    check_seed("leaderboard", random_state)
    for model in models:
        if model not in MODELS:
            raise InvalidParameter(
                f"A leaderboard has no model {model!r}.", hint=f"there are {', '.join(MODELS)}", parameter="models"
            )
    for level in evenness:
        check_number("leaderboard", "evenness", level, above=0, high=1)
    board = load_board(data, from_path)
    facts = board.facts()
    place = None if folder is None else Path(folder)
    store = None if place is None else Store(place / "pieces", facts["fingerprint"])
    if place is not None:
        _make(place)
    rows = [_popularity(board, store)]
    rows += [_tested(board, name, model) for name, model in (others or {}).items()]
    trials = None if place is None else place / TRIALS
    chosen: list[Chosen] = []
    for model in models:
        chosen += search(board, model, sizes, limit, storage=trials, random_state=int(random_state), progress=progress)
    best = max(chosen, key=lambda one: one.quality) if chosen else None
    for one in chosen:
        levels = tuple(evenness) if one is best else ()
        rows += _tuned(board, one, levels, store, is_best=one is best)
    result = Leaderboard({**facts, "budget": str(limit), "seed": int(random_state)}, rows, published(board.name))
    if place is not None:
        show.write(place, result.to_dict())
    return result


@dataclass(frozen=True)
class Leaderboard:
    """The measured rows of a board, and the published ones.

    Attributes
    ----------
    facts
        Name, protocol, sizes, what recall divides by, budget and seed.
    rows
        A row per tested model: name, factors, evenness, settings, values by metric, seconds and memory.
    published
        Rows of other people's models, as published.

    Examples
    --------
    >>> from fairmf.leaderboards.run import Leaderboard
    >>> row = {"model": "IALS", "factors": 8, "evenness": 0.0, "best": True, "values": {"recall@20": 0.1}}
    >>> Leaderboard({"name": "mine"}, [row], []).best()["model"]
    'IALS'
    """

    facts: Record
    rows: list[Record]
    published: list[Published]

    def best(self) -> Record:
        """Return the row of the model with the best quality on the validation data, at evenness 0."""
        return next(row for row in self.rows if row.get("best") and not row["evenness"])

    def to_dict(self) -> Record:
        """Return everything as plain Python values, for JSON."""
        rows = [vars(row) for row in self.published]
        return {"board": self.facts, "rows": self.rows, "published": rows, "versions": versions()}

    def markdown(self) -> str:
        """Return the table as Markdown."""
        return show.markdown(self.to_dict())


def _tuned(
    board: Board, chosen: Chosen, evenness: tuple[float, ...], store: Store | None, *, is_best: bool
) -> list[Record]:
    """Train and test a model with its chosen settings: a row for evenness 0, and one for each level of evenness."""
    piece = Piece(TITLES[chosen.model], chosen.model, chosen.settings, {"kind": "leaderboard", "evenness": [*evenness]})
    stored = None if store is None else store.read(piece)
    if stored is None:
        began = time.perf_counter()
        result = {"rows": _fit_and_test(board, chosen, evenness)}
        if store is not None:
            result = store.write(piece, result, time.perf_counter() - began).result
    else:
        result = stored.result
    about: Record = {
        "model": TITLES[chosen.model], "factors": chosen.settings["factors"], "settings": chosen.settings,
        "validation": chosen.quality, "trials": chosen.trials, "tuning_seconds": round(chosen.seconds, 1),
        "best": is_best,
    }  # fmt: skip
    return [{**about, **row} for row in result["rows"]]


def _fit_and_test(board: Board, chosen: Chosen, evenness: tuple[float, ...]) -> list[Record]:
    """Train on everything but the test, then measure the lists of all test users, once for each evenness."""
    forget_peak()
    model, seconds = _fitted(chosen.build(), board)
    first = {"evenness": 0.0, "fit_seconds": seconds, "peak_mb": peak_mb(), "values": measure(board, model)}
    if not evenness:
        return [first]
    _calibrate(board, chosen, model)
    later = [{**first, "evenness": level, "values": measure(board, model, evenness=level)} for level in evenness]
    return [first, *later]


def _calibrate(board: Board, chosen: Chosen, model: IterativeModel) -> None:
    """Give a model the path of evenness that is best on the validation data."""
    if board.chosen_on is board.train:
        calibrate(model, board.validation, bootstrap=0, progress=False)
        return
    # The model has seen the validation items, so the path is found on one that has not.
    before = chosen.build().fit(board.chosen_on, objective_every=0, progress=False)
    recalibrate(model, calibrate(before, board.validation, bootstrap=0, progress=False).path, progress=False)


def _fitted(model: Any, board: Board) -> tuple[Any, float]:
    began = time.perf_counter()
    options: Record = {"objective_every": 0, "progress": False} if isinstance(model, IterativeModel) else {}
    model.fit(board.train, **options)
    return model, round(time.perf_counter() - began, 2)


def _popularity(board: Board, store: Store | None) -> Record:
    """Test the baseline that every model must beat."""
    piece = Piece("Popularity", "popularity", {}, {"kind": "leaderboard"})
    stored = None if store is None else store.read(piece)
    if stored is not None:
        return stored.result
    row = _tested(board, piece.series, Popularity())
    return row if store is None else store.write(piece, row, row["fit_seconds"]).result


def _tested(board: Board, name: str, model: Any) -> Record:
    """Train and test a model as it is."""
    forget_peak()
    fitted, seconds = _fitted(copy.copy(model), board)
    known = settings_of(model) if isinstance(model, IterativeModel) else {}
    settings = {key: known[key] for key in ("factors", *WEIGHTS, *BALANCES, "random_state") if key in known}
    return {
        "model": name, "factors": known.get("factors"), "evenness": 0.0, "settings": settings, "fit_seconds": seconds,
        "peak_mb": peak_mb(), "values": measure(board, fitted), "best": False,
    }  # fmt: skip


def measure(board: Board, model: Any, evenness: float = 0.0) -> dict[str, float]:
    """Measure the lists of the test users, with recall as the board defines it."""
    options: dict[str, Any] = {"evenness": evenness} if evenness else {}
    labels = {label: label for label in (*board.metrics, *EXPOSURE)}
    if board.recall_by_targets:  # docs/metrics.md: recall divides by min(K, |T|), recall_all by |T|
        labels = {label: label.replace("recall@", "recall_all@") for label in labels}
    found = evaluate(model, board.test, metrics=[*labels.values()], train=board.train, bootstrap=0, **options)
    return {label: round(float(found[name]), 6) for label, name in labels.items()}


def forget_peak() -> None:
    """Forget the peak of memory so far, where the system can (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_mb() -> int:
    """Return the peak memory of this process in megabytes: since `forget_peak` on Linux, else since its start."""
    if sys.platform == "win32":
        return 0  # not measured
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return round(int(next(line for line in status if line.startswith("VmHWM:")).split()[1]) / 1000)
    except (OSError, StopIteration):
        import resource  # Windows has none

        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return round(largest / (1e6 if sys.platform == "darwin" else 1e3))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(error.errno, f"{folder} cannot be written: {error.strerror}") from error


@dataclass(frozen=True)
class Published:
    """One published row."""

    data: str
    method: str
    values: dict[str, float]
    source: str
    """Paper and year."""
    read_at: str
    """The page or file that the figures were taken from."""
    recall: str
    """The divisor of recall: "|T|" or "min(K, |T|)"."""
    chosen_on: str | None = None
    """Which data chose settings or epochs, where the public code or configuration shows it."""


def published(data: str) -> list[Published]:
    """Return the published rows of a data set, in the order of the file; none for other data."""
    content = strict_json.parse(PUBLISHED.read_text(encoding="utf-8"), str(PUBLISHED))
    return [Published(**row) for row in content["rows"] if row["data"] == data]
