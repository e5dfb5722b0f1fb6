"""`fairmf tune SPLIT`: search for good settings of a model on the validation users of a split."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.table import Table

from fairmf.cli.errors import Problem
from fairmf.cli.fit import FeatureTables
from fairmf.cli.model_flags import ModelSettings, effective_settings
from fairmf.cli.options import Flags, comma_list, number_or_word
from fairmf.cli.output import ENDINGS_HELP, check_output, check_table_output, write_table
from fairmf.cli.session import Session
from fairmf.cli.sources import read_split
from fairmf.cli.terminal import marked
from fairmf.control.search_space import Choice, Doubling, Range
from fairmf.control.tuning import tune as search
from fairmf.control.tuning_result import Trial, TuningResult
from fairmf.types import Record

if TYPE_CHECKING:
    from fairmf.models.base import IterativeModel

_SPACE_HELP = (
    "What to search, separated by commas. NAME=LOW:HIGH draws on a logarithmic scale, NAME=LOW:HIGH:even on a linear "
    "one. NAME=16:128:double draws from 16, 32, 64, 128. NAME=A|B|C draws from these values. NAME is a setting "
    "of the model, or 'evenness', the evenness of the lists. With several objectives, evenness is searched by default. "
    "For experts, two more names: 'fairness' is the --fairness of fairmf fit, used in training. 'dial' is the "
    "--fairness of fairmf evaluate: it changes how lists are made, not the training."
)


@dataclass
class Search(Flags):
    """Choose the metrics to optimise and the space to search."""

    metric: Annotated[str, typer.Option(help="Metric to optimise.")] = "ndcg@100"
    objectives: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Optimise several metrics, such as ndcg@100,gini@20. The result is a Pareto front.",
        ),
    ] = None
    space: Annotated[str | None, typer.Option(metavar="SPEC", help=_SPACE_HELP)] = None
    constraints: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="BOUND,...",
            help="Choose the best only among trials within these bounds, such as max_gini=0.85,min_recall=0.3.",
        ),
    ] = None


@dataclass
class Budget(FeatureTables):
    """Limit the search, and give the features of the fits."""

    trials: Annotated[
        int, typer.Option(min=1, help="Number of trials in total, including those of an earlier run.")
    ] = 50
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Start no new trial after this many seconds.")
    ] = None
    storage: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Store the trials in this file. Run the same command again to continue the search."
        ),
    ] = None


def tune(
    data: Annotated[str, typer.Argument(metavar="SPLIT", help="The folder of a split.")],
    *,
    session: Session,
    settings: ModelSettings,
    goal: Search,
    budget: Budget,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File for the best model. It is trained again with the best settings, calibrated, and compared with a "
            "model trained with the settings that you gave as flags (or their defaults).",
        ),
    ] = None,
    table_output: Annotated[
        Path | None, typer.Option("--table", metavar="FILE", help=f"Write all trials: {ENDINGS_HELP}.")
    ] = None,
) -> None:
    """Search for good settings on the validation users of a split, with Optuna (extra \\[tune]).

    After some epochs, the search stops the worse half of the fits (successive halving).

    Test users are not used. The first trial uses the settings that you give as flags, and defaults for the rest.
    Settings that are not searched have the same values in all trials. --seed sets the random seed of the models and of
    the search.

    [dim]Examples:[/dim]

      fairmf tune split --trials 30 -o best.fairmf

      fairmf tune split --objectives ndcg@100,gini@20 --where max_gini=0.85 -o fair.fairmf --table trials.csv

      fairmf tune split --model ials --space 'regularization=0.001:0.1,factors=16:128:double' --storage study.db
    """
    if settings.given.get("random_state", 0) is None:
        settings.given["random_state"] = secrets.randbelow(
            2**31
        )  # drawn here, so that the run record can repeat the run
    model = cast("IterativeModel", settings.build())  # the library refuses others
    session.run.settings |= effective_settings(model)
    ranges = None if goal.space is None else read_space(goal.space)
    bounds = read_bounds(goal.constraints)
    if output is not None:
        check_output(output)
    if table_output is not None:
        check_table_output(table_output)
    split = read_split(data, None, session)
    session.uses("train", split.train)
    session.result["users"] = split.validation.n_users
    with session.timed("tune"):
        found = search(
            model, split, metric=goal.metric, objectives=comma_list(goal.objectives), trials=budget.trials,
            timeout=budget.timeout, space=ranges, storage=budget.storage,
            random_state=settings.given.get("random_state", 0), progress=session.progress, **budget.read(),
        )  # fmt: skip
    best = found.best(**bounds)
    if table_output is not None:
        write_table(found.table(), table_output)
    if output is not None:
        with session.busy("fit"):
            found.best_model(**bounds).save(output)
            curves = found.front(**bounds) + found.default
        session.result |= {"along_the_path": list(curves.rows), "summary": found.summary(**bounds)}
    _report(found, best, session, output, table_output)


def read_space(text: str) -> Record:
    """Read `name=low:high,name=a|b` into the ranges that the library takes."""
    space: Record = {}
    for part in comma_list(text) or []:
        name, equals, spec = part.partition("=")
        low, _, rest = spec.partition(":")
        high, _, how = rest.partition(":")
        if not equals or not spec or (":" in spec and how not in ("", "even", "double")):
            raise Problem(
                f"--space does not understand {part!r}.", "--space regularization=0.001:0.1,factors=16:128:double"
            )
        if ":" not in spec:
            space[name] = Choice(tuple(number_or_word(choice) for choice in spec.split("|")))
            continue
        ends: tuple[Any, Any] = number_or_word(low), number_or_word(high)
        if any(isinstance(end, str) for end in ends):
            raise Problem(f"--space {name} needs two numbers. Got {spec!r} instead.", f"--space {name}=0.001:0.1")
        whole = all(isinstance(end, int) for end in ends) and name in ("factors", "epochs", "block_size")
        space[name] = Doubling(*ends) if how == "double" else Range(*ends, log=how != "even", integer=whole)
    return space


def read_bounds(text: str | None) -> dict[str, float]:
    """Read `max_gini=0.85,min_recall=0.3` into keywords."""
    bounds = {}
    for part in comma_list(text) or []:
        name, _, value = part.partition("=")
        try:
            bounds[name] = float(value)
        except ValueError:
            raise Problem(f"--where does not understand {part!r}.", "--where max_gini=0.85,min_recall=0.3") from None
    return bounds


def _report(found: TuningResult, best: Trial, session: Session, output: Path | None, table_output: Path | None) -> None:
    front = found.pareto_front()
    chosen = best.settings | best.served
    session.run.metrics = best.metrics
    states = {state: sum(trial.state == state for trial in found.trials) for state in ("complete", "pruned", "failed")}
    session.result |= {
        "output": None if output is None else str(output),
        "table": None if table_output is None else str(table_output),
        "objectives": list(found.objectives),
        "trials": states,
        "best": {"trial": best.number, "settings": chosen, "metrics": best.metrics},
        "front": [{"trial": trial.number, "settings": trial.settings, "metrics": trial.metrics, **trial.served}
                  for trial in front],
    }  # fmt: skip
    place = output or table_output
    if place is not None:
        session.record_beside(place)
    table = _trial_table(front if len(found.objectives) > 1 else [best], best, found.objectives)
    session.show(table, f"Measured on {session.result['users']:,} validation users.")
    if "summary" in session.result:
        session.show(marked(session.result["summary"]))
    session.note("trials  " + ", ".join(f"{count:,} {state}" for state, count in states.items() if count))
    if output is not None:
        session.note(f"model   {marked(output)}")


def _trial_table(trials: Sequence[Trial], best: Trial, objectives: Sequence[str]) -> Table:
    title = "Pareto front: no other trial is better in all objectives" if len(objectives) > 1 else "the best trial"
    caption = "* chosen" if len(trials) > 1 else None
    table = Table("trial", title=title, title_justify="left", caption=caption, caption_justify="left")
    for name in trials[0].metrics:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("settings")
    for trial in trials:
        values = trial.settings | trial.served
        mark = " *" if trial.number == best.number and len(trials) > 1 else ""
        settings = ", ".join(f"{name} {_short(value)}" for name, value in values.items())
        table.add_row(f"{trial.number}{mark}", *(f"{value:.4f}" for value in trial.metrics.values()), settings)
    return table


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
