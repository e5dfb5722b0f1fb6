"""Replace the model of a running server: watch the file, check a new one beside the old one, and swap.

1. The `Publisher`, one per server, sees that the model file changed (or is told so by SIGHUP). It copies the file into
   the server's own folder, verifies the copy, and points to it. Workers map the copy: whoever writes over the
   original in place then changes nothing that is being served. A damaged file is refused, and the old one stays.
2. Every worker polls the pointer (`Pointer.forever`). It loads the new model in a thread, asks it for a list, and then
   replaces the old one in one step. Requests that are being ranked end with the old one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairmf.errors import BrokenFile, FairmfError
from fairmf.io import container
from fairmf.io.atomic import replacing
from fairmf.models.model_file import MODEL
from fairmf.serve import logs
from fairmf.serve.served_model import FINGERPRINT, Catalogue, ServedModel, stored_checksum
from fairmf.serve.service import Service
from fairmf.serve.settings import Settings

POLL = 0.25  # seconds between two looks at the pointer
KEPT = 2  # copies that stay: a worker may still have to load the one before the last
POINTER = "current.json"


@dataclass(frozen=True)
class Pointer:
    """Where a worker finds the model to serve: a small file that the publisher replaces."""

    folder: Path
    catalogue: Catalogue | Callable[[], Catalogue] | None
    """Titles and groups, or a function that reads them: it is called with every new model."""
    settings: Settings
    worker: int = 0

    async def first(self, service: Service) -> None:
        """Load the model to begin with."""
        service.replace(await asyncio.to_thread(self._load, self._target()[0], self._read()))

    async def forever(self, service: Service) -> None:
        """Load whatever the publisher points to next."""
        seen = self._target()
        while True:
            await asyncio.sleep(POLL)
            target = self._target()
            if target == seen:
                continue
            seen = target
            try:
                before = service.held()[0].catalogue
                served = await asyncio.to_thread(lambda: self._load(target[0], self._read_again(before)))  # noqa: B023
            except (FairmfError, OSError, ValueError) as error:
                service.figures.add("reload_failures")
                logs.write("error", "model refused", file=str(target[0]), reason=str(error))
                continue
            service.replace(served)
            service.figures.add("reloads")
            logs.write("info", "model replaced", model=served.fingerprint)

    def _read(self) -> Catalogue | None:
        return self.catalogue() if callable(self.catalogue) else self.catalogue

    def _read_again(self, before: Catalogue) -> Catalogue | None:
        """Return the catalogue as it is now; the one before if it cannot be read, for a list needs no titles."""
        try:
            return self._read()
        except Exception as error:  # whatever a reader of tables raises
            logs.write("error", "catalogue not read; titles and groups stay as they were", reason=str(error))
            return before

    def _load(self, path: Path, catalogue: Catalogue | None) -> ServedModel:
        served = ServedModel.load(path, catalogue, self.settings.num_threads)
        if self.settings.index is not None or self.settings.control is not None:
            served = served.with_parts(self.settings, self.worker)
            served.warm()
        return served

    def _target(self) -> tuple[Path, int]:
        found = json.loads((self.folder / POINTER).read_text(encoding="utf-8"))
        return Path(found["path"]), int(found["number"])


class Publisher:
    """Point workers to a model file, and to verified copies of what replaces it.

    Parameters
    ----------
    source
        The model file.
    folder
        The server's own folder.
    watched
        Look every `poll` seconds whether the file has changed. Without, only `publish` looks.
    beside
        A file that belongs to the model, such as its catalogue: when it changes, workers load both again.
    on_failure
        Called when a file was refused.
    """

    def __init__(
        self,
        source: Path,
        folder: Path,
        *,
        watched: bool = False,
        beside: Path | None = None,
        poll: float = 1.0,
        on_failure: Callable[[], None] = lambda: None,
    ):
        self._source, self._folder, self._poll, self._on_failure = source, folder, poll, on_failure
        self._beside = beside
        self._number, self._asked, self._stopped = 0, threading.Event(), False
        self._seen = self._signatures()
        self._fingerprint = ""
        self._watched = watched
        if watched:
            self.publish()
        else:  # map the file itself: nothing has to be copied
            self._fingerprint = stored_checksum(source)[:FINGERPRINT]
            self._point(source.resolve())
        self._thread = threading.Thread(target=self._run, name="reload", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def ask(self) -> None:
        """Look at the file now; safe in a signal handler."""
        self._asked.set()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped = True
        self._asked.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stopped:
            asked = self._asked.wait(self._poll if self._watched else None)
            self._asked.clear()
            now = self._signatures()
            if not self._stopped and (asked or (now[0] is not None and now != self._seen)):
                also, self._seen = asked or now[1] != self._seen[1], now
                self.try_to_publish(also)

    def _signatures(self) -> tuple[object, object]:
        return _signature(self._source), None if self._beside is None else _signature(self._beside)

    def try_to_publish(self, again: bool = False) -> bool:
        """Publish the file; if it cannot be used, log why and return False."""
        try:
            self.publish(again)
        except (FairmfError, OSError, ValueError) as error:
            self._on_failure()
            logs.write("error", "model refused", file=str(self._source), reason=str(error))
            return False
        return True

    def publish(self, again: bool = False) -> None:
        """Copy the file, verify the copy, and point to it; raise BrokenFile if it is damaged.

        Where the content is the same, workers load it only if asked to do so again, for what belongs to the model.
        """
        copy = self._folder / f"{self._number + 1}.tmp"
        try:
            shutil.copyfile(self._source, copy)
            container.read(copy, MODEL, mmap=True, verify=True)
            fingerprint = stored_checksum(copy)[:FINGERPRINT]
            if fingerprint == self._fingerprint:
                if again and self._beside is not None:
                    self._point(self._current)
                return  # the same content, written again
            final = self._folder / f"model-{self._number + 1}-{fingerprint}.fairmf"
            copy.replace(final)
        except BrokenFile as error:
            raise BrokenFile(str(error).replace(str(copy), str(self._source))) from error
        finally:
            copy.unlink(missing_ok=True)
        self._fingerprint = fingerprint
        self._point(final)
        copies = sorted(self._folder.glob("model-*.fairmf"), key=lambda path: path.stat().st_mtime_ns)
        for old in copies[:-KEPT]:
            with contextlib.suppress(OSError):
                old.unlink()  # who has mapped it keeps it until it is replaced there

    def _point(self, path: Path) -> None:
        self._current = path
        self._number += 1
        with replacing(self._folder / POINTER) as file:
            file.write(json.dumps({"path": str(path), "number": self._number}).encode())


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is replaced or written to; None if it is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
