"""Read tables of lists and of interactions from anything: data frames, Arrow tables, files, mappings, arrays.

A table of lists has columns user, item and rank or score, a row per recommendation; or one row per user with a column
of lists of items, best first. Ids stay as they are; nothing here knows a catalogue.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.data.columns import LIST_COLUMNS
from fairmf.data.encode import ObjectTable
from fairmf.data.ids import Ids, is_missing
from fairmf.data.interactions import Interactions
from fairmf.data.read import existing, frame_column, open_frame, parquet_files, reading
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidData
from fairmf.lazy import lazy_module

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.feather as pa_feather
    import pyarrow.json as pa_json
    import pyarrow.parquet as pq
else:
    pa = lazy_module("pyarrow")
    pa_csv, pa_json = lazy_module("pyarrow.csv"), lazy_module("pyarrow.json")
    pa_feather, pq = lazy_module("pyarrow.feather"), lazy_module("pyarrow.parquet")

Codes = NDArray[np.int64]
Table = Any
"""A pandas, polars or other frame that narwhals knows, an Arrow table, or the path of a file."""


class Pairs(NamedTuple):
    """Pairs of users and items: codes of each row, and the ids that the codes stand for, by first appearance."""

    users: Codes
    items: Codes
    user_ids: list[Hashable]
    item_ids: list[Hashable]


def read_pairs(source: Interactions | Table, what: str, columns: Mapping[str, str] | None) -> Pairs:
    """Read interactions: `what` ("test", "train") names them in errors. Interactions keep ids without a row."""
    if isinstance(source, Interactions):
        rows = source.by_user
        users = np.repeat(np.arange(rows.count), np.diff(rows.indptr))
        user_ids = names_of(source.user_ids, source.n_users)
        return Pairs(users, rows.indices.astype(np.int64), user_ids, names_of(source.item_ids, source.n_items))
    table = _Columns.of(source, what, columns)
    return Pairs(*_interleaved(table.ids("user"), table.ids("item")))


def read_lists(source: Mapping[Any, Any] | Table, columns: Mapping[str, str] | None) -> Pairs:
    """Read lists: pairs sorted by user (in order of first appearance) and place in the list.

    Raises
    ------
    InvalidData
        If a list holds an item twice, two items of a list have the same rank, or ranks or scores are not numbers.
    """
    if isinstance(source, Mapping):
        found = _from_mapping(source)
    else:
        table = _Columns.of(source, "lists", columns)
        if table.has_lists:
            found = table.lists()
        else:
            found = Pairs(*_interleaved(table.ids("user"), table.ids("item")))
            order = _order(table, found)
            found = Pairs(found.users[order], found.items[order], found.user_ids, found.item_ids)
    _check_duplicates(found)
    return found


def names_of(ids: Ids | None, count: int) -> list[Hashable]:
    """Return ids as Python values; positions if there are no ids."""
    return list(range(count)) if ids is None else list(ids.values.tolist())


def named_examples(values: Sequence[Hashable], count: int = 3) -> str:
    """Return the first few values for a message: "'a', 'b', 'c', ..."."""
    return ", ".join(repr(value) for value in values[:count]) + (", ..." if len(values) > count else "")


# -- order ------------------------------------------------------------------------------------------------------------


def _order(table: _Columns, found: Pairs) -> Codes:
    """Return the rows by user and place: by rank, else by falling score (ties: earlier row first), else as they are."""
    if "rank" in table.names:
        rank = table.numbers("rank")
        order = np.lexsort((rank, found.users))
        users, ranks = found.users[order], rank[order]
        inside = users[1:] == users[:-1]
        twice = np.flatnonzero(inside & (ranks[1:] == ranks[:-1]))
        if len(twice):
            user = found.user_ids[users[twice[0]]]
            raise InvalidData(
                f"In lists, {len(twice):,} items have the rank of another item of the same user, "
                f"the first at rank {ranks[twice[0]]:g} of user {user!r}.",
                hint="give every item of a list a rank of its own, or drop the column and give scores",
            )
        gaps = inside & (ranks[1:] - ranks[:-1] > 1)
        if gaps.any():
            count = len(np.unique(users[1:][gaps]))
            user = found.user_ids[users[1:][gaps][0]]
            warnings.warn(
                f"The lists of {count:,} users have gaps in their ranks, the first is that of {user!r}: only the order "
                "counts, so items after a gap move up.",
                UserWarning,
                stacklevel=4,
            )
        return order
    if "score" in table.names:
        return np.lexsort((-table.numbers("score"), found.users))
    return np.argsort(found.users, kind="stable")


def _check_duplicates(found: Pairs) -> None:
    keys = found.users * max(len(found.item_ids), 1) + found.items
    distinct, first = np.unique(keys, return_index=True)
    if len(distinct) == len(keys):
        return
    again = np.ones(len(keys), dtype=bool)
    again[first] = False
    k = int(np.flatnonzero(again)[0])
    raise InvalidData(
        f"Lists hold the same item twice in {int(again.sum()):,} places, the first is item "
        f"{found.item_ids[found.items[k]]!r} of user {found.user_ids[found.users[k]]!r}.",
        hint="drop all but the first of each item",
    )


# -- forms ------------------------------------------------------------------------------------------------------------


def _from_mapping(source: Mapping[Any, Any]) -> Pairs:
    table, users, items = ObjectTable(), [], []
    for k, (user, listed) in enumerate(source.items()):
        if isinstance(listed, str | bytes) or not hasattr(listed, "__iter__"):
            raise InvalidData(f"lists maps user {user!r} to {listed!r}, which is not a list of items.")
        own = list(listed.tolist() if isinstance(listed, np.ndarray) else listed)
        items.append(_encoded(table, own))
        users.append(np.full(len(own), k, dtype=np.int64))
    empty = np.empty(0, dtype=np.int64)
    return Pairs(np.concatenate([empty, *users]), np.concatenate([empty, *items]), list(source), table.ids())


def _encoded(table: ObjectTable, values: list[Any]) -> Codes:
    try:
        return table.encode_each(values).astype(np.int64)
    except TypeError as error:
        raise InvalidData(f"Ids must be numbers, strings or other hashable values: {error}.") from error


def _interleaved(
    users: tuple[Codes, list[Hashable]], items: tuple[Codes, list[Hashable]]
) -> tuple[Codes, Codes, list[Hashable], list[Hashable]]:
    return users[0], items[0], users[1], items[1]


class _Columns(NamedTuple):
    """The columns of a table, by role."""

    frame: Any
    names: dict[str, str]
    what: str

    @classmethod
    def of(cls, source: Table, what: str, columns: Mapping[str, str] | None) -> _Columns:
        """Open the table and find its columns."""
        native = _read_file(source) if isinstance(source, str | os.PathLike) else source
        if native is None or isinstance(native, np.ndarray | list | tuple | HeldOut | Split | Interactions):
            raise InvalidData(
                f"{what} must be {'' if what == 'lists' else 'Interactions, '}a data frame, an Arrow table or the path "
                f"of a file. Got {type(native).__name__} instead.",
                parameter=what,
            )
        frame, _ = open_frame(native)
        there = [str(name) for name in frame.columns]
        given = dict(columns or {})
        unknown = sorted(set(given) - set(LIST_COLUMNS))
        if unknown:
            raise InvalidData(f"columns has no role {unknown[0]!r}; there are {', '.join(LIST_COLUMNS)}.")
        names: dict[str, str] = {}
        for role, aliases in LIST_COLUMNS.items():
            if role in given:
                # Lists, test and train may be tables of one shape: a rank or score is not in all of them.
                if given[role] not in there and role in ("user", "item"):
                    raise InvalidData(f"{what} has no column {given[role]!r}; there are {', '.join(there)}.")
                found = given[role] if given[role] in there else None
            else:
                lower = {name.lower(): name for name in reversed(there)}
                found = next((lower[alias] for alias in aliases if alias in lower), None)
            if found is not None:
                names[role] = found
            elif role in ("user", "item"):
                raise InvalidData(
                    f"{what} has no column of {role}s; there are {', '.join(there) or 'none'}.",
                    hint=f"name it with columns={{'{role}': ...}}",
                )
        return cls(frame, names, what)

    @property
    def has_lists(self) -> bool:
        """Whether the column of items holds lists."""
        column = self._column("item")
        if isinstance(column, list):
            # Tuples are ids.
            return bool(column) and all(isinstance(value, list | np.ndarray) for value in column)
        kind = column.type
        return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))

    def ids(self, role: str) -> tuple[Codes, list[Hashable]]:
        """Return the codes of a column of ids, and the ids by code."""
        column, table = self._column(role), ObjectTable()
        if isinstance(column, list):
            empty = sum(is_missing(value) for value in column)
            codes = [_encoded(table, column)]
        else:
            empty = column.null_count
            chunks = [] if empty else column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            codes = [table.encode(chunk.cast(_plain_type(chunk.type))).astype(np.int64) for chunk in chunks]
        if empty:
            raise InvalidData(f"{self.what} has {empty:,} rows without {role} (column {self.names[role]!r}).")
        return np.concatenate([np.empty(0, dtype=np.int64), *codes]), table.ids()

    def lists(self) -> Pairs:
        """Return the lists of a table with one row per user."""
        users, user_ids = self.ids("user")
        if len(user_ids) != len(users):
            twice = int(np.flatnonzero(np.bincount(users) > 1)[0])
            raise InvalidData(f"lists has several rows with lists of user {user_ids[twice]!r}.", hint="give one each")
        column = self._column("item")
        values = column if isinstance(column, list) else column.to_pylist()
        return _from_mapping(dict(zip(user_ids, ([] if v is None else v for v in values), strict=True)))

    def numbers(self, role: str) -> NDArray[np.float64]:
        """Return a column of finite numbers."""
        name = self.names[role]
        try:
            values = np.asarray(self.frame.get_column(name).to_numpy(), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidData(f"Column {name!r} of {self.what} must hold numbers: {error}.") from error
        wrong = int((~np.isfinite(values)).sum())
        if wrong:
            raise InvalidData(f"Column {name!r} of {self.what} has {wrong:,} empty or infinite values.")
        return values

    def _column(self, role: str) -> Any:
        name = self.names[role]
        return frame_column(self.frame.get_column(name), name, True)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary (pandas categories), and any other type as it is."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _read_file(path: str | os.PathLike[str]) -> pa.Table:
    file = existing(path)
    ending = Path(file).suffix.lower()
    if file.is_dir() or ending in (".parquet", ".pq"):
        tables = []
        for part in parquet_files(file):
            with reading(part, "Parquet"):
                tables.append(pq.read_table(part))
        return pa.concat_tables(tables)
    if ending in (".arrow", ".feather", ".ipc"):
        with reading(file, "Arrow"):
            return pa_feather.read_table(file)
    if ending in (".csv", ".tsv"):
        with reading(file, "CSV"):
            options = pa_csv.ParseOptions(delimiter="\t" if ending == ".tsv" else ",")
            return pa_csv.read_csv(file, parse_options=options)
    if ending in (".jsonl", ".ndjson"):
        with reading(file, "JSON lines"):
            return pa_json.read_json(file)
    raise InvalidData(
        f"Cannot tell the format of '{file}'.", hint="use a name that ends in .parquet, .arrow, .csv, .tsv or .jsonl"
    )
