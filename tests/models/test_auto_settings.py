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
    assert mean_ndcg(lists, targets, 40) == pytest.approx(expected)


def test_a_tenth_is_held_out_and_everybody_keeps_something():
    search = Search.of(FairALS(), DATA)
    hidden = DATA.nnz - search.train.nnz
    assert 0.05 * DATA.nnz < hidden < 0.13 * DATA.nnz
    assert (np.diff(search.train.by_user.indptr) > 0).all()
    for i, user in enumerate(search.users[:50]):
        seen, wanted = set(search.train.by_user.row(user)[0]), set(search.targets.row(i)[0])
        assert wanted
        assert not seen & wanted
        assert seen | wanted == set(DATA.by_user.row(user)[0])


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
    assert chosen["unobserved_weight"] in auto_settings.WEIGHTS
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


def test_the_work_is_bounded(monkeypatch):
    """Short fits stop when they have cost as much as they may."""
    done = []

    def record(search, settings, epochs):
        done.append(epochs * auto_settings.work(search.train, search.factors))
        return float(len(done)), None  # always better: climbs as far as it can

    monkeypatch.setattr(Search, "_score", record)
    model = FairALS(factors=32, epochs=8)
    choose(model, DATA, progress=False)
    assert sum(done) <= auto_settings.WORK * 8 * auto_settings.work(DATA, 32)
    assert len(done) > 5


def test_a_climb_goes_where_quality_rises():
    search = Search.of(FairALS(), DATA)
    search.stage(8, 2)
    tried = []

    def quality(settings):
        tried.append(settings["unobserved_weight"])
        return -abs(np.log(settings["unobserved_weight"] / 0.3))

    search.quality = quality
    start = dict.fromkeys(CHOSEN, 0.0)
    best = search.climb(start, "unobserved_weight", auto_settings.WEIGHTS)
    assert [settings["unobserved_weight"] for settings in best[:2]] == [0.3, 0.1]
    assert 0.001 not in tried


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
