"""Encode features of items or users as a sparse matrix, from a table or a matrix, and encode new rows alike.

A column of a table is one of four kinds (`KINDS`). Each becomes a block of the matrix:

* `number`: one column, minus the mean, over the standard deviation. A missing number counts as the mean; dates are
  counted in days.
* `category`: a column of ones and zeros for each value.
* `tags`: several values in a cell (`A|B`, or a list). A cell with k known values has 1/sqrt(k) for each.
* `text`: words, weighted by tf-idf; a cell has length 1.

What was learned from the first table (means, values, word counts) is kept, so that new items pass through the same
encoder at serving time. Values that the encoder does not know are left out, or share columns with `hash_bins`.
"""

from __future__ import annotations

import math
import os
import re
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairmf.data.columns import since_1970
from fairmf.data.csr import Rows
from fairmf.data.ids import Ids, is_missing
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.io.values import plain
from fairmf.lazy import lazy_module
from fairmf.types import Json, Record

if TYPE_CHECKING:
    import narwhals as nw
    import pyarrow as pa
    from pyarrow import csv, feather, parquet
else:  # only tables need them
    nw, pa = lazy_module("narwhals"), lazy_module("pyarrow")
    csv, feather, parquet = (lazy_module(f"pyarrow.{name}") for name in ("csv", "feather", "parquet"))

KINDS = ("number", "category", "tags", "text")
SAMPLE = 1000  # cells by which the kind of a column of texts is guessed
MANY_WORDS = 5  # mean number of words from which a column of texts counts as `text`
WORD = re.compile(r"\w+")
SEPARATOR = "|"
DAY = 86_400 * 10**9  # nanoseconds


@dataclass(frozen=True)
class Features:
    """A table of features, with how to read it. `fit(data, item_features=...)` takes it, or the table itself.

    Parameters
    ----------
    table
        A data frame of pandas, Polars or PyArrow: one row per item (or user), with a column of ids.
    id
        The column of ids; None takes `item_id`, `item`, `user_id`, `user` or `id`, or else the first column.
    kinds
        The kind of some columns: "number", "category", "tags", "text", or "ignore". The others are guessed from their
        type and first values.
    vocabulary
        The most values that a column keeps: the most frequent ones.
    hash_bins
        Hash the values of each column into this many columns instead of keeping a list of them. Values that appear
        later are then not left out, but may share a column with others. None keeps a list.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"item_id": [7, 8], "genre": ["Drama|War", "War"], "year": [1960, 1980]})
    >>> encoder = Encoder.learn(Features(table))
    >>> encoder.names
    ('genre=War', 'genre=Drama', 'year')
    """

    table: Any
    id: str | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    vocabulary: int = 50_000
    hash_bins: int | None = None

    def frame(self) -> nw.DataFrame[Any]:
        """Return the table through narwhals; raise InvalidData if it is none."""
        try:
            frame: nw.DataFrame[Any] = nw.from_native(self.table, eager_only=True)
        except TypeError as error:
            kind = type(self.table).__name__
            raise InvalidData(
                f"Features are a data frame (pandas, Polars, PyArrow) or a matrix. Got {kind} instead."
            ) from error
        if len(frame.columns) < 2:
            raise InvalidData("A table of features needs a column of ids and at least one more column.")
        return frame

    def id_column(self, columns: Sequence[str]) -> str:
        """Return the name of the column of ids."""
        if self.id is not None:
            if self.id not in columns:
                raise InvalidData(f"The table of features has no column {self.id!r}; it has {', '.join(columns)}.")
            return self.id
        usual = ("item_id", "item", "user_id", "user", "id")
        return next((name for name in usual if name in columns), columns[0])


def read_table(path: str | os.PathLike[str]) -> Any:
    """Read a table of features from a Parquet, Arrow or CSV file, as a PyArrow table."""
    name = str(path)
    if not Path(name).is_file():
        raise InvalidData(f"There is no table of features {name}.")
    try:
        if name.endswith((".parquet", ".pq")):
            return parquet.read_table(name)
        if name.endswith((".arrow", ".feather")):
            return feather.read_table(name)
        delimiter = "\t" if name.endswith((".tsv", ".tab")) else ","
        return csv.read_csv(name, parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True))
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidData(f"{name} cannot be read as a table of features: {error}") from error


