"""`report`: what stands in the page is what the model does, measured here by plain loops."""

import os
import re

import numpy as np
import pytest
import scipy.sparse as sp
from small_report import (
    HOSTILE,
    data_of,
    hostile_names,
    lists_at,
    naive_exposure,
    small_model,
    small_split,
    some_groups,
    text_of,
)

from fairmf import IALS, HeldOut, Interactions, Popularity, audit, evaluate, fit_path, report, trade_off
from fairmf.data.popularity import gini
from fairmf.errors import CannotWrite, FairmfError, InvalidData, InvalidParameter
from fairmf.reports.content import Contender, choose

STOPS = [0, 1, 3]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A report with everything in it: (page, data)."""
    split, path = small_split(), tmp_path_factory.mktemp("report") / "report.html"
    contender = Contender("iALS <u>", evaluate(IALS(factors=6, epochs=3).fit(split.train), split.test), 1.25)
    m = split.train.n_items
    given = report(
        small_model(), split, path, fairness=STOPS, names=hostile_names(m), groups=some_groups(m), compare=[contender],
        record={"seed <s>": 7, "settings": {"factors": 6}}, title="Titles & <b>tags</b>", bootstrap=30,
    )  # fmt: skip
    assert given == path
    page = path.read_text(encoding="utf-8")
    return page, data_of(page)


def test_exposure_and_metrics_are_the_models(written):
    _, data = written
    m = small_split().train.n_items
    assert [p["fairness"] for p in data["positions"]] == STOPS
    for position, stop, psi in zip(data["positions"], data["stops"], STOPS, strict=True):
        exposure = naive_exposure(lists_at(psi), m, 20)
        assert position["values"]["gini@20"] == pytest.approx(float(gini(exposure)))
        assert position["values"]["coverage@20"] == pytest.approx(np.mean(exposure > 0))
        found = evaluate(small_model(), small_split().test, at=(20, 100), bootstrap=0, fairness=psi)
        for metric in ("ndcg@100", "recall@20"):
            assert position["values"][metric] == pytest.approx(found[metric])
        # Names end in their item's number: by it the rows of the page are items again.
        numbers = [int(re.search(r"\$(\d+)$", name)[1]) for name in data["items"]["names"]]
        assert sorted(numbers) == list(range(m))
        assert stop["exposure"] == exposure[numbers].tolist()
        descending = sorted(exposure, reverse=True)
        assert stop["ranked"] == [descending[rank - 1] for rank in data["ranks"]]
        ascending = sorted(exposure)
        half = (sum(ascending[: m // 2]) + (m % 2) / 2 * ascending[m // 2]) / exposure.sum()
        assert stop["lorenz"][25] == pytest.approx(half, abs=1e-4)


def test_changes_are_against_the_first_stop(written):
    _, data = written
    first, *others = data["positions"]
    assert first["changes"] == first["changed"] == {}
    for position in others:
        for metric, (difference, low, high) in position["changes"].items():
            assert difference == pytest.approx(position["values"][metric] - first["values"][metric])
            assert low <= high
            text, verdict = position["changed"][metric], position["better"][metric]
            assert text.endswith({True: "better", False: "worse", None: "no clear change"}[verdict])
            if not metric.endswith(("coverage@20", "share@20")):
                assert text.replace("−", "-").startswith((f"{difference:+.3f} (", "0.000 ("))
        lower, raised = position["values"]["gini@20"] < first["values"]["gini@20"], position["better"]["gini@20"]
        assert raised in (lower, None)


def test_lists_of_example_users(written):
    _, data = written
    names = data["items"]["names"]
    number = {row: int(re.search(r"\$(\d+)$", name)[1]) for row, name in enumerate(names)}
    assert len(data["examples"]) == 6
    split = small_split()
    histories = [set(split.test.fold_in.by_user.block(i, i + 1).indices.tolist()) for i in range(split.test.n_users)]
    of_user = []
    for k, example in enumerate(data["examples"]):
        shown = [number[row] for row in data["stops"][0]["lists"][k]]
        user = next(i for i, row in enumerate(lists_at(0, 10).tolist()) if row == shown and i not in of_user)
        of_user.append(user)
        assert {number[row] for row in example["history"]} <= histories[user]
        assert example["length"] == len(histories[user])
        targets = split.test.targets.by_user.block(user, user + 1).indices.tolist()
        assert sorted(number[row] for row in example["targets"]) == sorted(targets)
        for stop, psi in zip(data["stops"], STOPS, strict=True):
            assert [number[row] for row in stop["lists"][k]] == lists_at(psi, 10)[user].tolist()
    # From the most changed to the least changed list, at the stop the summary speaks of.
    chosen = STOPS[data["chosen"]]
    kept = [len(set(lists_at(0, 10)[i]) & set(lists_at(chosen, 10)[i])) for i in of_user]
    everyone = [len(set(a) & set(b)) for a, b in zip(lists_at(0, 10), lists_at(chosen, 10), strict=True)]
    assert kept == sorted(kept)
    assert kept[0] == min(everyone)
    assert kept[-1] == max(everyone)


def test_groups_bands_gainers(written):
    _, data = written
    split = small_split()
    m = split.train.n_items
    exposure = [naive_exposure(lists_at(psi), m, 20) for psi in STOPS]
    names = data["groups"]["names"]
    assert sorted(names) == [f"<i>group</i> {g}" for g in range(4)]
    for stop, o in zip(data["groups"]["stops"], exposure, strict=True):
        for name, share in zip(names, stop["shares"], strict=True):
            own = sum(o[j] for j in range(m) if j % 4 == int(name[-1]))
            assert share == pytest.approx(own / o.sum())
    popularity = np.diff(split.train.by_item.indptr)
    order = sorted(range(m), key=lambda j: (popularity[j], -j))
    for stop, o in zip(data["stops"], exposure, strict=True):
        tenths = [sum(o[j] for place, j in enumerate(order) if place * 10 // m == k) / o.sum() for k in range(10)]
        assert stop["bands"] == pytest.approx(tenths, abs=1e-5)
        gains = o - exposure[0]
        rows = np.array(data["stops"][0]["exposure"])
        moved = np.array(stop["exposure"]) - rows
        assert [moved[r] for r in stop["gainers"]] == sorted((g for g in gains if g > 0), reverse=True)[:10]
        assert [moved[r] for r in stop["losers"]] == sorted(g for g in gains if g < 0)[:10]


def test_the_page_says_it_without_scripts(written):
    page, data = written
    text = text_of(page)
    now = data["positions"][data["chosen"]]
    assert now["sentence"] in text
    for label in ("ndcg@100", "gini@20"):
        for position in data["positions"]:
            assert f"{position['values'][label]:.3f}" in text
    assert "Titles & <b>tags</b>" in text
    assert "iALS <u>" in text
    assert "seed <s>" in text
    assert '"factors": 6' in text
    assert "<i>group</i> 1" in text
    assert HOSTILE in text  # the first rows of the item table


def test_nothing_hostile_is_markup(written):
    page, _ = written
    outside = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    for tag in ("<img", "<b>", "<i>", "<u>", "<s>", 'onerror="window'):
        assert tag not in outside
    # Data, library and program: no name has opened or closed a fourth.
    assert page.count("<script") == 3
    assert page.count("</script>") == 3
    assert "\u2028" not in re.search(r'id="data">(.*?)</script>', page, flags=re.DOTALL)[1]


class Hostile:
    """An object that claims to be safe HTML."""

    def __html__(self):
        return "<b>"

    __str__ = __html__


def test_every_free_text_is_escaped(tmp_path):
    """Names of sides, models and settings are a caller's text as well."""
    split, bad = small_split(), "</title></script><b>{{ 7 * 7 }}{% raw %}"
    lists = [lists_at(psi, 20) for psi in (0, 1)]
    evaluation = evaluate(small_model(), split.test, bootstrap=0)
    found = audit(*lists, split, before_name=f"a {bad}", after_name=f"b {bad}", bootstrap=0)
    report(
        found, tmp_path / "page.html", title=bad, compare=[Contender(bad, evaluation, 1.0)],
        record={bad: bad, f"{bad} nested": {bad: [bad]}, "object": Hostile()},
    )  # fmt: skip
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    markup = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    assert "<b>" not in markup
    assert page.count("</title>") == 1
    assert page.count("</script>") == 3
    assert text_of(page).count(bad) >= 8
    assert "49" not in re.findall(r"<title>.*?</title>", page)[0]


