"""`leaderboard`: measures as defined, chooses on validation data alone, tests once, goes on where it was killed."""

import dataclasses
import json
import math

import numpy as np
import pytest

from fairmf import FairALS, leaderboard, split_by_user, synthetic, tune
from fairmf.control.search_space import Range
from fairmf.data.split import HeldOut
from fairmf.errors import CannotWrite, InvalidParameter
from fairmf.leaderboards import run, show
from fairmf.leaderboards.boards import BOARDS, from_published, from_split, marked, where_marked
from fairmf.leaderboards.run import DEFINITIONS, published
from fairmf.leaderboards.search import Budget, search

pytest.importorskip("optuna", reason='needs the tune extra: pip install "fairmf[tune]"')


def held_out_items(items=120):
    data = synthetic(80, items, 2300, random_state=3)
    test = marked(data.by_user, 0.4, 9)
    return from_published("small", where_marked(data, ~test), where_marked(data, test))


@pytest.fixture(scope="module")
def board():
    return held_out_items()


@pytest.fixture
def stored(board, monkeypatch):
    """Let `leaderboard` find the board."""
    monkeypatch.setattr(run, "load_board", lambda name, from_path: board)
    return board


def naive(board, model, K):
    """Recall, nDCG, Gini and coverage by loops over users, from the definitions."""
    lists = np.concatenate([items for _, items in model.rank(board.test.fold_in, K, known_users=True)])
    targets, m = board.test.targets.by_user, board.train.n_items
    recall, ndcg, shown = [], [], np.zeros(m)
    for user, items in enumerate(lists.tolist()):
        wanted = set(targets.indices[targets.indptr[user] : targets.indptr[user + 1]].tolist())
        for item in items:
            shown[item] += 1
        if wanted:
            hits = [item in wanted for item in items]
            recall.append(sum(hits) / len(wanted))
            gained = sum(1 / math.log2(place + 2) for place, hit in enumerate(hits) if hit)
            ndcg.append(gained / sum(1 / math.log2(place + 2) for place in range(min(K, len(wanted)))))
    apart = sum(abs(a - b) for a in shown for b in shown) / (2 * m * shown.sum())
    return np.mean(recall), np.mean(ndcg), apart, np.mean(shown > 0)


def test_the_measures_are_those_of_the_literature_on_held_out_items():
    board = held_out_items(items=60)  # users with more than 20 test items, so that the two recalls differ
    model = FairALS(factors=4, epochs=3, fairness=0).fit(board.train)
    sizes = np.diff(board.test.targets.by_user.indptr)
    assert sizes.max() > 20
    found = run.measure(board, model)
    assert np.allclose([*found.values()], naive(board, model, 20), atol=1e-6)
    assert list(found) == ["recall@20", "ndcg@20", "gini@20", "coverage@20"]
    other = dataclasses.replace(board, protocol="held-out users")
    assert run.measure(other, model)["recall@20"] > found["recall@20"]


def test_budgets_are_trials_or_seconds():
    assert Budget.read("24") == Budget(24)
    assert Budget.read(28).shares(3) == [(16, None), (8, None), (4, None)]
    assert Budget.read("90s").shares(2) == [(1000, 45.0), (1000, 45.0)]
    assert Budget(1).shares(1) == [(1, None)]
    assert [str(Budget.read(text)) for text in ("7", "90s")] == ["7 trials", "90 seconds"]
    for bad in ("0", "-3", "many", "0s", "infs", "nans", "1.5"):
        with pytest.raises(InvalidParameter, match="number of trials such as 24"):
            Budget.read(bad)


def test_a_further_size_is_searched_around_the_best_of_the_one_before(board, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "fairmf.leaderboards.search.tune", lambda *a, **k: asked.append((a[0], k["space"])) or tune(*a, **k)
    )
    first, second = search(board, "fair-als", [4, 8], Budget(6))
    (_, wide), (start, near) = asked
    assert wide["regularization"] == Range(0.0003, 0.03)
    for name in ("regularization", "unobserved_weight"):
        best = first.settings[name]
        assert near[name] == Range(best / 3, best * 3)
        assert getattr(start, name) == best
    assert near["item_balance"].low == max(0, first.settings["item_balance"] - 0.15)
    assert near["item_balance"].high == first.settings["item_balance"] + 0.15
    assert (first.settings["factors"], second.settings["factors"]) == (4, 8)
    assert (first.trials, second.trials) == (4, 6)
    assert second.seconds > first.seconds > 0


