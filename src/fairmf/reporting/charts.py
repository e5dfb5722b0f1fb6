"""Two small charts as SVG text: quality against exposure inequality, and Lorenz curves of exposure."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import numpy as np

from fairmf.metrics import lorenz_curve
from fairmf.reporting.comparison import Contender, title

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe & Ito: safe for colour-blind eyes
WIDTH, HEIGHT = 460, 320
LEFT, RIGHT, TOP, BOTTOM = 58, 18, 18, 46
LETTER = 6.6  # about the width of a letter in the charts' font


class Frame:
    """Data coordinates to picture coordinates, with axes."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float]):
        self.x, self.y = x, y

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Picture coordinates of a point."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    def axes(self, x_label: str, y_label: str) -> list[str]:
        """Grid lines, tick labels and axis labels."""
        parts = []
        for value in ticks(*self.x):
            px, _ = self.at(value, self.y[0])
            parts.append(f'<line class="grid" x1="{px:.1f}" y1="{TOP}" x2="{px:.1f}" y2="{HEIGHT - BOTTOM}"/>')
            parts.append(f'<text x="{px:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value:g}</text>')
        for value in ticks(*self.y):
            _, py = self.at(self.x[0], value)
            parts.append(f'<line class="grid" x1="{LEFT}" y1="{py:.1f}" x2="{WIDTH - RIGHT}" y2="{py:.1f}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{py + 4:.1f}" text-anchor="end">{value:g}</text>')
        middle = (HEIGHT - BOTTOM + TOP) / 2
        parts.append(f'<text x="{(WIDTH + LEFT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{x_label}</text>')
        parts.append(f'<text transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle">{y_label}</text>')
        return parts


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between low and high."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    return [round(k * step, 10) for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def quality_against_gini(contenders: Sequence[Contender], quality: str = "ndcg@100", fairness: str = "gini@20") -> str:
    """A point per model: up is better for users, left is more even for items."""
    points = [(c.evaluation[fairness], c.evaluation[quality]) for c in contenders]
    frame = Frame(_padded([p[0] for p in points]), _padded([p[1] for p in points]))
    parts = frame.axes(f"{title(fairness)}: inequality of exposure (left is fairer)", f"{title(quality)}")
    taken: list[tuple[float, float, float]] = []
    for k in sorted(range(len(points)), key=lambda k: points[k]):
        contender, (x, y) = contenders[k], frame.at(*points[k])
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{COLOURS[k % len(COLOURS)]}"/>')
        at, line = _free_place(x, y, len(contender.name) * LETTER, taken)
        parts.append(f'<text x="{at:.1f}" y="{line:.1f}">{html.escape(contender.name)}</text>')
    return _svg(parts, f"{title(quality)} against {title(fairness)}")


def _free_place(x: float, y: float, width: float, taken: list[tuple[float, float, float]]) -> tuple[float, float]:
    """Where a label near (x, y) overlaps no earlier one; notes it in `taken` as (left, right, line)."""
    left = min(max(x - width / 2, LEFT + 2), WIDTH - RIGHT - width)
    for line in (y + 20, y - 12, y + 34, y - 26, y + 48, y - 40):
        if all(left > r or left + width < other or abs(line - place) > 12 for other, r, place in taken):
            break
    taken.append((left, left + width, line))
    return left, line


def lorenz(contenders: Sequence[Contender], at: int = 20) -> str:
    """How much of all exposure the least exposed share of the catalogue gets."""
    frame = Frame((0, 1), (0, 1))
    parts = frame.axes("share of the catalogue, least exposed first", f"share of exposure in the top {at}")
    (x0, y0), (x1, y1) = frame.at(0, 0), frame.at(1, 1)
    parts.append(f'<line class="even" x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}"/>')
    for k, contender in enumerate(contenders):
        curve = np.asarray(lorenz_curve(contender.evaluation.exposure[at]))
        shares = np.linspace(0, 1, len(curve))
        keep = np.unique(np.linspace(0, len(curve) - 1, 120).astype(int))
        path = " ".join("{:.1f},{:.1f}".format(*frame.at(shares[i], curve[i])) for i in keep)
        colour = COLOURS[k % len(COLOURS)]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        y = TOP + 18 + 18 * k
        parts.append(f'<rect x="{LEFT + 12}" y="{y - 9}" width="14" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + 32}" y="{y - 2}">{html.escape(contender.name)}</text>')
    return _svg(parts, "Lorenz curves of exposure")


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.12 * (high - low) or 0.05
    return low - margin, high + margin


def _svg(parts: Sequence[str], label: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{html.escape(label)}">' + "".join(parts) + "</svg>"
    )
