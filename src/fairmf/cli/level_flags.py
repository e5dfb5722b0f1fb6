"""Read --evenness, and for experts --flatten, --discount, --lift and --fairness: the level at which a model answers.

Every verb that answers with a model takes these flags as one bundle, `Served`, and passes `read(...)` on as
`evenness=`. A verb that compares two sides has two subclasses of it, whose flags begin with the name of the side.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeAlias, TypeVar

import typer

from fairmf.cli.errors import Problem
from fairmf.cli.help import LEVELS
from fairmf.cli.options import Flags
from fairmf.cli.sources import check_dial, check_stored_users
from fairmf.models.evenness import Level

if TYPE_CHECKING:
    from fairmf.cli.session import Session
    from fairmf.models.factor_model import FactorModel
    from fairmf.types import Record, Settings

Self = TypeVar("Self", bound="Served")
Asked: TypeAlias = float | Level | None
"""A level of evenness as the library takes it; None stands for the one that the model serves with."""

MOST = {"evenness": 1.0}
"""The largest value of a flag, where there is one."""
HELP = {
    "evenness": "How evenly the lists of all users show the items, from 0 (most accurate lists) to 1 (most "
    "even lists). Run fairmf calibrate first.",
    "flatten": "Divide the scores of each item by s to the power of NUMBER. s is the standard deviation of the item's "
    "scores over the training users.",
    "discount": "Lower the scores of popular items: subtract NUMBER x log(popularity) x the standard deviation of all "
    "scores.",
    "lift": "Raise the scores of items that are in few lists: add NUMBER x a bonus that fairmf calibrate learns for "
    "each item.",
    "fairness": "Compute the user vectors as if the model had been trained with this fairness (fairmf fit --fairness). "
    "This is approximate; nothing is trained.",
}


@dataclass
class Served(Flags):
    """The level at which a model answers: one number, or four for experts."""

    side: ClassVar[str] = ""
    """The side that the flags are about, which their names begin with ("before", "after"); "" if there is one side."""
    otherwise: ClassVar[str] = (
        "the evenness that fairmf target stored in the model. If there is none, the model's own scores are used. "
        "Evenness 0 is not always the same as the model's own scores: if calibrate found an adjustment that makes "
        "lists more accurate, evenness 0 includes it"
    )
    """The evenness if none is given, for --help."""

    evenness: float | None = None
    flatten: float | None = None
    discount: float | None = None
    lift: float | None = None
    fairness: float | None = None

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return the flags as parameters of a function."""
        made = []
        for name in HELP:
            panel = None if name == "evenness" else LEVELS
            option = typer.Option(metavar="NUMBER", help=cls._help(name), rich_help_panel=panel)
            kind = Annotated[float | None, option]
            made.append(
                inspect.Parameter(cls._parameter(name), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            )
        return made

    @classmethod
    def collect(cls: type[Self], values: Settings) -> Self:
        """Return the bundle with these values."""
        return cls(**{field.name: values[cls._parameter(field.name)] for field in fields(cls)})

    @classmethod
    def _help(cls, name: str) -> str:
        """Return the help of a flag. The flags for experts are explained where there is one side only."""
        if cls.side and name != "evenness":
            return f"For experts: as --{name} of fairmf evaluate, for the lists {cls.side} the change."
        text = f"Evenness of the lists {cls.side} the change, from 0 to 1." if cls.side else HELP[name]
        return f"{text} Default: {cls.otherwise}." if name == "evenness" else text

    @classmethod
    def _parameter(cls, name: str) -> str:
        return f"{cls.side}_{name}" if cls.side else name

    @classmethod
    def flag(cls, name: str) -> str:
        """Return the flag of a strength, as it is typed."""
        return f"--{cls._parameter(name).replace('_', '-')}"

    def __post_init__(self) -> None:
        for name in self.given():
            value, most = getattr(self, name), MOST.get(name)
            if not (math.isfinite(value) and value >= 0 and (most is None or value <= most)):
                allowed = "a finite number, at least 0" if most is None else f"a number from 0 to {most:g}"
                raise Problem(
                    f"{self.flag(name)} takes {allowed}. Got {value:g} instead.",
                    f"{self.flag(name)} {0.3 if most else 1:g}",
                )
        if self.evenness is not None and (others := self.given()[1:]):
            raise Problem(
                f"{self.flag('evenness')} sets flatten, discount, lift and fairness, so "
                f"{self.flag(others[0])} cannot be given as well.",
                f"use {self.flag('evenness')} alone, or the flags for experts without it",
            )

    def given(self) -> list[str]:
        """Return the names of the strengths that were given, evenness first."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    def read(self, model: FactorModel, path: Path, session: Session) -> Asked:
        """Return the level as the library's `evenness=` takes it; raise a Problem if this model cannot serve it.

        Strengths that were not given stay as the model serves them.
        """
        fitted = model.fitted
        asked: Asked = self.evenness
        if self.fairness is not None:
            check_dial(model, path, self.flag("fairness"))
        if self.evenness is None and self.given():
            names = ("flatten", "discount", "lift")
            given = (getattr(self, name) for name in names)
            own = (getattr(fitted, name) for name in names)
            asked = Level(self.fairness, *(b if a is None else a for a, b in zip(given, own, strict=True)))
        fitted.served(asked)  # raises where offsets were learned at another level
        if self.evenness is not None and fitted.path is None:
            session.note(
                f"level   {path.name} is not calibrated: evenness {self.evenness:g} may cost much accuracy. Better run "
                f"first: fairmf calibrate {path.name} SPLIT"
            )
        return asked


def check_users_at(model: FactorModel, path: Path, asked: Asked) -> None:
    """Raise a Problem if stored users would need another fairness and the model has lost what that takes."""
    if model.fitted.served(asked).fairness is not None:
        check_stored_users(model, path)


def level_facts(model: FactorModel, asked: Asked) -> Record:
    """Return the evenness that was asked for and the four strengths that are served, for --json and the record."""
    fitted = model.fitted
    level = fitted.served(asked)
    return {
        "evenness": asked if isinstance(asked, float) else None,
        "fairness": fitted.fairness if level.fairness is None else level.fairness,
        "flatten": level.flatten,
        "discount": level.discount,
        "lift": level.lift,
    }


def level_name(model: FactorModel, asked: Asked) -> str:
    """Say at which level a model answers: "at evenness 0.3", "without evenness", or at which strengths."""
    facts = level_facts(model, asked)
    if facts["evenness"] is not None:
        return f"at evenness {facts['evenness']:g}"
    items = [f"{name} {facts[name]:.3g}" for name in ("flatten", "discount", "lift") if facts[name]]
    users = [f"fairness {facts['fairness']:.3g}"] if hasattr(model, "with_fairness") else []
    return f"at {', '.join(users + items)}" if items or (users and facts["fairness"]) else "without evenness"
