"""Find the columns of users, items, weights, times and ratings in a table, and read their values."""

from __future__ import annotations

import contextlib
import datetime
import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, TypeAlias, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.errors import InvalidData, InvalidParameter
from fairmf.lazy import lazy_module

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from fairmf.data.half_life import HalfLife
else:
    pa = lazy_module("pyarrow")
    pc = lazy_module("pyarrow.compute")

ColumnName: TypeAlias = str | int


@dataclass(frozen=True)
class TextFormat:
    """Hold how delimited text is written; see `read_csv`."""

    delimiter: str | None = None
    header: bool = True
    text_ids: bool = False
    encoding: str = "utf8"


class TextKeywords(TypedDict, total=False):
    """The fields of `TextFormat` as keywords of the functions that read text."""

    delimiter: str | None
    header: bool
    text_ids: bool
    encoding: str


@dataclass(frozen=True)
class Merging:
    """Hold how events become interactions; see `Interactions.from_events`."""

    min_user: int = 0
    min_item: int = 0
    half_life: float | HalfLife | None = None


class TableKeywords(TypedDict, total=False):
    """The fields of `Columns` and `Merging` as keywords of `Interactions.from_frame` and its siblings."""

    user: ColumnName
    item: ColumnName
    time: ColumnName | None
    rating: ColumnName | None
    rating_above: float | None
    min_user: int
    min_item: int
    half_life: float | HalfLife | None


class TextTableKeywords(TableKeywords, TextKeywords, total=False):
    """The keywords of `Interactions.from_csv`."""


IDS = ("user", "item")
"""The roles whose columns hold ids."""
SYNONYMS = {
    "user": ("user", "customer", "member", "visitor", "client", "reviewer", "uid", "account", "profile", "session"),
    "item": (
        "item", "movie", "product", "track", "song", "artist", "book", "isbn", "article", "business", "video", "asin",
        "sku", "iid", "place", "poi", "venue", "game", "news", "title",
    ),
    "time": ("timestamp", "time", "datetime", "date", "ts", "created", "when"),
    "rating": ("rating", "stars", "star", "score", "overall", "grade"),
    "weights": ("weight", "confidence", "plays", "playcount", "count", "quantity", "frequency"),
}  # fmt: skip
"""Words that name a column of each role, in lower case and without "id"; the most general word comes first."""
ITEM_TITLES = ("title", "name", "label")
ITEM_GROUPS = (
    "group", "genre", "category", "categories", "provider", "seller", "publisher", "artist", "brand", "author",
)  # fmt: skip
"""Words that name the columns of titles and groups in a table of items; the best first."""
LIST_COLUMNS = {
    "user": ("user", "user_id", "userid", "query_id", "q_id"),
    "item": ("item", "item_id", "itemid", "items", "doc_id"),
    "rank": ("rank",),
    "score": ("score", "scores"),
}
"""Names of columns in a table of lists, where none is given; the first that is there counts. Case does not matter."""
# These words name the id even without "id" beside them; a column "track" or "book" may also hold titles.
_ITEM_CODES = {"item", "iid", "asin", "isbn", "sku"}


def words_of(name: ColumnName) -> list[str]:
    """Return the words of a column's name: "user", "id" for userId, USER_ID, "User ID" and userid."""
    # Runs of capitals (USER), or words that may begin with one (userId: user, Id).
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", str(name))
    return [word for part in parts for word in _divided(part.lower())]


def _divided(word: str) -> list[str]:
    """Split words written together, such as "userid" or "idmovie"; return any other word alone."""
    for ending in ("id", "ids", "name"):
        if word.endswith(ending) and any(role_word(role, word.removesuffix(ending)) for role in IDS):
            return [word.removesuffix(ending), ending]
    if word.startswith("id") and any(role_word(role, word[2:]) for role in IDS):
        return ["id", word[2:]]
    return [word]


def role_word(role: str, word: str) -> str | None:
    """Return the role's synonym that this word (or its singular) is, or None."""
    return next((known for known in SYNONYMS[role] if word in (known, f"{known}s")), None)


def is_item_id(name: ColumnName) -> bool:
    """Return whether the name of a column says that it holds item ids: "id", "item", "movieId"."""
    words = words_of(name)
    own = [word for word in words if role_word("item", word) is not None]
    rest = [word for word in words if word not in own]
    return rest == ["id"] if len(own) != 1 or rest else own[0] in _ITEM_CODES


def item_column(names: Iterable[str], words: Sequence[str]) -> str | None:
    """Return the column that one of the words names, alone or beside a word for items: "title", "Book-Title"."""
    listed = list(names)
    for word in words:
        for name in listed:
            *others, last = words_of(name) or [""]
            if last in (word, f"{word}s") and all(role_word("item", part) for part in others):
                return name
    return None


_LISTED = 20  # column names that an error message shows


