"""A file into a fitted model. Quick: nothing is compiled, and Numba is not even imported."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from fairmf.backends import available
from fairmf.files import container, id_arrays, sparse_arrays
from fairmf.files.container import Arrays
from fairmf.files.strict_json import Malformed
from fairmf.models.factor_model import FactorModel
from fairmf.models.fitted import Fitted
from fairmf.models.persistence import document
from fairmf.models.persistence.saving import FACTORS, MODEL, NAMES, OPTIONAL, all_finite


def load_model(path: str | os.PathLike[str], *, mmap: bool = False, verify: bool | None = None) -> Any:
    """The model that `model.save(path)` stored; it answers with the same bits.

    `mmap=True` leaves the arrays in the file, to be read when they are needed and shared by all processes that do the
    same. `verify` says whether the arrays' checksums are compared, which reads the whole file: by default they are, but
    not with `mmap=True`. Sizes, settings, ids and interactions are always checked. BrokenFile says what is wrong with a
    file that cannot be used. Nothing in a file is ever executed.

    >>> import tempfile, os
    >>> from fairmf import IALS, load_model, synthetic
    >>> model = IALS(factors=4, epochs=2).fit(synthetic(n_users=300, n_items=200, n_interactions=6000))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(os.path.join(folder, "model.fairmf"))
    ...     load_model(os.path.join(folder, "model.fairmf")).user_factors.shape
    (300, 4)
    """
    path = Path(path)
    content, arrays = container.read(path, MODEL, mmap=mmap, verify=not mmap if verify is None else verify)
    with container.reading(path, MODEL.name):
        return _model(document.check(content), arrays, check_numbers=not mmap)


def _model(content: dict[str, Any], arrays: Arrays, check_numbers: bool) -> FactorModel:
    name = content["model"]
    if name not in NAMES:
        raise Malformed(f"it holds a model of the unknown class {name[:60]!r}")
    model_class = getattr(importlib.import_module("fairmf.models"), name)
    model: FactorModel = model_class(**document.settings(model_class, content["parameters"]))
    settings = document.settings(model_class, content["settings"]) if content["settings"] else {}
    _put_where_it_runs(model, settings)
    own = {name: arrays.pop(name, None) for name in FACTORS}
    n, m = _check_factors(own, settings.get("factors", 1), check_numbers)
    if set(content["ids"]) != {"user_ids", "item_ids"}:
        raise Malformed("it does not say what kinds of ids it has")
    users = id_arrays.from_arrays("user_ids", content["ids"]["user_ids"], n, arrays)
    items = id_arrays.from_arrays("item_ids", content["ids"]["item_ids"], m, arrays)
    # Checked whatever `verify` says.
    data = sparse_arrays.from_arrays("interactions", n, m, users, items, arrays) if content["interactions"] else None
    if arrays:
        raise Malformed(f"it holds an array {next(iter(arrays))[:60]!r} that does not belong there")
    model._fitted = Fitted(
        **own,  # type: ignore[arg-type]
        user_ids=users,
        item_ids=items,
        trained_fairness=content["trained_fairness"],
        fairness=content["fairness"],
        history=document.history(content["history"]),
        settings=settings,
        extra=document.extra(model_class, content["extra"]),
        interactions=data,
        provenance={name: content[name] for name in ("created", "versions", "data_fingerprint")},
    )
    return model


def _put_where_it_runs(model: FactorModel, settings: dict[str, Any]) -> None:
    """Let a model that was trained on a device answer without one."""
    there = settings.get("backend", model.backend)
    here = available(there)
    if here != there:
        model.backend = settings["backend"] = here
        model.factor_dtype = settings["factor_dtype"] = "float32"  # type: ignore[attr-defined]


def _check_factors(own: dict[str, Any], d: int, check_numbers: bool) -> tuple[int, int]:
    """Every array has the shape that the others and the settings ask for; returns the numbers of users and items."""
    for name in ("user_factors", "item_factors"):
        if own[name] is None or own[name].ndim != 2:
            raise Malformed(f"it has no {name}")
    n, m = len(own["user_factors"]), len(own["item_factors"])
    shapes = {
        "user_factors": (n, d), "item_factors": (m, d), "popularity": (m,), "mean_user": (d,), "merit": (d,),
        "fairness_weights": (m,), "item_offsets": (m,), "user_sensitivity": (n, d),
    }  # fmt: skip
    for name, shape in shapes.items():
        array = own[name]
        if array is None and name in OPTIONAL:
            continue
        kinds = ("f8",) if name in ("popularity", "mean_user", "merit", "fairness_weights") else ("f4", "f8")
        if array is None or array.shape != shape or array.dtype.str[1:] not in kinds:
            raise Malformed(f"its {name} are not {' x '.join(map(str, shape))} floating-point numbers")
        if (check_numbers or array.ndim == 1) and not all_finite(array):
            raise Malformed(f"its {name} hold numbers that are not finite")
    weights = own["fairness_weights"]
    if weights is not None and (weights < 0).any():
        raise Malformed("its fairness_weights hold numbers below 0")
    return n, m
