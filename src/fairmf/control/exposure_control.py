"""Keep the exposure of items or groups between floors and caps while lists are served.

Every unit (an item, or a group of items) has a price that is added to the scores of its items. Of the lists that were
shown since the last step, a unit's share is its part of all shown items, divided by its part of the catalogue: 1 is
uniform exposure. A step moves the prices along the subgradient of the dual of

    maximise the sum of the shown items' scores   subject to   floor_u <= share_u <= cap_u

    up_u   <- max(0, up_u   + eta_u (1 - share_u / floor_u))      where there is a floor
    down_u <- max(0, down_u + eta_u (share_u / cap_u - 1))        where there is a cap
    price_u = up_u - down_u

with eta_u = gain_u times `step` times the spread of the scores times the part of a window that was shown. A gain grows
while its unit stays on one side of its bound, and is halved when the unit crosses it: units far from their bound get
there within two windows, and others are held still. Shares are those of the last tenth of a window, roughly. With fixed
demand the prices fluctuate around those that `fit_offsets` learns and that solve the linear programme; where demand
changes they follow. Equals plain ranking where no bound binds.

Order of calls: `record` what is shown; it takes a step when enough lists were shown; rank with `prices`
(`recommend_histories(..., prices=control.prices)`); `save` now and then.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairmf.backends.contract import Vector, frozen
from fairmf.data.fingerprint import id_text
from fairmf.data.groups import Groups
from fairmf.data.ids import Ids
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.io import container
from fairmf.io.container import Format
from fairmf.io.strict_json import Malformed
from fairmf.params import check_count, check_number
from fairmf.types import Record

if TYPE_CHECKING:
    from fairmf.models.factor_model import FactorModel

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STATE = Format("fairmf exposure control", version=1)
STEPS_PER_WINDOW = 50
SMOOTHED = 10.0  # a list counts 1/e of its weight in the shares of a step after this part of a window
GROWTH, SHRINKAGE, GAINS = 1.15, 0.5, (0.25, 8.0)  # of the gains at each step, and their range
FURTHEST = 2.0  # how far beyond its bound a unit counts at most
MOST = 20.0  # largest price, in spreads of the scores: a unit that cannot be shown does not gather more
PARTS = ("up", "down", "window", "fresh", "recent", "gain", "side")  # of a state
KEYS = ("window", "step", "per", "floor", "cap", "floors", "caps")


@dataclass(frozen=True)
class ControlSettings:
    """Hold the bounds to keep, as a share of uniform exposure, and how quickly to react.

    As a file (`floors.toml`):

        window = 20000         # lists over which shares are measured
        step = 1.0             # how far a price moves in a window in which its unit is not shown at all
        per = "group"          # or "item"
        floor = 0.2            # of every unit
        cap = 5.0
        [floors]               # of single units, by name
        "Indie" = 0.8
        [caps]
        "Studio" = 1.5
    """

    window: int = 20_000
    step: float = 1.0
    per: str = "item"
    floor: float | None = None
    cap: float | None = None
    floors: Mapping[Hashable, float] = field(default_factory=dict)
    caps: Mapping[Hashable, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_count("exposure control", "window", self.window, STEPS_PER_WINDOW)
        check_number("exposure control", "step", self.step, above=0)
        if self.per not in ("item", "group"):
            raise InvalidParameter(f"per must be 'item' or 'group'. Got {self.per!r} instead.", parameter="per")
        for name, value in (("floor", self.floor), *(("floors", each) for each in self.floors.values())):
            if value is not None:
                check_number("exposure control", name, value, low=0)
        for name, value in (("cap", self.cap), *(("caps", each) for each in self.caps.values())):
            if value is not None:
                check_number("exposure control", name, value, above=0)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ControlSettings:
        """Read a TOML file; raise InvalidParameter if it holds anything else than the keys above."""
        try:
            values: Record = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidParameter(f"{Path(path).name} is not a TOML file: {error}.") from error
        unknown = [name for name in values if name not in KEYS]
        if unknown:
            raise InvalidParameter(
                f"{Path(path).name} has no setting {', '.join(map(repr, unknown))}; there are {', '.join(KEYS)}."
            )
        for name in ("floors", "caps"):
            if not isinstance(values.get(name, {}), dict):
                raise InvalidParameter(f"{name} must be a table of names and numbers.", parameter=name)
        return cls(**values)


class ExposureControl:
    """Count what is shown and move prices so that floors and caps hold over a window.

    Parameters
    ----------
    settings
        The bounds.
    codes
        The unit of every item: numbers from 0 to the number of units - 1.
    names
        The names of the units, which `settings.floors` and `settings.caps` use.
    spread
        The standard deviation of the scores, in which steps are measured.

    Raises
    ------
    InvalidParameter
        If bounds contradict each other, or cannot all be met.
    InvalidData
        If a bound is given for a unit that does not exist.

    Examples
    --------
    >>> import numpy as np
    >>> control = ExposureControl(ControlSettings(window=100, floor=0.5), np.arange(4), tuple("abcd"), spread=1.0)
    >>> for _ in range(100):
    ...     control.record(np.array([0, 1, 2]))
    >>> bool(control.prices[3] > control.prices[0])
    True
    """

    def __init__(self, settings: ControlSettings, codes: ArrayLike, names: tuple[Hashable, ...], spread: float):
        check_number("exposure control", "spread", spread, above=0)
        self.settings, self.names, self.spread = settings, names, float(spread)
        self._codes = frozen(np.array(codes, dtype=np.int64))
        sizes = np.bincount(self._codes, minlength=len(names))
        if len(sizes) != len(names) or (sizes == 0).any():
            raise InvalidData("Every unit must have at least one item.")
        self._fair = sizes / len(self._codes)
        """Each unit's part of the catalogue."""
        self.floors = self._bounds(settings.floor or 0.0, settings.floors)
        self.caps = self._bounds(np.inf if settings.cap is None else settings.cap, settings.caps)
        if (self.floors > self.caps).any():
            worst = self.names[int(np.argmax(self.floors - self.caps))]
            raise InvalidParameter(f"The floor of {worst!r} is above its cap.")
        if self._fair @ self.floors > 1 or self._fair @ self.caps < 1:
            raise InvalidParameter(
                "No lists can satisfy these bounds: the floors add up to too much, or the caps to too little."
            )
        self._lock = threading.Lock()
        k = len(names)
        self._up, self._down = np.zeros(k), np.zeros(k)
        self._fresh, self._fresh_lists = np.zeros(k), 0
        self._window, self.lists = np.zeros(k), 0
        self._recent, self._gain, self._side = np.zeros(k), np.ones(k), np.zeros(k)
        self._every = max(1, settings.window // STEPS_PER_WINDOW)
        self._prices = frozen(np.zeros(len(self._codes)))

    def _bounds(self, default: float, single: Mapping[Hashable, float]) -> Vector:
        """Return a bound for each unit. A file names all units by text, so "7" is also the unit 7."""
        bounds = np.full(len(self.names), float(default))
        if single:
            place: dict[Any, int] = {str(name): at for at, name in enumerate(self.names)}
            place |= {name: at for at, name in enumerate(self.names)}
            unknown = [name for name in single if name not in place]
            if unknown:
                raise InvalidData(f"There is a bound for {unknown[0]!r}, which is no {self.settings.per}.")
            for name, value in single.items():
                bounds[place[name]] = value
        return bounds

    @property
    def prices(self) -> NDArray[np.float64]:
        """The number to add to the scores of each item. A new read-only array after every step."""
        return self._prices

    def record(self, shown: ArrayLike) -> None:
        """Count the items of one list (rows of the model; -1 counts nothing), or of many lists as rows of a matrix.

        Threads may call it at the same time.
        """
        rows = np.asarray(shown)
        lists = 1 if rows.ndim < 2 else len(rows)
        rows = rows[rows >= 0]
        if len(rows) and rows.max() >= len(self._codes):
            raise InvalidData(f"Items go from row 0 to {len(self._codes) - 1:,}; got {rows.max()}.")
        counts = np.bincount(self._codes[rows], minlength=len(self.names))
        with self._lock:
            self._fresh += counts
            self._fresh_lists += lists
            if self._fresh_lists >= self._every:
                self._step()

    def _step(self) -> None:
        """Move the prices by what was shown since the last step. Called with the lock held."""
        part = min(1.0, self._fresh_lists / self.settings.window)
        total = self._fresh.sum()
        if total > 0:
            self._recent = self._recent * np.exp(-SMOOTHED * part) + self._fresh
            share = self._recent / self._recent.sum() / self._fair
            above = np.divide(share, self.floors, out=np.full(len(share), np.inf), where=self.floors > 0)
            lack = np.where(self.floors > 0, np.clip(1.0 - above, -FURTHEST, 1.0), 0.0)
            excess = np.clip(share / self.caps - 1.0, -1.0, FURTHEST)
            self._move(lack, np.where(np.isfinite(self.caps), excess, 0.0), part)
        # A list counts 1/e of its weight after a window of further lists.
        self._window = self._window * np.exp(-part) + self._fresh
        self.lists += self._fresh_lists
        self._fresh, self._fresh_lists = np.zeros(len(self.names)), 0

    def _move(self, lack: Vector, excess: Vector, part: float) -> None:
        """Move the prices: up by what units lack to their floors, down by what they exceed their caps by."""
        raised, lowered = (lack > 0) | (self._up > 0), (excess > 0) | (self._down > 0)
        side = np.sign(np.where(raised, lack, np.where(lowered, -excess, 0.0)))
        turned = side * self._side
        grown = np.where(turned > 0, GROWTH, np.where(turned < 0, SHRINKAGE, 1.0))
        self._gain, self._side = np.clip(self._gain * grown, *GAINS), side
        eta, most = self.settings.step * self.spread * part * self._gain, MOST * self.spread
        self._up = np.clip(self._up + eta * lack, 0.0, most)
        self._down = np.clip(self._down + eta * excess, 0.0, most)
        self._prices = frozen((self._up - self._down)[self._codes])

    @property
    def shares(self) -> Vector:
        """Exposure of each unit over the window, as a share of uniform exposure; NaN before the first step."""
        with self._lock:
            total = self._window.sum()
            return self._window / total / self._fair if total > 0 else np.full(len(self.names), np.nan)

    def report(self) -> Record:
        """Return plain numbers about the window: units outside their bounds, and how far prices have moved."""
        share, floored = self.shares, self.floors > 0
        return {
            "lists": self.lists,
            "units": len(self.names),
            "below_floor": int((share < self.floors).sum()),
            "above_cap": int((share > self.caps).sum()),
            "least_share_of_floor": float(np.min(share[floored] / self.floors[floored], initial=np.inf)),
            "greatest_share_of_cap": float(np.max(share / self.caps, initial=0.0)),
            "largest_price": float(np.abs(self._prices).max(initial=0.0)),
        }

    # -- state ------------------------------------------------------------------------------------------------------

    def _fingerprint(self) -> str:
        digest = hashlib.sha256(self._codes.astype("<i8").tobytes())
        digest.update("\n".join(map(id_text, self.names)).encode(errors="surrogatepass"))
        return digest.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write prices and counts to a file, in one atomic step."""
        with self._lock:
            arrays = {name: getattr(self, f"_{name}").copy() for name in PARTS}
            content = {"lists": self.lists, "fresh_lists": self._fresh_lists, "units": self._fingerprint()}
        container.write(Path(path), STATE, content, arrays)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Continue from a file that `save` wrote.

        Raises BrokenFile if it is damaged, and InvalidData if it belongs to other items or groups. Bounds may differ: a
        price that a unit no longer needs goes back to 0.
        """
        content, arrays = container.read(Path(path), STATE)
        k = len(self.names)
        with container.reading(Path(path), STATE.name):
            parts = {"lists", "fresh_lists", "units"}, set(PARTS)
            if not isinstance(content, dict) or (set(content), set(arrays)) != parts:
                raise Malformed("it has other parts than the state of an exposure control")
            if type(content["lists"]) is not int or type(content["fresh_lists"]) is not int:
                raise Malformed("its numbers of lists are not integers")
            for name, array in arrays.items():
                least = -1 if name == "side" else 0
                if array.dtype != np.float64 or array.ndim != 1 or not (np.isfinite(array) & (array >= least)).all():
                    raise Malformed(f"its {name} are not numbers of at least {least}")
        if content["units"] != self._fingerprint() or any(array.shape != (k,) for array in arrays.values()):
            raise InvalidData("This state belongs to other items or groups.", hint="start without it")
        with self._lock:
            self._up = np.where(self.floors > 0, arrays["up"], 0.0)
            self._down = np.where(np.isfinite(self.caps), arrays["down"], 0.0)
            self._window, self.lists = arrays["window"].copy(), content["lists"]
            self._recent, self._gain, self._side = (arrays[name].copy() for name in ("recent", "gain", "side"))
            self._fresh, self._fresh_lists = arrays["fresh"].copy(), content["fresh_lists"]
            self._prices = frozen((self._up - self._down)[self._codes])


def exposure_control(
    model: FactorModel, settings: ControlSettings | str | os.PathLike[str], groups: Groups | None = None
) -> ExposureControl:
    """Return the control for a model's items, or with per = "group" for groups of them.

    Parameters
    ----------
    model
        A fitted model: its item ids name the units, and the spread of its scores measures steps.
    settings
        The bounds, or the path of a TOML file with them.
    groups
        The group of every item, where bounds are per group (`fairmf.data.groups.read_groups`).
    """
    asked = settings if isinstance(settings, ControlSettings) else ControlSettings.read(settings)
    fitted = model.fitted
    spread = fitted.item_dial.score_spread(0.0) or 1.0
    if asked.per == "group":
        if groups is None or len(groups.codes) != model.n_items:
            raise InvalidData("Bounds per group need the group of every item.", parameter="groups")
        return ExposureControl(asked, groups.codes, groups.names, spread)
    ids: Ids | None = fitted.item_ids
    names = tuple(range(model.n_items)) if ids is None else tuple(ids.values.tolist())
    return ExposureControl(asked, np.arange(model.n_items), names, spread)
