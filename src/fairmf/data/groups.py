"""Read the group (provider, genre, country) of every item, or its groups where an item has several."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairmf.data.ids import Ids
from fairmf.errors import InvalidData
from fairmf.types import Array

SEVERAL = (list, set, frozenset)
"""A label of one of these types names several groups; a tuple is the name of one group."""
GroupLabels = Sequence[Any] | Array | Mapping[Any, Any]


@dataclass(frozen=True)
class Groups:
    """Hold the groups of every item, as `names` lists them.

    Attributes
    ----------
    codes
        The group of every item; the first of them where an item has several.
    names
        The names of the groups, by their codes.
    shares
        Items x groups, where items have several: an item with k groups counts 1/k in each. None if each item has one.
    """

    codes: NDArray[np.int64]
    names: tuple[Hashable, ...]
    shares: sp.csr_array | None = None

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of items in each group. An item with several groups is in each of them."""
        if self.shares is None:
            return np.bincount(self.codes, minlength=len(self.names)).astype(np.int64)
        return np.bincount(self.shares.indices, minlength=len(self.names)).astype(np.int64)

    @property
    def weights(self) -> NDArray[np.float64]:
        """Number of items in each group, where an item with k groups counts 1/k in each: they add up to all items."""
        return self.add_up(np.ones(len(self.codes)))

    def add_up(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Add the values of items (last axis) up by group. What an item has is divided equally among its groups."""
        own = np.asarray(values, dtype=np.float64)
        rows = own.reshape(-1, own.shape[-1])
        sums = rows @ self.matrix
        return np.asarray(sums, dtype=np.float64).reshape(*own.shape[:-1], len(self.names))

    @property
    def matrix(self) -> sp.csr_array:
        """The shares of every item in the groups: items x groups, rows that add up to 1."""
        if self.shares is not None:
            return self.shares
        count = len(self.codes)
        parts = (np.ones(count), self.codes, np.arange(count + 1))
        return sp.csr_array(parts, shape=(count, len(self.names)))

    def of_item(self, item: int) -> Hashable:
        """Return the name of an item's group; of several, all names in one text."""
        if self.shares is None:
            return self.names[int(self.codes[item])]
        own = self.shares.indices[self.shares.indptr[item] : self.shares.indptr[item + 1]].tolist()
        first: Hashable = self.names[own[0]]
        return first if len(own) == 1 else ", ".join(str(self.names[g]) for g in own)


def read_groups(groups: GroupLabels, n_items: int, item_ids: Ids | None, *, several: bool = False) -> Groups:
    """Read groups from one label per item, or from a mapping of item ids to labels; number them as they appear.

    Parameters
    ----------
    groups
        A label is a number, a string or a tuple. A list or a set of labels puts an item into several groups.
    n_items, item_ids
        The items, and their ids if they have some.
    several
        Whether an item may have several groups.
    """
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
    if several and _lists(labels):
        return _several(labels)
    code_of: dict[Hashable, int] = {}
    try:
        # The length is taken before the label is inserted, so it is the next free code.
        codes = np.fromiter((code_of.setdefault(label, len(code_of)) for label in labels), np.int64, n_items)
    except TypeError as error:
        reason = "every item needs exactly one group here" if _lists(labels) else str(error)
        raise InvalidData(f"A group is named by a number, a string or a tuple: {reason}.") from error
    return Groups(codes, tuple(code_of))


def _several(labels: Sequence[Any]) -> Groups:
    code_of: dict[Hashable, int] = {}
    indptr, indices = [0], []
    for item, label in enumerate(labels):
        # A set has no order: sort its names, so that groups are numbered the same way in every run.
        own = sorted(label, key=str) if isinstance(label, (set, frozenset)) else label
        names = list(own) if isinstance(label, SEVERAL) else [label]
        try:
            codes = list(dict.fromkeys(code_of.setdefault(name, len(code_of)) for name in names))
        except TypeError as error:
            raise InvalidData(f"A group is named by a number, a string or a tuple: {error}.") from error
        if not codes:
            raise InvalidData(f"Item {item:,} has an empty list of groups.", hint="name a group such as 'no group'")
        indices += codes
        indptr.append(len(indices))
    ends = np.array(indptr)
    counts = np.diff(ends)
    found = np.array(indices, dtype=np.int64)
    values = np.repeat(1.0 / counts, counts)
    shares = sp.csr_array((values, found, ends), shape=(len(labels), len(code_of)))
    return Groups(found[ends[:-1]], tuple(code_of), shares)


def _lists(labels: Sequence[Any]) -> bool:
    return any(isinstance(label, SEVERAL) for label in labels)
