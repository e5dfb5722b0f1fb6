"""explain: the parts are what the formula says, and add up to the score."""

import dataclasses
import json

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import paper_als, random_rows
from naive.objective import dense

from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter, MissingHistories, NotFinite
from fairmf.models.als import IALS
from fairmf.models.fiadmm import FiADMM

N, M = 40, 25
IDS = Ids([f"u{i}" for i in range(N)]), Ids([f"i{j}" for j in range(M)])
SETTINGS = {"factors": 4, "regularization": 0.05, "epochs": 4}


def fitted(weighted=False, kind=paper_als, **settings):
    return kind(**(SETTINGS | settings)).fit(Interactions(random_rows(N, M, seed=1, weighted=weighted), M, *IDS))


def parts_by_hand(model, row, item, psi):
    """What every past item adds, and fairness takes, with H inverted outright."""
    V = model.item_factors.astype(np.float64)
    matrix = 0.05 * (row.sum() + 0.1 * M) * np.eye(V.shape[1])
    for j in range(M):
        matrix += (row[j] + 0.1) * np.outer(V[j], V[j])
    inverse = np.linalg.inv(matrix)
    amounts = {f"i{j}": row[j] * V[item] @ inverse @ V[j] for j in range(M) if row[j]}
    return amounts, psi * V[item] @ inverse @ model.fitted.merit


@pytest.mark.parametrize("kind", [paper_als, FiADMM])
def test_parts_are_those_of_the_formula_and_add_up(kind, weighted, backend):
    model = fitted(weighted, kind, fairness=2.0, backend=backend.name)
    C = dense(model.fitted.interactions)
    for user, item, psi in ((7, 3, None), (12, 20, 0.5), (N - 1, 0, 0.0)):
        found = model.explain(f"u{user}", f"i{item}", fairness=psi)
        amounts, cost = parts_by_hand(model, C[user], item, 2.0 if psi is None else psi)
        assert dict(found.contributions).keys() == amounts.keys()
        for name, amount in found.contributions:
            assert amount == pytest.approx(amounts[name], abs=1e-6)
        assert found.fairness_cost == pytest.approx(cost, abs=1e-6)
        assert found.score == pytest.approx(sum(a for _, a in found.contributions) - found.fairness_cost, abs=1e-12)
        shown = [amount for _, amount in found.contributions]
        assert shown == sorted(shown, reverse=True)
        assert (found.user, found.item) == (f"u{user}", f"i{item}")


def test_the_score_is_the_models_own():
    model = fitted()
    assert model.explain("u7", "i3").score == pytest.approx(float(model.score("u7", "i3")), abs=1e-4)
    dialled = model.explain("u7", "i3", fairness=5.0).score
    assert dialled == pytest.approx(float(model.with_fairness(5.0).score("u7", "i3")), abs=1e-4)
    assert model.with_fairness(5.0).explain("u7", "i3").score == pytest.approx(dialled)


def test_fairness_takes_from_the_most_recommended():
    """Items with the highest average score lose most; those with the lowest lose least, or gain."""
    model = fitted(fairness=2.0)
    order = np.argsort(model.item_factors @ model.fitted.mean_user)
    costs = np.array([np.mean([model.explain(f"u{u}", f"i{j}").fairness_cost for u in range(9)]) for j in range(M)])
    assert costs[order[-3:]].min() > max(0.0, costs[order[:3]].max())


def test_no_fairness_costs_nothing():
    found = fitted(kind=IALS).explain("u7", "i3")
    assert found.fairness == found.fairness_cost == 0.0


def test_a_user_from_outside():
    model = fitted()
    row = sp.csr_array((np.ones(2), ([0, 0], [2, 5])), shape=(1, M))
    found = model.explain(None, "i3", user_items=row)
    assert found.user is None
    assert {name for name, _ in found.contributions} == {"i2", "i5"}
    assert found.score == pytest.approx(float(model.fold_in(row)[0] @ model.item_factors[3]), abs=1e-5)
    assert model.explain("anyone", "i3", user_items=row).user == "anyone"


def test_a_user_without_history_has_fairness_alone():
    found = fitted().explain("u0", "i3")
    assert found.contributions == ()
    assert found.score == -found.fairness_cost


def test_as_text_and_as_plain_values():
    found = fitted().explain(f"u{N - 1}", "i3")  # has had everything: more than is shown
    lines = str(found).splitlines()
    assert lines[0] == f"item 'i3' for user 'u{N - 1}': score {found.score:.4f} at fairness 1"
    assert len(lines) == 1 + 5 + 1 + 1
    assert "20 other items" in lines[-2]
    assert lines[-1].endswith("fairness")
    shown = sum(float(line.split()[0]) for line in lines[1:])
    assert shown == pytest.approx(found.score, abs=1e-3)
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["contributions"][0] == {"item": found.contributions[0][0], "amount": found.contributions[0][1]}
    assert plain["fairness_cost"] == found.fairness_cost
    numbered = paper_als(**SETTINGS).fit(Interactions(random_rows(N, M, seed=1), M, Ids(range(N)), Ids(range(M))))
    json.dumps(numbered.explain(np.int64(3), np.int64(4)).to_dict())


def test_wrong_input():
    model = fitted()
    with pytest.raises(InvalidData, match="users are unknown, the first is 'nobody'"):
        model.explain("nobody", "i3")
    with pytest.raises(InvalidData, match="items are unknown, the first is 'nothing'"):
        model.explain("u3", "nothing")
    with pytest.raises(InvalidData, match="one user; user_items has 2 rows"):
        model.explain(None, "i3", user_items=sp.csr_array(np.ones((2, M))))
    with pytest.raises(InvalidData, match="looks transposed"):
        model.explain(None, "i3", user_items=sp.csr_array(np.ones((M, 1))))
    with pytest.raises(InvalidParameter, match="'fairness' parameter must be a number >= 0"):
        model.explain("u3", "i3", fairness=-1)
    without = fitted()
    without._fitted = dataclasses.replace(without.fitted, interactions=None)
    with pytest.raises(MissingHistories, match="explain needs"):
        without.explain("u3", "i3")
    row = sp.csr_array(np.ones((1, M)))
    assert without.explain(None, "i3", user_items=row).score == pytest.approx(
        model.explain(None, "i3", user_items=row).score
    )


def test_a_singular_system_is_named():
    model = fitted(kind=IALS)
    model.fitted.settings.update(regularization=0.0, unobserved_weight=0.0)
    with pytest.raises(NotFinite, match="singular"):
        model.explain(None, "i3", user_items=sp.csr_array((1, M)))
