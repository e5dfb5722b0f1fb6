"""What the paper proves, on a small problem in float64: L_rho never rises and every residual vanishes.

And its misprint: with (t - w) in the consensus step, as Algorithm 1 prints it, neither holds.
"""

import numpy as np
import pytest
from conftest import random_rows, slow_values

from fairmf.data.interactions import Interactions
from fairmf.models import fiadmm
from fairmf.models.als import IALS
from fairmf.models.fiadmm import FiADMM
from fairmf.models.fiadmm_steps import consensus_step
from fairmf.models.fit_loop import Diverged
from fairmf.models.objective import gradient_norm
from fairmf.models.problem import problem_for

SETTINGS = {
    "factors": 2, "regularization": 0.5, "regularization_exponent": 0.0, "unobserved_weight": 0.1,
    "backend": "reference", "random_state": 1,
}  # fmt: skip
DATA = Interactions(random_rows(12, 8, density=0.3), 8)
LAMBDA_F = 0.3


def theorem_run(epochs):
    """A run whose rho and gamma satisfy the theorem for every norm it ever sees."""
    return FiADMM(**SETTINGS, lambda_f=LAMBDA_F, rho=400.0, gamma=0.02, epochs=epochs, init_scale=1.0).fit(DATA)


@pytest.fixture(scope="module")
def run():
    return theorem_run(1600)


def test_the_settings_satisfy_the_theorem(run):
    check = run.history.records[-1]["theorem"]
    assert check["satisfied"], check


def test_augmented_lagrangian_never_rises(run):
    values = np.array(run.history.column("augmented_lagrangian"))
    assert values[0] - values[-1] > 0.1
    assert np.diff(values).max() <= 1e-10 * abs(values[0])


def test_residuals_go_to_zero(run):
    for name in ("items", "users", "consensus", "dual"):
        series = np.array(run.history.column(f"residuals.{name}"))
        assert series[-1] < 1e-6, name
        assert series[-1] < 1e-3 * series[:10].max(), name


def test_the_limit_is_a_stationary_point_of_the_objective(run):
    problem = problem_for(DATA, LAMBDA_F, run.fitted.settings)
    assert gradient_norm(problem, run.user_factors, run.item_factors) < 1e-4


@pytest.mark.slow
def test_the_misprinted_sign_breaks_it(monkeypatch):
    def misprinted(problem, V, t, w, rho):
        return consensus_step(problem, V, t, -w, rho)

    monkeypatch.setattr(fiadmm, "consensus_step", misprinted)
    with pytest.raises(Diverged) as error:
        theorem_run(2500)
    lagrangian = np.array(error.value.history.column("augmented_lagrangian"))
    assert np.diff(lagrangian).max() > abs(lagrangian[0])


def test_too_large_a_gamma_is_reported_as_outside_the_theorem():
    model = FiADMM(**SETTINGS, lambda_f=LAMBDA_F, rho=400.0, gamma=0.5, epochs=2).fit(DATA)
    assert not model.history.records[-1]["theorem"]["satisfied"]


@pytest.mark.parametrize(
    ("epochs", "steps"), [(250, {}), *slow_values((500, {"rho": 100.0, "gamma": 0.05}))], ids=["auto", "numbers"]
)
def test_without_fairness_it_reaches_the_objective_of_ials(epochs, steps):
    settings = {**SETTINGS, "init_scale": 1.0}
    ials = IALS(**settings, epochs=40).fit(DATA)
    admm = FiADMM(**settings, fairness=0.0, epochs=epochs, **steps).fit(DATA)
    a, b = (m.history.records[-1]["objective"]["total"] for m in (ials, admm))
    assert b == pytest.approx(a, rel=1e-6)
    scores = [m.user_factors @ m.item_factors.T for m in (ials, admm)]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-3)
