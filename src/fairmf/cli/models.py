"""Stored models, as verbs open them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairmf.cli.failures import Problem

if TYPE_CHECKING:
    from fairmf.cli.session import Session


def load_fitted(path: Path, session: Session) -> Any:
    """The model in the file."""
    from fairmf.models import load_model
    from fairmf.splitting.persistence import is_split

    if is_split(path):
        raise Problem(f"{path} is a split, not a model.", "the model comes first, then the split")
    if path.is_dir():
        raise Problem(f"{path} is a folder; a model is one file.", "fairmf fit DATA -o model.fairmf makes one")
    if not path.exists():
        raise Problem(f"There is no model {path}.", "fairmf fit DATA -o model.fairmf makes one")
    with session.busy("load"):
        return load_model(path)
