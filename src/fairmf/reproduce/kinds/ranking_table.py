"""Compare the ranking quality of models: chosen on the validation users, reported on the test users (table 1).

A series with a grid is fitted with one seed for every combination. Then the best by `options.select` is fitted with the
other seeds.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairmf.control.trade_off import Curve
from fairmf.metrics.significance import holm, sign_flip_p
from fairmf.reports import plots
from fairmf.reproduce.pieces import Outcome, Piece, seeded
from fairmf.reproduce.spec import Experiment, Series, Settings
from fairmf.reproduce.tables import Row, by_settings, measured, of_series, row_of, setting_words
from fairmf.types import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SELECT = "ndcg@100"
SWAPS = 10_000  # of the randomisation tests


def plan(experiment: Experiment, done: list[Outcome]) -> list[Piece]:
    """Plan all seeds of a series without a grid; otherwise its grid, then the other seeds of the best settings."""
    pieces = []
    for series in experiment.series:
        grid = series.combinations
        if len(grid) == 1:
            pieces += [piece(experiment, series, one) for one in seeded(series.model, grid[0], experiment.seeds)]
            continue
        first = [piece(experiment, series, seeded(series.model, settings, 1)[0]) for settings in grid]
        pieces += first
        best = chosen(experiment, series, done)
        finished = [one.piece for one in done]
        # The best is known only when the whole grid is done. Its seed 0 was part of the grid.
        if best is not None and all(one in finished for one in first):
            pieces += [piece(experiment, series, one) for one in seeded(series.model, best, experiment.seeds)[1:]]
    return pieces


def later(experiment: Experiment) -> list[Piece]:
    """Return the second round as if the first settings of every grid were the best, for estimates."""
    return [
        piece(experiment, series, one)
        for series in experiment.series
        if len(series.combinations) > 1
        for one in seeded(series.model, series.combinations[0], experiment.seeds)[1:]
    ]


def piece(experiment: Experiment, series: Series, settings: Settings) -> Piece:
    """Plan one fit that is measured on validation and test users."""
    return Piece(series.name, series.model, settings, measured_points(experiment, series))


def measured_points(experiment: Experiment, series: Series) -> Settings:
    """Return what to measure of a fit of the series, on validation and test users."""
    how: Settings = {"measure": "points", "metrics": list(experiment.metrics)}
    if "baseline" in experiment.options:
        how["per_user"] = experiment.options.get("select", SELECT)
    how |= {"dials": list(series.dials)} if series.dials else {}
    how |= {"ranking": series.ranking} if series.ranking else {}
    how |= {"shares": list(series.shares), "fairrec": series.fairrec} if series.shares else {}
    if series.patience:
        how |= {"patience": series.patience, "select": experiment.options.get("select", SELECT)}
    return how


def chosen(experiment: Experiment, series: Series, done: list[Outcome]) -> Record | None:
    """Return the settings whose first seed is best on the validation users; None if no fit is done yet."""
    select = experiment.options.get("select", SELECT)
    # Models without randomness have no seed.
    firsts = [one for one in of_series(done, series) if one.piece.seed in (None, 0)]
    scored = [(one.result["points"][0]["validation"].get(select), one) for one in firsts]
    known = [(value, one) for value, one in scored if value is not None]
    return max(known, key=lambda pair: pair[0])[1].piece.without_seed if known else None


def rows(experiment: Experiment, outcomes: list[Outcome]) -> list[Row]:
    """Return one row per series."""
    found: list[Row] = []
    users: dict[str, NDArray[np.float64] | None] = {}
    for series in experiment.series:
        best = chosen(experiment, series, outcomes)
        for runs in by_settings(of_series(outcomes, series)):
            if runs[0].piece.without_seed != best:
                continue
            values = [one.result["points"][0]["test"] for one in runs]
            label = {"series": series.name, "chosen": setting_words(series, runs[0].piece.settings)}
            found.append(row_of(series, runs[0].piece.settings, label, measured(experiment.metrics, values)))
            users[series.name] = per_user(runs)
    return tested(found, users, experiment)


def per_user(runs: list[Outcome]) -> NDArray[np.float64] | None:
    """Return the mean over seeds of what each test user got; None if the pieces do not have it."""
    stored = [one.result["points"][0].get("users") for one in runs]
    if any(each is None for each in stored):
        return None
    # None becomes NaN: a user without targets.
    means: NDArray[np.float64] = np.array(stored, dtype=np.float64).mean(axis=0)
    return means


def tested(rows: list[Row], users: dict[str, NDArray[np.float64] | None], experiment: Experiment) -> list[Row]:
    """Add a paired randomisation test against the baseline to every other row, corrected for all of them by Holm."""
    baseline = experiment.options.get("baseline")
    against = users.get(baseline) if baseline else None
    if against is None:
        return rows
    differences = {}
    for name, own in users.items():
        if name != baseline and own is not None:
            difference = own - against
            # Values are stored with three decimals, so a smaller mean difference is no difference.
            if np.nanmax(np.abs(difference)) > 0:
                differences[name] = difference
    ps = holm([sign_flip_p(each, SWAPS, 0)[0] for each in differences.values()])
    tests = {
        name: {"metric": experiment.options.get("select", SELECT), "baseline": baseline,
               "difference": float(np.nanmean(each)), "p_holm": float(p), "users": int(np.isfinite(each).sum())}
        for (name, each), p in zip(differences.items(), ps, strict=True)
    }  # fmt: skip
    return [dataclasses.replace(row, test=tests.get(row.label["series"], {})) for row in rows]


def draw(experiment: Experiment, outcomes: list[Outcome], title: str) -> dict[str, Figure]:
    """Draw quality against Gini, a point per series."""
    curves = {}
    for row in rows(experiment, outcomes):
        values = {metric: value.mean for metric, value in row.measured.items()}
        # The plot sorts points by fairness; a single point has no order, so any value will do.
        curves[row.label["series"]] = Curve(({"fairness": 0.0, **values},), experiment.metrics)
    quality = experiment.options.get("select", SELECT)
    return {"quality-gini": plots.trade_off_front(curves, quality=quality, title=title)} if curves else {}
