"""Show models and their lists as text and in notebooks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairmf import html
from fairmf.data.ids import as_list
from fairmf.errors import InvalidData
from fairmf.params import changed_settings
from fairmf.text import visible

if TYPE_CHECKING:
    from fairmf.data.ids import Names
    from fairmf.models.factor_model import FactorModel
    from fairmf.models.fitted import FittedModel
    from fairmf.types import Array, Record


def line(model: FittedModel) -> str:
    """Return a model in one line: the settings that differ from their defaults, and its sizes if it is fitted."""
    made = ", ".join(f"{name}={value!r}" for name, value in changed_settings(model).items())
    sizes = _sizes(model)
    return f"{type(model).__name__}({made})" + (f", {sizes}" if sizes else "")


def page(model: FittedModel) -> str:
    """Return a model as HTML: whether it is fitted, its sizes, settings, training and evenness."""
    changed = changed_settings(model)
    told: Record = {"settings": _listed(changed) or "the defaults"}
    fitted = model._fitted
    if fitted is None:
        return html.title(type(model).__name__, "not fitted") + html.facts(told)
    if changed.get("settings") == "auto":
        own = model.get_params()
        found = {
            name: value for name, value in fitted.settings.items() if value != own.get(name) and name != "settings"
        }
        told["chosen from the data"] = _listed(found) or "the defaults"
    if fitted.history.records:
        told["training"] = f"{len(fitted.history)} epochs in {fitted.history.seconds:.1f} s"
    told["evenness"] = "not calibrated" if fitted.path is None else "calibrated: recommend(..., evenness=0 to 1)"
    told["histories"] = "not stored" if fitted.interactions is None else f"{fitted.interactions.nnz:,} interactions"
    return html.title(type(model).__name__, _sizes(model)) + html.facts(told)


def _sizes(model: FittedModel) -> str:
    fitted = model._fitted
    if fitted is None:
        return ""
    return f"fitted to {len(fitted.user_factors):,} users x {len(fitted.item_factors):,} items"


def _listed(settings: Record) -> str:
    written = {name: f"{value:g}" if isinstance(value, float) else value for name, value in settings.items()}
    return ", ".join(f"{name} = {value}" for name, value in written.items())


@dataclass(frozen=True)
class TitledLists:
    """Lists of some users, with the titles of their items. Notebooks and `print` show them side by side.

    Attributes
    ----------
    users
        The users, in the order asked for.
    ids, scores
        As `recommend` returns them for many users.
    titles
        A list of titles for each user; an empty slot has none.

    Examples
    --------
    >>> import numpy as np
    >>> TitledLists(["ann"], np.array([[7, 3]]), np.array([[0.9, 0.4]]), (("Alien", "Heat"),))
    user ann
        1  Alien
        2  Heat
    """

    users: Sequence[Hashable]
    ids: Array
    scores: Array
    titles: tuple[tuple[str, ...], ...]

    def __repr__(self) -> str:
        parts = []
        for user, titles in zip(self.users, self.titles, strict=True):
            lines = [f"  {rank:>3}  {visible(title, one_line=True)}" for rank, title in enumerate(titles, start=1)]
            parts.append("\n".join([f"user {visible(user, one_line=True)}", *lines]))
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        longest = max(map(len, self.titles), default=0)
        rows = [
            [rank + 1, *(titles[rank] if rank < len(titles) else "" for titles in self.titles)]
            for rank in range(longest)
        ]
        return html.table(["rank", *(f"user {user}" for user in self.users)], rows, most=100)


def titled_lists(
    model: FactorModel,
    users: Hashable | Names,
    N: int = 10,
    titles: Mapping[Any, object] | Sequence[object] | None = None,
    **options: Any,
) -> TitledLists:
    """Recommend to some users, and show the lists with the titles of the items.

    Parameters
    ----------
    model
        A fitted model.
    users, N, **options
        As in `model.recommend`.
    titles
        A title per item in the order of the training data, or a mapping from item id to title. Items without a title
        are called by their ids.

    Returns
    -------
    TitledLists

    Raises
    ------
    InvalidData
        If there are more or fewer titles than items.

    Examples
    --------
    >>> from fairmf import IALS, synthetic, titled_lists
    >>> data = synthetic(60, 40, 600)
    >>> model = IALS(factors=4, epochs=2).fit(data, progress=False)
    >>> len(titled_lists(model, data.user_ids.values[:2], N=3).titles)
    2
    """
    who = as_list(users)
    ids, scores = model.recommend(who, N=N, **options)
    if titles is not None and not isinstance(titles, Mapping):
        if len(titles) != model.n_items:
            raise InvalidData(f"titles holds {len(titles):,} titles, but there are {model.n_items:,} items.")
        known = model.fitted.item_ids
        names = range(model.n_items) if known is None else known.values.tolist()
        titles = dict(zip(names, titles, strict=True))
    found: Mapping[Any, object] = titles or {}
    missing = (-1, None)
    rows = [
        tuple(str(found.get(item, item)) for item in row if item not in missing) for row in np.asarray(ids).tolist()
    ]
    return TitledLists(list(who), ids, scores, tuple(rows))
