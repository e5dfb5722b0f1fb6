"""Settings that are chosen from the data by short fits."""

import logging

import numpy as np
import pytest
from in_process import InProcess

from fairmf import IALS, FairALS, Interactions, evaluate, split_by_interaction, synthetic
from fairmf.data.csr import Rows
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics import accuracy
from fairmf.models import auto_settings
from fairmf.models.auto_settings import CHOSEN, Search, choose, mean_ndcg

DATA = synthetic(400, 300, 9000, random_state=3)


def test_ndcg_is_that_of_the_metrics():
    rng = np.random.default_rng(0)
    lists = np.array([rng.permutation(40)[:10] for _ in range(30)])
    lists[3, 6:] = -1
    rows = [np.sort(rng.choice(40, rng.integers(1, 25), replace=False)) for _ in range(30)]
    targets = Rows(np.cumsum([0, *map(len, rows)]), np.concatenate(rows).astype(np.int32), None)
    hits = accuracy.find_hits(lists, targets, 40)
    expected = accuracy.ndcg(hits, np.diff(targets.indptr), 10).mean()
    assert mean_ndcg(lists, targets) == pytest.approx(expected)


def test_a_fifth_of_the_items_of_some_users_is_held_out_and_everybody_keeps_something():
    search = Search.of(FairALS(), DATA)
    sizes = np.diff(DATA.by_user.indptr)
    assert len(search.users) == (sizes >= 2).sum() // 2  # few users: half of those who can lose something
    assert (np.diff(search.train.by_user.indptr) > 0).all()
    others = np.setdiff1d(np.arange(DATA.n_users), search.users)
    assert np.array_equal(np.diff(search.train.by_user.indptr)[others], sizes[others])
    for i, user in enumerate(search.users):
        seen, wanted = set(search.train.by_user.row(user)[0]), set(search.targets.row(i)[0])
        assert len(wanted) == max(1, round(0.2 * sizes[user]))
        assert not seen & wanted
        assert seen | wanted == set(DATA.by_user.row(user)[0])
    # Any of a user's items may be held out, not the first ones.
    first = [DATA.by_user.row(user)[0][0] in search.targets.row(i)[0] for i, user in enumerate(search.users)]
    assert 0.05 < np.mean(first) < 0.5


def test_few_users_are_enough_where_each_has_many_items(monkeypatch):
    monkeypatch.setattr(auto_settings, "TARGETS", 300)
    search = Search.of(FairALS(), DATA)
    assert 200 < search.targets.nnz < 400
    assert len(search.users) < DATA.n_users / 4


def test_it_is_better_than_a_bad_setting_and_leaves_the_model_as_it_was():
    split = split_by_interaction(DATA, random_state=1)
    bad = FairALS(factors=16, epochs=8, unobserved_weight=0.0001, regularization=0.0001).fit(
        split.train, progress=False
    )
    model = FairALS(factors=16, epochs=8, settings="auto")
    params = model.get_params()
    model.fit(split.train, progress=False)
    assert model.get_params() == params
    chosen = model.fitted.settings
    assert chosen["settings"] == "given"
    measured = [evaluate(m, split.test, metrics=["ndcg@20"], bootstrap=0)["ndcg@20"] for m in (bad, model)]
    assert measured[1] > 1.1 * measured[0]
    # The same settings, given, make the same model.
    again = FairALS(**chosen).fit(split.train, progress=False)
    assert np.array_equal(again.item_factors, model.item_factors)


def test_the_choice_is_repeatable_and_logged(caplog):
    with caplog.at_level(logging.INFO, logger="fairmf"):
        first = choose(FairALS(factors=16, epochs=8), DATA, progress=False)
    assert first == choose(FairALS(factors=16, epochs=8, num_threads=1), DATA, progress=False)
    assert "unobserved_weight=" in caplog.text
    assert set(first.settings) == set(CHOSEN)


def test_settings_that_are_given_stay():
    found = choose(FairALS(factors=16, epochs=8, unobserved_weight=0.02, item_balance=0.1), DATA, progress=False)
    assert set(found.settings) == {"regularization", "regularization_exponent", "user_balance"}
    plain = choose(IALS(factors=16, epochs=8), DATA, progress=False)
    assert set(plain.settings) == {"unobserved_weight", "regularization", "regularization_exponent"}
    one = FairALS(factors=16, epochs=8, regularization=0.02, unobserved_weight=0.3, item_balance=0.0, settings="auto")
    fitted = one.fit(DATA, progress=False).fitted.settings
    assert (fitted["regularization"], fitted["unobserved_weight"], fitted["item_balance"]) == (0.02, 0.3, 0.0)


