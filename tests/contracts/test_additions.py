"""A model, solver, backend, metric or verb is added by a row of one table: everything that lists them reads it.

Each test registers a toy and uses it wherever a user could name it. A real one touches at most three files
(docs/architecture.md): its own, the one with the table, and for models and metrics the one that makes it public.
"""

import json
import sys
import types
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest
import typer

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
from fairmf.backends.reference import ReferenceBackend
from fairmf.backends.registry import BACKENDS, get_backend
from fairmf.cli import app
from fairmf.cli.model_flags import ModelSettings
from fairmf.cli.session import Session
from fairmf.errors import InvalidParameter
from fairmf.metrics.metric_kinds import AccuracyMetric, ExposureMetric
from fairmf.metrics.registry import METRICS, known_names
from fairmf.metrics.sentences import arrow, title, written
from fairmf.models import als_exact
from fairmf.models.als import SOLVERS, Solver
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


def test_a_solver_is_one_row(monkeypatch, split, tmp_path):
    def twice(model, problem, state):
        """Run two exact epochs as one."""
        once = als_exact.epoch(problem, state, model.trained_fairness())
        return als_exact.epoch(problem, once, model.trained_fairness())

    def finish(model, problem, state):
        return als_exact.users(problem, state, model.trained_fairness())

    settings = {"factors": 4, "random_state": 0}
    with pytest.raises(InvalidParameter, match=r"'solver'.*'alternating_subspace'\. Got 'twice' instead"):
        FairALS(solver="twice").fit(split.train)
    monkeypatch.setitem(SOLVERS, "twice", Solver(twice, finish))
    model = FairALS(**settings, solver="twice", epochs=3).fit(split.train, progress=False)
    exact = FairALS(**settings, solver="cholesky", epochs=6).fit(split.train, progress=False)
    assert np.array_equal(model.item_factors, exact.item_factors)
    assert len(model.history) == 3
    assert ModelSettings("FairALS", {"solver": "twice", "num_threads": 1}).build().solver == "twice"  # --solver twice
    model.save(tmp_path / "toy.fairmf")
    assert load_model(tmp_path / "toy.fairmf").solver == "twice"


def test_a_backend_is_one_row(monkeypatch, split, tmp_path):
    class Counting(ReferenceBackend):
        """Count the half-steps that are improved."""

        name = "counting"
        improved = 0

        def improve(self, step, x, effort):
            Counting.improved += 1
            return super().improve(step, x, effort)

    toy = types.ModuleType("counting_backend")
    toy.BACKEND = Counting()
    monkeypatch.setitem(sys.modules, toy.__name__, toy)
    settings = {"factors": 4, "epochs": 2, "random_state": 0}
    with pytest.raises(InvalidParameter, match=r"'backend'.*Got 'counting' instead"):
        FairALS(backend="counting").fit(split.train)
    monkeypatch.setitem(BACKENDS, "counting", toy.__name__)
    model = FairALS(**settings, backend="counting").fit(split.train, progress=False)
    assert Counting.improved >= 4
    expected = FairALS(**settings, backend="reference").fit(split.train, progress=False)
    assert np.array_equal(model.item_factors, expected.item_factors)
    assert np.array_equal(model.recommend([3, 5], N=4)[0], expected.recommend([3, 5], N=4)[0])
    model.save(tmp_path / "toy.fairmf")
    assert load_model(tmp_path / "toy.fairmf").backend == "counting"
    get_backend.cache_clear()


def test_a_verb_is_one_row(monkeypatch, tmp_path, capsys):
    def shout(text: Annotated[str, typer.Argument()], *, session: Session, times: int = 1) -> None:
        """Say it loudly."""
        session.result |= {"said": " ".join([text.upper()] * times)}

    toy = types.ModuleType("fairmf.cli.shout")
    toy.shout = shout
    monkeypatch.setitem(sys.modules, toy.__name__, toy)
    monkeypatch.setitem(app.VERBS, "shout", app.Verb(app.TOOLS, "Say it loudly."))
    assert app.run(["shout", "hello", "--times", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["said"] == "HELLO HELLO"
    (tmp_path / "settings.toml").write_text("[shout]\ntimes = 3\n")
    assert app.run(["shout", "oh", "--config", str(tmp_path / "settings.toml"), "--json"]) == 0  # as flags, so in files
    assert json.loads(capsys.readouterr().out)["said"] == "OH OH OH"
    assert app.run(["--help"]) == 0
    assert "Say it loudly." in capsys.readouterr().out
    assert app.run(["shuot", "hello"]) == 2
    assert "shout" in capsys.readouterr().err  # offered for what is nearly its name
