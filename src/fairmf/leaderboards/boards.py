"""Load the data of a leaderboard: which part is trained on, which chooses settings, which is the test.

Two protocols:

* held-out items: every user is in training, and a part of the user's items is the test, as published (train.txt and
  test.txt of NGCF and LightGCN). Recall divides by the number of test items. Of every user's training items a fifth,
  as many as the test has, is hidden while settings are chosen; the models that are tested are trained on all of them.
* held-out users (strong generalisation, Liang et al. 2018): nobody who is measured is in training. Recall divides by
  min(K, number of test items).

Where a name is looked for: `from_path`; then in the folder of the environment variable FAIRMF_DATA, as NAME.npz,
NAME-split.npz or a folder NAME; then among the data sets that `fairmf datasets fetch` has fetched.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairmf.data.columns import Columns
from fairmf.data.csr import Rows, entries_where
from fairmf.data.dataset_load import find_text, load_dataset, read_adjacency
from fairmf.data.datasets import datasets
from fairmf.data.download import registered_copy
from fairmf.data.events import Events
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split, build_matrix
from fairmf.data.split_io import is_split
from fairmf.errors import DownloadFailed, InvalidData, InvalidParameter, LicenceNotAccepted
from fairmf.reproduce.data import VARIABLE, beside, load_data, npz_arrays, npz_part, npz_split
from fairmf.types import Record

HIDDEN = 0.2  # share of a user's training items that choose settings; also of the test where none is published
SCORED = 5_000  # users whose lists choose settings; more would take longer and change little
SEED = 0  # of the items that are hidden, so that all runs choose on the same data
TO_ITEMS, TO_USERS = "held-out items", "held-out users"
ADJACENCY = ("gowalla", "yelp2018", "amazon-book")
RATINGS = ("ml-1m", "ml-20m", "msd", "epinions")
BOARDS = (*ADJACENCY, *RATINGS[:3])
"""The boards that the command line offers by name."""


@dataclass(frozen=True)
class Board:
    """The data of a leaderboard. Settings are chosen by fits on `chosen_on`, measured on `validation`."""

    name: str
    protocol: str
    chosen_on: Interactions
    validation: HeldOut
    train: Interactions
    test: HeldOut

    @property
    def recall_by_targets(self) -> bool:
        """Whether recall divides by the number of test items |T|; otherwise by min(K, |T|)."""
        return self.protocol == TO_ITEMS

    @property
    def recall(self) -> str:
        """Return the definition of recall on this board, in words."""
        return "hits / |T|" if self.recall_by_targets else "hits / min(K, |T|)"

    @property
    def metrics(self) -> tuple[str, ...]:
        """The accuracy metrics that the literature on these data uses, the first two for plots."""
        return ("recall@20", "ndcg@20") if self.recall_by_targets else ("recall@20", "ndcg@100", "ndcg@20", "recall@50")

    @property
    def chosen_by(self) -> str:
        """The metric that settings are chosen by."""
        return self.metrics[1]

    def for_search(self) -> Split:
        """Return what a search may see. The test is not in it: the validation part stands in its place."""
        # "by_time" is the method whose parts may share users; nothing else depends on it here.
        return Split(self.chosen_on, self.validation, self.validation, "by_time")

    def facts(self) -> Record:
        """Return name, protocol and sizes, for results."""
        digest = hashlib.sha256(self.protocol.encode())
        for part in (self.chosen_on, self.validation.targets, self.train, self.test.fold_in, self.test.targets):
            digest.update(part.fingerprint().encode())
        return {
            "name": self.name, "protocol": self.protocol, "recall": self.recall, "users": self.train.n_users,
            "items": self.train.n_items, "interactions": self.train.nnz, "test_users": self.test.n_scored,
            "test_interactions": self.test.targets.nnz, "validation_users": self.validation.n_scored,
            "chosen_by": self.chosen_by, "fingerprint": digest.hexdigest()[:32],
        }  # fmt: skip


def load_board(name: str, from_path: str | os.PathLike[str] | None = None) -> Board:
    """Load the data of a board by name or path (the module's text says where a name is looked for)."""
    path = Path(name) if from_path is None else Path(from_path)
    if from_path is not None or name not in (*BOARDS, "epinions"):
        if path.exists():
            return read_board(_plain_name(name), path)
        stored = None if from_path is not None else beside(name)
        if stored is None:
            raise InvalidParameter(
                f"There is no leaderboard {name!r}." if from_path is None else f"{path} does not exist.",
                hint=f"name one of {', '.join(BOARDS)}, a .npz file in the folder that {VARIABLE} names, or "
                + where(_plain_name(name)),
            )
        return read_board(name, stored)
    stored = beside(name)
    return read_board(name, stored) if stored is not None else _fetched(name)


def where(name: str) -> str:
    """Say which files of a data set are read, and from where."""
    if name in RATINGS:
        return f"the downloaded archive of {name} or the folder it unpacks to (or the folder of a stored split)"
    return "a folder or zip archive with train.txt and test.txt (lines of a user and its items, as LightGCN has them)"


def _own_copy(name: str) -> str:
    return f"A copy of your own needs no download: {where(name)}, given by --from or kept as {name} in ${VARIABLE}."


def _plain_name(name: str) -> str:
    return name if name in (*BOARDS, "epinions") else Path(name).name.split(".")[0].removesuffix("-split")


def _fetched(name: str) -> Board:
    """Load a data set that was fetched or registered before; otherwise say what to do."""
    try:
        if name in RATINGS:
            return from_split(name, load_data(name).split)
        copy = registered_copy(datasets()[name])
        if copy is not None:
            return read_board(name, copy)
        events = [load_dataset(name, part=part) for part in ("train", "test")]
    except LicenceNotAccepted as error:
        told = f"{error.message} {_own_copy(name)}"
        raise LicenceNotAccepted(told, dataset=name, hint=error.hint, parameter=error.parameter) from None
    except DownloadFailed as error:
        raise DownloadFailed(
            f"{error.message} {_own_copy(name)}", hint=error.hint, parameter=error.parameter
        ) from error
    return from_events(name, *events)


# -- files ------------------------------------------------------------------------------------------------------------


def read_board(name: str, path: Path) -> Board:
    """Read a board from a file or folder: stored arrays, train.txt and test.txt, a split, or the archive of ratings."""
    if path.suffix == ".npz":
        return read_arrays(name, path)
    if is_split(path):
        return from_split(name, Split.load(path))
    if name in RATINGS:
        return from_split(name, load_data(name, from_path=path).split)
    if not path.is_dir() and not zipfile.is_zipfile(path):
        raise InvalidData(f"{path} holds no leaderboard.", hint=f"give {where(name)}")
    sources = [find_text(path, member) for member in ("train.txt", "test.txt")]
    events, (size, _) = read_adjacency(sources, Columns(0, 1))
    rows = np.arange(len(events.users)) < size
    return from_events(name, events.select(rows), events.select(~rows))


def from_events(name: str, train: Events, test: Events) -> Board:
    """Make a board from the events of train.txt and test.txt, which have the codes of the whole."""
    n_users, n_items = len(train.user_ids), len(train.item_ids)

    def matrix(events: Events) -> Interactions:
        once = events.without_duplicates()
        return build_matrix(once.users, once.items, n_users, n_items)

    return from_published(name, matrix(train), matrix(test))


def read_arrays(name: str, path: Path) -> Board:
    """Read a .npz file: CSR arrays with `split` (0 train, 1 test), without it, or the five parts of a split by user."""
    arrays = npz_arrays(path)
    if "train_indptr" in arrays:
        return from_split(name, npz_split(arrays, path))
    whole = npz_part(arrays, "", path)
    if "split" not in arrays:
        hidden = marked(whole.by_user, HIDDEN, SEED)
    elif arrays["split"].shape != (whole.nnz,):
        raise InvalidData(f"'split' of {path} must have one number per interaction, {whole.nnz:,}.")
    else:
        hidden = arrays["split"] == 1
    return from_published(name, where_marked(whole, ~hidden), where_marked(whole, hidden))


# -- parts ------------------------------------------------------------------------------------------------------------


def from_split(name: str, split: Split) -> Board:
    """Make a board from a split, with the validation data that it has."""
    protocol = TO_ITEMS if split.test.known_users else TO_USERS
    return Board(name, protocol, split.train, sampled(split.validation), split.train, split.test)


def from_published(name: str, train: Interactions, test: Interactions) -> Board:
    """Make a board from a published training and test part of all users."""
    hidden = marked(train.by_user, HIDDEN, SEED)
    chosen_on = where_marked(train, ~hidden)
    validation = sampled(HeldOut(chosen_on, where_marked(train, hidden), known_users=True))
    return Board(name, TO_ITEMS, chosen_on, validation, train, HeldOut(train, test, known_users=True))


def sampled(held_out: HeldOut) -> HeldOut:
    """Return a random sample of many validation users. Their vectors are folded in, which gives the stored ones."""
    if held_out.n_users <= SCORED:
        return held_out
    rows = np.sort(np.random.default_rng(SEED).choice(held_out.n_users, SCORED, replace=False))
    return HeldOut(held_out.fold_in.take_users(rows), held_out.targets.take_users(rows))


def marked(rows: Rows, share: float, seed: int) -> NDArray[np.bool_]:
    """Mark round(share * k) random entries of every row of k entries."""
    counts = np.diff(rows.indptr)
    row = np.repeat(np.arange(rows.count), counts)
    # One sort puts the entries of each row in random order; the first ones of each row are marked.
    order = np.lexsort((np.random.default_rng(seed).random(len(row)), row))
    rank = np.arange(len(row)) - np.repeat(rows.indptr[:-1], counts)
    found = np.zeros(len(row), dtype=np.bool_)
    found[order] = rank < np.repeat(np.round(share * counts), counts)
    return found


def where_marked(data: Interactions, kept: NDArray[np.bool_]) -> Interactions:
    """Return the interactions that are kept, of the same users and items."""
    return Interactions(entries_where(data.by_user, kept)._replace(weights=None), data.n_items)
