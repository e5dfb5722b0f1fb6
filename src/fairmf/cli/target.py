"""`fairmf target MODEL SPLIT --max-gini X`: find the evenness that meets a goal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairmf.cli.errors import Problem
from fairmf.cli.evaluate import Part
from fairmf.cli.options import Flags
from fairmf.cli.output import check_output
from fairmf.cli.session import Session
from fairmf.cli.sources import check_dial, check_stored_users, load_fitted, read_split
from fairmf.cli.terminal import marked
from fairmf.cli.tradeoff import curve_table
from fairmf.control.target import Target, fit_to_target, one_goal


@dataclass
class Goals(Flags):
    """The possible goals. Exactly one must be given."""

    max_gini: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Goal: a Gini of exposure of at most this. Finds the smallest evenness that meets it.",
        ),
    ] = None
    min_coverage: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Goal: at least this fraction of the catalogue is shown. Finds the smallest evenness that meets it.",
        ),
    ] = None
    max_ndcg_loss: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Goal: lose at most this fraction of nDCG@100. Finds the largest evenness that meets it.",
        ),
    ] = None

    def values(self) -> dict[str, float | None]:
        """Return the goals by name; raise a Problem unless exactly one was given."""
        goals: dict[str, float | None] = asdict(self)
        given = [f"--{name.replace('_', '-')}" for name, value in goals.items() if value is not None]
        if len(given) != 1:
            said = f"got {' and '.join(given)}" if given else "none was given"
            raise Problem(f"target needs exactly one goal; {said}.", "for example --max-gini 0.8")
        one_goal(goals)
        return goals


@dataclass
class Unreached(Flags):
    """Choose how to go on if no evenness meets the goal."""

    nearest: Annotated[
        bool,
        typer.Option(
            "--nearest",
            help="If no evenness meets the goal, use the one that comes nearest. Without this flag, fairmf stops "
            "with an error.",
        ),
    ] = False
    alternatives: Annotated[
        bool,
        typer.Option(
            help="If no evenness meets the goal, also try two other methods: exposure offsets and FairRec (see fairmf "
            "rerank). Offsets take minutes on large data."
        ),
    ] = False


def target(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by fit.")],
    data: Annotated[str, typer.Argument(metavar="SPLIT", help="The folder of the split it was trained on.")],
    *,
    session: Session,
    goals: Goals,
    at: Annotated[int, typer.Option(min=1, help="Length of the lists in which exposure is counted.")] = 20,
    part: Annotated[Part, typer.Option(help="Held-out users to measure on.")] = Part.validation,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File for the model. The evenness that was found becomes the default of the model."
        ),
    ] = None,
    unreached: Unreached,
) -> None:
    """Find the evenness that meets a goal on held-out users. The model is not trained again.

    Evenness is a number from 0 (most accurate lists) to 1 (most even lists). If the model is not calibrated, target
    calibrates it first.

    Give exactly one goal, a number from 0 to 1: --max-gini, --min-coverage or --max-ndcg-loss.

    [dim]Examples:[/dim]

      fairmf target model.fairmf split --max-gini 0.8

      fairmf target model.fairmf split --max-ndcg-loss 0.02 -o fair.fairmf

      fairmf target model.fairmf split --min-coverage 0.5 --at 10 --json
    """
    wanted = goals.values()
    if output is not None:
        check_output(output)
    loaded = check_dial(load_fitted(model, session), model, "a goal")
    if output is not None:
        check_stored_users(loaded, model)
    held_out = getattr(read_split(data, None, session), part.value)
    session.uses(part.value, held_out.fold_in)
    with session.timed("target"):
        found = fit_to_target(
            loaded, held_out, **wanted, at=at, alternatives=unreached.alternatives and not unreached.nearest,
            progress=session.progress,
        )  # fmt: skip
    if not found.reached and not unreached.nearest:
        more = "" if unreached.alternatives else "; --alternatives measures FairRec and exposure offsets"
        raise Problem(found.message, f"--nearest uses evenness {found.evenness:g}, which comes nearest{more}")
    if output is not None:
        with session.busy("write"):
            found.model.save(output)
    _report(found, model, output, session)


def _report(found: Target, model: Path, output: Path | None, session: Session) -> None:
    row = next(row for row in found.curve if row["evenness"] == found.evenness)
    session.run.metrics = {name: row[name] for name in found.curve.metrics}
    session.result |= {
        "model": str(model),
        "output": None if output is None else str(output),
        "goal": str(found.goal),
        "reached": found.reached,
        "evenness": found.evenness,
        "fairness": found.fairness,
        "message": found.message,
        "metrics": session.run.metrics,
        "rows": list(found.curve.rows),
        "alternatives": list(found.alternatives.rows),
    }
    session.record_beside(model if output is None else output)
    session.show(curve_table(found.curve, found.evenness, "the evenness found"), marked(found.message))
    if output is not None:
        session.note(f"model   {marked(output)}")
