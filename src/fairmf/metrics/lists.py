"""Where ranked lists come from: a model that is asked block by block, or an array that is there already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData
from fairmf.interactions import Interactions
from fairmf.splitting import HeldOut

Blocks = Iterable[tuple[int, NDArray[np.integer]]]


class Ranker(Protocol):
    """What `evaluate` needs of a model."""

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue."""
        ...

    def rank(
        self, history: Interactions, N: int, *, known_users: bool = False, **options: Any
    ) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Yield (first row, items rows x N, best first, -1 if none) for consecutive blocks of users."""
        ...


def ranked_by(model: Ranker, held_out: HeldOut, N: int, options: Mapping[str, Any]) -> Blocks:
    """The model's top-N lists of the held-out users; `options` go to its `rank`."""
    n_items = held_out.fold_in.n_items
    if model.n_items != n_items:
        raise InvalidData(f"The model knows {model.n_items:,} items, the held-out data has {n_items:,}.")
    return model.rank(held_out.fold_in, N, known_users=held_out.known_users, **options)


def given_lists(items: NDArray[np.integer]) -> Blocks:
    """Lists that were made elsewhere, as one block, if they can be lists at all."""
    lists = np.asarray(items)
    if lists.ndim != 2 or lists.dtype.kind not in "iu":
        raise InvalidData("Lists must be a two-dimensional array of item positions, one row per held-out user.")
    ordered = np.sort(lists, axis=1)
    if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any():
        raise InvalidData("A list holds the same item twice.")
    return [(0, lists)]
