"""Hold interactions: an immutable sparse matrix of users and items in both orientations, with ids."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairmf.data import csr
from fairmf.data.columns import ColumnName, Columns, Merging, TableKeywords, TextFormat, TextTableKeywords
from fairmf.data.csr import Rows, check_sparse, rows_from_pairs, rows_from_sparse, transpose, without_ones
from fairmf.data.events import Events, frequent, liked_rows, with_weight
from fairmf.data.ids import Ids, check_orientation
from fairmf.data.weighting import NAMES, BM25Weighting, LogWeighting, Weighting, weighted_like
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.lazy import cached_property, lazy_module
from fairmf.params import takes_keywords

if TYPE_CHECKING:  # else loaded when they are used: a program that serves a stored model needs none of them
    from typing_extensions import Unpack

    from fairmf import html
    from fairmf.data import fingerprint, read, read_csv, read_sql
    from fairmf.data import half_life as half_lives
    from fairmf.data.half_life import HalfLife
else:
    half_lives = lazy_module("fairmf.data.half_life")
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
        self._by_user, self._n_items = by_user.read_only(), n_items
        if by_user.nnz and csr.largest_column(self._by_user) >= n_items:
            raise InvalidData(f"The rows hold item indices outside 0 to {n_items - 1}.")
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
        copy: bool = True,
    ) -> Interactions:
        """Read a SciPy sparse matrix, users as rows. Explicit zeros are dropped, duplicate entries merged.

        Parameters
        ----------
        matrix : scipy.sparse matrix or array
        user_ids, item_ids : sequence, optional
            One id for each row and column. Without ids, users and items are named by row number.
        weights : None or "values"
            `"values"` keeps the matrix's values as confidences, of dislikes where they are below 0; by default every
            stored entry counts as 1.
        allow_empty : bool
            Whether a matrix without entries is accepted.
        copy : bool
            False shares the arrays of a clean CSR matrix with int32 indices, which must not be changed afterwards.

        Returns
        -------
        Interactions

        Raises
        ------
        InvalidData
            If the matrix is damaged, transposed or empty, or holds values that are not finite (or are negative, without
            `weights`).

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
        rows = rows_from_sparse(matrix, keep_values=weights == "values", copy=copy)
        if rows.nnz == 0 and not allow_empty:
            what = f"The {shape[0]:,} x {shape[1]:,} matrix holds no interactions."
            raise InvalidData(what, hint="at least one is needed")
        return cls(without_ones(rows), shape[1], users and users.check("user"), items and items.check("item"))

    @classmethod
    def from_events(
        cls,
        events: Events,
        *,
        weights: str | None = None,
        min_user: int = 0,
        min_item: int = 0,
        half_life: float | HalfLife | None = None,
    ) -> Interactions:
        """Merge the rows of events into one entry per pair; users and items keep the order of their codes.

        Parameters
        ----------
        events : Events
        weights : None, "sum" or "column"
            The confidence of a pair: 1, the number of its rows, or the sum of `events.weights` over its rows. Where
            that sum is below 0 the pair is a dislike, where it is 0 the pair is dropped. The other two leave rows with
            a weight below 0 out.
        min_user, min_item : int
            Drop items, then users, with fewer interactions, as `Events.at_least` does, and the ids that no longer
            occur. Without them all ids stay.
        half_life : float or HalfLife, optional
            Halve the weight of an event for every so many days of its age, counted from the newest event or from a date
            (docs/ratings.md). A pair whose confidence is 1 counts as of its newest event.

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
            expected = "'weights' of from_events must be None, 'sum' or 'column'."
            raise InvalidParameter(f"{expected} Got {weights!r} instead.")
        kept = with_weight(events) if weights == "column" else liked_rows(events)
        how = events.weighting if weights == "column" else None
        if half_life is not None:
            how = half_lives.HalfLife.of(half_life).dated(kept)
            kept, weights = how.merged(kept, weights), "column"
        if len(kept) == 0:
            raise InvalidData("There are no rows in these events.", hint="at least one interaction is needed")
        if min_user or min_item:
            kept = frequent(kept, min_user, min_item)
        shape = (len(kept.user_ids), len(kept.item_ids))
        values = kept.weights if weights == "column" else None
        rows = rows_from_pairs(kept.users, kept.items, shape, values, count=weights == "sum")
        return cls(without_ones(rows), shape[1], kept.user_ids, kept.item_ids, how)

    @classmethod
    @takes_keywords(TableKeywords, of=(Columns, Merging))
    def from_frame(
        cls, frame: Any, *, weights: ColumnName | None = None, **options: Unpack[TableKeywords]
    ) -> Interactions:
        """Read a data frame with a row per event.

        Parameters
        ----------
        frame : pandas or polars DataFrame, pyarrow Table
        user, item : str
            The columns of user and item ids.
        weights : str, optional
            None: binary, repeated rows count once. `"sum"`: the number of rows of each pair. Any other name: a column
            of confidences, summed over repeated rows. A negative one is a dislike (docs/ratings.md).
        rating, rating_above : str and float, optional
            Keep only rows whose value in the column `rating` is strictly above `rating_above`.
        min_user, min_item : int
            Drop items with fewer interactions, then users with fewer of what is left.
        half_life : float or HalfLife, optional
            Halve the weight of an event for every so many days of its age (`from_events`); its time is in `time`.

        Returns
        -------
        Interactions

        Raises
        ------
        InvalidData
            If a column is missing, ids are null, weights are not finite, or no rows are left.

        Examples
        --------
        >>> import pyarrow as pa
        >>> plays = pa.table({"user": ["ann", "ann", "bob"], "item": ["x", "y", "x"], "plays": [3, 1, 2]})
        >>> Interactions.from_frame(plays, weights="plays")
        Interactions(2 users x 2 items, 3 weighted)
        """
        return cls._from(partial(read.read_frame, frame), weights, options)

    @classmethod
    @takes_keywords(TextTableKeywords, of=(Columns, Merging, TextFormat))
    def from_csv(
        cls, path: str | os.PathLike[str], *, weights: ColumnName | None = None, **options: Unpack[TextTableKeywords]
    ) -> Interactions:
        """Read a delimited text file, plain or compressed.

        `path`, `delimiter`, `header`, `text_ids` and `encoding` are those of `read_csv`; the other parameters, the
        result and the errors are those of `from_frame`.
        """
        return cls._from(partial(read_csv.read_csv, path), weights, options)

    @classmethod
    @takes_keywords(TableKeywords, of=(Columns, Merging))
    def from_parquet(
        cls,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        weights: ColumnName | None = None,
        **options: Unpack[TableKeywords],
    ) -> Interactions:
        """Read a Parquet file, a list of them, or a directory. The other parameters are those of `from_frame`."""
        return cls._from(partial(read.read_parquet, path), weights, options)

    @classmethod
    @takes_keywords(TableKeywords, of=(Columns, Merging))
    def from_arrow(
        cls, source: Any, *, weights: ColumnName | None = None, **options: Unpack[TableKeywords]
    ) -> Interactions:
        """Read an Arrow file or stream, as `read_arrow` does. The other parameters are those of `from_frame`."""
        return cls._from(partial(read.read_arrow, source), weights, options)

    @classmethod
    @takes_keywords(TableKeywords, of=(Columns, Merging))
    def from_sql(
        cls, query: str, url: str, *, weights: ColumnName | None = None, **options: Unpack[TableKeywords]
    ) -> Interactions:
        """Read the result of a database query, as `read_sql` does. The other parameters are those of `from_frame`."""
        return cls._from(partial(read_sql.read_sql, query, url), weights, options)

    @classmethod
    def _from(
        cls, reader: Callable[..., Events], weights: ColumnName | None, options: Mapping[str, Any]
    ) -> Interactions:
        """Read events, with their weights if these are in a column, and merge repeated pairs."""
        # "sum" is a way to merge repeated pairs, not the name of a column.
        merging = None if weights is None else "sum" if weights == "sum" else "column"
        own = {name: value for name, value in options.items() if name in Merging.__dataclass_fields__}
        columns = {name: value for name, value in options.items() if name not in own}
        if own.get("half_life") is not None:
            columns.setdefault("time", "time")
        events = reader(weights=weights if merging == "column" else None, **columns)
        if merging is not None or any(own.values()):
            return cls.from_events(events, weights=merging, **own)
        # Nobody else has these events, so the matrix is built in their memory.
        user_ids, item_ids = events.user_ids, events.item_ids
        shape = (len(user_ids), len(item_ids))
        return cls(rows_from_pairs(*events._release(), shape, overwrite=True), shape[1], user_ids, item_ids)

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

    @cached_property
    def n_dislikes(self) -> int:
        """Number of entries with a weight below 0: confidences that a user does *not* want the item."""
        weights = self._by_user.weights
        return 0 if weights is None else int((weights < 0).sum())

    @property
    def weighting(self) -> Weighting | None:
        """The weighting that `reweighted` applied, which models remember; None if the confidences are raw."""
        return self._weighting

    def __repr__(self) -> str:
        kind = "binary" if self.is_binary else "weighted"
        kind += f", {self.n_dislikes:,} of them dislikes" if self.n_dislikes else ""
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

    def liked(self) -> Interactions:
        """Return the interactions without dislikes, of the same users and items."""
        return self._with_rows(csr.liked(self._by_user)) if self.n_dislikes else self

    def confidences(self) -> Interactions:
        """Return the interactions with |w| for every weight w, so that a dislike looks like a like."""
        if not self.n_dislikes:
            return self
        found = self._with_rows(csr.confidences(self._by_user))
        found._given = self.given_fingerprint  # the two are the same data
        return found

    def with_weights(self, weights: NDArray[np.float32] | None, weighting: Weighting | None) -> Interactions:
        """Return the same interactions with other confidences, which this weighting has computed."""
        rows = self._by_user._replace(weights=weights)
        found = Interactions(rows, self._n_items, self.user_ids, self.item_ids, weighting)
        vars(found)["n_dislikes"] = self.n_dislikes  # weightings leave the signs as they are
        return found

    def _with_rows(self, rows: Rows) -> Interactions:
        return Interactions(rows, self._n_items, self.user_ids, self.item_ids, self._weighting)

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

            `"bm25"`: lower the weight of popular items and of users with many items, by the formula of
            `BM25Weighting`.
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


def as_interactions(data: object, *, allow_empty: bool = False) -> Interactions:
    """Return Interactions as they are, a sparse matrix (users as rows) as binary ones, with a warning if it is not."""
    if isinstance(data, Interactions):
        return data
    if sp.issparse(data):
        matrix = sp.csr_array(data)  # type: ignore[call-overload]
        if not csr.all_zeros_or_ones(matrix.data):
            what = "The matrix holds values other than 1, which are ignored: every entry counts as one interaction. "
            hint = 'Pass Interactions.from_csr(matrix, weights="values") to use them as confidences.'
            warnings.warn(what + hint, UserWarning, stacklevel=3)
        return Interactions.from_csr(matrix, allow_empty=allow_empty)
    raise InvalidData(
        f"Expected Interactions or a SciPy sparse matrix with users as rows, got {type(data).__name__}. "
        "Interactions.from_frame, from_csv and from_parquet read other kinds of data."
    )