@dataclass(frozen=True)
class Columns:
    """Name the columns to read. Rows whose rating is not above `rating_above` are dropped."""

    user: ColumnName = "user"
    item: ColumnName = "item"
    weights: ColumnName | None = None
    time: ColumnName | None = None
    rating: ColumnName | None = None
    rating_above: float | None = None

    def __post_init__(self) -> None:
        if self.rating_above is not None and self.rating is None:
            raise InvalidParameter(
                "'rating_above' needs a column of ratings.",
                hint="name it, such as {parameter}='rating'",
                parameter="rating",
            )
        if self.rating is not None and self.rating_above is None:
            raise InvalidParameter(
                "'rating' needs a threshold.",
                hint=f"set one, such as {{parameter}}=3.5, or use {self.rating!r} as weights",
                parameter="rating_above",
            )
        if self.rating_above is not None and not _is_number(self.rating_above):
            raise InvalidParameter(
                f"'rating_above' must be a number. Got {self.rating_above!r} instead.", parameter="rating_above"
            )
        if self.user == self.item:
            raise InvalidParameter(
                f"'user' and 'item' must be two different columns. Both are {self.user!r}.",
                hint="name another column with {parameter}",
                parameter="item",
            )

    @property
    def roles(self) -> dict[str, ColumnName]:
        """Map each role that is used to its column."""
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
        """Columns to read, each once."""
        return list(dict.fromkeys(self.roles.values()))

    def check(self, available: Sequence[ColumnName], source: str) -> None:
        """Raise InvalidData if `source` does not have one of the columns, or has it twice."""
        for role, name in self.roles.items():
            there = available.count(name)
            if there > 1:
                raise InvalidData(f"{source} has {there} columns named {name!r}.", hint="rename all but one")
            if there == 0:
                raise _missing(role, name, available, source)


def _missing(role: str, name: ColumnName, available: Sequence[ColumnName], source: str) -> InvalidData:
    if not available:
        return InvalidData(f"Column {name!r} is not in {source}, which has no columns.", parameter=role)
    listed = ", ".join(repr(column) for column in available[:_LISTED])
    if len(available) > _LISTED:
        listed += f" and {len(available) - _LISTED:,} more"
    likely = closest(role, name, available)
    hint = "name the right one with {parameter}=" if likely is None else f"did you mean {{parameter}}={likely!r}?"
    return InvalidData(f"Column {name!r} is not in {source}, whose columns are {listed}.", hint=hint, parameter=role)


def closest(role: str, name: ColumnName, available: Sequence[ColumnName]) -> ColumnName | None:
    """Return the column most likely meant by `name`, or None."""
    # Reversed here and below: of names that differ only in case, the first one wins.
    by_text = {str(column).lower(): column for column in reversed(available)}
    # A misspelt name first, then a synonym of the role.
    near = difflib.get_close_matches(str(name).lower(), list(by_text), n=1, cutoff=0.6)
    if near:
        return by_text[near[0]]
    for word in SYNONYMS[role]:
        for text in reversed(by_text):
            # Short words are in too many others ("ts" in "points"), so these must stand alone.
            if word in text if len(word) > 3 else word in words_of(by_text[text]):
                return by_text[text]
    return None


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


