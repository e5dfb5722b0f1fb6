"""6. Control: choose settings and fairness by what they do on validation users."""

from fairmf.control.search_space import Choice, Doubling, Range
from fairmf.control.tuning import tune
from fairmf.control.tuning_result import Trial, TuningResult

__all__ = ["tune", "TuningResult", "Trial", "Range", "Doubling", "Choice"]
