"""Guess the format of a file and which columns hold users, items, times, ratings and weights, with reasons."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairmf.data.columns import IDS, SYNONYMS, ColumnName, role_word, time_unit, words_of
from fairmf.data.read import FEATHER_1, IPC_FILE, arrow_names, existing, parquet_files, parquet_names, reading
from fairmf.data.read_csv import check_text_options, sample_of, table_rows
from fairmf.data.text_source import TextSource, guess_delimiter

# Weak synonyms: used only where no column is named by another synonym of the same role.
_WEAK = {"account", "profile", "session", "title"}
# Words that may stand beside a synonym in the name of an id column; with any other word it holds something else.
_OF_AN_ID = {"id", "ids", "key", "code", "no", "nr", "number", "uuid", "guid", "sha", "hash", "index", "idx", "name"}
# Together with the synonyms for times, ratings and weights: words that never name an id column.
_NO_IDS = {"price", "amount", "value", "year", "age", "rank"}


@dataclass(frozen=True)
class Peek:
    """Hold what `peek` found: the format ("csv", "parquet" or "arrow"), the columns, and for text how to cut it."""

    kind: str
    names: tuple[ColumnName, ...]
    delimiter: str | None = None
    header: bool = True
    first_row: tuple[str, ...] = ()


def peek(path: str | Path, *, delimiter: str | None = None, header: bool | None = None, encoding: str = "utf8") -> Peek:
    """Read the beginning of a file, or of the first Parquet file in a folder, to find its format and columns."""
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
    source = TextSource.of_file(file)
    with reading(file, "CSV"):
        cut = delimiter or guess_delimiter(sample_of(source, encoding))
        rows = table_rows(source, cut, encoding, most=2)
    first = [cell.strip() for cell in rows[0]]
    # A header names columns by words: a number shows that the first line is data.
    has_header = not any(_is_number(cell) for cell in first) if header is None else header
    if has_header:
        return Peek("csv", tuple(first), cut, True, tuple(rows[1]) if len(rows) > 1 else ())
    return Peek("csv", tuple(range(len(first))), cut, False, tuple(first))


@dataclass(frozen=True)
class Guess:
    """Hold the likely column of each role (user, item, time, rating, weights), the reasons, and undecided roles."""

    columns: dict[str, ColumnName]
    reasons: dict[str, str]
    choices: dict[str, tuple[ColumnName, ...]]
    """For each undecided role, the columns that are equally likely; `columns` does not have it."""


def guess_columns(seen: Peek) -> Guess:
    """Guess the column of each role by its name, or by its position where there is no header.

    A role without a likely column is left out; one with several is in `choices`. A column whose name contains a word
    such as rating, time or count is never taken for users or items.
    """
    if not seen.header:
        return _by_position(seen)
    columns: dict[str, ColumnName] = {}
    choices: dict[str, tuple[ColumnName, ...]] = {}
    for role in SYNONYMS:
        free = [name for name in seen.names if name not in columns.values()]
        found = _named_ids(role, free) if role in IDS else _named_values(role, free)
        if len(found) == 1:
            columns[role] = found[0]
        elif found:
            choices[role] = tuple(found)
    reasons = dict.fromkeys(columns, "by its name")
    # Two columns with unknown names are users and items, unless a name says that it holds values.
    said = [word for name in seen.names for word in words_of(name)]
    if not {*columns, *choices} and len(seen.names) == 2 and not any(map(_is_value, said)):
        columns = dict(zip(IDS, seen.names, strict=True))
        reasons = {"user": "the first of two columns", "item": "the second of two columns"}
    return Guess(columns, reasons, choices)


def _named_ids(role: str, names: Sequence[ColumnName]) -> list[ColumnName]:
    """Return the columns that may hold the ids of a role; several if their names are equally good."""
    by_word: dict[str, list[tuple[int, ColumnName]]] = {}
    for name in names:
        words = words_of(name)
        own = [word for word in words if role_word(role, word) is not None]
        rest = {word for word in words if word not in own}
        # "item_category" and "book author" do not name the item itself.
        if len(own) == 1 and not any(map(_is_value, words)) and (words[-1] in own or rest <= _OF_AN_ID):
            # Preferred in this order: "user_id", "user", "user_key", "user_name" or "the user".
            rank = 1 if not rest else 0 if rest <= {"id", "ids"} else 2 if rest <= _OF_AN_ID - {"name"} else 3
            by_word.setdefault(str(role_word(role, own[0])), []).append((rank, name))
    # The most general synonym wins ("item_id" before "track_id"); among others none is preferred.
    strong = {word: found for word, found in by_word.items() if word not in _WEAK}
    general = strong.get(SYNONYMS[role][0], [])
    if any(rank < 3 for rank, _ in general):
        found = general
    elif strong:
        found = [one for each in strong.values() for one in each]
    else:
        found = next((by_word[word] for word in SYNONYMS[role] if word in by_word), [])
    return [name for rank, name in found if rank == min(rank for rank, _ in found)]


def _named_values(role: str, names: Sequence[ColumnName]) -> list[ColumnName]:
    """Return the first column with the role's most general synonym, in a list; an empty list if there is none."""
    for word in SYNONYMS[role]:
        for name in names:
            if any(role_word(role, part) == word for part in words_of(name)):
                return [name]
    return []


def _is_value(word: str) -> bool:
    return word in _NO_IDS or any(role_word(role, word) is not None for role in SYNONYMS if role not in IDS)


def _by_position(seen: Peek) -> Guess:
    """Guess roles for a file without a header, in the usual order: user, item, then a rating, a time, or both."""
    cells = dict(zip(seen.names, seen.first_row, strict=False))
    columns = {role: name for role, name in zip(IDS, seen.names, strict=False) if not _is_fraction(cells.get(name, ""))}
    for name, cell in list(cells.items())[2:4]:
        if _is_number(cell):
            role = "time" if time_unit([float(cell)]) is not None else "rating"
            columns.setdefault(role, name)
    ordinals = ("first", "second", "third", "fourth")
    reasons = {role: f"the {ordinals[int(name)]} column" for role, name in columns.items()}
    return Guess(columns, reasons, {})


def _is_fraction(text: str) -> bool:
    """Return whether this is a number such as 4.5, which cannot be an id."""
    return _is_number(text) and re.fullmatch(r"\s*[+-]?\d*\.\d+\s*", text) is not None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
