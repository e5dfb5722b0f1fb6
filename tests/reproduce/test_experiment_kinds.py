"""Every kind from fits to files; its numbers against fits and double loops made here."""

import csv
import json
import re
import statistics

import numpy as np
import pytest
from naive import metrics as naive
from small_experiment import small, small_split, stored

from fairmf import IALS, FairALS, FiADMM
from fairmf.reports import plots
from fairmf.reproduce.kinds import fronts, total
from fairmf.reproduce.pieces import Outcome, Piece
from fairmf.reproduce.run import reproduce
from fairmf.reproduce.tables import short

SEEDS = (0, 1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return stored(tmp_path_factory.mktemp("split"))


@pytest.fixture(scope="module")
def run(data, tmp_path_factory, one_plot):
    """Each kind once."""
    pytest.importorskip("matplotlib", reason='needs the report extra: pip install "fairmf[report]"')
    made = {}

    def once(kind):
        if kind not in made:
            made[kind] = reproduce(small(kind), data, tmp_path_factory.mktemp(kind), progress=False)
        return made[kind]

    return once


def naive_values(ranker, held_out, **options):
    """recall@5, ndcg@10, gini@5 and gini@10 by double loops over the lists."""
    lists = [row.tolist() for _, block in ranker.rank(held_out.fold_in, 20, **options) for row in block]
    rows = held_out.targets.by_user
    targets = [set(rows.indices[a:b].tolist()) for a, b in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)]
    exposed = {K: naive.exposure(lists, held_out.targets.n_items, K) for K in (5, 10)}
    return {
        "recall@5": naive.accuracy(lists, targets, 5)["recall"],
        "ndcg@10": naive.accuracy(lists, targets, 10)["ndcg"],
        "gini@5": naive.gini(exposed[5]),
        "gini@10": naive.gini(exposed[10]),
    }


def row_of(done, **label):
    found = [row for row in done.results["rows"] if all(row[name] == value for name, value in label.items())]
    assert len(found) == 1, label
    return found[0]


def assert_measured(row, runs, digits=1e-6):
    for name, measured in row["measured"].items():
        values = [one[name] for one in runs]
        assert measured["runs"] == len(values)
        assert measured["mean"] == pytest.approx(sum(values) / len(values), abs=digits)
        spread = statistics.stdev(values) if len(values) > 1 else None
        assert measured["spread"] == (None if spread is None else pytest.approx(spread, abs=digits))


def test_a_table_chooses_on_validation_users_and_tells_test_users(run):
    done, split = run("ranking_table"), small_split()
    models = {
        r: [IALS(factors=4, epochs=3, regularization=r, random_state=s).fit(split.train) for s in SEEDS]
        for r in (0.001, 0.1, 3.0)
    }
    on_validation = {r: naive_values(fits[0], split.validation)["ndcg@10"] for r, fits in models.items()}
    best = max(on_validation, key=on_validation.get)
    row = row_of(done, series="iALS")
    assert row["chosen"] == f"regularization {best:g}"
    assert_measured(row, [naive_values(one, split.test) for one in models[best]])
    fair = [FairALS(factors=4, epochs=3, random_state=s).fit(split.train) for s in SEEDS]
    assert_measured(row_of(done, series="fair"), [naive_values(one, split.test) for one in fair])
    assert len(done.results["pieces"]) == done.computed == 1 + (3 + 1) + 2 == total(small("ranking_table"))
    assert row_of(done, series="Popularity")["measured"]["recall@5"]["runs"] == 1


