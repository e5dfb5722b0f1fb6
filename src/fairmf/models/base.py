"""The settings, `fit` and fold-in that all trained models share; each model adds `start`, `epoch` and its own knobs."""

from __future__ import annotations

import abc
import copy
import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairmf.backends import random_start
from fairmf.backends.contract import Backend, Factors, Vector
from fairmf.backends.registry import BACKENDS, get_backend
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter, NotFinite
from fairmf.models import fit_loop, partial_fit
from fairmf.models import fold_in as folding
from fairmf.models.dial import dialled_users
from fairmf.models.factor_model import FactorModel
from fairmf.models.fit_loop import Callback
from fairmf.models.fitted import Fitted, History, on_snapshot, positions
from fairmf.models.fold_in import check_fairness
from fairmf.models.objective import Objective, objective
from fairmf.models.problem import FairnessWeights, Problem, normal_factors
from fairmf.params import check_settings, setting, settings_of

if TYPE_CHECKING:
    from fairmf.models.explain import Explanation


LARGE = 1e6  # no setting that is meant is larger
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
    backend: str = setting("cpu", "Where arithmetic runs; 'auto' takes a device where that pays.", choices=BACKENDS)
    factor_dtype: str = setting(
        "float32", "What a device stores gathered factors as; 'float16' reads half as much.",
        choices=("float32", "float16"),
    )  # fmt: skip

    engine: str = setting("local", "Who computes.", choices=("local",))

    kept: ClassVar[tuple[str, ...]] = ()
    """Numbers of the last state that prediction needs."""

    def _backend(self) -> Backend:
        # Workers of a cluster may have had devices that this process has not.
        fitted = self._fitted
        return (
            super()._backend() if self.engine == "local" or fitted is None else get_backend(fitted.settings["backend"])
        )

    # -- what each model supplies -----------------------------------------------------------------------------------

    @abc.abstractmethod
    def lambda_f_for(self, n_users: int) -> float:
        """Return the weight of the fairness term for that many users (0 for models without one)."""

    @abc.abstractmethod
    def start(self, problem: Problem, U: Factors, V: Factors) -> Any:
        """Return the state before the first epoch."""

    @abc.abstractmethod
    def epoch(self, problem: Problem, state: Any) -> Any:
        """Run one epoch; the given state is left as it is."""

    def report(self, problem: Problem, before: Any, after: Any, value: Objective | None) -> dict[str, Any]:  # noqa: ARG002
        """Return what this model adds to the epoch's record."""
        return {}

    def objective(self, problem: Problem, state: Any) -> Objective:
        """Return F of a state."""
        return objective(problem, state.user_factors, state.item_factors)

    def finish(self, problem: Problem, state: Any) -> Any:  # noqa: ARG002
        """Return the state after what is left to do when the epochs are over."""
        return state

    def merit(self, problem: Problem, state: Any) -> Vector:
        """Return the merit direction q1 = alpha0 G_W t."""
        t = problem.backend.mean(state.user_factors)
        return problem.unobserved_weight * (problem.merit_gramian(state.item_factors) @ t)

    def remedy(self) -> str:
        """Return what a user can change when training diverges."""
        for name in ("regularization", "unobserved_weight", "fairness", "lambda_f"):
            value = getattr(self, name, None)
            if isinstance(value, (int, float)) and value > LARGE:
                return f"{name} is too large for this precision: lower it (now {value:g})."
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
        callbacks: Sequence[Callback] = (),
        objective_every: int = 1,
        progress: bool | None = None,
        settle: bool = True,
        fairness_weights: FairnessWeights | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 1,
        cluster: Any = None,
    ) -> Self:
        """Train the model on interactions.

        Ctrl-C ends the fit after its last complete epoch: the model of that epoch is returned, with the verdict
        "interrupted" in its history.

        Parameters
        ----------
        data
            Interactions, or a SciPy sparse matrix with users as rows. With `engine="ray"` also shards of a Parquet
            data set (docs/scaling.md).
        init
            Another model, or a pair (U, V), whose factors the fit starts from.
        callbacks
            Called after every epoch; see `fairmf.EarlyStopping`.
        objective_every
            Compute the objective every so many epochs. 0 skips it; training does not need it.
        progress
            Show a progress bar. None shows it on a terminal.
        settle
            Solve the users once more after the last epoch, so that stored users equal their own fold-in. False saves
            that time where only users who are folded in will be asked about.
        fairness_weights
            How strongly the fairness term holds each item down: one number >= 0 per item, or a mapping from item id
            to number (items not named have 1); see docs/groups.md.
        checkpoint
            A folder for the state of every `checkpoint_every`-th epoch and of the last. The same call on the same data
            resumes after the last epoch stored there, and ends with the same bits as a fit that was never interrupted
            (docs/persistence.md).
        cluster
            With `engine="ray"`, a `RayCluster` that says how many workers there are and where.

        Returns
        -------
        The model itself.

        Raises
        ------
        InvalidParameter, InvalidData
            For a setting out of its range, or data that cannot be learnt from.
        NotFinite
            Where training diverges; the model then keeps the state before that epoch.

        Examples
        --------
        >>> from fairmf import FairALS, synthetic
        >>> model = FairALS(factors=4, epochs=2).fit(synthetic(60, 40, 600), progress=False)
        >>> model.user_factors.shape
        (60, 4)
        """
        from fairmf.models.checkpoint import open_checkpoints  # models that only answer do without

        check_settings(self)
        with (
            fit_loop.open_setup(self, data, fairness_weights, cluster) as given,
            given.problem.backend.threads(self.num_threads),
        ):
            problem = given.problem
            state = self.start(problem, *self._initial_factors(problem, init))
            stored = open_checkpoints(checkpoint, checkpoint_every, self, problem, init, callbacks, objective_every)
            try:
                with stored as checkpoints:
                    options = fit_loop.Options(
                        type(self).__name__, callbacks, objective_every, progress, settle,
                        None if checkpoints is None else given.checkpoints(checkpoints), given.note,
                    )  # fmt: skip
                    state, history = fit_loop.run(
                        given.steps, problem, state, lambda s: self._snapshot(given, s, History()), options
                    )
            except fit_loop.Diverged as error:
                self._fitted = self._results(given, error.state, error.history)
                raise
            self._fitted = self._results(given, state, history)
        return self

    def _settings(self) -> dict[str, Any]:
        return settings_of(self)

    def _initial_factors(
        self, problem: Problem, init: FactorModel | tuple[NDArray[Any], NDArray[Any]] | None
    ) -> tuple[Factors, Factors]:
        backend, (n, m) = problem.backend, problem.interactions.shape
        if init is None:
            key, scale = random_start.key_of(self.random_state), self.init_scale / np.sqrt(self.factors)
            users, items = (random_start.Stream(key, side) for side in (random_start.USERS, random_start.ITEMS))
            U = normal_factors(users, n, self.factors, scale, backend)
            return U, normal_factors(items, m, self.factors, scale, backend)
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
        U = backend.empty(n, self.factors)
        backend.put(start_u, slice(None), U)
        return U, backend.array(start_v)

    def _results(self, given: fit_loop.Setup, state: Any, history: History) -> Fitted:
        problem, backend = given.problem, given.problem.backend
        data, n, strength = problem.interactions, problem.n_users, problem.unobserved_weight
        fairness = problem.lambda_f / (strength * n) if problem.lambda_f else 0.0
        return Fitted(
            user_factors=backend.host(state.user_factors),
            item_factors=backend.host(state.item_factors),
            user_ids=data.user_ids,
            item_ids=data.item_ids,
            popularity=data.by_item.sums(),
            mean_user=backend.host(backend.mean(state.user_factors)),
            merit=backend.host(self.merit(problem, state)),
            trained_fairness=fairness,
            fairness=fairness,
            history=history,
            settings=self._settings() | {"backend": problem.backend.name},
            extra={name: float(getattr(state, name)) for name in self.kept},
            fairness_weights=problem.fairness_weights,
            interactions=given.histories,
            weighting=None if given.histories is None else given.histories.weighting,
        )

    def _snapshot(self: Self, given: fit_loop.Setup, state: Any, history: History) -> Self:
        model = copy.copy(self)
        model._fitted = self._results(given, state, history)
        return model

    # -- users who were not in training -----------------------------------------------------------------------------

    cohort_options: ClassVar[tuple[str, ...]] = ()
    """What `fold_in(method="cohort")` of this model takes besides `scale`."""

    @on_snapshot
    def fold_in(
        self,
        history: Interactions | Any,
        *,
        fairness: float | None = None,
        method: str = "frozen",
        scale: str = "phi",
        **options: Any,
    ) -> NDArray[Any]:
        """Return user vectors for new histories, one row each (docs/fold-in.md).

        Parameters
        ----------
        history
            One row per user: Interactions, or a SciPy sparse matrix.
        fairness
            psi of method="frozen"; by default the one the model serves with.
        method
            "frozen" solves u = H^-1 (b - psi q1) with q1 = alpha0 G_V t of training: one user's vector depends on
            nobody else's. "cohort" optimises U and its mean t over this batch of n_b users, V fixed.
        scale
            How lambda_f carries over to a cohort: "phi" (the same fairness: times n_b/n), "paper" (unchanged) or
            "authors" (times (n_b/n)^2).
        """
        fitted = self.fitted
        folding.check_options(type(self).__name__, method, fairness, options, self.cohort_options)
        batch = self._aligned(history)
        backend = get_backend(fitted.settings["backend"])
        with backend.threads(self.num_threads):
            if method == "cohort":
                fitted.check_users("a cohort's fold-in")
                factor = folding.scale_factor(scale, batch.n_users, self.n_users)
                vectors = self._fold_in_cohort(batch, factor, **options) if batch.n_users else None
            else:
                vectors = folding.frozen(fitted, batch, fitted.fairness if fairness is None else fairness)
        if vectors is None:
            return np.zeros((0, fitted.item_factors.shape[1]), dtype=fitted.item_factors.dtype)
        if not backend.all_finite(vectors):
            raise NotFinite(f"{type(self).__name__}: these users have no finite vectors. {self.remedy()}")
        return vectors

    @abc.abstractmethod
    def _fold_in_cohort(self, cohort: Interactions, factor: float, **options: Any) -> NDArray[Any]:
        """Fold a batch in by its own mean; `factor` scales the trained lambda_f."""

    @on_snapshot
    def with_fairness(self: Self, fairness: float) -> Self:
        """Return the same model turned to another fairness, without training.

        It shares V, solves the users again from their histories, and serves with that fairness by default. Where the
        model was stored without histories, `user_sensitivity` stands in, if it was stored.
        `with_fairness(a).with_fairness(b)` equals `with_fairness(b)`.

        Examples
        --------
        >>> from fairmf import FairALS, synthetic
        >>> model = FairALS(factors=4, epochs=2).fit(synthetic(60, 40, 600), progress=False)
        >>> model.with_fairness(3.0).fitted.fairness
        3.0
        """
        turned = copy.copy(self)
        turned._fitted = dataclasses.replace(
            self.fitted,
            fairness=check_fairness(fairness),
            user_factors=dialled_users(self, None, fairness),
        )
        return turned

    @on_snapshot
    def fold_in_user(self, items: Any, weights: Any = None, *, fairness: float | None = None) -> NDArray[Any]:
        """Return the vector of one user, given a list of items (ids, or positions in a model without ids).

        `weights` are confidences, one per item, 1 by default; an item that is named twice counts as in `Interactions`:
        once, or with the sum of its weights. The same as `fold_in` of a matrix with one row.
        """
        vector: NDArray[Any] = self.fold_in(folding.one_user(self.fitted, items, weights), fairness=fairness)[0]
        return vector

    @on_snapshot
    def fold_in_items(self, item_users: Interactions | Any) -> NDArray[Any]:
        """Return vectors of items that were not in training: one row per item, one column per user of the model.

        They are what the items' half-step of training gives for these rows, with the users as they were trained and
        fairness weight 1.
        """
        return self._fold_in_items(item_users, None)

    def _fold_in_items(self, item_users: Interactions | Any, weights: Vector | None) -> NDArray[Any]:
        fitted = self.fitted
        fitted.check_users("fold_in_items")
        batch = partial_fit.weighted_items(fitted, partial_fit.item_batch(fitted, item_users))
        users = partial_fit.trained_users(fitted, self._folded)
        backend = get_backend(fitted.settings["backend"])
        with backend.threads(self.num_threads):
            vectors = folding.items(fitted, users, batch, weights)
        if not backend.all_finite(vectors):
            raise NotFinite(f"{type(self).__name__}: these items have no finite vectors. {self.remedy()}")
        return vectors

    def _folded(self, histories: Interactions, fairness: float) -> NDArray[Any]:
        return self.fold_in(histories, fairness=fairness)

    # -- updates ----------------------------------------------------------------------------------------------------

    def partial_fit_users(self: Self, userids: Any, user_items: Interactions | Any) -> Self:
        """Add users, or replace the histories of those the model has: one row of `user_items` for each of `userids`.

        Ids that are unknown are added; in a model without ids, users are row numbers and the next free ones are added.
        Their vectors are their own fold-in at the fairness the model serves with; nobody else's change, and t and q1
        stay those of training (docs/fold-in.md). Changes the model itself and returns it, as `fit` does; a call that
        fails changes nothing.
        """
        model = copy.copy(self)
        self._fitted = partial_fit.with_users(model.fitted, userids, model._aligned(user_items), model._folded)
        return self

    def partial_fit_items(self: Self, itemids: Any, item_users: Interactions | Any) -> Self:
        """Add items, or solve those the model has anew: one row of `item_users` (items x users) for each of `itemids`.

        Ids as in `partial_fit_users`. Vectors are those of `fold_in_items`, where items the model has keep the fairness
        weights they were trained with. The items enter the histories of the users
        who had them, but no user's vector changes until it is solved again (docs/fold-in.md).
        """
        model = copy.copy(self)
        batch = partial_fit.item_batch(model.fitted, item_users)
        weights = partial_fit.item_weights(model.fitted, itemids)
        vectors = model._fold_in_items(batch, weights)
        self._fitted = partial_fit.with_items(model.fitted, itemids, batch, vectors, weights)
        return self

    # -- reasons ----------------------------------------------------------------------------------------------------

    @on_snapshot
    def explain(
        self, user: Any, item: Any, *, user_items: Interactions | Any = None, fairness: float | None = None
    ) -> Explanation:
        """Say which past items the score of `item` comes from, and what fairness takes away from it.

        `user_items` is the history of a user who is not in the model (one row); `user` is then only a name, or None.
        The score is that of the user's fold-in, which for FairALS and IALS is the stored one to solver tolerance.
        """
        from fairmf.models import explain  # lists are made without

        fitted = self.fitted
        psi = fitted.fairness if fairness is None else check_fairness(fairness)
        column = positions([item], fitted.item_ids, self.n_items, "item")[0]
        if user_items is None:
            history = fitted.histories("explain").take_users(self._user_rows([user]))
        else:
            history = self._aligned(user_items)
            if history.n_users != 1:
                raise InvalidData(f"explain takes the history of one user; user_items has {history.n_users:,} rows.")
        with get_backend(fitted.settings["backend"]).threads(self.num_threads):
            return explain.explain(fitted, user, history, int(column), psi)
