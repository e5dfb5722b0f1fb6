"""The settings, `fit` and fold-in that all trained models share; each model adds `start`, `epoch` and its own knobs."""

from __future__ import annotations

import abc
import copy
import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairmf.backends import NAMES, Backend, Factors, Vector, get_backend
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.interactions import Interactions
from fairmf.models import fitting
from fairmf.models.dial import check_fairness, dialled_users
from fairmf.models.factor_model import FactorModel
from fairmf.models.fitted import Fitted
from fairmf.models.history import History
from fairmf.models.inputs import as_interactions
from fairmf.models.objective import Objective, objective
from fairmf.models.persistence.resuming import open_checkpoints
from fairmf.models.problem import Problem
from fairmf.parameters import check_settings, setting
from fairmf.solvers import cholesky

Self = TypeVar("Self", bound="IterativeModel")


@dataclass(eq=False)
class IterativeModel(FactorModel):
    """A factor model trained in epochs on the objective of docs/mathematics.md."""

    factors: int = setting(128, "Latent dimension.", symbol="d", low=1, integer=True)
    regularization: float = setting(0.005, "Weight of the frequency-scaled L2 term.", symbol="lambda2", low=0)
    regularization_exponent: float = setting(
        1.0, "How strongly L2 grows with a row's interactions.", symbol="eta", low=-4, high=4
    )
    unobserved_weight: float = setting(
        0.1, "Weight of the pull to 0 on all pairs, observed or not.", symbol="alpha0", low=0
    )
    epochs: int = setting(16, "Ceiling on training epochs.", low=1, integer=True)
    tolerance: float = setting(0.0, "Stop when F changes relatively by less than this; 0 never does.", low=0)
    init_scale: float = setting(0.1, "Factors start as Normal(0, (init_scale/sqrt(d))^2).", symbol="sigma", above=0)
    random_state: int | None = setting(0, "Seed of the start; None draws one.", low=0, integer=True, choices=(None,))
    num_threads: int = setting(0, "Threads; 0 uses all. Results are the same for any number.", low=0, integer=True)
    backend: str = setting("cpu", "Where arithmetic runs.", choices=NAMES)

    kept: ClassVar[tuple[str, ...]] = ()
    """Numbers of the last state that prediction needs."""

    # -- what each model supplies -----------------------------------------------------------------------------------

    @abc.abstractmethod
    def lambda_f_for(self, n_users: int) -> float:
        """Weight of the fairness term for that many users (0 for models without one)."""

    @abc.abstractmethod
    def start(self, problem: Problem, U: Factors, V: Factors) -> Any:
        """The state before the first epoch."""

    @abc.abstractmethod
    def epoch(self, problem: Problem, state: Any) -> Any:
        """One epoch; the given state is left as it is."""

    def report(self, problem: Problem, before: Any, after: Any, value: Objective | None) -> dict[str, Any]:  # noqa: ARG002
        """What this model adds to the epoch's record."""
        return {}

    def objective(self, problem: Problem, state: Any) -> Objective:
        """F of a state."""
        return objective(problem, state.user_factors, state.item_factors)

    def finish(self, problem: Problem, state: Any) -> Any:  # noqa: ARG002
        """What is still to be done when the epochs are over."""
        return state

    def merit(self, problem: Problem, state: Any) -> Vector:
        """The merit direction q1 = alpha0 G_V t."""
        backend = problem.backend
        return problem.unobserved_weight * (backend.gramian(state.item_factors) @ backend.mean(state.user_factors))

    def remedy(self) -> str:
        """What a user can change when training diverges."""
        return (
            "The systems are too ill-conditioned for this precision: raise regularization "
            f"(now {self.regularization:g}) or lower the confidences."
        )

    # -- fit --------------------------------------------------------------------------------------------------------

    def fit(
        self: Self,
        data: Interactions | Any,
        *,
        init: FactorModel | tuple[NDArray[Any], NDArray[Any]] | None = None,
        callbacks: Sequence[fitting.Callback] = (),
        objective_every: int = 1,
        progress: bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 1,
    ) -> Self:
        """Train on Interactions (or a SciPy sparse matrix, users as rows) and return the model itself.

        `init` starts from another model's factors, or from a pair (U, V). `objective_every=0` skips the objective,
        which is not needed for training. `progress=None` shows a bar on a terminal. `callbacks` are called each epoch
        (see fairmf.EarlyStopping).

        With `checkpoint`, a folder, the state of every `checkpoint_every`-th epoch and of the last is stored there; the
        same call on the same data goes on after the last one stored, and ends with the same bits as a fit that was
        never broken off (docs/persistence.md). Ctrl-C ends a fit after its last complete epoch: the model of that epoch
        is returned, with the verdict "interrupted" in its history.
        """
        check_settings(self)
        data = as_interactions(data)
        if data.nnz == 0:
            raise InvalidData("There are no interactions to learn from.")
        problem = problem_for(data, self.lambda_f_for(data.n_users), self._settings())
        with problem.backend.threads(self.num_threads):
            U, V = self._initial_factors(problem, init)
            state = self.start(problem, U, V)
            stored = open_checkpoints(checkpoint, checkpoint_every, self, problem, init, callbacks, objective_every)
            try:
                with stored as checkpoints:
                    state, history = fitting.run(
                        self, problem, state, snapshot=lambda s: self._snapshot(problem, s, History()),
                        callbacks=callbacks, objective_every=objective_every, progress=progress,
                        checkpoints=checkpoints,
                    )  # fmt: skip
            except fitting.Diverged as error:
                self._fitted = self._results(problem, error.state, error.history)
                raise
            self._fitted = self._results(problem, state, history)
        return self

    def _settings(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def _initial_factors(
        self, problem: Problem, init: FactorModel | tuple[NDArray[Any], NDArray[Any]] | None
    ) -> tuple[Factors, Factors]:
        backend, (n, m) = problem.backend, problem.interactions.shape
        if init is None:
            generator = np.random.default_rng(self.random_state)
            scale = self.init_scale / np.sqrt(self.factors)
            U = normal_factors(generator, n, self.factors, scale, backend)
            return U, normal_factors(generator, m, self.factors, scale, backend)
        # Copies: no epoch may write into arrays that belong to the caller.
        pair = (init.user_factors, init.item_factors) if isinstance(init, FactorModel) else init
        start_u, start_v = (np.array(x, dtype=backend.dtype) for x in pair)
        if start_u.shape != (n, self.factors) or start_v.shape != (m, self.factors):
            raise InvalidParameter(
                f"init must have factors of shapes {(n, self.factors)} and {(m, self.factors)}. "
                f"Got {start_u.shape} and {start_v.shape} instead."
            )
        if not (np.isfinite(start_u).all() and np.isfinite(start_v).all()):
            raise InvalidParameter("init holds numbers that are not finite.")
        return backend.array(start_u), backend.array(start_v)

    def _results(self, problem: Problem, state: Any, history: History) -> Fitted:
        backend = problem.backend
        data, n, strength = problem.interactions, problem.n_users, problem.unobserved_weight
        fairness = problem.lambda_f / (strength * n) if problem.lambda_f else 0.0
        return Fitted(
            user_factors=backend.host(state.user_factors),
            item_factors=backend.host(state.item_factors),
            user_ids=data.user_ids,
            item_ids=data.item_ids,
            popularity=data.by_item.sums(),
            mean_user=backend.mean(state.user_factors),
            merit=self.merit(problem, state),
            trained_fairness=fairness,
            fairness=fairness,
            history=history,
            settings=self._settings(),
            extra={name: float(getattr(state, name)) for name in self.kept},
            interactions=data,
        )

    def _snapshot(self: Self, problem: Problem, state: Any, history: History) -> Self:
        model = copy.copy(self)
        model._fitted = self._results(problem, state, history)
        return model

    # -- users who were not in training -----------------------------------------------------------------------------

    def fold_in(self, history: Interactions | Any, *, fairness: float | None = None, **options: Any) -> NDArray[Any]:
        """User vectors for new histories: u = H^-1 (b - psi q1), q1 = alpha0 G_V t of training (docs/mathematics.md 6).

        One user's vector depends on nobody else's. `fairness` is psi; by default the trained one.
        """
        if options:
            raise TypeError(f"{type(self).__name__}.fold_in has no option {', '.join(map(repr, options))}.")
        fitted = self.fitted
        psi = fitted.fairness if fairness is None else check_fairness(fairness)
        problem = problem_for(self._aligned(history), 0.0, fitted.settings)
        backend = problem.backend
        with backend.threads(self.num_threads):
            V = backend.array(fitted.item_factors)
            return backend.host(cholesky.solve(problem.user_half_step(V, shift=psi * fitted.merit)))

    def with_fairness(self: Self, fairness: float) -> Self:
        """The same model turned to another fairness, without training: shares V, users re-solved from their histories.

        Where the model was stored without histories, `user_sensitivity` stands in, if it was stored.
        It serves with that fairness by default. `with_fairness(a).with_fairness(b)` equals `with_fairness(b)`.
        """
        turned = copy.copy(self)
        turned._fitted = dataclasses.replace(
            self.fitted,
            fairness=check_fairness(fairness),
            user_factors=dialled_users(self, None, fairness),
        )
        return turned


def problem_for(data: Interactions, lambda_f: float, settings: dict[str, Any]) -> Problem:
    """The problem that these settings pose on this data."""
    names = ("regularization", "regularization_exponent", "unobserved_weight")
    return Problem(
        data, get_backend(settings["backend"]), **{name: settings[name] for name in names}, lambda_f=lambda_f
    )


def normal_factors(generator: np.random.Generator, rows: int, d: int, scale: float, backend: Backend) -> Factors:
    """Normal(0, scale^2) drawn in float64 and stored in the backend's precision, a block of rows at a time."""
    values = np.empty((rows, d), dtype=backend.dtype)
    for start in range(0, rows, 8192):
        block = values[start : start + 8192]
        block[:] = generator.normal(0.0, scale, size=block.shape)
    return backend.array(values)
