"""How strongly the fairness term holds each item down: w_j in lambda_f/2 sum_j w_j^2 (v_j.t)^2.

See docs/mathematics.md 5a for what follows from them, docs/groups.md for their use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairmf.backends import Vector
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.interactions import Ids, Interactions
from fairmf.interactions.groups import GroupLabels, read_groups
from fairmf.models.inputs import as_interactions

FairnessWeights = ArrayLike | Mapping[Any, float]
LARGEST = 1e6  # squares, times lambda_f, must stay far inside single precision


def read_fairness_weights(weights: FairnessWeights, n_items: int, item_ids: Ids | None) -> Vector:
    """One weight per item from an array, or from a mapping from item id to weight, where items not named have 1."""
    if not isinstance(weights, Mapping):
        return _not_all_zero(_numbers(weights, n_items, "one per item"))
    if item_ids is None:
        raise InvalidData("fairness_weights is a mapping from item ids, but the items have no ids: pass an array.")
    full = np.ones(n_items)
    places = item_ids.positions(list(weights), kind="fairness_weights item")
    full[places] = _numbers(list(weights.values()), len(weights), "one per item named")
    return _not_all_zero(full)


def group_weights(data: Interactions | Any, groups: GroupLabels, weights: Mapping[Any, float]) -> Vector:
    """Fairness weights by group, for `fit(data, fairness_weights=...)`: one number per item.

    `groups` is a label per item, or a mapping from item id to label, as `evaluate` takes it; `weights` maps labels to
    weights, and groups it does not name have 1. A weight below 1 lets a group keep more of its scores, one above 1
    holds it down further (docs/groups.md).

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
