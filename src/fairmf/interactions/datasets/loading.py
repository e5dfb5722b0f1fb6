"""A benchmark data set as events: from the cache, from its publishers, or from a copy one has."""

from __future__ import annotations

import os
import urllib.parse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairmf.errors import DownloadFailed, InvalidParameter
from fairmf.interactions.csv_reader import read_text
from fairmf.interactions.datasets.adjacency import read_adjacency
from fairmf.interactions.datasets.archives import find_text
from fairmf.interactions.datasets.cache import folder_of, registered_copy, require_licence
from fairmf.interactions.datasets.download import Progress, fetch
from fairmf.interactions.datasets.registry import DataSet, dataset
from fairmf.interactions.events import Events
from fairmf.interactions.readers import existing


def load_dataset(
    name: str,
    *,
    from_path: str | os.PathLike[str] | None = None,
    accept_licence: bool = False,
    filtered: bool = True,
    part: str | None = None,
    progress: Progress | None = None,
    unprotected: bool = False,
) -> Events:
    """A benchmark data set (`datasets()` lists them), with the paper's filters unless `filtered=False`.

    It is fetched once, after its terms were accepted with `accept_licence=True`, and kept in the folder that
    `FAIRMF_DATA_CACHE` names. `from_path` reads a copy instead: the archive, the folder it unpacks to, or the file of
    ratings itself; so does every call after `fairmf datasets fetch NAME --from PATH`. Filters: ratings above 3.5 where
    there are ratings, then the data set's `min_item` and `min_user`. Play counts are the events' weights.
    `part="train"` or `"test"` gives that part of a set published in two files, with the codes of the whole. `progress`
    is called with the bytes fetched and the bytes in all. `unprotected=True` also fetches what comes over plain http
    and has no checksum, so that anybody on the way could have replaced it.
    """
    entry = dataset(name)
    if part is not None and (len(entry.members) == 1 or part not in ("train", "test")):
        raise InvalidParameter(
            f"'part' must be None, or 'train' or 'test' for a data set published in two files. Got {part!r} for {name}."
        )
    if from_path is None:
        from_path = registered_copy(entry)
    if from_path is None:
        fetch_dataset(name, accept_licence=accept_licence, progress=progress, unprotected=unprotected)
        paths = [folder_of(entry) / file_name(address) for address in entry.addresses]
    else:
        paths = [existing(from_path)] * len(entry.members)
    return _read(entry, paths, filtered, part)


def fetch_dataset(
    name: str, *, accept_licence: bool = False, progress: Progress | None = None, unprotected: bool = False
) -> list[dict[str, Any]]:
    """Have the data set in the cache. Returns a record per file: address, bytes, SHA-256, what checked it.

    What comes over plain http and has no checksum is fetched only with `unprotected=True`.
    """
    entry = dataset(name)
    require_licence(entry, accept_licence)
    folder = folder_of(entry)
    files = {address: folder / file_name(address) for address in entry.addresses}
    if entry.unprotected and not unprotected and not all(file.exists() for file in files.values()):
        raise DownloadFailed(
            f"{entry.name} comes over plain http and no checksum is published: anybody on the way can replace it. Pass "
            f"unprotected=True to fetch it nevertheless, or fetch it by other means and pass it as from_path."
        )
    options: dict[str, Any] = {"md5": entry.md5, "md5_beside": entry.md5_beside, "most_bytes": entry.most_bytes}
    return [fetch(address, file, progress=progress, **options) for address, file in files.items()]


def file_name(address: str) -> str:
    """What the file behind the address is called in the cache."""
    return Path(urllib.parse.urlsplit(address).path).name


def _read(entry: DataSet, paths: list[Path], filtered: bool, part: str | None) -> Events:
    sources = [find_text(path, member) for path, member in zip(paths, entry.members, strict=True)]
    layout, columns = entry.layout, entry.layout.columns
    if layout.delimiter is None:
        events, sizes = read_adjacency(sources, columns)
        if part is not None:
            events = events.select(_rows_of(part, sizes))
        return events
    if not filtered:
        columns = replace(columns, rating=None, rating_above=None)
    events = read_text(
        sources[0], columns, layout.delimiter, layout.header, text_ids=layout.literal, literal=layout.literal
    )
    if layout.literal:
        events = _with_names(events)
    if filtered and (entry.min_user or entry.min_item):
        events = events.at_least(min_user=entry.min_user, min_item=entry.min_item)
    return events.compact()


def _with_names(events: Events) -> Events:
    """Without the rows whose user or item has no name."""
    named = [ids.values != "" for ids in (events.user_ids, events.item_ids)]
    return events.select(named[0][events.users] & named[1][events.items])


def _rows_of(part: str, sizes: list[int]) -> NDArray[np.bool_]:
    """The rows of one part, as a mask."""
    rows = np.zeros(sum(sizes), dtype=bool)
    rows[: sizes[0]] = part == "train"
    rows[sizes[0] :] = part == "test"
    return rows
