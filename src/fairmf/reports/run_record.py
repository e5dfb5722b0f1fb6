"""Write the record of a run: settings, data, versions, timings and results, as TOML or JSON.

The record is a TOML file (JSON if its name ends in .json) with the tables `settings`, `versions`, `data`, `timings`,
`metrics` and `result`. `fairmf VERB --config RECORD` runs the same settings again.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import tomli_w

from fairmf.io.atomic import replacing
from fairmf.text import visible, whole
from fairmf.version import versions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:  # this module is imported at start-up, without NumPy
    from fairmf.types import Json, Record

RECORD_KEY, RECORD_VERSION = "fairmf_record", 1


@dataclass
class RunRecord:
    """One run: `settings` by flag name, `timings` in seconds, `data` with sizes and a fingerprint per source."""

    verb: str
    started: str
    settings: Record = field(default_factory=dict)
    data: Record = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    metrics: Record = field(default_factory=dict)
    result: Record = field(default_factory=dict)

    def to_dict(self) -> Record:
        """Return plain values, without those that are None or not finite, because TOML has no null."""
        return _table({RECORD_KEY: RECORD_VERSION, **asdict(self), "versions": versions()})

    def write(self, path: Path) -> None:
        """Write the record atomically."""
        content = self.to_dict()
        if path.suffix.lower() == ".json":
            text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        else:
            command = f"fairmf {self.verb} --config {shlex.quote(path.name)}"
            text = f"# Run it again: {visible(command, one_line=True)}\n" + tomli_w.dumps(content)
        with replacing(path) as file:
            file.write(text.encode())


def parse_toml(text: str) -> Record:
    """Parse a TOML text; raise ValueError if it is not valid."""
    try:
        return dict(tomllib.loads(text))
    # A few thousand brackets are enough to exceed Python's limit.
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _table(values: Mapping[str, object]) -> dict[str, Json]:
    inner = {whole(str(name)): _plain(part) for name, part in values.items()}
    return {name: part for name, part in inner.items() if part is not None}


def _plain(value: object) -> Json:
    """Return a value that TOML and JSON can hold; None if there is no such value."""
    # The order matters: an Enum may also be a text, and a bool is an integer.
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, dict):
        return _table(value)
    if isinstance(value, (list, tuple)):
        return [part for part in map(_plain, value) if part is not None]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (str, Path)):
        return whole(str(value))
    # A NumPy number, recognised without importing NumPy.
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, float):
        return number if math.isfinite(number) else None
    return number if isinstance(number, int) else whole(str(number))
