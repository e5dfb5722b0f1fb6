"""Which fit is this? What has to be equal for a fit to go on from a checkpoint and end with the same bits."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fairmf.backends.contract import Backend
from fairmf.errors import BrokenFile, CannotWrite, InvalidData, InvalidParameter
from fairmf.io import atomic, container
from fairmf.io.atomic import TEMPORARY, inside
from fairmf.io.container import Arrays, Format
from fairmf.io.strict_json import Malformed
from fairmf.io.values import NotStorable, decode, encode
from fairmf.models.factor_model import FactorModel
from fairmf.models.fit_loop import Checkpoints, Reached
from fairmf.models.model_file import parameters_of
from fairmf.models.problem import Problem
from fairmf.params import check_count
from fairmf.version import versions

NAME = "lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder if need be, and hold its lock: only one fit at a time may write checkpoints there."""
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(atomic.locked(folder / NAME, wait=False))
        except atomic.Busy as error:
            raise InvalidParameter(
                f"Another fit is using the checkpoint folder {folder}: give each its own."
            ) from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise CannotWrite(error.errno, f"{folder} cannot be used for checkpoints: {reason}") from error
        yield


# The state of a fit, whatever its model, as arrays and numbers; and back, by the pattern of another state.
#
# Nothing in a file says which class to build: a resumed fit makes its starting state as always, and the stored values
# are put in the places of that one's, if they are of the same kind and shape.


@runtime_checkable
class Refillable(Protocol):
    """An array whose numbers are elsewhere."""

    shape: tuple[int, ...]

    def stored(self) -> Any:
        """The numbers for a file, if they are to be in one; else none."""

    def filled_with(self, values: Any) -> Any:
        """The like of this with other values."""


def take_apart(state: Any, prefix: str, backend: Backend) -> tuple[dict[str, Any], Arrays]:
    """The numbers of a state dataclass, as a table, and its arrays by dotted name."""
    numbers: dict[str, Any] = {}
    arrays: Arrays = {}
    for field in dataclasses.fields(state):
        name, value = f"{prefix}.{field.name}", getattr(state, field.name)
        if dataclasses.is_dataclass(value):
            numbers[field.name], own = take_apart(value, name, backend)
            arrays |= own
        elif isinstance(value, np.ndarray):
            arrays[name] = value
        elif isinstance(value, Refillable):
            arrays[name] = value.stored()
        elif hasattr(value, "shape") and not isinstance(value, np.generic):
            arrays[name] = backend.host(value)
        else:
            numbers[field.name] = encode(value)
    return numbers, arrays


def put_together(pattern: Any, prefix: str, numbers: Any, arrays: Arrays, backend: Backend) -> Any:
    """A state like `pattern` with the stored values. Takes what it uses out of `arrays`."""
    if not isinstance(numbers, dict):
        raise Malformed(f"its {prefix} is incomplete")
    values: dict[str, Any] = {}
    for field in dataclasses.fields(pattern):
        name, example = f"{prefix}.{field.name}", getattr(pattern, field.name)
        if dataclasses.is_dataclass(example):
            values[field.name] = put_together(example, name, numbers.get(field.name), arrays, backend)
        elif hasattr(example, "shape") and not isinstance(example, np.generic):
            values[field.name] = _array(name, example, arrays, backend)
        else:
            values[field.name] = _number(name, example, numbers, field.name)
    return type(pattern)(**values)


def _array(name: str, example: Any, arrays: Arrays, backend: Backend) -> Any:
    array = arrays.pop(name, None)
    if array is None or not _fits(array, example):
        raise Malformed(f"its {name} is not an array of shape {tuple(example.shape)} and kind {example.dtype}")
    if isinstance(example, np.ndarray):
        return array
    if isinstance(example, Refillable):
        return example.filled_with(array)
    return backend.array(array) if array.dtype == backend.dtype else backend.vector(array)


def _fits(array: Any, example: Any) -> bool:
    # Users that stay in the workers of a cluster are not stored, but made again from what is.
    left_out = isinstance(example, Refillable) and array.shape == (0, *example.shape[1:])
    return (array.shape == example.shape or left_out) and array.dtype == example.dtype


def _number(name: str, example: Any, numbers: dict[str, Any], key: str) -> Any:
    if key not in numbers:
        raise Malformed(f"its {name} is missing")
    value = decode(numbers[key])
    allowed: tuple[type, ...] = (int, float) if isinstance(example, (float, np.floating)) else (type(example),)
    if type(value) not in allowed:
        raise Malformed(f"its {name} is of the wrong kind")
    return value


# A folder of checkpoints: the two newest, each a whole file, and a way to go on from the newest that is good.


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
    """Stores where a fit stands, and finds it again. The folder must be held by this process (`locked`).

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
        self.identity = encode(identity)
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
                name: encode(list(v) if isinstance(v := getattr(reached, name), tuple) else v) for name in PROGRESS
            }
        except NotStorable as error:
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
        values = decode(content["progress"])
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


FREE = ("epochs", "num_threads")
"""Settings that may change between a fit and its continuation: neither changes the bits of an epoch."""


@contextlib.contextmanager
def open_checkpoints(
    folder: str | os.PathLike[str] | None,
    every: int,
    model: Any,
    problem: Problem,
    init: Any,
    callbacks: Sequence[Any],
    objective_every: int,
) -> Iterator[Checkpoints | None]:
    """The checkpoints of one fit, held while it runs; None where none are asked for."""
    check_count("fit", "checkpoint_every", every)
    if folder is None:
        yield None
        return
    settings = {name: value for name, value in parameters_of(model).items() if name not in FREE}
    identity = {
        "model": type(model).__name__,
        **settings,
        "init": None if init is None else _fingerprint(init),
        "fairness_weights": None if problem.fairness_weights is None else digest_of(problem.fairness_weights),
        "objective_every": objective_every,
        "callbacks": [type(callback).__name__ for callback in callbacks],
        "data": problem.interactions.fingerprint(),
    }
    path = Path(folder)
    with locked(path):
        yield FolderOfCheckpoints(path, int(every), identity, versions(), int(model.epochs), problem.backend)


def _fingerprint(init: Any) -> str:
    """SHA-256 of the factors a fit starts from."""
    return digest_of(*((init.user_factors, init.item_factors) if isinstance(init, FactorModel) else init))


def digest_of(*arrays: Any) -> str:
    """SHA-256 of numbers and their shapes."""
    digest = hashlib.sha256()
    for numbers in arrays:
        array = np.ascontiguousarray(numbers, dtype="<f8")
        digest.update(f"{array.shape}:".encode())
        digest.update(array.data)
    return digest.hexdigest()
