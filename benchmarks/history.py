"""Keep every run of a benchmark as data, plot the figures that matter over time, and find those that got worse.

`python -m benchmarks` adds a line to benchmarks/history/NAME.jsonl for each run: date, command, machine, table.

    python -m benchmarks.history            # compare the last run of each figure with the earlier ones
    python -m benchmarks.history --page     # write docs/benchmark-history.md and its plots

Most figures are ratios of two times of one run, because machines differ. Runs are compared on the same machine only.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.result import Result, text_of

FOLDER = Path(__file__).parent / "history"
DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "benchmark-history.md"
LOSS = 0.2  # a figure counts as worse from this change on: two runs of the same code have differed by 17 %
HEAD = """# Speed over time

Every run of `python -m benchmarks` adds a line to `benchmarks/history/NAME.jsonl`: its date, command, machine and
table. This page is made from them by `python -m benchmarks.history --page`. Without `--page` the command compares the
last run of each figure with the median of the earlier runs on the same machine, and fails where one is more than 20 %
worse. Run it before a release ([releasing](releasing.md)).

Figures are ratios of two times inside one run, except where a unit is given. [Results](../benchmarks/RESULTS.md) has
the last run of everything, in full.
"""


@dataclass(frozen=True)
class Figure:
    """A column of a benchmark's table that should not get worse."""

    benchmark: str
    column: str
    keys: tuple[str, ...]
    """The columns that say which row it is."""
    words: str
    higher: bool = True
    """Whether higher is better."""


FIGURES = (
    Figure("fit_speed", "least ratio", ("data", "factors"), "An epoch of FairALS: times as fast as the best peer"),
    Figure("fit_speed", "of whole fit", ("data", "factors"), "A whole fit: times as fast as the best peer"),
    Figure("kernels", "users", ("data", "factors"), "Users' step of an epoch, GFlop/s"),
    Figure("epoch_cost", "IALS / FiADMM", ("factors",), "FiADMM's epoch: times as fast as exact iALS"),
    Figure(
        "top_k", "implicit / fairmf", ("factors of", "users x items", "d"), "Lists for all: times as fast as implicit"
    ),
    Figure(
        "fold_in", "CSR row / implicit", ("factors",), "Folding in one user: time relative to implicit", higher=False
    ),
    Figure("recommend_for", "ratio", ("factors",), "A list from a history: time relative to implicit", higher=False),
    Figure("ingest", "ratio", ("user ids",), "Reading CSV: times as fast as pandas"),
    Figure(
        "evenness", "ratio", ("what", "data"), "What evenness and balance cost: time relative to none", higher=False
    ),
    Figure("auto_settings", "ratio", ("what", "data"), "Automatic settings: time in fits", higher=False),
    Figure(
        "serving",
        "p99",
        ("server", "workers", "rate asked"),
        "Serving: 99th percentile of the latency, ms",
        higher=False,
    ),
    Figure("first_run", "first, CPU", ("call",), "First run: seconds of CPU, compilation included", higher=False),
    Figure(
        "ray_engine",
        "ratio of epochs",
        ("factors", "fairness"),
        "An epoch over Ray: time relative to a local one",
        higher=False,
    ),
    Figure("cuda", "epoch, ms", ("factors", "stored as"), "An epoch on a device, ms", higher=False),
)


@dataclass(frozen=True)
class Run:
    """One run of one benchmark."""

    date: str
    command: str
    machine: str
    header: list[str]
    rows: list[list[str]]

    def values(self, figure: Figure) -> dict[str, float]:
        """Return the figure of every row, by the row's name."""
        if figure.column not in self.header or not set(figure.keys) <= set(self.header):
            return {}
        named = ((dict(zip(self.header, row, strict=False))) for row in self.rows)
        found = {}
        for row in named:
            name = ", ".join(f"{key} {row[key]}" if row[key].isdigit() else row[key] for key in figure.keys)
            number = re.match(r"-?[\d,]*\.?\d+", row.get(figure.column, ""))
            if number:
                found[name] = float(number[0].replace(",", ""))
        return found


def add(benchmark: str, result: Result, date: str, command: str, machine: str, folder: Path = FOLDER) -> None:
    """Add a run to the history of its benchmark."""
    folder.mkdir(exist_ok=True)
    rows = [[text_of(cell) for cell in row] for row in result.rows]
    run = Run(date, command, machine, list(result.header), rows)
    with (folder / f"{benchmark}.jsonl").open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(vars(run), ensure_ascii=False) + "\n")


