"""Make the rows of a table: measured numbers (mean and spread over seeds), and the paper's numbers apart from them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from fairmf.reproduce.pieces import Outcome
from fairmf.reproduce.spec import Experiment, Series, Settings
from fairmf.types import Record


@dataclass(frozen=True)
class Measured:
    """The mean of several runs, their standard deviation (None for a single run), and their number."""

    mean: float
    spread: float | None
    runs: int


@dataclass(frozen=True)
class Row:
    """One row: its label, the measured numbers, and the paper's numbers if there are any."""

    label: Record
    measured: dict[str, Measured]
    quoted: dict[str, float] = field(default_factory=dict)
    tolerance: float = 0.0
    quoted_at: str = ""
    """The settings of the paper's numbers, where they are not those of the row."""
    test: Record = field(default_factory=dict)
    """The paired test against the baseline: metric, baseline, difference, p_holm and users; empty if there is none."""
    shown: bool = True
    """Whether it is in the Markdown table. The CSV and the JSON have all rows."""

    def verdict(self, metric: str, *, same_data: bool) -> str:
        """Say whether the measured number agrees with the paper's: "within", "outside", "other data" or
        "other settings"."""
        if metric not in self.quoted or metric not in self.measured:
            return ""
        if not same_data:
            return "other data"
        if self.quoted_at:
            return "other settings"
        near = abs(self.measured[metric].mean - self.quoted[metric]) <= self.tolerance
        return "within" if near else "outside"


def row_of(series: Series, settings: Settings, label: Record, values: dict[str, Measured]) -> Row:
    """Return a row with the paper's numbers, where they belong to it."""
    differing = {name: value for name, value in series.paper_of.items() if settings.get(name) != value}
    if any(name in series.grid for name in differing):  # they belong to another point of the grid
        return Row(label, values)
    at = ", ".join(f"{name} {short(value)}" for name, value in differing.items())
    return Row(label, values, series.paper, series.tolerance, at if series.paper else "")


def over_runs(values: Iterable[float | None]) -> Measured | None:
    """Return mean and spread of the finite numbers; None if there are none."""
    found = [float(value) for value in values if value is not None and math.isfinite(value)]
    if not found:
        return None
    return Measured(statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else None, len(found))


def measured(metrics: Iterable[str], runs: list[Record]) -> dict[str, Measured]:
    """Return the mean and spread of every metric over the runs."""
    found = {metric: over_runs(run.get(metric) for run in runs) for metric in metrics}
    return {metric: value for metric, value in found.items() if value is not None}


def of_series(outcomes: list[Outcome], series: Series) -> list[Outcome]:
    """Return the outcomes of one series that did not diverge."""
    return [one for one in outcomes if one.piece.series == series.name and "diverged" not in one.result]


def by_settings(outcomes: list[Outcome]) -> list[list[Outcome]]:
    """Group outcomes that differ only in the seed, in the order of their first one."""
    groups: list[list[Outcome]] = []
    for one in outcomes:
        # Settings are dictionaries, which cannot be hashed; there are few groups to search.
        home = next((group for group in groups if group[0].piece.without_seed == one.piece.without_seed), None)
        if home is None:
            groups.append([one])
        else:
            home.append(one)
    return groups


def setting_words(series: Series, settings: Settings) -> str:
    """Describe a fit of a series by its settings in the grid."""
    return ", ".join(f"{name} {short(settings[name])}" for name in series.grid)


def short(value: object) -> str:
    """Write a number with few digits: 0.05, 3000, 2e5."""
    if not isinstance(value, float):
        return str(value)
    digits = f"{value:.6g}" if abs(value) < 1e5 else f"{value:.6e}"
    if "e" not in digits:
        return digits
    # Python would write 2e+05.
    mantissa, _, exponent = digits.partition("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def diverged(outcomes: list[Outcome], experiment: Experiment) -> list[str]:
    """Return a sentence for every fit that diverged."""
    names = {one.name: one for one in experiment.series}
    lines = []
    for one in outcomes:
        said = one.result.get("diverged") or one.result.get("stopped")
        if said:
            words = setting_words(names[one.piece.series], one.piece.settings)
            lines.append(f"{one.piece.series}{f' ({words})' if words else ''}, seed {one.piece.seed}: {said}")
    return lines
