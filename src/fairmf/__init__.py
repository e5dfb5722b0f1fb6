"""fairmf: matrix factorisation that is fair to items.

    from fairmf import FairALS, calibrate, read_csv, split_by_user

    split = split_by_user(read_csv("events.csv", user="user_id", item="item_id"), heldout=1000)
    model = FairALS(settings="auto").fit(split.train)
    print(calibrate(model, split))  # what each evenness from 0 to 1 costs
    ids, scores = model.recommend(split.train.user_ids.values[:5], N=20, evenness=0.3)

Names are imported on first use, so that `import fairmf` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fairmf.version import __version__

if TYPE_CHECKING:
    from fairmf.baselines.ease import EASE as EASE
    from fairmf.baselines.frank_wolfe import FrankWolfe as FrankWolfe
    from fairmf.baselines.graph_filter import GraphFilter as GraphFilter
    from fairmf.baselines.mult_vae import MultVAE as MultVAE
    from fairmf.baselines.pmmf import PMMF as PMMF
    from fairmf.baselines.popularity_groups import CalibratedPopularity as CalibratedPopularity
    from fairmf.baselines.popularity_groups import XQuAD as XQuAD
    from fairmf.baselines.rec_vae import RecVAE as RecVAE
    from fairmf.control.calibrate import Calibration as Calibration
    from fairmf.control.calibrate import calibrate as calibrate
    from fairmf.control.calibrate import recalibrate as recalibrate
    from fairmf.control.fit_offsets import Offsets as Offsets
    from fairmf.control.fit_offsets import fit_offsets as fit_offsets
    from fairmf.control.target import Target as Target
    from fairmf.control.target import fit_to_target as fit_to_target
    from fairmf.control.trade_off import Curve as Curve
    from fairmf.control.trade_off import fit_path as fit_path
    from fairmf.control.trade_off import trade_off as trade_off
    from fairmf.control.tuning import tune as tune
    from fairmf.control.tuning_result import TuningResult as TuningResult
    from fairmf.data.dataset_load import fetch_dataset as fetch_dataset
    from fairmf.data.dataset_load import load_dataset as load_dataset
    from fairmf.data.datasets import datasets as datasets
    from fairmf.data.events import Events as Events
    from fairmf.data.features import Features as Features
    from fairmf.data.half_life import HalfLife as HalfLife
    from fairmf.data.ids import Ids as Ids
    from fairmf.data.interactions import Interactions as Interactions
    from fairmf.data.read import read_arrow as read_arrow
    from fairmf.data.read import read_frame as read_frame
    from fairmf.data.read import read_parquet as read_parquet
    from fairmf.data.read_csv import read_csv as read_csv
    from fairmf.data.read_sql import read_sql as read_sql
    from fairmf.data.split import HeldOut as HeldOut
    from fairmf.data.split import Split as Split
    from fairmf.data.split_known import split_by_interaction as split_by_interaction
    from fairmf.data.split_known import split_by_item as split_by_item
    from fairmf.data.split_methods import split_by_time as split_by_time
    from fairmf.data.split_methods import split_by_user as split_by_user
    from fairmf.data.synthetic import synthetic as synthetic
    from fairmf.data.synthetic import synthetic_events as synthetic_events
    from fairmf.distributed.cluster import RayCluster as RayCluster
    from fairmf.distributed.parquet_shards import ParquetShards as ParquetShards
    from fairmf.leaderboards.run import Leaderboard as Leaderboard
    from fairmf.leaderboards.run import leaderboard as leaderboard
    from fairmf.metrics.audit import audit as audit
    from fairmf.metrics.audit_result import Audit as Audit
    from fairmf.metrics.compare import compare as compare
    from fairmf.metrics.comparison import Comparison as Comparison
    from fairmf.metrics.early_stopping import EarlyStopping as EarlyStopping
    from fairmf.metrics.evaluate import Evaluation as Evaluation
    from fairmf.metrics.evaluate import evaluate as evaluate
    from fairmf.metrics.evaluate import evaluate_lists as evaluate_lists
    from fairmf.metrics.experiment import ExperimentPlan as ExperimentPlan
    from fairmf.metrics.experiment import plan_experiment as plan_experiment
    from fairmf.metrics.experiment import sample_size as sample_size
    from fairmf.metrics.shard_evaluate import evaluate_shards as evaluate_shards
    from fairmf.models.als import IALS as IALS
    from fairmf.models.als import FairALS as FairALS
    from fairmf.models.evenness import EvennessPath as EvennessPath
    from fairmf.models.evenness import Level as Level
    from fairmf.models.fairness_weights import group_weights as group_weights
    from fairmf.models.fiadmm import FiADMM as FiADMM
    from fairmf.models.history_request import HistoryAnswer as HistoryAnswer
    from fairmf.models.history_request import HistoryRequest as HistoryRequest
    from fairmf.models.model_file import load_model as load_model
    from fairmf.models.popularity import Popularity as Popularity
    from fairmf.models.shard_lists import recommend_shards as recommend_shards
    from fairmf.models.shown import TitledLists as TitledLists
    from fairmf.models.shown import titled_lists as titled_lists
    from fairmf.reports.page import report as report

_HOMES = {
    "data.interactions": ("Interactions",),
    "data.events": ("Events",),
    "data.features": ("Features",),
    "data.half_life": ("HalfLife",),
    "data.ids": ("Ids",),
    "data.read": ("read_frame", "read_parquet", "read_arrow",),
    "data.read_csv": ("read_csv",),
    "data.read_sql": ("read_sql",),
    "data.synthetic": ("synthetic", "synthetic_events",),
    "data.dataset_load": ("load_dataset", "fetch_dataset",),
    "data.datasets": ("datasets",),
    "data.split": ("Split", "HeldOut",),
    "data.split_known": ("split_by_interaction", "split_by_item",),
    "data.split_methods": ("split_by_user", "split_by_time",),
    "models.als": ("FairALS", "IALS",),
    "models.fiadmm": ("FiADMM",),
    "models.popularity": ("Popularity",),
    "models.history_request": ("HistoryRequest", "HistoryAnswer",),
    "models.model_file": ("load_model",),
    "models.fairness_weights": ("group_weights",),
    "distributed.cluster": ("RayCluster",),
    "metrics.evaluate": ("evaluate", "evaluate_lists", "Evaluation",),
    "metrics.compare": ("compare",),
    "metrics.comparison": ("Comparison",),
    "metrics.early_stopping": ("EarlyStopping",),
    "metrics.audit": ("audit",),
    "metrics.experiment": ("plan_experiment", "sample_size", "ExperimentPlan",),
    "metrics.audit_result": ("Audit",),
    "baselines.mult_vae": ("MultVAE",),
    "baselines.rec_vae": ("RecVAE",),
    "baselines.frank_wolfe": ("FrankWolfe",),
    "baselines.pmmf": ("PMMF",),
    "baselines.popularity_groups": ("XQuAD", "CalibratedPopularity",),
    "baselines.ease": ("EASE",),
    "baselines.graph_filter": ("GraphFilter",),
    "control.calibrate": ("calibrate", "recalibrate", "Calibration",),
    "models.evenness": ("Level", "EvennessPath",),
    "control.trade_off": ("trade_off", "fit_path", "Curve",),
    "control.target": ("fit_to_target", "Target",),
    "control.fit_offsets": ("fit_offsets", "Offsets",),
    "control.tuning": ("tune",),
    "control.tuning_result": ("TuningResult",),
    "reports.page": ("report",),
    "leaderboards.run": ("leaderboard", "Leaderboard",),
    "distributed.parquet_shards": ("ParquetShards",),
    "models.shard_lists": ("recommend_shards",),
    "models.shown": ("titled_lists", "TitledLists",),
    "metrics.shard_evaluate": ("evaluate_shards",),
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
