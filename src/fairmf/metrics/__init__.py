"""5. Metrics: accuracy for users, exposure for items and groups, with intervals."""

from fairmf.inequality import gini
from fairmf.metrics.audit import Audit, audit
from fairmf.metrics.early_stopping import EarlyStopping
from fairmf.metrics.evaluate import evaluate, evaluate_lists
from fairmf.metrics.evaluation import Evaluation
from fairmf.metrics.exposure import lorenz_curve
from fairmf.metrics.lists import Ranker
from fairmf.metrics.retrieval import Retrieval, evaluate_retrieval

__all__ = [
    "evaluate",
    "evaluate_lists",
    "Evaluation",
    "audit",
    "Audit",
    "EarlyStopping",
    "Ranker",
    "Retrieval",
    "evaluate_retrieval",
    "gini",
    "lorenz_curve",
]
