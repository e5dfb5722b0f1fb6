"""Hold interactions: an immutable sparse matrix of users and items in both orientations, with ids."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairmf.data.columns import ColumnName, TextFormat, TextKeywords
from fairmf.data.csr import Rows, check_sparse, rows_from_pairs, rows_from_sparse, transpose, without_ones
from fairmf.data.events import Events, frequent, with_weight
from fairmf.data.ids import Ids, check_orientation
from fairmf.data.weighting import NAMES, Balance, BM25Weighting, LogWeighting, Weighting
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.lazy import cached_property, lazy_module
from fairmf.params import takes_keywords

if TYPE_CHECKING:  # else loaded when they are used: a program that serves a stored model needs none of them
    from typing_extensions import Unpack

    from fairmf import html
    from fairmf.data import fingerprint, read, read_csv, read_sql
else:
    fingerprint, read = lazy_module("fairmf.data.fingerprint"), lazy_module("fairmf.data.read")
    read_csv, read_sql, html = map(lazy_module, ("fairmf.data.read_csv", "fairmf.data.read_sql", "fairmf.html"))


class Interactions:
    """Hold implicit feedback of users (rows) on items (columns).

    Build one with `from_frame`, `from_csv`, `from_parquet`, `from_arrow`, `from_sql`, `from_csr` or `from_events`. The
    object never changes: its arrays are read-only. Binary data (the default) stores no values in either orientation.

    Examples
    --------
    >>> from fairmf import synthetic
    >>> data = synthetic(n_users=50, n_items=40, n_interactions=500)
    >>> data.shape, data.is_binary
    ((50, 40), True)
    """

    def __init__(
        self,
        by_user: Rows,
        n_items: int,
        user_ids: Ids | None = None,
        item_ids: Ids | None = None,
        weighting: Weighting | None = None,
    ):
        for kind, ids, size in (("user", user_ids, by_user.count), ("item", item_ids, n_items)):
            if ids is not None and len(ids) != size:
                raise InvalidData(f"{kind}_ids holds {len(ids):,} ids, but the matrix has {size:,} {kind}s.")
        # Kernels do not check bounds: an index outside would read foreign memory.
        if by_user.nnz and (by_user.indices.min() < 0 or by_user.indices.max() >= n_items):
            raise InvalidData(f"The rows hold item indices outside 0 to {n_items - 1}.")
        self._by_user, self._n_items = by_user.read_only(), n_items
        self._user_ids, self._item_ids = user_ids, item_ids
        self._weighting = weighting  # what has computed the weights, if they are not raw
        self._given: Callable[[], str] | None = None  # fingerprint of the data that these are balanced from

    # -- constructors -------------------------------------------------------------------------------------------

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
        """Read a SciPy sparse matrix. Explicit zeros are dropped, duplicate entries merged; the matrix is copied.

        Parameters
        ----------
        matrix : scipy.sparse matrix or array
            Users as rows, items as columns.
        user_ids, item_ids : sequence, optional
            One id for each row and column. Without ids, users and items are named by row number.
        weights : None or "values"
            `"values"` keeps the matrix's values as confidences; by default every stored entry counts as 1.
        allow_empty : bool
            Whether a matrix without entries is accepted.

        Returns
        -------
        Interactions

        Raises
        ------
        InvalidData
            If the matrix is damaged, transposed or empty, or holds values that are negative or not finite.

        Examples
        --------
        >>> from scipy.sparse import csr_array
        >>> Interactions.from_csr(csr_array([[1, 0, 1], [0, 1, 0]]), item_ids=["a", "b", "c"])
        Interactions(2 users x 3 items, 3 binary)
        """
        if weights not in (None, "values"):
            raise InvalidParameter(f"'weights' of from_csr must be None or 'values'. Got {weights!r} instead.")
        check_sparse(matrix)
        shape: tuple[int, int] = matrix.shape
        users = None if user_ids is None else Ids(user_ids)
        items = None if item_ids is None else Ids(item_ids)
        check_orientation(shape, users, items)
        rows = rows_from_sparse(matrix, keep_values=weights == "values")
        if rows.nnz == 0 and not allow_empty:
            raise InvalidData(
                f"The {shape[0]:,} x {shape[1]:,} matrix holds no interactions.", hint="at least one is needed"
            )
        users = users.check("user") if users is not None else None
        items = items.check("item") if items is not None else None
        return cls(without_ones(rows), shape[1], users, items)

    @classmethod
    def from_events(
        cls, events: Events, *, weights: str | None = None, min_user: int = 0, min_item: int = 0
    ) -> Interactions:
        """Merge the rows of events into one entry per pair; users and items keep the order of their codes.

        Parameters
        ----------
        events : Events
        weights : None, "sum" or "column"
            The confidence of a pair: 1, the number of its rows, or the sum of `events.weights` over its rows (pairs
            that sum to 0 are dropped).
        min_user, min_item : int
            Drop items, then users, with fewer interactions, as `Events.at_least` does, and the ids that no longer
            occur. Without them all ids stay.

        Returns
        -------
        Interactions

        Raises
        ------
        InvalidData
            If no rows are left, or `weights="column"` and the events have no weights.

        Examples
        --------
        >>> events = Events([0, 0, 1], [0, 0, 1], ["ann", "bob"], ["tea", "rum"])
        >>> Interactions.from_events(events, weights="sum").to_csr().toarray().tolist()
        [[2.0, 0.0], [0.0, 1.0]]
        """
        if weights not in (None, "sum", "column"):
            raise InvalidParameter(
                f"'weights' of from_events must be None, 'sum' or 'column'. Got {weights!r} instead."
            )
        kept = with_weight(events) if weights == "column" else events
        if len(kept) == 0:
            raise InvalidData("There are no rows in these events.", hint="at least one interaction is needed")
        if min_user or min_item:
            kept = frequent(kept, min_user, min_item)
        shape = (len(kept.user_ids), len(kept.item_ids))
        values = kept.weights if weights == "column" else None
        rows = rows_from_pairs(kept.users, kept.items, shape, values, count=weights == "sum")
        return cls(without_ones(rows), shape[1], kept.user_ids, kept.item_ids)

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
        """Read a data frame with a row per event.

        Parameters
        ----------
        frame : pandas or polars DataFrame, pyarrow Table
        user, item : str
            The columns of user and item ids.
        weights : str, optional
            None: binary, repeated rows count once. `"sum"`: the number of rows of each pair. Any other name: a column
            of confidences, summed over repeated rows.
        rating, rating_above : str and float, optional
            Keep only rows whose value in the column `rating` is strictly above `rating_above`.
        min_user, min_item : int
            Drop items with fewer interactions, then users with fewer of what is left.

        Returns
        -------
        Interactions

        Raises
        ------
        InvalidData
            If a column is missing, ids are null, weights are negative or not finite, or no rows are left.

        Examples
        --------
        >>> import pyarrow as pa
        >>> plays = pa.table({"user": ["ann", "ann", "bob"], "item": ["x", "y", "x"], "plays": [3, 1, 2]})
        >>> Interactions.from_frame(plays, weights="plays")
        Interactions(2 users x 2 items, 3 weighted)
        """
        reader = partial(read.read_frame, frame, user=user, item=item, rating=rating, rating_above=rating_above)
        return cls._from(reader, weights, min_user, min_item)

    @classmethod
    @takes_keywords(TextKeywords, of=TextFormat)
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
        **text: Unpack[TextKeywords],
    ) -> Interactions:
        """Read a delimited text file, plain or compressed.

        `path`, `delimiter`, `header`, `text_ids` and `encoding` are those of `read_csv`; the other parameters, the
        result and the errors are those of `from_frame`.
        """
        reader = partial(
            read_csv.read_csv, path, user=user, item=item, rating=rating, rating_above=rating_above, **text
        )
        return cls._from(reader, weights, min_user, min_item)

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
        """Read a Parquet file, a list of them, or a directory. The other parameters are those of `from_frame`."""
        reader = partial(read.read_parquet, path, user=user, item=item, rating=rating, rating_above=rating_above)
        return cls._from(reader, weights, min_user, min_item)

    @classmethod
    def from_arrow(
        cls, source: Any, *, weights: ColumnName | None = None, min_user: int = 0, min_item: int = 0, **columns: Any
    ) -> Interactions:
        """Read an Arrow file or stream, as `read_arrow` does. The other parameters are those of `from_frame`."""
        return cls._from(partial(read.read_arrow, source, **columns), weights, min_user, min_item)

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
        """Read the result of a database query, as `read_sql` does. The other parameters are those of `from_frame`."""
        return cls._from(partial(read_sql.read_sql, query, url, **columns), weights, min_user, min_item)

    @classmethod
    def _from(
        cls, reader: Callable[..., Events], weights: ColumnName | None, min_user: int, min_item: int
    ) -> Interactions:
        """Read events, with their weights if these are in a column, and merge repeated pairs."""
        # "sum" is a way to merge repeated pairs, not the name of a column.
        merging = None if weights is None else "sum" if weights == "sum" else "column"
        events = reader(weights=weights if merging == "column" else None)
        return cls.from_events(events, weights=merging, min_user=min_user, min_item=min_item)

    # -- size and shape -----------------------------------------------------------------------------------------

    @property
    def n_users(self) -> int:
        """Number of users (rows), including those without interactions."""
        return self._by_user.count

    @property
    def n_items(self) -> int:
        """Number of items (columns), including those without interactions."""
        return self._n_items

    @property
    def nnz(self) -> int:
        """Number of distinct user-item pairs."""
        return self._by_user.nnz

    @property
    def shape(self) -> tuple[int, int]:
        """Number of users and number of items."""
        return self.n_users, self.n_items

    @property
    def user_ids(self) -> Ids | None:
        """Ids of the users, by row; None if they have no ids."""
        return self._user_ids

    @property
    def item_ids(self) -> Ids | None:
        """Ids of the items, by column; None if they have no ids."""
        return self._item_ids

    @property
    def is_binary(self) -> bool:
        """Whether every interaction has weight 1 (then no values are stored)."""
        return self._by_user.weights is None

    @property
    def weighting(self) -> Weighting | None:
        """The weighting that `reweighted` applied, which models remember; None if the confidences are raw."""
        return self._weighting

    def __repr__(self) -> str:
        kind = "binary" if self.is_binary else "weighted"
        return f"Interactions({self.n_users:,} users x {self.n_items:,} items, {self.nnz:,} {kind})"

    def _repr_html_(self) -> str:
        return html.title(*repr(self)[:-1].split("(", 1)) + html.first_ids(self.user_ids, self.item_ids)

    def fingerprint(self) -> str:
        """Return the SHA-256 (hex) of shape, entries, weights and ids: equal for equal data, on any platform."""
        return fingerprint.fingerprint(self._by_user, self._n_items, self.user_ids, self.item_ids)

    def given_fingerprint(self) -> str:
        """Return the fingerprint of the data that a fit was given: a model may hold them with balanced confidences."""
        return self.fingerprint() if self._given is None else self._given()

    @property
    def by_user(self) -> Rows:
        """One sparse row per user, item indices ascending."""
        return self._by_user

    @cached_property
    def by_item(self) -> Rows:
        """One sparse row per item, user indices ascending. Built on first use."""
        return transpose(self._by_user, self._n_items).read_only()

    def to_csr(self) -> sp.csr_array:
        """Return a SciPy CSR array of float32 (ones if binary) that shares the index arrays of this object."""
        rows = self._by_user
        values = np.ones(rows.nnz, dtype=np.float32) if rows.weights is None else rows.weights
        return rows.to_csr(values, self._n_items)

    # -- derived interactions -----------------------------------------------------------------------------------

    def take_users(self, rows: NDArray[np.integer]) -> Interactions:
        """Return the users with the given row numbers, in the given order, and all items."""
        ids = None if self.user_ids is None else self.user_ids.take(rows)
        return Interactions(self._by_user.take(rows), self._n_items, ids, self.item_ids, self._weighting)

    def reweighted(self, how: str, *, K1: float = 100.0, B: float = 0.8) -> Interactions:
        """Return the same interactions with other confidences, and remember the `weighting`.

        A model that is fitted on them stores the weighting and applies it to the raw histories it is given later.

        Parameters
        ----------
        how : "log" or "bm25"
            `"log"`: log2(1 + c), so that 1 stays 1 and binary data stay binary.

            `"bm25"`: with items as documents and users as words, the confidence c_ij of user i and item j becomes

                c_ij (K1 + 1) / (K1 (1 - B + B L_j / mean(L)) + c_ij) * ln(n_items / (1 + N_i))

            where L_j is the sum of item j's confidences and N_i the number of items of user i. It lowers the weight of
            popular items and of users with many items. (Where the logarithm is not positive, for users with all items
            or all but one, it is replaced by ln(1 + 1/n_items).)
        K1 : float
            Confidences saturate more slowly with a larger value; > 0. For "bm25" only.
        B : float
            How much the weight of popular items is lowered, from 0 to 1. For "bm25" only.

        Returns
        -------
        Interactions

        Raises
        ------
        InvalidParameter
            For another `how`, parameters out of range, or data that are weighted already.

        Examples
        --------
        >>> from scipy.sparse import csr_array
        >>> data = Interactions.from_csr(csr_array([[1, 3], [0, 7]]), weights="values")
        >>> data.reweighted("log").to_csr().toarray().tolist()
        [[1.0, 2.0], [0.0, 3.0]]
        """
        if self._weighting is not None:
            raise InvalidParameter(f"These interactions are weighted already, by {self._weighting.how!r}.")
        if how not in NAMES:
            raise InvalidParameter(f"Weights can be 'log' or 'bm25'. Got {how!r} instead.")
        own = LogWeighting() if how == "log" else BM25Weighting.learn(self._by_user, self._n_items, K1, B)
        return weighted_like(self, own)


def weighted_like(data: Interactions, weighting: Weighting | None) -> Interactions:
    """Apply a model's weighting (None: nothing) to raw interactions; return those that have it as they are."""
    if weighting is None or data.weighting == weighting:
        return data
    if isinstance(weighting, Balance) and data.weighting is not None and data.weighting == weighting.inner:
        return with_weights(data, weighting.balanced(data.by_user), weighting)
    if data.weighting is not None:
        how, inner = data.weighting.how, weighting.inner if isinstance(weighting, Balance) else None
        own = [weighting.how] if inner is None else [inner.how, weighting.how]
        raise InvalidData(
            f"These interactions were weighted by {how!r}, the model's data by {' and '.join(map(repr, own))}"
            f"{' of other data' if how in own else ''}.",
            hint="give the raw ones, which the model weights itself",
        )
    return with_weights(data, weighting.weights(data.by_user), weighting)


def with_weights(data: Interactions, weights: NDArray[np.float32] | None, weighting: Weighting) -> Interactions:
    """Return the same interactions with other confidences, which this weighting has computed."""
    return Interactions(data.by_user._replace(weights=weights), data.n_items, data.user_ids, data.item_ids, weighting)


def as_interactions(data: object, *, allow_empty: bool = False) -> Interactions:
    """Return Interactions as they are, a sparse matrix (users as rows) as binary ones, with a warning if it is not."""
    if isinstance(data, Interactions):
        return data
    if sp.issparse(data):
        matrix = sp.csr_array(data)  # type: ignore[call-overload]
        if not ((matrix.data == 0) | (matrix.data == 1)).all():
            what = "The matrix holds values other than 1, which are ignored: every entry counts as one interaction. "
            hint = 'Pass Interactions.from_csr(matrix, weights="values") to use them as confidences.'
            warnings.warn(what + hint, UserWarning, stacklevel=3)
        return Interactions.from_csr(matrix, allow_empty=allow_empty)
    raise InvalidData(
        f"Expected Interactions or a SciPy sparse matrix with users as rows, got {type(data).__name__}. "
        "Interactions.from_frame, from_csv and from_parquet read other kinds of data."
    )
