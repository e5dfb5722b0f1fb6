"""A fitted model into a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairmf.errors import InvalidData, InvalidParameter
from fairmf.files import container, id_arrays, sparse_arrays
from fairmf.files.container import Arrays, Format
from fairmf.models.dial import user_sensitivity as sensitivity_of
from fairmf.models.fitted import Fitted
from fairmf.models.persistence import document

if TYPE_CHECKING:
    from fairmf.models.factor_model import FactorModel

MODEL = Format("fairmf model", version=1)
NAMES = ("FairALS", "FiADMM", "IALS", "Popularity")
"""The models a file may hold."""
OPTIONAL = ("fairness_weights", "item_offsets", "user_sensitivity")
FACTORS = ("user_factors", "item_factors", "popularity", "mean_user", "merit", *OPTIONAL)
"""The arrays of `Fitted`, by the names they have there."""


def save_model(
    model: FactorModel,
    path: str | os.PathLike[str],
    *,
    interactions: bool = True,
    user_sensitivity: bool | None = None,
) -> None:
    """See FactorModel.save."""
    fitted = model.fitted
    name = type(model).__name__
    if name not in NAMES or not type(model).__module__.startswith("fairmf."):
        raise InvalidParameter(f"Files hold fairmf's own models ({', '.join(NAMES)}). Got a {name} instead.")
    arrays = _fitted_arrays(model, fitted, user_sensitivity)
    kinds = {}
    for side, ids in (("user_ids", fitted.user_ids), ("item_ids", fitted.item_ids)):
        kinds[side], own = id_arrays.to_arrays(side, ids)
        arrays |= own
    data = fitted.interactions
    fingerprint = fitted.provenance.get("data_fingerprint") if data is None else data.fingerprint()
    if data is not None and interactions:
        arrays |= sparse_arrays.to_arrays("interactions", data)
    content = document.describe(model, fitted, kinds, fingerprint, "interactions.indptr" in arrays)
    container.write(Path(path), MODEL, content, arrays)


def _fitted_arrays(model: Any, fitted: Fitted, user_sensitivity: bool | None) -> Arrays:
    arrays = {name: getattr(fitted, name) for name in FACTORS if getattr(fitted, name) is not None}
    if user_sensitivity is False:
        arrays.pop("user_sensitivity", None)
    elif user_sensitivity and "user_sensitivity" not in arrays:
        arrays["user_sensitivity"] = sensitivity_of(model)
    for name, array in arrays.items():
        # Refused here, where there is still a model to mend, rather than by whoever loads the file.
        if not all_finite(array):
            raise InvalidData(f"This model was not saved: its {name} hold numbers that are not finite.")
    return arrays


def all_finite(array: np.ndarray[Any, Any]) -> bool:
    """Whether there is no NaN or infinity, without an array of flags as long as the array."""
    return all(bool(np.isfinite(array[a : a + 65536]).all()) for a in range(0, len(array), 65536))