@dataclass(frozen=True)
class Column:
    """Hold what the encoder learned about one column of a table."""

    name: str
    kind: str
    values: tuple[str, ...] = ()
    """The known values (words of a text), by falling frequency."""
    weights: tuple[float, ...] = ()
    """For `text`: the inverse document frequency of each word."""
    mean: float = 0.0
    scale: float = 1.0
    bins: int = 0
    """Number of hashed columns; 0 where values are listed."""
    place: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.place.update({value: k for k, value in enumerate(self.values)})

    @property
    def width(self) -> int:
        """Number of columns of its block."""
        return 1 if self.kind == "number" else self.bins or len(self.values)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of its block."""
        if self.kind == "number":
            return (self.name,)
        return tuple(f"{self.name}={value}" for value in (self.values or range(self.bins)))

    def block(self, cells: Sequence[Any]) -> sp.csr_array:
        """Encode the cells, one row each."""
        rows: list[int] = []
        columns: list[int] = []
        numbers: list[float] = []
        for i, cell in enumerate(cells):
            for k, value in self._encoded(cell).items():
                rows.append(i)
                columns.append(k)
                numbers.append(value)
        found = sp.coo_array((np.array(numbers, dtype=np.float32), (rows, columns)), shape=(len(cells), self.width))
        return sp.csr_array(found)

    def _encoded(self, cell: Any) -> dict[int, float]:
        if self.kind == "number":
            number = _number(cell, self.name)
            return {} if number is None else {0: (number - self.mean) / self.scale}
        amounts: dict[int, float] = {}
        for value, count in Counter(_values(cell, self.kind)).items():
            k = self.place.get(value, -1) if not self.bins else zlib.crc32(value.encode()) % self.bins
            if k >= 0:
                weight = self.weights[k] if self.weights else 1.0
                amounts[k] = amounts.get(k, 0.0) + (count * weight if self.kind == "text" else 1.0)
        length = math.sqrt(sum(x * x for x in amounts.values()))
        return amounts if self.kind == "category" else {k: x / length for k, x in amounts.items()}


@dataclass(frozen=True)
class Encoder:
    """Turn tables into rows of features: learn how from one table, then do the same for every other."""

    id: str
    columns: tuple[Column, ...]

    @classmethod
    def learn(cls, given: Features) -> Encoder:
        """Learn the encoder from a table."""
        _check(given)
        frame = given.frame()
        name_of_ids = given.id_column(frame.columns)
        unknown = [name for name in given.kinds if name not in frame.columns]
        if unknown:
            raise InvalidData(f"kinds names {unknown[0]!r}, but the table of features has no such column.")
        columns = []
        for name in frame.columns:
            kind = given.kinds.get(name)
            if name == name_of_ids or kind == "ignore":
                continue
            cells = frame[name].to_list()
            columns.append(_learned(name, kind or _guessed(frame[name].dtype, cells), cells, given))
        if not columns:
            raise InvalidData("The table of features has no column but ids.")
        return cls(name_of_ids, tuple(columns))

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every feature: `genre=Drama`, `year`."""
        return tuple(name for column in self.columns for name in column.names)

    def blocks(self) -> dict[str, slice]:
        """Return which features each column of the table became."""
        ends = np.cumsum([0, *(column.width for column in self.columns)]).tolist()
        return {column.name: slice(ends[k], ends[k + 1]) for k, column in enumerate(self.columns)}

    def encode(self, table: Any) -> tuple[list[Hashable], sp.csr_array]:
        """Return the ids of a table and its features, one row each. Columns that it does not know are left out.

        Raises
        ------
        InvalidData
            If the table lacks a column, or holds a value of another kind.
        """
        frame = (table if isinstance(table, Features) else Features(table)).frame()
        lacking = [name for name in (self.id, *(c.name for c in self.columns)) if name not in frame.columns]
        if lacking:
            raise InvalidData(
                f"The table of features lacks the column {lacking[0]!r}, which the model was fitted with."
            )
        blocks = [column.block(frame[column.name].to_list()) for column in self.columns]
        ids = [plain(value) for value in frame[self.id].to_list()]
        if lost := sum(map(is_missing, ids)):
            raise InvalidData(f"{lost:,} ids of the table of features are null or NaN.", hint="remove these rows")
        return ids, sp.csr_array(sp.hstack(blocks, format="csr"))

    def to_dict(self) -> dict[str, Json]:
        """Return plain values, for a file."""
        kept = ("name", "kind", "values", "weights", "mean", "scale", "bins")
        columns: list[Json] = [
            {name: _listed(getattr(column, name)) for name in kept} for column in self.columns
        ]  # fmt: skip
        return {"id": self.id, "columns": columns}

    @classmethod
    def from_dict(cls, stored: Record) -> Encoder:
        """Rebuild an encoder; raises KeyError, TypeError or ValueError if the values are no encoder's."""
        columns = []
        for values in stored["columns"]:
            if values["kind"] not in KINDS:
                raise ValueError(f"a column of features is of the unknown kind {values['kind']!r}")
            texts, numbers = tuple(map(str, values["values"])), tuple(map(float, values["weights"]))
            columns.append(
                Column(
                    str(values["name"]), values["kind"], texts, numbers, float(values["mean"]),
                    float(values["scale"]), int(values["bins"]),
                )
            )  # fmt: skip
        return cls(str(stored["id"]), tuple(columns))


