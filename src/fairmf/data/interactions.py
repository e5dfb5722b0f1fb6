"""Interactions: who interacted with what. An immutable sparse matrix in both orientations, with ids."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairmf.data.columns import ColumnName
from fairmf.data.csr import Rows, rows_from_pairs, rows_from_sparse
from fairmf.data.events import Events
from fairmf.data.fingerprint import fingerprint
from fairmf.data.ids import Ids
from fairmf.data.read import read_arrow, read_frame, read_parquet
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.lazy import cached_property

# Confidences computed from confidences: the logarithm, and BM25.


def log_weights(rows: Rows) -> NDArray[np.float32] | None:
    """log2(1 + c): a confidence of 1 stays 1, so binary rows stay binary (None)."""
    if rows.weights is None:
        return None
    weights: NDArray[np.float32] = np.log2(1 + rows.weights.astype(np.float64)).astype(np.float32)
    return weights


def bm25_weights(rows: Rows, n_items: int, K1: float, B: float) -> NDArray[np.float32]:
    """BM25 with items as the documents and users as the words; see `Interactions.reweighted` for the formula."""
    for name, value, top in (("K1", K1, np.inf), ("B", B, 1.0)):
        if not isinstance(value, (int, float)) or not 0 <= value <= top or (name == "K1" and not 0 < value < np.inf):
            allowed = "a number > 0" if name == "K1" else "a number >= 0 and <= 1"
            raise InvalidParameter(f"{name!r} must be {allowed}. Got {value!r} instead.")
    weights = np.ones(rows.nnz) if rows.weights is None else rows.weights.astype(np.float64)
    per_user = np.diff(rows.indptr)
    # A user with (nearly) every item would get a factor of zero or less, which is no confidence: the floor lies
    # below what any other user gets.
    rarity = np.maximum(np.log(n_items / (1.0 + per_user)), np.log1p(1.0 / n_items))
    length = np.bincount(rows.indices, weights=weights, minlength=n_items)
    norm = K1 * (1.0 - B + B * length / length.mean())
    weights *= (K1 + 1.0) / (norm[rows.indices] + weights)
    weights *= np.repeat(rarity, per_user)
    return weights.astype(np.float32)


# Interactions: who interacted with what. Immutable, sparse, in both orientations, with the ids of users and items.


class Interactions:
    """Implicit feedback of users (rows) on items (columns).

    Build one with `from_frame`, `from_csv`, `from_parquet`, `from_arrow`, `from_sql`, `from_csr` or `from_events`. The
    object never changes: its arrays are read-only. Binary data (the default) stores no values in either orientation.
    """

    def __init__(self, by_user: Rows, n_items: int, user_ids: Ids | None = None, item_ids: Ids | None = None):
        for kind, ids, size in (("user", user_ids, by_user.count), ("item", item_ids, n_items)):
            if ids is not None and len(ids) != size:
                raise InvalidData(f"{kind}_ids holds {len(ids):,} ids, but the matrix has {size:,} {kind}s.")
        # The kernels trust these indices: one outside would read another's memory.
        if by_user.nnz and (by_user.indices.min() < 0 or by_user.indices.max() >= n_items):
            raise InvalidData(f"The rows hold item indices outside 0 to {n_items - 1}.")
        self._by_user = by_user.read_only()
        self._n_items = n_items
        self._user_ids = user_ids
        self._item_ids = item_ids

    # -- where they come from -----------------------------------------------------------------------------------

    @classmethod
    def from_csr(
        cls,
        matrix: Any,
        *,
        user_ids: Ids | Sequence[Hashable] | NDArray[Any] | None = None,
        item_ids: Ids | Sequence[Hashable] | NDArray[Any] | None = None,
        weights: str | None = None,
        allow_empty: bool = False,
    ) -> Interactions:
        """Take a SciPy sparse matrix, users as rows. `weights="values"` keeps its values as confidences.

        Without `weights` every stored entry counts as 1. Explicit zeros are dropped, duplicate entries merged. The
        matrix itself is copied, never changed. One without entries is an error unless `allow_empty`.
        """
        if weights not in (None, "values"):
            raise InvalidParameter(f"'weights' of from_csr must be None or 'values'. Got {weights!r} instead.")
        _check_sparse(matrix)
        n_users, n_items = matrix.shape
        users = None if user_ids is None else Ids(user_ids)
        items = None if item_ids is None else Ids(item_ids)
        _check_orientation(matrix.shape, users, items)
        rows = rows_from_sparse(matrix, keep_values=weights == "values")
        if rows.nnz == 0 and not allow_empty:
            raise InvalidData(f"The {n_users:,} x {n_items:,} matrix holds no interactions; at least one is needed.")
        users = users.check("user") if users is not None else None
        items = items.check("item") if items is not None else None
        return cls(_plain_if_binary(rows), n_items, users, items)

    @classmethod
    def from_events(
        cls, events: Events, *, weights: str | None = None, min_user: int = 0, min_item: int = 0
    ) -> Interactions:
        """Merge the rows of `events` into one entry per pair; users and items keep the order of their codes.

        `weights=None`: every pair counts 1. `"sum"`: the number of its rows. `"column"`: the sum of `events.weights`,
        where pairs that sum to 0 are dropped. With `min_user` or `min_item` the rows are filtered first as by
        `Events.at_least` and ids that no longer occur are dropped; without them all ids stay.
        """
        if weights not in (None, "sum", "column"):
            raise InvalidParameter(
                f"'weights' of from_events must be None, 'sum' or 'column'. Got {weights!r} instead."
            )
        kept = _with_weight(events) if weights == "column" else events
        if len(kept) == 0:
            raise InvalidData("There are no rows in these events; at least one interaction is needed.")
        if min_user or min_item:
            kept = _filtered(kept, min_user, min_item)
        shape = (len(kept.user_ids), len(kept.item_ids))
        values = kept.weights if weights == "column" else None
        rows = rows_from_pairs(kept.users, kept.items, shape, values, count=weights == "sum")
        return cls(_plain_if_binary(rows), shape[1], kept.user_ids, kept.item_ids)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        user: ColumnName = "user",
        item: ColumnName = "item",
        weights: ColumnName | None = None,
        rating: ColumnName | None = None,
        rating_above: float | None = None,
        min_user: int = 0,
        min_item: int = 0,
    ) -> Interactions:
        """Take a pandas or polars frame or a pyarrow table with a row per event.

        `weights`: None = binary, repeated rows count once; "sum" = the number of rows of each pair; any other name = a
        column of confidences, summed over repeated rows. With `rating` and `rating_above` only rows with a rating
        strictly above stay; then items below `min_item` interactions go, then users below `min_user`.
        """
        events = read_frame(
            frame, user=user, item=item, weights=_column(weights), rating=rating, rating_above=rating_above
        )
        return cls.from_events(events, weights=_merging(weights), min_user=min_user, min_item=min_item)

    @classmethod
    def from_csv(
        cls,
        path: str | os.PathLike[str],
        *,
        user: ColumnName = "user",
        item: ColumnName = "item",
        weights: ColumnName | None = None,
        rating: ColumnName | None = None,
        rating_above: float | None = None,
        min_user: int = 0,
        min_item: int = 0,
        delimiter: str | None = None,
        header: bool = True,
        text_ids: bool = False,
        encoding: str = "utf8",
    ) -> Interactions:
        """Take a delimited text file, plain or compressed; see `read_csv` for the file, `from_frame` for the rest."""
        from fairmf.data.read_csv import read_csv  # models that only answer do without

        events = read_csv(
            path,
            user=user,
            item=item,
            weights=_column(weights),
            rating=rating,
            rating_above=rating_above,
            delimiter=delimiter,
            header=header,
            text_ids=text_ids,
            encoding=encoding,
        )
        return cls.from_events(events, weights=_merging(weights), min_user=min_user, min_item=min_item)

    @classmethod
    def from_parquet(
        cls,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        user: ColumnName = "user",
        item: ColumnName = "item",
        weights: ColumnName | None = None,
        rating: ColumnName | None = None,
        rating_above: float | None = None,
        min_user: int = 0,
        min_item: int = 0,
    ) -> Interactions:
        """Take a Parquet file, a list of them, or a directory; see `from_frame` for the other arguments."""
        events = read_parquet(
            path, user=user, item=item, weights=_column(weights), rating=rating, rating_above=rating_above
        )
        return cls.from_events(events, weights=_merging(weights), min_user=min_user, min_item=min_item)

    @classmethod
    def from_arrow(
        cls, source: Any, *, weights: ColumnName | None = None, min_user: int = 0, min_item: int = 0, **columns: Any
    ) -> Interactions:
        """Take an Arrow file or stream; see `read_arrow` for `source`, `from_frame` for all other arguments."""
        events = read_arrow(source, weights=_column(weights), **columns)
        return cls.from_events(events, weights=_merging(weights), min_user=min_user, min_item=min_item)

    @classmethod
    def from_sql(
        cls,
        query: str,
        url: str,
        *,
        weights: ColumnName | None = None,
        min_user: int = 0,
        min_item: int = 0,
        **columns: Any,
    ) -> Interactions:
        """Take the answer of a database; see `read_sql` for query and URL, `from_frame` for all other arguments."""
        from fairmf.data.read_sql import read_sql

        events = read_sql(query, url, weights=_column(weights), **columns)
        return cls.from_events(events, weights=_merging(weights), min_user=min_user, min_item=min_item)

    # -- size and shape -----------------------------------------------------------------------------------------

    @property
    def n_users(self) -> int:
        """Number of users (rows), those without interactions included."""
        return self._by_user.count

    @property
    def n_items(self) -> int:
        """Number of items (columns), those without interactions included."""
        return self._n_items

    @property
    def nnz(self) -> int:
        """Number of distinct user-item pairs."""
        return self._by_user.nnz

    @property
    def shape(self) -> tuple[int, int]:
        """(n_users, n_items)."""
        return self.n_users, self.n_items

    @property
    def user_ids(self) -> Ids | None:
        """What the users are called, by row; None where they have no names."""
        return self._user_ids

    @property
    def item_ids(self) -> Ids | None:
        """What the items are called, by column; None where they have no names."""
        return self._item_ids

    @property
    def is_binary(self) -> bool:
        """True when every interaction has weight 1 (then no values are stored)."""
        return self._by_user.weights is None

    def __repr__(self) -> str:
        kind = "binary" if self.is_binary else "weighted"
        return f"Interactions({self.n_users:,} users x {self.n_items:,} items, {self.nnz:,} {kind})"

    def fingerprint(self) -> str:
        """SHA-256 (hex) of shape, entries, weights and ids: equal for equal data, on any platform."""
        return fingerprint(self._by_user, self._n_items, self.user_ids, self.item_ids)

    # -- the two orientations -----------------------------------------------------------------------------------

    @property
    def by_user(self) -> Rows:
        """One sparse row per user, item indices ascending."""
        return self._by_user

    @cached_property
    def by_item(self) -> Rows:
        """One sparse row per item, user indices ascending. Built on first use."""
        return transpose(self._by_user, self._n_items).read_only()

    def to_csr(self) -> sp.csr_array:
        """A SciPy CSR array (float32 values; ones when binary) that shares this object's index arrays."""
        rows = self._by_user
        values = np.ones(rows.nnz, dtype=np.float32) if rows.weights is None else rows.weights
        return rows.to_csr(values, self._n_items)

    # -- others made from these ---------------------------------------------------------------------------------

    def take_users(self, rows: NDArray[np.integer]) -> Interactions:
        """The given users, in the given order; the items stay all."""
        ids = None if self.user_ids is None else self.user_ids.take(rows)
        return Interactions(self._by_user.take(rows), self._n_items, ids, self.item_ids)

    def reweighted(self, how: str, *, K1: float = 100.0, B: float = 0.8) -> Interactions:
        """The same interactions with other confidences.

        `"log"`: log2(1 + c), so that 1 stays 1 and binary data stay binary.

        `"bm25"`: with items as documents and users as words, the confidence c_ij of user i and item j becomes

            c_ij (K1 + 1) / (K1 (1 - B + B L_j / mean(L)) + c_ij) * ln(n_items / (1 + N_i))

        where L_j is the sum of item j's confidences and N_i the number of items of user i. It damps popular items and
        users who take everything. (For users with all items, or all but one, where the logarithm is not positive, it is
        replaced by ln(1 + 1/n_items).) `K1` says how fast confidence saturates, `B` in [0, 1] how much popularity is
        damped; both matter for "bm25" only.
        """
        if how == "log":
            weights = log_weights(self._by_user)
        elif how == "bm25":
            weights = bm25_weights(self._by_user, self._n_items, K1, B)
        else:
            raise InvalidParameter(f"Weights can be 'log' or 'bm25'. Got {how!r} instead.")
        return Interactions(self._by_user._replace(weights=weights), self._n_items, self.user_ids, self.item_ids)


