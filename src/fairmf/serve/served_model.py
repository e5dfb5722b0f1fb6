"""Hold one model with all that belongs to it: names, titles, groups, fingerprint. It is replaced as a whole.

A request reads the current `ServedModel` once and is answered from it alone, so that no answer mixes two models.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from fairmf.control.exposure_control import ExposureControl, exposure_control
from fairmf.data.groups import Groups, read_groups
from fairmf.data.ids import Ids
from fairmf.errors import BrokenFile, FairmfError, InvalidData
from fairmf.io import container
from fairmf.lazy import cached_property
from fairmf.models.ann_requests import AnnRequests
from fairmf.models.factor_model import FactorModel
from fairmf.models.history_request import HistoryAnswer, HistoryRequest
from fairmf.models.model_file import MODEL, load_model
from fairmf.ranking.ann import AnnIndex
from fairmf.serve.messages import Id
from fairmf.serve.settings import Settings
from fairmf.types import Array

FINGERPRINT = 16  # digits of a fingerprint that answers show
PROBE = 5  # items of the list that a new model has to give before it is served
NO_GROUP = "no group"
NO_ROW = -(1 << 70)  # stands for a text in a model without ids, whose items are row numbers


class Names:
    """Translate between the ids of a model and ids as JSON has them: integers and text.

    Ids of other types are written as text. A number also finds an id that is the same number as text, and the other way
    round: clients in JavaScript often send the one for the other.
    """

    def __init__(self, ids: Ids | None, size: int):
        self.ids, self.size = ids, size
        values: list[Any] = [] if ids is None else ids.values.tolist()
        kinds = {type(value) for value in values}
        self._kind = int if ids is None or kinds <= {int} else str if kinds == {str} else None
        self._real: dict[str, Hashable] | None = None
        if self._kind is None:
            self._real = {str(value): value for value in values}
            if len(self._real) != len(values):
                raise InvalidData("Two ids of this model look the same in JSON: give ids that are integers or text.")
        elif ids is not None:
            _ = 0 in ids  # makes the table of positions now rather than in the first request

    def given(self, name: Id) -> Hashable:
        """Return an id of a request as the model has it; as it is if the model has no such id."""
        if type(name) is self._kind:
            return name
        if self._kind is int:
            return _as_number(name)
        return str(name) if self._kind is str else self._real.get(str(name), name)  # type: ignore[union-attr]

    def all_given(self, names: Iterable[Id]) -> list[Hashable]:
        """Return the ids of a request as the model has them."""
        kind, given = self._kind, self.given
        found = [name if type(name) is kind else given(name) for name in names]
        # Without ids the library takes row numbers alone, and counts numbers out of range as unknown.
        return found if self.ids is not None else [name if isinstance(name, int) else NO_ROW for name in found]

    def shown(self, name: Hashable) -> Id:
        """Return an id of the model as JSON has it."""
        return name if isinstance(name, (int, str)) and self._kind is not None else str(name)

    def all_shown(self, ids: Array) -> list[Id]:
        """Return ids of a list as JSON has them."""
        names: list[Any] = ids.tolist()
        return names if self._kind is not None else [str(name) for name in names]

    def row(self, name: Id) -> int:
        """Return the row of an id of a request; -1 if there is none."""
        given = self.given(name)
        if self.ids is not None:
            return self.ids.position(given) if given in self.ids else -1
        return given if isinstance(given, int) and 0 <= given < self.size else -1

    def of_rows(self, rows: Array) -> list[Id]:
        """Return the ids of rows as JSON has them."""
        return self.all_shown(rows if self.ids is None else self.ids.named(rows))


def _as_number(name: Id) -> Id:
    """Return the integer that a text writes in the usual way, such as "12" but not "012"; other names as they are."""
    if isinstance(name, int) or len(name) > 20 or not name.isascii() or not name.removeprefix("-").isdigit():
        return name
    return int(name) if str(int(name)) == name else name


@dataclass(frozen=True)
class Catalogue:
    """Titles and groups of items, by their ids as text. It outlives the model: a new one may have other items."""

    titles: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """An item may have several groups: its exposure is divided between them."""


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model that answers requests."""

    model: FactorModel
    fingerprint: str
    items: Names
    users: Names
    titles: list[str] | None
    """Title of every item, its id where the catalogue has none; None without a catalogue of titles."""
    groups: Groups | None
    """The groups of the items; None without a catalogue of groups."""
    index: AnnRequests | None = None
    """Answers requests through a nearest-neighbour index; None ranks all items."""
    control: ExposureControl | None = None
    """Moves prices so that floors and caps of exposure hold."""
    catalogue: Catalogue = field(default_factory=Catalogue)
    """The file with titles and groups."""
    loaded: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    @classmethod
    def of(cls, model: FactorModel, catalogue: Catalogue | None = None, fingerprint: str | None = None) -> ServedModel:
        """Prepare a fitted model: look its names up, and match the catalogue to its items."""
        model = copy.copy(model)  # the caller's may be fitted again, or be given other settings
        fitted, catalogue = model.fitted, catalogue or Catalogue()
        items = Names(fitted.item_ids, model.n_items)
        known = bool(catalogue.titles or catalogue.groups)
        texts = [str(name) for name in items.of_rows(np.arange(items.size))] if known else []
        titles = [catalogue.titles.get(text, text) for text in texts] if catalogue.titles else None
        labels = [list(catalogue.groups.get(text, ())) or [NO_GROUP] for text in texts] if catalogue.groups else []
        groups = read_groups(labels, items.size, None, several=True) if labels else None
        return cls(
            model, fingerprint or content_digest(model), items, Names(fitted.user_ids, model.n_users), titles, groups,
            catalogue=catalogue,
        )  # fmt: skip

    @property
    def ranker(self) -> FactorModel | AnnRequests:
        """What answers requests for lists."""
        return self.model if self.index is None else self.index

    def with_parts(self, settings: Settings, worker: int = 0) -> ServedModel:
        """Return the model with the index and the control that the settings name."""
        index = control = None
        if settings.index is not None:
            index = AnnRequests(self.model, AnnIndex.load(settings.index))
            index.check()
        if settings.control is not None:
            control = exposure_control(self.model, settings.control, self.groups)
            state = state_file(settings.control, worker)
            if state.exists():
                with contextlib.suppress(InvalidData):  # the state of a model with other items is of no use
                    control.restore(state)
        return dataclasses.replace(self, index=index, control=control)

    @classmethod
    def load(cls, path: Path, catalogue: Catalogue | None = None, num_threads: int = 0) -> ServedModel:
        """Map a model file, verify its checksums, and check that the model gives a list. BrokenFile if not."""
        before = stored_checksum(path)
        model = load_model(path, mmap=True, verify=True)
        if stored_checksum(path) != before:
            raise BrokenFile(f"{path} was replaced while it was read.")
        model.set_params(num_threads=num_threads)
        served = cls.of(model, catalogue, before[:FINGERPRINT])
        served.warm()
        return served

    def warm(self) -> None:
        """Ask for lists as requests do, so that kernels are loaded and arrays are read; raise if one is not finite."""
        fitted, n = self.model.fitted, min(PROBE, self.items.size)
        favourites = self.items.of_rows(fitted.most_popular[: min(3, self.items.size)])
        levels = (None,) if fitted.item_offsets is not None else (None, 0.0, 0.5)
        asked = [HistoryRequest(self.items.all_given(favourites), N=n, evenness=e) for e in levels]
        try:
            answers = self.ranker.recommend_histories([*asked, HistoryRequest((), N=n)])
        except FairmfError as error:
            raise BrokenFile(f"This model gives no list: {error}") from error
        for answer in answers[:-1]:
            if isinstance(answer, HistoryAnswer) and not np.isfinite(answer.scores[self.found(answer.ids)]).all():
                raise BrokenFile("This model gives scores that are not finite.")

    @staticmethod
    def found(ids: Array) -> NDArray[np.bool_]:
        """Return which slots of a list are filled."""
        return ids != -1 if ids.dtype.kind == "i" else np.array([name is not None for name in ids], dtype=bool)

    @cached_property
    def texts(self) -> list[str]:
        """All ids as text."""
        return [str(name) for name in self.items.of_rows(np.arange(self.items.size))]

    @cached_property
    def lowered(self) -> list[str]:
        """What a search for items looks through: titles, or ids, in small letters."""
        return [text.casefold() for text in (self.texts if self.titles is None else self.titles)]

    def rows(self, ids: Array) -> list[int]:
        """Return the rows of ids of the model."""
        known = self.items.ids
        return ids.tolist() if known is None else [known.position(name) for name in ids.tolist()]

    def titled(self, rows: list[int]) -> list[str] | UnsetType:
        """Return the titles of items; UNSET without a catalogue."""
        titles = self.titles
        return UNSET if titles is None else [titles[row] for row in rows]


