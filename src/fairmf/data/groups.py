"""Read the group (provider, genre, country) of every item; each item belongs to exactly one group."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.data.ids import Ids
from fairmf.errors import InvalidData
from fairmf.types import Array

GroupLabels = Sequence[Hashable] | Array | Mapping[Any, Hashable]


class Groups(NamedTuple):
    """Hold the group of every item: `codes[j]` is the group of item j, `names[g]` the name of group g."""

    codes: NDArray[np.int64]
    names: tuple[Hashable, ...]


def read_groups(groups: GroupLabels, n_items: int, item_ids: Ids | None) -> Groups:
    """Read groups from one label per item, or from a mapping of item ids to labels; number them as they appear."""
    if isinstance(groups, Mapping):
        if item_ids is None:
            raise InvalidData(
                "groups is a mapping from item ids, but the items have no ids.", hint="pass one label per item"
            )
        missing = [item for item in item_ids.values.tolist() if item not in groups]
        if missing:
            raise InvalidData(f"groups lacks {len(missing):,} items, the first is {missing[0]!r}.")
        labels = [groups[item] for item in item_ids.values.tolist()]
    else:
        labels = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
    if len(labels) != n_items:
        raise InvalidData(f"groups holds {len(labels):,} labels, but there are {n_items:,} items.")
    code_of: dict[Hashable, int] = {}
    try:
        # The length is taken before the label is inserted, so it is the next free code.
        codes = np.fromiter((code_of.setdefault(label, len(code_of)) for label in labels), np.int64, n_items)
    except TypeError as error:
        raise InvalidData(f"A group is named by a number, a string or a tuple: {error}.") from error
    return Groups(codes, tuple(code_of))
