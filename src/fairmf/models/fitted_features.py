"""Hold what a model learned from features: predict vectors from them, and say what each feature does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairmf.backends.contract import Factors, Vector
from fairmf.data.csr import Rows, replace_rows
from fairmf.data.features import Encoder, matrix_of, rows_of_features
from fairmf.data.stored_arrays import check_offsets
from fairmf.errors import InvalidData
from fairmf.io.container import Arrays
from fairmf.io.strict_json import Malformed
from fairmf.types import Record


@dataclass(frozen=True, eq=False)
class FittedFeatures:
    """The features of all items (or users) of a model, and the map M that predicts their vectors."""

    rows: Rows
    """One sparse row of features for each."""
    map: Factors
    """M, one row per feature, in the basis of the factors."""
    counted: NDArray[np.bool_]
    """Which of them were trained from interactions, and so count in the objective (m, G_V)."""
    encoder: Encoder | None = None
    """How a table becomes rows of features; None where a matrix was given."""

    @property
    def n_counted(self) -> int:
        """Number of rows that count in the objective."""
        return int(self.counted.sum())

    @property
    def gramian_weights(self) -> Vector | None:
        """Which items count in G_V, as 1 and 0: not those that were left out (docs/mathematics.md 11). None for all."""
        return None if self.counted.all() else self.counted.astype(np.float64)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every feature: `genre=Drama`; its number, where a matrix was given."""
        return tuple(map(str, range(len(self.map)))) if self.encoder is None else self.encoder.names

    def predicted(self, rows: Rows | None = None) -> Factors:
        """Return M'x for these rows of features, by default all stored ones."""
        own = self.rows if rows is None else rows
        vectors: Factors = matrix_of(own, len(self.map)) @ self.map
        return vectors

    def encoded(self, given: Any, kind: str, names: Sequence[Any] | None = None) -> tuple[list[Any] | None, Rows]:
        """Return the ids and the feature rows of new items or users: a table, or a matrix with as many columns.

        With `names`, the rows are those of these ids, in their order.
        """
        ids: list[Any] | None = None
        if isinstance(given, Rows):  # encoded already
            return None, given
        if sp.issparse(given) or isinstance(given, np.ndarray):
            matrix = given
        elif self.encoder is None:
            raise InvalidData(f"This model was fitted with a matrix of {kind} features: give a matrix again.")
        else:
            ids, matrix = self.encoder.encode(given)
            if names is not None:
                place = {name: k for k, name in enumerate(ids)}
                lacking = [name for name in names if name not in place]
                if lacking:
                    raise InvalidData(f"The table of features has no row for {kind} {lacking[0]!r}.")
                matrix = matrix[[place[name] for name in names]]
        rows, width = rows_of_features(np.atleast_2d(matrix) if isinstance(matrix, np.ndarray) else matrix, kind)
        if width != len(self.map):
            raise InvalidData(f"The model was fitted with {len(self.map):,} {kind} features; got {width:,}.")
        return ids, rows

    def with_rows(self, where: NDArray[np.int64], rows: Rows, counted: NDArray[np.bool_] | bool) -> FittedFeatures:
        """Return a copy in which these rows are appended or replaced."""
        flags = np.zeros(max(len(self.counted), int(where.max(initial=-1)) + 1), dtype=bool)
        flags[: len(self.counted)] = self.counted
        flags[where] = counted
        return replace(self, rows=replace_rows(self.rows, where, rows), counted=flags)

    def without_rows(self) -> FittedFeatures:
        """Return a copy that knows nobody's features, but predicts vectors from new ones."""
        none = Rows(np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32), None)
        return replace(self, rows=none, counted=np.zeros(0, dtype=bool))

    # -- files ------------------------------------------------------------------------------------------------------

    def describe(self) -> Record:
        """Return what a file's document holds: the encoder."""
        return {"encoder": None if self.encoder is None else self.encoder.to_dict()}

    def to_arrays(self, name: str) -> Arrays:
        """Return the arrays that a file holds."""
        arrays: Arrays = {
            f"{name}.indptr": self.rows.indptr, f"{name}.indices": self.rows.indices, f"{name}.map": self.map,
            f"{name}.counted": self.counted.astype(np.uint8),
        }  # fmt: skip
        if self.rows.weights is not None:
            arrays[f"{name}.weights"] = self.rows.weights
        return arrays

    @classmethod
    def from_arrays(cls, name: str, stored: object, size: int, d: int, arrays: Arrays) -> FittedFeatures:
        """Rebuild the features of `size` rows from their arrays; raise Malformed if they do not fit together."""
        parts = ("indptr", "indices", "weights", "map", "counted")
        indptr, indices, weights, M, counted = (arrays.pop(f"{name}.{part}", None) for part in parts)
        if indptr is None or indices is None or M is None or counted is None or not isinstance(stored, dict):
            raise Malformed(f"its {name} are incomplete")
        check_offsets(f"its {name}", indptr, size, len(indices))
        if M.ndim != 2 or M.shape[1] != d or M.dtype.str[1:] not in ("f4", "f8") or not np.isfinite(M).all():
            raise Malformed(f"the map of its {name} is not features x {d} numbers")
        if indices.dtype != np.int32 or (len(indices) and not 0 <= indices.min() <= indices.max() < len(M)):
            raise Malformed(f"its {name} name features that do not exist")
        if weights is not None and (weights.dtype != np.float32 or weights.shape != indices.shape):
            raise Malformed(f"its {name} have no value each")
        if weights is not None and not np.isfinite(weights).all():
            raise Malformed(f"its {name} hold numbers that are not finite")
        if counted.shape != (size,) or counted.dtype != np.uint8 or counted.max(initial=0) > 1:
            raise Malformed(f"its {name} do not say which rows were trained")
        encoder = None
        if stored.get("encoder") is not None:
            try:
                encoder = Encoder.from_dict(stored["encoder"])
            except (KeyError, TypeError, ValueError) as error:
                raise Malformed(f"the encoder of its {name} is damaged: {error}") from error
            if len(encoder.names) != len(M):
                raise Malformed(f"the encoder of its {name} has another number of features than their map")
        return cls(Rows(indptr, indices, weights), M, counted.astype(bool), encoder)

    # -- what features do ---------------------------------------------------------------------------------------------

    def effects(
        self, column: str | None, mean: NDArray[np.float64], spreads: Callable[[NDArray[np.float64]], Vector]
    ) -> list[Record]:
        """Return what each feature of a column adds to scores, the largest first.

        `mean` is the mean vector of the other side: `effect` is what one unit of the feature adds to the mean score,
        `spread` the standard deviation of what it adds to the scores of different users (or items), by `spreads`.
        """
        chosen = range(len(self.map))
        if column is not None:
            blocks = {} if self.encoder is None else self.encoder.blocks()
            if column not in blocks:
                known = ", ".join(map(repr, blocks)) or "none: the model was fitted with a matrix"
                raise InvalidData(f"There are no features {column!r}. Columns are {known}.")
            chosen = range(*blocks[column].indices(len(self.map)))
        M, names = self.map[chosen].astype(np.float64), self.names
        counts = np.bincount(self.rows.indices, minlength=len(self.map))
        spread, effect = spreads(M), M @ mean
        order = np.argsort(-effect, kind="stable")
        return [
            {"feature": names[chosen[k]], "rows": int(counts[chosen[k]]), "effect": float(effect[k]),
             "spread": float(spread[k])}
            for k in order
        ]  # fmt: skip
