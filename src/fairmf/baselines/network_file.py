"""Save and load autoencoders: network, users' vectors, ids and histories, in the container of fairmf.io."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairmf.data import stored_arrays
from fairmf.errors import InvalidData
from fairmf.io import container, values
from fairmf.io.container import Arrays, Format
from fairmf.io.strict_json import Malformed
from fairmf.models import model_file
from fairmf.models.model_file import all_finite
from fairmf.types import Record

if TYPE_CHECKING:
    from fairmf.baselines.autoencoder import Autoencoder


Model = TypeVar("Model", bound="Autoencoder")

NETWORK = Format("fairmf autoencoder", version=2)
PARTS = {"model": str, "settings": dict, "history": dict, "ids": dict, "interactions": bool}


def save_network(model: Autoencoder, path: str | os.PathLike[str], *, interactions: bool) -> None:
    """Write the model to a file (`Autoencoder.save`)."""
    fitted = model.fitted
    arrays: Arrays = {f"network.{name}": array for name, array in model._fitted_network().items()}
    arrays |= {"user_factors": fitted.user_factors, "popularity": fitted.popularity}
    if fitted.item_offsets is not None:
        arrays["item_offsets"] = fitted.item_offsets
    for name, array in arrays.items():
        if not all_finite(array):
            raise InvalidData(f"This model was not saved: its {name} hold numbers that are not finite.")
    kinds = {}
    for side, ids in (("user_ids", fitted.user_ids), ("item_ids", fitted.item_ids)):
        kinds[side], own = stored_arrays.ids_to_arrays(side, ids)
        arrays |= own
    data = fitted.interactions if interactions else None
    if data is not None:
        arrays |= stored_arrays.rows_to_arrays("interactions", data)
    content = {
        "model": type(model).__name__, "settings": fitted.settings, "history": vars(fitted.history), "ids": kinds,
        "interactions": data is not None,
    }  # fmt: skip
    weighting, own = stored_arrays.weighting_to_arrays(fitted.weighting)
    arrays |= own
    content |= weighting
    encoded = {name: model_file.encoded(name, value) for name, value in content.items()}
    container.write(Path(path), NETWORK, encoded, arrays, stored_arrays.version_for(encoded))


def load_network(model_class: type[Model], path: str | os.PathLike[str]) -> Model:
    """Read a model from a file (`Autoencoder.load`)."""
    path = Path(path)
    content, arrays = container.read(path, NETWORK)
    with container.reading(path, NETWORK.name):
        return _model(model_class, _checked(content), arrays)


def _checked(content: object) -> Record:
    if not isinstance(content, dict) or set(content) - {"weighting"} != set(PARTS):
        raise Malformed("its document has other parts than an autoencoder's")
    decoded = {name: values.decode(value) for name, value in content.items()}
    for name, kind in PARTS.items():
        if not isinstance(decoded[name], kind):
            raise Malformed(f"the {name!r} in its document is of the wrong kind")
    return decoded


def _model(model_class: type[Model], content: Record, arrays: Arrays) -> Model:
    if content["model"] != model_class.__name__:
        # The file may hold anything here, so only a part of it is shown.
        raise Malformed(f"it holds a {content['model'][:60]}, not a {model_class.__name__}")
    model = model_class(**model_file.stored_settings(model_class, content["settings"]))
    popularity, users = arrays.pop("popularity", None), arrays.pop("user_factors", None)
    if popularity is None or popularity.ndim != 1 or popularity.dtype != np.float64 or not all_finite(popularity):
        raise Malformed("it has no popularity of items")
    m = len(popularity)
    network = {name: _layer(name, shape, arrays) for name, shape in model._shapes(m).items()}
    width = network["decoder.weight"].shape[1] + 1  # the extra column is the 1 for the items' biases
    if (
        users is None
        or users.ndim != 2
        or users.shape[1] != width
        or users.dtype != np.float32
        or not all_finite(users)
    ):
        raise Malformed("it has no user_factors, or not in the right shape")
    n = len(users)
    if set(content["ids"]) != {"user_ids", "item_ids"}:
        raise Malformed("it does not say what kinds of ids it has")
    ids = {side: stored_arrays.ids_from_arrays(side, content["ids"][side], size, arrays) for side, size in
           (("user_ids", n), ("item_ids", m))}  # fmt: skip
    weighting, data = stored_arrays.weighting_from_arrays(content, m, arrays), None
    if content["interactions"]:
        data = stored_arrays.rows_from_arrays("interactions", n, m, ids["user_ids"], ids["item_ids"], arrays, weighting)
    offsets = arrays.pop("item_offsets", None)
    if offsets is not None and (offsets.shape != (m,) or offsets.dtype.kind != "f" or not all_finite(offsets)):
        raise Malformed("its item_offsets are not a finite number for each item")
    if arrays:
        raise Malformed(f"it holds an array {next(iter(arrays))[:60]!r} that does not belong there")
    model._restore(network, users, popularity, ids, model_file.history(content["history"]), data)
    model._fitted = dataclasses.replace(model.fitted, item_offsets=offsets, weighting=weighting)
    return model


def _layer(name: str, shape: tuple[int, ...], arrays: Arrays) -> NDArray[np.float32]:
    array = arrays.pop(f"network.{name}", None)
    if array is None or array.shape != shape or array.dtype != np.float32 or not all_finite(array):
        raise Malformed(f"its network has no {name} of {' x '.join(map(str, shape))} finite numbers")
    return array
