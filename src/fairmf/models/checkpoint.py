"""Store checkpoints of a fit in a folder, and resume from the newest good one with the same bits.

1. `open_folder` locks the folder for one fit; `identity_of` says which fit that is, so that no other resumes from it.
2. `FolderOfCheckpoints.after_epoch` writes a file every so many epochs and keeps the two newest.
3. `FolderOfCheckpoints.resume` reads the newest file that is not damaged. Nothing in a file says which class to build:
   a resumed fit makes its starting state as always, and the stored values take the places of that state's values, if
   they are of the same kind and shape.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from fairmf.backends.contract import Backend, Factors
from fairmf.errors import BrokenFile, CannotWrite, InvalidData, InvalidParameter
from fairmf.io import atomic, container
from fairmf.io.atomic import TEMPORARY, inside
from fairmf.io.container import Arrays, Format
from fairmf.io.strict_json import Malformed
from fairmf.io.values import NotStorable, decode, encode
from fairmf.models.base import IterativeModel
from fairmf.models.factor_model import FactorModel
from fairmf.models.fit_loop import NOT_IN_OLD_FILES, NOT_STORED, Callback, Reached, StateT
from fairmf.models.problem import Problem
from fairmf.models.registry import factor_models
from fairmf.params import absent_values, settings_of
from fairmf.types import Array, Record
from fairmf.version import versions

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    D = TypeVar("D", bound=DataclassInstance)

log = logging.getLogger("fairmf")

LOCK = "lock"
FREE = ("epochs", "num_threads")
"""Settings that may change between a fit and its continuation: neither changes the bits of an epoch."""


@contextlib.contextmanager
def open_folder(
    folder: str | os.PathLike[str], every: int, identity: Record, epochs: int, backend: Backend
) -> Iterator[FolderOfCheckpoints]:
    """Make the folder if it is missing, and lock it while the fit runs: only one fit may write checkpoints there."""
    path = Path(folder)
    with contextlib.ExitStack() as held:
        try:
            path.mkdir(parents=True, exist_ok=True)
            held.enter_context(atomic.locked(path / LOCK, wait=False))
        except atomic.Busy as error:
            raise InvalidParameter(f"Another fit is using the checkpoint folder {path}: give each its own.") from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise CannotWrite(error.errno, f"{path} cannot be used for checkpoints: {reason}") from error
        yield FolderOfCheckpoints(path, int(every), identity, versions(), int(epochs), backend)


def identity_of(
    model: IterativeModel[StateT],
    problem: Problem,
    init: FactorModel | tuple[Factors, Factors] | None,
    callbacks: Sequence[Callback],
    objective_every: int,
) -> Record:
    """Return all that the bits of a fit depend on: a checkpoint resumes only a fit for which this is equal."""
    given = (init.user_factors, init.item_factors) if isinstance(init, FactorModel) else init
    weights = problem.fairness_weights
    # A newer setting that does what older versions did is left out, as in the checkpoints of those versions.
    left_out = absent_values(type(model)).items()
    return {
        "model": type(model).__name__,
        **{name: x for name, x in settings_of(model).items() if name not in FREE and (name, x) not in left_out},
        "init": None if given is None else digest_of(*given),
        "fairness_weights": None if weights is None else digest_of(weights),
        "objective_every": objective_every,
        "callbacks": [type(callback).__name__ for callback in callbacks],
        "data": problem.interactions.fingerprint(),
        **_features_identity(problem),
    }


def _features_identity(problem: Problem) -> Record:
    """Return digests of the features of a fit; nothing for a fit without any."""
    found: Record = {}
    for name, side in (("item_features", problem.item_side), ("user_features", problem.user_side)):
        if side is not None:
            values = np.ones(0) if side.rows.weights is None else side.rows.weights
            found[name] = digest_of(side.rows.indptr, side.rows.indices, values, np.array([side.n_features]))
    return found


def digest_of(*arrays: ArrayLike) -> str:
    """Return the SHA-256 of numbers and their shapes."""
    digest = hashlib.sha256()
    for numbers in arrays:
        array = np.ascontiguousarray(numbers, dtype="<f8")
        digest.update(f"{array.shape}:".encode())
        digest.update(array.data)
    return digest.hexdigest()


# -- a state as arrays and numbers, and back -------------------------------------------------------------------------


@runtime_checkable
class Refillable(Protocol):
    """A stand-in for an array whose numbers are in other processes."""

    shape: tuple[int, ...]

    def stored(self) -> Array:
        """Return the numbers for a file; an array without rows if they are not to be stored."""

    def filled_with(self, values: Array) -> Factors:
        """Return a stand-in like this one with other values."""


def take_apart(state: DataclassInstance, prefix: str, backend: Backend) -> tuple[Record, Arrays]:
    """Return the numbers of a state by name, and its arrays by dotted name."""
    numbers: Record = {}
    arrays: Arrays = {}
    for field in dataclasses.fields(state):
        name, value = f"{prefix}.{field.name}", getattr(state, field.name)
        if value is None or field.metadata == NOT_STORED:  # None: this fit lacks it
            continue
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
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


def put_together(pattern: D, prefix: str, numbers: object, arrays: Arrays, backend: Backend) -> D:
    """Return a state like `pattern` with the stored values; remove those that are used from `arrays`."""
    if not isinstance(numbers, dict):
        raise Malformed(f"its {prefix} is incomplete")
    values: Record = {}
    for field in dataclasses.fields(pattern):
        name, example = f"{prefix}.{field.name}", getattr(pattern, field.name)
        if field.metadata == NOT_STORED:
            values[field.name] = example
        elif field.metadata == NOT_IN_OLD_FILES and name not in arrays and field.name not in numbers:
            values[field.name] = field.default
        elif dataclasses.is_dataclass(example) and not isinstance(example, type):
            values[field.name] = put_together(example, name, numbers.get(field.name), arrays, backend)
        elif hasattr(example, "shape") and not isinstance(example, np.generic):
            values[field.name] = _array(name, example, arrays, backend)
        else:
            values[field.name] = _number(name, example, numbers, field.name)
    return type(pattern)(**values)


def _array(name: str, example: Any, arrays: Arrays, backend: Backend) -> Factors:
    array = arrays.pop(name, None)
    # Users that stay in the workers of a cluster are not stored: the workers compute them again from V and q.
    left_out = array is not None and isinstance(example, Refillable) and array.shape == (0, *example.shape[1:])
    if array is None or array.dtype != example.dtype or not (array.shape == example.shape or left_out):
        raise Malformed(f"its {name} is not an array of shape {tuple(example.shape)} and kind {example.dtype}")
    if isinstance(example, np.ndarray):
        return array
    if isinstance(example, Refillable):
        return example.filled_with(array)
    return backend.array(array) if array.dtype == backend.dtype else backend.vector(array)


def _number(name: str, example: object, numbers: Record, key: str) -> object:
    if example is None and key not in numbers:
        return None
    if key not in numbers:
        raise Malformed(f"its {name} is missing")
    value = decode(numbers[key])
    allowed: tuple[type, ...] = (int, float) if isinstance(example, (float, np.floating)) else (type(example),)
    if type(value) not in allowed:
        raise Malformed(f"its {name} is of the wrong kind")
    return value


# -- the folder -------------------------------------------------------------------------------------------------------

CHECKPOINT = Format("fairmf checkpoint", version=1)
KEPT_FILES = 2  # the newest, and one to fall back to if a crash of the disk has damaged it
_NAME = re.compile(r"epoch-(\d{6,9})\.checkpoint")
_LEFTOVER = re.compile(rf"{_NAME.pattern}\.[0-9a-f]{{12}}{re.escape(TEMPORARY)}")
PROGRESS = ("epoch", "records", "kept_epoch", "last_total", "verdict", "reason", "callbacks")
"""The fields of `Reached` that are not states."""
_KINDS: dict[str, type | tuple[type, ...]] = {
    "epoch": int, "records": list, "kept_epoch": int, "last_total": (float, type(None)),
    "verdict": (str, type(None)), "reason": str, "callbacks": list,
}  # fmt: skip


class FolderOfCheckpoints:
    """Write the checkpoints of one fit, and read them again. `open_folder` holds the folder's lock meanwhile.

    Parameters
    ----------
    folder
        Where the files are.
    every
        Epochs between two checkpoints.
    identity
        All that the bits of the fit depend on (`identity_of`).
    versions
        Versions of the libraries in use: others may change the last bits.
    epochs
        The largest number of epochs that is now asked for.
    backend
        Where the arrays of the state belong.
    """

    def __init__(
        self,
        folder: Path,
        every: int,
        identity: Record,
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
        for path in folder.iterdir():  # delete what a process left that was killed while it wrote
            if _LEFTOVER.fullmatch(path.name) and container.is_own(path, CHECKPOINT, partial=True):
                path.unlink(missing_ok=True)

    # -- storing ----------------------------------------------------------------------------------------------------

    def after_epoch(self, reached: Reached[StateT], *, last: bool) -> None:
        """Store a checkpoint every so many epochs, and after the last one."""
        if reached.epoch > self._stored_epoch and (last or reached.epoch % self.every == 0):
            self.store(reached)

    def store(self, reached: Reached[StateT]) -> None:
        """Write a checkpoint; delete those no longer needed only after it is safely on the disk."""
        numbers, arrays = take_apart(reached.state, "state", self.backend)
        content: Record = {"identity": self.identity, "versions": self.versions, "state": numbers, "kept": None}
        if reached.kept is not None and reached.kept is reached.state:
            content["kept"] = "state"  # the same arrays: store them once
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
        # Only files that this process wrote or read count as good: an older one on the disk may be damaged.
        self._good = [*(p for p in self._good if p != path), path][-KEPT_FILES:]
        for other in self._files():
            if other not in self._good and container.is_own(other, CHECKPOINT):
                other.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        """Return all checkpoints, the newest first."""
        found = ((_NAME.fullmatch(path.name), path) for path in self.folder.iterdir())
        return [path for _, path in sorted(((int(m.group(1)), p) for m, p in found if m), reverse=True)]

    # -- resuming ---------------------------------------------------------------------------------------------------

    def resume(self, start: StateT) -> Reached[StateT] | None:
        """Read the newest good checkpoint; None in an empty folder. Skip damaged files with a warning."""
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

    def _check_identity(self, path: Path, content: Record) -> None:
        """Raise InvalidParameter if the checkpoint belongs to another fit; warn of other library versions."""
        stored, own = _completed(content["identity"]), _completed(self.identity)
        different = [name for name in {**stored, **own} if stored.get(name) != own.get(name)]
        if {"item_balance", "user_balance"} & set(different):
            different = [name for name in different if name != "data"]  # other balances make other confidences
        if different:
            named = "; ".join(
                "the data differ"
                if name == "data"
                else f"{name} is {stored.get(name)!r} there and {own.get(name)!r} here"
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

    def _reached(self, start: StateT, content: Record, arrays: Arrays) -> Reached[StateT]:
        state = put_together(start, "state", content["state"], arrays, self.backend)
        kept = content["kept"]
        if kept == "state":
            kept = state
        elif kept is not None:
            kept = put_together(start, "kept", kept, arrays, self.backend)
        values = decode(content["progress"])
        values["records"], values["callbacks"] = tuple(values["records"]), tuple(values["callbacks"])
        return Reached(state=state, kept=kept, **values)


def _completed(identity: Record) -> Record:
    """Return an identity with the settings that `identity_of` has left out."""
    kind = factor_models().get(str(identity.get("model")))
    return identity if kind is None else {**absent_values(kind.load()), **identity}


def _check_content(content: object) -> None:
    if not isinstance(content, dict) or set(content) != {"identity", "versions", "state", "kept", "progress"}:
        raise Malformed("its document has other parts than a checkpoint's")
    progress = content["progress"]
    if not all(isinstance(content[name], dict) for name in ("identity", "versions", "state", "progress")):
        raise Malformed("its document is incomplete")
    if set(progress) != set(PROGRESS) or not all(isinstance(progress[name], kind) for name, kind in _KINDS.items()):
        raise Malformed("it does not say how far the fit was")