class BadValues:
    """Count bad values over all batches and remember where the first one was."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int]] = {}

    def add(self, what: str, bad: NDArray[np.bool_], rows: NDArray[np.int64] | int = 0) -> None:
        """Note where `bad` is true. `rows` are the row numbers of its entries, or the number of the first."""
        where = np.flatnonzero(bad)
        if len(where) == 0:
            return
        row = int(rows + where[0]) if isinstance(rows, int) else int(rows[where[0]])
        # Batches arrive in the order of the file, so the first row that was noted stays the first.
        count, first = self._found.get(what, (0, row))
        self._found[what] = count + len(where), first

    def add_weights(self, weights: NDArray[np.floating], rows: NDArray[np.int64] | int = 0) -> None:
        """Note the weights that cannot be confidences."""
        self.add("NaN or missing", np.isnan(weights), rows)
        self.add("infinite", np.isinf(weights), rows)

    def check(self, subject: str, remedy: str) -> None:
        """Raise InvalidData if anything was noted."""
        if self._found:
            counts = " and ".join(f"{count:,} {what}" for what, (count, _) in self._found.items())
            first = min(row for _, row in self._found.values())
            raise InvalidData(f"{subject} holds {counts}, the first in row {first:,} (counting from 0).", hint=remedy)


def check_weights(weights: NDArray[np.floating], subject: str) -> None:
    """Raise InvalidData unless every weight is finite. Weights below 0 are dislikes."""
    bad = BadValues()
    bad.add_weights(weights)
    bad.check(subject, "weights must be finite, so remove or correct these rows")


def missing(values: pa.Array) -> NDArray[np.bool_]:
    """Return which entries of an Arrow array are null or NaN; an empty array where none can be."""
    floating = pa.types.is_floating(values.type)
    # The usual case, for which pyarrow.compute need not be loaded.
    if values.null_count == 0 and not floating:
        return np.zeros(0, dtype=bool)
    mask: NDArray[np.bool_] = pc.is_null(values, nan_is_null=floating).to_numpy(zero_copy_only=False)
    return mask


def to_numbers(values: pa.Array, column: ColumnName, role: str) -> NDArray[np.float64]:
    """Convert an Arrow array to float64, with NaN for missing values."""
    array = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    kind, is_kind = array.type, pa.types
    numeric = (is_kind.is_integer, is_kind.is_floating, is_kind.is_decimal, is_kind.is_boolean, is_kind.is_null)
    if not any(check(kind) for check in numeric):
        raise InvalidData(
            f"Column {column!r} is used as {role} and must hold numbers, but it holds {kind}.", hint="convert it first"
        )
    # Not safe: Arrow would refuse integers beyond 2^53, which are merely rounded.
    numbers: NDArray[np.float64] = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def to_times(values: pa.Array, column: ColumnName) -> tuple[NDArray[np.int64] | NDArray[np.float64], str | None]:
    """Return an Arrow array without nulls as times, and their unit: None for numbers, "us" for dates.

    Text must hold dates as ISO 8601 writes them, such as 2024-01-31 or 2024-01-31 12:30:00.
    """
    array, kind, unit = values, values.type, None
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        array = _dates(array, column)
        kind = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        # One unit for all sources: pandas, polars and Parquet each have another default.
        array = array.cast(pa.timestamp("us", tz=getattr(kind, "tz", None)), safe=False).cast(pa.int64())
        unit = "us"
    elif pa.types.is_integer(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        array = array.cast(pa.float64(), safe=False)
    else:
        raise InvalidData(
            f"Column {column!r} is used as time and must hold numbers, dates or timestamps, but it holds {kind}.",
            hint="convert it first",
        )
    times: NDArray[np.int64] = array.to_numpy(zero_copy_only=False)
    return times, unit


def _dates(texts: pa.Array, column: ColumnName) -> pa.Array:
    for zone in (None, "UTC"):  # Arrow has one type for dates with a zone and another for dates without
        with contextlib.suppress(pa.ArrowInvalid):
            return texts.cast(pa.timestamp("us", tz=zone))
    raise InvalidData(
        f"Column {column!r} is used as time and must hold numbers, dates or timestamps such as 2024-01-31 12:30:00, "
        f"all with a zone or all without, but it holds text such as {texts[0].as_py()!r}.",
        hint="convert it first",
    )


# The ranges of the units do not overlap: seconds from 1973 to 2128 are 1e8 to 5e9, milliseconds 1e11 to 5e12.
TIME_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EARLIEST, _LATEST = 1e8, 5e9


def time_unit(times: ArrayLike) -> str | None:
    """Guess the unit of times since 1970 from their size: "s", "ms", "us" or "ns"; None where it is not clear.

    Zeros and other values outside of all units (times that are not known) are allowed if they are fewer than half.
    """
    values = np.asarray(times)
    return likely_unit(unit_counts(values), len(values))


def unit_counts(times: ArrayLike) -> dict[str, int]:
    """Return how many times lie in the range of each unit."""
    values = np.asarray(times)
    return {
        unit: int(np.count_nonzero((values >= _EARLIEST * scale) & (values < _LATEST * scale)))
        for unit, scale in TIME_UNITS.items()
    }


def likely_unit(counts: Mapping[str, int], size: int) -> str | None:
    """Return the unit of `size` times, from the counts of all their parts; see `time_unit`."""
    found = [unit for unit, count in counts.items() if count]
    return found[0] if len(found) == 1 and 2 * counts[found[0]] > size else None


def date_text(time: float, unit: str | None) -> str:
    """Write a time as a date and hour in UTC, or as a number where its unit is not known."""
    if unit is None:
        return f"{time:,}"
    moment = np.asarray(int(time)).astype(f"datetime64[{unit}]")
    return str(moment.astype("datetime64[m]")).replace("T", " ")


def since_1970(value: object) -> int | None:
    """Return a date as nanoseconds since 1970 (UTC), or None if the value is not a date."""
    if isinstance(value, str) and (zoned := _date_with_zone(value)) is not None:
        value = zoned
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    if not isinstance(value, (str, datetime.date, np.datetime64)):
        return None
    try:
        moment = np.datetime64(value)
    except ValueError:
        return None
    if np.isnat(moment):
        return None
    # Microseconds reach from year -290000 to 294000; nanoseconds end in 2262, so use them only for finer dates.
    if np.datetime_data(moment.dtype)[0] in ("ns", "ps", "fs", "as"):
        return int(moment.astype("datetime64[ns]").astype(np.int64))
    return 1000 * int(moment.astype("datetime64[us]").astype(np.int64))


def _date_with_zone(text: str) -> datetime.datetime | None:
    """Parse a date with a time zone, such as 2024-01-31T12:00:00Z, which NumPy refuses; None for other text."""
    try:
        found = datetime.datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip()))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
