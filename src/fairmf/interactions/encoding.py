"""Ids to integer codes, batch by batch: a table that grows as new ids appear."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData
from fairmf.interactions.id_tables import IntegerTable, ObjectTable, TextTable
from fairmf.interactions.ids import Ids
from fairmf.interactions.text_words import TextWords

# Below this many rows a Python dictionary is quicker than loading compiled code.
_MANY_ROWS = 1 << 19


class IdEncoder:
    """Gives every id the next free code when it first appears.

    Once there are many rows, integers and text have compiled tables; all else, and integers beyond 64 bits, always pass
    through a Python dictionary. `many` says from the start that there will be.
    """

    def __init__(self, column: str | int, many: bool = False):
        self.column = column
        self._many = many
        self._table: IntegerTable | TextTable | ObjectTable = ObjectTable()
        self._rows = 0
        self._tried = False
        self._kind: str | None = None

    def encode(self, values: Any) -> NDArray[np.int32]:
        """Codes of one batch without missing values: an Arrow array, TextWords, or a list of objects."""
        try:
            if isinstance(values, TextWords):
                return self._encode_words(values)
            return self._objects().encode_each(values) if isinstance(values, list) else self._encode_arrow(values)
        except TypeError as error:
            raise InvalidData(
                f"Column {self.column!r} holds ids that cannot be hashed ({error}); "
                f"use numbers, strings or tuples instead."
            ) from error
        except OverflowError as error:
            raise InvalidData(
                f"Column {self.column!r} holds 2^31 or more different ids, more than an int32 can number."
            ) from error

    def ids(self) -> Ids:
        """All ids seen, by code."""
        try:
            return Ids(self._table.ids())
        except UnicodeDecodeError as error:
            raise InvalidData(f"Column {self.column!r} holds text that is not UTF-8: {error}.") from error

    def _encode_words(self, values: TextWords) -> NDArray[np.int32]:
        # A reader that gives words gives nothing else, so this is the first batch or the table is there.
        if not isinstance(self._table, TextTable):
            self._table = TextTable()
        return self._table.encode_words(values)

    def _encode_arrow(self, values: Any) -> NDArray[np.int32]:
        import pyarrow as pa

        array = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        if isinstance(array, pa.ExtensionArray):
            return self._objects().encode(array)
        self._check_kind(array.type)
        fitting = _table_of(array.type)
        self._rows += len(array)
        if not self._tried and fitting is not None and (self._many or self._rows >= _MANY_ROWS):
            self._tried = True
            self._compile(fitting(), array.type)
        if fitting is not None and isinstance(self._table, fitting):
            try:
                return self._table.encode(array)
            except pa.ArrowInvalid:  # an unsigned integer from 2^63 on
                pass
        return self._objects().encode(array)

    def _compile(self, table: IntegerTable | TextTable, arrow_type: Any) -> None:
        """Go over to a compiled table, which takes over the codes given so far."""
        import pyarrow as pa

        known = self._table.ids()
        with contextlib.suppress(pa.ArrowInvalid, OverflowError):  # integers beyond 64 bits stay where they are
            if len(known):
                table.encode(pa.array(known, type=arrow_type))
            self._table = table

    def _objects(self) -> ObjectTable:
        """The table for anything, which takes over the codes given so far."""
        if not isinstance(self._table, ObjectTable):
            self._table = ObjectTable(self._table.ids().tolist())
        return self._table

    def _check_kind(self, arrow_type: Any) -> None:
        # 7 and "7" would be two ids: a column that changes its type from file to file is a mistake in the data.
        kind = kind_of(arrow_type)
        if self._kind not in (None, kind):
            raise InvalidData(
                f"Column {self.column!r} holds {self._kind} in one file and {kind} in another; "
                f"write it with one type in all of them."
            )
        self._kind = kind


def kind_of(arrow_type: Any) -> str:
    """What ids of this type are: those of one column must all be of one kind."""
    import pyarrow as pa

    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    kind = "integers" if pa.types.is_integer(arrow_type) else str(arrow_type)
    return "text" if "string" in kind else kind


def _table_of(arrow_type: Any) -> type[IntegerTable] | type[TextTable] | None:
    import pyarrow as pa

    if pa.types.is_integer(arrow_type):
        return IntegerTable
    return TextTable if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) else None