def transpose(rows: Rows, n_columns: int) -> Rows:
    """The other orientation, with sorted indices; binary rows need and make no values."""
    # SciPy's transposition carries a value per entry; one byte of zeros is the least it takes.
    values = np.zeros(rows.nnz, dtype=np.int8) if rows.weights is None else rows.weights
    other = rows.to_csr(values, n_columns).tocsc()
    weights = None if rows.weights is None else np.ascontiguousarray(other.data, dtype=np.float32)
    return Rows(other.indptr.astype(np.int64), other.indices.astype(np.int32, copy=False), weights)


def _plain_if_binary(rows: Rows) -> Rows:
    return rows if rows.weights is None or (rows.weights != 1).any() else rows._replace(weights=None)


def _column(weights: ColumnName | None) -> ColumnName | None:
    return None if weights == "sum" else weights


def _merging(weights: ColumnName | None) -> str | None:
    return None if weights is None else "sum" if weights == "sum" else "column"


def _with_weight(events: Events) -> Events:
    if events.weights is None:
        raise InvalidData("weights='column' needs events with weights; name their column when you read them.")
    some = events.weights > 0
    if len(events) and not some.any():
        raise InvalidData(
            f"All {len(events):,} weights are 0, so there are no interactions; check the weights' column."
        )
    return events if some.all() else events.select(some)


