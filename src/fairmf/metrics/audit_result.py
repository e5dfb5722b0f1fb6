"""Hold the results of an audit, and convert them to Arrow tables, JSON and sentences."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairmf import html
from fairmf.lazy import lazy_module
from fairmf.metrics.audit_change import Change, UserChange, finite, plain_id
from fairmf.metrics.exposure import lorenz_curve
from fairmf.metrics.sentences import statements
from fairmf.types import Record

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy_module("pyarrow")

Values = NDArray[np.float64]
CURVE_POINTS = 101  # points of a Lorenz curve in JSON


@dataclasses.dataclass(frozen=True, eq=False)
class Audit:
    """The result of `audit`: what changes from `before` to `after` in lists of length `at` (docs/audit.md).

    `audit["gini@20"]` is the Change of one metric, `gainers` and `losers` list items, and `summary` returns sentences.

    Attributes
    ----------
    at
        Length of the lists.
    before_name, after_name
        Names of the two sides in sentences.
    n_users, n_scored
        Users who were given lists, and those of them with held-out items.
    confidence
        Confidence of the intervals.
    metrics
        Every metric before and after, with the interval of its difference.
    users
        For each quality metric, how its change is distributed over users.
    groups
        Exposure of the groups, before and after.
    items, per_user
        Values of every item and every user, as arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from fairmf import audit, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> same = np.tile(np.arange(20), (60, 1))
    >>> other = (same + np.arange(60)[:, None]) % 200
    >>> print(audit(same, other, split.test, bootstrap=0).statements()[1])
    The least-shown 80% of the catalogue gets 40.0% of the exposure, up from 0.0% (+40.0 points).
    """

    at: int
    before_name: str
    after_name: str
    n_users: int
    n_scored: int
    confidence: float
    metrics: dict[str, Change]
    users: dict[str, UserChange]
    groups: tuple[GroupChange, ...]
    items: Items
    per_user: Users

    def __getitem__(self, name: str) -> Change:
        if name not in self.metrics:
            raise KeyError(f"{name!r} was not audited; there are {', '.join(self.metrics)}")
        return self.metrics[name]

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue."""
        return len(self.items.before)

    @property
    def cold(self) -> ColdChange | None:
        """The exposure of items without interactions in training, if they are held out or have features; else None."""
        share, popularity = self.metrics.get(f"cold_share@{self.at}"), self.items.popularity
        if share is None or popularity is None:
            return None
        return ColdChange(int((popularity == 0).sum()), self.n_items, share, self.metrics.get(f"cold_recall@{self.at}"))

    def gainers(self, top: int = 10) -> list[ItemChange]:
        """Return the items that gain most exposure, largest gain first; ties in the order of the data."""
        return self._most(self.items.after - self.items.before, top)

    def losers(self, top: int = 10) -> list[ItemChange]:
        """Return the items that lose most exposure, largest loss first."""
        return self._most(self.items.before - self.items.after, top)

    def _most(self, gain: Values, top: int) -> list[ItemChange]:
        order = np.argsort(-gain, kind="stable")[: max(top, 0)]
        return [self.items.change(int(j)) for j in order if gain[j] > 0]

    def lorenz(self) -> tuple[Values, Values]:
        """Return the Lorenz curves before and after: point k is the share of exposure of the k least exposed items."""
        return lorenz_curve(self.items.before), lorenz_curve(self.items.after)

    def items_table(self) -> pa.Table:
        """Return an Arrow table with one row per item (`.to_pandas()` makes a data frame)."""
        return items_table(self.items)

    def groups_table(self) -> pa.Table:
        """Return an Arrow table with one row per group."""
        return groups_table(self.groups)

    def users_table(self) -> pa.Table:
        """Return an Arrow table with one row per user; quality is null for users without targets."""
        return users_table(self.per_user)

    def statements(self) -> list[str]:
        """Return the results as sentences."""
        return statements(self)

    def summary(self) -> str:
        """Return the statements, one per line."""
        return "\n".join(self.statements())

    def to_dict(self, *, top: int = 20, every_item: bool = False) -> Record:
        """Return all results as plain Python values for JSON. Undefined numbers become None.

        Only the `top` gainers and losers among the items are listed; `every_item` adds all items. Users are never
        listed one by one.
        """
        # The Lorenz curve has a point per item; JSON gets it at evenly spaced shares of the catalogue.
        shares = np.linspace(0.0, 1.0, min(CURVE_POINTS, self.n_items + 1))
        every = np.linspace(0.0, 1.0, self.n_items + 1)
        curves = [np.interp(shares, every, curve) for curve in self.lorenz()]
        found: Record = {
            **{"at": self.at, "before_name": self.before_name, "after_name": self.after_name},
            **{"n_users": self.n_users, "n_scored": self.n_scored, "n_items": self.n_items},
            "confidence": self.confidence,
            "metrics": {label: change.to_dict() for label, change in self.metrics.items()},
            "users": {label: change.to_dict() for label, change in self.users.items()},
            "groups": [group.to_dict() for group in self.groups],
            **({} if self.cold is None else {"cold": self.cold.to_dict()}),
            "gainers": [item.to_dict() for item in self.gainers(top)],
            "losers": [item.to_dict() for item in self.losers(top)],
            "lorenz": {
                "share_of_items": shares.tolist(),
                "before": [finite(x) for x in curves[0]],
                "after": [finite(x) for x in curves[1]],
            },
            "statements": self.statements(),
        }
        if every_item:
            found["items"] = [self.items.change(j).to_dict() for j in range(self.n_items)]
        return found

    def to_json(self, *, top: int = 20, every_item: bool = False) -> str:
        """Return `to_dict` as JSON text."""
        # JSON has no NaN. `to_dict` has written None for it; anything that slipped through is an error here.
        found = self.to_dict(top=top, every_item=every_item)
        return json.dumps(found, indent=1, allow_nan=False, ensure_ascii=False)

    def __repr__(self) -> str:
        return f"Audit({self.before_name} to {self.after_name}, {self.n_users:,} users, {self.n_items:,} items)"

    def _repr_html_(self) -> str:
        note = f"{self.before_name} to {self.after_name}, {self.n_users:,} users, {self.n_items:,} items"
        told = "".join(map(html.paragraph, self.statements()))
        shown = [(c.name, "gains", c.before, c.after) for c in self.gainers(5)]
        shown += [(c.name, "loses", c.before, c.after) for c in self.losers(5)]
        items = html.table(["item", "", "lists before", "lists after"], shown)
        moved = sorted(self.groups, key=lambda g: -abs(g.share.difference))
        rows = [(g.group, g.n_items, f"{g.share.before:.1%}", f"{g.share.after:.1%}") for g in moved]
        groups = html.table(["group", "items", "share before", "share after"], rows, most=10) if rows else ""
        return html.title("Audit", note) + told + items + groups


