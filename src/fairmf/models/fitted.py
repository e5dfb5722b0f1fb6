"""Hold the results of a fit (`Fitted`, `History`), and the part of every model that answers from them."""

from __future__ import annotations

import abc
import functools
import os
from collections.abc import Callable
from dataclasses import Field, dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Backend, Deferred, Factors, ItemScale, Matrix, Vector
from fairmf.backends.registry import get_backend
from fairmf.data.events import Events
from fairmf.data.ids import Ids, Names, positions
from fairmf.data.interactions import Interactions, as_interactions
from fairmf.data.weighting import Weighting, weighted_like
from fairmf.errors import BrokenFile, InvalidData, InvalidParameter, MissingHistories, NotFitted
from fairmf.lazy import cached_property, lazy_module
from fairmf.models.evenness import EvennessPath, Level, requested
from fairmf.params import check_not_negative, settings_of, store_settings
from fairmf.types import Array, Record, SparseMatrix

if TYPE_CHECKING:
    from fairmf.data import half_life
    from fairmf.models import dial, model_file, serving_state, shown
    from fairmf.models.fitted_features import FittedFeatures
    from fairmf.models.serving_state import ServingState
    from fairmf.ranking import item_dial
    from fairmf.ranking.item_dial import ItemDial
else:  # models that only recommend do without
    item_dial, half_life = lazy_module("fairmf.ranking.item_dial"), lazy_module("fairmf.data.half_life")
    dial, model_file = lazy_module("fairmf.models.dial"), lazy_module("fairmf.models.model_file")
    serving_state, shown = lazy_module("fairmf.models.serving_state"), lazy_module("fairmf.models.shown")

Self = TypeVar("Self", bound="FittedModel")


@dataclass
class History:
    """Hold what a fit did, epoch by epoch, and how it ended."""

    records: list[Record] = field(default_factory=list)
    """One record per epoch: objective terms, residuals, seconds, ..."""
    verdict: str = "ceiling"
    """How it ended: "converged" (the tolerance was met), "stopped" (by a callback), "diverged" (a number was not
    finite), "interrupted" (Ctrl-C) or "ceiling" (all epochs ran)."""
    reason: str = ""
    """Details of the verdict, in words."""
    kept_epoch: int = 0
    """The epoch whose factors the model holds (0: none)."""
    final: Record = field(default_factory=dict)
    """The last half-step: the `seconds` it took, and the `objective` of the factors the model holds."""

    def __len__(self) -> int:
        return len(self.records)

    def column(self, path: str) -> list[Any]:
        """Return one quantity over the epochs, by dotted name: `history.column("objective.total")`.

        None stands for epochs that did not record it.
        """
        found: list[Any] = list(self.records)
        for part in path.split("."):
            found = [value.get(part) if isinstance(value, dict) else None for value in found]
        return found

    @property
    def seconds(self) -> float:
        """Seconds spent in training, without callbacks and checks."""
        return float(sum(record["seconds"] for record in self.records)) + float(self.final.get("seconds", 0.0))


Method = TypeVar("Method", bound=Callable[..., object])


def on_snapshot(method: Method) -> Method:
    """Decorate a method of a model so that it runs on a copy, which shares the model's arrays.

    The method then sees one fit from beginning to end, even if another thread fits the model meanwhile.
    """

    @functools.wraps(method)
    def call(model: object, *args: object, **options: object) -> object:
        shared = object.__new__(type(model))  # as `copy.copy` does it, which takes ten times as long
        vars(shared).update(vars(model))
        return method(shared, *args, **options)

    return cast(Method, call)