@pytest.mark.parametrize("weight", [0.3, 1e-5])  # with 1e-5 rows are solved thoroughly, in short and in whole fits
def test_the_work_is_bounded(monkeypatch, weight):
    """Short fits stop when they have cost as much as they may."""
    done = []

    def record(search, settings, epochs):
        done.append((search.cost(settings, epochs), search.allowed(settings)))
        return float(len(done)), None  # always better: climbs as far as it can

    monkeypatch.setattr(Search, "_score", record)
    model = FairALS(factors=128, epochs=16, unobserved_weight=weight)
    choose(model, DATA, progress=False)
    spent = np.cumsum([cost for cost, _ in done])
    assert (spent[1:] <= [allowed for _, allowed in done[1:]]).all()
    assert 3 <= len(done) < 15
    search = Search.of(model, DATA)
    search.stage(64, 6)
    whole = 17 * auto_settings.work(search.train, 128)
    assert done[-1][1] == pytest.approx(auto_settings.WORK * whole * (5 if weight < 0.1 else 1))


def test_work_is_counted_as_it_is_done():
    """Twice the entries or rows cost about twice as much, a thorough epoch several times as much as a usual one."""
    search = Search.of(FairALS(), DATA)
    search.stage(64, 6)
    easy, hard = ({"unobserved_weight": weight} for weight in (1.0, 1e-4))
    assert search.cost(hard, 4) - search.cost(hard, 3) == pytest.approx(
        5 * (search.cost(easy, 4) - search.cost(easy, 3))
    )
    assert 0 < search.cost(easy, 0) < 2 * search.cost(easy, 4)  # lists, and what surrounds the epochs
    given = Search.of(FairALS(cg_steps=2), DATA)  # never thorough
    given.stage(64, 6)
    assert given.cost(hard, 4) == search.cost(easy, 4)


def test_the_first_weight_is_a_guess_by_density():
    dense, sparse = synthetic(100, 80, 2000, random_state=0), synthetic(1000, 900, 5000, random_state=0)
    assert auto_settings.likely_weight(dense) == pytest.approx(3 * 0.25**0.7)
    assert auto_settings.likely_weight(sparse) < 0.1
    search, tried = Search.of(FairALS(), DATA), []
    search.quality = lambda settings: tried.append(settings["unobserved_weight"]) or 0.0
    search.climb(dict.fromkeys(CHOSEN, 0.0), "unobserved_weight", auto_settings.WEIGHTS, 0.25)
    assert set(tried) == {0.1, 0.3, 1.0}  # the nearest value and its neighbours, none of which is better


@pytest.mark.parametrize(("quality", "chosen"), [(0.997, (0.09, 0.01)), (0.99, (0.03, 0.03)), (1.02, (0.09, 0.01))])
def test_a_tie_goes_to_the_larger_weight(quality, chosen):
    search = Search.of(FairALS(), DATA)
    value = {(0.03, 0.03): 1.0, (0.09, 0.01): quality, (0.01, 0.09): 1.005}
    search.quality = lambda s: value.get((s["unobserved_weight"], s["regularization"]), 0.5)
    start = dict.fromkeys(CHOSEN, 0.25) | {"unobserved_weight": 0.03, "regularization": 0.03}
    best = search.refine(start, ["unobserved_weight", "regularization"])
    assert (best["unobserved_weight"], best["regularization"]) == chosen


def test_lists_are_right_as_far_as_scores_need_them():
    """The nDCG of a short fit is that of complete lists."""
    search = Search.of(FairALS(), DATA)
    search.stage(8, 3)
    settings = dict.fromkeys(CHOSEN, 0.25) | {"unobserved_weight": 0.1, "regularization": 0.01}
    score, fitted = search._score(settings, 3)
    lists, _ = fitted.recommend(search.users, N=20, by="row")
    assert score == pytest.approx(mean_ndcg(lists, search.targets))
    assert score > 0.02


