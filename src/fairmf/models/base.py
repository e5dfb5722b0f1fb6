"""Hold the settings and the `fit` that all trained models share; each model adds `start`, `epoch` and its own knobs."""

from __future__ import annotations

import abc
import contextlib
import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import numpy as np

from fairmf.backends.contract import Backend, Factors, Vector
from fairmf.backends.registry import BACKENDS, get_backend
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidParameter
from fairmf.lazy import lazy_module
from fairmf.models.factor_model import FactorModel
from fairmf.models.feature_model import FeatureModel
from fairmf.models.fitted import Fitted, History
from fairmf.params import check_number, check_settings, setting
from fairmf.types import Record, SparseMatrix

if TYPE_CHECKING:
    from fairmf import threads
    from fairmf.backends import random_start
    from fairmf.distributed.cluster import RayCluster
    from fairmf.distributed.shards import ShardSource
    from fairmf.models import auto_settings, fit_loop
    from fairmf.models import checkpoint as checkpoint_files
    from fairmf.models import objective as objectives
    from fairmf.models.fairness_weights import FairnessWeights
    from fairmf.models.feature_fit import FeatureFit
    from fairmf.models.fit_loop import Callback, Function, StateT
    from fairmf.models.objective import Objective
    from fairmf.models.problem import Problem
    from fairmf.ranking import item_dial
else:  # models that only answer do without what a fit needs
    auto_settings, checkpoint_files = map(lazy_module, ("fairmf.models.auto_settings", "fairmf.models.checkpoint"))
    fit_loop, objectives = lazy_module("fairmf.models.fit_loop"), lazy_module("fairmf.models.objective")
    item_dial = lazy_module("fairmf.ranking.item_dial")
    random_start, threads = lazy_module("fairmf.backends.random_start"), lazy_module("fairmf.threads")
    StateT = TypeVar("StateT")

LARGE = 1e6  # settings beyond this are mistakes, or overflow single precision
Self = TypeVar("Self", bound="IterativeModel[Any]")


def item_balance_setting(default: float) -> float:
    """Declare `item_balance` with a model's own default."""
    return setting(
        default, "Weigh popular items less in training: divide the weight of each interaction by n^item_balance, where "
        "n is the number of users who have the item.", symbol="b_I", low=0, high=4,
    )  # fmt: skip


def user_balance_setting(default: float) -> float:
    """Declare `user_balance` with a model's own default."""
    return setting(
        default, "Weigh users with many items less in training: divide the weight of each interaction by "
        "n^user_balance, where n is the number of items that the user has.", symbol="b_U", low=0, high=4,
    )  # fmt: skip