def servable(model: object) -> FactorModel:
    """Return the model; raise InvalidData if it is none that answers single requests."""
    if isinstance(model, FactorModel):
        return model
    raise InvalidData(
        f"{type(model).__name__} cannot be served: a server answers from FairALS, IALS, FiADMM or Popularity.",
        hint="FairRec and other methods that rank a whole cohort are for lists made ahead (docs/serving.md)",
    )


def state_file(control: Path, worker: int) -> Path:
    """Return where a worker keeps the state of its exposure control: beside the file with the bounds."""
    return control.with_name(f"{control.name}.{worker}.state")


def stored_checksum(path: Path) -> str:
    """Return the checksum in the header of a model file, which covers the checksums of its arrays."""
    with container.reading(path, MODEL.name), path.open("rb") as file:
        _, metadata = container.read_header(file)
        return metadata.get("checksum", "")


def content_digest(model: FactorModel) -> str:
    """Return a fingerprint of a model in memory: of its item vectors, settings and path."""
    fitted = model.fitted
    digest = hashlib.sha256(np.ascontiguousarray(fitted.item_factors).data)
    digest.update(np.ascontiguousarray(fitted.merit).data)
    path = None if fitted.path is None else fitted.path.to_dict()
    digest.update(repr((fitted.settings, fitted.fairness, fitted.flatten, fitted.discount, fitted.lift, path)).encode())
    return digest.hexdigest()[:FINGERPRINT]
