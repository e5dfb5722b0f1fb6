"""`fairmf target MODEL SPLIT --max-gini X`: turn the dial to what is wanted, rather than to a number of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairmf.cli.errors import Problem
from fairmf.cli.evaluate import Part
from fairmf.cli.output import check_output
from fairmf.cli.session import Session
from fairmf.cli.sources import check_dial, check_stored_users, load_fitted, read_split
from fairmf.cli.terminal import marked
from fairmf.cli.tradeoff import curve_table


def target(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model that fit has stored.")],
    data: Annotated[str, typer.Argument(metavar="SPLIT", help="The folder of the split it was trained on.")],
    session: Session,
    max_gini: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="The smallest fairness with at most this Gini of exposure.")
    ] = None,
    min_coverage: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="The smallest fairness that shows at least this part of the catalogue."),
    ] = None,
    max_ndcg_loss: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="The largest fairness that loses at most this part of nDCG@100."),
    ] = None,
    at: Annotated[int, typer.Option(min=1, help="Length of the lists whose exposure counts.")] = 20,
    part: Annotated[Part, typer.Option(help="Which held-out users.")] = Part.validation,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write a model to that serves with what was found.")
    ] = None,
    nearest: Annotated[
        bool, typer.Option("--nearest", help="Where the dial does not reach it, take the nearest it comes.")
    ] = False,
    alternatives: Annotated[
        bool,
        typer.Option(help="Where the dial does not reach it, measure what exposure offsets and FairRec would give."),
    ] = True,
) -> None:
    """Find the fairness that reaches a goal on held-out users. Nothing is trained; the answer is a number, or a model.

    Give one goal: --max-gini, --min-coverage or --max-ndcg-loss, a number from 0 to 1.

    [dim]Examples:[/dim]

      fairmf target model.fairmf split --max-gini 0.8

      fairmf target model.fairmf split --max-ndcg-loss 0.02 -o fair.fairmf

      fairmf target model.fairmf split --min-coverage 0.5 --at 10 --json
    """
    from fairmf.control.target import fit_to_target, one_goal

    goals = {"max_gini": max_gini, "min_coverage": min_coverage, "max_ndcg_loss": max_ndcg_loss}
    _check_one(goals)
    one_goal(goals)
    if output is not None:
        check_output(output)
    loaded = load_fitted(model, session)
    check_dial(loaded, model, "a goal")
    if output is not None:
        check_stored_users(loaded, model)
    held_out = getattr(read_split(data, None, session), part.value)
    session.uses(part.value, held_out.fold_in)
    with session.timed("target"):
        found = fit_to_target(
            loaded, held_out, **goals, at=at, alternatives=alternatives and not nearest, progress=session.progress
        )
    if not found.reached and not nearest:
        raise Problem(found.message, f"--nearest takes fairness {found.fairness:g}, the nearest the dial comes")
    if output is not None:
        with session.busy("write"):
            found.model.save(output)
    _report(found, model, output, session)


def _check_one(goals: dict[str, float | None]) -> None:
    given = [name for name, value in goals.items() if value is not None]
    if len(given) != 1:
        flags = [f"--{name.replace('_', '-')}" for name in given or goals]
        said = "none was given" if not given else f"got {' and '.join(flags)}"
        raise Problem(f"target needs exactly one goal; {said}.", "for example --max-gini 0.8")


def _report(found: Any, model: Path, output: Path | None, session: Session) -> None:
    row = next(row for row in found.curve if row["fairness"] == found.fairness)
    session.run.metrics = {name: row[name] for name in found.curve.metrics}
    session.result |= {
        "model": str(model),
        "output": None if output is None else str(output),
        "goal": str(found.goal),
        "reached": found.reached,
        "fairness": found.fairness,
        "message": found.message,
        "metrics": session.run.metrics,
        "rows": list(found.curve.rows),
        "alternatives": list(found.alternatives.rows),
    }
    session.record_beside(model if output is None else output)
    session.show(curve_table(found.curve, found.fairness, "the fairness found"), marked(found.message))
    if output is not None:
        session.note(f"model   {marked(output)}")
