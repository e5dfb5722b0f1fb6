"""A model behind an index: the same answers as the model where the index is exact, and the same rules."""

import numpy as np
import pytest
from conftest import random_rows

from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.errors import InvalidData
from fairmf.metrics.evaluate import evaluate
from fairmf.metrics.retrieval import evaluate_retrieval
from fairmf.models.als import IALS, FairALS
from fairmf.models.popularity import Popularity
from fairmf.ranking.ann import AnnIndex

pytest.importorskip("faiss", reason='needs the ann extra: pip install "fairmf[ann]"')

N_USERS, N_ITEMS = 60, 40
ROWS = random_rows(N_USERS, N_ITEMS)
NAMED = Interactions(ROWS, N_ITEMS, Ids([f"u{i}" for i in range(N_USERS)]), Ids([f"i{j}" for j in range(N_ITEMS)]))
PLAIN = Interactions(ROWS, N_ITEMS)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_same_lists_as_the_model(backend, tmp_path):
    model = FairALS(factors=5, epochs=3, backend=backend).fit(NAMED)
    index = model.to_ann(groups=6, probes=6)
    index.save(tmp_path / "x")
    served = model.with_ann(AnnIndex.load(tmp_path / "x"))
    users = NAMED.user_ids.values
    for options in ({}, {"filter_already_liked_items": False}, {"fairness": 3.0}):
        expected, actual = model.recommend(users, N=45, **options), served.recommend(users, N=45, **options)
        np.testing.assert_array_equal(actual[0], expected[0])
        np.testing.assert_allclose(actual[1], expected[1], rtol=1e-4, atol=1e-5)
    assert served.recommend("u3", N=4)[0].tolist() == model.recommend("u3", N=4)[0].tolist()
    for known in (True, False):
        exact, approximate = (list(r.rank(NAMED, 7, known_users=known)) for r in (model, served))
        assert [start for start, _ in exact] == [start for start, _ in approximate]
        for (_, x), (_, y) in zip(exact, approximate, strict=True):
            np.testing.assert_array_equal(x, y)


def test_dialled_lists_are_ranked_through_the_index():
    model = FairALS(factors=5, epochs=3).fit(PLAIN)
    served = model.with_ann()
    expected, actual = next(model.rank(PLAIN, 7, fairness=4.0))[1], next(served.rank(PLAIN, 7, fairness=4.0))[1]
    np.testing.assert_array_equal(actual, expected)
    assert not np.array_equal(actual, next(served.rank(PLAIN, 7))[1])


def test_popularity_too():
    model = Popularity().fit(PLAIN)
    np.testing.assert_array_equal(model.with_ann().recommend([4], N=1)[1], model.recommend([4], N=1)[1])


def test_an_index_of_another_model_is_refused():
    model = IALS(factors=4, epochs=2).fit(NAMED)
    other = IALS(factors=4, epochs=2, random_state=1).fit(NAMED)
    for index in (other.to_ann(), IALS(factors=3, epochs=1).fit(NAMED).to_ann()):
        with pytest.raises(InvalidData, match="built from other item vectors"):
            model.with_ann(index)
    with pytest.raises(InvalidData, match="names its items otherwise"):
        model.with_ann(AnnIndex.build(model.item_factors, range(N_ITEMS)))
    served = model.with_ann()
    model.fit(PLAIN)
    for ask in (lambda: served.recommend([1]), lambda: next(served.rank(PLAIN, 3))):
        with pytest.raises(InvalidData, match="other item vectors since"):
            ask()


def test_known_users_must_be_all_of_them():
    with pytest.raises(InvalidData, match="needs all 60 training users"):
        next(IALS(factors=4, epochs=2).fit(PLAIN).with_ann().rank(PLAIN.take_users(np.arange(3)), 3, known_users=True))


def test_an_index_is_evaluated_like_a_model():
    model = FairALS(factors=5, epochs=3).fit(PLAIN)
    targets = Interactions.from_csr(random_case_targets())
    held_out = HeldOut(PLAIN, targets, known_users=True)
    exact, served = (evaluate(r, held_out, at=5, bootstrap=0) for r in (model, model.with_ann()))
    assert exact.values == served.values
    poor = model.with_ann(model.to_ann(groups=10, probes=1))
    found = evaluate_retrieval(model, poor, held_out, N=10, at=(5, 10), bootstrap=0)
    a, b = (np.concatenate([x for _, x in r.rank(PLAIN, 10, known_users=True)]) for r in (model, poor))
    pairs = [(set(x) - {-1}, set(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    by_hand = [len(x & y) / len(x) for x, y in pairs if x]
    assert 0 < found.recall < 1
    assert found.recall == pytest.approx(np.mean(by_hand))
    assert found.exact["gini@5"] == exact["gini@5"]
    assert found.approximate.values != found.exact.values


def random_case_targets():
    """One item each that the user has not had; none for the last, who has had all."""
    import scipy.sparse as sp

    matrix = sp.lil_array((N_USERS, N_ITEMS))
    for i in range(N_USERS - 1):
        free = sorted(set(range(N_ITEMS)) - set(ROWS.row(i)[0].tolist()))
        matrix[i, free[i % len(free)]] = 1
    return matrix.tocsr()
