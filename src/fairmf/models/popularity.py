"""Recommend to everybody the items with the most interactions: the baseline that any recommender must beat.

Equals a factor model with one factor, where every user is 1 and every item its number of interactions (with
confidences, their sum).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairmf.backends.contract import Factors
from fairmf.backends.registry import BACKENDS
from fairmf.data.events import Events
from fairmf.data.interactions import Interactions, as_interactions
from fairmf.models.factor_model import FactorModel
from fairmf.models.fitted import Fitted, History, on_snapshot
from fairmf.params import check_settings, hinted, setting
from fairmf.types import SparseMatrix


@hinted
@dataclass(eq=False, repr=False)
class Popularity(FactorModel):
    """Recommend the most popular items that the user has not had yet.

    Examples
    --------
    >>> from fairmf import Popularity, synthetic
    >>> model = Popularity().fit(synthetic(60, 40, 600))
    >>> model.item_factors.shape
    (40, 1)
    """

    num_threads: int = setting(0, "Number of threads; 0 uses all cores.", low=0, integer=True)
    backend: str = setting("cpu", "Where the arithmetic runs.", choices=BACKENDS)

    def fit(self, data: Interactions | SparseMatrix) -> Popularity:
        """Count the interactions of every item.

        Parameters
        ----------
        data
            Interactions, or a SciPy sparse matrix with users as rows.

        Returns
        -------
        The model itself.
        """
        check_settings(self)
        data = as_interactions(data)
        counts = data.liked().by_item.sums()
        users = np.ones((data.n_users, 1), dtype=np.float32)
        history = History(verdict="converged", reason="closed form")
        self._fitted = Fitted(
            user_factors=users,
            item_factors=counts[:, None].astype(np.float32),
            user_ids=data.user_ids,
            item_ids=data.item_ids,
            popularity=counts,
            mean_user=np.ones(1),
            merit=np.zeros(1),
            trained_fairness=0.0,
            fairness=0.0,
            history=history,
            settings={},
            interactions=data,
            weighting=data.weighting,
        )
        return self

    @on_snapshot
    def fold_in(self, history: Interactions | SparseMatrix | Events, **options: Any) -> Factors:
        """Return the vector (1) for every row: all users are the same."""
        if options:
            raise TypeError(f"Popularity takes no fold-in options, got {', '.join(options)}.")
        return np.ones((self._aligned(history).n_users, 1), dtype=np.float32)
