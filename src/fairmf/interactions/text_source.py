"""Where delimited text comes from: a file, or a member of an archive that is read without being unpacked."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

# Called with the bytes that are done and the bytes there are.
Progress: TypeAlias = Callable[[int, int], None]
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


@dataclass(frozen=True)
class TextSource:
    """Text that can be opened any number of times. `size` is that of what holds it, compressed or not."""

    name: str
    size: int
    open: Callable[[], Any]
    report: Callable[[], None] = lambda: None
    """Tell whoever wants to know how far reading is."""

    def __str__(self) -> str:
        return self.name

    @classmethod
    def of_file(cls, file: Path, progress: Progress | None = None) -> TextSource:
        """A plain or compressed file."""
        size = file.stat().st_size
        latest: list[Any] = []  # the file itself, which knows how much of it was taken

        def opened() -> Any:
            import pyarrow as pa

            suffix = file.suffix.lower()
            if suffix == ".xz":  # the one kind that Arrow leaves to others
                latest[:] = [file.open("rb")]
                return pa.PythonFile(_Closing(lzma.open(latest[0]), latest[0]), mode="r")
            latest[:] = [pa.OSFile(str(file))]
            return pa.CompressedInputStream(latest[0], _CODECS[suffix]) if suffix in _CODECS else latest[0]

        def report() -> None:
            if progress is not None and latest:
                progress(size if latest[0].closed else latest[0].tell(), size)

        return cls(str(file), size, opened, report)


class _Closing:
    """A decompressor that closes the file below it as well, as LZMAFile does only for files it opened itself."""

    def __init__(self, stream: Any, below: Any):
        self._stream, self._below = stream, below

    def close(self) -> None:
        self._stream.close()
        self._below.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