def runs(benchmark: str, folder: Path = FOLDER) -> list[Run]:
    """Return the runs of a benchmark, the oldest first."""
    path = folder / f"{benchmark}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Run(**json.loads(line)) for line in lines if line.strip()]


@dataclass(frozen=True)
class Series:
    """The values of one figure of one row, on one machine and with one command, over time."""

    figure: Figure
    row: str
    points: list[tuple[str, float]]

    @property
    def change(self) -> float | None:
        """How much better the last value is than the median of the earlier ones (.1: 10 %); None for one value."""
        if len(self.points) < 2:
            return None
        last, before = self.points[-1][1], statistics.median(value for _, value in self.points[:-1])
        if min(last, before) <= 0:
            return None
        return (last / before if self.figure.higher else before / last) - 1


def series(folder: Path = FOLDER) -> list[Series]:
    """Return all tracked figures; a machine or command other than that of the last run is left out."""
    found = []
    for figure in FIGURES:
        all_runs = [run for run in runs(figure.benchmark, folder) if run.values(figure)]
        if not all_runs:
            continue
        last = all_runs[-1]
        points = defaultdict(list)
        for run in all_runs:
            if (processor(run), run.command) == (processor(last), last.command):
                for row, value in run.values(figure).items():
                    points[row].append((run.date, value))
        found += [Series(figure, row, points[row]) for row in last.values(figure)]
    return found


def processor(run: Run) -> str:
    """Return the machine without the versions of the libraries."""
    return run.machine.split(";")[0]


def worse(found: list[Series]) -> list[Series]:
    """Return the figures that got worse by more than LOSS."""
    return [each for each in found if each.change is not None and each.change < -LOSS]


def page(found: list[Series], images: Path) -> str:
    """Return the page, and write its plots."""
    parts = [HEAD]
    for figure in dict.fromkeys(each.figure for each in found):
        lines = [each for each in found if each.figure == figure]
        parts.append(f"\n## {figure.words}\n")
        direction = "higher" if figure.higher else "lower"
        last = runs(figure.benchmark)[-1]
        parts.append(f"`{last.command}`, {processor(last)}. {direction.capitalize()} is better.\n")
        if any(len(each.points) > 1 for each in lines):
            name = re.sub(r"\W+", "-", f"history-{figure.benchmark}-{figure.column}").strip("-") + ".svg"
            plot(lines, images / name)
            parts.append(f"![{figure.words}](images/{name})\n")
        parts.append("| | runs | first | last | better by |\n|---|---|---|---|---|")
        for each in lines:
            (began, first), (ended, value) = each.points[0], each.points[-1]
            change = "" if each.change is None else f"{100 * each.change:+.0f} %"
            parts.append(f"| {each.row} | {len(each.points)} | {first:g} ({began}) | {value:g} ({ended}) | {change} |")
    lost = worse(found)
    parts.append(
        f"\n## Worse than before\n\n{told(lost) if lost else 'No figure is more than 20 % worse than before.'}"
    )
    return "\n".join(parts) + "\n"


def told(lost: list[Series]) -> str:
    """Return one line for each figure that got worse."""
    return "\n".join(
        f"* {each.figure.words} ({each.row}): {each.points[-1][1]:g} on {each.points[-1][0]}, "
        f"median before {statistics.median(value for _, value in each.points[:-1]):g}"
        for each in lost
    )


def plot(lines: list[Series], path: Path) -> None:
    """Draw the values of some rows run by run."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context({"svg.hashsalt": "fairmf", "svg.fonttype": "none", "font.size": 9}):
        canvas = Canvas(figsize=(7, 2.6), layout="constrained")
        axes = canvas.subplots()
        longest = max(len(each.points) for each in lines)
        for each in lines:
            at = range(longest - len(each.points), longest)
            axes.plot(at, [value for _, value in each.points], marker="o", label=each.row)
        dates = max((each.points for each in lines), key=len)
        axes.set_xticks(range(longest), [date for date, _ in dates])
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", alpha=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        canvas.savefig(path, metadata={"Date": None})


def main() -> int:
    """Compare, or write the page; exit code 1 where a figure got worse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the page and its plots")
    options = parser.parse_args()
    found = series()
    if options.page:
        PAGE.write_text(page(found, DOCS / "images"), encoding="utf-8")
        print(f"written to {PAGE.relative_to(DOCS.parent)}")
        return 0
    lost = worse(found)
    print(told(lost) or f"{len(found)} figures, none more than 20 % worse than before")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
