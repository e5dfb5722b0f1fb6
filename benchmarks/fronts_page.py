"""Write docs/what-works-figures.md and the table of docs/what-works.md from the stored fronts.

`python -m benchmarks.fronts_page`
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fronts import STORED, cell_text, load
from benchmarks.fronts_data import SETS
from benchmarks.fronts_methods import ONE_LINERS, OURS
from fairmf.types import Record

PAGE = Path(__file__).parents[1] / "docs" / "what-works-figures.md"
SUMMARY = PAGE.with_name("what-works.md")
METRICS = {
    "ndcg20": "nDCG@20", "ndcg100": "nDCG@100", "recall20": "Recall@20", "coverage": "coverage@20",
    "tail": "tail share@20",
}  # fmt: skip


def page() -> str:
    """docs/what-works-figures.md: every metric of every method, from the stored results."""
    lines = [
        "# What works: all figures",
        "",
        "Written by `python -m benchmarks.fronts_page` from the results in benchmarks/fronts/. What they mean is in "
        "[what works](what-works.md).",
    ]
    for data in SETS:
        if not (STORED / f"{data.name}.json").exists():
            continue
        stored = load(data.name)
        lines += ["", f"## {data.name}", ""]
        lines += [f"Gini, coverage and tail share are those of the lists of {stored['users']:,} test users over "
                  f"{stored['items']:,} items; {stored['factors']} factors."]  # fmt: skip
        for name, title in METRICS.items():
            lines += ["", f"### {data.name}: {title}", ""]
            lines += ["| model | method | " + " | ".join(f"Gini {level:g}" for level in stored["levels"]) + " |"]
            lines += ["|---|---|" + "---|" * len(stored["levels"])]
            for made in stored["rows"]:
                defined = name != "ndcg100" or made["method"] != "FairRec"  # its lists end after 20 items
                cells = (_shown(cell if defined else None, name) for cell in made["cells"])
                lines.append(f"| {made['model']} | {made['method']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def summary() -> str:
    """The table of docs/what-works.md: the path, and the best rival of two kinds, at every level."""
    lines = ["| data | Gini@20 | calibrated path | best one-liner | best of the others |", "|---|---|---|---|---|"]
    for data in SETS:
        if not (STORED / f"{data.name}.json").exists():
            continue
        stored = load(data.name)
        ours = next(made for made in stored["rows"] if made["method"] == OURS)
        for k, level in enumerate(stored["levels"]):
            own = ours["cells"][k]
            rivals = [_best(stored, k, wanted) for wanted in (True, False)]
            first = f"{data.name}, {stored['users']:,} users" if k == 0 else ""
            lines.append(f"| {first} | {level:g} | {own['ndcg20']:.4f} | " + " | ".join(rivals) + " |")
    return "\n".join(lines)


def _best(stored: Record, k: int, one_liner: bool) -> str:
    """The best method at a level, among one-liners or among the others: its name, nDCG@20 and distance to the path.

    Every other one that is above the path by more than its interval is named after it.
    """
    rows = [made for made in stored["rows"] if (made["method"] in ONE_LINERS) == one_liner and made["method"] != OURS]
    rows = [made for made in rows if made["cells"][k] is not None]
    if not rows:
        return "-"
    rows.sort(key=lambda made: -made["cells"][k]["ndcg20"])
    return "; ".join(_told(made, k) for n, made in enumerate(rows) if n == 0 or _above(made, k))


def _told(made: Record, k: int) -> str:
    text = f"{made['method']}, {made['model']}: {cell_text(made['cells'][k])}"
    return f"**{text}**" if _above(made, k) else text


def _above(made: Record, k: int) -> bool:
    """Whether a method is above the path by more than the interval of the difference."""
    cell = made["cells"][k]
    return bool(cell.get("above", 0) > cell.get("half_width", 0))


def _shown(cell: Record | None, metric: str) -> str:
    if cell is None:
        return "-"
    if metric == "ndcg20":
        return cell_text(cell)
    return f"{cell[metric]:.4f}"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    text = SUMMARY.read_text(encoding="utf-8")
    before, after = text.split("<!-- table -->")[0], text.split("<!-- end of table -->")[1]
    SUMMARY.write_text(f"{before}<!-- table -->\n{summary()}\n<!-- end of table -->{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