def _filtered(events: Events, min_user: int, min_item: int) -> Events:
    kept = events.at_least(min_user=min_user, min_item=min_item)
    if len(kept) == 0:
        after_items = len(events.at_least(min_item=min_item))
        raise InvalidData(
            f"No interactions are left: of {len(events):,} rows min_item={min_item} removed "
            f"{len(events) - after_items:,} and then min_user={min_user} removed {after_items:,}; lower them."
        )
    return kept.compact()


def _check_sparse(matrix: Any) -> None:
    is_sparse: bool = sp.issparse(matrix)
    if not is_sparse:
        name = type(matrix).__name__
        if isinstance(matrix, np.ndarray):
            advice = "wrap it in scipy.sparse.csr_array(...)"
        elif hasattr(matrix, "columns"):
            advice = "use from_frame"
        else:
            advice = "build one with scipy.sparse.csr_array"
        raise InvalidData(f"from_csr takes a SciPy sparse matrix, users as rows, not {name}; {advice}.")
    shape: tuple[int, ...] = matrix.shape
    if len(shape) != 2:
        raise InvalidData(f"The matrix must have two dimensions, users x items, but its shape is {shape}.")
    if max(shape) >= 2**31:
        raise InvalidData(f"At most 2^31 - 1 users and items are possible, but the matrix is {shape}.")


