"""Sparse rows as arrays, checked when they come back: kernels trust indices, one outside reads another's memory."""

from __future__ import annotations

import numpy as np

from fairmf.files import id_arrays
from fairmf.files.container import Arrays
from fairmf.files.strict_json import Malformed
from fairmf.interactions import Ids, Interactions, Rows
from fairmf.interactions.building import is_ascending


def to_arrays(name: str, data: Interactions) -> Arrays:
    """The entries of these interactions; their ids are stored by `id_arrays`."""
    rows = data.by_user
    arrays: Arrays = {f"{name}.indptr": rows.indptr, f"{name}.indices": rows.indices}
    if rows.weights is not None:
        arrays[f"{name}.weights"] = rows.weights
    return arrays


def from_arrays(name: str, n: int, m: int, users: Ids | None, items: Ids | None, arrays: Arrays) -> Interactions:
    """The interactions of n users and m items again. Takes what it uses out of `arrays`."""
    indptr, indices, weights = (arrays.pop(f"{name}.{part}", None) for part in ("indptr", "indices", "weights"))
    if indptr is None or indices is None or indices.dtype != np.int32 or indices.ndim != 1:
        raise Malformed(f"its {name} are incomplete")
    id_arrays.check_offsets(f"its {name}", indptr, n, len(indices))
    if weights is not None and (weights.dtype != np.float32 or weights.shape != indices.shape):
        raise Malformed(f"its {name} have no weight each")
    if weights is not None and not (np.isfinite(weights).all() and (weights > 0).all()):
        raise Malformed(f"its {name} have weights that are not numbers > 0")
    if not is_ascending(indices, indptr):
        raise Malformed(f"its {name} are not in order, or repeated")
    return Interactions(Rows(indptr, indices, weights), m, users, items)
