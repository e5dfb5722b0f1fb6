"""A folder of checkpoints: the two newest, each a whole file, and a way to go on from the newest that is good."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from fairmf.backends import Backend
from fairmf.errors import BrokenFile, InvalidData, InvalidParameter
from fairmf.files import container, typed_values
from fairmf.files.atomic import TEMPORARY, inside
from fairmf.files.container import Arrays, Format
from fairmf.files.strict_json import Malformed
from fairmf.models.fitting import Reached
from fairmf.models.persistence.state_arrays import put_together, take_apart

log = logging.getLogger("fairmf")

CHECKPOINT = Format("fairmf checkpoint", version=1)
KEPT_FILES = 2  # the newest, and one to fall back to should a disk have lost it
_NAME = re.compile(r"epoch-(\d{6,9})\.checkpoint")
_LEFTOVER = re.compile(rf"{_NAME.pattern}\.[0-9a-f]{{12}}{re.escape(TEMPORARY)}")
PROGRESS = ("epoch", "records", "kept_epoch", "last_total", "verdict", "reason", "callbacks")
"""The fields of `Reached` that are no states."""
_KINDS: dict[str, Any] = {
    "epoch": int, "records": list, "kept_epoch": int, "last_total": (float, type(None)),
    "verdict": (str, type(None)), "reason": str, "callbacks": list,
}  # fmt: skip


class FolderOfCheckpoints:
    """Stores where a fit stands, and finds it again. The folder must be held by this process (folder_lock).

    `identity` says which fit it is: everything that its bits depend on. `epochs` is the ceiling now asked for.
    """

    def __init__(
        self,
        folder: Path,
        every: int,
        identity: dict[str, Any],
        versions: dict[str, str],
        epochs: int,
        backend: Backend,
    ):
        self.folder = folder
        self.every = every
        self.identity = typed_values.encode(identity)
        self.versions = versions
        self.epochs = epochs
        self.backend = backend
        self._good: list[Path] = []
        self._stored_epoch = 0
        for path in folder.iterdir():  # what a process that was killed while it wrote has left
            if _LEFTOVER.fullmatch(path.name) and container.is_own(path, CHECKPOINT, partial=True):
                path.unlink(missing_ok=True)

    # -- storing ----------------------------------------------------------------------------------------------------

    def after_epoch(self, reached: Reached, *, last: bool) -> None:
        """Store every so many epochs, and the last one."""
        if reached.epoch > self._stored_epoch and (last or reached.epoch % self.every == 0):
            self.store(reached)

    def store(self, reached: Reached) -> None:
        """Write a checkpoint; only when it is safely on the disk, drop those no longer needed."""
        numbers, arrays = take_apart(reached.state, "state", self.backend)
        content = {"identity": self.identity, "versions": self.versions, "state": numbers, "kept": None}
        if reached.kept is not None and reached.kept is reached.state:
            content["kept"] = "state"
        elif reached.kept is not None:
            content["kept"], own = take_apart(reached.kept, "kept", self.backend)
            arrays |= own
        try:
            content["progress"] = {
                name: typed_values.encode(list(v) if isinstance(v := getattr(reached, name), tuple) else v)
                for name in PROGRESS
            }
        except typed_values.NotStorable as error:
            raise InvalidData(
                f"A callback's record or memory cannot be stored in a checkpoint: it is {error}."
            ) from error
        path = inside(self.folder, f"epoch-{reached.epoch:06d}.checkpoint")
        container.write(path, CHECKPOINT, content, arrays)
        self._stored_epoch = reached.epoch
        self._good = [*(p for p in self._good if p != path), path][-KEPT_FILES:]
        for other in self._files():
            if other not in self._good and container.is_own(other, CHECKPOINT):
                other.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        """All checkpoints, the newest first."""
        found = ((_NAME.fullmatch(path.name), path) for path in self.folder.iterdir())
        return [path for _, path in sorted(((int(m.group(1)), p) for m, p in found if m), reverse=True)]

    # -- going on ---------------------------------------------------------------------------------------------------

    def resume(self, start: Any) -> Reached | None:
        """The newest good stand; None in an empty folder. Damaged files are passed over, with a warning."""
        problems = []
        for path in self._files():
            try:
                content, arrays = container.read(path, CHECKPOINT)
                with container.reading(path, CHECKPOINT.name):
                    _check_content(content)
            except BrokenFile as error:
                log.warning("%s", error)
                problems.append(error)
                continue
            self._check_identity(path, content)
            with container.reading(path, CHECKPOINT.name):
                reached = self._reached(start, content, arrays)
            self._good, self._stored_epoch = [path], reached.epoch
            log.info("resuming after epoch %d from %s", reached.epoch, path)
            return reached
        if problems:
            raise BrokenFile(
                f"None of the checkpoints in {self.folder} can be read. To train from the beginning, empty the folder. "
                f"The newest: {problems[0]}"
            )
        return None

    def _check_identity(self, path: Path, content: dict[str, Any]) -> None:
        stored = content["identity"]
        different = [name for name in {**stored, **self.identity} if stored.get(name) != self.identity.get(name)]
        if different:
            named = "; ".join(
                "the data differ"
                if name == "data"
                else f"{name} is {stored.get(name)!r} there and {self.identity.get(name)!r} here"
                for name in different
            )
            raise InvalidParameter(f"{path} belongs to another fit: {named}. Use another folder, or empty this one.")
        if content["progress"]["epoch"] > self.epochs:
            raise InvalidParameter(
                f"{path} is after epoch {content['progress']['epoch']}, more than epochs={self.epochs} asks for."
            )
        changed = [
            f"{n} {v} then, {self.versions.get(n)} now"
            for n, v in content["versions"].items()
            if v != self.versions.get(n)
        ]
        if changed:
            log.warning("resuming with other libraries, whose last bits may differ: %s", "; ".join(changed))

    def _reached(self, start: Any, content: dict[str, Any], arrays: Arrays) -> Reached:
        state = put_together(start, "state", content["state"], arrays, self.backend)
        kept = content["kept"]
        if kept == "state":
            kept = state
        elif kept is not None:
            kept = put_together(start, "kept", kept, arrays, self.backend)
        values = typed_values.decode(content["progress"])
        values["records"], values["callbacks"] = tuple(values["records"]), tuple(values["callbacks"])
        return Reached(state=state, kept=kept, **values)


def _check_content(content: Any) -> None:
    if not isinstance(content, dict) or set(content) != {"identity", "versions", "state", "kept", "progress"}:
        raise Malformed("its document has other parts than a checkpoint's")
    progress = content["progress"]
    if not all(isinstance(content[name], dict) for name in ("identity", "versions", "state", "progress")):
        raise Malformed("its document is incomplete")
    if set(progress) != set(PROGRESS) or not all(isinstance(progress[name], kind) for name, kind in _KINDS.items()):
        raise Malformed("it does not say how far the fit was")
