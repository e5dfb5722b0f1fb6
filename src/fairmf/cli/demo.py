"""`fairmf demo`: compare models on synthetic data, from events to a report."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

import fairmf
from fairmf.cli.output import make_folder
from fairmf.cli.session import Session
from fairmf.cli.terminal import marked, terminal
from fairmf.data.popularity import gini
from fairmf.data.split import Split
from fairmf.data.split_methods import split_by_user
from fairmf.data.synthetic import synthetic_events, theme_of
from fairmf.metrics.evaluate import evaluate
from fairmf.models.als import IALS, FairALS
from fairmf.models.base import IterativeModel
from fairmf.models.fiadmm import FiADMM
from fairmf.models.popularity import Popularity
from fairmf.reports.content import Contender, summary, write_json
from fairmf.reports.page import report
from fairmf.reports.tables import comparison_table
from fairmf.types import Record


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
    """Train and compare Popularity, iALS, fiADMM and FairALS on synthetic data, and write a report.

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
    facts = {
        "data": f"synthetic, {users:,} users, {items:,} items, {interactions:,} interactions, seed {seed}",
        "split": f"strong generalisation, {split.test.n_users:,} test users; tables show test users",
        "models": f"{factors} factors, regularization .01, unobserved weight .1; new users folded in one by one",
        "made by": f"fairmf {fairmf.__version__}, NumPy {np.__version__}, Python {platform.python_version()}",
        "command": f"fairmf demo --users {users} --items {items} --interactions {interactions} "
        f"--factors {factors} --seed {seed}",
    }
    make_folder(output)
    write_json(contenders, facts, output / "results.json")
    console.print(summary(contenders[1], contenders[-1]))
    with console.status("measuring FairALS at many values of fairness for the report"):
        path = report(
            dialled, split, output / "report.html", title="Fair recommendations: a demonstration",
            groups=_themes(split), compare=contenders, record=facts, progress=False,
        )  # fmt: skip
    session.result |= {"report": str(path), "results": str(output / "results.json")}
    session.result["models"] = [{"name": c.name, "seconds": c.seconds, **c.evaluation.to_dict()} for c in contenders]
    session.uses("train", split.train)
    session.record_beside(output)
    console.print(f"[bold]Report[/bold]  {marked(path.resolve())}", soft_wrap=True)


def _compile(console: Console) -> None:
    """Compile the kernels on a handful of users, so that the times shown later do not include compilation."""
    tiny = split_by_user(synthetic_events(200, 50, 2000), heldout=20)
    with console.status("compiling the CPU kernels (the first run takes some seconds)"):
        for model in (IALS(factors=2, epochs=2), FiADMM(factors=2, epochs=1), FairALS(factors=2, epochs=2)):
            evaluate(model.fit(tiny.train, progress=False), tiny.test, bootstrap=0)


def _compare(split: Split, factors: int, seed: int, console: Console) -> tuple[list[Contender], IterativeModel]:
    """Fit and measure every model on the test users; also return the model that the report shows at many fairnesses."""
    common: Record = {"factors": factors, "regularization": 0.01, "random_state": seed}
    models: dict[str, Popularity | IterativeModel] = {
        "Popularity": Popularity(),
        "iALS": IALS(**common),
        "fiADMM fairness 0.5": FiADMM(**common, fairness=0.5),
        "fiADMM fairness 3": FiADMM(**common, fairness=3.0),
        "FairALS fairness 0.5": FairALS(**common, fairness=0.5),
        "FairALS fairness 3": FairALS(**common, fairness=3.0),
    }
    contenders = []
    for name, model in models.items():
        began = time.perf_counter()
        with console.status(f"training {name}"):
            model.fit(split.train)
        seconds = time.perf_counter() - began
        with console.status(f"evaluating {name}"):
            contenders.append(Contender(name, evaluate(model, split.test), seconds))
    return contenders, FairALS(**common, fairness=1.0).fit(split.train, progress=False)


def _themes(split: Split) -> list[str]:
    """Return a group for each item: the noun of a title tells its theme ("The Quiet Harbour (1987)" is of the sea)."""
    ids = split.train.item_ids
    return [] if ids is None else [theme_of(str(name)) for name in ids.values]
