"""`fairmf demo`: compare models on synthetic data, from events to a report."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import fairmf
from fairmf.cli.output import make_folder
from fairmf.cli.session import Session
from fairmf.cli.terminal import marked, terminal
from fairmf.control.calibrate import calibrate
from fairmf.data.popularity import gini
from fairmf.data.split import Split
from fairmf.data.split_methods import split_by_user
from fairmf.data.synthetic import synthetic_events, theme_of
from fairmf.metrics.evaluate import Evaluation, evaluate
from fairmf.metrics.sentences import title
from fairmf.models.als import IALS, FairALS
from fairmf.models.base import IterativeModel
from fairmf.models.fiadmm import FiADMM
from fairmf.models.popularity import Popularity
from fairmf.reports.content import Contender, summary, write_json
from fairmf.reports.page import report
from fairmf.reports.tables import comparison_table
from fairmf.types import Record

EVENNESS = 0.3
TRIED_ON = 300  # validation users on whom levels are tried; the path that is found is measured on all of them
PLAIN, DEFAULT, EVEN = "iALS", "FairALS", f"FairALS evenness {EVENNESS:g}"
"""The models that the last lines compare."""


def demo(
    session: Session,
    users: Annotated[int, typer.Option(min=50, help="Users to generate.")] = 6000,
    items: Annotated[int, typer.Option(min=20, help="Items to generate.")] = 2000,
    interactions: Annotated[int, typer.Option(min=500, help="Interactions to generate.")] = 400_000,
    factors: Annotated[int, typer.Option(min=1, help="Number of factors of the models.")] = 32,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the data and the models.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for report.html and results.json.")] = Path(
        "fairmf-demo"
    ),
) -> None:
    """Train and compare Popularity, iALS, FiADMM and FairALS on synthetic data, and write a report.

    The first table compares all four. The last table compares iALS with FairALS at evenness 0 and at 0.3; their
    settings are chosen from the data.

    [dim]Examples:[/dim]

      fairmf demo

      fairmf demo --users 50000 --items 8000 --interactions 3000000 --factors 64
    """
    console = terminal(quiet=session.json or session.quiet)
    events = synthetic_events(users, items, interactions, random_state=seed)
    split = split_by_user(events, heldout=max(1, users // 6))
    popularity_gini = gini(split.train.by_item.sums())
    console.print(f"[bold]Data[/bold]    {len(events):,} synthetic events of {users:,} users on {items:,} items")
    console.print(f"        Gini of item popularity {popularity_gini:.2f} (0: all items alike, 1: one item has all)")
    sizes = [part.n_users for part in (split.train, split.validation, split.test)]
    console.print("[bold]Split[/bold]   {:,} users to train on, {:,} to validate and {:,} to test".format(*sizes))
    _compile(console)
    contenders, dialled = _compare(split, factors, seed, console)
    console.print(comparison_table(contenders))
    console.print(f"        measured on {split.test.n_users:,} test users; Gini and coverage depend on their number")
    facts = {
        "data": f"synthetic, {users:,} users, {items:,} items, {interactions:,} interactions, seed {seed}",
        "split": f"strong generalisation, {split.test.n_users:,} test users; tables show test users",
        "models": f"{factors} factors; iALS and FairALS have settings chosen from the data, models with a fairness the "
        "defaults without item_balance and user_balance; new users folded in one by one",
        "evenness": f"calibrated on {split.validation.n_users:,} validation users",
        "made by": f"fairmf {fairmf.__version__}, NumPy {np.__version__}, Python {platform.python_version()}",
        "command": f"fairmf demo --users {users} --items {items} --interactions {interactions} "
        f"--factors {factors} --seed {seed}",
    }
    make_folder(output)
    write_json(contenders, facts, output / "results.json")
    named = {c.name: c for c in contenders}
    console.print(summary(named[PLAIN], named[EVEN]))
    with console.status("measuring FairALS at many values of evenness for the report"):
        path = report(
            dialled, split, output / "report.html", title="Fair recommendations: a demonstration",
            chosen=EVENNESS, groups=_themes(split), compare=contenders, record=facts, progress=False,
        )  # fmt: skip
    session.result |= {"report": str(path), "results": str(output / "results.json")}
    session.result["models"] = [{"name": c.name, "seconds": c.seconds, **c.evaluation.to_dict()} for c in contenders]
    session.uses("train", split.train)
    session.record_beside(output)
    console.print(f"[bold]Report[/bold]  {marked(path.resolve())}", soft_wrap=True)
    compared = {name: named[name].evaluation for name in (PLAIN, DEFAULT, EVEN)}
    console.print(story_table(compared))
    console.print(story(compared, split.validation.n_users), highlight=False)


def _compile(console: Console) -> None:
    """Compile the kernels on a handful of users, so that the times shown later do not include compilation."""
    tiny = split_by_user(synthetic_events(200, 50, 2000), heldout=20)
    with console.status("compiling the CPU kernels (the first run takes some seconds)"):
        for model in (IALS(factors=2, epochs=2), FiADMM(factors=2, epochs=1), FairALS(factors=2, epochs=2)):
            evaluate(model.fit(tiny.train, progress=False), tiny.test, bootstrap=0)


def _compare(split: Split, factors: int, seed: int, console: Console) -> tuple[list[Contender], IterativeModel]:
    """Fit and measure every model on the test users; also return the model that the report shows at many levels."""
    common: Record = {"factors": factors, "random_state": seed}
    default = FairALS(**common, settings="auto")
    paper: Record = {**common, "item_balance": 0.0, "user_balance": 0.0}
    models: dict[str, Popularity | IterativeModel] = {
        "Popularity": Popularity(),
        "fiADMM fairness 0.5": FiADMM(**common, fairness=0.5),
        "fiADMM fairness 3": FiADMM(**common, fairness=3.0),
        "FairALS fairness 0.5": FairALS(**paper, fairness=0.5),
        "FairALS fairness 3": FairALS(**paper, fairness=3.0),
        PLAIN: IALS(**common, settings="auto"),
        DEFAULT: default,
    }
    contenders = []
    for name, model in models.items():
        began = time.perf_counter()
        with console.status(f"training {name}"):
            model.fit(split.train)
        seconds = time.perf_counter() - began
        with console.status(f"evaluating {name}"):
            contenders.append(Contender(name, evaluate(model, split.test), seconds))
    with console.status("calibrating evenness on the validation users"):
        calibrate(default, split.validation, users=TRIED_ON, bootstrap=0, progress=False)
    contenders.append(Contender(EVEN, evaluate(default, split.test, evenness=EVENNESS), seconds))
    return contenders, default


def story_table(compared: Mapping[str, Evaluation]) -> Table:
    """Show accuracy and evenness of the compared models side by side."""
    users = next(iter(compared.values())).n_users
    table = Table(title=f"Accuracy and evenness for {users:,} test users", title_justify="left")
    table.add_column("model", no_wrap=True)
    for heading in ("nDCG@20 ↑", "Gini@20 ↓"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, found in compared.items():
        table.add_row(name, f"{found['ndcg@20']:.3f}", f"{found['gini@20']:.3f}")
    return table


def story(compared: Mapping[str, Evaluation], validation_users: int) -> str:
    """Say in one sentence how the default model and the one with evenness differ from plain iALS."""
    plain = compared[PLAIN]
    default, even = (
        " and ".join(_against(metric, found[metric], plain[metric]) for metric in ("ndcg@20", "gini@20"))
        for found in (compared[DEFAULT], compared[EVEN])
    )
    return (
        f"Both have settings chosen from the data. Against plain iALS, FairALS has {default}; at evenness "
        f"{EVENNESS:g}, calibrated on {validation_users:,} validation users, without further training, it has {even}."
    )


def _against(metric: str, value: float, plain: float) -> str:
    """Compare two values as they are printed: "a lower Gini@20 (0.74 instead of 0.94)"."""
    new, old = round(value, 3), round(plain, 3)
    if new == old:
        return f"the same {title(metric)} ({new:.3f})"
    return f"a {'higher' if new > old else 'lower'} {title(metric)} ({new:.3f} instead of {old:.3f})"


def _themes(split: Split) -> list[str]:
    """Return a group for each item: the noun of a title tells its theme ("The Quiet Harbour (1987)" is of the sea)."""
    ids = split.train.item_ids
    return [] if ids is None else [theme_of(str(name)) for name in ids.values]
