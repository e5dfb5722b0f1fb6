"""The file of a nearest-neighbour index: one safetensors file of plain arrays and a few words of JSON.

It holds the vectors and their groups rather than faiss's own format: reading that executes a parser on untrusted bytes,
and what it reads depends on the version. A SHA-256 over all of it tells a flipped bit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import BrokenFile, InvalidData
from fairmf.interactions import Ids

FORMAT = "fairmf-ann"
VERSION = 1
Arrays = dict[str, NDArray[Any]]


def write(path: Path, arrays: Arrays, ids: Ids | None, probes: int) -> None:
    """Write under a temporary name beside `path`, flush to the disk, rename: a reader never sees half a file."""
    from safetensors.numpy import save_file

    arrays = arrays | ({} if ids is None else {"ids": _encode_ids(ids)})
    words = {"format": FORMAT, "version": VERSION, "probes": probes, "ids": None if ids is None else _kind(ids)}
    header = {"index": json.dumps(words), "sha256": _digest(arrays, json.dumps(words))}
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    try:
        save_file({name: np.ascontiguousarray(values) for name, values in arrays.items()}, part, metadata=header)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def read(path: Path) -> dict[str, Any]:
    """The arguments of AnnIndex, checked; BrokenFile says what is wrong with the file."""
    arrays, header = _open(path)
    try:
        text = header["index"]
        words = json.loads(text)
        named, version = words["format"], words["version"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise BrokenFile(f"{path} is not a fairmf nearest-neighbour index.") from error
    if named != FORMAT:
        raise BrokenFile(f"{path} is not a fairmf nearest-neighbour index.")
    if version != VERSION:
        raise BrokenFile(f"{path} has format version {version!r}; this fairmf reads {VERSION}.")
    if header.get("sha256") != _digest(arrays, text):
        raise BrokenFile(f"{path} is damaged: its checksum does not match its content.")
    try:
        return _checked(arrays, words)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise BrokenFile(f"{path} is damaged: {error}") from error


def _open(path: Path) -> tuple[Arrays, dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    # TypeError, AttributeError: a number type that NumPy does not have.
    except (SafetensorError, ValueError, TypeError, AttributeError, OSError) as error:
        raise BrokenFile(f"{path} is damaged or not a fairmf nearest-neighbour index: {error}") from error


def _checked(arrays: Arrays, words: dict[str, Any]) -> dict[str, Any]:
    vectors, centroids, assignment = (arrays[name] for name in ("item_vectors", "centroids", "assignment"))
    offsets, probes = arrays.get("offsets"), words["probes"]
    m, d = vectors.shape
    groups, width = centroids.shape
    for name, kind in {"item_vectors": "f4", "centroids": "f4", "assignment": "i4", "offsets": "f4"}.items():
        if name in arrays and (arrays[name].dtype != kind or not np.isfinite(arrays[name]).all()):
            raise ValueError(f"{name} must hold finite numbers of type {kind}")
    fitting = width == d + 1 + (offsets is not None) and assignment.shape == (m,) and m > 0 and groups > 0 and d > 0
    if not fitting or (offsets is not None and offsets.shape != (m,)):
        raise ValueError("its arrays do not fit each other")
    if assignment.min() < 0 or assignment.max() >= groups:
        raise ValueError("an item is in a group that does not exist")
    if type(probes) is not int or not 1 <= probes <= groups:
        raise ValueError(f"probes must be from 1 to {groups}")
    ids = None if words["ids"] is None else _decode_ids(arrays["ids"], words["ids"]).check("item")
    if ids is not None and len(ids) != m:
        raise ValueError(f"there are {len(ids)} ids for {m} items")
    return {
        "item_vectors": vectors, "offsets": offsets, "ids": ids,
        "centroids": centroids, "assignment": assignment, "probes": probes,
    }  # fmt: skip


def _kind(ids: Ids) -> str:
    return "integers" if ids.values.dtype.kind in "iu" else "json"


def _encode_ids(ids: Ids) -> NDArray[Any]:
    if _kind(ids) == "integers":
        return ids.values
    text = json.dumps([_plain(value) for value in ids.values.tolist()], ensure_ascii=False, allow_nan=False)
    return np.frombuffer(text.encode("utf-8", errors="surrogatepass"), dtype=np.uint8)


def _decode_ids(values: NDArray[Any], kind: str) -> Ids:
    if kind == "integers":
        if values.dtype.kind not in "iu" or values.ndim != 1:
            raise ValueError("ids must be integers")
        return Ids(values)
    listed = json.loads(values.astype(np.uint8).tobytes().decode("utf-8", errors="surrogatepass"))
    return Ids([_tupled(value) for value in listed])


def _plain(value: Hashable) -> Any:
    """JSON has no tuples: they become lists, and lists, which are nobody's id, become tuples again."""
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise InvalidData(f"Ids of type {type(value).__name__} cannot be stored: use numbers, strings or tuples of them.")


def _tupled(value: Any) -> Any:
    return tuple(_tupled(part) for part in value) if isinstance(value, list) else value


def _digest(arrays: Arrays, words: str) -> str:
    found = hashlib.sha256(words.encode())
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {values.dtype} {values.shape}".encode())
        found.update(values.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _flush_folder(folder: Path) -> None:
    """The rename itself reaches the disk (not every system can open a folder)."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
