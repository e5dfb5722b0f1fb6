"""Which shard a user belongs to: a hash of the id that is the same in every process, on every machine, always."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.interactions import Ids
from fairmf.interactions.fingerprints import id_text

_SEED = np.uint64(0x5DEECE66D1CE4E5B)
_A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


def mix(values: NDArray[np.uint64], seed: np.uint64 = _SEED) -> NDArray[np.uint64]:
    """A 64-bit hash of 64-bit numbers."""
    mixed = (values ^ seed) * _A
    mixed = (mixed ^ (mixed >> _HALF)) * _B
    return np.asarray(mixed ^ (mixed >> _HALF), dtype=np.uint64)


def id_hashes(ids: Ids) -> NDArray[np.uint64]:
    """A hash of every id; equal ids have equal ones, of whatever width their integers are."""
    values = ids.values
    if values.dtype.kind in "iu":
        return mix(values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64))
    return np.fromiter(map(_hash, values.tolist()), dtype=np.uint64, count=len(values))


def shards_of(ids: Ids, shards: int) -> NDArray[np.int32]:
    """The shard of every id."""
    return np.asarray(id_hashes(ids) % np.uint64(shards), dtype=np.int32)


def _hash(value: Any) -> int:
    if type(value) is int:  # one that is beyond int64, or beside such a one
        return int(mix(np.array([value % 2**64], dtype=np.uint64))[0])
    text = value if type(value) is str else id_text(value + 0.0 if type(value) is float else value)  # -0.0 is 0.0
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
