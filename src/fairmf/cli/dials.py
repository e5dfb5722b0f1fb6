"""Whether a model's dial can be turned, said before any work is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairmf.cli.failures import Problem


def check_dial(model: Any, path: Path, flag: str = "--fairness") -> None:
    """The model has a dial: it is not a mere list of popular items."""
    if not hasattr(model, "with_fairness"):
        raise Problem(f"{path} is a {type(model).__name__} model, which has no dial: {flag} has no meaning for it.")


def check_stored_users(model: Any, path: Path) -> None:
    """Its stored users can be turned, too."""
    fitted = model.fitted
    if fitted.interactions is None and fitted.user_sensitivity is None:
        raise Problem(
            f"{path} was stored without its users' histories, so its users cannot be dialled.",
            "fit the model without --no-histories",
        )
