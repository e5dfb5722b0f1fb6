"""iALS on MovieLens-1M's public split: the quality that good settings are known to give."""

import numpy as np
import pytest
from conftest import load_real_split

from fairmf.data.split import HeldOut
from fairmf.metrics.evaluate import evaluate
from fairmf.models.als import IALS
from fairmf.models.popularity import Popularity

pytestmark = [pytest.mark.realdata, pytest.mark.slow]


@pytest.fixture(scope="module")
def movielens():
    train, held_out = load_real_split("ml-1m-split.npz")
    return train, HeldOut(*held_out["validation"], known_users=False)


def test_ials_quality_over_five_seeds(movielens):
    train, validation = movielens
    results = []
    for seed in range(5):
        model = IALS(factors=64, regularization=0.003, unobserved_weight=0.1, epochs=16, random_state=seed).fit(train)
        found = evaluate(model, validation, bootstrap=0)
        results.append((found["ndcg@100"], found["recall@20"]))
    ndcg, recall = np.mean(results, axis=0)
    assert ndcg >= 0.409
    assert recall >= 0.337


def test_ials_beats_popularity_on_quality_and_on_exposure(movielens):
    train, validation = movielens
    popularity = evaluate(Popularity().fit(train), validation, bootstrap=0)
    ials = evaluate(IALS(factors=64, regularization=0.003).fit(train), validation, bootstrap=0)
    assert ials["ndcg@100"] > popularity["ndcg@100"] + 0.1
    assert ials["gini@20"] < popularity["gini@20"] - 0.05
