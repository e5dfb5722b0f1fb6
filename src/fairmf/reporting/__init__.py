"""7. Reporting: comparisons as tables, JSON, plots and pages.

Names are imported on first use: run records, which every verb of the command line writes, need none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairmf.reporting.comparison import Contender as Contender
    from fairmf.reporting.writing import report as report

__all__ = ["report", "Contender"]


def __getattr__(name: str) -> Any:
    if name == "report":
        from fairmf.reporting.writing import report

        return report
    if name == "Contender":
        from fairmf.reporting.comparison import Contender

        return Contender
    raise AttributeError(f"module 'fairmf.reporting' has no attribute {name!r}")
