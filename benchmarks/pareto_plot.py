"""The trade-off as a picture: Gini to the right, nDCG up, so that left is fairer and up is better."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
# Okabe & Ito: safe for colour-blind eyes; markers differ as well.
STYLES = (("#0072B2", "o"), ("#56B4E9", "D"), ("#D55E00", "s"), ("#009E73", "^"), ("#E69F00", "v"), ("#999999", "x"))


def draw(name: str, series: Mapping[str, list[tuple[float, float, float]]], labelled: str, scattered: str) -> str:
    """Write docs/images/pareto-<name>.svg from points (gini, ndcg, fairness); the answer says what was done."""
    try:
        import matplotlib
    except ImportError:
        return f'{name}: no picture, matplotlib is missing (pip install "fairmf[report]").'
    matplotlib.use("Agg")
    from matplotlib import pyplot

    plain = {"svg.hashsalt": "fairmf", "svg.fonttype": "path", "font.size": 10}
    with matplotlib.rc_context(plain):
        figure, axes = pyplot.subplots(figsize=(7.2, 5.2), layout="constrained")
        for (label, points), (colour, marker) in zip(series.items(), STYLES, strict=True):
            if points:
                _add(axes, label, points, colour, marker, line=label != scattered, front=label == labelled)
        axes.set_xlabel("Gini@20 of exposure (left is fairer to items)")
        axes.set_ylabel("nDCG@100 (up is better for users)")
        axes.set_title(f"{name}: quality against inequality of exposure", loc="left")
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        figure.legend(loc="outside lower center", ncols=2, fontsize=8.5, frameon=False)
        IMAGES.mkdir(parents=True, exist_ok=True)
        path = IMAGES / f"pareto-{name}.svg"
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
    return f"{name}: picture in docs/images/{path.name}."


def _add(axes: Any, label: str, points: Any, colour: str, marker: str, *, line: bool, front: bool) -> None:
    from matplotlib import patheffects

    gini, ndcg = [p[0] for p in points], [p[1] for p in points]
    look = {
        "color": colour,
        "marker": marker,
        "markersize": 5 if line else 4,
        "zorder": 4 if front else 3 if line else 2,
    }
    axes.plot(
        gini,
        ndcg,
        label=label + (" to the figure shown" if front else ""),
        linestyle="-" if line else "none",
        linewidth=2.2 if front else 1.2,
        **look,
    )
    if front:
        halo = [patheffects.withStroke(linewidth=2.5, foreground="white")]
        for x, y, psi in points:
            if psi == int(psi):  # those between would overlap
                axes.annotate(
                    f"{psi:g}", (x, y), (6, -11), textcoords="offset points", fontsize=8, color=colour,
                    path_effects=halo, zorder=5,
                )  # fmt: skip