@dataclasses.dataclass(frozen=True)
class ItemChange:
    """The exposure of one item: the number of users whose list holds it, before and after."""

    item: Hashable
    name: str
    group: Hashable | None
    before: int
    after: int

    @property
    def difference(self) -> int:
        """Number of users gained; negative if lost."""
        return self.after - self.before

    def to_dict(self) -> Record:
        """Return plain Python values for JSON."""
        named = {"item": plain_id(self.item), "name": self.name, "group": plain_id(self.group)}
        return {**named, "before": self.before, "after": self.after, "difference": self.difference}


@dataclasses.dataclass(frozen=True)
class GroupChange:
    """The exposure of one group: its number of slots in lists, and its share of all exposure."""

    group: Hashable
    n_items: int
    before: float
    after: float
    share: Change

    def to_dict(self) -> Record:
        """Return plain Python values for JSON."""
        counts = {"before": self.before, "after": self.after}
        return {"group": plain_id(self.group), "n_items": self.n_items, **counts, "share": self.share.to_dict()}


@dataclasses.dataclass(frozen=True)
class ColdChange:
    """Cold items, which had no interaction in training: their number, share of exposure, and recall if it is known."""

    n_cold: int
    n_items: int
    share: Change
    recall: Change | None = None

    @property
    def of_catalogue(self) -> float:
        """Their share of the catalogue."""
        return self.n_cold / self.n_items

    def to_dict(self) -> Record:
        """Return plain Python values for JSON."""
        found: Record = {"n_items": self.n_cold, "catalogue_share": self.of_catalogue, "share": self.share.to_dict()}
        return found if self.recall is None else {**found, "recall": self.recall.to_dict()}


