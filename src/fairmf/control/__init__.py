"""6. Control: fairness and settings chosen by what they do on validation users."""

from fairmf.control.curve import Curve
from fairmf.control.exposure import Offsets, fit_offsets
from fairmf.control.path import fit_path
from fairmf.control.search_space import Choice, Doubling, Range
from fairmf.control.target import Target, fit_to_target
from fairmf.control.trade_off import trade_off
from fairmf.control.tuning import tune
from fairmf.control.tuning_result import Trial, TuningResult

__all__ = [
    "Curve",
    "trade_off",
    "fit_path",
    "Target",
    "fit_to_target",
    "Offsets",
    "fit_offsets",
    "tune",
    "TuningResult",
    "Trial",
    "Range",
    "Doubling",
    "Choice",
]
