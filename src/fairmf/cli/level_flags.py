"""Read --evenness, and for experts --flatten, --discount and --fairness: the level at which a model answers.

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

PANEL = "Evenness, for experts"
MOST = {"evenness": 1.0}
"""The largest value of a flag, where there is one."""
HELP = {
    "evenness": "How evenly to spread exposure over the items: 0 is most accurate, 1 is most even. Run fairmf "
    "calibrate first; without it, a rule of thumb decides.",
    "flatten": "Divide the scores of each item by this power of their spread.",
    "discount": "Subtract from an item's scores this multiple of the log of its popularity, in units of the spread of "
    "all scores.",
    "fairness": "Change the users' vectors to this fairness, as the paper's method does.",
}


@dataclass
class Served(Flags):
    """The level at which a model answers: one number, or three for experts."""

    side: ClassVar[str] = ""
    """What the names of the flags begin with, and whom they are about; "" if there is one side only."""
    otherwise: ClassVar[str] = "the model's own"
    """What holds for a strength that is not given, for --help."""

    evenness: float | None = None
    flatten: float | None = None
    discount: float | None = None
    fairness: float | None = None

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return the flags as parameters of a function."""
        made = []
        for name, text in HELP.items():
            panel = None if name == "evenness" or cls.side else PANEL
            text = f"{cls.side.capitalize()} the change: {text[0].lower()}{text[1:]}" if cls.side else text
            option = typer.Option(metavar="NUMBER", help=f"{text} Default: {cls.otherwise}.", rich_help_panel=panel)
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
                f"{self.flag('evenness')} stands for a flatten, a discount and a fairness of its own, so "
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
            g, h = (
                own if value is None else value
                for value, own in ((self.flatten, fitted.flatten), (self.discount, fitted.discount))
            )
            asked = Level(self.fairness, g, h)
        fitted.served(asked)  # raises where offsets were learned at another level
        if self.evenness is not None and fitted.path is None:
            session.note(
                f"level   {path.name} is not calibrated, so evenness {self.evenness:g} follows a rule of thumb. To "
                f"choose it on validation users: fairmf calibrate {path.name} SPLIT"
            )
        return asked


def check_users_at(model: FactorModel, path: Path, asked: Asked) -> None:
    """Raise a Problem if stored users would need another fairness and the model has lost what that takes."""
    if model.fitted.served(asked).fairness is not None:
        check_stored_users(model, path)


def level_facts(model: FactorModel, asked: Asked) -> Record:
    """Return the evenness that was asked for and the three strengths that are served, for --json and the record."""
    fitted = model.fitted
    level = fitted.served(asked)
    return {
        "evenness": asked if isinstance(asked, float) else None,
        "fairness": fitted.fairness if level.fairness is None else level.fairness,
        "flatten": level.flatten,
        "discount": level.discount,
    }


def level_name(model: FactorModel, asked: Asked) -> str:
    """Say at which level a model answers: "evenness 0.3", or the strengths that are not 0."""
    facts = level_facts(model, asked)
    if facts["evenness"] is not None:
        return f"evenness {facts['evenness']:g}"
    items = [f"{name} {facts[name]:.3g}" for name in ("flatten", "discount") if facts[name]]
    users = [f"fairness {facts['fairness']:.3g}"] if hasattr(model, "with_fairness") else []
    return ", ".join(users + items) or "plain scores"
