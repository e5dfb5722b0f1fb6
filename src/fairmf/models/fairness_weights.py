"""Read fairness weights: w_j in lambda_f/2 sum_j w_j^2 (v_j.t)^2, by item or by group (docs/groups.md).

The formula is in docs/mathematics.md 5a.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fairmf.backends.contract import Vector
from fairmf.data.groups import GroupLabels, read_groups
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions, as_interactions
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.types import SparseMatrix

FairnessWeights: TypeAlias = ArrayLike | Mapping[Hashable, float]
LARGEST = 1e6  # the squares, times lambda_f, must stay far inside the range of single precision


def read_fairness_weights(weights: FairnessWeights, n_items: int, item_ids: Ids | None) -> Vector:
    """Return one weight per item, from an array or a mapping by item id; items that are not named have 1."""
    if not isinstance(weights, Mapping):
        return _not_all_zero(_numbers(weights, n_items, "one per item"))
    if item_ids is None:
        raise InvalidData("fairness_weights is a mapping from item ids, but the items have no ids: pass an array.")
    full = np.ones(n_items)
    places = item_ids.positions(list(weights), kind="fairness_weights item")
    full[places] = _numbers(list(weights.values()), len(weights), "one per item named")
    return _not_all_zero(full)


def group_weights(data: Interactions | SparseMatrix, groups: GroupLabels, weights: Mapping[Hashable, float]) -> Vector:
    """Turn a fairness weight per group into one per item, for `fit(data, fairness_weights=...)`.

    Parameters
    ----------
    data
        The interactions to be trained on, for their items.
    groups
        A label per item, or a mapping from item id to label, as `evaluate` takes it.
    weights
        From label to weight; groups that are not named have 1. A weight below 1 lowers a group's scores less, one above
        1 lowers them more (docs/groups.md).

    Returns
    -------
    One weight per item.

    Raises
    ------
    InvalidData
        Where a group with a weight has no item.
    InvalidParameter
        Where `weights` is no mapping, or all weights are 0.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from fairmf import group_weights
    >>> data = sp.eye(4, format="csr")
    >>> group_weights(data, ["large", "small", "small", "large"], {"small": 0.5}).tolist()
    [1.0, 0.5, 0.5, 1.0]
    """
    data = as_interactions(data)
    found = read_groups(groups, data.n_items, data.item_ids)
    if not isinstance(weights, Mapping):
        raise InvalidParameter(f"weights must be a mapping from group to number. Got {type(weights).__name__} instead.")
    places = {name: g for g, name in enumerate(found.names)}
    unknown = [name for name in weights if name not in places]
    if unknown:
        raise InvalidData(
            f"{len(unknown):,} of {len(weights):,} groups with a weight have no item, the first is {unknown[0]!r}."
        )
    of_group = np.ones(len(places))
    of_group[[places[name] for name in weights]] = _numbers(list(weights.values()), len(weights), "one per group named")
    return _not_all_zero(of_group[found.codes])


def _numbers(values: ArrayLike, count: int, each: str) -> Vector:
    expected = f"fairness_weights must be {count:,} numbers from 0 to {LARGEST:g}, {each}."
    try:
        array = np.asarray(values)
    except ValueError as error:  # lists of different lengths
        raise InvalidParameter(f"{expected} Got {error} instead.") from error
    if array.shape != (count,):
        raise InvalidParameter(f"{expected} Got shape {array.shape} instead.")
    # Text that reads like numbers, and True or False, are more likely a wrong column than weights.
    if count and array.dtype.kind not in "iuf":
        raise InvalidParameter(f"{expected} Got {array.flat[0]!r} instead.")
    numbers: Vector = array.astype(np.float64)
    wrong = np.flatnonzero(~((numbers >= 0) & (numbers <= LARGEST)))  # NaN is neither
    if len(wrong):
        raise InvalidParameter(f"{expected} Got {numbers[wrong[0]]} at position {wrong[0]} instead.")
    return numbers


def _not_all_zero(weights: Vector) -> Vector:
    if not weights.any():
        raise InvalidParameter("fairness_weights are all 0, so that there is no fairness term: use fairness=0 instead.")
    return weights