@dataclasses.dataclass(frozen=True, eq=False)
class Items:
    """One entry per item: ids (positions if there are none), names, and exposure before and after."""

    ids: list[Hashable]
    names: list[str]
    groups: list[Hashable] | None
    popularity: Values | None
    before: Values
    after: Values
    before_dcg: Values
    after_dcg: Values

    def change(self, j: int) -> ItemChange:
        """Return the change of item j, by position."""
        group = None if self.groups is None else self.groups[j]
        return ItemChange(self.ids[j], self.names[j], group, int(self.before[j]), int(self.after[j]))


@dataclasses.dataclass(frozen=True, eq=False)
class Users:
    """One entry per user: ids (positions if there are none) and quality by metric, NaN for users without targets."""

    ids: list[Hashable]
    before: dict[str, Values]
    after: dict[str, Values]


def items_table(items: Items) -> pa.Table:
    """Return one row per item, in the order of the data."""
    columns: dict[str, pa.Array] = {"item": id_column(items.ids), "name": pa.array(items.names, pa.string())}
    if items.groups is not None:
        columns["group"] = id_column(items.groups)
    if items.popularity is not None:
        columns["popularity"] = pa.array(items.popularity)
    columns |= {
        "before": pa.array(items.before.astype(np.int64)),
        "after": pa.array(items.after.astype(np.int64)),
        "difference": pa.array((items.after - items.before).astype(np.int64)),
        "before_dcg": pa.array(items.before_dcg),
        "after_dcg": pa.array(items.after_dcg),
    }
    for side, exposure in (("before", items.before), ("after", items.after)):
        # Lists that are all empty have no exposure: their shares are 0 rather than NaN.
        columns[f"{side}_share"] = pa.array(exposure / max(exposure.sum(), 1.0))
    return pa.table(columns)


def groups_table(groups: Sequence[GroupChange]) -> pa.Table:
    """Return one row per group, in order of appearance."""
    return pa.table(
        {
            "group": id_column([g.group for g in groups]),
            "n_items": pa.array([g.n_items for g in groups], pa.int64()),
            "before": pa.array([g.before for g in groups], pa.float64()),
            "after": pa.array([g.after for g in groups], pa.float64()),
            # `from_pandas` turns NaN into null: Arrow keeps the two apart, and NaN would be a number.
            "before_share": pa.array([g.share.before for g in groups], pa.float64(), from_pandas=True),
            "after_share": pa.array([g.share.after for g in groups], pa.float64(), from_pandas=True),
            "share_difference": pa.array([g.share.difference for g in groups], pa.float64(), from_pandas=True),
            "low": pa.array([g.share.low for g in groups], pa.float64(), from_pandas=True),
            "high": pa.array([g.share.high for g in groups], pa.float64(), from_pandas=True),
        }
    )


def users_table(users: Users) -> pa.Table:
    """Return one row per user, in the order of the held-out data."""
    columns = {"user": id_column(users.ids)}
    for label, before in users.before.items():
        after = users.after[label]
        for name, values in (("before", before), ("after", after), ("difference", after - before)):
            columns[f"{label} {name}"] = pa.array(values, from_pandas=True)  # NaN becomes null
    return pa.table(columns)


def id_column(ids: Sequence[Hashable]) -> pa.Array:
    """Return ids as an Arrow array; as strings if Arrow cannot hold them in one array."""
    try:
        return pa.array(ids)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([str(x) for x in ids], pa.string())
