"""`compare`: p-values against exact enumeration, SciPy and brute force; tables; what is refused."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from ranked_lists import Fixed, held_out_of, matrix
from scipy import stats

from fairmf import Comparison, compare, evaluate, evaluate_lists
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.bootstrap import draw_weights
from fairmf.metrics.significance import bootstrap_p, holm, sign_flip_p, swap_p, swaps

ITEMS, USERS, SLOTS = 12, 9, 4


def lists_of(seed, popular=1.0):
    random = np.random.default_rng(seed)
    weights = (1 / np.arange(1, ITEMS + 1)) ** popular
    return np.stack([random.choice(ITEMS, SLOTS, replace=False, p=weights / weights.sum()) for _ in range(USERS)])


TARGETS = [{0, 3}, {1}, {2, 5, 7}, set(), {4}, {0}, {8, 9}, {1, 2}, {6}]
HELD_OUT = held_out_of(TARGETS, ITEMS)
TRAIN = matrix([[0, 1, 2], [0, 1], [0, 5, 8], [2, 3]], ITEMS)
ONE, TWO = lists_of(1), lists_of(2, popular=0.0)


def exact_p(differences):
    own = [d for d in differences if np.isfinite(d)]
    sums = [abs(sum(s * d for s, d in zip(signs, own, strict=True)))
            for signs in itertools.product((1, -1), repeat=len(own))]  # fmt: skip
    return sum(s >= abs(sum(own)) - 1e-9 for s in sums) / len(sums)


@pytest.mark.parametrize("seed", range(6))
def test_sign_flips_of_few_users_are_enumerated(seed):
    random = np.random.default_rng(seed)
    differences = np.round(random.normal(0.3, 0.5, 8), 1)  # with ties
    differences[seed % 8] = np.nan if seed % 2 else 0.0
    p, exact = sign_flip_p(differences, 1000, 0)
    assert exact
    assert p == pytest.approx(exact_p(differences))
    own = differences[np.isfinite(differences)]
    peer = stats.permutation_test((own, np.zeros_like(own)), lambda a, b: np.mean(a - b), permutation_type="samples",
                                  n_resamples=np.inf)  # fmt: skip
    assert p == pytest.approx(peer.pvalue)


def test_many_users_are_sampled():
    differences = np.random.default_rng(3).normal(0.03, 0.2, 150)
    p, exact = sign_flip_p(differences, 20_000, 0)
    assert not exact
    # The sum of random signs times differences is close to normal.
    z = differences.sum() / np.sqrt((differences**2).sum())
    assert p == pytest.approx(2 * stats.norm.sf(abs(z)), abs=0.01)
    assert sign_flip_p(differences, 20_000, 0) == (p, exact)
    assert sign_flip_p(np.zeros(5), 10, 0) == (1.0, True)
    strong, _ = sign_flip_p(np.full(100, 0.1), 999, 0)
    assert strong == 1 / 1000  # never 0: the one found counts


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == pytest.approx([1.0, 1.0])
    assert holm([0.02, float("nan"), 0.5])[0] == pytest.approx(0.04)
    assert np.isnan(holm([0.02, float("nan")])[1])

    def naive(ps):
        order = sorted(range(len(ps)), key=lambda k: ps[k])
        return [max(min(1, ps[j] * (len(ps) - rank)) for rank, j in enumerate(order[: order.index(k) + 1]))
                for k in range(len(ps))]  # fmt: skip

    ps = np.random.default_rng(0).uniform(0, 0.2, 12).tolist()
    assert holm(ps) == pytest.approx(naive(ps))


LABELS = ["gini@3", "coverage@4", "max_exposure@3", "jme_ai@4", "jme_gi@4", "user_gini@4", "group_gini@4"]
OPTIONS = {
    "groups": [j % 3 for j in range(ITEMS)], "user_groups": [0, 0, 1, 1, 1, 2, 2, 0, 1], "train": TRAIN,
}  # fmt: skip


def brute(lists):
    found = evaluate_lists(lists, HELD_OUT, metrics=LABELS, bootstrap=0, **OPTIONS)
    return [found[label] for label in LABELS]


def test_metrics_of_exposure_are_tested_by_swapping_lists():
    found = compare({"one": ONE, "two": TWO}, HELD_OUT, metrics=LABELS, resamples=60, random_state=5, **OPTIONS)
    differences = np.subtract(brute(TWO), brute(ONE))
    keep = np.concatenate(list(swaps(USERS, 60, ITEMS, 5)), axis=1).astype(bool)
    swapped = [
        np.subtract(brute(np.where(k[:, None], TWO, ONE)), brute(np.where(k[:, None], ONE, TWO))) for k in keep.T
    ]
    for place, (label, test) in enumerate(zip(LABELS, found.tests, strict=True)):
        assert (test.metric, test.first, test.second) == (label, "two", "one")
        assert test.difference == pytest.approx(differences[place])
        assert test.p == pytest.approx(swap_p(differences[place], np.array(swapped)[:, place])), label
    assert [t.p_holm for t in found.tests] == pytest.approx(holm([t.p for t in found.tests]))


def test_p_values_by_hand():
    replicates = np.array([0.1, 0.3, 0.5, 0.7, 0.9, np.nan])  # shifted to 0: -.4, -.2, 0, .2, .4
    assert bootstrap_p(0.3, replicates) == (2 + 1) / 6
    assert bootstrap_p(-0.2, replicates) == (4 + 1) / 6
    assert swap_p(0.5, replicates) == (3 + 1) / 6
    assert np.isnan(bootstrap_p(np.nan, replicates))
    assert np.isnan(swap_p(0.5, np.array([np.nan])))


def test_the_bootstrap_draws_the_same_users_for_both():
    labels = ["ndcg@3", "gini@3", "jme_ai@4"]
    found = compare({"one": ONE, "two": TWO}, HELD_OUT, metrics=labels, resamples=40, random_state=2)
    weights = np.concatenate(list(draw_weights(USERS, 40, ITEMS, 2)), axis=1).astype(int)
    replicates = []
    for drawn in weights.T:
        rows = np.repeat(np.arange(USERS), drawn)
        held_out = held_out_of([TARGETS[i] for i in rows], ITEMS)
        sides = [evaluate_lists(lists[rows], held_out, metrics=labels, bootstrap=0) for lists in (TWO, ONE)]
        replicates.append([sides[0][label] - sides[1][label] for label in labels])
    for place, test in enumerate(found.tests):
        own = np.array(replicates)[:, place]
        assert test.p_bootstrap == pytest.approx(bootstrap_p(test.difference, own))
        shift = 0 if test.metric == "ndcg@3" else test.difference - own.mean()
        assert (test.low, test.high) == pytest.approx(tuple(np.quantile(own, [0.025, 0.975]) + shift))


def test_results_models_and_lists_give_the_same_tests():
    sides = {"one": ONE, "two": TWO}
    results = {name: evaluate_lists(lists, HELD_OUT, at=4, metrics="all", bootstrap=0) for name, lists in sides.items()}
    models = {name: Fixed(lists, ITEMS) for name, lists in sides.items()}
    frames = {
        name: pd.DataFrame([(u, j, r) for u, row in enumerate(lists) for r, j in enumerate(row)],
                           columns=["user", "item", "rank"]) for name, lists in sides.items()
    }  # fmt: skip
    of_results = compare(results, metrics=["ndcg@4", "ee_loss@4", "envy@4"])
    assert of_results.tests[0].exact
    differences = results["two"].per_user["ndcg@4"] - results["one"].per_user["ndcg@4"]
    assert of_results.tests[0].p == pytest.approx(exact_p(differences))
    assert of_results.tests[0].n_users == sum(map(bool, TARGETS))
    for other in (models, frames, sides):
        found = compare(other, HELD_OUT, metrics=["ndcg@4", "ee_loss@4", "envy@4"])
        assert json.dumps(found.to_dict()) == json.dumps(of_results.to_dict())
    assert set(compare(results).values) == set(results["one"].per_user)


def test_a_model_beside_itself_differs_in_nothing():
    found = compare({"one": ONE, "again": ONE.copy()}, HELD_OUT, metrics=["ndcg@3", "gini@3"], resamples=50)
    assert [(t.difference, t.p, t.p_holm) for t in found.tests] == [(0, 1, 1)] * 2
    assert found.beaten("ndcg@3", "one") == []


def many(shift, n=80):
    """Lists for many users; with `shift` the target is on top, otherwise absent."""
    random = np.random.default_rng(int(100 * shift))
    return np.stack([[u % ITEMS if random.random() < shift else (u + 5) % ITEMS, (u + 3) % ITEMS] for u in range(n)])


def test_tables_and_latex():
    held_out = held_out_of([{u % ITEMS} for u in range(80)], ITEMS)
    sides = {"good_one": many(0.9), "bad": many(0.1), "worse": many(0.05)}
    found = compare(sides, held_out, metrics=["recall@1", "gini@2"], resamples=500)
    assert len(found.tests) == 6
    assert found.best("recall@1") == "good_one"
    assert found.beaten("recall@1", "good_one") == ["bad", "worse"]
    assert found.beaten("recall@1", "bad") == []
    lines = found.to_latex(digits=2).splitlines()
    assert lines[0] == r"\begin{tabular}{lrr}"
    assert lines[2] == r"model & Recall@1 $\uparrow$ & Gini@2 $\downarrow$ \\"
    value = found.values["recall@1"]["good_one"]
    assert lines[4].startswith(rf"$^{{a}}$ good\_one & \textbf{{{value:.2f}}}$^{{bc}}$ & ")
    assert lines[-1] == r"\end{tabular}"
    assert "good_one" in repr(found)
    assert "*" in repr(found)
    row = found.table()[0]
    assert row["significant"] is True
    assert row["second_value"] == value
    against = compare(sides, held_out, metrics=["recall@1"], baseline="bad", resamples=100)
    assert [(t.first, t.second) for t in against.tests] == [("good_one", "bad"), ("worse", "bad")]
    assert isinstance(found, Comparison)


def test_what_is_refused():
    results = {name: evaluate_lists(lists, HELD_OUT, at=4, bootstrap=0) for name, lists in (("a", ONE), ("b", TWO))}
    with pytest.raises(InvalidParameter, match=r"'gini@4' is not a mean over users.*test="):
        compare(results, metrics=["gini@4"])
    with pytest.raises(InvalidParameter, match="'ndcg@3' was not evaluated for all"):
        compare(results, metrics=["ndcg@3"])
    with pytest.raises(InvalidParameter, match="at least two"):
        compare({"a": ONE}, HELD_OUT)
    with pytest.raises(InvalidParameter, match="no model 'c'"):
        compare({"a": ONE, "b": TWO}, HELD_OUT, baseline="c")
    with pytest.raises(InvalidData, match="'b' is none"):
        compare({"a": results["a"], "b": TWO})
    with pytest.raises(InvalidData, match="needs test data"):
        compare({"a": ONE, "b": TWO})
    with pytest.raises(TypeError, match="no option 'speed'"):
        compare({"a": ONE, "b": TWO}, HELD_OUT, speed=1)
    fewer = evaluate(Fixed(ONE[:5], ITEMS), held_out_of(TARGETS[:5], ITEMS), at=4, bootstrap=0)
    with pytest.raises(InvalidData, match="different users"):
        compare({"a": results["a"], "b": fewer})
    test = pd.DataFrame({"user": [0, 1], "item": [0, 1]})
    lists = {0: [0], 1: [1]}
    with pytest.raises(InvalidData, match="lists of other users"):
        compare({"a": lists, "b": {**lists, 2: [1]}}, test, metrics=["ndcg@1"])
    with pytest.raises(InvalidParameter, match="'alpha'"):
        compare({"a": ONE, "b": TWO}, HELD_OUT, alpha=2)
