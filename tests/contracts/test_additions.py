"""A metric or a model is added by a row of one table: everything that lists them reads it.

Each test registers a toy and uses it wherever a user could name it. A real one touches three files: the formula or the
class, its row in the registry, and the page (docs/metrics.md) or the list of public names (fairmf/__init__.py).
"""

from dataclasses import dataclass

import numpy as np
import pytest

from fairmf import (
    EarlyStopping,
    FairALS,
    Popularity,
    audit,
    evaluate,
    load_model,
    report,
    split_by_user,
    synthetic,
    trade_off,
)
from fairmf.cli.model_flags import ModelSettings
from fairmf.errors import InvalidParameter
from fairmf.metrics.registry import METRICS, AccuracyMetric, ExposureMetric, known_names
from fairmf.metrics.sentences import arrow, title, written
from fairmf.models.registry import MODELS, Kind
from fairmf.reproduce.spec import build, effective


@pytest.fixture(scope="module")
def split():
    return split_by_user(synthetic(200, 60, 3000), heldout=30, protocol="seeded")


def first_slot(hits, n_targets, K):
    """Whether the first item is a target."""
    return np.where(n_targets > 0, hits[:, :1].any(axis=1), np.nan)


@pytest.fixture
def toy_metrics(monkeypatch):
    rows = (
        AccuracyMetric(name="first", title="First", meaning="part of users whose first item is right",
                       per_user=first_slot, percent=True),
        ExposureMetric(name="shown", title="Shown", meaning="places of all items", measure=lambda o, _: o.sum(axis=-1),
                       highest=np.inf),
    )  # fmt: skip
    for row in rows:
        monkeypatch.setitem(METRICS, row.name, row)


def test_a_metric_is_one_row(toy_metrics, split, tmp_path):
    assert {"first", "shown", "group_shown"} <= set(known_names())
    assert (title("first@5"), arrow("first@5"), arrow("shown@5"), written("first@5", 0.5)) == (
        "First@5", "↑", "↓", "50.0%",
    )  # fmt: skip
    stopping = EarlyStopping(split.validation, "first@5", patience=2)
    model = FairALS(factors=4, epochs=3, random_state=0).fit(split.train, callbacks=[stopping], progress=False)
    assert stopping.minimise is False
    assert len(stopping.scores) == 3
    found = evaluate(model, split.test, metrics=["first@5", "shown@5"], bootstrap=20)
    assert found["shown@5"] == 5 * split.test.n_users
    assert 0 <= found.intervals["first@5"][0] <= found["first@5"] <= found.intervals["first@5"][1] <= 1
    assert "first" in repr(evaluate(model, split.test, at=5, bootstrap=0))  # all metrics by default
    told = audit(Popularity().fit(split.train), model, split, at=5, quality="first", bootstrap=20)
    assert "First@5" in told.summary()
    curve = trade_off(model, split, points=3, metrics=("first@5", "gini@5"), progress=False)
    assert curve.quality == "first@5"
    report(curve, tmp_path / "report.html")
    assert "part of users whose first item is right" in (tmp_path / "report.html").read_text(encoding="utf-8")


@dataclass(eq=False)
class Unpopular(Popularity):
    """Recommend what nobody has had."""

    def fit(self, data):
        """Count, and turn the order round."""
        super().fit(data)
        self.fitted.item_factors[:] *= -1
        return self


def test_a_model_is_one_row(monkeypatch, split, tmp_path):
    with pytest.raises(InvalidParameter, match="own models"):
        Unpopular().fit(split.train).save(tmp_path / "toy.fairmf")
    row = Kind("unpopular", "Unpopular", __name__, has_dial=False, is_trained=False)
    monkeypatch.setitem(MODELS, row.name, row)
    for name in ("unpopular", "Unpopular"):  # as the command line is asked for it
        assert type(ModelSettings(name, {"num_threads": 1}).build()) is Unpopular
    assert type(build("unpopular", {})) is Unpopular  # as an experiment is
    assert effective("unpopular", {}) == {"backend": "cpu"}
    model = Unpopular().fit(split.train)
    model.save(tmp_path / "toy.fairmf")
    again = load_model(tmp_path / "toy.fairmf")
    assert type(again) is Unpopular
    assert np.array_equal(again.item_factors, model.item_factors)
    assert (
        evaluate(again, split.test, metrics=["gini@5"]).values == evaluate(model, split.test, metrics=["gini@5"]).values
    )