@dataclass(frozen=True)
class Fitted:
    """The result of a fit. Vectors of length d are in the basis of the factors."""

    user_factors: Factors
    item_factors: Factors
    user_ids: Ids | None
    item_ids: Ids | None
    popularity: Vector
    """Sum of the training confidences of every item."""
    mean_user: Vector
    """The mean user t as it was trained, for any fairness that is served."""
    merit: Vector
    """The merit direction q1 (docs/mathematics.md 5)."""
    trained_fairness: float
    """The fairness it was trained with (phi)."""
    fairness: float
    """The fairness it serves with by default: the trained one, unless `with_fairness` changed it (psi)."""
    history: History
    """The record of the fit, epoch by epoch."""
    settings: Record
    """The hyper-parameters it was trained with."""
    extra: dict[str, float] = field(default_factory=dict)
    """Further numbers that prediction needs (FiADMM: its last rho and gamma)."""
    fairness_weights: Vector | None = None
    """The weight of every item in the fairness term it was trained with (w_j); None stands for 1."""
    interactions: Interactions | None = None
    """The histories of the training users; None in a model that was stored without them."""
    item_offsets: Array | None = None
    """A number per item that is added to its scores; None where none were learned."""
    item_counts: Vector | None = None
    item_spread: Vector | None = None
    """Number of users who have each item (f_j), standard deviation of its scores over them; None in older files."""
    flatten: float = 0.0
    discount: float = 0.0
    lift: float = 0.0
    """The strengths g, h and t of the item dial it serves with by default (ranking/item_dial.py)."""
    item_prices: Vector | None = None
    """The price of each item, which `lift` multiplies (ranking/item_dial.py); None where `calibrate` learned none."""
    path: EvennessPath | None = None
    """The level that each evenness stands for, if the model was calibrated."""
    user_sensitivity: Factors | None = None
    """What each user's vector loses per unit of fairness (H_i^-1 q1), if it was stored (models/dial.py)."""
    weighting: Weighting | None = None
    """The weighting of the training data; raw histories are weighted alike. None takes them as they are."""
    item_features: FittedFeatures | None = None
    user_features: FittedFeatures | None = None
    """The features of items and users, and what they predict; None where it was fitted without."""
    provenance: Record = field(default_factory=dict)
    """For a loaded model: when it was `created`, with which `versions`, and the `data_fingerprint` of its data."""

    def histories(self, purpose: str) -> Interactions:
        """Return the histories of the training users; raise MissingHistories if the model does not hold them."""
        if self.interactions is None:
            raise MissingHistories(f"This model was stored without its users' histories, which {purpose} needs.")
        return self.interactions

    def check_users(self, purpose: str) -> None:
        """Raise MissingHistories if the model holds no users."""
        if len(self.user_factors) == 0:
            raise MissingHistories(
                f"This model holds no users, which {purpose} needs: they stayed in the workers of the cluster it was "
                "fitted on. Fit with RayCluster(gather_users=True) to keep them."
            )

    @cached_property
    def most_popular(self) -> NDArray[np.int32]:
        """All items by falling popularity, ties to the lower row: the list for a user without history."""
        return np.argsort(-self.popularity, kind="stable").astype(np.int32)

    @cached_property
    def item_gramian(self) -> Matrix:
        """The Gramian G_V, which every fold-in needs; computed when first used. Use it inside `backend.threads`."""
        backend = get_backend(self.settings["backend"])
        counted = None if self.item_features is None else self.item_features.gramian_weights
        return backend.host(backend.gramian(backend.array(self.item_factors), counted))

    @cached_property
    def serving(self) -> ServingState:
        """What `recommend_for` keeps between requests, for models on the cpu; made when first used."""
        return serving_state.ServingState(self)

    # -- the item dial ----------------------------------------------------------------------------------------------

    @cached_property
    def item_dial(self) -> ItemDial:
        """The numbers of every item that the item dial needs. Files of older versions lack some: they are computed."""
        V, spread, counts = self.item_factors, self.item_spread, self.item_counts
        if spread is None:
            backend = get_backend(self.settings.get("backend", "cpu"))
            with backend.threads(0):
                users = backend.array(self.user_factors)
                spread = item_dial.score_spreads(backend, users, len(self.user_factors), backend.array(V))
        if counts is None:
            held = self.interactions
            counts = self.popularity if held is None else held.by_user.column_counts(len(V))
        known = None if self.item_features is None else self.item_features.counted
        return item_dial.ItemDial(
            spread, V @ self.mean_user.astype(V.dtype), counts, self.item_offsets, self.item_prices, known
        )

    def served(self, evenness: float | Level | None = None, fairness: float | None = None) -> Level:
        """Return the level at which a request is answered; its fairness is None where stored users have that already.

        Raises InvalidParameter for strengths that cannot be combined.
        """
        if evenness is None:
            return Level(fairness, self.flatten, self.discount, self.lift)
        if fairness is not None:
            raise InvalidParameter("Give evenness or fairness, not both: a level of evenness has its own fairness.")
        level = requested(self.path, evenness)
        if level.lift > 0 and self.item_prices is None:
            raise InvalidParameter(
                "This model has no prices of items, which lift needs.",
                hint="calibrate the model first; it stores them where they help",
            )
        if self.item_offsets is not None and level.on_items != (self.flatten, self.discount, self.lift):
            raise InvalidParameter(
                "This model's offsets were learned at another evenness, and hold for that one alone.",
                hint="call fit_offsets on model.with_evenness(...)",
            )
        return replace(level, fairness=None) if level.fairness == self.fairness else level

    def item_scale(self, level: Level) -> ItemScale | None:
        """Return what a level does to the scores of each item, with learned offsets; None if nothing."""
        if not any(level.on_items) and self.item_offsets is None:
            return None
        return self.item_dial.level(*level.on_items)

    def dialled_items(self, level: Level) -> tuple[Factors, NDArray[np.float32] | None]:
        """Return item vectors whose inner products are the scores at a level, and what to add to them or None."""
        scale, offset = self.item_scale(level) or ItemScale()
        return self.item_factors if scale is None else self.item_factors * scale[:, None], offset

    @cached_property
    def serving_items(self) -> Factors:
        """The item vectors that give scores together with `serving_users`, at the level the model serves with.

        Scales are in the vectors, offsets are one more column: so any index of inner products can serve them.
        """
        items, offset = self.dialled_items(self.served())
        return items if offset is None else np.hstack([items, offset[:, None].astype(items.dtype)])

    def serving_users(self, users: Factors) -> Factors:
        """Return user vectors as `serving_items` needs them: with a column of ones where there are offsets."""
        if self.discount == self.lift == 0 and self.item_offsets is None:
            return users
        return np.hstack([users, np.ones((len(users), 1), dtype=users.dtype)])