def _check_orientation(shape: tuple[int, int], users: Ids | None, items: Ids | None) -> None:
    given = [(ids, axis) for axis, ids in enumerate((users, items)) if ids is not None]
    if all(len(ids) == shape[axis] for ids, axis in given):
        return
    if all(len(ids) == shape[1 - axis] for ids, axis in given):
        raise InvalidData(
            f"The matrix looks transposed: users must be rows, but its shape {shape} fits the ids only the other way "
            f"round; pass matrix.T."
        )
    for ids, axis in given:
        if len(ids) != shape[axis]:
            kind, side = (("user", "rows"), ("item", "columns"))[axis]
            raise InvalidData(
                f"{kind}_ids holds {len(ids):,} ids, but the matrix has {shape[axis]:,} {side}; give one id per {kind}."
            )


def as_interactions(data: Interactions | Any, *, allow_empty: bool = False) -> Interactions:
    """Interactions as they are; a SciPy sparse matrix (users as rows) as binary data, with a warning if it is not."""
    if isinstance(data, Interactions):
        return data
    if sp.issparse(data):
        anything: Any = data
        matrix = sp.csr_array(anything)
        if not ((matrix.data == 0) | (matrix.data == 1)).all():
            warnings.warn(
                "The matrix holds values other than 1, which are ignored: every entry counts as one interaction. "
                'Pass Interactions.from_csr(matrix, weights="values") to use them as confidences.',
                UserWarning,
                stacklevel=3,
            )
        return Interactions.from_csr(matrix, allow_empty=allow_empty)
    raise InvalidData(
        f"Expected Interactions or a SciPy sparse matrix with users as rows, got {type(data).__name__}. "
        "Interactions.from_frame, from_csv and from_parquet read other kinds of data."
    )