def test_a_front_has_every_dial_and_share_and_marks_what_none_beats(run):
    done, split = run("fronts"), small_split()
    dialled = [IALS(factors=4, epochs=3, random_state=s).fit(split.train) for s in SEEDS]
    for dial in (0.0, 1.0):
        row = row_of(done, series="iALS", dial=dial)
        assert_measured(row, [naive_values(one, split.test, fairness=dial) for one in dialled])
    for phi in (0.5, 2.0):
        fits = [FairALS(factors=4, epochs=3, fairness=phi, random_state=s).fit(split.train) for s in SEEDS]
        row = row_of(done, series="fair", settings=f"fairness {phi:g}")
        runs = row["measured"]["recall@5"]["runs"]  # combinations that are on no front have the first seed alone
        assert_measured(row, [naive_values(f, split.test) for f in fits[:runs]])
        fairer = [one.with_fairrec(0.5, K=20, order="allocation") for one in fits[:runs]]
        row = row_of(done, series="fair + FairRec", settings=f"fairness {phi:g}", share=0.5)
        assert_measured(row, [naive_values(one, split.test) for one in fairer])
    points = {}
    for piece in done.results["pieces"]:
        for point in piece["result"]["points"]:
            name = piece["series"] + (" + FairRec" if point["share"] else "")
            key = (name, piece["settings"].get("fairness"), point["dial"])
            points.setdefault(key, []).append((point["validation"]["recall@5"], point["validation"]["gini@5"]))
    means = {key: tuple(np.mean(values, axis=0)) for key, values in points.items()}
    marked = {(r["series"], r["settings"], r["dial"]): r["front"] == "yes" for r in done.results["rows"]}
    assert len(marked) == len(means) == 6
    for (name, phi, dial), (q, g) in means.items():
        rivals = [v for k, v in means.items() if k[0] == name and v != (q, g)]
        beaten = any(a >= q and b <= g for a, b in rivals)
        label = (name, "" if phi is None else f"fairness {phi:g}", "" if dial is None else dial)
        assert marked[label] == (not beaten)


def front_plan(seen):
    """The second round of a front whose fits with the first seed had these values on the validation users."""
    whole = small(
        "fronts", **{"[0.5, 2.0]": str(sorted(seen)), "shares = [0.0, 0.5]\n": "", "dials = [0.0, 1.0]\n": ""}
    )
    firsts = fronts.plan(whole, [])
    outcomes = []
    for piece in firsts:
        q5, g5, q10, g10 = seen.get(piece.settings.get("fairness"), (0.1, 0.9, 0.1, 0.9))
        values = {"recall@5": q5, "gini@5": g5, "ndcg@10": q10, "gini@10": g10}
        point = {"dial": None, "share": 0.0, "validation": values, "test": values}
        outcomes.append(Outcome(piece, {"points": [point]}, 0.0, ""))
    return firsts, outcomes, whole


def test_only_combinations_on_a_front_get_the_other_seeds():
    """1.0 is on the front at 10 places alone, 2.0 at 5 places alone, 3.0 on neither."""
    seen = {
        0.5: (0.4, 0.8, 0.4, 0.8),
        1.0: (0.3, 0.9, 0.5, 0.9),
        2.0: (0.2, 0.7, 0.3, 0.9),
        3.0: (0.1, 0.95, 0.1, 0.95),
    }
    firsts, outcomes, whole = front_plan(seen)
    assert {piece.seed for piece in firsts} == {0}
    later = [piece for piece in fronts.plan(whole, outcomes) if piece not in firsts]
    assert [(piece.series, piece.settings.get("fairness"), piece.seed) for piece in later] == [
        ("fair", 0.5, 1), ("fair", 1.0, 1), ("fair", 2.0, 1), ("iALS", None, 1)
    ]  # fmt: skip
    assert all(piece.series != "fair" for piece in fronts.plan(whole, outcomes[1:]) if piece not in firsts)


def test_rows_are_tested_against_the_baseline_over_users(run):
    """The difference by hand, and the p-values of all swaps' means, against those of the rows."""
    from fairmf.metrics.significance import holm, sign_flip_p

    done, split = run("ranking_table"), small_split()
    assert "test" not in row_of(done, series="iALS")
    rows = split.test.targets.by_user
    targets = [set(rows.indices[a:b].tolist()) for a, b in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)]

    def by_user(model):
        lists = [row.tolist() for _, block in model.rank(split.test.fold_in, 10) for row in block]
        each = [
            naive.accuracy([one], [wanted], 10)["ndcg"] if wanted else np.nan
            for one, wanted in zip(lists, targets, strict=True)
        ]
        return np.round(np.array(each, dtype=float), 3)

    best = float(row_of(done, series="iALS")["chosen"].split()[1])
    base = np.mean(
        [by_user(IALS(factors=4, epochs=3, regularization=best, random_state=s).fit(split.train)) for s in SEEDS],
        axis=0,
    )
    fair = np.mean([by_user(FairALS(factors=4, epochs=3, random_state=s).fit(split.train)) for s in SEEDS], axis=0)
    difference = fair - base
    popular = np.array(
        next(p for p in done.results["pieces"] if p["series"] == "Popularity")["result"]["points"][0]["users"],
        dtype=float,
    )
    expected = holm([sign_flip_p(each, 10_000, 0)[0] for each in (popular - base, difference)])
    test = row_of(done, series="fair")["test"]
    assert test["difference"] == pytest.approx(np.nanmean(difference), abs=1e-6)
    assert test["p_holm"] == pytest.approx(expected[1])
    assert test["users"] == np.isfinite(difference).sum()
    page = (done.files[0].parent / "table.md").read_text()
    assert f"{test['difference']:+.4f} (" in page
    assert "minus iALS (p)" in page


