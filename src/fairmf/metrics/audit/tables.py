"""An audit as Arrow tables."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fairmf.metrics.audit.result import GroupChange, Items, Users

Values = NDArray[np.float64]


def items_table(items: Items) -> Any:
    """One row per item, in the order of the data."""
    import pyarrow as pa

    columns: dict[str, Any] = {"item": id_column(items.ids), "name": pa.array(items.names, pa.string())}
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
        columns[f"{side}_share"] = pa.array(exposure / max(exposure.sum(), 1.0))
    return pa.table(columns)


def groups_table(groups: Sequence[GroupChange]) -> Any:
    """One row per group, in order of appearance."""
    import pyarrow as pa

    return pa.table(
        {
            "group": id_column([g.group for g in groups]),
            "n_items": pa.array([g.n_items for g in groups], pa.int64()),
            "before": pa.array([g.before for g in groups], pa.float64()),
            "after": pa.array([g.after for g in groups], pa.float64()),
            "before_share": pa.array([g.share.before for g in groups], pa.float64(), from_pandas=True),
            "after_share": pa.array([g.share.after for g in groups], pa.float64(), from_pandas=True),
            "share_difference": pa.array([g.share.difference for g in groups], pa.float64(), from_pandas=True),
            "low": pa.array([g.share.low for g in groups], pa.float64(), from_pandas=True),
            "high": pa.array([g.share.high for g in groups], pa.float64(), from_pandas=True),
        }
    )


def users_table(users: Users) -> Any:
    """One row per user, in the order of the held-out data."""
    import pyarrow as pa

    columns = {"user": id_column(users.ids)}
    for label, before in users.before.items():
        after = users.after[label]
        for name, values in (("before", before), ("after", after), ("difference", after - before)):
            columns[f"{label} {name}"] = pa.array(values, from_pandas=True)  # NaN becomes null
    return pa.table(columns)


def id_column(ids: Sequence[Hashable]) -> Any:
    """Ids as Arrow holds them; kinds it cannot hold together become strings."""
    import pyarrow as pa

    try:
        return pa.array(ids)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([str(x) for x in ids], pa.string())
