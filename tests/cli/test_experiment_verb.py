"""`fairmf experiment`: the same plan as the library makes."""

import json

from fairmf import evaluate, load_model, plan_experiment
from fairmf.data.split_io import load_split


def test_the_plan_of_the_library(fairmf, made):
    model, split = made / "model.fairmf", load_split(made / "split")
    done = fairmf(
        "experiment", str(model), str(made / "split"), "--metrics", "ndcg@10,aplt@10", "--evenness", "0.5", "--json",
        "--records", "no",
    )  # fmt: skip
    assert done.code == 0, done.err
    names = ["ndcg@10", "aplt@10"]
    options = {"train": split.train, "metrics": names, "bootstrap": 0}
    results = [evaluate(load_model(model), split.test, evenness=e, **options) for e in (0.0, 0.5)]
    wanted = [plan.to_dict() for plan in plan_experiment(*results, metrics=names)]
    assert json.loads(done.out)["plans"] == json.loads(json.dumps(wanted))


def test_days_and_a_change_of_ones_own(fairmf, made):
    done = fairmf(
        "experiment", str(made / "model.fairmf"), str(made / "split"), "--metrics", "ndcg@10", "--change", "0.01",
        "--daily-users", "100", "--records", "no",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "+0.0100" in done.out
    assert "days" in done.out
