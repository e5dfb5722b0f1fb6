"""The arguments of `audit`, read and checked."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from fairmf.errors import InvalidData, InvalidParameter
from fairmf.interactions import Ids, Interactions
from fairmf.metrics.registry import Wanted
from fairmf.splitting import HeldOut, Split

Names = Sequence[Any] | NDArray[Any] | Mapping[Any, Any]


def read_part(held_out: HeldOut | Split, part: str, train: Interactions | None) -> tuple[HeldOut, Interactions | None]:
    """The users of the audit, and the training data that popularity is counted in."""
    if not isinstance(held_out, Split):
        return held_out, train
    if part not in ("validation", "test"):
        raise InvalidParameter(f"The 'part' parameter of audit must be 'validation' or 'test'. Got {part!r} instead.")
    return (held_out.test if part == "test" else held_out.validation), held_out.train if train is None else train


def read_quality(quality: Sequence[str] | None, K: int) -> list[str]:
    """Full names of the metrics that are compared user by user."""
    if quality is None:
        return [f"ndcg@{K}", f"recall@{K}"]
    given = [quality] if isinstance(quality, str) else list(quality)
    labels = [label if "@" in str(label) else f"{label}@{K}" for label in given]
    wrong = [label for label in labels if not Wanted(str(label).partition("@")[0], 0).is_accuracy]
    if wrong or not labels:
        got = repr(wrong[0]) if wrong else "none"
        raise InvalidParameter(
            f"The 'quality' parameter of audit must name accuracy metrics, such as 'ndcg@100'. Got {got} instead."
        )
    return list(dict.fromkeys(labels))


def read_titles(names: Names | None, n_items: int, item_ids: Ids | None) -> list[str]:
    """A name for every item; where there is none the id stands for it."""
    own = ids_or_positions(item_ids, n_items)
    if names is None:
        return [str(item) for item in own]
    if isinstance(names, Mapping):
        if item_ids is None:
            raise InvalidData("names is a mapping from item ids, but the items have no ids; pass one name per item.")
        if n_items and not any(item in names for item in own):
            raise InvalidData(f"names has none of the items; the first item is {own[0]!r}.")
        return [str(names.get(item, item)) for item in own]
    if len(names) != n_items:
        raise InvalidData(f"names holds {len(names):,} names, but there are {n_items:,} items.")
    return [str(name) for name in names]


def ids_or_positions(ids: Ids | None, count: int) -> list[Hashable]:
    """Ids as Python values; positions where the data has no ids."""
    return list(range(count)) if ids is None else list(ids.values.tolist())
