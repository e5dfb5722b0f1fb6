"""Read an experiment, one table or figure of the paper, from its TOML file, and check it.

    title, about, kind, data, seeds, metrics      what it is; `data` is the data set of the paper
    [[series]]                                    a line or row: name, model, settings, grid, how the fit is used
    [stand_ins.NAME]                              changes for other data ("all": for any); series by name

The settings of a series are those of its model. `grid` maps some of them to lists; every combination is fitted once per
seed.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import itertools
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, TypeAlias

from fairmf.errors import InvalidParameter
from fairmf.metrics.registry import parse_metric
from fairmf.models.registry import MODELS
from fairmf.params import check_settings, settings_of
from fairmf.reports.run_record import parse_toml
from fairmf.types import Record

Settings: TypeAlias = Record
"""Settings of a model, or options of a measurement, by name."""

# Settings that depend on the machine and do not change the result.
_ELSEWHERE = ("num_threads", "engine")


def build(model: str, settings: Settings) -> Any:
    """Create the model with these settings, and check them."""
    kind = MODELS[model]
    known = kind.settings()
    for name in settings:
        if name not in known:
            raise InvalidParameter(f"The model {model} has no setting {name!r}. It has {', '.join(known)}.")
    made = kind.load()(**settings)
    check_settings(made)
    return made


def effective(model: str, settings: Settings) -> Settings:
    """Return all settings including defaults, so that a changed default counts as another fit."""
    every = settings_of(build(model, settings))
    return {name: value for name, value in every.items() if name not in _ELSEWHERE}


KINDS = ("ranking_table", "fronts", "exposure_curves", "epoch_time", "learning", "residuals")
STAND_INS = "stand-ins.toml"


@dataclass(frozen=True)
class Series:
    """One line of a figure or row of a table: a model, its settings, and how its fits are used."""

    name: str
    model: str
    settings: Settings = field(default_factory=dict)
    grid: dict[str, list[object]] = field(default_factory=dict)
    dials: tuple[float, ...] = ()
    """Fairness values to use after training; empty for the trained one."""
    shares: tuple[float, ...] = ()
    """Shares for FairRec; 0 means without FairRec."""
    fairrec: Settings = field(default_factory=dict)
    """FairRec's options K and order."""
    ranking: Settings = field(default_factory=dict)
    """Options of the fold-in, such as method = "cohort"."""
    patience: int = 0
    """Stop after this many epochs without improvement on the validation users; 0 runs all epochs."""
    paper: dict[str, float] = field(default_factory=dict)
    """The numbers of the paper, by metric."""
    paper_of: Settings = field(default_factory=dict)
    """Settings that the paper's numbers belong to, where they differ from ours or the series has a grid."""
    tolerance: float = 0.005
    """Largest difference from the paper's number that counts as agreement."""

    @property
    def combinations(self) -> list[Settings]:
        """The settings of every fit, without the seed."""
        choices = itertools.product(*self.grid.values())
        return [{**self.settings, **dict(zip(self.grid, values, strict=True))} for values in choices]


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper."""

    name: str
    title: str
    about: str
    kind: str
    data: str
    seeds: int
    metrics: tuple[str, ...]
    series: tuple[Series, ...]
    options: Settings = field(default_factory=dict)
    """Options of its kind."""
    stand_ins: Settings = field(default_factory=dict, repr=False)

    def on(self, data: str) -> Experiment:
        """Return the experiment with its settings for these data, which may differ from the paper's."""
        if data == self.data:
            return self
        usual = _stand_in_settings().get(data, _stand_in_settings()["other"])
        changed = self
        # From general to specific: a later change overrides an earlier one.
        for change in ({"settings": usual}, self.stand_ins.get("all", {}), self.stand_ins.get(data, {})):
            changed = _changed(changed, change)
        return changed

    def limited(self, *, seeds: int | None, epochs: int | None, without: tuple[str, ...]) -> Experiment:
        """Return the experiment with these numbers of seeds and epochs, and without models that need these extras."""
        kept = tuple(one for one in self.series if MODELS[one.model].extra not in without)
        if not kept:
            raise InvalidParameter(f"Nothing of {self.name} is left without {', '.join(without)}.")
        if epochs is not None:
            kept = tuple(_with_settings(one, {"epochs": epochs}, only_known=True) for one in kept)
        return dataclasses.replace(self, series=kept, seeds=self.seeds if seeds is None else seeds)


def experiments() -> dict[str, Experiment]:
    """Return all experiments by name, in the order of the paper."""
    return dict(_all())


def experiment(name: str) -> Experiment:
    """Return the experiment of this name; for an unknown name, raise InvalidParameter and suggest a similar one."""
    known = _all()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.4)
    advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}."
    raise InvalidParameter(f"There is no table or figure {name!r}.", hint=advice)