def test_a_climb_goes_where_quality_rises():
    search = Search.of(FairALS(), DATA)
    search.stage(8, 2)
    tried = []

    def quality(settings):
        tried.append(settings["unobserved_weight"])
        return -abs(np.log(settings["unobserved_weight"] / 0.3))

    search.quality = quality
    start = dict.fromkeys(CHOSEN, 0.0)
    best = search.climb(start, "unobserved_weight", auto_settings.WEIGHTS, 0.03)
    assert best["unobserved_weight"] == 0.3
    assert 0.001 not in tried


def test_both_weights_are_refined_together_and_those_given_stay():
    search = Search.of(FairALS(), DATA)
    wanted = {"unobserved_weight": 0.05, "regularization": 0.002}
    search.quality = lambda settings: -sum(abs(np.log(settings[name] / value)) for name, value in wanted.items())
    start = dict.fromkeys(CHOSEN, 0.25) | {"unobserved_weight": 0.003, "regularization": 0.03}
    best = search.refine(start, ["unobserved_weight", "regularization"])
    for name, value in wanted.items():
        assert best[name] == pytest.approx(value, rel=0.35)
        alone = search.refine(start, [name])
        assert {key for key in start if alone[key] != start[key]} == {name}
        assert alone[name] == pytest.approx(value, rel=0.35)
    assert search.refine(start, []) == start
    assert best["item_balance"] == 0.25


@pytest.mark.parametrize(("gain", "chosen"), [(1.005, 1.0), (1.02, 0.75)])
def test_another_exponent_has_to_be_clearly_better(monkeypatch, gain, chosen):
    def score(_, settings, epochs):
        return (gain if settings["regularization_exponent"] < 1 else 1.0), None

    monkeypatch.setattr(auto_settings, "WORK", 10)  # without fits to start from, trials take longer
    monkeypatch.setattr(Search, "_score", score)
    found = choose(FairALS(factors=128, epochs=16), DATA, progress=False)
    assert found.settings["regularization_exponent"] == chosen


def test_weights_between_those_of_the_grid_are_found(monkeypatch):
    wanted = {"unobserved_weight": 0.05, "regularization": 0.0057}

    def score(_, settings, epochs):
        return -sum(abs(np.log(settings[name] / value)) for name, value in wanted.items()), None

    monkeypatch.setattr(auto_settings, "WORK", 10)
    monkeypatch.setattr(Search, "_score", score)
    found = choose(FairALS(factors=128, epochs=16), DATA, progress=False).settings
    assert {name: found[name] for name in wanted} == pytest.approx(
        {"unobserved_weight": 0.051, "regularization": 0.0059}, rel=0.2
    )


def test_settings_stay_where_every_short_fit_diverges(monkeypatch):
    monkeypatch.setattr(Search, "_score", lambda *_: (-np.inf, None))
    found = choose(FairALS(factors=16, epochs=8), DATA, progress=False)
    assert found.settings["item_balance"] == 0.25
    assert found.quality == -np.inf


def test_what_cannot_be_chosen_is_refused():
    few = Interactions(Rows(np.arange(11) * 3, np.tile(np.arange(3, dtype=np.int32), 10), None), 3)
    with pytest.raises(InvalidData, match="needs at least 50"):
        FairALS(settings="auto").fit(few, progress=False)
    with pytest.raises(InvalidParameter, match="'settings'"):
        FairALS(settings="best").fit(DATA, progress=False)


def test_a_cluster_fits_with_settings_that_are_chosen_here():
    local = FairALS(factors=8, epochs=4, settings="auto").fit(DATA, progress=False)
    remote = FairALS(factors=8, epochs=4, settings="auto", engine="ray").fit(
        DATA, progress=False, cluster=InProcess(shards=2)
    )
    for name in CHOSEN:
        assert remote.fitted.settings[name] == local.fitted.settings[name]


def test_features_that_do_not_fit_are_found_before_the_search(monkeypatch):
    monkeypatch.setattr(auto_settings, "choose", None)  # calling it would be a TypeError
    model = FairALS(factors=4, epochs=1, settings="auto")
    for name in ("item_features", "user_features"):
        with pytest.raises(InvalidData, match=f"{name} has 3 rows"):
            model.fit(DATA, progress=False, **{name: np.eye(3)})
