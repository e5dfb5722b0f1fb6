"""What a fit leaves behind: arrays on the host, names, and the numbers that prediction needs."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fairmf.backends import Matrix, get_backend
from fairmf.cached_property import cached_property
from fairmf.errors import MissingHistories
from fairmf.interactions import Ids, Interactions
from fairmf.models.history import History
from fairmf.ranking.offsets import items_with, users_with_constant

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
