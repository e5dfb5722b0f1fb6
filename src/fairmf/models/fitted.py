"""Users and items by name: original ids where the data had ids, else (or by="row") their row numbers."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fairmf.backends.contract import Matrix
from fairmf.backends.registry import get_backend
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.weighting import Weighting
from fairmf.errors import InvalidData, MissingHistories
from fairmf.lazy import cached_property
from fairmf.ranking.offsets import items_with, users_with_constant

# What a fit did, epoch by epoch.


@dataclass
class History:
    """One record per epoch (objective terms, residuals, seconds, ...) and how the fit ended.

    `verdict` is "converged" (the tolerance was met), "stopped" (a callback asked for it), "diverged" (a number was not
    finite any more), "interrupted" (Ctrl-C) or "ceiling" (all epochs ran).
    `kept_epoch` is the epoch whose factors the model holds (0: none).
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    verdict: str = "ceiling"
    reason: str = ""
    kept_epoch: int = 0
    final: dict[str, Any] = field(default_factory=dict)
    """After the last half-step: `seconds` it took, and the `objective` of the factors the model holds."""

    def __len__(self) -> int:
        return len(self.records)

    def column(self, path: str) -> list[Any]:
        """One quantity over the epochs, by dotted name: `history.column("objective.total")`; None where unrecorded."""
        return [_look_up(record, path) for record in self.records]

    @property
    def seconds(self) -> float:
        """Time spent in training (without callbacks and checks)."""
        return float(sum(record["seconds"] for record in self.records)) + float(self.final.get("seconds", 0.0))


def _look_up(record: dict[str, Any], path: str) -> Any:
    value: Any = record
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


# What a fit leaves behind: arrays on the host, names, and the numbers that prediction needs.


Method = TypeVar("Method", bound=Callable[..., Any])


def on_snapshot(method: Method) -> Method:
    """Run a method of a model on a copy of it, which shares its arrays: it sees one fit from beginning to end.

    Another thread may meanwhile give the model another fit, with other users and items.
    """

    @functools.wraps(method)
    def call(model: Any, *args: Any, **options: Any) -> Any:
        return method(copy.copy(model), *args, **options)

    return cast(Method, call)


@dataclass(frozen=True)
class Fitted:
    """The result of a fit. Vectors of length d are in the basis of the factors."""

    user_factors: NDArray[Any]
    item_factors: NDArray[Any]
    user_ids: Ids | None
    item_ids: Ids | None
    popularity: NDArray[np.float64]
    """Sum of the training confidences of every item."""
    mean_user: NDArray[np.float64]
    """t, the mean of the users as they were trained (whatever fairness is served)."""
    merit: NDArray[np.float64]
    """The merit direction q1 (docs/mathematics.md 5)."""
    trained_fairness: float
    fairness: float
    """The fairness it serves with by default: the trained one, unless the dial was turned."""
    history: History
    settings: dict[str, Any]
    extra: dict[str, float] = field(default_factory=dict)
    """What a model needs besides for prediction (FiADMM: its last rho and gamma)."""
    fairness_weights: NDArray[np.float64] | None = None
    """w_j of every item in the fairness term it was trained with; None: 1 for all."""
    interactions: Interactions | None = None
    """The training users' histories; None in a model that was stored without them."""
    item_offsets: NDArray[Any] | None = None
    """A number per item that is added to its scores, where some were learned."""
    user_sensitivity: NDArray[Any] | None = None
    """H_i^-1 q1 of every user, where it was stored: the dial without histories (models/dial.py)."""
    weighting: Weighting | None = None
    """How the training data were weighted: raw histories are weighted alike. None: as they are."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Of a loaded model: when it was `created`, with which `versions`, from data of which `data_fingerprint`."""

    def histories(self, purpose: str) -> Interactions:
        """The training users' histories; MissingHistories where the model does not hold them."""
        if self.interactions is None:
            raise MissingHistories(f"This model was stored without its users' histories, which {purpose} needs.")
        return self.interactions

    def check_users(self, purpose: str) -> None:
        """MissingHistories where the model holds no users."""
        if len(self.user_factors) == 0:
            raise MissingHistories(
                f"This model holds no users, which {purpose} needs: they stayed in the workers of the cluster it was "
                "fitted on. Fit with RayCluster(gather_users=True) to keep them."
            )

    @cached_property
    def most_popular(self) -> NDArray[np.int32]:
        """All items by falling popularity, ties to the lower index: the answer for a user without history."""
        return np.argsort(-self.popularity, kind="stable").astype(np.int32)

    @cached_property
    def item_gramian(self) -> Matrix:
        """G_V, which every fold-in needs: computed when first asked for. Ask inside `backend.threads`."""
        backend = get_backend(self.settings["backend"])
        return backend.host(backend.gramian(backend.array(self.item_factors)))

    @cached_property
    def serving_items(self) -> NDArray[Any]:
        """What user vectors (`serving_users`) are multiplied with to give scores: V, with the offsets where learned."""
        return self.item_factors if self.item_offsets is None else items_with(self.item_factors, self.item_offsets)

    def serving_users(self, users: NDArray[Any]) -> NDArray[Any]:
        """User vectors as `serving_items` need them."""
        return users if self.item_offsets is None else users_with_constant(users)


def is_one(names: Any) -> bool:
    """True for one user or item, False for many. A tuple is one: tuples can be ids."""
    return isinstance(names, (str, bytes, tuple)) or np.ndim(names) == 0


def as_list(names: Any) -> Any:
    """A sequence of names, also where one was given."""
    return [names] if is_one(names) else names


def positions(names: Any, ids: Ids | None, size: int, kind: str) -> NDArray[np.int64]:
    """The rows of users or items (`kind`) named by `ids`, or by row number where that is None."""
    if ids is not None:
        return ids.positions(names, kind=kind)
    if size == 0 and len(names):
        raise InvalidData(
            f"This model holds no {kind}s: give their histories, with recalculate_user=True (docs/cluster.md)."
        )
    rows = row_numbers(names, kind)
    if len(rows) and (rows.min() < 0 or rows.max() >= size):
        raise InvalidData(f"{kind.capitalize()} rows go from 0 to {size - 1:,}; got {rows.min()}..{rows.max()}.")
    return rows


def row_numbers(names: Any, kind: str) -> NDArray[np.int64]:
    """Row numbers as they are given."""
    try:
        rows = np.asarray(names)
    except ValueError:  # lists of unequal length
        rows = np.zeros((0, 0))
    rows = rows.astype(np.int64) if rows.shape == (0,) else rows  # an empty list reads as floats
    if rows.dtype.kind not in "iu" or rows.ndim != 1:
        raise InvalidData(f"{kind.capitalize()}s are named by row number here: without {kind} ids, or with by='row'.")
    return rows.astype(np.int64)


def named(rows: NDArray[np.integer], ids: Ids | None) -> NDArray[Any]:
    """Return positions as ids (see `Ids.named`), or as they are where there are no ids."""
    return rows if ids is None else ids.named(rows)
