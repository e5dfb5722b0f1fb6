"""Load the data of an experiment: a benchmark data set, synthetic events of the same size, or a stored split."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from fairmf.data.dataset_load import load_dataset
from fairmf.data.split import Split
from fairmf.data.split_io import is_split
from fairmf.data.split_methods import split_by_user
from fairmf.data.synthetic import synthetic_events
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.types import Record


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

    `from_path` is a copy of the named data set, as `load_dataset` takes it, or the folder of a split made from it.
    """
    place = name if from_path is None else from_path
    if name not in SOURCES and not Path(name).exists():
        raise InvalidParameter(
            f"There is no data {name!r} for experiments.",
            hint=f"name one of {', '.join(SOURCES)}, or the folder of a split",
        )
    if name in SOURCES and SOURCES[name].made_up is not None and from_path is not None:
        raise InvalidParameter(f"{name} is synthetic: there is no copy of it to read.")
    # A split of a known data set keeps that name, and with it the settings that suit the data.
    if is_split(place):
        return _data(
            Split.load(place), name if name in SOURCES else "other", str(place) if name not in SOURCES else name
        )
    if name not in SOURCES:
        raise InvalidData(f"{name} is not the folder of a split.", parameter="folder")
    source = SOURCES[name]
    if source.made_up is not None:
        events = synthetic_events(**source.made_up)
    else:
        events = load_dataset(name, from_path=from_path)
    split = split_by_user(events, source.heldout, min_user=source.min_user, min_item=source.min_item)
    return _data(split, name, name)


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
