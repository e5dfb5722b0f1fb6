"""Append events to files of JSON lines, one set of files per worker, and begin a new file when one is full.

A line is in the file whole or not at all: when the disk is full, what was written of it is cut off again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from fairmf.serve.messages import Event

_encode = msgspec.json.Encoder().encode


class EventLog:
    """Files `events-TIME-WORKER.jsonl` in a folder, written by one thread.

    Parameters
    ----------
    folder
        Where the files are; it is made if need be.
    most
        Bytes after which the next file is begun.
    worker
        Number of this worker: no two processes write to one file.
    """

    def __init__(self, folder: Path, most: int, worker: int = 0):
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._most, self._worker = folder, most, worker
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="events")
        self._handle: int | None = None
        self._size = 0

    async def append(self, events: Sequence[Event]) -> None:
        """Store events; returns when the system has them. Raises OSError if they cannot be stored; then none is."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        lines = b"".join(_encode({"received": now, **msgspec.to_builtins(event)}) + b"\n" for event in events)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._write, lines)

    def _write(self, lines: bytes) -> None:
        if self._handle is None or self._size >= self._most:
            self._next_file()
        handle = self._handle
        assert handle is not None
        done = 0
        try:
            while done < len(lines):
                done += os.write(handle, lines[done:])
        except OSError:
            os.ftruncate(handle, self._size)
            raise
        self._size += len(lines)

    def _next_file(self) -> None:
        # O_EXCL: a file of an earlier process is never continued, so that its last line stays as it is.
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%f")
        path = self._folder / f"events-{stamp}-{self._worker}.jsonl"
        fresh = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o640)
        if self._handle is not None:
            os.close(self._handle)
        self._handle, self._size = fresh, 0

    def close(self) -> None:
        """Flush the last file to the disk and close it."""
        self._thread.shutdown(wait=True)
        if self._handle is not None:
            os.fsync(self._handle)
            os.close(self._handle)
            self._handle = None