def test_learning_folds_in_as_its_series_says(data, tmp_path, one_plot):
    cohort = small("learning", **{"settings = {": "ranking = { method = 'cohort', epochs = 5 }\nsettings = {"})
    split = small_split()
    done = reproduce(cohort, data, tmp_path, progress=False)
    row = done.results["rows"][0]
    fits = [FiADMM(factors=4, epochs=1, random_state=s).fit(split.train) for s in SEEDS]
    told = [naive_values(one, split.validation, method="cohort", epochs=5) for one in fits]
    assert row["measured"]["ndcg@10"]["mean"] == pytest.approx(np.mean([one["ndcg@10"] for one in told]), abs=1e-4)


@pytest.mark.parametrize("kind", ["ranking_table", "fronts", "exposure_curves", "epoch_time", "learning", "residuals"])
def test_stored_results_are_rebuilt_without_training(run, kind, tmp_path, monkeypatch):
    from fairmf.reproduce import run as runs

    done = run(kind)
    monkeypatch.setattr(runs, "experiment_named", lambda name: small(name))
    monkeypatch.setattr(FairALS, "fit", None)
    again = runs.rebuild(done.files[0], tmp_path)
    assert again.computed == 0
    assert again.results == done.results
    for name in ("table.md", "table.csv", "results.json"):
        assert (tmp_path / name).read_bytes() == (done.files[0].parent / name).read_bytes()
    assert {p.name for p in again.files} == {p.name for p in done.files}


def test_what_is_no_result_is_not_rebuilt(tmp_path):
    from fairmf.errors import InvalidData
    from fairmf.reproduce.run import rebuild

    with pytest.raises(InvalidData, match="cannot be read"):
        rebuild(tmp_path / "absent.json", tmp_path)
    for text in ("{", "{}", '{"data": 3, "pieces": [], "versions": {}}'):
        (tmp_path / "other.json").write_text(text)
        with pytest.raises(InvalidData, match="holds no results of `fairmf reproduce`"):
            rebuild(tmp_path / "other.json", tmp_path)


def test_exposure_and_coverage_are_those_of_the_lists(run):
    done, split = run("exposure_curves"), small_split()
    piece = next(p for p in done.results["pieces"] if p["settings"]["random_state"] == 1)
    fits = [
        FairALS(factors=4, epochs=3, fairness=piece["settings"]["fairness"], random_state=s).fit(split.train)
        for s in SEEDS
    ]
    lists = [[r.tolist() for _, b in one.rank(split.test.fold_in, 10) for r in b] for one in fits]
    counted = sorted(naive.exposure(lists[1], split.train.n_items, 5), reverse=True)
    assert piece["result"]["points"][0]["exposure"]["5"] == [n for n in counted if n > 0]
    longer = sorted(naive.exposure(lists[1], split.train.n_items, 10), reverse=True)
    assert piece["result"]["points"][0]["exposure"]["10"] == [n for n in longer if n > 0]
    row = done.results["rows"][0]
    assert row["series"] == "fair, fairness 0.5"
    for K in (2, 5, 10):
        shown = [np.mean(np.array(naive.exposure(each, split.train.n_items, K)) > 0) for each in lists]
        assert row["measured"][f"coverage@{K}"]["mean"] == pytest.approx(np.mean(shown))
    assert_measured(
        {"measured": {k: v for k, v in row["measured"].items() if not k.startswith("coverage")}},
        [naive_values(one, split.test) for one in fits],
    )


