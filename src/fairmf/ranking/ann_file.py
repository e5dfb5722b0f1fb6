"""The file of a nearest-neighbour index: what is in it, and whether it fits together (the file itself: fairmf.files).

It holds the vectors and their groups rather than faiss's own format: reading that executes a parser on untrusted bytes,
and what it reads depends on the version. Its content is {"probes": number, "item_ids": kind of the ids}.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fairmf.files import container, id_arrays
from fairmf.files.container import Arrays, Format
from fairmf.files.strict_json import Malformed
from fairmf.interactions import Ids

INDEX = Format("fairmf nearest-neighbour index", version=1)
DTYPES = {"item_vectors": "f4", "centroids": "f4", "assignment": "i4", "offsets": "f4"}
DIMENSIONS = {"item_vectors": 2, "centroids": 2, "assignment": 1, "offsets": 1}
OPTIONAL = ("offsets",)


def write(path: Path, arrays: Arrays, ids: Ids | None, probes: int) -> None:
    """Write the arrays of an index, named as in DTYPES, in one atomic step."""
    kind, own = id_arrays.to_arrays("item_ids", ids)
    container.write(path, INDEX, {"probes": probes, "item_ids": kind}, arrays | own)


def read(path: Path) -> dict[str, Any]:
    """The arguments of AnnIndex, checked; BrokenFile says what is wrong with the file."""
    content, arrays = container.read(path, INDEX)
    with container.reading(path, INDEX.name):
        return _checked(content, arrays)


def _checked(content: Any, arrays: Arrays) -> dict[str, Any]:
    if not isinstance(content, dict) or set(content) != {"probes", "item_ids"}:
        raise Malformed("its document has other parts than an index's")
    own = {name: _taken(name, arrays) for name in DTYPES}
    vectors, centroids, assignment, offsets = own.values()
    m, d = vectors.shape
    groups, width = centroids.shape
    fitting = width == d + 1 + (offsets is not None) and assignment.shape == (m,) and m > 0 and groups > 0 and d > 0
    if not fitting or (offsets is not None and offsets.shape != (m,)):
        raise Malformed("its arrays do not fit each other")
    if assignment.min() < 0 or assignment.max() >= groups:
        raise Malformed("an item is in a group that does not exist")
    probes = content["probes"]
    if type(probes) is not int or not 1 <= probes <= groups:
        raise Malformed(f"its probes must be from 1 to {groups}")
    ids = id_arrays.from_arrays("item_ids", content["item_ids"], m, arrays)
    if arrays:
        raise Malformed(f"it holds an array {next(iter(arrays))[:60]!r} that does not belong there")
    return own | {"ids": None if ids is None else ids.check("item"), "probes": probes}


def _taken(name: str, arrays: Arrays) -> Any:
    """One array out of `arrays`, of its kind and finite; None where it may be missing and is."""
    array = arrays.pop(name, None)
    if array is None and name in OPTIONAL:
        return None
    if array is None or array.ndim != DIMENSIONS[name]:
        raise Malformed(f"it has no {name}, or not in the right shape")
    if array.dtype != DTYPES[name] or not np.isfinite(array).all():
        raise Malformed(f"its {name} must hold finite numbers of type {DTYPES[name]}")
    return array
