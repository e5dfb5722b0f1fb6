"""Ids to integer codes, batch by batch: a dictionary that grows as new ids appear."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import InvalidData
from fairmf.interactions.ids import Ids, plain


class IdEncoder:
    """Gives every id the next free code when it first appears.

    Arrow finds the distinct ids of a batch; only those few pass through the Python dictionary.
    """

    def __init__(self, column: str | int):
        self.column = column
        self._codes: dict[Hashable, int] = {}
        self._kind: str | None = None

    def encode(self, values: Any) -> NDArray[np.int32]:
        """Codes of one batch without missing values: an Arrow array, or a list of Python objects."""
        if isinstance(values, list):
            return self._encode_each(values)
        import pyarrow as pa

        array = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        if isinstance(array, pa.ExtensionArray):
            return self._encode_each(array.to_pylist())
        self._check_kind(array.type)
        try:
            encoded = array.dictionary_encode()
        except pa.ArrowNotImplementedError:  # lists, structs: Arrow has no dictionary of these
            return self._encode_each([_hashable(value) for value in array.to_pylist()])
        # Arrow's dictionary is in order of first appearance, so codes are too.
        known = self._encode_each(encoded.dictionary.to_pylist())
        codes: NDArray[np.int32] = known[encoded.indices.to_numpy(zero_copy_only=False)]
        return codes

    def ids(self) -> Ids:
        """All ids seen, by code."""
        if len(self._codes) >= 2**31:
            raise InvalidData(
                f"Column {self.column!r} holds 2^31 or more different ids, more than an int32 can number."
            )
        return Ids(list(self._codes))

    def _encode_each(self, values: Sequence[Any]) -> NDArray[np.int32]:
        codes = self._codes
        try:
            found = (codes.setdefault(plain(value), len(codes)) for value in values)
            return np.fromiter(found, dtype=np.int32, count=len(values))
        except TypeError as error:
            raise InvalidData(
                f"Column {self.column!r} holds ids that cannot be hashed ({error}); "
                f"use numbers, strings or tuples instead."
            ) from error

    def _check_kind(self, arrow_type: Any) -> None:
        import pyarrow as pa

        # 7 and "7" would be two ids: a column that changes its type from file to file is a mistake in the data.
        kind = "integers" if pa.types.is_integer(arrow_type) else str(arrow_type)
        kind = "text" if "string" in kind else kind
        if self._kind not in (None, kind):
            raise InvalidData(
                f"Column {self.column!r} holds {self._kind} in one file and {kind} in another; "
                f"write it with one type in all of them."
            )
        self._kind = kind


def _hashable(value: Any) -> Any:
    return tuple(_hashable(part) for part in value) if isinstance(value, list) else value
