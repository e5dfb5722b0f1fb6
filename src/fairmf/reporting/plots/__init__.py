"""Plots of trade-offs, exposure, training and gains (extra `[report]`): data in, a matplotlib Figure out.

    from fairmf.reporting import plots

    plots.save(plots.trade_off_front(curve), "front.svg")

Every function takes `title` and `theme` ("light" or "dark"); docs/report.md shows each.
"""

from fairmf.reporting.plots.exposure import coverage_curves, exposure_curves, lorenz_curves
from fairmf.reporting.plots.fronts import trade_off_front
from fairmf.reporting.plots.gains import who_gains
from fairmf.reporting.plots.lines import measured_lines
from fairmf.reporting.plots.saving import save
from fairmf.reporting.plots.training import convergence, residuals, time_per_epoch

__all__ = [
    "trade_off_front",
    "exposure_curves",
    "coverage_curves",
    "lorenz_curves",
    "convergence",
    "residuals",
    "time_per_epoch",
    "who_gains",
    "measured_lines",
    "save",
]
