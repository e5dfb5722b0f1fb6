"""Load the data of an experiment: a benchmark data set, synthetic events of the same size, or a stored split.

Where a name is looked for: `from_path`; then in the folder of the environment variable FAIRMF_DATA, as NAME.npz,
NAME-split.npz or a folder NAME; then among the data sets that `fairmf datasets fetch` has fetched.

A .npz file holds CSR arrays (`indptr`, `indices`, `shape`), for the whole data or for each of the five parts of a split
by user (`train_`, `validation_tr_`, `validation_te_`, `test_tr_`, `test_te_`).
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairmf.data.csr import Rows
from fairmf.data.dataset_load import load_dataset
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split
from fairmf.data.split_io import is_split
from fairmf.data.split_methods import split_by_user
from fairmf.data.synthetic import synthetic_events
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.types import Record

VARIABLE = "FAIRMF_DATA"
NpzArrays = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Source:
    """A data set that experiments know by name: how to split it, and the approximate size of its training part."""

    heldout: int
    users: int
    items: int
    interactions: int
    min_user: int = 5
    min_item: int = 0
    made_up: Record | None = None


# For the paper's two data sets, heldout and the filters are those of the published splits. The sizes of the training
# parts are used for estimates only.
SOURCES = {
    "ml-20m": Source(10_000, 116_677, 20_108, 8_540_000),
    "msd": Source(50_000, 471_355, 41_140, 27_800_000, min_user=20, min_item=200),
    "ml-1m": Source(1_000, 4_034, 3_468, 388_246),
    "epinions": Source(500, 5_287, 3_999, 108_711, min_user=20, min_item=20),
    "gowalla": Source(2_500, 24_858, 40_981, 855_000, min_user=10),
    "synthetic-ml20m": Source(
        10_000, 116_677, 20_108, 8_540_000,
        made_up={"n_users": 136_677, "n_items": 20_108, "n_interactions": 9_990_682, "popularity_gini": 0.9},
    ),
    # A tenth of the users: what a laptop trains in minutes.
    "synthetic-ml20m-tenth": Source(
        1_000, 11_668, 20_108, 854_000,
        made_up={"n_users": 13_668, "n_items": 20_108, "n_interactions": 999_068, "popularity_gini": 0.9},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Data:
    """A split, the name of the data set whose settings suit it ("other" if none), and its name in results."""

    split: Split
    name: str
    shown: str
    fingerprint: str

    @property
    def facts(self) -> Record:
        """The name, fingerprint and sizes, for results."""
        train = self.split.train
        return {
            "name": self.shown,
            "settings_of": self.name,
            "fingerprint": self.fingerprint,
            "users": train.n_users,
            "items": train.n_items,
            "interactions": train.nnz,
            "test_users": self.split.test.n_users,
        }


def load_data(name: str, *, from_path: str | os.PathLike[str] | None = None) -> Data:
    """Load and split a data set by name, or load the stored split in a folder.

    `from_path` is a copy of the named data set, as `load_dataset` takes it, a .npz file of it, or the folder of a split
    made from it.
    """
    if name not in SOURCES and not Path(name).exists():
        raise InvalidParameter(
            f"There is no data {name!r} for experiments.",
            hint=f"name one of {', '.join(SOURCES)}, a .npz file, or the folder of a split",
        )
    if name in SOURCES and SOURCES[name].made_up is not None:
        if from_path is not None:
            raise InvalidParameter(f"{name} is synthetic: there is no copy of it to read.")
    elif from_path is None and name in SOURCES:
        from_path = beside(name)
    place = name if from_path is None else from_path
    if Path(place).suffix == ".npz":
        split = _npz_split(name, Path(place))
        return _data(split, name if name in SOURCES else "other", name if name in SOURCES else str(place))
    # A split of a known data set keeps that name, and with it the settings that suit the data.
    if is_split(place):
        return _data(
            Split.load(place), name if name in SOURCES else "other", str(place) if name not in SOURCES else name
        )
    if name not in SOURCES:
        raise InvalidData(f"{name} is neither the folder of a split nor a .npz file.", parameter="folder")
    source = SOURCES[name]
    if source.made_up is not None:
        events = synthetic_events(**source.made_up)
    else:
        events = load_dataset(name, from_path=from_path)
    split = split_by_user(events, source.heldout, min_user=source.min_user, min_item=source.min_item)
    return _data(split, name, name)


def _npz_split(name: str, path: Path) -> Split:
    """Return the split that a .npz file holds; if it holds no parts, split its users at random."""
    arrays = npz_arrays(path)
    if "train_indptr" in arrays:
        return npz_split(arrays, path)
    # Items of a published test part count like all others, because here users are held out.
    source = SOURCES.get(name, Source(max(1, int(arrays["shape"][0]) // 10) if "shape" in arrays else 1, 0, 0, 0))
    return split_by_user(
        npz_part(arrays, "", path),
        source.heldout,
        protocol="seeded",
        min_user=source.min_user,
        min_item=source.min_item,
    )


def beside(name: str) -> Path | None:
    """Return the stored file or folder of a name in the folder that FAIRMF_DATA names; None if there is none."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    places = (Path(folder) / f"{name}.npz", Path(folder) / f"{name}-split.npz", Path(folder) / name)
    return next((place for place in places if place.exists()), None)


def npz_arrays(path: Path) -> NpzArrays:
    """Read all arrays of a .npz file."""
    try:
        with np.load(path) as file:
            return dict(file)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InvalidData(f"{path} is not a file of NumPy arrays, or it is damaged: {error}.") from error


def npz_split(arrays: NpzArrays, path: Path) -> Split:
    """Return the split by user whose five parts the arrays are."""
    validation, test = (
        HeldOut(npz_part(arrays, f"{part}_tr_", path), npz_part(arrays, f"{part}_te_", path))
        for part in ("validation", "test")
    )
    return Split(npz_part(arrays, "train_", path), validation, test)


def npz_part(arrays: NpzArrays, prefix: str, path: Path) -> Interactions:
    """Return the binary matrix whose arrays begin with this prefix."""
    names = [f"{prefix}{name}" for name in ("indptr", "indices", "shape")]
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InvalidData(
            f"{path} lacks the arrays {', '.join(missing)}.", hint="docs/leaderboard.md says which arrays a file has"
        )
    indptr, indices, shape = (np.asarray(arrays[name]) for name in names)
    return Interactions(Rows(indptr.astype(np.int64), indices.astype(np.int32), None), int(shape[1]))


def _data(split: Split, name: str, shown: str) -> Data:
    # All parts count: the same training data with other test users is another experiment.
    digest = hashlib.sha256(split.method.encode())
    for part in (
        split.train,
        split.validation.fold_in,
        split.validation.targets,
        split.test.fold_in,
        split.test.targets,
    ):
        digest.update(part.fingerprint().encode())
    return Data(split, name, shown, digest.hexdigest())
