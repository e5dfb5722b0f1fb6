"""One model asked at one dial position after another; what was measured is never measured again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from fairmf.control.curve import Row
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics import evaluate
from fairmf.models.iterative import IterativeModel
from fairmf.splitting import HeldOut, Split

LIMIT = 1e4  # no dial is worth turning further


def validation_of(split: Split | HeldOut) -> HeldOut:
    """The users that choices are made on: a split's validation part, never its test part."""
    if isinstance(split, Split):
        return split.validation
    if isinstance(split, HeldOut):
        return split
    raise InvalidData(f"Expected a Split or a HeldOut, got {type(split).__name__}.")


class Dial:
    """Measures `metrics` of a fitted model at any fairness on the same users."""

    def __init__(
        self,
        model: IterativeModel,
        held_out: HeldOut,
        metrics: Sequence[str],
        advance: Callable[[str], None] = lambda _: None,
    ):
        if not isinstance(model, IterativeModel):
            raise InvalidParameter(f"A {type(model).__name__} has no dial: use FairALS, IALS or FiADMM.")
        self.model = model
        self.held_out = held_out
        self.metrics = tuple(metrics)
        self.rows: dict[float, Row] = {}
        self._advance = advance

    def __call__(self, fairness: float) -> Row:
        """The row of one position."""
        if fairness not in self.rows:
            began = time.perf_counter()
            found = evaluate(self.model, self.held_out, metrics=self.metrics, bootstrap=0, fairness=fairness)
            values: dict[str, Any] = {name: found[name] for name in self.metrics}
            self.rows[fairness] = {
                "way": "dial", "fairness": fairness, **values, "seconds": time.perf_counter() - began,
            }  # fmt: skip
            self._advance(f"fairness {fairness:g}")
        return self.rows[fairness]

    def first_steps(self) -> list[float]:
        """Where a search upwards begins: 0, then doubling from a quarter of the trained fairness (or of 1)."""
        unit = self.model.fitted.trained_fairness or 1.0
        steps, psi = [0.0], unit / 4
        while psi <= LIMIT * unit:
            steps.append(psi)
            psi *= 2
        return steps


def rounded(value: float) -> float:
    """Three digits: a dial position that can be read and typed again."""
    return float(f"{value:.3g}")
