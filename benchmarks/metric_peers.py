"""Compare every metric that irspack, LensKit, RecTools or ranx also has with theirs, on the same lists.

    python -m venv peers && peers/bin/pip install irspack lenskit rectools ranx statsmodels
    PYTHONPATH=src:. peers/bin/python -m benchmarks.metric_peers -o benchmarks/metric_peers.json

A row says how far both values are apart. Where they are further apart than 1e-9, the row has the reason; without one,
the command fails. Users have up to 30 test items, and then at most K. docs/metrics.md ("Other libraries") shows the
rows. Peers that are not installed are left out, with a line.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp

from fairmf.data.interactions import Interactions
from fairmf.metrics.evaluate import Evaluation, evaluate_lists
from fairmf.metrics.significance import holm

K, USERS, ITEMS, TRAIN = 10, 200, 300, 400
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Row:
    """One metric of fairmf beside that of a peer."""

    peer: str
    theirs: str
    ours: str
    their_value: float
    our_value: float
    note: str = ""

    @property
    def apart(self) -> float:
        """How far both values are apart."""
        return abs(self.their_value - self.our_value)


@dataclass(frozen=True)
class Case:
    """Lists, test sets and training data, in the forms that peers want."""

    lists: np.ndarray
    tests: list[np.ndarray]
    train: sp.csr_array
    features: np.ndarray

    @classmethod
    def drawn(cls, most_tests: int, seed: int) -> Case:
        """Draw full lists, 1 to `most_tests` test items per user, and training data in which some items are absent."""
        random = np.random.default_rng(seed)
        taste = 1 / np.arange(1, ITEMS + 1) ** 0.7
        draw = [random.choice(ITEMS, K + most_tests, replace=False, p=taste / taste.sum()) for _ in range(USERS)]
        lists = np.stack([row[:K] for row in draw])
        tests = [random.permutation(row)[: random.integers(1, most_tests + 1)] for row in draw]
        train = sp.csr_array((random.random((TRAIN, ITEMS)) < 0.3 * taste[None, :]).astype(float))
        return cls(lists, tests, train, random.integers(0, 3, (ITEMS, 5)).astype(float))

    @property
    def reco(self) -> pd.DataFrame:
        """The lists as a table with the column names of RecTools."""
        users, ranks = np.indices(self.lists.shape)
        columns = {"user_id": users.ravel(), "item_id": self.lists.ravel(), "rank": ranks.ravel() + 1}
        return pd.DataFrame(columns)

    @property
    def test_frame(self) -> pd.DataFrame:
        """The test sets as a table."""
        users = np.repeat(np.arange(USERS), [len(t) for t in self.tests])
        return pd.DataFrame({"user_id": users, "item_id": np.concatenate(self.tests)})

    @property
    def train_frame(self) -> pd.DataFrame:
        """The training data as a table."""
        users, items = self.train.nonzero()
        return pd.DataFrame({"user_id": users, "item_id": items})

    def evaluation(self) -> Evaluation:
        """Our metrics, from the tables that peers get."""
        train = Interactions.from_csr(self.train)
        return evaluate_lists(
            self.reco, self.test_frame, train=train, items=range(ITEMS), features=self.features, at=K, bootstrap=0
        )


def irspack_rows(case: Case, ours: Evaluation) -> Iterator[Row]:
    """Compare with irspack's Evaluator, which ranks a score matrix."""
    from irspack import Evaluator

    scores = np.full((USERS, ITEMS), -1.0)
    np.put_along_axis(scores, case.lists, np.arange(K, 0, -1.0)[None, :].repeat(USERS, 0), axis=1)
    truth = sp.csr_matrix(sp.coo_array((np.ones(len(f := case.test_frame)), (f.user_id, f.item_id)), (USERS, ITEMS)))
    found = Evaluator(truth, cutoff=K, n_threads=1).get_score_from_score_matrix(scores)
    capped = Evaluator(truth, cutoff=K, n_threads=1, recall_with_cutoff=True).get_score_from_score_matrix(scores)
    yield Row("irspack", "recall, recall_with_cutoff=True", "recall", capped["recall"], ours[f"recall@{K}"])
    yield Row("irspack", "recall", "recall_all", found["recall"], ours[f"recall_all@{K}"])
    for theirs, own in (("ndcg", "ndcg"), ("hit", "hit_rate"), ("precision", "precision"), ("map", "map_all"),
                        ("gini_index", "gini"), ("catalog_coverage", "coverage")):  # fmt: skip
        yield Row("irspack", theirs, own, found[theirs], ours[f"{own}@{K}"])
    note = "irspack does not divide by log m; ours times log m"
    scaled = ours[f"entropy@{K}"] * np.log(ITEMS)
    yield Row("irspack", "entropy", "entropy", found["entropy"], scaled, note)