def test_the_test_part_has_no_say_in_what_is_chosen(board):
    shuffled = np.random.default_rng(5).permutation(board.train.n_users)
    other = dataclasses.replace(
        board, test=HeldOut(board.train.take_users(shuffled), board.test.targets.take_users(shuffled))
    )
    wanted, found = (search(one, "ials", [4], Budget(3)) for one in (board, other))
    assert [one.settings for one in wanted] == [one.settings for one in found]


def test_rows_tell_accuracy_evenness_seconds_and_memory(stored, tmp_path):
    found = leaderboard("small", factors=(8, 4), budget=4, evenness=(0.5,), folder=tmp_path / "out")
    names = [show.named(row) for row in found.rows]
    best = show.named(found.best())
    assert names[0] == "Popularity"
    assert {"IALS, 4 factors", "IALS, 8 factors", "FairALS, 4 factors", "FairALS, 8 factors"} <= set(names)
    assert f"{best}, evenness 0.5" in names
    assert len(names) == 6
    tuned = [row for row in found.rows if row["model"] != "Popularity"]
    assert found.best()["validation"] == max(row["validation"] for row in tuned)
    even = next(row for row in tuned if row["evenness"])
    assert even["values"]["gini@20"] < found.best()["values"]["gini@20"]
    assert all(row["peak_mb"] > 10 and row["tuning_seconds"] >= 0 and row["fit_seconds"] > 0 for row in tuned)
    assert json.loads((tmp_path / "out" / "results.json").read_text())["rows"] == found.rows
    assert f"| **{best}** |" in (tmp_path / "out" / "table.md").read_text()
    # The model that was tested is the one with these settings, trained on all but the test.
    row = next(row for row in found.rows if row["model"] == "FairALS" and not row["evenness"])
    again = FairALS(fairness=0, **row["settings"]).fit(stored.train)
    assert run.measure(stored, again) == row["values"]


def test_a_run_that_was_killed_goes_on_and_does_nothing_twice(stored, tmp_path, monkeypatch):
    how = {"factors": (4,), "budget": 3, "evenness": (), "folder": tmp_path}
    with monkeypatch.context() as patched:
        patched.setattr(run, "_fit_and_test", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            leaderboard("small", **how)
    whole = leaderboard("small", **{**how, "folder": None})
    with monkeypatch.context() as patched:  # all trials are stored, so none is run
        patched.setattr("fairmf.control.tuning.Attempt.run", lambda *_: 1 / 0)
        found = leaderboard("small", **how)
        patched.setattr(run, "_fit_and_test", lambda *_: 1 / 0)
        again = leaderboard("small", **how)
    timed = ("fit_seconds", "tuning_seconds", "peak_mb")
    assert found.rows == again.rows
    for a, b in zip(whole.rows, found.rows, strict=True):
        assert {k: v for k, v in a.items() if k not in timed} == {k: v for k, v in b.items() if k not in timed}


def test_other_models_are_tested_beside_ours(stored):
    class Same:
        """Everybody gets the first items."""

        n_items = stored.train.n_items
        fitted_on = None

        def fit(self, train):
            self.fitted_on = train
            return self

        def rank(self, history, N, *, known_users=False):
            assert self.fitted_on is stored.train
            return [(0, np.tile(np.arange(N), (history.n_users, 1)))]

    found = leaderboard("small", models=(), others={"first items": Same()})
    row = next(row for row in found.rows if row["model"] == "first items")
    assert row["values"]["coverage@20"] == pytest.approx(20 / stored.train.n_items, abs=1e-6)
    assert len(found.rows) == 2


def test_strong_generalisation_needs_no_second_fit_for_evenness(monkeypatch):
    board = from_split("users", split_by_user(synthetic(160, 60, 4000), 40, protocol="seeded"))
    monkeypatch.setattr(run, "load_board", lambda *_: board)
    monkeypatch.setattr(run, "recalibrate", lambda *_: 1 / 0)
    found = leaderboard("users", models=("fair-als",), factors=(4,), budget=2, evenness=(1.0,))
    assert [row["evenness"] for row in found.rows] == [0.0, 0.0, 1.0]
    assert list(found.rows[0]["values"])[:4] == ["recall@20", "ndcg@100", "ndcg@20", "recall@50"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"models": ("lightgcn",)}, "no model 'lightgcn'"),
        ({"factors": ()}, "at least one number"),
        ({"factors": (0,)}, "factors"),
        ({"evenness": (1.5,)}, "evenness"),
        ({"random_state": -1}, "random_state"),
        ({"budget": "soon"}, "budget"),
    ],
)
def test_wrong_parameters_are_named_before_data_are_read(wrong, told, monkeypatch):
    monkeypatch.setattr(run, "load_board", lambda *_: 1 / 0)
    with pytest.raises(InvalidParameter, match=told):
        leaderboard("gowalla", **wrong)


