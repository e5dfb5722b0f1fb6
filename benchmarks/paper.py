"""The stored results of `fairmf reproduce`, and the tables and plots of docs/reproduction.md that are made from them.

`python -m benchmarks.paper --keep FOLDER ...` stores the results.json of runs as benchmarks/paper/NAME-DATA.json;
`--page` writes the tables and plots of the page from what is stored, without training. A table of the page stands
between `<!-- results: NAME-DATA metrics -->` and `<!-- end of results -->`. `--orders` measures both orders of iALS++
on MovieLens-1M (benchmarks/paper/block-orders.json).
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

from fairmf import IALS
from fairmf.metrics.registry import parse_metric
from fairmf.reproduce.data import load_data
from fairmf.reproduce.kinds import kind_of
from fairmf.reproduce.kinds.ranking_table import chosen
from fairmf.reproduce.pieces import Outcome, Piece
from fairmf.reproduce.run import RESULTS, Row, difference_cell, measured_cell, read_results, rebuild
from fairmf.reproduce.spec import experiment
from fairmf.reproduce.tables import short
from fairmf.types import Record

STORED = Path(__file__).parent / "paper"
PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"
IMAGES = PAGE.parent / "images"
ORDERS = STORED / "block-orders.json"
MARK = re.compile(r"(<!-- results: (\S+) ([^>]*?)-->\n).*?(<!-- end of results -->)", re.DOTALL)
SHOWN_EPOCHS = (4, 8, 16, 32, 64, 100)  # of learning curves


def keep(folder: Path) -> str:
    """Store the results of a run. What each user got is stored for the settings that were chosen, for the tests."""
    results = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    if results["kind"] == "ranking_table":
        whole = experiment(results["experiment"]).on(results["data"]["settings_of"])
        outcomes = [Outcome(piece_of(one), one["result"], 0.0, one["key"]) for one in results["pieces"]]
        best = {series.name: chosen(whole, series, outcomes) for series in whole.series}
        for one in results["pieces"]:
            if piece_of(one).without_seed != best[one["series"]]:
                for point in one["result"].get("points", ()):
                    point.pop("users", None)
    name = f"{results['experiment']}-{results['data']['name']}"
    STORED.mkdir(exist_ok=True)
    # A piece per line: a diff shows which fits are new.
    pieces = ",\n".join(json.dumps(one) for one in results.pop("pieces"))
    rest = json.dumps(results)
    (STORED / f"{name}.json").write_text(f'{rest[:-1]}, "pieces": [\n{pieces}\n]}}\n', encoding="utf-8")
    return name


def piece_of(stored: Record) -> Piece:
    return Piece(stored["series"], stored["model"], stored["settings"], stored["how"])


def names() -> list[str]:
    """The results that are stored."""
    return sorted(file.stem for file in STORED.glob("*.json") if "pieces" in json.loads(file.read_text("utf-8")))


def rows_of(name: str) -> tuple[Record, list[Row]]:
    """The stored results with their rows, made from the stored pieces."""
    whole, outcomes, stored = read_results(STORED / f"{name}.json")
    return stored, kind_of(whole).rows(whole, outcomes)


def table(name: str, metrics: list[str]) -> list[str]:
    """A table of the page: the rows of a result with these columns; `grid`: all settings of the first series.

    `times` has a row for each number of factors and a column for each series.
    """
    if metrics == ["grid"]:
        return grid(json.loads((STORED / f"{name}.json").read_text(encoding="utf-8")))
    results, rows = rows_of(name)
    if metrics == ["times"]:
        return times(rows)
    told = [row for row in rows if is_told(results["kind"], row, rows)]
    labels = [label for label in told[0].label if label not in ("front",)]
    labels = [label for label in labels if any(row.label.get(label) not in ("", None) for row in told)]
    tests = [row.test for row in told if row.test]
    heads = [*("" if label == "series" else label for label in labels), *(title(metric) for metric in metrics)]
    heads += [f"{title(tests[0]['metric'])} minus {tests[0]['baseline']} (p)"] if tests else []
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in told:
        cells = [str(row.label.get(label, "")) for label in labels]
        cells += [measured_cell(row, metric) for metric in metrics]
        lines.append("| " + " | ".join([*cells, *([difference_cell(row)] if tests else [])]) + " |")
    return lines


def times(rows: list[Row]) -> list[str]:
    """Seconds per epoch: a row for each number of factors, a column for each series."""
    series = list(dict.fromkeys(row.label["series"] for row in rows))
    cells = {(row.label["factors"], row.label["series"]): measured_cell(row, "seconds_per_epoch") for row in rows}
    lines = ["| factors | " + " | ".join(series) + " |", "|---|" + "---|" * len(series)]
    for factors in sorted({at for at, _ in cells}):
        lines.append(f"| {factors} | " + " | ".join(cells.get((factors, one), "") for one in series) + " |")
    return lines


def grid(results: Record) -> list[str]:
    """Quality and Gini on the validation users for every gamma and rho of the first series with a grid, first seed."""
    first = next(one["series"] for one in results["pieces"] if {"gamma", "rho"} <= set(one["settings"]))
    mine = [one for one in results["pieces"] if one["series"] == first and one["settings"]["random_state"] == 0]
    gammas = sorted({one["settings"]["gamma"] for one in mine}, reverse=True)
    rhos = sorted({one["settings"]["rho"] for one in mine})
    lines = ["| gamma | " + " | ".join(f"rho {short(rho)}" for rho in rhos) + " |", "|---|" + "---|" * len(rhos)]
    for gamma in gammas:
        cells = []
        for rho in rhos:
            found = [one for one in mine if (one["settings"]["gamma"], one["settings"]["rho"]) == (gamma, rho)]
            cells.append(cell(found[0]["result"]) if found else "")
        lines.append(f"| {short(gamma)} | " + " | ".join(cells) + " |")
    return lines


def cell(result: Record) -> str:
    if "diverged" in result:
        return "diverges"
    values = result["points"][0]["validation"]
    return f"{values['ndcg@100']:.4f} at {values['gini@20']:.4f}"


def is_told(kind: str, row: Row, rows: list[Row]) -> bool:
    """Whether the page shows a row: points on a front, some epochs of curves, the last epoch of residuals."""
    if kind == "fronts":
        return bool(row.label["front"])
    if kind == "learning":
        return row.label["epoch"] in SHOWN_EPOCHS
    if kind == "residuals":
        mine = [one for one in rows if one.label["settings"] == row.label["settings"]]
        return row is [one for one in mine if one.label["series"] == row.label["series"]][-1]
    return row.shown


TITLES = {
    "objective": "F", "dual": "\\|t - s\\|", "users": "\\|U+ - U\\|", "seconds": "seconds",
    "seconds_per_epoch": "seconds per epoch",
}  # fmt: skip


def title(metric: str) -> str:
    return TITLES.get(metric) or parse_metric(metric).title


def page() -> str:
    """The whole page, with the tables of what is stored."""

    def made(found: re.Match[str]) -> str:
        return found[1] + "\n".join(table(found[2], found[3].split())) + "\n" + found[4]

    return MARK.sub(made, PAGE.read_text(encoding="utf-8"))


def draw() -> None:
    """Write the plots that the page shows."""
    wanted = set(re.findall(r"images/(paper-\S+?\.svg)", PAGE.read_text(encoding="utf-8")))
    for name in names():
        with tempfile.TemporaryDirectory() as folder:
            for file in rebuild(STORED / f"{name}.json", folder).files:
                image = f"paper-{name}-{file.name}"
                if image in wanted:
                    shutil.copy(file, IMAGES / image)


def orders() -> None:
    """F by epochs and CPU seconds of iALS++ in both orders, and of iALS by Cholesky, on MovieLens-1M."""
    train, found = load_data("ml-1m").split.train, []
    for factors in (64, 256):
        for solver in ("subspace", "alternating_subspace", "cholesky"):
            settings = {"factors": factors, "epochs": 16, "regularization": 0.01, "unobserved_weight": 0.1}
            IALS(**{**settings, "epochs": 1}, solver=solver, block_size=32).fit(train, progress=False)  # compiles
            began = time.process_time()
            model = IALS(**settings, solver=solver, block_size=32).fit(train, progress=False, settle=False)
            spent = round(time.process_time() - began, 1)
            totals = [round(x) for x in model.history.column("objective.total")]
            found.append({**settings, "solver": solver, "block_size": 32, "F": totals, "cpu_seconds": spent})
    STORED.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(one) for one in found)
    ORDERS.write_text(f'{{"data": "ml-1m", "fits": [\n{lines}\n]}}\n', encoding="utf-8")


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--keep"]:
        print(*(keep(Path(folder)) for folder in arguments[1:]))
    elif arguments == ["--page"]:
        PAGE.write_text(page(), encoding="utf-8")
        draw()
    elif arguments == ["--orders"]:
        orders()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
