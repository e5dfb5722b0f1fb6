"""Levels of evenness wherever a model answers, against the formula on all scores."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from in_process import InProcess
from naive import fairrec as naive_fairrec

from fairmf import IALS, FairALS, Interactions, Level, Popularity, evaluate, fit_offsets, load_model, synthetic
from fairmf.data.split_methods import split_by_user
from fairmf.errors import InvalidParameter, MissingHistories
from fairmf.models.evenness import EvennessPath, Knot

DATA = synthetic(150, 60, 2500, random_state=2)
MODEL = FairALS(factors=6, epochs=4, fairness=1.0, item_balance=0.3).fit(DATA, progress=False)
PRICES = np.random.default_rng(4).random(DATA.n_items) * (np.arange(DATA.n_items) % 3 > 0)
MODEL._fitted = dataclasses.replace(MODEL.fitted, item_prices=PRICES)
USERS = DATA.user_ids.values
PATH = EvennessPath(
    (Knot(Level(1.0), 0.8, 0.4), Knot(Level(1.0, 0.5, 0.1), 0.6, 0.3), Knot(Level(3.0, 0.9, 0.2), 0.5, 0.2)),
    at=20, quality="ndcg@100", n_users=30,
)  # fmt: skip


def by_hand(model, level, users=None):
    """All scores of a level, by the formula: s / spread^g - h S (log f - mean log f) + t S p."""
    fitted = model.fitted
    U = fitted.user_factors if level.fairness is None else model.fold_in(DATA, fairness=level.fairness)
    S0 = (fitted.user_factors.astype(float) - 0) @ fitted.item_factors.T.astype(float)
    spread = S0.std(axis=0)
    f = np.maximum((DATA.to_csr().toarray() > 0).sum(axis=0), 1)
    flat = S0 / spread**level.flatten
    scores = U.astype(float) @ fitted.item_factors.T.astype(float) / spread**level.flatten
    scores -= level.discount * flat.std() * (np.log(f) - np.log(f).mean())
    scores += level.lift * flat.std() * PRICES
    return scores if users is None else scores[users]


def lists_by_hand(scores, k):
    masked = np.where(DATA.to_csr().toarray() > 0, -np.inf, scores)
    return np.argsort(-masked, axis=1, kind="stable")[:, :k], -np.sort(-masked, axis=1)[:, :k]


@settings(max_examples=25)
@given(st.sampled_from([None, 0.0, 1.0, 4.0]), st.floats(0, 2), st.floats(0, 2), st.floats(0, 2))
def test_lists_are_those_of_the_formula(psi, g, h, t):
    level = Level(psi, g, h, t)
    ids, scores = MODEL.recommend(USERS, N=7, evenness=level, by="id")
    _, expected = lists_by_hand(by_hand(MODEL, level), 7)
    np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-4)
    rows = DATA.item_ids.positions(ids.ravel(), kind="item").reshape(ids.shape)
    liked = DATA.to_csr().toarray() > 0
    assert not liked[np.arange(len(rows))[:, None], rows].any()
    one, alone = MODEL.recommend(USERS[3], N=7, evenness=level)
    assert np.array_equal(one, ids[3])
    assert np.array_equal(alone, scores[3])
    # Of equal scores the lower item comes first.
    ties = np.diff(scores, axis=1) == 0
    assert (np.diff(rows, axis=1)[ties] > 0).all()


def test_no_level_gives_the_lists_of_before():
    plain = MODEL.recommend(USERS, N=9)
    for evenness in (Level(), Level(1.0), 0, Level(None, 0.0, 0.0)):
        again = MODEL.recommend(USERS, N=9, evenness=evenness)
        assert np.array_equal(plain[0], again[0])
        assert np.array_equal(plain[1], again[1])


def test_every_way_to_ask_gives_the_same():
    level = Level(3.0, 0.4, 0.3, 0.7)
    ids, scores = MODEL.recommend(USERS, N=5, evenness=level)
    table = MODEL.recommend_table(N=5, evenness=level)
    assert np.array_equal(np.array(table["item"]).reshape(-1, 5), ids)
    turned = MODEL.with_evenness(level)
    stored, values = turned.recommend(USERS, N=5)
    assert np.array_equal(stored, ids)
    np.testing.assert_allclose(values, scores, atol=1e-5)
    blocks = [lists for _, lists in MODEL.rank(DATA, 5, known_users=True, evenness=level)]
    assert np.array_equal(DATA.item_ids.values[np.concatenate(blocks)], ids)
    np.testing.assert_allclose(MODEL.score(USERS[4], ids[4], evenness=level), scores[4], atol=1e-4)
    found = MODEL.explain(USERS[4], ids[4][0], evenness=level)
    assert found.score == pytest.approx(scores[4, 0], abs=1e-3)
    parts = sum(amount for _, amount in found.contributions) - found.fairness_cost + found.offset
    assert parts == pytest.approx(found.score)
    vectors = turned.fitted.serving_users(turned.user_factors) @ turned.fitted.serving_items.T
    np.testing.assert_allclose(vectors, by_hand(MODEL, level), rtol=1e-3, atol=1e-4)


def test_vectors_of_a_level_with_lift_alone_give_its_scores():
    turned = MODEL.with_evenness(Level(lift=0.5))
    vectors = turned.fitted.serving_users(turned.user_factors) @ turned.fitted.serving_items.T
    np.testing.assert_allclose(vectors, by_hand(MODEL, Level(lift=0.5)), rtol=1e-3, atol=1e-4)


def test_filters_work_at_a_level():
    allowed = DATA.item_ids.values[10:40]
    level = Level(None, 0.7, 0.5)
    ids, scores = MODEL.recommend(USERS, N=6, items=allowed, filter_items=allowed[:5], evenness=level)
    expected = by_hand(MODEL, level)
    expected[:, :15], expected[:, 40:] = -np.inf, -np.inf
    best, values = lists_by_hand(expected, 6)
    there = np.isfinite(values)
    np.testing.assert_allclose(scores[there], values[there], rtol=1e-3, atol=1e-4)
    assert (ids[there] == DATA.item_ids.values[best][there]).mean() > 0.98
    assert not np.isin(ids[there], allowed[:5]).any()


def test_users_without_history_keep_the_popular_items():
    nobody = Interactions.from_csr(DATA.to_csr()[:1] * 0, allow_empty=True)
    plain, _ = MODEL.recommend([0], nobody, N=5, recalculate_user=True)
    ids, scores = MODEL.recommend([0], nobody, N=5, recalculate_user=True, evenness=Level(None, 1.0, 1.0))
    assert np.array_equal(plain, ids)
    assert np.isnan(scores).all()


def test_the_file_keeps_spread_level_and_path(tmp_path):
    model = MODEL.with_evenness(Level(None, 0.4, 0.1, 0.6))
    model._fitted = dataclasses.replace(model.fitted, path=PATH)
    model.save(tmp_path / "model", interactions=False, user_sensitivity=True)
    again = load_model(tmp_path / "model")
    assert again.fitted.path == PATH
    assert (again.fitted.flatten, again.fitted.discount, again.fitted.lift) == (0.4, 0.1, 0.6)
    assert np.array_equal(again.fitted.item_prices, PRICES)
    assert np.array_equal(again.fitted.item_spread, model.fitted.item_spread)
    asked = {"N": 5, "filter_already_liked_items": False}
    for evenness in (None, 0.3, 0.9):
        ids, scores = model.recommend(USERS[:20], evenness=evenness, **asked)
        others, values = again.recommend(USERS[:20], evenness=evenness, **asked)
        np.testing.assert_allclose(scores, values, atol=1e-4)
        assert (ids == others).mean() > 0.95
    model.save(tmp_path / "lean", interactions=False)
    lean = load_model(tmp_path / "lean")
    lean.recommend(USERS[:3], evenness=0.4, **asked)  # as far as fairness stays, nothing else is needed
    with pytest.raises(MissingHistories):
        lean.recommend(USERS[:3], evenness=0.9, **asked)


def test_an_old_file_without_spread_computes_it():
    old = MODEL.with_evenness(Level())
    old._fitted = dataclasses.replace(old.fitted, item_spread=None, item_counts=None)
    ids, _ = old.recommend(USERS, N=5, evenness=Level(None, 0.5, 0.5))
    assert np.array_equal(ids, MODEL.recommend(USERS, N=5, evenness=Level(None, 0.5, 0.5))[0])


def test_evenness_runs_along_the_path():
    model = MODEL.with_evenness(Level())
    model._fitted = dataclasses.replace(model.fitted, path=PATH)
    for evenness in (0, 0.25, 1):
        ids, _ = model.recommend(USERS, N=5, evenness=evenness)
        assert np.array_equal(ids, MODEL.recommend(USERS, N=5, evenness=PATH.level(evenness))[0])
    uncalibrated, _ = MODEL.recommend(USERS, N=5, evenness=0.25)
    assert np.array_equal(uncalibrated, MODEL.recommend(USERS, N=5, evenness=Level(None, 0.25, 0.25))[0])


@pytest.mark.parametrize("wrong", [-1, 1.5, "much", float("nan"), True])
def test_a_wrong_evenness_is_refused(wrong):
    with pytest.raises(InvalidParameter, match="evenness"):
        MODEL.recommend(USERS[:2], evenness=wrong)
    with pytest.raises(InvalidParameter, match="flatten"):
        Level(flatten=-1.0)
    with pytest.raises(InvalidParameter, match="not both"):
        MODEL.recommend(USERS[:2], evenness=0.5, fairness=1.0)


def test_evaluation_and_gini():
    """More evenness, less Gini; and `evaluate` passes it on."""
    split = split_by_user(synthetic(500, 300, 9000), heldout=100, protocol="seeded")
    model = IALS(factors=6, epochs=4).fit(split.train, progress=False)
    ginis = [
        evaluate(model, split.test, metrics=["gini@10"], bootstrap=0, evenness=Level(discount=h))["gini@10"]
        for h in (0.0, 0.2, 0.4)
    ]
    assert ginis[0] > ginis[1] > ginis[2]


def test_the_index_holds_one_level():
    pytest.importorskip("faiss")
    level = Level(None, 0.6, 0.3, 0.5)
    turned = MODEL.with_evenness(level)
    ranker = turned.with_ann(turned.to_ann(groups=1, probes=1))
    ids, scores = ranker.recommend(USERS, N=5)
    _, best = lists_by_hand(by_hand(MODEL, level), 5)
    np.testing.assert_allclose(scores, best, atol=1e-5)
    # Items that the same users have score alike up to rounding: so the lists are compared by the scores of their items.
    at = [[DATA.item_ids.position(item) for item in row] for row in ids]
    np.testing.assert_allclose(np.take_along_axis(by_hand(MODEL, level), np.array(at), 1), best, atol=1e-5)
    assert all(len(set(row)) == 5 for row in ids.tolist())
    assert not (DATA.to_csr().toarray() > 0)[np.arange(len(USERS))[:, None], at].any()
    same = MODEL.to_ann(groups=1, probes=1, evenness=level)
    np.testing.assert_array_equal(same.item_vectors, turned.to_ann(groups=1, probes=1).item_vectors)
    with pytest.raises(InvalidParameter, match="evenness it was built for"):
        ranker.recommend(USERS[:2], evenness=Level(None, 0.6, 0.3, 0.4))
    with pytest.raises(Exception, match="another evenness"):
        MODEL.with_ann(same)


def test_offsets_start_from_a_level():
    level = Level(None, 0.5, 0.2, 0.3)
    found = fit_offsets(MODEL, K=5, min_exposure=0.3, iterations=60, evenness=level, progress=False)
    assert found.model.fitted.served().on_items == level.on_items
    ids, scores = found.model.recommend(USERS, N=5)
    expected = by_hand(MODEL, level) + found.model.fitted.item_offsets
    np.testing.assert_allclose(scores, lists_by_hand(expected, 5)[1], rtol=1e-3, atol=1e-4)
    counts = np.bincount(DATA.item_ids.positions(ids.ravel(), kind="item"), minlength=DATA.n_items)
    np.testing.assert_allclose(found.share, counts * DATA.n_items / (5 * DATA.n_users), atol=0.05)
    with pytest.raises(InvalidParameter, match="offsets were learned at another evenness"):
        found.model.recommend(USERS[:2], evenness=0.9)


@pytest.mark.parametrize("level", [Level(None, 0.6, 0.2), Level(3.0, 0.4, 0.0), Level(None, 0.0, 0.5, 0.8)])
def test_fairrec_starts_from_a_level(level):
    """The double loops of FairRec on the formula's scores, and every way to ask for them."""
    liked = [set(np.flatnonzero(row).tolist()) for row in DATA.to_csr().toarray() > 0]
    turned = MODEL.with_evenness(level)
    items, offset = MODEL.fitted.dialled_items(level)
    scores = turned.user_factors.astype(float) @ items.T.astype(float) + (0.0 if offset is None else offset)
    np.testing.assert_allclose(scores, by_hand(MODEL, level), atol=1e-4)
    # Some items have equal scores but for rounding, so round as the lists do.
    expected, ell = naive_fairrec.fair_rec(scores.astype(np.float32), 6, 0.6, liked, random_state=0)
    plain, _ = naive_fairrec.fair_rec(by_hand(MODEL, Level()), 6, 0.6, liked, random_state=0)
    assert (np.array(plain) == expected).mean() < 0.9
    for made in (
        MODEL.recommend_fairly(N=6, share=0.6, order="allocation", evenness=level),
        turned.recommend_fairly(N=6, share=0.6, order="allocation"),
    ):
        rows = DATA.item_ids.positions(made.ids.ravel(), kind="item").reshape(made.ids.shape)
        assert rows.tolist() == expected
        assert made.certificate.guaranteed == ell
    ways = (
        MODEL.with_fairrec(0.6, order="allocation").rank(DATA, 6, known_users=True, evenness=level),
        turned.with_fairrec(0.6, order="allocation").rank(DATA, 6, known_users=True),
    )
    for blocks in ways:
        assert np.concatenate([lists for _, lists in blocks]).tolist() == expected


