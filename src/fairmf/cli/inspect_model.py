"""Describe a stored model for `fairmf inspect`: what it was trained on and with, how it serves, what evenness means."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from fairmf.cli.level_flags import level_facts
from fairmf.cli.sources import data_weighting, load_fitted
from fairmf.cli.terminal import marked
from fairmf.types import Record

if TYPE_CHECKING:
    from fairmf.cli.session import Session
    from fairmf.models.factor_model import FactorModel
    from fairmf.models.fitted_features import FittedFeatures

SHOWN = (
    "factors", "regularization", "regularization_exponent", "unobserved_weight", "item_balance", "user_balance",
    "epochs", "solver",
)  # fmt: skip
"""Settings that the table shows; --json has all of them."""
EVENNESS = (0.0, 0.25, 0.5, 0.75, 1.0)


def is_model(source: str) -> bool:
    """Return whether the source is the file of a model."""
    return source.endswith(".fairmf") and Path(source).is_file()


def inspect_model(path: Path, session: Session) -> None:
    """Print what the file holds."""
    facts = describe_model(load_fitted(path, session))
    session.result |= {"file": str(path), **facts}
    session.show(*_tables(facts))


def describe_model(model: FactorModel) -> Record:
    """Return the facts of a model as plain values."""
    fitted = model.fitted
    level = {name: value for name, value in level_facts(model, None).items() if name != "evenness"}
    return {
        "model": type(model).__name__,
        "users": model.n_users,
        "items": model.n_items,
        "settings": dict(fitted.settings),
        "trained_fairness": fitted.trained_fairness,
        "level": level,
        "path": None if fitted.path is None else _path(model),
        "offsets": fitted.item_offsets is not None,
        "histories": fitted.interactions is not None,
        "weighting": data_weighting(model),
        **{f"{kind}_features": _features(getattr(fitted, f"{kind}_features")) for kind in ("item", "user")},
        "created": fitted.provenance.get("created"),
    }


def _features(side: FittedFeatures | None) -> Record | None:
    """Return how many features there are, in which columns, and how many rows are served from them alone."""
    if side is None:
        return None
    columns = [] if side.encoder is None else [column.name for column in side.encoder.columns]
    return {"features": len(side.map), "columns": columns, "without_interactions": int((~side.counted).sum())}


def _path(model: FactorModel) -> Record:
    path = model.fitted.path
    assert path is not None
    rows = []
    for evenness in EVENNESS:
        level, (gini, quality) = path.level(evenness), path.expected(evenness)
        rows.append({"evenness": evenness, **dataclasses.asdict(level), "gini": gini, "quality": quality})
    return {**path.to_dict(), "levels": rows}


def _tables(facts: Record) -> list[Table | str]:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column()
    table.add_row("model", facts["model"])
    table.add_row("trained on", f"{facts['users']:,} users, {facts['items']:,} items")
    known = [f"{name} {facts['settings'][name]}" for name in SHOWN if name in facts["settings"]]
    for start in range(0, len(known), 4):
        table.add_row("settings" if start == 0 else "", marked(", ".join(known[start : start + 4])))
    table.add_row("trained fairness", f"{facts['trained_fairness']:g}")
    table.add_row("serves with", ", ".join(f"{name} {value:.3g}" for name, value in facts["level"].items()))
    if facts["weighting"] is not None:
        table.add_row("data weighted by", facts["weighting"])
    for kind in ("item", "user"):
        if (side := facts[f"{kind}_features"]) is not None:
            columns = f" ({', '.join(side['columns'])})" if side["columns"] else ""
            alone = f"; {side['without_interactions']:,} {kind}s have nothing else" * (side["without_interactions"] > 0)
            table.add_row(f"{kind} features", marked(f"{side['features']:,}{columns}{alone}"))
    stored = [word for word in ("histories", "offsets") if facts[word]]
    table.add_row("also stored", ", ".join(stored) or "nothing")
    if facts["created"] is not None:
        table.add_row("created", marked(facts["created"]))
    if facts["path"] is None:
        table.add_row("evenness", "not calibrated: fairmf calibrate MODEL SPLIT")
        return [table]
    return [table, _path_table(facts["path"]), _path_users(facts["path"])]


def _path_table(path: Record) -> Table:
    names = ("fairness", "flatten", "discount", "lift")
    table = Table()
    for name in ("evenness", *names, f"gini@{path['at']}", path["quality"]):
        table.add_column(marked(name), justify="right")
    for row in path["levels"]:
        measured = (f"{row['gini']:.4f}", f"{row['quality']:.4f}")
        table.add_row(f"{row['evenness']:g}", *(f"{row[name]:.3g}" for name in names), *measured)
    return table


def _path_users(path: Record) -> str:
    return f"Gini and quality as calibrated, for {path['n_users']:,} users; between measured levels they are estimates."
