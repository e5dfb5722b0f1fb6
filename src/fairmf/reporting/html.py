"""A comparison as one self-contained HTML page: no network, light and dark, readable on a phone."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairmf.reporting import charts
from fairmf.reporting.comparison import COLUMNS, Contender, arrow, title

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #d9dee5; --page: #ffffff; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ecf1; --soft: #a4afbc; --line: #36404d; --page: #12171e; --card: #1a212a; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 62rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem }
p.soft, caption, dt { color: var(--soft) }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
caption { text-align: left; padding-bottom: .3rem }
th, td { padding: .45rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left } td small { color: var(--soft) }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 1rem }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .8rem }
figcaption { color: var(--soft); font-size: .9rem } svg { width: 100%; height: auto }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink) } svg .grid { stroke: var(--line) }
svg .even { stroke: var(--soft); stroke-dasharray: 4 4 }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem } dd { margin: 0 }
"""


def write_html(contenders: Sequence[Contender], facts: dict[str, Any], path: Path, heading: str) -> None:
    """Write the page. `facts` are shown as a list under the charts."""
    body = [
        f"<h1>{html.escape(heading)}</h1>",
        f"<p>{html.escape(summary(contenders[1], contenders[-1]))}</p>" if len(contenders) > 1 else "",
        f'<div class="wide">{_table(contenders)}</div>',
        '<h2>What it costs, who gains</h2><div class="charts">',
        _figure(charts.quality_against_gini(contenders), "Up is better for users, left is more even for items."),
        _figure(charts.lorenz(contenders), "The dashed line is perfectly even exposure."),
        "</div>",
        "<h2>How this was made</h2><dl>",
        *(f"<dt>{html.escape(str(k))}</dt><dd>{html.escape(str(v))}</dd>" for k, v in facts.items()),
        "</dl>",
    ]
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(heading)}</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )
    path.write_text(page, encoding="utf-8")


def summary(before: Contender, after: Contender, at: int = 20, quality: str = "ndcg@100") -> str:
    """In plain words: what the less exposed part of the catalogue gains, and what it costs."""
    shares = [least_shown_share(c.evaluation.exposure[at]) for c in (before, after)]
    was, now = before.evaluation[quality], after.evaluation[quality]
    change = f"changes by {now / was - 1:+.1%}" if was > 0 else f"goes from {was:.3f} to {now:.3f}"
    cover = [c.evaluation[f"coverage@{at}"] for c in (before, after)]
    return (
        f"From {before.name} to {after.name}: the 80% of items shown least go from {shares[0]:.1%} to {shares[1]:.1%} "
        f"of the top-{at} exposure, the part of the catalogue shown at all from {cover[0]:.0%} to {cover[1]:.0%}, "
        f"and {title(quality)} {change}."
    )


def least_shown_share(exposure: np.ndarray[Any, Any]) -> float:
    """Share of all exposure that the 80 % least exposed items get."""
    ascending = np.sort(exposure)
    return float(ascending[: int(0.8 * len(ascending))].sum() / max(ascending.sum(), 1))


def _table(contenders: Sequence[Contender]) -> str:
    head = "".join(f"<th scope=col>{title(c)} {arrow(c)}</th>" for c in COLUMNS)
    rows = []
    for contender in contenders:
        cells = "".join(f"<td>{_cell(contender, column)}</td>" for column in COLUMNS)
        rows.append(f"<tr><td>{html.escape(contender.name)}</td>{cells}<td>{contender.seconds:.1f}</td></tr>")
    return (
        f"<table><caption>Test users; small figures are 95% bootstrap intervals.</caption>"
        f"<thead><tr><th scope=col>model</th>{head}<th scope=col>fit, s</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _cell(contender: Contender, column: str) -> str:
    text = f"{contender.evaluation[column]:.3f}"
    if column in contender.evaluation.intervals:
        low, high = contender.evaluation.intervals[column]
        text += f"<br><small>{low:.3f} to {high:.3f}</small>"
    return text


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{html.escape(caption)}</figcaption></figure>"