@dataclass(frozen=True)
class FeatureRows:
    """Features of all items (or users) of some data, in their order."""

    rows: Rows
    n_features: int
    encoder: Encoder | None = None
    """How they were encoded; None for a matrix."""

    @property
    def matrix(self) -> sp.csr_array:
        """The features as a SciPy matrix that shares their memory."""
        return matrix_of(self.rows, self.n_features)


def matrix_of(rows: Rows, n_features: int) -> sp.csr_array:
    """Return rows of features as a SciPy matrix that shares their memory."""
    values = np.ones(rows.nnz, dtype=np.float32) if rows.weights is None else rows.weights
    return rows.to_csr(values, n_features)


def read_features(given: Any, ids: Ids | None, size: int, kind: str) -> tuple[FeatureRows, int]:
    """Read the features of `size` items or users (`kind`); also return how many rows of the table have other ids.

    A matrix has one row for each, in their order. The rows of a table are found by their ids: those without a row have
    no features.
    """
    if sp.issparse(given) or isinstance(given, np.ndarray):
        rows, n_features = rows_of_features(given, kind)
        if rows.count != size:
            raise InvalidData(f"{kind}_features has {rows.count:,} rows, but there are {size:,} {kind}s.")
        return FeatureRows(rows, n_features), 0
    table = given if isinstance(given, Features) else Features(given)
    encoder = Encoder.learn(table)
    names, matrix = encoder.encode(table)
    where = _positions(names, ids, size, kind)
    aligned = np.flatnonzero(where >= 0)
    order = np.full(size, -1, dtype=np.int64)
    order[where[aligned]] = aligned
    # A row of zeros at the end stands for the features of those that the table does not name.
    padded = sp.csr_array(sp.vstack([matrix, sp.csr_array((1, matrix.shape[1]), dtype=np.float32)], format="csr"))
    rows, n_features = rows_of_features(padded[order], kind)
    return FeatureRows(rows, n_features, encoder), len(names) - len(aligned)


def rows_of_features(matrix: Any, kind: str) -> tuple[Rows, int]:
    """Return a matrix as sparse rows of float32, and its number of columns; raise InvalidData if it is not finite."""
    if isinstance(matrix, np.ndarray) and (matrix.ndim != 2 or matrix.dtype.kind not in "biuf"):
        raise InvalidData(f"{kind}_features must be a matrix of numbers. Got an array of shape {matrix.shape}.")
    csr = sp.csr_array(matrix).astype(np.float32)
    if not np.isfinite(csr.data).all():
        raise InvalidData(f"{kind}_features holds numbers that are not finite.", hint="replace missing values by 0")
    if csr.shape[1] == 0:
        raise InvalidData(f"{kind}_features has no columns.")
    csr.sum_duplicates()
    csr.eliminate_zeros()
    csr.sort_indices()
    return Rows(csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data), csr.shape[1]


