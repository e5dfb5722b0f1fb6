"""The public split protocol, transcribed from its description with pandas and NumPy's global generator.

Written apart from fairmf.data and sharing nothing with it. `python tests/naive/public_split.py` writes
the files in tests/data/expected anew from the ratings there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

EXPECTED = Path(__file__).resolve().parents[1] / "data" / "expected"
CASES = {"all_items": 0, "frequent_items": 4}  # name: min_item
HELDOUT = 8


def public_split(
    ratings: pd.DataFrame, heldout: int, min_user: int, min_item: int
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Tables of interactions (part, uid, sid), users and items, from one with user, item and rating."""
    rows = ratings[ratings["rating"] > 3.5]
    per_item = rows.groupby("item").size()
    rows = rows[rows["item"].isin(per_item.index[per_item >= min_item])]
    per_user = rows.groupby("user").size()
    rows = rows[rows["user"].isin(per_user.index[per_user >= min_user])]

    distinct = np.array(sorted(rows["user"].unique()), dtype=object)
    np.random.seed(98765)
    permuted = distinct[np.random.permutation(len(distinct))]
    n_train = len(permuted) - 2 * heldout
    users = {
        "train": permuted[:n_train],
        "validation": permuted[n_train : n_train + heldout],
        "test": permuted[n_train + heldout :],
    }

    train = rows[rows["user"].isin(users["train"])]
    items = list(dict.fromkeys(train["item"]))
    parts = {"train": train}
    for name in ("validation", "test"):
        part = rows[rows["user"].isin(users[name]) & rows["item"].isin(items)]
        parts[f"{name}_tr"], parts[f"{name}_te"] = fold_in_and_targets(part)

    uid = {user: k for k, user in enumerate(permuted)}
    sid = {item: k for k, item in enumerate(items)}
    tables = [
        pd.DataFrame({"part": name, "uid": part["user"].map(uid), "sid": part["item"].map(sid)})
        for name, part in parts.items()
    ]
    return (
        pd.concat(tables).sort_values(["part", "uid", "sid"]).astype({"uid": int, "sid": int}).reset_index(drop=True),
        pd.DataFrame({"uid": range(len(permuted)), "user": permuted}),
        pd.DataFrame({"sid": range(len(items)), "item": items}),
    )


def fold_in_and_targets(part: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    np.random.seed(98765)
    shown, asked = [part.iloc[:0]], [part.iloc[:0]]
    for _, group in part.groupby("user"):  # ascending user ids; a group keeps the file's row order
        k = len(group)
        if k < 5:
            shown.append(group)
            continue
        chosen = np.zeros(k, dtype=bool)
        chosen[np.random.choice(k, size=int(0.2 * k), replace=False)] = True
        shown.append(group[~chosen])
        asked.append(group[chosen])
    return pd.concat(shown), pd.concat(asked)


if __name__ == "__main__":
    table = pd.read_csv(EXPECTED / "ratings.csv")
    for case, least in CASES.items():
        for kind, frame in zip(("interactions", "users", "items"), public_split(table, HELDOUT, 5, least), strict=True):
            frame.to_csv(EXPECTED / f"{case}_{kind}.csv", index=False, lineterminator="\n")