@dataclass(eq=False, repr=False)
class IterativeModel(FeatureModel, Generic[StateT]):
    """A factor model trained in epochs on the objective of docs/mathematics.md."""

    ABSENT: ClassVar[Record] = {"item_balance": 0.0, "user_balance": 0.0, "feature_regularization": 0.1}

    factors: int = setting(128, "Length of the user and item vectors.", symbol="d", low=1, integer=True)
    regularization: float = setting(
        0.005, "How strongly large vectors are penalised (L2). Users and items with more interactions are penalised "
        "more.",
        symbol="lambda2", low=0,
    )  # fmt: skip
    regularization_exponent: float = setting(
        1.0, "How fast the penalty (regularization) grows with the number of interactions. With 0 it is equal for all.",
        symbol="eta", low=-4, high=4,
    )  # fmt: skip
    unobserved_weight: float = setting(
        0.1, "How strongly training pulls the score of every user-item pair towards 0, whether observed or not.",
        symbol="alpha0", low=0,
    )  # fmt: skip
    epochs: int = setting(16, "Largest number of training epochs.", low=1, integer=True)
    tolerance: float = setting(
        0.0, "Stop early when the objective changes by less than this fraction in an epoch; 0 runs all epochs.", low=0
    )
    init_scale: float = setting(
        0.1,
        "Size of the random start. Its standard deviation is this number divided by sqrt(factors).",
        symbol="sigma",
        above=0,
    )
    random_state: int | None = setting(
        0, "Seed of the random start. With None, every fit draws a new one.", low=0, integer=True, choices=(None,)
    )
    num_threads: int = setting(
        0, "Number of threads; 0 uses all cores. Results are the same for any number.", low=0, integer=True
    )
    backend: str = setting(
        "cpu", "Where the arithmetic runs. 'auto' uses a GPU if there is one and the data are large enough. "
        "'reference' is a slow, simple implementation for checking results.",
        choices=BACKENDS,
    )  # fmt: skip
    factor_dtype: str = setting(
        "float32", "Number format of the factors that a GPU reads; 'float16' halves its memory traffic.",
        choices=("float32", "float16"),
    )  # fmt: skip

    item_balance: float = item_balance_setting(0.0)
    user_balance: float = user_balance_setting(0.0)

    feature_regularization: float = setting(
        0.1,
        "How strongly to pull towards 0 the vectors that are predicted from features. The larger it is, the less "
        "effect features have. A value of 5 acts as if 5 more items, with vectors of 0, had the feature.",
        symbol="kappa", above=0,
    )  # fmt: skip

    engine: str = setting("local", "Which processes compute: this one.", choices=("local",))

    kept: ClassVar[tuple[str, ...]] = ()
    """Numbers of the last state that prediction needs."""

    def _backend(self) -> Backend:
        # The workers of a cluster may have had devices that this process does not have.
        local = self.engine == "local" or self._fitted is None
        return get_backend(self.backend if local else self.fitted.settings["backend"])

    # -- methods that each model supplies -------------------------------------------------------------------------

    @abc.abstractmethod
    def lambda_f_for(self, n_users: int) -> float:
        """Return the weight of the fairness term for that many users (0 for models without one)."""

    @abc.abstractmethod
    def start(self, problem: Problem, U: Factors, V: Factors) -> StateT:
        """Return the state before the first epoch."""

    @abc.abstractmethod
    def epoch(self, problem: Problem, state: StateT) -> StateT:
        """Run one epoch; the given state is left as it is."""

    def report(self, problem: Problem, before: StateT, after: StateT, value: Objective | None) -> Record:  # noqa: ARG002
        """Return what this model adds to the epoch's record."""
        return {}

    def objective(self, problem: Problem, state: StateT) -> Objective:
        """Return F of a state."""
        maps = state.user_map, state.item_map
        return objectives.objective(problem, state.user_factors, state.item_factors, None, *maps)

    def finish(self, problem: Problem, state: StateT) -> StateT:  # noqa: ARG002
        """Do what is left after the last epoch, and return the new state."""
        return state

    def merit(self, problem: Problem, state: StateT) -> Vector:
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
        data: Interactions | SparseMatrix | ShardSource,
        *,
        init: FactorModel | tuple[Factors, Factors] | None = None,
        callbacks: Sequence[Callback | Function] = (),
        objective_every: int = 1,
        progress: bool | None = None,
        settle: bool = True,
        fairness_weights: FairnessWeights | None = None,
        item_features: Any = None,
        user_features: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 1,
        cluster: RayCluster | None = None,
    ) -> Self:
        """Train the model on interactions.

        Ctrl-C ends the fit after its last complete epoch: the model of that epoch is returned, with the verdict
        "interrupted" in its history.

        Parameters
        ----------
        data
            Interactions, or a SciPy sparse matrix with users as rows. With `engine="ray"` also the shards of a Parquet
            data set (docs/scaling.md).
        init
            Another model, or a pair (U, V), whose factors the fit starts from.
        callbacks
            Called after every epoch: objects such as `fairmf.EarlyStopping`, or functions of the epoch (from 0), its
            seconds and the objective.
        objective_every
            Compute the objective every so many epochs. 0 skips it; training does not need it.
        progress
            Show a progress bar. None shows it on a terminal.
        settle
            Solve the users once more after the last epoch, so that stored users equal their own fold-in. False saves
            that time; use it where all users will be folded in anyway.
        fairness_weights
            How strongly the fairness term lowers each item's scores: one number >= 0 per item, or a mapping from item
            id to number (items that are not named have 1); see docs/groups.md.
        item_features
            What is known of the items: a matrix (SciPy or NumPy) with one row per item, a data frame with a column of
            item ids, or `fairmf.Features(frame, ...)` (docs/features.md). Items without interactions then get the
            vector that their features predict. Items that a data frame does not name have no features.
        user_features
            The same for users.
        checkpoint
            A folder in which the fit stores its state. The same call on the same data resumes after the last epoch
            stored there, and ends with the same bits as a fit that was never interrupted (docs/persistence.md).
        checkpoint_every
            Epochs between two checkpoints; the last epoch is always stored.
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
        settings = check_settings(self)
        check_number("fit", "checkpoint_every", checkpoint_every, integer=True, low=1)
        called = [each if hasattr(each, "on_epoch") else fit_loop.FunctionCallback(each) for each in callbacks]
        if getattr(self, "settings", "given") == "auto":
            # The constructor's values stay as they are, for the next fit; `fitted.settings` has what was chosen.
            own = auto_settings.with_chosen(self, data, progress, item_features, user_features)
            try:
                own.fit(
                    data, init=init, callbacks=callbacks, objective_every=objective_every, progress=progress,
                    settle=settle, fairness_weights=fairness_weights, item_features=item_features,
                    user_features=user_features, checkpoint=checkpoint, checkpoint_every=checkpoint_every,
                    cluster=cluster,
                )  # fmt: skip
            finally:
                self._fitted = own._fitted
            return self
        with contextlib.ExitStack() as opened:
            opened.enter_context(threads.use(self.num_threads))  # for what precedes the backend's work
            given = opened.enter_context(
                fit_loop.open_setup(self, settings, data, fairness_weights, cluster, item_features, user_features)
            )
            problem = given.problem
            opened.enter_context(problem.backend.threads(self.num_threads))
            state = self.start(problem, *self._initial_factors(problem, init, given.features))
            stored: fit_loop.Checkpoints[StateT] | None = None
            if checkpoint is not None:
                of_fit = checkpoint_files.identity_of(self, problem, init, called, objective_every)
                folder = checkpoint_files.open_folder(
                    checkpoint, checkpoint_every, of_fit, self.epochs, problem.backend
                )
                stored = given.checkpoints(opened.enter_context(folder))
            options = fit_loop.Options(
                type(self).__name__, called, objective_every, progress, settle, stored, given.note
            )
            try:
                state, history = fit_loop.run(
                    given.steps, problem, state, lambda s: self._snapshot(given, s, History()), options
                )
            except fit_loop.Diverged as error:
                self._fitted = self._results(given, error.state, error.history)
                raise
            self._fitted = self._results(given, state, history)
        return self

    def _initial_factors(
        self,
        problem: Problem,
        init: FactorModel | tuple[Factors, Factors] | None,
        features: FeatureFit | None = None,
    ) -> tuple[Factors, Factors]:
        backend, (n, m) = problem.backend, problem.interactions.shape
        if init is None:
            first, second = np.random.SeedSequence(self.random_state).generate_state(2, np.uint32)  # of None: random
            key, scale = (int(first), int(second)), self.init_scale / np.sqrt(self.factors)
            U, V = backend.empty(n, self.factors), backend.empty(m, self.factors)
            for side, out in ((random_start.USERS, U), (random_start.ITEMS, V)):
                backend.draw_normal(random_start.Stream(key, side), None, scale, out)
            return U, V
        # Copies: no epoch may write into arrays that belong to the caller.
        pair = (init.user_factors, init.item_factors) if isinstance(init, FactorModel) else init
        start_u, start_v = (np.array(x, dtype=backend.dtype) for x in pair)
        if features is not None:
            start_u, start_v = features.started(start_u, "user"), features.started(start_v, "item")
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

    def _results(self, given: fit_loop.Setup[StateT], state: StateT, history: History) -> Fitted:
        problem, backend = given.problem, given.problem.backend
        data, n, strength = problem.interactions, problem.n_users, problem.unobserved_weight
        popularity = given.popularity
        if problem.dislikes is not None:
            data = problem.dislikes.given.liked()  # dislikes do not make an item popular
        if popularity is None:
            popularity = problem.item_sums if problem.dislikes is None else data.by_item.sums()
        # phi from lambda_f = phi alpha0 n: FiADMM may have been given lambda_f itself.
        fairness = problem.lambda_f / (strength * n) if problem.lambda_f else 0.0
        found = Fitted(
            user_factors=cast(Factors, backend.deferred(state.user_factors)),  # brought to the host when they are read
            item_factors=cast(Factors, backend.deferred(state.item_factors)),
            user_ids=data.user_ids,
            item_ids=data.item_ids,
            popularity=popularity,
            item_counts=data.by_user.column_counts(data.n_items),
            item_spread=item_dial.score_spreads(backend, state.user_factors, n, state.item_factors),
            mean_user=backend.host(backend.mean(state.user_factors)),
            merit=backend.host(self.merit(problem, state)),
            trained_fairness=fairness,
            fairness=fairness,
            history=history,
            settings=given.settings | {"backend": problem.backend.name},  # "auto" becomes what was chosen
            extra={name: float(getattr(state, name)) for name in self.kept},
            fairness_weights=problem.fairness_weights,
            interactions=given.histories,
            weighting=data.weighting,
        )
        if given.features is None:
            return found
        return given.features.completed(found, state, problem, given.fairness_weights)

    def _snapshot(self: Self, given: fit_loop.Setup[StateT], state: StateT, history: History) -> Self:
        model = copy.copy(self)
        fitted = model._fitted = self._results(given, state, history)
        _ = fitted.user_factors, fitted.item_factors  # read, because a callback may keep many models
        return model