def read_experiment(name: str, text: str) -> Experiment:
    """Read an experiment from its TOML text and check every part."""
    try:
        table = parse_toml(text)
    except ValueError as error:
        raise InvalidParameter(f"The settings of {name} are not TOML: {error}.") from error
    common = ("title", "about", "kind", "data", "seeds", "metrics", "series")
    for key in common:
        if key not in table:
            raise InvalidParameter(f"The settings of {name} lack {key!r}.")
    series = tuple(_series(name, dict(one)) for one in table.pop("series"))
    stand_ins = table.pop("stand_ins", {})
    values = {key: table.pop(key) for key in common if key != "series"}
    values["metrics"] = tuple(values["metrics"])
    made = Experiment(name, **values, series=series, stand_ins=stand_ins, options=table.pop("options", {}))
    if table:
        raise InvalidParameter(f"The settings of {name} have an unknown {next(iter(table))!r}.")
    _check(made)
    for data in stand_ins:  # mistakes in the changes for other data are found now, not when they are used
        _check(made.on(data))
    return made


@functools.cache
def _all() -> dict[str, Experiment]:
    folder = resources.files("fairmf.reproduce") / "settings"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    found = {
        file.name.removesuffix(".toml"): file.read_text(encoding="utf-8") for file in files if file.name != STAND_INS
    }
    # Tables first: by name alone, figures would come before them.
    names = sorted(found, key=lambda name: (not name.startswith("table"), name))
    return {name: read_experiment(name, found[name]) for name in names}


@functools.cache
def _stand_in_settings() -> dict[str, Settings]:
    """Return the settings that suit each data set, for the models that have them."""
    text = (resources.files("fairmf.reproduce") / "settings" / STAND_INS).read_text(encoding="utf-8")
    return {name: dict(values) for name, values in parse_toml(text).items()}


def _series(owner: str, table: Settings) -> Series:
    known = {part.name for part in dataclasses.fields(Series)}
    for key in table:
        if key not in known:
            raise InvalidParameter(f"A series of {owner} has an unknown {key!r}.")
    for key in ("dials", "shares"):
        table[key] = tuple(table.get(key, ()))
    made = Series(**table)
    if made.model not in MODELS:
        raise InvalidParameter(f"The series {made.name!r} of {owner} has an unknown model {made.model!r}.")
    return dataclasses.replace(made, settings=_plain(made.settings))


def _changed(whole: Experiment, change: Settings) -> Experiment:
    """Apply the changes for other data: seeds, text, settings of all series that have them, and those of one series."""
    own = change.get("series", {})
    for name in own:
        if name not in [one.name for one in whole.series]:
            raise InvalidParameter(f"The stand-ins of {whole.name} change the series {name!r}, which does not exist.")
    series = []
    for one in whole.series:
        # Settings for all series leave out the models that do not have them. For one named series, an unknown
        # setting is a mistake, which `_check` reports.
        changed = _with_settings(one, change.get("settings", {}), only_known=True)
        mine = dict(own.get(one.name, {}))
        changed = _with_settings(changed, mine.pop("settings", {}), only_known=False)
        mine |= {key: tuple(mine[key]) for key in ("dials", "shares") if key in mine}
        unknown = set(mine) - {"grid", "dials", "shares", "ranking", "fairrec", "patience"}
        if unknown:
            raise InvalidParameter(f"The stand-ins of {whole.name} change an unknown {min(unknown)!r}.")
        series.append(dataclasses.replace(changed, **mine))
    options = {**whole.options, **change.get("options", {})}
    own_words = {name: change.get(name, getattr(whole, name)) for name in ("seeds", "about")}
    return dataclasses.replace(whole, series=tuple(series), options=options, **own_words)


def _with_settings(one: Series, settings: Settings, *, only_known: bool) -> Series:
    """Return the series with these settings; `only_known` drops settings that its model does not have."""
    known = MODELS[one.model].settings()
    new = {name: value for name, value in settings.items() if name in known or not only_known}
    return dataclasses.replace(one, settings={**one.settings, **_plain(new)})


def _plain(settings: Settings) -> Settings:
    """Replace the word "none" by None, because TOML has no null."""
    return {name: None if value == "none" else value for name, value in settings.items()}


def _check(whole: Experiment) -> None:
    if whole.kind not in KINDS:
        raise InvalidParameter(
            f"The kind of {whole.name} must be one of {', '.join(KINDS)}. Got {whole.kind!r} instead."
        )
    names = [one.name for one in whole.series]
    if len(set(names)) < len(names) or not names:
        raise InvalidParameter(f"{whole.name} needs series, each with a name of its own.")
    for metric in whole.metrics:
        parse_metric(metric)
    for one in whole.series:
        for settings in one.combinations:
            build(one.model, settings)
        if one.dials and not MODELS[one.model].has_dial:
            raise InvalidParameter(f"The series {one.name!r} of {whole.name} has dials, but {one.model} has none.")
        for metric in one.paper:
            parse_metric(metric)
