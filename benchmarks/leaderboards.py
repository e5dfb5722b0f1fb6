"""The stored results of `fairmf leaderboard`, and the tables and plots of docs/leaderboard.md that are made from them.

`python -m benchmarks.leaderboards --keep FOLDER ...` stores the results.json of a run as benchmarks/leaderboards/
NAME.json; `--page` writes the tables of docs/leaderboard.md and its plots from what is stored.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from fairmf.leaderboards import show
from fairmf.reports import plots
from fairmf.types import Record

STORED = Path(__file__).parent / "leaderboards"
PAGE = Path(__file__).parents[1] / "docs" / "leaderboard.md"
IMAGES = PAGE.parent / "images"
ORDER = ("gowalla", "amazon-cds", "ml-1m", "epinions", "citeulike-t")
BEGIN, END = "<!-- tables: written by python -m benchmarks.leaderboards --page -->", "<!-- end of tables -->"


def load(name: str) -> Record:
    return json.loads((STORED / f"{name}.json").read_text(encoding="utf-8"))


def names() -> list[str]:
    """The boards that are stored, in the order of the page."""
    return [name for name in ORDER if (STORED / f"{name}.json").exists()]


def keep(folder: Path) -> str:
    """Store the results of a run, with the rows of other models of the same board that are stored already."""
    result = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    name = result["board"]["name"]
    STORED.mkdir(exist_ok=True)
    before = load(name) if (STORED / f"{name}.json").exists() else {"rows": []}
    ours = {row["model"] for row in result["rows"]}
    result["rows"] += [row for row in before["rows"] if row["model"] not in ours]
    best = max((row for row in result["rows"] if "validation" in row), key=lambda row: row["validation"])
    for row in result["rows"]:
        row["best"] = (row["model"], row["factors"]) == (best["model"], best["factors"])
    (STORED / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return name


def tables() -> str:
    """A section for each board: protocol, plots, measured rows with their settings, published rows."""
    lines = [BEGIN]
    for name in names():
        result = load(name)
        # The title of a table becomes a section of the page.
        lines += ["", *show.markdown(result).replace("# ", "## ", 1).replace("Published rows:", PUBLISHED).splitlines()]
        lines += ["", "Settings:", "", *settings(result)]
        if name in DRAWN:
            lines += ["", *(f"![{name}: {what}](images/leaderboard-{name}-{kind}.svg)" for kind, what in KINDS.items())]
    return "\n".join([*lines, "", END])


PUBLISHED = "Published rows, of the same test part, not measured by us:"
KINDS = {"seconds": "accuracy against the seconds of the fit", "gini": "accuracy against Gini"}
DRAWN = ("gowalla", "amazon-cds", "ml-1m")


def settings(result: Record) -> list[str]:
    """One line for each tuned model."""
    lines = []
    for row in result["rows"]:
        if row["settings"] and not row["evenness"]:
            chosen = {name: value for name, value in row["settings"].items() if name not in ("factors", "random_state")}
            told = ", ".join(f"{name} {value:.3g}" for name, value in chosen.items())
            lines.append(f"* {show.named(row)}: {told}")
    return lines


def page() -> str:
    """The whole page, with the tables of what is stored."""
    text = PAGE.read_text(encoding="utf-8")
    return re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: tables(), text, flags=re.DOTALL)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--keep"]:
        print(*(keep(Path(folder)) for folder in arguments[1:]))
    elif arguments == ["--page"]:
        PAGE.write_text(page(), encoding="utf-8")
        for name in (name for name in names() if name in DRAWN):
            result = load(name)
            plots.save(show.against_seconds(result), IMAGES / f"leaderboard-{name}-seconds.svg")
            plots.save(show.against_gini(result), IMAGES / f"leaderboard-{name}-gini.svg")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