def test_learning_is_measured_after_epochs_with_the_seconds_up_to_there(run):
    done, split = run("learning"), small_split()
    rows = done.results["rows"]
    assert [row["epoch"] for row in rows] == [1, 2]  # every 2 of 3 epochs, and the first
    for row in rows:
        fits = [FiADMM(factors=4, epochs=row["epoch"], random_state=s).fit(split.train) for s in SEEDS]
        measured = {name: value for name, value in row["measured"].items() if name != "seconds"}
        assert_measured({"measured": measured}, [naive_values(one, split.validation) for one in fits], 1e-4)
    assert 0 < rows[0]["measured"]["seconds"]["mean"] < rows[1]["measured"]["seconds"]["mean"]


def test_residuals_are_the_histories(run):
    done, split = run("residuals"), small_split()
    fits = [FiADMM(factors=4, epochs=3, rho=1e4, random_state=s).fit(split.train) for s in SEEDS]
    for epoch in (1, 2, 3):
        row = row_of(done, settings="rho 10000", epoch=epoch)
        for name, path in (("objective", "objective.total"), ("dual", "residuals.dual"), ("users", "residuals.users")):
            mean = np.mean([one.fitted.history.column(path)[epoch - 1] for one in fits])
            assert row["measured"][name]["mean"] == pytest.approx(mean, rel=1e-6)
    assert len(done.results["rows"]) == 6


def test_every_pair_of_axes_has_its_own_front(monkeypatch):
    """Validation users decide, and differently at 5 and at 10 places; what is drawn is of the test users."""
    drawn = {}

    def keep(curves, *, quality, inequality, title):
        drawn[quality, inequality] = {name: [(r[quality], r[inequality]) for r in c] for name, c in curves.items()}

    monkeypatch.setattr(plots, "trade_off_front", keep)
    seen = {0.5: (0.4, 0.8, 0.4, 0.8), 1.0: (0.3, 0.9, 0.5, 0.9), 2.0: (0.2, 0.7, 0.3, 0.9)}  # quality, Gini at 5, 10
    outcomes = []
    for phi, (q5, g5, q10, g10) in seen.items():
        validation = {"recall@5": q5, "gini@5": g5, "ndcg@10": q10, "gini@10": g10}
        point = {"dial": None, "share": 0.0, "validation": validation}
        point["test"] = {name: value / 2 for name, value in validation.items()}
        outcomes.append(Outcome(Piece("fair", "fair-als", {"fairness": phi}), {"points": [point]}, 0.0, str(phi)))
    assert fronts.draw(small("fronts"), outcomes, "").keys() == {"front", "front-ndcg-10"}
    assert drawn == {
        ("recall@5", "gini@5"): {"fair": [(0.2, 0.4), (0.1, 0.35)]},
        ("ndcg@10", "gini@10"): {"fair": [(0.25, 0.45), (0.2, 0.4)]},
    }


def test_numbers_in_few_digits():
    told = [short(value) for value in (0.05, 0.006, 3000.0, 20000.0, 2e5, 2e6, 1.5e7, 1e-7, 12, "auto")]
    assert told == ["0.05", "0.006", "3000", "20000", "2e5", "2e6", "1.5e7", "1e-7", "12", "auto"]


def test_time_is_the_median_after_the_first_epoch(run):
    for piece in run("epoch_time").results["pieces"]:
        seconds = piece["result"]["all"]
        assert len(seconds) == 3
        assert piece["result"]["seconds_per_epoch"] == statistics.median(seconds[1:])
    assert [(r["series"], r["factors"]) for r in run("epoch_time").results["rows"]] == [("iALS", 2), ("iALS", 4)]