class _Fetched:
    """A field of Fitted whose array may still be on a device. Reading the field brings it to the host."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, fitted: object, owner: type | None = None) -> Factors:
        kept = vars(fitted)[self._name]
        if isinstance(kept, Deferred):
            kept = vars(fitted)[self._name] = kept.host()
        return cast(Factors, kept)

    def __set__(self, fitted: object, value: Factors | Deferred) -> None:
        vars(fitted)[self._name] = value


for _name in ("user_factors", "item_factors"):  # after the class: a dataclass would take them for defaults
    setattr(Fitted, _name, _Fetched(_name))


class FittedModel(abc.ABC):
    """A model with the results of its fit: factors, settings, files, and histories over its items."""

    if TYPE_CHECKING:  # every model is a dataclass, with its settings as fields
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    _fitted: Fitted | None = None
    backend: str = "cpu"
    num_threads: int = 0

    # -- the fit -----------------------------------------------------------------------------------------------------

    @property
    def fitted(self) -> Fitted:
        """All results of `fit`; raises NotFitted before it.

        Each `fit` replaces the whole object: read it once, and everything in it belongs to one fit.
        """
        fitted = self._fitted
        if fitted is None:
            raise NotFitted(f"This {type(self).__name__} is not fitted yet: call fit(interactions) first.")
        return fitted

    @property
    def user_factors(self) -> Factors:
        """The user vectors, one row per user (U)."""
        return self.fitted.user_factors

    @property
    def item_factors(self) -> Factors:
        """The item vectors, one row per item (V)."""
        return self.fitted.item_factors

    @property
    def history(self) -> History:
        """The record of the fit, epoch by epoch."""
        return self.fitted.history

    @property
    def n_users(self) -> int:
        """Number of users in training."""
        return len(self.user_factors)

    @property
    def n_items(self) -> int:
        """Number of items in training."""
        return len(self.item_factors)

    def _backend(self) -> Backend:
        return get_backend(self.backend)

    def __repr__(self) -> str:
        return shown.line(self)

    def _repr_html_(self) -> str:
        return shown.page(self)

    # -- settings, in scikit-learn's way ------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> Record:  # noqa: ARG002 - no setting is an estimator itself
        """Return the settings by name. scikit-learn's `clone` calls this and `set_params`; it ignores `deep`."""
        return settings_of(self)

    def set_params(self: Self, **params: Any) -> Self:
        """Store settings for the next `fit`, which checks them, and return the model. Its fitted results stay."""
        store_settings(self, params)
        return self

    # -- files ------------------------------------------------------------------------------------------------------

    @on_snapshot
    def save(
        self,
        path: str | os.PathLike[str] | BinaryIO,
        *,
        interactions: bool = True,
        user_sensitivity: bool | None = None,
    ) -> None:
        """Write the fitted model to one file, which `fairmf.load_model` reads (docs/persistence.md).

        An existing file is replaced in one step, so that a crash leaves the old one.

        Parameters
        ----------
        path
            The file to write, or a binary file that is open for writing.
        interactions
            Store the users' histories (4 bytes per interaction, 8 if weighted). With them, liked items can be left out
            and the fairness changed after loading; without them the file is smaller and holds nobody's history.
        user_sensitivity
            Store an array as large as the user factors, by which the fairness of stored users can be changed without
            their histories. None stores it if the model has it already.

        Raises
        ------
        InvalidData
            If an array holds numbers that are not finite.
        InvalidParameter
            If `user_sensitivity` is asked of a model that cannot have it.
        """
        if isinstance(path, (str, os.PathLike)):
            model_file.save_model(self, path, interactions=interactions, user_sensitivity=user_sensitivity)
        else:
            model_file.save_to(path, self, interactions=interactions, user_sensitivity=user_sensitivity)

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str] | BinaryIO) -> Self:
        """Load a model of this class from a file; `fairmf.load_model` loads any of them.

        Parameters
        ----------
        path
            A file that `save` wrote, or a binary file that is open for reading.

        Raises
        ------
        BrokenFile
            If the file is damaged, is not a model file, or holds a model of another class.
        """
        found = model_file.load_model(path)
        if not isinstance(found, cls):
            raise BrokenFile(
                f"The file holds a model of the class {type(found).__name__}, not {cls.__name__}.",
                hint=f"use {type(found).__name__}.load or fairmf.load_model",
            )
        return found

    # -- histories --------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def fold_in(self, history: Interactions | SparseMatrix | Events, **options: Any) -> Factors:
        """Return user vectors for the given histories (rows; columns are the training items)."""

    def _at_fairness(self, rows: NDArray[np.integer] | None, fairness: float) -> Factors:
        return dial.dialled_users(self, rows, fairness)

    def _user_rows(self, users: Names) -> NDArray[np.int64]:
        return positions(users, self.fitted.user_ids, self.n_users, "user")

    def _aligned(self, history: Interactions | SparseMatrix | Events) -> Interactions:
        """Return the histories as Interactions over exactly the training items, weighted like the training data."""
        fitted = self.fitted
        if isinstance(history, Events):
            history = half_life.read_events(history, fitted.item_ids, fitted.weighting)
        history = as_interactions(history, allow_empty=True)
        if history.n_items != self.n_items:
            what = f"The history has {history.n_items:,} items (columns), the model {self.n_items:,}."
            if history.n_users == self.n_items:
                raise InvalidData(f"{what} It looks transposed: users must be rows.")
            raise InvalidData(what, hint="use data that were split or encoded like those the model was trained on")
        trained, given = fitted.item_ids, history.item_ids
        if trained is not None and given is not None and trained is not given and trained != given:
            what = "The history's items are not the model's, or in another order"
            raise InvalidData(f"{what}: column j must be item j of training.")
        return weighted_like(history, fitted.weighting)


def check_fairness(value: float) -> float:
    """Return a fairness asked for after training; raise InvalidParameter unless it is a finite number >= 0."""
    return check_not_negative("", "fairness", value)
