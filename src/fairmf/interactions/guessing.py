"""What kind of file this is, what its columns are called, and which of them is likely to be which."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairmf.interactions.arrow_reader import FEATHER_1, IPC_FILE, arrow_names
from fairmf.interactions.columns import ColumnName
from fairmf.interactions.csv_reader import check_text_options, guess_delimiter, sample_of
from fairmf.interactions.readers import existing, parquet_files, parquet_names, reading
from fairmf.interactions.text_source import TextSource

# In the order in which they are looked for; a name is one of these, perhaps with "id" or an "s", or holds one.
_NAMES = {
    "user": ("user", "customer", "member", "visitor", "client", "account", "reviewer", "profile", "uid", "session"),
    "item": (
        "item", "movie", "product", "track", "song", "artist", "book", "article", "business", "video", "asin", "sku",
        "iid", "title", "place", "poi", "venue", "game", "news",
    ),
    "time": ("timestamp", "time", "datetime", "date", "ts", "created", "when"),
    "rating": ("rating", "stars", "score", "overall"),
    "weights": ("weight", "confidence", "plays", "playcount", "count", "quantity", "frequency"),
}  # fmt: skip
_EPOCH = 1e8  # seconds since 1970 are larger than any rating


@dataclass(frozen=True)
class Peek:
    """The first look at a file: "csv", "parquet" or "arrow", its columns, and for text how it is cut."""

    kind: str
    names: tuple[ColumnName, ...]
    delimiter: str | None = None
    header: bool = True
    first_row: tuple[str, ...] = ()


def peek(path: str | Path, *, delimiter: str | None = None, header: bool | None = None, encoding: str = "utf8") -> Peek:
    """Look at the beginning of a file, or at the first Parquet file of a folder."""
    file = existing(path)
    if file.is_dir():
        return Peek("parquet", tuple(parquet_names(parquet_files(file)[0])))
    with file.open("rb") as opened:
        start = opened.read(8)
    suffix = file.suffix.lower()
    if start.startswith(b"PAR1") or suffix in (".parquet", ".pq"):
        return Peek("parquet", tuple(parquet_names(file)))
    if start.startswith((IPC_FILE, FEATHER_1)) or suffix in (".arrow", ".arrows", ".feather", ".ipc"):
        return Peek("arrow", tuple(arrow_names(file)))
    return _peek_text(file, delimiter, header, encoding)


def _peek_text(file: Path, delimiter: str | None, header: bool | None, encoding: str) -> Peek:
    check_text_options(delimiter, encoding)
    with reading(file, "CSV"):
        sample = sample_of(TextSource.of_file(file), encoding)
    cut = delimiter or guess_delimiter(sample)
    lines = [line for line in sample.splitlines() if line.strip()]
    rows = [row[:: len(cut)] for row in csv.reader(lines[:2], delimiter=cut[0])]
    first = [cell.strip() for cell in rows[0]]
    has_header = not any(_is_number(cell) for cell in first) if header is None else header
    if has_header:
        return Peek("csv", tuple(first), cut, True, tuple(rows[1]) if len(rows) > 1 else ())
    return Peek("csv", tuple(range(len(first))), cut, False, tuple(first))


def guess_columns(seen: Peek) -> dict[str, ColumnName]:
    """The likely column of each role: user, item, time, rating, weights. A role without one is left out."""
    if not seen.header:
        return _by_position(seen)
    found: dict[str, ColumnName] = {}
    for role in _NAMES:
        taken = set(found.values())
        name = _named(role, [name for name in seen.names if name not in taken])
        if name is not None:
            found[role] = name
    if "user" not in found and "item" not in found and len(seen.names) == 2:
        found["user"], found["item"] = seen.names
    return found


def _named(role: str, names: Sequence[ColumnName]) -> ColumnName | None:
    plain = {name: re.sub(r"[^a-z0-9]", "", str(name).lower()) for name in names}
    for word in _NAMES[role]:
        for name, text in plain.items():
            if text in (word, f"{word}id", f"{word}s", f"{word}ids", f"id{word}"):
                return name
    for word in _NAMES[role]:
        for name in names:
            # As a word of its own: "user_name", "userSha1", but no "count" in "country".
            if len(word) > 3 and word in re.findall(r"[a-z]+", re.sub(r"([A-Z])", r" \1", str(name)).lower()):
                return name
    return None


def _by_position(seen: Peek) -> dict[str, ColumnName]:
    """User, item, perhaps a rating, perhaps a time: the way such files are usually written."""
    found: dict[str, ColumnName] = dict(zip(("user", "item"), seen.names, strict=False))
    for name, cell in list(zip(seen.names, seen.first_row, strict=False))[2:4]:
        if _is_number(cell):
            role = "time" if abs(float(cell)) >= _EPOCH else "rating"
            found.setdefault(role, name)
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
