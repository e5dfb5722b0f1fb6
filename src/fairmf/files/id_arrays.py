"""Ids as arrays. Integers are one array of their own kind; all others are bytes and the offsets where each begins.

Texts are stored in UTF-8; ids of other kinds (floats, tuples, dates, ...) as typed JSON, one text each.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData
from fairmf.files import strict_json, typed_values
from fairmf.files.container import Arrays
from fairmf.files.strict_json import Malformed
from fairmf.interactions import Ids

KINDS = ("none", "integers", "texts", "typed")


def to_arrays(name: str, ids: Ids | None) -> tuple[str, Arrays]:
    """The kind of these ids and the arrays that hold them."""
    if ids is None:
        return "none", {}
    if ids.values.dtype.kind in "iu":
        return "integers", {name: ids.values}
    values = ids.values.tolist()
    if all(type(value) is str for value in values):
        return "texts", _packed(name, [value.encode("utf-8", errors="surrogatepass") for value in values])
    return "typed", _packed(name, [_typed(name, value) for value in values])


def from_arrays(name: str, kind: Any, count: int, arrays: Arrays) -> Ids | None:
    """The ids again. Takes what it uses out of `arrays`."""
    if kind == "none":
        return None
    if kind == "integers":
        values = arrays.pop(name, None)
        if values is None or values.ndim != 1 or values.dtype.kind not in "iu" or len(values) != count:
            raise Malformed(f"{name} are not {count:,} integers")
        return Ids(values)
    if kind not in KINDS:
        raise Malformed(f"{name} are of an unknown kind")
    texts = _unpacked(name, count, arrays)
    return Ids(texts if kind == "texts" else [_untyped(name, text) for text in texts])


def _typed(name: str, value: Any) -> bytes:
    try:
        hash(value)
        return strict_json.dump(typed_values.encode(value)).encode("ascii")
    except (typed_values.NotStorable, TypeError, ValueError) as error:
        shown = "one of them" if type(value) is int else repr(str(value)[:60])  # Python refuses to print huge integers
        raise InvalidData(
            f"The {name} cannot be stored: {shown} is or holds {error}. Ids in a file can be integers, "
            "texts, floats, bools, bytes, tuples, dates and times, Decimal or UUID."
        ) from error


def _untyped(name: str, text: str) -> Any:
    value = typed_values.decode(strict_json.parse(text, f"one of its {name}"))
    try:
        hash(value)
    except TypeError as error:
        raise Malformed(f"one of its {name} cannot be an id") from error
    return value


def _packed(name: str, texts: list[bytes]) -> Arrays:
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return {f"{name}.bytes": np.frombuffer(b"".join(texts), dtype=np.uint8), f"{name}.offsets": offsets}


def _unpacked(name: str, count: int, arrays: Arrays) -> list[str]:
    data, offsets = arrays.pop(f"{name}.bytes", None), arrays.pop(f"{name}.offsets", None)
    if data is None or offsets is None or data.dtype != np.uint8 or data.ndim != 1:
        raise Malformed(f"{name} are incomplete")
    check_offsets(name, offsets, count, len(data))
    whole, ends = data.tobytes(), offsets.tolist()
    try:
        return [whole[a:b].decode("utf-8", errors="surrogatepass") for a, b in itertools.pairwise(ends)]
    except UnicodeDecodeError as error:
        raise Malformed(f"{name} are not text") from error


def check_offsets(name: str, offsets: NDArray[Any], count: int, end: int) -> None:
    """Offsets of `count` pieces that together cover 0 to `end`."""
    wrong = offsets.dtype != np.int64 or offsets.shape != (count + 1,)
    if wrong or offsets[0] != 0 or offsets[-1] != end or (offsets[1:] < offsets[:-1]).any():
        raise Malformed(f"the offsets of {name} do not describe {count:,} pieces")
