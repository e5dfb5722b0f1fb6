"""Make flags for the hyper-parameters of the models from the dataclass fields that declare them."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

import typer

from fairmf.backends.registry import get_backend
from fairmf.cli.errors import Problem
from fairmf.cli.help import INTERNALS
from fairmf.cli.options import Flags, number_or_word, starting
from fairmf.models.auto_settings import CHOSEN
from fairmf.models.factor_model import FactorModel
from fairmf.models.registry import Kind, factor_models
from fairmf.params import check_settings, describe_range, settings_of
from fairmf.types import Record, Settings

PANEL = "Settings of the model"
MAIN = (
    "factors", "epochs", "settings", "unobserved_weight", "regularization", "regularization_exponent", "item_balance",
    "user_balance", "random_state", "num_threads", "backend", "engine",
)  # fmt: skip
"""The settings that --help lists, in this order; the others are for experts."""
FLAG_OF = {"random_state": "--seed", "num_threads": "--threads"}
"""Settings whose flag has another name."""
Owners: TypeAlias = "dict[str, dataclasses.Field[object]]"
"""The models that have a setting, each with its declaration of it."""


@dataclass
class ModelSettings(Flags):
    """The chosen model and the settings that were given. All other settings have their defaults."""

    place = 2
    automatic: ClassVar[bool] = False
    """Whether settings are chosen from the data (settings="auto") unless the user gives one of them."""

    model: str
    given: Record

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return --model, and a flag for every setting of any model."""
        names = list(_kinds())
        option = typer.Option(
            metavar="NAME", rich_help_panel=PANEL, help=f"One of {', '.join(names)}.", autocompletion=starting(names)
        )
        model = Annotated[str, option]
        keyword = inspect.Parameter.KEYWORD_ONLY
        made = [inspect.Parameter("model", keyword, default="fair-als", annotation=model)]
        for name, owners in _owners().items():
            option = typer.Option(
                FLAG_OF.get(name, f"--{name.replace('_', '-')}"), parser=number_or_word, metavar=_metavar(owners),
                help=_help(owners, cls.automatic and name == "settings"), show_default=False,
                rich_help_panel=PANEL if name in MAIN else INTERNALS,
                autocompletion=starting(_words(owners)),
            )  # fmt: skip
            made.append(inspect.Parameter(name, keyword, default=None, annotation=Annotated[object, option]))
        return made

    @classmethod
    def collect(cls, values: Settings) -> ModelSettings:
        """Keep only what was given."""
        given = {name: _none(value) for name, value in values.items() if name != "model" and value is not None}
        return cls(values["model"], given)

    def build(self) -> FactorModel:
        """Create the model and check its settings, before any data are read."""
        # The names of the Python classes are accepted as well: FairALS, IALS, ...
        kinds = _kinds()
        kind = next((k for k in kinds.values() if self.model.lower() in (k.name, k.class_name.lower())), None)
        if kind is None:
            raise Problem(f"There is no model {self.model!r}.", f"--model takes {', '.join(kinds)}")
        self.model = kind.name
        known = kind.settings()
        for name in self.given:
            if name not in known:
                flag = FLAG_OF.get(name, f"--{name.replace('_', '-')}")
                owners = ", ".join(other.name for other in kinds.values() if name in other.settings())
                raise Problem(f"The model {self.model} has no {flag}.", f"{flag} belongs to {owners}")
        # Whoever gives one of these settings chooses by hand, and gets the defaults of the others.
        by_hand = {"settings", *CHOSEN} & {*self.given}
        if self.automatic and "settings" in known and not by_hand:
            self.given["settings"] = "auto"
        model: FactorModel = kind.load()(**self.given)
        check_settings(model)
        get_backend(model.backend)  # raises if a package or a device is missing
        return model


class FitSettings(ModelSettings):
    """The settings of `fairmf fit`, which chooses some of them from the data if none of these is given."""

    automatic = True


def effective_settings(model: FactorModel) -> Record:
    """Return all settings of a model as the flags accept them, for the run record."""
    return {name: "none" if value is None else value for name, value in settings_of(model).items()}


def _kinds() -> dict[str, Kind]:
    """Return the models that the command line fits, by name."""
    return {kind.name: kind for kind in factor_models().values()}


def _owners() -> dict[str, Owners]:
    """Return, for every setting, the models that have it with its field in each."""
    owners: dict[str, Owners] = {}
    for model, kind in _kinds().items():
        for field in dataclasses.fields(kind.load()):
            owners.setdefault(field.name, {})[model] = field
    order = [name for name in (*MAIN, *owners) if name in owners]
    return {name: owners[name] for name in dict.fromkeys(order)}


def _help(owners: Owners, automatic: bool) -> str:
    field = next(iter(owners.values()))
    text = field.metadata["doc"]
    if field.metadata["numeric"]:
        text += f" {describe_range(field).capitalize()}."
    elif not all(f"'{word}'" in text for word in field.metadata["choices"]):  # else the text explains each
        text += f" One of {', '.join(field.metadata['choices'])}."
    trained = {kind.name for kind in _kinds().values() if kind.is_trained}
    only = "" if trained <= set(owners) else f"{', '.join(owners)} only; "
    default = "'auto', or 'given' if you set one of these five settings" if automatic else _defaults(owners)
    return f"{text} [dim]\\[{only}default: {default}][/dim]"


def _defaults(owners: Owners) -> str:
    first = next(iter(owners.values())).default
    others = [f"{model} {field.default}" for model, field in owners.items() if field.default != first]
    return "; ".join([str(first), *others])


def _words(owners: Owners) -> list[str]:
    """Return the words that a setting accepts."""
    found = [str(choice).lower() for field in owners.values() for choice in field.metadata["choices"]]
    return list(dict.fromkeys(found))


def _metavar(owners: Owners) -> str:
    rule = next(iter(owners.values())).metadata
    return ("INTEGER" if rule["integer"] else "NUMBER") if rule["numeric"] else "NAME"


def _none(value: object) -> object:
    return None if value == "none" else value
