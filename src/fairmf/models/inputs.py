"""What a model takes as data: Interactions, or a SciPy sparse matrix with users as rows."""

from __future__ import annotations

import warnings
from typing import Any

import scipy.sparse as sp

from fairmf.errors import InvalidData
from fairmf.interactions import Interactions


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
