"""Tuning on MovieLens-1M's public split: the quality it is expected to reach on the validation users."""

import pytest
from conftest import load_real_split

from fairmf.control.search_space import Doubling, default_space
from fairmf.control.tuning import tune
from fairmf.data.split import HeldOut, Split
from fairmf.models.als import IALS

pytestmark = [pytest.mark.realdata, pytest.mark.slow]


def test_tuned_for_quality():
    train, parts = load_real_split("ml-1m-split.npz")
    split = Split(train, *(HeldOut(*parts[name]) for name in ("validation", "test")))
    space = default_space(IALS(), several=False) | {"factors": Doubling(16, 128)}
    found = tune(IALS(), split, trials=25, space=space)
    assert found.best().metrics["ndcg@100"] >= 0.421
    assert found.best().metrics["ndcg@100"] > found.trials[0].metrics["ndcg@100"]  # the default settings
