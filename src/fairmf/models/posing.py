"""From data and settings to the problem of a fit, with whoever computes it at hand for as long as it lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fairmf.backends import Vector, chosen, get_backend
from fairmf.engines import RayCluster, ShardSource
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.models.fairness_weights import FairnessWeights, read_fairness_weights
from fairmf.models.inputs import as_interactions
from fairmf.models.problem import Problem, problem_for
from fairmf.parameters import settings_of


@contextlib.contextmanager
def posed(model: Any, data: Any, fairness_weights: FairnessWeights | None, cluster: Any) -> Iterator[Problem]:
    """The problem that a model's settings pose on this data."""
    if model.engine == "ray":
        with _on_a_cluster(model, data, fairness_weights, cluster) as problem:
            yield problem
        return
    if cluster is not None or isinstance(data, ShardSource):
        what = "Data in shards" if cluster is None else "cluster="
        raise InvalidParameter(f"{what} needs engine='ray'. Got engine={model.engine!r} instead.")
    data = as_interactions(data)
    if data.nnz == 0:
        raise InvalidData("There are no interactions to learn from.")
    settings = settings_of(model)
    settings["backend"] = chosen(model.backend, data.nnz * model.factors)
    yield problem_for(data, model.lambda_f_for(data.n_users), settings, _weights(fairness_weights, data))


def _weights(fairness_weights: FairnessWeights | None, data: Any) -> Vector | None:
    if fairness_weights is None:
        return None
    return read_fairness_weights(fairness_weights, data.n_items, data.item_ids)


@contextlib.contextmanager
def _on_a_cluster(model: Any, data: Any, fairness_weights: Any, cluster: Any) -> Iterator[Problem]:
    from fairmf.models.sharded import sharded_problem

    cluster = RayCluster() if cluster is None else cluster
    if not isinstance(cluster, RayCluster):
        raise InvalidParameter(f"cluster must be a RayCluster. Got {type(cluster).__name__} instead.")
    cluster.check()
    name = type(model).__name__
    if model.solver != "eigenbasis_cg":
        raise InvalidParameter(
            f"{name}: engine='ray' solves rows by solver='eigenbasis_cg' alone. Got solver={model.solver!r} instead."
        )
    if model.regularization <= 0:
        raise InvalidParameter(f"{name}: engine='ray' needs regularization > 0. Got {model.regularization!r} instead.")
    own = None if isinstance(data, ShardSource) else as_interactions(data)
    if (data if own is None else own).nnz == 0:
        raise InvalidData("There are no interactions to learn from.")
    with cluster.team(data if own is None else own, model.backend, model.factor_dtype) as team:
        weights = _weights(fairness_weights, team.source)
        local = get_backend("reference" if model.backend == "reference" else "cpu")
        team.gather_users = own is not None if cluster.gather_users is None else cluster.gather_users
        yield sharded_problem(team, local, model.lambda_f_for(team.n_users), settings_of(model), weights, own)