def test_new_items_have_a_spread():
    model = FairALS(factors=6, epochs=3).fit(DATA, progress=False)
    model._fitted = dataclasses.replace(model.fitted, item_prices=PRICES)
    rows = DATA.to_csr()[:, [0, 1]].T.tocsr()
    model.partial_fit_items(["new", "newer"], rows)
    scores = model.user_factors.astype(float) @ model.item_factors.T.astype(float)
    np.testing.assert_allclose(model.fitted.item_spread[-2:], scores[:, -2:].std(axis=0), rtol=1e-4)
    assert np.array_equal(model.fitted.item_counts[-2:], np.diff(rows.indptr))
    assert np.array_equal(model.fitted.item_prices, [*PRICES, 0, 0])
    ids, _ = model.recommend(USERS[:4], N=3, evenness=Level(None, 0.5, 0.5, 0.5))
    assert ids.shape == (4, 3)


def test_lift_needs_prices():
    model = IALS(factors=4, epochs=2).fit(DATA, progress=False)
    for ask in (model.with_evenness, lambda level: model.recommend(USERS[:2], evenness=level)):
        with pytest.raises(InvalidParameter, match="no prices of items"):
            ask(Level(lift=0.5))


def test_clusters_compute_the_same_spread():
    settings = {"factors": 6, "epochs": 3, "backend": "reference"}
    local = FairALS(**settings).fit(DATA, progress=False)
    remote = FairALS(**settings, engine="ray").fit(DATA, progress=False, cluster=InProcess(shards=3))
    np.testing.assert_allclose(remote.fitted.item_spread, local.fitted.item_spread, rtol=1e-5)


def test_popularity_is_discounted_and_stays_defined():
    model = Popularity().fit(DATA)
    ids, scores = model.recommend(USERS[:3], N=5, evenness=0.5)
    assert np.isfinite(scores).all()
    assert ids.shape == (3, 5)