def test_nothing_is_fetched(written):
    page, _ = written
    markup = re.sub(r"<script\b.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", markup)
    assert "url(" not in markup
    assert "@import" not in markup
    assert "default-src 'none'" in page


def test_a_curve_of_trained_models_alone(tmp_path):
    curve = fit_path(type(small_model())(factors=6, epochs=2), small_split(), fairness=[0.5, 2])
    page = report(curve, tmp_path / "t.html").read_text(encoding="utf-8")
    data = data_of(page)
    assert data["knob"] == "trained fairness"
    assert [p["name"] for p in data["positions"]] == ["trained fairness 0.5", "trained fairness 2"]
    assert "Choose a trained fairness" in page
    assert "psi of a request" not in page


def test_a_curve_alone(tmp_path):
    split = small_split()
    curve = trade_off(small_model(), split, points=5) + fit_path(
        type(small_model())(factors=6, epochs=2), split, fairness=[0.5, 2]
    )
    page = report(curve, tmp_path / "c.html", title="A curve").read_text(encoding="utf-8")
    data = data_of(page)
    path = [row for row in curve if row["way"] == "evenness"]
    assert [p["name"] for p in data["positions"]] == [f"evenness {k / 4:g}" for k in range(5)]
    assert [p["fairness"] for p in data["positions"]] == [row["fairness"] for row in path]
    assert [p["evenness"] for p in data["positions"]] == [row["evenness"] for row in path]
    assert data["knob"] == "evenness"
    assert "What each evenness costs" in page
    assert [p["values"]["ndcg@100"] for p in data["positions"]] == [row["ndcg@100"] for row in path]
    assert f"7 measured points, lists of {split.validation.n_users} users" in page
    assert data["series"][0]["name"] == "re-trained"
    again = [[row["gini@20"], row["ndcg@100"]] for row in curve if row["way"] == "re-trained"]
    assert [point[:2] for point in data["series"][0]["points"]] == again
    assert "items" not in data
    assert 'id="items"' not in page


