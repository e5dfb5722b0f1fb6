"""Save a fitted model to a file, and load it again without compiling anything or importing Numba."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import shutil
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from fairmf.backends.registry import available
from fairmf.data import stored_arrays
from fairmf.data.weighting import Balance
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.io import container
from fairmf.io.container import Arrays, Format
from fairmf.io.strict_json import Malformed
from fairmf.io.values import NotStorable, decode, encode
from fairmf.lazy import lazy_module
from fairmf.models.evenness import EvennessPath, Level
from fairmf.models.factor_model import FactorModel
from fairmf.models.fitted import Fitted, FittedModel, History
from fairmf.models.registry import factor_models
from fairmf.params import absent_values, check_settings, settings_of
from fairmf.types import Array, Json, Record
from fairmf.version import versions

if TYPE_CHECKING:
    from fairmf.models import dial, fitted_features
else:
    fitted_features = lazy_module("fairmf.models.fitted_features")  # most models have no features
    dial = lazy_module("fairmf.models.dial")  # most models are saved without

# -- the JSON document of a model file --------------------------------------------------------------------------------

FIELDS: dict[str, type | tuple[type, ...]] = {
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
"""The parts of the document, and the type of each."""
OPTIONAL_FIELDS: dict[str, type | tuple[type, ...]] = {
    "weighting": dict, "level": dict, "path": dict, "features": dict,
}  # fmt: skip
"""Parts that only some files have: how the data were weighted, its level, the path of evenness, encoders."""


def describe(
    model: FittedModel, fitted: Fitted, ids: dict[str, str], fingerprint: str | None, interactions: bool
) -> dict[str, Json]:
    """Return the document of a model's file: all but its arrays."""
    content: dict[str, object] = {
        "model": type(model).__name__,
        "parameters": settings_of(model),  # those it has now; those it was trained with are its "settings"
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
    if fitted.flatten or fitted.discount or fitted.lift:
        content["level"] = {"flatten": fitted.flatten, "discount": fitted.discount, "lift": fitted.lift}
    if fitted.path is not None:
        content["path"] = fitted.path.to_dict()
    features = {name: side for name in SIDES if (side := getattr(fitted, name)) is not None}
    if features:
        content["features"] = {name: side.describe() for name, side in features.items()}
    return {name: encoded(name, value) for name, value in content.items()}


def encoded(name: str, value: object) -> Json:
    """Return one part as JSON; raise InvalidData with its name if that is not possible."""
    try:
        written: Json = encode(value)
        return written
    except NotStorable as error:
        raise InvalidData(f"The {name} of this model cannot be stored: it holds {error}.") from error


def check(content: object) -> Record:
    """Return the document decoded; raise Malformed unless it has exactly the parts of this format, of their types."""
    if not isinstance(content, dict) or set(content) - set(OPTIONAL_FIELDS) != set(FIELDS):
        raise Malformed("its document has other parts than a model's")
    decoded = {}
    for name, kind in (FIELDS | {name: kind for name, kind in OPTIONAL_FIELDS.items() if name in content}).items():
        value = decoded[name] = decode(content[name])
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise Malformed(f"the {name!r} in its document is of the wrong kind")
    for name in ("trained_fairness", "fairness"):
        if not (math.isfinite(decoded[name]) and decoded[name] >= 0):
            raise Malformed(f"the {name!r} in its document must be a number >= 0")
    return decoded


def evenness(content: Record) -> Record:
    """Return the stored level and path as fields of `Fitted`; raise Malformed if they cannot be those."""
    level = content.get("level", {"flatten": 0.0, "discount": 0.0, "lift": 0.0})
    try:
        if set(level) - {"lift"} != {"flatten", "discount"}:
            raise InvalidParameter("a level has other strengths")
        own = Level(None, **level)
        path = EvennessPath.from_dict(content["path"]) if "path" in content else None
    except InvalidParameter as error:
        raise Malformed(f"its level or path of evenness is not one: {error}") from error
    return {"flatten": own.flatten, "discount": own.discount, "lift": own.lift, "path": path}


def stored_settings(model_class: type[FactorModel], values: Record) -> Record:
    """Return all settings of a model class, and check each.

    Settings that are newer than the file have the value by which the model is what it was.
    """
    known = [field.name for field in dataclasses.fields(model_class)]
    unknown = [name for name in values if name not in known]
    if unknown:
        raise Malformed(f"{model_class.__name__} has no setting {str(unknown[0])[:60]!r} in this version of fairmf")
    model = model_class(**{**absent_values(model_class), **values})
    check_settings(model)
    return settings_of(model)


def extra(model_class: type[FactorModel], values: Record) -> dict[str, float]:
    """Return the further numbers that a model class keeps for prediction; raise Malformed if they are others."""
    wanted = getattr(model_class, "kept", ())
    if set(values) != set(wanted) or not all(type(x) is float and math.isfinite(x) for x in values.values()):
        raise Malformed(f"{model_class.__name__} needs the numbers {', '.join(wanted) or 'none'}; the file has others")
    return values


def history(values: Record) -> History:
    """Build the history from its stored parts; raise Malformed if one is missing or of the wrong type."""
    kinds = {"records": list, "verdict": str, "reason": str, "kept_epoch": int, "final": dict}
    if set(values) != set(kinds) or not all(isinstance(values[name], kind) for name, kind in kinds.items()):
        raise Malformed("its history is incomplete")
    for record in [*values["records"], {"seconds": 0.0, **values["final"]}]:
        if not isinstance(record, dict) or not isinstance(record.get("seconds"), (int, float)):
            raise Malformed("its history holds something else than records of epochs")
    return History(**values)


# -- saving -----------------------------------------------------------------------------------------------------------

SIDES = ("user_features", "item_features")
MODEL = Format("fairmf model", version=3)
OPTIONAL = ("fairness_weights", "item_offsets", "user_sensitivity", "item_counts", "item_spread", "item_prices")
FACTORS = ("user_factors", "item_factors", "popularity", "mean_user", "merit", *OPTIONAL)
"""The arrays of `Fitted`, by the names they have there."""


def save_model(
    model: FittedModel,
    path: str | os.PathLike[str],
    *,
    interactions: bool = True,
    user_sensitivity: bool | None = None,
) -> None:
    """Write a fitted model to a file; see `FactorModel.save`."""
    fitted = model.fitted
    name, known = type(model).__name__, factor_models()
    if name not in known or type(model).__module__ != known[name].module:
        raise InvalidParameter(f"Files hold fairmf's own models ({', '.join(known)}). Got a {name} instead.")
    arrays = _fitted_arrays(model, fitted, user_sensitivity)
    kinds = {}
    for side, ids in (("user_ids", fitted.user_ids), ("item_ids", fitted.item_ids)):
        kinds[side], own = stored_arrays.ids_to_arrays(side, ids)
        arrays |= own
    data = fitted.interactions
    fingerprint = fitted.provenance.get("data_fingerprint") if data is None else data.given_fingerprint()
    if data is not None and interactions:
        arrays |= stored_arrays.rows_to_arrays("interactions", data)
    weighting, own = stored_arrays.weighting_to_arrays(fitted.weighting)
    arrays |= own
    for side in SIDES:
        if getattr(fitted, side) is not None:
            arrays |= getattr(fitted, side).to_arrays(side)
    content = describe(model, fitted, kinds, fingerprint, "interactions.indptr" in arrays)
    content |= {name: encoded(name, value) for name, value in weighting.items()}
    container.write(Path(path), MODEL, content, arrays)


def _fitted_arrays(model: FittedModel, fitted: Fitted, user_sensitivity: bool | None) -> Arrays:
    arrays = {name: getattr(fitted, name) for name in FACTORS if getattr(fitted, name) is not None}
    if user_sensitivity is False:
        arrays.pop("user_sensitivity", None)
    elif user_sensitivity and "user_sensitivity" not in arrays:
        arrays["user_sensitivity"] = dial.user_sensitivity(model)
    for name, array in arrays.items():
        # Refuse now, while the model can still be corrected, rather than when the file is loaded.
        if not all_finite(array):
            raise InvalidData(f"This model was not saved: its {name} hold numbers that are not finite.")
    return arrays


def all_finite(array: Array) -> bool:
    """Return whether there is no NaN or infinity; in blocks, to save the memory of a flag per number."""
    return all(bool(np.isfinite(array[a : a + 65536]).all()) for a in range(0, len(array), 65536))


# -- loading ----------------------------------------------------------------------------------------------------------


def save_to(file: BinaryIO, model: FittedModel, **options: Any) -> None:
    """Write a fitted model to an open binary file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.fairmf"
        save_model(model, path, **options)
        with path.open("rb") as written:
            shutil.copyfileobj(written, file)


def load_model(path: str | os.PathLike[str] | BinaryIO, *, mmap: bool = False, verify: bool | None = None) -> Any:
    """Load the model that `model.save(path)` stored; it answers with the same bits.

    Nothing in a file is ever executed. Sizes, settings, ids and interactions are always checked.

    Parameters
    ----------
    path
        A model file, or a binary file that is open for reading (not with `mmap`).
    mmap
        Leave the arrays in the file. They are read when needed, and shared by all processes that do the same.
    verify
        Compare the arrays' checksums, which reads the whole file. None compares them unless `mmap` is set.

    Returns
    -------
    A fitted model of the class that was saved: FairALS, IALS, FiADMM or Popularity.

    Raises
    ------
    BrokenFile
        If the file is damaged or is not a model file; the message says what is wrong.

    Examples
    --------
    >>> import tempfile, os
    >>> from fairmf import IALS, load_model, synthetic
    >>> model = IALS(factors=4, epochs=2).fit(synthetic(n_users=300, n_items=200, n_interactions=6000))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(os.path.join(folder, "model.fairmf"))
    ...     load_model(os.path.join(folder, "model.fairmf")).user_factors.shape
    (300, 4)
    """
    if not isinstance(path, (str, os.PathLike)):
        if mmap:
            raise InvalidParameter("mmap=True needs the path of a file, not an open file.", parameter="mmap")
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "model.fairmf"
            with copy.open("wb") as written:
                shutil.copyfileobj(path, written)
            return load_model(copy, verify=verify)
    path = Path(path)
    content, arrays = container.read(path, MODEL, mmap=mmap, verify=not mmap if verify is None else verify)
    with container.reading(path, MODEL.name):
        return _model(check(content), arrays, check_numbers=not mmap)


def _model(content: Record, arrays: Arrays, check_numbers: bool) -> FactorModel:
    """Build the model from a checked document and the arrays, and check that these fit together."""
    name = content["model"]
    if name not in factor_models():
        raise Malformed(f"it holds a model of the unknown class {name[:60]!r}")
    model_class = factor_models()[name].load()
    model: FactorModel = model_class(**stored_settings(model_class, content["parameters"]))
    settings = stored_settings(model_class, content["settings"]) if content["settings"] else {}
    _put_where_it_runs(model, settings)  # before anything asks for a backend that is not here
    own = {name: arrays.pop(name, None) for name in FACTORS}
    n, m = _check_factors(own, settings.get("factors", 1), check_numbers)
    if set(content["ids"]) != {"user_ids", "item_ids"}:
        raise Malformed("it does not say what kinds of ids it has")
    users = stored_arrays.ids_from_arrays("user_ids", content["ids"]["user_ids"], n, arrays)
    items = stored_arrays.ids_from_arrays("item_ids", content["ids"]["item_ids"], m, arrays)
    weighting = stored_arrays.weighting_from_arrays(content, m, arrays)
    data = None
    if content["interactions"]:
        data = stored_arrays.rows_from_arrays("interactions", n, m, users, items, arrays, weighting)
        if isinstance(weighting, Balance) and content["data_fingerprint"] is not None:
            data._given = functools.partial(str, content["data_fingerprint"])  # a model can be pickled with it
    sides = _features(content, n, m, settings.get("factors", 1), arrays)
    if arrays:
        raise Malformed(f"it holds an array {next(iter(arrays))[:60]!r} that does not belong there")
    model._fitted = Fitted(
        **own,  # type: ignore[arg-type]
        user_ids=users,
        item_ids=items,
        trained_fairness=content["trained_fairness"],
        fairness=content["fairness"],
        history=history(content["history"]),
        settings=settings,
        extra=extra(model_class, content["extra"]),
        interactions=data,
        weighting=weighting,
        **evenness(content),
        **sides,
        provenance={name: content[name] for name in ("created", "versions", "data_fingerprint")},
    )
    return model


def _features(content: Record, n: int, m: int, d: int, arrays: Arrays) -> Record:
    """Rebuild the features of users and items, whose arrays are removed from `arrays`; none for most models."""
    stored = content.get("features", {})
    if not set(stored) <= set(SIDES):
        raise Malformed("it has features of neither users nor items")
    sizes = {"user_features": n, "item_features": m}
    if not stored:  # without loading the code for it
        return {}
    rebuilt = fitted_features.FittedFeatures.from_arrays
    return {name: rebuilt(name, stored[name], sizes[name], d, arrays) for name in stored}


def _put_where_it_runs(model: FactorModel, settings: Record) -> None:
    """Set the backend to "cpu" for a model that was trained on a device which this machine does not have."""
    there = settings.get("backend", model.backend)
    here = available(there)
    if here != there:
        model.backend = settings["backend"] = here
        model.factor_dtype = settings["factor_dtype"] = "float32"  # type: ignore[attr-defined]


def _check_factors(own: dict[str, Array | None], d: int, check_numbers: bool) -> tuple[int, int]:
    """Raise Malformed unless the arrays fit each other and the settings; return the numbers of users and items."""
    sizes = []
    for name in ("user_factors", "item_factors"):
        array = own[name]
        if array is None or array.ndim != 2:
            raise Malformed(f"it has no {name}")
        sizes.append(len(array))
    n, m = sizes
    shapes = {
        "user_factors": (n, d), "item_factors": (m, d), "popularity": (m,), "mean_user": (d,), "merit": (d,),
        "fairness_weights": (m,), "item_offsets": (m,), "user_sensitivity": (n, d), "item_counts": (m,),
        "item_spread": (m,), "item_prices": (m,),
    }  # fmt: skip
    for name, shape in shapes.items():
        array = own[name]
        if array is None and name in OPTIONAL:
            continue
        kinds = (
            ("f4", "f8") if name in ("user_factors", "item_factors", "item_offsets", "user_sensitivity") else ("f8",)
        )
        if array is None or array.shape != shape or array.dtype.str[1:] not in kinds:
            raise Malformed(f"its {name} are not {' x '.join(map(str, shape))} floating-point numbers")
        # With mmap, large arrays are not read at all; vectors are small enough to check always.
        if (check_numbers or array.ndim == 1) and not all_finite(array):
            raise Malformed(f"its {name} hold numbers that are not finite")
    for name in ("fairness_weights", "item_counts", "item_spread", "item_prices"):
        values = own[name]
        if values is not None and (values < 0).any():
            raise Malformed(f"its {name} hold numbers below 0")
    return n, m
