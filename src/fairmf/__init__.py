"""fairmf: matrix factorisation that is fair to items.

    from fairmf import FiADMM, IALS, Interactions, evaluate, split_by_user

    data = Interactions.from_parquet("events.parquet", user="user_id", item="item_id")
    model = FiADMM(factors=64, fairness=1.0).fit(data)
    ids, scores = model.recommend(data.user_ids.values[:5], N=20)

Names are imported on first use, so that `import fairmf` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fairmf.version import __version__

if TYPE_CHECKING:
    from fairmf.baselines import MultVAE as MultVAE
    from fairmf.baselines import RecVAE as RecVAE
    from fairmf.control import Curve as Curve
    from fairmf.control import Offsets as Offsets
    from fairmf.control import Target as Target
    from fairmf.control import TuningResult as TuningResult
    from fairmf.control import fit_offsets as fit_offsets
    from fairmf.control import fit_path as fit_path
    from fairmf.control import fit_to_target as fit_to_target
    from fairmf.control import trade_off as trade_off
    from fairmf.control import tune as tune
    from fairmf.engines import RayCluster as RayCluster
    from fairmf.engines.parquet import ParquetShards as ParquetShards
    from fairmf.interactions import Events as Events
    from fairmf.interactions import Ids as Ids
    from fairmf.interactions import Interactions as Interactions
    from fairmf.interactions import read_arrow as read_arrow
    from fairmf.interactions import read_csv as read_csv
    from fairmf.interactions import read_frame as read_frame
    from fairmf.interactions import read_parquet as read_parquet
    from fairmf.interactions import read_sql as read_sql
    from fairmf.interactions import synthetic as synthetic
    from fairmf.interactions import synthetic_events as synthetic_events
    from fairmf.interactions.datasets import datasets as datasets
    from fairmf.interactions.datasets import fetch_dataset as fetch_dataset
    from fairmf.interactions.datasets import load_dataset as load_dataset
    from fairmf.metrics import Audit as Audit
    from fairmf.metrics import EarlyStopping as EarlyStopping
    from fairmf.metrics import Evaluation as Evaluation
    from fairmf.metrics import audit as audit
    from fairmf.metrics import evaluate as evaluate
    from fairmf.metrics.sharded import evaluate_shards as evaluate_shards
    from fairmf.models import IALS as IALS
    from fairmf.models import FairALS as FairALS
    from fairmf.models import FiADMM as FiADMM
    from fairmf.models import Popularity as Popularity
    from fairmf.models import group_weights as group_weights
    from fairmf.models import load_model as load_model
    from fairmf.models.shard_lists import recommend_shards as recommend_shards
    from fairmf.reporting import report as report
    from fairmf.splitting import HeldOut as HeldOut
    from fairmf.splitting import Split as Split
    from fairmf.splitting import split_by_interaction as split_by_interaction
    from fairmf.splitting import split_by_time as split_by_time
    from fairmf.splitting import split_by_user as split_by_user

_HOMES = {
    "interactions": (
        "Interactions", "Events", "Ids", "read_frame", "read_csv", "read_parquet", "read_arrow", "read_sql",
        "synthetic", "synthetic_events",
    ),
    "interactions.datasets": ("load_dataset", "fetch_dataset", "datasets"),
    "splitting": ("Split", "HeldOut", "split_by_user", "split_by_interaction", "split_by_time"),
    "models": ("FairALS", "IALS", "FiADMM", "Popularity", "load_model", "group_weights"),
    "engines": ("RayCluster",),
    "metrics": ("evaluate", "Evaluation", "EarlyStopping", "audit", "Audit"),
    "baselines": ("MultVAE", "RecVAE"),
    "control": (
        "trade_off", "fit_path", "fit_to_target", "Curve", "Target", "fit_offsets", "Offsets", "tune", "TuningResult",
    ),
    "reporting": ("report",),
    "engines.parquet": ("ParquetShards",),
    "models.shard_lists": ("recommend_shards",),
    "metrics.sharded": ("evaluate_shards",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fairmf' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fairmf.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