def test_an_audit_alone(tmp_path):
    split = small_split()
    names = (("before_name", "plain"), ("after_name", "with a dial"))
    options = {"before_options": {"fairness": 0}, "after_options": {"fairness": 3}, "bootstrap": 20}
    found = audit(small_model(), small_model(), split, **dict(names), **options)
    page = report(found, tmp_path / "a.html").read_text(encoding="utf-8")
    data = data_of(page)
    assert [p["name"] for p in data["positions"]] == ["plain", "with a dial"]
    assert data["positions"][1]["values"]["gini@20"] == pytest.approx(found["gini@20"].after)
    assert "From plain to with a dial" in text_of(page)
    assert 'id="lists"' not in page


def test_stops_past_the_lowest_gini_are_marked(tmp_path):
    stops = [0, 1, 2, 8, 40, 400]
    page = report(small_model(), small_split(), tmp_path / "r.html", fairness=stops, bootstrap=0, examples=0)
    data = data_of(page.read_text(encoding="utf-8"))
    lowest = int(np.argmin([p["values"]["gini@20"] for p in data["positions"]]))
    assert 0 < lowest < len(stops) - 1
    assert [p["past"] for p in data["positions"]] == [k > lowest for k in range(len(stops))]
    assert data["knob"] == "fairness"
    assert data["positions"][data["chosen"]]["fairness"] == 1
    assert data["examples"] == []
    assert all(end is None for p in data["positions"][1:] for end in p["changes"]["gini@20"][1:])
    assert all(p["ends"] == {} for p in data["positions"])


def test_users_of_training_and_a_held_out_set(tmp_path):
    split = small_split()
    page = report(small_model(), split.validation, tmp_path / "v.html", fairness=[2], chosen=2, bootstrap=0)
    data = data_of(page.read_text(encoding="utf-8"))
    assert [p["fairness"] for p in data["positions"]] == [0, 2]
    assert "tail_share@20" in data["positions"][0]["values"]  # popularity from the model's own histories


def test_without_the_models_own_fairness_the_last_stop_is_spoken_of(tmp_path):
    page = report(small_model(), small_split(), tmp_path / "r.html", fairness=[0, 2, 4], bootstrap=0, examples=0)
    data = data_of(page.read_text(encoding="utf-8"))
    assert data["positions"][data["chosen"]]["fairness"] == 4


