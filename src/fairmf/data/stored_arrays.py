"""Store ids, sparse rows and weightings as arrays, and check them when they are read.

Integer ids are stored as an array of integers. All others are stored as bytes and the offset of each id: texts in
UTF-8, and other types (floats, tuples, dates, ...) in the JSON of `fairmf.io.values`.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from fairmf.data.csr import Rows, is_ascending
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.weighting import Balance, BM25Weighting, LogWeighting, Weighting
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.io import strict_json
from fairmf.io.container import Arrays
from fairmf.io.strict_json import Malformed
from fairmf.io.values import NotStorable, decode, encode
from fairmf.lazy import lazy_module
from fairmf.types import Array, Record

if TYPE_CHECKING:
    from fairmf.data import half_life
else:
    half_life = lazy_module("fairmf.data.half_life")  # few data have one

KINDS = ("none", "integers", "texts", "typed")


def ids_to_arrays(name: str, ids: Ids | None) -> tuple[str, Arrays]:
    """Return the kind of these ids ("none", "integers", "texts" or "typed") and the arrays that store them."""
    if ids is None:
        return "none", {}
    if ids.values.dtype.kind in "iu":
        return "integers", {name: ids.values}
    values = ids.values.tolist()
    if all(type(value) is str for value in values):
        # Texts may hold lone surrogates (from file names, say), which UTF-8 proper cannot write.
        return "texts", _packed(name, [value.encode("utf-8", errors="surrogatepass") for value in values])
    return "typed", _packed(name, [_typed(name, value) for value in values])


def ids_from_arrays(name: str, kind: object, count: int, arrays: Arrays) -> Ids | None:
    """Rebuild ids from their arrays, which are removed from `arrays`."""
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


def _typed(name: str, value: Hashable) -> bytes:
    """Encode one id as JSON; raise InvalidData for a type that cannot be stored."""
    try:
        hash(value)
        return strict_json.dump(encode(value)).encode("ascii")
    except (NotStorable, TypeError, ValueError) as error:
        shown = "one of them" if type(value) is int else repr(str(value)[:60])  # printing a huge integer raises
        raise InvalidData(
            f"The {name} cannot be stored: {shown} is or holds {error}. Ids in a file can be integers, "
            "texts, floats, bools, bytes, tuples, dates and times, Decimal or UUID."
        ) from error


def _untyped(name: str, text: str) -> Hashable:
    value: Hashable = decode(strict_json.parse(text, f"one of its {name}"))
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


def check_offsets(name: str, offsets: Array, count: int, end: int) -> None:
    """Raise Malformed unless the offsets divide 0 to `end` into `count` pieces."""
    wrong = offsets.dtype != np.int64 or offsets.shape != (count + 1,)
    if wrong or offsets[0] != 0 or offsets[-1] != end or (offsets[1:] < offsets[:-1]).any():
        raise Malformed(f"the offsets of {name} do not describe {count:,} pieces")


def rows_to_arrays(name: str, data: Interactions) -> Arrays:
    """Return the arrays that store the entries of interactions, without their ids."""
    rows = data.by_user
    arrays: Arrays = {f"{name}.indptr": rows.indptr, f"{name}.indices": rows.indices}
    if rows.weights is not None:
        arrays[f"{name}.weights"] = rows.weights
    return arrays


def rows_from_arrays(
    name: str,
    n: int,
    m: int,
    users: Ids | None,
    items: Ids | None,
    arrays: Arrays,
    weighting: Weighting | None = None,
) -> Interactions:
    """Rebuild the interactions of n users and m items from their arrays, which are removed from `arrays`."""
    indptr, indices, weights = (arrays.pop(f"{name}.{part}", None) for part in ("indptr", "indices", "weights"))
    if indptr is None or indices is None or indices.dtype != np.int32 or indices.ndim != 1:
        raise Malformed(f"its {name} are incomplete")
    check_offsets(f"its {name}", indptr, n, len(indices))
    if weights is not None and (weights.dtype != np.float32 or weights.shape != indices.shape):
        raise Malformed(f"its {name} have no weight each")
    if weights is not None and not (np.isfinite(weights).all() and (weights != 0).all()):
        raise Malformed(f"its {name} have weights that are 0 or no numbers")
    # Kernels and `Interactions` rely on sorted rows without repeats. Interactions checks the range of indices.
    if not is_ascending(indices, indptr):
        raise Malformed(f"its {name} are not in order, or repeated")
    return Interactions(Rows(indptr, indices, weights), m, users, items, weighting)


# The weighting is stored since version 2 of the formats of models, splits and autoencoders. Splits and autoencoders
# without a weighting are written as version 1, which older programs can read.

LENGTHS = "weighting.item_lengths"
COUNTS = "weighting.item_counts"
HALF_LIFE = "half_life"
_NUMBERS = {"K1": float, "B": float, "mean_length": float, "n_items": int}
_BALANCE = ("item_balance", "user_balance", "norm")


def weighting_to_arrays(weighting: Weighting | None) -> tuple[Record, Arrays]:
    """Return the fields of the document and the arrays that store a weighting; both are empty without one."""
    if weighting is None:
        return {}, {}
    stored: Record = {"how": weighting.how}
    if isinstance(weighting, Balance):
        inner, arrays = weighting_to_arrays(weighting.inner)
        stored |= {name: getattr(weighting, name) for name in _BALANCE} | {"inner": inner.get("weighting")}
        return {"weighting": stored}, {**arrays, COUNTS: weighting.item_counts}
    if weighting.how == HALF_LIFE:
        stored |= {name: getattr(weighting, name) for name in ("days", "as_of")}
    if not isinstance(weighting, BM25Weighting):
        return {"weighting": stored}, {}
    stored |= {name: getattr(weighting, name) for name in _NUMBERS}
    return {"weighting": stored}, {LENGTHS: weighting.item_lengths}


def version_for(content: Record) -> int:
    """Return the oldest version of its format that can hold a document."""
    return 2 if "weighting" in content else 1


def weighting_from_arrays(content: Record, n_items: int, arrays: Arrays) -> Weighting | None:
    """Rebuild the weighting, whose arrays are removed from `arrays`; None if the document has none."""
    stored = content.get("weighting")
    if stored is None and "weighting" not in content:
        return None
    if stored == {"how": LogWeighting.how}:
        return LogWeighting()
    if isinstance(stored, dict) and stored.get("how") == HALF_LIFE:
        try:
            return half_life.HalfLife(stored.get("days"), stored.get("as_of"))  # type: ignore[arg-type]
        except InvalidParameter as error:
            raise Malformed("it does not say how its interactions lost weight with time") from error
    if isinstance(stored, dict) and stored.get("how") == Balance.how:
        return _balance(stored, n_items, arrays)
    if not isinstance(stored, dict) or set(stored) != {"how", *_NUMBERS} or stored["how"] != BM25Weighting.how:
        raise Malformed("it does not say how its interactions were weighted")
    lengths = arrays.pop(LENGTHS, None)
    if lengths is None or lengths.dtype != np.float64 or lengths.shape != (n_items,):
        raise Malformed("it has no length of each item, which its BM25 weights need")
    numbers = {name: stored[name] for name in _NUMBERS}
    typed = all(type(numbers[name]) is kind for name, kind in _NUMBERS.items())
    if not (
        typed
        and 0 < numbers["K1"] < np.inf
        and 0 <= numbers["B"] <= 1
        and 0 < numbers["mean_length"] < np.inf
        and numbers["n_items"] >= 1
        and np.isfinite(lengths).all()
        and (lengths >= 0).all()
    ):
        raise Malformed("the numbers of its BM25 weights are impossible")
    return BM25Weighting(item_lengths=lengths, **numbers)


def _balance(stored: Record, n_items: int, arrays: Arrays) -> Balance:
    if set(stored) != {"how", "inner", *_BALANCE} or not all(type(stored[name]) is float for name in _BALANCE):
        raise Malformed("it does not say how its interactions were balanced")
    inner = stored["inner"]
    if inner is not None and (not isinstance(inner, dict) or inner.get("how") == Balance.how):
        raise Malformed("it does not say how its interactions were weighted before they were balanced")
    first = None if inner is None else weighting_from_arrays({"weighting": inner}, n_items, arrays)
    counts = arrays.pop(COUNTS, None)
    if counts is None or counts.dtype != np.float64 or counts.shape != (n_items,):
        raise Malformed("it has no count of each item, which its balance needs")
    numbers = {name: stored[name] for name in _BALANCE}
    possible = numbers["item_balance"] >= 0 and numbers["user_balance"] >= 0 and numbers["norm"] > 0
    if not possible or not np.isfinite([*numbers.values()]).all() or not (np.isfinite(counts) & (counts >= 0)).all():
        raise Malformed("the numbers of its balance are impossible")
    return Balance(item_counts=counts, inner=first, **numbers)
