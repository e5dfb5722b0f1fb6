"""Plans of A/B tests: the formula of the textbooks, simulated experiments, and what a plan makes of evaluations."""

import numpy as np
import pytest
from scipy.stats import norm

from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.evaluation import Evaluation
from fairmf.metrics.experiment import plan_experiment, sample_size


def scored(*values):
    return Evaluation({"ndcg@20": float(np.nanmean(values))}, {}, {}, {"ndcg@20": np.array(values)}, len(values), 2)


@pytest.mark.parametrize(
    ("effect", "power", "each"),
    [(0.2, 0.8, 393), (0.5, 0.8, 63), (0.8, 0.8, 25), (0.5, 0.9, 85)],  # Cohen's effects, normal approximation
)
def test_the_numbers_of_the_textbooks(effect, power, each):
    assert -(-sample_size(effect, (1, 1), power=power) // 2) == each
    assert sample_size(-effect * 3, (3, 3), power=power) == sample_size(effect, (1, 1), power=power)


@pytest.mark.parametrize(
    ("share", "deviations", "alpha"), [(0.5, (1, 1), 0.05), (0.1, (1, 0.4), 0.05), (0.3, (0.5, 2), 0.01)]
)
def test_simulated_experiments_find_the_change_as_often_as_planned(share, deviations, alpha):
    change, power, runs = 0.25, 0.8, 4000
    users = sample_size(change, deviations, alpha=alpha, power=power, share=share)
    treated = round(users * share)
    generator = np.random.default_rng(3)
    # Means of normal values are normal: no need to draw every user.
    control = generator.normal(0, deviations[0] / np.sqrt(users - treated), runs)
    treatment = generator.normal(0, deviations[1] / np.sqrt(treated), runs)
    error = np.hypot(deviations[0] / np.sqrt(users - treated), deviations[1] / np.sqrt(treated))
    limit = norm.ppf(1 - alpha / 2) * error
    assert np.mean(np.abs(treatment + change - control) > limit) == pytest.approx(power, abs=0.025)
    assert np.mean(np.abs(treatment - control) > limit) == pytest.approx(alpha, abs=0.012)


def test_skewed_scores_of_users_keep_the_power():
    """nDCG of users is far from normal: many zeros. The plan is for their means, which are nearly normal."""
    generator = np.random.default_rng(1)
    before = np.where(generator.random(4000) < 0.6, 0.0, generator.beta(2, 3, 4000))
    after = np.clip(before + generator.normal(-0.02, 0.05, 4000), 0, 1)
    [plan] = plan_experiment(scored(*before), scored(*after), metrics=["ndcg@20"])
    each, found = plan.users // 2, 0
    for _ in range(400):
        a, b = generator.choice(before, each), generator.choice(after, each)
        found += abs(a.mean() - b.mean()) > 1.96 * np.sqrt((a.var() + b.var()) / each)
    assert found / 400 == pytest.approx(0.8, abs=0.06)


def test_a_plan_from_two_evaluations():
    before, after = [0.2, 0.4, 0.6, 0.8, np.nan], [0.1, 0.3, 0.4, 0.7, np.nan]
    [plan] = plan_experiment(scored(*before), scored(*after), metrics=["ndcg@20"], share=0.25)
    assert plan.change == pytest.approx(-0.125)
    half = 1.959964 * np.std([0.1, 0.1, 0.2, 0.1], ddof=1) / 2
    np.testing.assert_allclose(plan.interval, (-0.125 - half, -0.125 + half), rtol=1e-6)
    deviations = np.std(before[:4], ddof=1), np.std(after[:4], ddof=1)
    assert plan.users == sample_size(0.125, deviations, share=0.25)
    assert plan.cautious_users == sample_size(0.125 - half, deviations, share=0.25)
    assert plan.cautious_users > plan.users
    assert plan.to_dict()["metric"] == "ndcg@20"


def test_a_given_change_replaces_the_measured_one():
    [plan] = plan_experiment(scored(0.2, 0.4), scored(0.2, 0.4), metrics=["ndcg@20"], change=-0.01)
    assert plan.treatment == pytest.approx(0.29)
    assert plan.interval is None
    assert plan.users == plan.cautious_users == sample_size(0.01, (np.std([0.2, 0.4], ddof=1),) * 2)


def test_no_difference_and_an_unclear_one():
    [same] = plan_experiment(scored(0.2, 0.4), scored(0.2, 0.4), metrics=["ndcg@20"])
    assert (same.users, same.cautious_users) == (None, None)
    [unclear] = plan_experiment(scored(0.2, 0.4, 0.3), scored(0.1, 0.6, 0.3), metrics=["ndcg@20"])
    assert unclear.users > 0
    assert unclear.cautious_users is None


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (scored(0.1, 0.2, 0.3), "different users"),
        (scored(0.1, np.nan), "different users"),
        (Evaluation({}, {}, {}, {"recall@5": np.ones(2)}, 2, 2), "no score of each user for 'ndcg@20'; .*recall@5"),
    ],
)
def test_evaluations_that_do_not_go_together(other, problem):
    with pytest.raises(InvalidData, match=problem):
        plan_experiment(scored(0.2, 0.4), other, metrics=["ndcg@20"])


@pytest.mark.parametrize(
    "wrong",
    [{"change": 0}, {"change": np.nan}, {"power": 1}, {"alpha": 0}, {"share": 1.5}, {"deviations": (-1, 1)}],
)
def test_numbers_out_of_range(wrong):
    with pytest.raises(InvalidParameter, match=next(iter(wrong))):
        sample_size(**{"change": 0.1, "deviations": (1, 1), **wrong})
