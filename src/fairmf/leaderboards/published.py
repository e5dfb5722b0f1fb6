"""Read the published rows of leaderboards from published.json: values, sources, and what recall means there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fairmf.io import strict_json

FILE = Path(__file__).with_name("published.json")
DEFINITIONS = {"|T|": "hits / |T|", "min(K, |T|)": "hits / min(K, |T|)"}


@dataclass(frozen=True)
class Published:
    """One published row."""

    data: str
    method: str
    values: dict[str, float]
    source: str
    """Paper and year."""
    read_at: str
    """Where the figures were read for this file."""
    recall: str
    """What recall divides by."""
    chosen_on: str | None = None
    """Which data chose settings or epochs, where the public code or configuration shows it."""


def published(data: str) -> list[Published]:
    """Return the published rows of a data set, in the order of the file; none for other data."""
    content = strict_json.parse(FILE.read_text(encoding="utf-8"), str(FILE))
    return [Published(**row) for row in content["rows"] if row["data"] == data]
