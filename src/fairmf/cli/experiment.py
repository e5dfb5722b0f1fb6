"""`fairmf experiment MODEL SPLIT`: plan an A/B test of an evenness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fairmf.cli.options import Flags, comma_list
from fairmf.cli.progress import watched
from fairmf.cli.session import Session
from fairmf.cli.sources import load_fitted, read_split
from fairmf.metrics.evaluate import evaluate
from fairmf.metrics.experiment import ExperimentPlan, plan_experiment


@dataclass
class Arms(Flags):
    """Hold the two values of evenness that are compared, and how sure the answer has to be."""

    evenness: Annotated[float, typer.Option(min=0, max=1, help="Evenness of the lists that the treatment shows.")] = 0.3
    against: Annotated[float, typer.Option(min=0, max=1, help="Evenness of the lists that the control shows.")] = 0.0
    metrics: Annotated[
        str,
        typer.Option(
            metavar="NAME,...", help="Metrics of a user's list: accuracy, or aplt@K, the share of unpopular items."
        ),
    ] = "ndcg@20,aplt@20"
    change: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Size of the change that the experiment has to find. Default: the change measured on the split.",
        ),
    ] = None
    alpha: Annotated[float, typer.Option(help="Probability of a false alarm if nothing changes.")] = 0.05
    power: Annotated[float, typer.Option(help="Probability of finding the change.")] = 0.8
    share: Annotated[float, typer.Option(help="Share of the users that get the treatment.")] = 0.5
    daily_users: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of new users each day. With it, the experiment's length in days is printed too."
        ),
    ] = None


def experiment(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by fit, calibrated.")],
    data: Annotated[str, typer.Argument(metavar="SPLIT", help="The folder of the split it was trained on.")],
    *,
    session: Session,
    arms: Arms,
) -> None:
    """Plan an A/B test: how many users you need to detect the effect of an evenness.

    The lists of the test users are made twice: at --evenness (treatment) and at --against (control). The number of
    users is computed for a two-sided test that compares two means. It depends on the change of the metric and on its
    variance among users. The measured change is uncertain. So a second, larger number is printed too: the users needed
    if the true change is the smallest one in the confidence interval.

    These numbers are for metrics of held-out data. If your experiment measures something else, such as clicks or
    revenue, it needs another number of users, because the variance differs.

    [dim]Examples:[/dim]

      fairmf experiment model.fairmf split --evenness 0.3

      fairmf experiment model.fairmf split --evenness 0.5 --metrics ndcg@10,aplt@10 --power 0.9 --daily-users 20000

      fairmf experiment model.fairmf split --metrics ndcg@20 --change -0.005 --json
    """
    loaded = load_fitted(model, session)
    split = read_split(data, None, session)
    metrics = comma_list(arms.metrics) or []
    session.uses("test", split.test.fold_in)
    results = []
    for level in (arms.against, arms.evenness):
        with session.timed("evaluate"), watched(loaded, split.test.n_users, session) as ranker:
            results.append(
                evaluate(ranker, split.test, train=split.train, metrics=metrics, evenness=level, bootstrap=0)
            )
    plans = plan_experiment(
        *results, metrics=metrics, change=arms.change, alpha=arms.alpha, power=arms.power, share=arms.share
    )
    session.result |= {
        "model": str(model),
        "evenness": arms.evenness,
        "against": arms.against,
        "held_out_users": split.test.n_users,
        "daily_users": arms.daily_users,
        "plans": [plan.to_dict() for plan in plans],
    }
    session.record_beside(model)
    session.show(
        _table(plans, arms.daily_users),
        f"Users of both arms together, {arms.share:.0%} of them in the treatment; false alarms {arms.alpha:.0%}, "
        f"power {arms.power:.0%}. Measured on {split.test.n_users:,} test users.",
    )
    for plan in plans:
        if plan.cautious_users is None:
            session.warn(
                f"{plan.metric}: the split cannot tell the change from 0. Plan for the smallest change that matters to "
                "you: --change NUMBER"
            )


def _table(plans: list[ExperimentPlan], daily: int | None) -> Table:
    table = Table()
    for title in ("metric", "control", "treatment", "change", "users", "cautious", *(["days"] if daily else [])):
        table.add_column(title, justify="left" if title == "metric" else "right", no_wrap=True)
    for plan in plans:
        cells = [f"{plan.control:.4f}", f"{plan.treatment:.4f}", _change(plan), _count(plan.users)]
        days = [_count(None if plan.users is None else math.ceil(plan.users / daily))] if daily else []
        table.add_row(plan.metric, *cells, _count(plan.cautious_users), *days)
    return table


def _change(plan: ExperimentPlan) -> str:
    half = "" if plan.interval is None else f" ±{(plan.interval[1] - plan.interval[0]) / 2:.4f}"
    return f"{plan.change:+.4f}{half}"


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"
