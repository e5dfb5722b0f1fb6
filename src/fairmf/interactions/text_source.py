"""Where delimited text comes from: a file, or a member of an archive that is read without being unpacked."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TextSource:
    """Text that can be opened any number of times. `size` is that of what holds it, compressed or not."""

    name: str
    size: int
    open: Callable[[], Any]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def of_file(cls, file: Path) -> TextSource:
        """A plain or compressed file."""

        def opened() -> Any:
            import pyarrow as pa

            if file.suffix.lower() == ".xz":  # the one kind that Arrow leaves to others
                return pa.PythonFile(lzma.open(file), mode="r")
            return pa.input_stream(str(file), compression="detect")

        return cls(str(file), file.stat().st_size, opened)
