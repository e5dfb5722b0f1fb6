"""Which column of a table plays which part, and a helpful error where it is not there."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TypeAlias

from fairmf.errors import InvalidData, InvalidParameter

ColumnName: TypeAlias = str | int

# What such columns are often called, so that an error can point at the likely one.
_OTHER_NAMES = {
    "user": ("user", "customer", "member", "visitor", "uid"),
    "item": ("item", "movie", "product", "track", "song", "artist", "book", "article", "iid"),
    "weights": ("weight", "count", "play"),
    "time": ("time", "date"),
    "rating": ("rating", "score", "star"),
}
_LISTED = 20


@dataclass(frozen=True)
class Columns:
    """The names of the columns to read. Rows whose rating is not above `rating_above` are left out."""

    user: ColumnName = "user"
    item: ColumnName = "item"
    weights: ColumnName | None = None
    time: ColumnName | None = None
    rating: ColumnName | None = None
    rating_above: float | None = None

    def __post_init__(self) -> None:
        if self.rating_above is not None and self.rating is None:
            raise InvalidParameter("'rating_above' needs the name of the rating column, such as rating='rating'.")
        if self.rating is not None and self.rating_above is None:
            raise InvalidParameter(
                f"'rating' needs a threshold, such as rating_above=3.5; to use {self.rating!r} as confidences "
                f"give weights={self.rating!r} instead."
            )
        if self.rating_above is not None and not _is_number(self.rating_above):
            raise InvalidParameter(f"'rating_above' must be a number. Got {self.rating_above!r} instead.")
        if self.user == self.item:
            raise InvalidParameter(f"'user' and 'item' must be two different columns. Both are {self.user!r}.")

    @property
    def roles(self) -> dict[str, ColumnName]:
        """Role -> column, for the columns that are used."""
        named = {
            "user": self.user,
            "item": self.item,
            "weights": self.weights,
            "time": self.time,
            "rating": self.rating,
        }
        return {role: name for role, name in named.items() if name is not None}

    @property
    def names(self) -> list[ColumnName]:
        """The columns to read, each once."""
        return list(dict.fromkeys(self.roles.values()))

    def check(self, available: Sequence[ColumnName], source: str) -> None:
        """Raise InvalidData if a column is not among those of `source`, or is there twice."""
        for role, name in self.roles.items():
            there = available.count(name)
            if there > 1:
                raise InvalidData(f"{source} has {there} columns named {name!r}; rename all but one.")
            if there == 0:
                raise InvalidData(_missing(role, name, available, source))


def _missing(role: str, name: ColumnName, available: Sequence[ColumnName], source: str) -> str:
    if not available:
        return f"Column {name!r} is not in {source}, which has no columns."
    listed = ", ".join(repr(column) for column in available[:_LISTED])
    if len(available) > _LISTED:
        listed += f" and {len(available) - _LISTED:,} more"
    likely = closest(role, name, available)
    advice = f"did you mean {role}={likely!r}?" if likely is not None else f"name the right one with {role}=."
    return f"Column {name!r} is not in {source}, whose columns are {listed}; {advice}"


def closest(role: str, name: ColumnName, available: Sequence[ColumnName]) -> ColumnName | None:
    """The column most likely meant by `name`, or None."""
    by_text = {str(column).lower(): column for column in reversed(available)}
    near = difflib.get_close_matches(str(name).lower(), list(by_text), n=1, cutoff=0.6)
    if near:
        return by_text[near[0]]
    for word in _OTHER_NAMES[role]:
        for text in reversed(by_text):
            if word in text:
                return by_text[text]
    return None


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