def _positions(names: Iterable[Hashable], ids: Ids | None, size: int, kind: str) -> NDArray[np.int64]:
    """Return the position of every id of a table, -1 for ids that the data do not have."""
    given = list(names)
    if len(set(given)) != len(given):
        twice = next(name for name, count in Counter(given).items() if count > 1)
        raise InvalidData(f"The table of features names {kind} {twice!r} more than once.")
    if ids is None:
        found = [x if isinstance(x, int) and 0 <= x < size else -1 for x in given]
    else:
        found = [ids.position(x) if x in ids else -1 for x in given]
    if given and max(found) < 0:
        own = "row numbers" if ids is None else f"such as {ids.values.tolist()[0]!r}"
        raise InvalidData(
            f"No id of the table of features ({given[0]!r}, ...) is one of the {kind}s of the data ({own}).",
            hint="ids must have the same type in both, and Features(table, id=...) names their column",
        )
    return np.array(found, dtype=np.int64)


def _check(given: Features) -> None:
    for name, kind in given.kinds.items():
        if kind not in (*KINDS, "ignore"):
            raise InvalidParameter(
                f"The kind of a column is one of {', '.join(map(repr, KINDS))} or 'ignore'. "
                f"Got {kind!r} for {name!r} instead."
            )
    for name, value in (("vocabulary", given.vocabulary), ("hash_bins", given.hash_bins)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InvalidParameter(f"{name} must be a whole number > 0. Got {value!r} instead.")


def _guessed(dtype: Any, cells: Sequence[Any]) -> str:
    """Guess the kind of a column."""
    if dtype.is_numeric() or dtype in (nw.Boolean, nw.Date, nw.Datetime):
        return "number"
    some = [cell for cell in cells if cell is not None][:SAMPLE]
    if any(isinstance(cell, (list, tuple, set, np.ndarray)) for cell in some):
        return "tags"
    texts = [str(cell) for cell in some]
    if sum(SEPARATOR in text for text in texts) > 0.02 * len(texts):
        return "tags"
    words = sum(len(WORD.findall(text)) for text in texts)
    return "text" if texts and words / len(texts) > MANY_WORDS else "category"


def _learned(name: str, kind: str, cells: Sequence[Any], given: Features) -> Column:
    if kind == "number":
        numbers = np.array([x for x in (_number(cell, name) for cell in cells) if x is not None], dtype=np.float64)
        spread = float(numbers.std()) if len(numbers) else 0.0
        return Column(name, kind, mean=float(numbers.mean()) if len(numbers) else 0.0, scale=spread or 1.0)
    if given.hash_bins:
        return Column(name, kind, bins=given.hash_bins)
    counts = Counter(value for cell in cells for value in set(_values(cell, kind)))
    # Words of one text alone say nothing about others; categories are few, and new items may have them.
    least = 2 if kind == "text" else 1
    ordered = sorted((-count, value) for value, count in counts.items() if count >= least)[: given.vocabulary]
    if not ordered:
        raise InvalidData(f"The column {name!r} of the table of features has no value that could be learned from.")
    weights: tuple[float, ...] = ()
    if kind == "text":
        weights = tuple(math.log((1 + len(cells)) / (1 - count)) + 1.0 for count, _ in ordered)
    return Column(name, kind, tuple(value for _, value in ordered), weights)


def _values(cell: Any, kind: str) -> list[str]:
    """Return the values of a cell as texts; none for a missing cell."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return []
    if kind == "text":
        return WORD.findall(str(cell).lower())
    if kind == "tags":
        parts = cell.split(SEPARATOR) if isinstance(cell, str) else list(cell)
        return sorted({str(plain(part)).strip() for part in parts if part is not None} - {""})
    return [str(plain(cell))]


def _number(cell: Any, name: str) -> float | None:
    if cell is None or cell != cell:  # NaN, and pandas' missing dates
        return None
    moment = None if isinstance(cell, str) else since_1970(cell)
    try:
        value = float(cell) if moment is None else moment / DAY
    except (TypeError, ValueError) as error:
        raise InvalidData(
            f"The column {name!r} of the table of features holds {cell!r}, which is no number."
        ) from error
    if not math.isfinite(value):
        raise InvalidData(f"The column {name!r} of the table of features holds {cell!r}, which is not finite.")
    return value


def _listed(value: Any) -> Json:
    listed: Json = list(value) if isinstance(value, tuple) else value
    return listed
