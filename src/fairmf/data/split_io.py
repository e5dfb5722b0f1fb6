"""Store a split in a folder, and read it back.

`train-<digits>.fairmf`, `validation-<digits>.fairmf` and `test-<digits>.fairmf` are safetensors files with checksums
(docs/splitting.md). The digits are a hash of the content, so that a new split never overwrites the files of the old
one. The folder holds the old split until `split.json` is replaced, in one step, and the new split afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path
from typing import get_args

import numpy as np

from fairmf.data import stored_arrays
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Method, Split
from fairmf.errors import BrokenFile, CannotWrite, InvalidData
from fairmf.io import container, strict_json
from fairmf.io.atomic import inside, replacing
from fairmf.io.container import Arrays, Format
from fairmf.io.strict_json import Malformed
from fairmf.types import Record
from fairmf.version import __version__

PART = Format("fairmf part of a split", version=2)
MANIFEST = "split.json"
FORMAT, VERSION = "fairmf split", 1
_LARGEST_MANIFEST = 1 << 20
_FINGERPRINT = re.compile("[0-9a-f]{64}")


def is_split(path: str | os.PathLike[str]) -> bool:
    """Return whether the path is a folder that holds a split."""
    return (Path(path) / MANIFEST).is_file()


def save_split(split: Split, folder: str | os.PathLike[str]) -> None:
    """Write a split to a folder; see `Split.save`."""
    folder = Path(folder)
    # Read first: later the manifest names the new files.
    before = _files_of(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(error.errno, f"{folder} cannot be written: {error.strerror}") from error
    # Parts first: until the manifest is replaced, nothing refers to the new files.
    parts = {"train": _write(folder, "train", *_train(split.train))}
    for name, part in (("validation", split.validation), ("test", split.test)):
        parts[name] = _write(folder, name, *_held_out(part, split.train))
    manifest = {
        "format": FORMAT,
        "format_version": VERSION,
        "written_by": f"fairmf {__version__}",
        "method": split.method,
        "parts": parts,
        "summary": split.summary(),
    }
    with replacing(inside(folder, MANIFEST)) as file:
        file.write((json.dumps(manifest, indent=1) + "\n").encode())
    # Old parts are deleted only now that no manifest names them.
    for name in before - {part["file"] for part in parts.values()}:
        if container.is_own(folder / name, PART):
            with contextlib.suppress(OSError):
                (folder / name).unlink()


def load_split(folder: str | os.PathLike[str]) -> Split:
    """Read a split from a folder; see `Split.load`."""
    folder = Path(folder)
    manifest = _manifest(folder)
    train = _read_train(folder, manifest["parts"]["train"])
    parts = {name: _read_held_out(folder, manifest["parts"][name], train) for name in ("validation", "test")}
    with container.reading(folder / MANIFEST, FORMAT):
        # Sound files may still be of two splits: `Split` checks that the parts fit together.
        return Split(train, parts["validation"], parts["test"], manifest["method"])


def _train(train: Interactions) -> tuple[Record, Arrays]:
    content: Record = {"users": train.n_users, "items": train.n_items, "ids": {}}
    arrays = stored_arrays.rows_to_arrays("interactions", train)
    for side, ids in (("user_ids", train.user_ids), ("item_ids", train.item_ids)):
        content["ids"][side], own = stored_arrays.ids_to_arrays(side, ids)
        arrays |= own
    return _with_weighting(train, content, arrays)


def _held_out(part: HeldOut, train: Interactions) -> tuple[Record, Arrays]:
    """Return the content of a held-out part. Items, and a history that is the training data, are not repeated."""
    same = part.fold_in is train
    kind, arrays = stored_arrays.ids_to_arrays("user_ids", None if same else part.fold_in.user_ids)
    arrays |= stored_arrays.rows_to_arrays("targets", part.targets)
    if not same:
        arrays |= stored_arrays.rows_to_arrays("fold_in", part.fold_in)
    content = {
        "users": part.n_users,
        "items": train.n_items,
        "known_users": part.known_users,
        "history": "train" if same else "own",
        "ids": {"user_ids": kind},
    }
    return (content, arrays) if same else _with_weighting(part.fold_in, content, arrays)


def _with_weighting(data: Interactions, content: Record, arrays: Arrays) -> tuple[Record, Arrays]:
    how, own = stored_arrays.weighting_to_arrays(data.weighting)
    return content | how, arrays | own


def _write(folder: Path, name: str, content: Record, arrays: Arrays) -> dict[str, str]:
    digest = hashlib.sha256(strict_json.dump(content).encode())
    for key, array in sorted(arrays.items()):
        digest.update(f"{key} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    fingerprint = digest.hexdigest()
    file = _file_name(name, fingerprint)
    content = content | {"part": name, "fingerprint": fingerprint}
    container.write(inside(folder, file), PART, content, arrays, stored_arrays.version_for(content))
    return {"file": file, "fingerprint": fingerprint}


def _file_name(part: str, fingerprint: str) -> str:
    return f"{part}-{fingerprint[:12]}.fairmf"


def _manifest(folder: Path) -> Record:
    path = folder / MANIFEST
    if not folder.exists():
        raise InvalidData(f"There is no folder {folder}.")
    if not path.is_file():
        raise InvalidData(f"{folder} holds no {MANIFEST}: it is not the folder of a split.", parameter="folder")
    with container.reading(path, FORMAT):
        # Not trusted: check the size before reading it.
        if path.stat().st_size > _LARGEST_MANIFEST:
            raise Malformed("it is far too large")
        try:
            manifest = strict_json.parse(path.read_text(encoding="utf-8"), "its text")
        except UnicodeDecodeError as error:
            raise Malformed("it is not text") from error
        return _checked_manifest(manifest)


def _checked_manifest(manifest: object) -> Record:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise Malformed("it does not describe a split")
    if manifest.get("format_version") != VERSION:
        found = str(manifest.get("format_version"))[:20]
        raise Malformed(f"its format is {found}, this version reads {VERSION}: upgrade fairmf")
    if manifest.get("method") not in get_args(Method):
        raise Malformed("it does not say how users were divided")
    parts = manifest.get("parts")
    if not isinstance(parts, dict) or set(parts) != {"train", "validation", "test"}:
        raise Malformed("it does not name train, validation and test")
    for name, part in parts.items():
        if not isinstance(part, dict) or not all(isinstance(part.get(key), str) for key in ("file", "fingerprint")):
            raise Malformed("it does not say in which files its parts are")
        if not _FINGERPRINT.fullmatch(part["fingerprint"]):
            raise Malformed("it does not say what its parts hold")
        # A manifest from elsewhere must not make us read (or delete) other files.
        if part["file"] != _file_name(name, part["fingerprint"]):
            raise Malformed(f"it names {part['file'][:80]!r}, which is not a file of this split")
    return manifest


def _read(folder: Path, part: dict[str, str], fields: set[str]) -> tuple[Record, Arrays]:
    path = folder / part["file"]
    if not path.exists():
        raise BrokenFile(
            f"The split in {folder} is incomplete: its {part['file']} is missing.", hint="make the split again"
        )
    content, arrays = container.read(path, PART)
    with container.reading(path, PART.name):
        expected = fields | {"part", "fingerprint", "users", "items", "ids"}
        if not isinstance(content, dict) or set(content) - {"weighting"} != expected:
            raise Malformed("it has other parts than this format")
        if content["fingerprint"] != part["fingerprint"]:
            raise Malformed("it belongs to another split than the folder's split.json says")
        if not all(type(content[size]) is int and 0 <= content[size] < 2**31 for size in ("users", "items")):
            raise Malformed("it has impossible sizes")
        if not isinstance(content["ids"], dict):
            raise Malformed("it does not say what kinds of ids it has")
    return content, arrays


def _read_train(folder: Path, part: dict[str, str]) -> Interactions:
    content, arrays = _read(folder, part, set())
    with container.reading(folder / part["file"], PART.name):
        n, m, ids = content["users"], content["items"], content["ids"]
        users = stored_arrays.ids_from_arrays("user_ids", ids.get("user_ids"), n, arrays)
        items = stored_arrays.ids_from_arrays("item_ids", ids.get("item_ids"), m, arrays)
        how = stored_arrays.weighting_from_arrays(content, m, arrays)
        train = stored_arrays.rows_from_arrays("interactions", n, m, users, items, arrays, how)
        _check_none_left(arrays)
        return train


def _read_held_out(folder: Path, part: dict[str, str], train: Interactions) -> HeldOut:
    content, arrays = _read(folder, part, {"known_users", "history"})
    with container.reading(folder / part["file"], PART.name):
        if content["history"] not in ("own", "train") or not isinstance(content["known_users"], bool):
            raise Malformed("it does not say whose history it has")
        if content["items"] != train.n_items:
            raise Malformed("it has another number of items than train")
        if content["history"] == "train":
            history = train
        else:
            users = stored_arrays.ids_from_arrays("user_ids", content["ids"].get("user_ids"), content["users"], arrays)
            how = stored_arrays.weighting_from_arrays(content, train.n_items, arrays)
            history = stored_arrays.rows_from_arrays(
                "fold_in", content["users"], train.n_items, users, train.item_ids, arrays, how
            )
        targets = stored_arrays.rows_from_arrays(
            "targets", history.n_users, train.n_items, history.user_ids, train.item_ids, arrays
        )
        _check_none_left(arrays)
        return HeldOut(history, targets, content["known_users"])


def _check_none_left(arrays: Arrays) -> None:
    if arrays:
        raise Malformed(f"it holds an array {next(iter(arrays))[:60]!r} that does not belong there")


def _files_of(folder: Path) -> set[str]:
    """Return the names of the part files of the split that the folder holds now, if any."""
    if not is_split(folder):
        return set()
    try:
        return {part["file"] for part in _manifest(folder)["parts"].values()}
    except BrokenFile:
        return set()