def test_example_users_have_something_to_find_where_there_are_enough():
    before = np.array([[0, 1], [0, 1], [0, 1], [0, 1]])
    after = np.array([[0, 1], [2, 3], [0, 3], [2, 1]])

    def held_out(fold_in, targets):
        rows = [Interactions.from_csr(sp.csr_array(np.array(x)), allow_empty=True) for x in (fold_in, targets)]
        return HeldOut(*rows)

    histories = [[0, 0, 0, 0, 1]] * 3 + [[0, 0, 0, 0, 0]]
    some = held_out(histories, [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 0, 0, 0, 0]])
    assert choose(before, after, some, 2).tolist() == [2, 0]  # 1 has no target, 3 no history
    assert choose(before, after, some, 3).tolist() == [1, 2, 0]
    assert choose(before, after, some, 1).tolist() == [2]
    assert choose(before, after, some, 9).tolist() == [1, 2, 0]
    assert choose(before, after, some, 0).tolist() == []


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"fairness": []}, InvalidParameter, "fairness holds no values"),
        ({"fairness": [-1]}, InvalidParameter, "-1"),
        ({"fairness": [0], "chosen": 0}, InvalidParameter, "at least one fairness above 0"),
        ({"fairness": range(40)}, InvalidParameter, "at most 25 stops"),
        ({"evenness": []}, InvalidParameter, "evenness holds no values"),
        ({"evenness": [0, 1.5]}, InvalidParameter, "'evenness'"),
        ({"evenness": [0]}, InvalidParameter, "at least one evenness above 0"),
        ({"evenness": [k / 30 for k in range(30)]}, InvalidParameter, "at most 25 stops"),
        ({"evenness": [0, 1], "fairness": [0, 1]}, InvalidParameter, "evenness or fairness, not both"),
        ({"chosen": 2}, InvalidParameter, "chosen is an evenness from 0 to 1. Got 2"),
        (
            {"examples": 99},
            InvalidParameter,
            "'examples' parameter of report must be an integer >= 0 and <= 12. Got 99",
        ),
        ({"examples": -1}, InvalidParameter, "'examples'"),
        ({"at": 0}, InvalidParameter, "'at'"),
        ({"part": "train"}, InvalidParameter, "'part' parameter of report must be 'validation' or 'test'"),
        ({"quality": "gini@20"}, InvalidParameter, "accuracy"),
        ({"names": ["one"]}, InvalidData, "names holds 1 names"),
        ({"groups": ["one"]}, InvalidData, "groups holds 1 labels"),
        ({"bootstrap": -2}, InvalidParameter, "bootstrap"),
    ],
)
def test_bad_arguments(tmp_path, options, error, told):
    with pytest.raises(error, match=re.escape(told)):
        report(small_model(), small_split(), tmp_path / "r.html", **options)
    assert list(tmp_path.iterdir()) == []


def test_bad_subjects(tmp_path):
    split = small_split()
    with pytest.raises(InvalidParameter, match="A Popularity has no dial"):
        report(Popularity().fit(split.train), split, tmp_path / "r.html")
    with pytest.raises(InvalidParameter, match=re.escape("The call is report(model, split, path)")):
        report(small_model(), tmp_path / "r.html")
    with pytest.raises(InvalidParameter, match=re.escape("The call is report(curve_or_audit, path)")):
        report(trade_off(small_model(), split, fairness=[0, 1]), split, tmp_path / "r.html")
    with pytest.raises(InvalidData, match="no points"):
        report(type(trade_off(small_model(), split, fairness=[0]))((), ("ndcg@100", "gini@20")), tmp_path / "r.html")
    with pytest.raises(FairmfError):
        report(small_model(), "split", tmp_path / "r.html")


def test_an_old_report_stays_whole(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    tmp_path.chmod(0o500)
    try:
        if os.access(tmp_path, os.W_OK):  # root may write anywhere: a folder in the way stops it as well
            path.unlink()
            path.mkdir()
        with pytest.raises(CannotWrite):
            report(trade_off(small_model(), small_split(), fairness=[0, 1]), path)
    finally:
        tmp_path.chmod(0o700)
    assert path.is_dir() or path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
