"""6. Control: choosing fairness by what it does: the dial's curve, re-trained paths, targets."""

from fairmf.control.curve import Curve
from fairmf.control.path import fit_path
from fairmf.control.target import Target, fit_to_target
from fairmf.control.trade_off import trade_off

__all__ = ["Curve", "trade_off", "fit_path", "Target", "fit_to_target"]
