"""A model over the users of one shard: what a task on a cluster ranks with.

Users are folded in from their own histories, which is what a fit leaves them as. So a model needs none of its users to
serve all of them, and a task that is lost can be done again anywhere.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.engines.shards import Shard, ShardSource
from fairmf.errors import InvalidData
from fairmf.interactions import Interactions
from fairmf.models.factor_model import FactorModel
from fairmf.models.fitted import Fitted


def without_users(model: FactorModel) -> FactorModel:
    """The model with nothing of its users: as large as the catalogue, ready to be sent."""
    lean, fitted = copy.copy(model), model.fitted
    nobody = np.empty((0, fitted.item_factors.shape[1]), dtype=fitted.item_factors.dtype)
    lean._fitted = dataclasses.replace(
        fitted, user_factors=nobody, user_ids=None, interactions=None, user_sensitivity=None
    )
    return lean


def check_items(model: FactorModel, source: ShardSource, what: str) -> None:
    """Raise InvalidData unless the source has the model's items, in their order."""
    if source.n_items != model.n_items:
        raise InvalidData(f"The model knows {model.n_items:,} items, {what} has {source.n_items:,}.")
    trained, given = model.fitted.item_ids, source.item_ids
    if trained is not None and given is not None and trained is not given and trained != given:
        raise InvalidData(
            f"The items of {what} are not the model's, or in another order: read it with items=model.fitted.item_ids."
        )


def histories(shard: Shard, fitted: Fitted) -> Interactions:
    """The interactions of a shard's users over the model's items."""
    return Interactions(shard.rows, len(fitted.item_factors), shard.user_ids, fitted.item_ids)


def _owned(fitted: Fitted) -> Fitted:
    """With arrays of this process: those of the object store are read-only, and kernels would be compiled anew."""
    arrays: dict[str, Any] = {
        name: np.array(value) for name, value in vars(fitted).items() if isinstance(value, np.ndarray)
    }
    return dataclasses.replace(fitted, **arrays)


def over_shard(lean: Any, source: ShardSource, number: int, fairness: float | None) -> FactorModel:
    """The model (`without_users`) over the users of one shard, at another fairness where one is given."""
    model: Any = copy.copy(lean)
    model.num_threads = 1  # the task has one CPU
    fitted = model._fitted = _owned(lean.fitted)
    own = histories(source.load(number), fitted)
    options = {} if fairness is None else {"fairness": fairness}
    users: NDArray[Any] = model.fold_in(own, **options)
    model._fitted = dataclasses.replace(
        fitted, user_factors=users, user_ids=own.user_ids, interactions=own,
        fairness=fitted.fairness if fairness is None else float(fairness),
    )  # fmt: skip
    return model  # type: ignore[no-any-return]