def lenskit_rows(case: Case, ours: Evaluation) -> Iterator[Row]:
    """Compare with LensKit's list metrics and its Gini metrics."""
    from lenskit.data import ItemList
    from lenskit.metrics import NDCG, ExposureGini, Hit, ListGini, LogRankWeight, Precision, Recall, RecipRank
    from lenskit.metrics.ranking._map import AveragePrecision

    lists = [ItemList(item_ids=row, ordered=True) for row in case.lists]
    tests = [ItemList(item_ids=row) for row in case.tests]
    for metric, own in ((Recall(K), "recall"), (Precision(K), "precision"), (Hit(K), "hit_rate"), (RecipRank(K), "mrr"),
                        (NDCG(K, weight=LogRankWeight(offset=1)), "ndcg"), (AveragePrecision(K), "map")):  # fmt: skip
        values = [metric.measure_list(a, b) for a, b in zip(lists, tests, strict=True)]
        yield Row("LensKit", type(metric).__name__, own, float(np.mean(values)), ours[f"{own}@{K}"])
    default = float(np.mean([NDCG(K).measure_list(a, b) for a, b in zip(lists, tests, strict=True)]))
    note = "LensKit's default gives ranks 1 and 2 the same weight; LogRankWeight(offset=1) is ours"
    yield Row("LensKit", "NDCG (default weight)", "ndcg", default, ours[f"ndcg@{K}"], note)
    single = "LensKit adds exposure up in single precision"
    for metric, own, note in (
        (ListGini(K, items=ITEMS), "gini", ""),
        (ExposureGini(K, items=ITEMS), "gini_rbp", single),
        (ExposureGini(K, items=ITEMS, weight=LogRankWeight(offset=1)), "gini_dcg", single),
    ):
        data = [metric.compute_list_data(a, b) for a, b in zip(lists, tests, strict=True)]
        yield Row("LensKit", type(metric).__name__, own, float(metric.global_aggregate(data)), ours[f"{own}@{K}"], note)


def rectools_rows(case: Case, ours: Evaluation) -> Iterator[Row]:
    """Compare with RecTools."""
    from rectools import metrics as rt

    reco, test, train = case.reco, case.test_frame, case.train_frame
    for metric, own in ((rt.Recall(K), "recall_all"), (rt.Precision(K), "precision"), (rt.HitRate(K), "hit_rate"),
                        (rt.MRR(K), "mrr"), (rt.MAP(K), "map_all"),
                        (rt.NDCG(K, divide_by_achievable=True), "ndcg")):  # fmt: skip
        yield Row("RecTools", type(metric).__name__, own, metric.calc(reco, test), ours[f"{own}@{K}"])
    coverage = rt.CatalogCoverage(K, normalize=True).calc(reco, range(ITEMS))
    yield Row("RecTools", "CatalogCoverage", "coverage", coverage, ours[f"coverage@{K}"])
    novelty = rt.MeanInvUserFreq(K).calc(reco, train)
    yield Row("RecTools", "MeanInvUserFreq", "novelty", novelty, ours[f"novelty@{K}"])
    popularity = rt.AvgRecPopularity(K).calc(reco, train)
    yield Row("RecTools", "AvgRecPopularity", "popularity", popularity, ours[f"popularity@{K}"])

    class Cosine(rt.PairwiseDistanceCalculator):
        def _get_distances_for_item_pairs(self, items_0: np.ndarray, items_1: np.ndarray) -> np.ndarray:
            a, b = case.features[np.asarray(items_0)], case.features[np.asarray(items_1)]
            lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
            return 1 - np.divide((a * b).sum(axis=1), lengths, out=np.zeros(len(a)), where=lengths > 0)

    diversity = rt.IntraListDiversity(K, distance_calculator=Cosine()).calc(reco)
    note = "RecTools has Hamming distance; here with a cosine distance of our own"
    yield Row("RecTools", "IntraListDiversity", "ild", diversity, ours[f"ild@{K}"], note)


