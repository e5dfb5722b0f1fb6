"""What notebooks show: every result as HTML in which no text of the data is a tag."""

import html.parser

import numpy as np
import pytest

from fairmf import (
    Curve,
    Evaluation,
    FairALS,
    Interactions,
    Popularity,
    audit,
    calibrate,
    fit_to_target,
    split_by_user,
    synthetic_events,
    titled_lists,
)
from fairmf import (
    html as pieces,
)
from fairmf.control.tuning_result import Trial, TuningResult
from fairmf.data.ids import Ids

EVIL = "<script>alert(1)</script>&\x1b[31m"


class Text(html.parser.HTMLParser):
    """The text and the tags of a page; fails where tags are not closed."""

    def __init__(self, page):
        super().__init__()
        self.text, self.tags, self.open = [], set(), []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def __contains__(self, words):
        return words in " ".join(self.text)


def page(thing):
    found = Text(thing._repr_html_())
    assert found.tags <= {"div", "b", "span", "table", "tr", "td", "th"}
    return found


@pytest.fixture(scope="module")
def case():
    events = synthetic_events(200, 80, 4000)
    split = split_by_user(events, heldout=30, protocol="seeded")
    return split, FairALS(factors=4, epochs=3).fit(split.train, progress=False)


def test_text_of_the_data_is_escaped():
    for made in (
        pieces.title(EVIL, EVIL),
        pieces.table([EVIL], [[EVIL]]),
        pieces.facts({EVIL: EVIL}),
        pieces.paragraph(EVIL),
        pieces.bar(EVIL, 1, 2, EVIL),
    ):
        found = Text(made)
        assert "script" not in found.tags
        assert "<script>alert(1)</script>&\\x1b[31m" in found


def test_long_tables_are_cut_and_say_so():
    found = Text(pieces.table(["n"], [[k] for k in range(25)], most=20))
    assert "19" in found.text
    assert "20" not in found.text
    assert "and 5 more rows" in found


def test_interactions_and_splits(case):
    split, _ = case
    assert f"{split.train.nnz:,} binary" in page(split.train)
    evil = Interactions(
        split.train.by_user, split.train.n_items, None, Ids([f"{EVIL}{k}" for k in range(split.train.n_items)])
    )
    found = page(evil)
    assert "row numbers" in found
    assert "alert" in found
    assert "30" in page(split)


def test_models_say_whether_they_are_fitted(case):
    split, model = case
    unfitted = page(FairALS(factors=4, epochs=3))
    assert "not fitted" in unfitted
    assert "factors = 4, epochs = 3" in unfitted
    fitted = page(model)
    assert f"fitted to {split.train.n_users} users x {split.train.n_items} items" in fitted
    assert "3 epochs in" in fitted
    assert "not calibrated" in fitted
    assert "the defaults" in page(Popularity().fit(split.train))


def test_results_of_a_calibrated_model(case):
    split, model = case
    shown = page(calibrate(model, split, progress=False))
    assert "What each evenness costs" in shown
    assert "1.0" in shown
    assert "calibrated: recommend" in page(model)
    found = fit_to_target(model, split, max_gini=0.99, progress=False)
    assert "reached" in page(found)
    assert found.message.split()[0] in page(found)
    assert f"lists of {found.curve.n_users} users" in page(found.curve)


def test_an_audit_names_items_and_groups(case):
    split, model = case
    names = [f"{EVIL} {k}" for k in range(model.n_items)]
    groups = [f"shop {k % 3}" for k in range(model.n_items)]
    found = audit(model, Popularity().fit(split.train), split, names=names, groups=groups, bootstrap=0)
    shown = page(found)
    gainer = found.gainers(1)[0]
    assert gainer.name.replace("\x1b", "\\x1b") in shown
    assert f"{gainer.after:,}" in shown
    assert "shop 1" in shown


def test_evaluations_show_intervals():
    found = Evaluation(
        {"gini@2": 0.5, "ndcg@5": 0.25}, {"gini@2": (0.4, 0.6)}, {2: np.ones(2)}, {}, n_users=4, n_scored=3
    )
    shown = page(found)
    assert "0.5 ± 0.1" in shown
    assert "0.25" in shown.text
    assert "4 users, 3 with held-out items" in shown


def test_curves_leave_out_what_no_row_has():
    rows = ({"way": "dial", "fairness": 0.0, "ndcg@100": 0.4, "gini@20": 0.9},)
    shown = page(Curve(rows, ("ndcg@100", "gini@20")))
    assert shown.text.count("evenness") == 0
    assert "0.9" in shown.text


def test_explanations_add_up(case):
    split, model = case
    user = split.train.user_ids.values[0]
    item = model.recommend(user, N=1)[0][0]
    shown = page(model.explain(user, item))
    assert f"Why item {item}" in shown
    amounts = [float(text) for text in shown.text if text[:1] in "+-" and text[1:2].isdigit()]
    assert sum(amounts[:-1]) == pytest.approx(amounts[-1], abs=1e-3)


def test_lists_with_titles(case):
    split, model = case
    users = split.train.user_ids.values[:2]
    ids, _ = model.recommend(users, N=4)
    by_id = {item: f"{EVIL} film {item}" for item in ids[0].tolist()}
    lists = titled_lists(model, users, N=4, titles=by_id)
    assert lists.titles[0] == tuple(by_id[item] for item in ids[0].tolist())
    assert "film" in page(lists)
    assert f"user {users[1]}" in page(lists)
    in_order = [f"film {k}" for k in range(model.n_items)]
    positions = split.train.item_ids.positions(ids[1])
    assert titled_lists(model, users, N=4, titles=in_order).titles[1] == tuple(in_order[k] for k in positions)
    assert "film" in repr(titled_lists(model, users[0], N=4, titles=in_order))
    with pytest.raises(ValueError, match="titles holds 1 titles"):
        titled_lists(model, users, titles=["a"])


def test_tuning_results_list_the_best_trials_first():
    values = enumerate((0.1, 0.3, 0.2))
    trials = tuple(Trial(k, "complete", {"factors": 8 + k}, None, {"ndcg@100": x}, 1.0) for k, x in values)
    found = TuningResult(FairALS(), None, ("ndcg@100",), trials, None)
    shown = page(found)
    values = [text for text in shown.text if text.startswith("0.")]
    assert values == ["0.3", "0.2", "0.1"]
    assert "3 complete" in shown
