"""What the JSON of a model file says, and whether it can be believed."""

from __future__ import annotations

import dataclasses
import math
from datetime import datetime, timezone
from typing import Any

from fairmf.errors import InvalidData
from fairmf.files import typed_values
from fairmf.files.strict_json import Malformed
from fairmf.models.fitted import Fitted
from fairmf.models.history import History
from fairmf.parameters import check_settings
from fairmf.version import versions

FIELDS = {
    "model": str,
    "parameters": dict,
    "settings": dict,
    "trained_fairness": (int, float),
    "fairness": (int, float),
    "extra": dict,
    "history": dict,
    "ids": dict,
    "interactions": bool,
    "data_fingerprint": (str, type(None)),
    "created": str,
    "versions": dict,
}
"""The content of a model file, part by part, and the JSON kind of each."""


def describe(model: Any, fitted: Fitted, ids: dict[str, str], fingerprint: str | None, interactions: bool) -> Any:
    """The content of a model's file, but for its arrays."""
    content = {
        "model": type(model).__name__,
        "parameters": parameters_of(model),
        "settings": fitted.settings,
        "trained_fairness": float(fitted.trained_fairness),
        "fairness": float(fitted.fairness),
        "extra": fitted.extra,
        "history": vars(fitted.history),
        "ids": ids,
        "interactions": interactions,
        "data_fingerprint": fingerprint,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": versions(),
    }
    return {name: encoded(name, value) for name, value in content.items()}


def parameters_of(model: Any) -> dict[str, Any]:
    """The hyper-parameters a model has now (those it was trained with are in its settings)."""
    return {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}


def encoded(name: str, value: Any) -> Any:
    """The JSON form of one part; InvalidData names the part that has none."""
    try:
        return typed_values.encode(value)
    except typed_values.NotStorable as error:
        raise InvalidData(f"The {name} of this model cannot be stored: it holds {error}.") from error


def check(content: Any) -> dict[str, Any]:
    """The content decoded, if it has exactly the parts of this format, each of its kind."""
    if not isinstance(content, dict) or set(content) != set(FIELDS):
        raise Malformed("its document has other parts than a model's")
    decoded = {}
    for name, kind in FIELDS.items():
        value = decoded[name] = typed_values.decode(content[name])
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):  # type: ignore[arg-type]
            raise Malformed(f"the {name!r} in its document is of the wrong kind")
    for name in ("trained_fairness", "fairness"):
        if not (math.isfinite(decoded[name]) and decoded[name] >= 0):
            raise Malformed(f"the {name!r} in its document must be a number >= 0")
    return decoded


def settings(model_class: Any, values: dict[str, Any]) -> dict[str, Any]:
    """All settings of a model class, those that the file does not name at their defaults, every one in its range."""
    known = [field.name for field in dataclasses.fields(model_class)]
    unknown = [name for name in values if name not in known]
    if unknown:
        raise Malformed(f"{model_class.__name__} has no setting {str(unknown[0])[:60]!r} in this version of fairmf")
    model = model_class(**values)
    check_settings(model)
    return parameters_of(model)


def extra(model_class: Any, values: dict[str, Any]) -> dict[str, float]:
    """The further numbers a model class keeps for prediction."""
    wanted = getattr(model_class, "kept", ())
    if set(values) != set(wanted) or not all(type(x) is float and math.isfinite(x) for x in values.values()):
        raise Malformed(f"{model_class.__name__} needs the numbers {', '.join(wanted) or 'none'}; the file has others")
    return values


def history(values: dict[str, Any]) -> History:
    """The history again."""
    kinds = {"records": list, "verdict": str, "reason": str, "kept_epoch": int, "final": dict}
    if set(values) != set(kinds) or not all(isinstance(values[name], kind) for name, kind in kinds.items()):
        raise Malformed("its history is incomplete")
    for record in [*values["records"], {"seconds": 0.0, **values["final"]}]:
        if not isinstance(record, dict) or not isinstance(record.get("seconds"), (int, float)):
            raise Malformed("its history holds something else than records of epochs")
    return History(**values)