def ranx_rows(case: Case, ours: Evaluation) -> Iterator[Row]:
    """Compare with ranx."""
    from ranx import Qrels, Run, evaluate

    qrels = Qrels({str(u): {str(j): 1 for j in items} for u, items in enumerate(case.tests)})
    run = Run({str(u): {str(j): float(K - r) for r, j in enumerate(row)} for u, row in enumerate(case.lists)})
    names = {"recall": "recall_all", "precision": "precision", "hit_rate": "hit_rate", "mrr": "mrr", "ndcg": "ndcg",
             "map": "map_all"}  # fmt: skip
    found = evaluate(qrels, run, [f"{name}@{K}" for name in names], threads=1)
    for name, own in names.items():
        yield Row("ranx", name, own, float(found[f"{name}@{K}"]), ours[f"{own}@{K}"])


def statsmodels_rows() -> Iterator[Row]:
    """Compare Holm's correction with that of statsmodels, at the p-value of 40 where they differ most."""
    from statsmodels.stats.multitest import multipletests

    given = np.random.default_rng(4).uniform(0, 0.1, 40) ** 2
    theirs, ours = multipletests(given, method="holm")[1], np.array(holm(given.tolist()))
    worst = int((np.abs(theirs - ours) + 1e-15 * (ours < 1)).argmax())
    yield Row("statsmodels", "multipletests(method='holm')", "holm", float(theirs[worst]), float(ours[worst]))


def main() -> None:
    """Print all rows and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path)
    output = parser.parse_args().output
    warnings.simplefilter("ignore")  # those of peers
    packages = ("irspack", "lenskit", "rectools", "ranx", "statsmodels")
    there = [name for name in packages if importlib.util.find_spec(name)]
    for name in set(packages) - set(there):
        print(f"{name} is not installed: left out")
    found: dict[str, list[Row]] = {}
    for label, most in (("up to 30 test items", 30), ("up to K test items", K)):
        case = Case.drawn(most, seed=7)
        ours = case.evaluation()
        rows = found.setdefault(label, [])
        rows += irspack_rows(case, ours) if "irspack" in there else ()
        rows += lenskit_rows(case, ours) if "lenskit" in there else ()
        rows += rectools_rows(case, ours) if "rectools" in there else ()
        rows += ranx_rows(case, ours) if "ranx" in there else ()
    if "statsmodels" in there:
        found["p-values"] = list(statsmodels_rows())
    unexplained = 0
    for label, rows in found.items():
        print(f"\n{label}")
        for row in rows:
            unexplained += row.apart > TOLERANCE and not row.note
            values = f"{row.their_value:12.6f}{row.our_value:12.6f}{row.apart:10.1e}"
            print(f"  {row.peer:12}{row.theirs:34}{row.ours:14}{values}  {row.note}")
    if output is not None:
        about = {
            "command": "python -m benchmarks.metric_peers", "K": K, "users": USERS, "items": ITEMS,
            "versions": {name: importlib.metadata.version(name) for name in there},
            "rows": {label: [asdict(row) | {"apart": row.apart} for row in rows] for label, rows in found.items()},
        }  # fmt: skip
        text = json.dumps(about, indent=1)
        # One line per row of values.
        output.write_text(re.sub(r"\n {4}(?! )|\n {3}(?=\})", " ", text) + "\n", encoding="utf8")
    if unexplained:
        sys.exit(f"{unexplained} values are further apart than {TOLERANCE:g} without a reason")


if __name__ == "__main__":
    main()