def test_a_folder_that_cannot_be_made_is_told(stored, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="cannot be written"):
        leaderboard("small", folder=tmp_path / "file" / "out")


def test_published_rows_have_values_a_source_and_a_definition_of_recall():
    everywhere = [row for name in (*BOARDS, "amazon-cds") for row in published(name)]
    assert len(everywhere) > 20
    for row in everywhere:
        assert row.recall in DEFINITIONS
        assert row.source[-4:].isdigit() or row.source.endswith(("report it", "Mao et al."))
        assert row.read_at
        assert all(0 < value < 1 for value in row.values.values())
    assert {row.recall for row in published("gowalla")} == {"|T|"}
    assert {row.recall for row in published("ml-20m")} == {"min(K, |T|)"}
    light = next(row for row in published("gowalla") if row.method == "LightGCN")
    assert light.values == {"recall@20": 0.1830, "ndcg@20": 0.1554}
    assert published("elsewhere") == []


def result_like(rows, others):
    return {
        "board": {
            "name": "x", "protocol": "p", "recall": "hits / |T|", "users": 1, "items": 2, "interactions": 3,
            "test_users": 4, "chosen_by": "ndcg@20", "budget": "5 trials",
        },
        "rows": rows, "published": others,
    }  # fmt: skip


def test_plots_show_our_rows_and_lines_of_published_ones():
    pytest.importorskip("matplotlib", reason='needs the report extra: pip install "fairmf[report]"')
    values = [(0.10, 0.9), (0.12, 0.85), (0.11, 0.7), (0.01, 0.99)]
    rows = [
        {"model": name, "factors": size, "evenness": even, "best": name == "FairALS", "fit_seconds": 2.0, "peak_mb": 9,
         "values": {"recall@20": q, "ndcg@20": q, "gini@20": g, "coverage@20": 0.5}}
        for (q, g), name, size, even in zip(
            values, ("IALS", "FairALS", "FairALS", "Popularity"), (8, 8, 8, None), (0, 0, 0.5, 0), strict=True
        )
    ]  # fmt: skip
    other = {"method": "LightGCN", "values": {"ndcg@20": 0.115}, "recall": "|T|", "source": "s", "chosen_on": None}
    result = result_like(rows, [other])
    axes = show.against_gini(result).axes[0]
    drawn = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
    assert drawn["IALS"] == [[0.9, 0.10]]
    assert drawn["FairALS, by evenness"] == [[0.85, 0.12], [0.7, 0.11]]
    assert "Popularity" not in drawn  # far below: the plot would be white
    assert drawn["_published"][0][1] == 0.115
    assert "LightGCN" in {text.get_text() for text in axes.texts}
    axes = show.against_seconds(result).axes[0]
    assert axes.get_xscale() == "log"
    assert "FairALS, by evenness" not in {line.get_label() for line in axes.get_lines()}
    assert "| LightGCN | 0.115 | hits / \\|T\\| | s | not looked up |" in show.markdown(result)
