"""The trade-off as a picture: Gini to the right, quality up, so that left is fairer and up is better."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
# Okabe & Ito: safe for colour-blind eyes; markers differ as well.
STYLES = (("#0072B2", "o"), ("#56B4E9", "D"), ("#D55E00", "s"), ("#009E73", "^"), ("#E69F00", "v"), ("#999999", "x"))


def draw(
    name: str,
    series: Mapping[str, list[tuple[float, float, float]]],
    labelled: str,
    scattered: str = "",
    *,
    file: str = "pareto",
    quality: str = "nDCG@100",
    note: str = " to the figure shown",
    whole: bool = True,
) -> str:
    """Write docs/images/<file>-<name>.svg from points (gini, quality, setting); the answer says what was done.

    The settings of the series `labelled` stand beside its points, as its `note` says; only whole ones if `whole`.
    """
    try:
        import matplotlib
    except ImportError:
        return f'{name}: no picture, matplotlib is missing (pip install "fairmf[report]").'
    matplotlib.use("Agg")
    from matplotlib import pyplot

    plain = {"svg.hashsalt": "fairmf", "svg.fonttype": "path", "font.size": 10}
    with matplotlib.rc_context(plain):
        figure, axes = pyplot.subplots(figsize=(7.2, 5.2), layout="constrained")
        for (label, points), (colour, marker) in zip(series.items(), STYLES, strict=False):
            if points:
                shown = label + note if label == labelled else label
                marks = [p for p in points if label == labelled and (not whole or p[2] == int(p[2]))]
                _add(axes, shown, points, colour, marker, line=label != scattered, marks=marks)
        axes.set_xlabel("Gini@20 of exposure (left is fairer to items)")
        axes.set_ylabel(f"{quality} (up is better for users)")
        axes.set_title(f"{name}: quality against inequality of exposure", loc="left")
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        figure.legend(loc="outside lower center", ncols=2, fontsize=8.5, frameon=False)
        IMAGES.mkdir(parents=True, exist_ok=True)
        path = IMAGES / f"{file}-{name}.svg"
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
    return f"{name}: picture in docs/images/{path.name}."


def _add(axes: Any, label: str, points: Any, colour: str, marker: str, *, line: bool, marks: Any) -> None:
    from matplotlib import patheffects

    front = bool(marks)
    gini, quality = [p[0] for p in points], [p[1] for p in points]
    look = {
        "color": colour,
        "marker": marker,
        "markersize": 5 if line else 4,
        "zorder": 4 if front else 3 if line else 2,
    }
    axes.plot(
        gini,
        quality,
        label=label,
        linestyle="-" if line else "none",
        linewidth=2.2 if front else 1.2,
        **look,
    )
    halo = [patheffects.withStroke(linewidth=2.5, foreground="white")]
    for x, y, setting in marks:
        axes.annotate(
            f"{setting:g}", (x, y), (6, -11), textcoords="offset points", fontsize=8, color=colour,
            path_effects=halo, zorder=5,
        )  # fmt: skip