@pytest.mark.parametrize(
    ("kind", "pictures"),
    [
        ("ranking_table", {"quality-gini"}),
        ("fronts", {"front", "front-ndcg-10"}),
        ("exposure_curves", {"exposure-5", "exposure-10", "coverage"}),
        ("epoch_time", {"time"}),
        ("learning", {"ndcg-10-epoch", "ndcg-10-seconds", "gini-5-epoch", "gini-5-seconds"}),
        ("residuals", {"objective", "lagrangian", "items", "users", "consensus", "dual"}),
    ],
)
def test_files_agree_with_each_other(run, kind, pictures):
    done = run(kind)
    folder = done.files[0].parent
    assert {path.stem for path in folder.glob("*.svg")} == pictures
    assert json.loads((folder / "results.json").read_text()) == done.results
    with (folder / "table.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(done.results["rows"])
    for line, row in zip(table, done.results["rows"], strict=True):
        for name, measured in row["measured"].items():
            assert float(line[name]) == measured["mean"]
    page = (folder / "table.md").read_text()
    first = next(iter(done.results["rows"][0]["measured"].values()))["mean"]
    assert re.search(rf"\| {first:.4f}|\| {first:.4g}", page)


@pytest.mark.usefixtures("empty_plots")
def test_quoted_numbers_stay_apart_and_are_judged_on_the_papers_data_alone(run, data, tmp_path):
    import dataclasses

    row = row_of(run("ranking_table"), series="Popularity")
    assert row["quoted"] == {"recall@5": {"value": 0.5, "tolerance": 0.1}}
    assert row["verdict"] == {"recall@5": "other data"}
    assert run("ranking_table").results["on_the_papers_data"] is False
    there = dataclasses.replace(data, name="ml-20m", shown="ml-20m")
    done = reproduce(small("ranking_table"), there, tmp_path, progress=False)
    again = row_of(done, series="Popularity")
    near = abs(again["measured"]["recall@5"]["mean"] - 0.5) <= 0.1
    assert again["verdict"] == {"recall@5": "within" if near else "outside"}
    opposite = {"= 0.5": "= 0.95"} if near else {"tolerance = 0.1": "tolerance = 0.9"}
    other = reproduce(small("ranking_table", **opposite), there, tmp_path, progress=False)
    assert other.computed == 0  # what is quoted is no part of a piece
    assert row_of(other, series="Popularity")["verdict"] == {"recall@5": "outside" if near else "within"}
    assert "paper (quoted)" in (tmp_path / "table.md").read_text()


@pytest.mark.usefixtures("empty_plots")
def test_quoted_numbers_of_other_settings_say_so_and_those_of_another_point_of_a_grid_are_left_out(data, tmp_path):
    import dataclasses

    there = dataclasses.replace(data, name="ml-20m", shown="ml-20m")
    grid = "grid = { fairness = [0.5, 2.0] }\n"
    quoted = grid + 'paper = { "ndcg@10" = 0.4 }\npaper_of = { fairness = 2.0, factors = 99 }\n'
    done = reproduce(small("exposure_curves", **{grid: quoted}), there, tmp_path, progress=False)
    assert "quoted" not in row_of(done, series="fair, fairness 0.5")
    row = row_of(done, series="fair, fairness 2")
    assert row["quoted_at"] == "factors 99"
    assert row["verdict"] == {"ndcg@10": "other settings"}
    assert "0.400 (factors 99)" in (tmp_path / "table.md").read_text()


@pytest.mark.usefixtures("one_plot")
def test_a_fit_that_diverges_is_told_and_does_not_stop_the_rest(data, tmp_path):
    wild = small("residuals", **{"rho = [10.0, 1e4]": "gamma = [1e6]", "epochs = 3": "epochs = 60, rho = 1.0"})
    done = reproduce(wild, data, tmp_path, progress=False)
    assert len(done.results["diverged"]) == 2
    assert "(gamma 1e6), seed 0" in done.results["diverged"][0]
    admm = "name = 'wild'\nmodel = 'fiadmm'\nsettings = { factors = 4, epochs = 60, rho = 1.0, gamma = 1e6 }\n"
    table = small("ranking_table", **{'[[series]]\nname = "iALS"': f'[[series]]\n{admm}[[series]]\nname = "iALS"'})
    told = reproduce(table, data, tmp_path / "table", progress=False)
    assert "wild" not in [row["series"] for row in told.results["rows"]]
    assert len(told.results["rows"]) == 3
    assert "Diverged" in (tmp_path / "table" / "table.md").read_text()


def test_without_matplotlib_there_are_numbers_and_no_plots(data, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = reproduce(small("epoch_time"), data, tmp_path, progress=False)
    assert {path.name for path in done.files} == {"results.json", "table.md", "table.csv"}


@pytest.mark.parametrize(
    ("mean", "spread", "told"),
    [(0.41751, 0.0008414, "0.4175 ± 0.0008"), (0.5, None, "0.5000"), (14323.9, 12.34, "14,324 ± 12")],
)
def test_a_spread_is_written_as_its_mean(mean, spread, told):
    from fairmf.reproduce.run import measured_cell
    from fairmf.reproduce.tables import Measured, Row

    assert measured_cell(Row({}, {"x": Measured(mean, spread, 3)}), "x") == told
    assert measured_cell(Row({}, {}), "x") == ""
