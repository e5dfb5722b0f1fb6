"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from fairmf.reporting.comparison import COLUMNS, Contender, arrow, title


def comparison_table(contenders: Sequence[Contender], columns: Sequence[str] = COLUMNS) -> Table:
    """One row per model, one column per metric; fits 80 columns."""
    table = Table(caption="↑ higher is better, ↓ lower is more even exposure", caption_justify="left")
    table.add_column("model", no_wrap=True)
    for column in columns:
        name, _, cut_off = title(column).partition("@")
        table.add_column(f"{name}\n@{cut_off} {arrow(column)}", justify="right", no_wrap=True)
    table.add_column("fit\nseconds", justify="right")
    for contender in contenders:
        cells = (f"{contender.evaluation[column]:.3f}" for column in columns)
        table.add_row(contender.name, *cells, f"{contender.seconds:.1f}")
    return table
