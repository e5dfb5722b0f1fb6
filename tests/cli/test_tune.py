"""`tune` searches where it is told to, keeps its trials, and writes the best model."""

import pyarrow.csv
import pytest

from fairmf import evaluate, load_model
from fairmf.cli.errors import Problem
from fairmf.cli.tune import read_bounds, read_space
from fairmf.control.search_space import Choice, Doubling, Range
from fairmf.data.split import Split

SMALL = ("--epochs", 3, "--trials", 4, "--space", "regularization=0.001:0.1,factors=4:8:double")


@pytest.fixture(autouse=True)
def _needs_optuna():
    pytest.importorskip("optuna", reason='needs the tune extra: pip install "fairmf[tune]"')


def test_the_best_model_is_the_best_trials(fairmf, made, tmp_path):
    done = fairmf("tune", made / "split", *SMALL, "-o", "best.fairmf", "--table", "trials.csv", "--json")
    assert done.code == 0, done.err
    best = done.json["best"]
    table = pyarrow.csv.read_csv(tmp_path / "trials.csv").to_pylist()
    assert len(table) == 4
    complete = [row for row in table if row["state"] == "complete"]
    assert best["metrics"]["ndcg@100"] == max(row["ndcg@100"] for row in complete)
    model = load_model(tmp_path / "best.fairmf")
    assert model.factors == best["settings"]["factors"] in (4, 8)
    assert model.regularization == best["settings"]["regularization"]
    assert model.epochs == 3
    assert model.fitted.path.n_users == Split.load(made / "split").validation.n_users
    ways = [row["way"] for row in done.json["along_the_path"]]
    assert ways == ["tuned"] * 11 + ["default"] * 11
    assert "default" in done.json["summary"]
    measured = evaluate(model, Split.load(made / "split").validation, metrics=["ndcg@100"], bootstrap=0)
    assert measured["ndcg@100"] == pytest.approx(best["metrics"]["ndcg@100"], abs=2e-3)
    assert (tmp_path / "best.tune.toml").exists()


@pytest.mark.slow
def test_a_stored_search_goes_on(fairmf, made, tmp_path):
    how = ("tune", made / "split", "--epochs", 2, "--space", "regularization=0.001:0.1", "--storage", "s.db", "--json")
    first = fairmf(*how, "--trials", 2)
    assert first.code == 0, first.err
    assert sum(first.json["trials"].values()) == 2
    more = fairmf(*how, "--trials", 3)
    assert sum(more.json["trials"].values()) == 3
    assert (tmp_path / "s.db").exists()
    assert sum(fairmf(*how, "--trials", 1).json["trials"].values()) == 3  # nothing is left to try


def test_a_seed_that_is_drawn_is_on_record(fairmf, made, tmp_path):
    how = ("--epochs", 2, "--trials", 2, "--factors", 3, "--space", "regularization=0.001:0.1", "--json")
    first = fairmf("tune", made / "split", *how, "--seed", "none", "--record", "r.toml")
    assert first.code == 0, first.err
    again = fairmf("tune", "--config", "r.toml", "--json", "--no-record")
    assert again.json["best"] == first.json["best"]


def test_several_objectives_give_a_front_and_bounds_choose_from_it(fairmf, made):
    how = ("tune", made / "split", "--epochs", 2, "--trials", 6, "--objectives", "ndcg@100,gini@20", "--factors", 4)
    space = ("--space", "fairness=0.1:10,dial=0.1:4")
    done = fairmf(*how, *space, "--json")
    assert done.code == 0, done.err
    front = done.json["front"]
    assert all(trial["dial"] is not None for trial in front)
    ginis = [trial["metrics"]["gini@20"] for trial in front]
    bound = sorted(ginis)[0] + 1e-9
    bounded = fairmf(*how, *space, "--where", f"max_gini@20={bound}", "--json")
    assert bounded.json["best"]["metrics"]["gini@20"] == min(ginis)
    shown = fairmf(*how, *space)
    assert "Pareto front" in shown.out
    assert shown.out.count("*") >= (2 if len(front) > 1 else 0)


def test_spaces_and_bounds_in_words():
    space = read_space("regularization=0.001:0.1, factors=16:128:double,epochs=4:9:even,solver=cg|cholesky,x=1|2")
    assert space == {
        "regularization": Range(0.001, 0.1),
        "factors": Doubling(16, 128),
        "epochs": Range(4, 9, log=False, integer=True),
        "solver": Choice(("cg", "cholesky")),
        "x": Choice((1, 2)),
    }
    assert read_bounds("max_gini=0.85, min_recall@20=0.3") == {"max_gini": 0.85, "min_recall@20": 0.3}
    assert read_bounds(None) == {}
    for wrong in ("regularization", "regularization=", "a=1:2:thrice", "a=x:2"):
        with pytest.raises(Problem):
            read_space(wrong)
    with pytest.raises(Problem):
        read_bounds("max_gini")
