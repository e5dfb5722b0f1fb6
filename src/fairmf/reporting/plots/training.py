"""Training: the objective and its terms, ADMM's residuals, and what an epoch costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairmf.errors import InvalidData
from fairmf.models.history import History
from fairmf.reporting.plots import naming, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TERMS = {"total": "F", "observed": "observed", "unobserved": "unobserved", "l2": "L2", "fairness": "fairness"}
RESIDUALS = {"items": "items", "users": "users", "consensus": "consensus", "dual": "dual (constraint)"}


def convergence(histories: History | Mapping[str, History], *, title: str = "", theme: str = "light") -> Figure:
    """The objective by epoch: of one fit with its four terms, of several only the total of each."""
    if isinstance(histories, History):
        columns = {words: histories.column(f"objective.{term}") for term, words in TERMS.items()}
    else:
        columns = {name: history.column("objective.total") for name, history in histories.items()}
    return _by_epoch(columns, "objective", title, theme, logarithmic=False)


def residuals(
    histories: History | Mapping[str, History], *, which: str = "dual", title: str = "", theme: str = "light"
) -> Figure:
    """FiADMM's residuals by epoch, on a logarithmic axis: all of one fit, of several the one named by `which`."""
    if isinstance(histories, History):
        columns = {words: histories.column(f"residuals.{name}") for name, words in RESIDUALS.items()}
        label = "how far each variable moved"
    else:
        if which not in RESIDUALS:
            raise InvalidData(f"There are residuals of {', '.join(RESIDUALS)}. Got {which!r} instead.")
        columns = {name: history.column(f"residuals.{which}") for name, history in histories.items()}
        label = f"residual of {RESIDUALS[which]}"
    return _by_epoch(columns, label, title, theme, logarithmic=True)


def time_per_epoch(seconds: Mapping[str, Mapping[int, float]], *, title: str = "", theme: str = "light") -> Figure:
    """Seconds of an epoch against the number of factors, on logarithmic axes; a solver per line."""
    figure, axes, colours = style.new_figure(theme, "factors", "seconds per epoch", title=title)
    from matplotlib.ticker import LogLocator

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ends = []
    for k, (name, measured) in enumerate(seconds.items()):
        if not measured or not all(d > 0 and t > 0 for d, t in measured.items()):
            raise InvalidData(f"{name} needs seconds > 0 for at least one number of factors.")
        factors = sorted(measured)
        look = style.look(colours, k)
        axes.plot(factors, [measured[d] for d in factors], label=name, **look)
        ends.append((name, (float(factors[-1]), float(measured[factors[-1]])), look["color"]))
    if not ends:
        raise InvalidData("There is nothing to draw.")
    every = sorted({d for measured in seconds.values() for d in measured})
    axes.set_xticks(every, [str(d) for d in every])
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
    axes.minorticks_off()
    axes.autoscale_view()
    naming.name_lines(figure, axes, ends)
    return figure


def _by_epoch(
    columns: Mapping[str, Sequence[float | None]], label: str, title: str, theme: str, *, logarithmic: bool
) -> Figure:
    figure, axes, colours = style.new_figure(theme, "epoch", label, title=title)
    from matplotlib.ticker import MaxNLocator

    if logarithmic:
        axes.set_yscale("log")
    ends = []
    for k, (name, column) in enumerate(columns.items()):
        points = [(epoch, y) for epoch, y in enumerate(column, start=1) if y is not None and np.isfinite(y)]
        points = [(epoch, y) for epoch, y in points if y > 0 or not logarithmic]
        if not points:
            continue
        epochs, values = zip(*points, strict=True)
        look = style.look(colours, k) | ({} if len(points) == 1 else {"marker": ""})
        axes.plot(epochs, values, label=name, **look)
        ends.append((name, (float(epochs[-1]), float(values[-1])), look["color"]))
    if not ends:
        raise InvalidData(f"The history records no {label.partition(' ')[0]}: there is nothing to draw.")
    if not logarithmic:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.autoscale_view()
    axes.set_xlim(left=1 if axes.get_xlim()[1] > 1 else None)
    naming.name_lines(figure, axes, ends)
    return figure
