"""What a fit did, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class History:
    """One record per epoch (objective terms, residuals, seconds, ...) and how the fit ended.

    `verdict` is "converged" (the tolerance was met), "stopped" (a callback asked for it), "diverged" (a number was not
    finite any more), "interrupted" (Ctrl-C) or "ceiling" (all epochs ran).
    `kept_epoch` is the epoch whose factors the model holds (0: none).
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    verdict: str = "ceiling"
    reason: str = ""
    kept_epoch: int = 0
    final: dict[str, Any] = field(default_factory=dict)
    """After the last half-step: `seconds` it took, and the `objective` of the factors the model holds."""

    def __len__(self) -> int:
        return len(self.records)

    def column(self, path: str) -> list[Any]:
        """One quantity over the epochs, by dotted name: `history.column("objective.total")`; None where unrecorded."""
        return [_look_up(record, path) for record in self.records]

    @property
    def seconds(self) -> float:
        """Time spent in training (without callbacks and checks)."""
        return float(sum(record["seconds"] for record in self.records)) + float(self.final.get("seconds", 0.0))


def _look_up(record: dict[str, Any], path: str) -> Any:
    value: Any = record
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
