"""Show models as text and in notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairmf import html
from fairmf.params import changed_settings

if TYPE_CHECKING:
    from fairmf.models.fitted import FittedModel
    from fairmf.types import Record


def line(model: FittedModel) -> str:
    """Return a model in one line: the settings that differ from their defaults, and its sizes if it is fitted."""
    made = ", ".join(f"{name}={value!r}" for name, value in changed_settings(model).items())
    sizes = _sizes(model)
    return f"{type(model).__name__}({made})" + (f", {sizes}" if sizes else "")


def page(model: FittedModel) -> str:
    """Return a model as HTML: whether it is fitted, its sizes, settings, training and evenness."""
    changed = changed_settings(model)
    told: Record = {"settings": _listed(changed) or "the defaults"}
    fitted = model._fitted
    if fitted is None:
        return html.title(type(model).__name__, "not fitted") + html.facts(told)
    if changed.get("settings") == "auto":
        own = model.get_params()
        found = {
            name: value for name, value in fitted.settings.items() if value != own.get(name) and name != "settings"
        }
        told["chosen from the data"] = _listed(found) or "the defaults"
    if fitted.history.records:
        told["training"] = f"{len(fitted.history)} epochs in {fitted.history.seconds:.1f} s"
    told["evenness"] = "not calibrated" if fitted.path is None else "calibrated: recommend(..., evenness=0 to 1)"
    told["histories"] = "not stored" if fitted.interactions is None else f"{fitted.interactions.nnz:,} interactions"
    return html.title(type(model).__name__, _sizes(model)) + html.facts(told)


def _sizes(model: FittedModel) -> str:
    fitted = model._fitted
    if fitted is None:
        return ""
    return f"fitted to {len(fitted.user_factors):,} users x {len(fitted.item_factors):,} items"


def _listed(settings: Record) -> str:
    written = {name: f"{value:g}" if isinstance(value, float) else value for name, value in settings.items()}
    return ", ".join(f"{name} = {value}" for name, value in written.items())
