"""Hold what metrics may need beside the lists: popularity, groups of items and of users, features of items."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from fairmf.data.csr import Rows
from fairmf.data.groups import GroupLabels, Groups, read_groups
from fairmf.data.ids import Ids
from fairmf.errors import InvalidData
from fairmf.metrics.accuracy import Hits

Values = NDArray[np.float64]
Features = ArrayLike | Any
"""A vector per item: an array or SciPy matrix (items x features), or a mapping from item id to vector."""


@dataclass(frozen=True)
class Given:
    """The optional inputs of metrics, checked: None where an input was not given."""

    n_items: int
    popularity: Values | None = None
    n_train: int = 0
    histories: bool = False
    """Whether any user has a history."""
    cold: bool = False
    """Whether cold items (those that nobody has in the training data) are of interest: held out, or with features."""
    cold_targets: bool = False
    """Whether a target is a cold item."""
    candidates: bool = False
    """Whether the ranker can rank some of the items alone."""
    groups: Groups | None = None
    group_target: Values | None = None
    """The share of attention that each group should have, for AWRF."""
    user_groups: Groups | None = None
    features: sp.csr_array | None = None
    """A row of length 1 per item (0 for items without features)."""

    @property
    def is_cold(self) -> NDArray[np.bool_]:
        """A mask of the items that nobody has in the training data; without training data no item is cold."""
        return np.zeros(self.n_items, dtype=bool) if self.popularity is None else self.popularity == 0


class ListBlock(NamedTuple):
    """The lists of some users (users x N item positions, -1 if empty), with hits, targets and histories of these."""

    items: NDArray[np.integer]
    hits: Hits
    targets: Rows
    history: Rows
    given: Given

    @property
    def n_targets(self) -> NDArray[np.int64]:
        """Number of targets of every user."""
        return np.diff(self.targets.indptr)


class Extras(NamedTuple):
    """Arguments of `evaluate` that few metrics need."""

    user_groups: GroupLabels | None = None
    features: Features | None = None
    group_target: Mapping[Hashable, float] | None = None


NO_EXTRAS = Extras()


def read_user_groups(labels: GroupLabels | None, n_users: int, user_ids: Ids | None) -> Groups | None:
    """Read a label per user, or a mapping from user id to label."""
    if labels is None:
        return None
    try:
        return read_groups(labels, n_users, user_ids)
    except InvalidData as error:
        text = str(error).replace("items", "users").replace("item", "user").replace("groups", "user_groups")
        raise InvalidData(text, parameter="user_groups") from error


def read_group_target(target: Mapping[Hashable, float] | None, groups: Groups | None) -> Values | None:
    """Return the share of attention that each group should have: by default its share of the items."""
    if groups is None:
        if target is not None:
            raise InvalidData("group_target needs groups: pass groups= as well.", parameter="group_target")
        return None
    if target is None:
        counts = groups.weights
        return np.asarray(counts / max(counts.sum(), 1.0), dtype=np.float64)
    missing = [name for name in groups.names if name not in target]
    if missing:
        raise InvalidData(f"group_target lacks {len(missing):,} groups, the first is {missing[0]!r}.")
    shares = np.array([float(target[name]) for name in groups.names])
    if not np.isfinite(shares).all() or (shares < 0).any() or not shares.any():
        raise InvalidData("group_target must hold finite numbers >= 0, not all 0, one per group.")
    return np.asarray(shares / shares.sum(), dtype=np.float64)


def read_features(features: Features | None, n_items: int, item_ids: Ids | None) -> sp.csr_array | None:
    """Return the features as sparse rows of length 1, one per item; an item without features has an empty row."""
    if features is None:
        return None
    if isinstance(features, Mapping):
        if item_ids is None:
            raise InvalidData("features is a mapping from item ids, but the items have no ids.", parameter="features")
        missing = [item for item in item_ids.values.tolist() if item not in features]
        if missing:
            raise InvalidData(f"features lacks {len(missing):,} items, the first is {missing[0]!r}.")
        features = [features[item] for item in item_ids.values.tolist()]
    try:
        dense: Any = features if sp.issparse(features) else np.asarray(features, dtype=np.float64)
        matrix = sp.csr_array(dense)
    except (TypeError, ValueError) as error:
        raise InvalidData(f"features must be an array or matrix of numbers, items x features: {error}.") from error
    if matrix.ndim != 2 or matrix.shape[0] != n_items or not np.isfinite(matrix.data).all():
        raise InvalidData(
            f"features must hold a row of finite numbers for each of {n_items:,} items. Got shape {matrix.shape}."
        )
    matrix = matrix.astype(np.float64)
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return sp.csr_array(sp.diags_array(scale) @ matrix)
