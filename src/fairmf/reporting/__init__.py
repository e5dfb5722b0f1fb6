"""7. Reporting: comparisons as tables, JSON, plots and pages."""

from fairmf.reporting.comparison import Contender
from fairmf.reporting.report import report

__all__ = ["report", "Contender"]
