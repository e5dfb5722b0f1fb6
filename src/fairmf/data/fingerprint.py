"""Compute a fingerprint of interactions that is the same on every platform."""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np

from fairmf.data.csr import Rows
from fairmf.data.ids import Ids
from fairmf.types import Array


def fingerprint(rows: Rows, n_items: int, user_ids: Ids | None, item_ids: Ids | None) -> str:
    """Return the SHA-256 (hex) over shape, offsets, indices, weights and ids."""
    digest = hashlib.sha256()
    digest.update(f"fairmf interactions 1: {rows.count} x {n_items}, {rows.nnz}".encode())
    _add(digest, "indptr", rows.indptr, "<i8")
    _add(digest, "indices", rows.indices, "<i4")
    if rows.weights is not None:
        _add(digest, "weights", rows.weights, "<f4")
    for name, ids in (("user_ids", user_ids), ("item_ids", item_ids)):
        if ids is not None:
            _add_ids(digest, name, ids)
    return digest.hexdigest()


class _Digest(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...


def _add(digest: _Digest, name: str, array: Array, kind: str) -> None:
    # Name, type and length before the bytes: otherwise two data sets could give the same stream of bytes.
    digest.update(f"{name} {kind} {len(array)}:".encode())
    digest.update(np.ascontiguousarray(array, dtype=kind).data)


def _add_ids(digest: _Digest, name: str, ids: Ids) -> None:
    kind = ids.values.dtype.kind
    if kind == "i" or (kind == "u" and (len(ids) == 0 or ids.values.max() < 2**63)):
        _add(digest, name, ids.values, "<i8")  # the same for integers of any size
        return
    digest.update(f"{name} {len(ids)}:".encode())
    for value in ids.values.tolist():
        # Ids from broken text may hold lone surrogates. Lengths keep "ab", "c" and "a", "bc" apart.
        text = id_text(value).encode(errors="surrogatepass")
        digest.update(f"{len(text)}:".encode() + text)


def id_text(value: object) -> str:
    """Write an id as text that tells 1 from "1" and does not depend on the order of hashes."""
    if isinstance(value, tuple):
        return f"tuple({','.join(id_text(part) for part in value)})"
    if isinstance(value, frozenset):
        return f"frozenset({','.join(sorted(id_text(part) for part in value))})"
    return f"{type(value).__name__}:{value!r}"
