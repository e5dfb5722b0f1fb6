"""`tradeoff` and `target` say what the library finds, and write what they say."""

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from fairmf import evaluate, load_model, trade_off
from fairmf.data.split import Split
from fairmf.models.evenness import Level


@pytest.fixture
def model(made):
    return load_model(made / "model.fairmf")


@pytest.fixture
def split(made):
    return Split.load(made / "split")


def test_tradeoff_is_the_librarys_curve(fairmf, made, model, split, tmp_path):
    done = fairmf("tradeoff", made / "model.fairmf", made / "split", "--fairness", "0,1,4", "--json", "-o", "curve.csv")
    assert done.code == 0, done.err
    expected = trade_off(model, split, fairness=[0, 1, 4], progress=False)
    for row, other in zip(done.json["rows"], expected, strict=True):
        assert {name: row[name] for name in expected.metrics} == {name: other[name] for name in expected.metrics}
    table = pyarrow.csv.read_csv(tmp_path / "curve.csv")
    assert table.column("fairness").to_pylist() == [0, 1, 4]
    assert table.column("gini@20").to_pylist() == expected.column("gini@20")
    assert (tmp_path / "curve.tradeoff.toml").exists()


def test_tradeoff_on_test_users_differs_and_chosen_points_are_as_many_as_asked_for(
    fairmf, made, model, split, tmp_path
):
    how = ("tradeoff", made / "model.fairmf", made / "split", "--points", 4, "--metrics", "ndcg@10,gini@10", "--json")
    one = fairmf(*how, "--record", "r.toml").json
    two = fairmf(*how, "--part", "test", "--no-record").json
    assert len(one["rows"]) == len(two["rows"]) == 4
    row = two["rows"][1]
    level = Level(row["fairness"], row["flatten"], row["discount"])
    measured = evaluate(model, split.test, metrics=["gini@10"], bootstrap=0, evenness=level)
    assert row["gini@10"] == measured["gini@10"]
    assert one["rows"][0]["gini@10"] != two["rows"][0]["gini@10"]
    assert (
        fairmf("tradeoff", "--config", "r.toml", "--json", "--no-record").json["rows"][1]["ndcg@10"]
        == (one["rows"][1]["ndcg@10"])
    )


def test_tradeoffs_table_shows_the_metrics_of_each_evenness(fairmf, made, model, split):
    done = fairmf("tradeoff", made / "model.fairmf", made / "split", "--evenness", "0,0.5,1", "--no-record")
    rows = [line.replace("│", " ").split() for line in done.out.splitlines() if line.startswith("│")]
    expected = trade_off(model, split, evenness=[0, 0.5, 1], progress=False)
    names = ("ndcg@100", "recall@20", "gini@20", "coverage@20")
    assert rows == [[f"{row['evenness']:g}", *(f"{row[name]:.4f}" for name in names)] for row in expected]


def test_the_experts_dial_marks_what_is_served(fairmf, made, model):
    served = f"{model.fitted.fairness:g}"
    done = fairmf("tradeoff", made / "model.fairmf", made / "split", "--fairness", f"{served},3", "--no-record")
    rows = [line for line in done.out.splitlines() if line.startswith("│")]
    assert ["*" in row for row in rows] == [True, False]
    assert "the fairness that the model uses by default" in done.out
    assert fairmf("tradeoff", made / "model.fairmf", made / "split", "--fairness", "1", "--evenness", "1").code == 1


@pytest.mark.parametrize(
    ("flag", "metric", "at_most"), [("--max-gini", "gini@5", True), ("--min-coverage", "coverage@5", False)]
)
def test_target_writes_a_model_that_serves_what_was_found(fairmf, made, model, split, tmp_path, flag, metric, at_most):
    measured = ["ndcg@100", "gini@5", "coverage@5"]
    least, most = trade_off(model, split, evenness=[0, 1], metrics=measured, progress=False).column(metric)
    value = (least + most) / 2  # what some evenness reaches, and 0 does not
    done = fairmf(
        "target", made / "model.fairmf", made / "split", flag, value, "--at", 5, "-o", "fair.fairmf", "--json"
    )
    assert done.code == 0, done.err
    found = done.json
    served = load_model(tmp_path / "fair.fairmf")
    assert served.fitted.fairness == found["fairness"]
    assert served.fitted.path.level(found["evenness"]).strengths == (
        served.fitted.fairness, served.fitted.flatten, served.fitted.discount, served.fitted.lift
    )  # fmt: skip
    assert 0 < found["evenness"] <= 1
    assert served.fitted.interactions is not None
    measured = evaluate(served, split.validation, metrics=[metric], bootstrap=0)[metric]
    assert (measured <= value) if at_most else (measured >= value)
    assert measured == pytest.approx(found["metrics"][metric])
    assert (tmp_path / "fair.target.toml").exists()


def test_target_without_output_says_the_number(fairmf, made, split, tmp_path):
    done = fairmf("target", made / "model.fairmf", made / "split", "--max-ndcg-loss", 0.05, "--no-record")
    assert done.code == 0
    assert "ndcg@100 >=" in done.out
    assert "the evenness found" in done.out
    assert f"lists of {split.validation.n_users} users" in " ".join(done.out.split())
    assert list(tmp_path.glob("*.fairmf")) == []


def test_a_goal_out_of_reach_is_an_error_with_advice_unless_the_nearest_will_do(fairmf, made, tmp_path):
    goal = ("target", made / "model.fairmf", made / "split", "--max-gini", 0.01, "-o", "fair.fairmf")
    done = fairmf(*goal)
    assert done.code == 1
    assert "cannot be reached" in done.err
    assert "FairRec with share" not in done.err
    assert "--nearest" in done.err
    assert "--alternatives measures FairRec" in done.err
    assert not (tmp_path / "fair.fairmf").exists()
    slow = fairmf(*goal, "--alternatives")
    assert slow.code == 1
    assert "FairRec with share" in slow.err
    nearest = fairmf(*goal, "--nearest", "--json")
    assert nearest.code == 0
    assert nearest.json["reached"] is False
    assert nearest.json["evenness"] == 1
    assert load_model(tmp_path / "fair.fairmf").fitted.fairness == nearest.json["fairness"]


@pytest.mark.parametrize("ending", ["parquet", "arrow", "json"])
def test_curves_in_other_formats(fairmf, made, tmp_path, ending):
    import json

    import pyarrow.feather

    name = f"curve.{ending}"
    assert fairmf("tradeoff", made / "model.fairmf", made / "split", "--fairness", "0,2", "-o", name).code == 0
    read = {
        "parquet": lambda p: pq.read_table(p).to_pylist(),
        "arrow": lambda p: pyarrow.feather.read_table(p).to_pylist(),
        "json": lambda p: json.loads(p.read_text()),
    }[ending](tmp_path / name)
    assert [row["fairness"] for row in read] == [0, 2]
    assert 0 < read[1]["gini@20"] < read[0]["gini@20"] < 1
