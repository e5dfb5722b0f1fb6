"""Run benchmarks: `python -m benchmarks [--full] [name ...]`. All of them short by default, as `make bench` does.

RESULTS.md keeps one section per benchmark, with the date, machine and command of its own run; only those that were run
are replaced. benchmarks/history keeps all runs (history.py).
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import re
import sys
from pathlib import Path

from benchmarks import history, machine
from fairmf.backends.registry import what_is_missing

NAMES = (
    "kernels",
    "epoch_cost",
    "fit_speed",
    "fit_budget",
    "first_run",
    "time_to_objective",
    "same_answer",
    "subspace",
    "scaling",
    "pareto",
    "fronts",
    "evenness",
    "cold_items",
    "auto_settings",
    "control",
    "fold_in",
    "recommend_for",
    "group_weights",
    "top_k",
    "ann",
    "ann_levels",
    "fairrec",
    "fairrec_fronts",
    "exposure",
    "exposure_scale",
    "exposure_control",
    "tuning",
    "ingest",
    "end_to_end",
    "autoencoders",
    "report",
    "soak",
    "serving",
    "serving_million",
    "cuda",
    "cuda_fit",
    "ray_costs",
    "ray_engine",
)
RESULTS = Path(__file__).parent / "RESULTS.md"
HEAD = "# Benchmark results\n\nEach section is one run; ratios compare both sides inside it.\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--full", action="store_true", help="full sizes instead of the short version")
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    sections = read(RESULTS)
    for name in options.names or NAMES:
        if name.startswith("cuda") and not options.names and (reason := what_is_missing()) is not None:
            print(f"left out: {reason}", file=sys.stderr)
            continue
        result = importlib.import_module(f"benchmarks.{name}").run(short=not options.full)
        command = f"python -m benchmarks {'--full ' if options.full else ''}{name}"
        date, here = datetime.date.today().isoformat(), machine.describe()
        history.add(name, result, date, command, here)
        made = f"{date}, `{command}`, {here}."
        sections[name] = f"{result.markdown()}\n*{made}*\n"
        print(sections[name], flush=True)
        write(RESULTS, sections)
    print(f"written to {RESULTS}", file=sys.stderr)


def read(path: Path) -> dict[str, str]:
    """The sections of the file, by benchmark."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return dict(re.findall(r"<!-- (\w+) -->\n(.*?)<!-- end -->\n", text, flags=re.DOTALL))


def write(path: Path, sections: dict[str, str]) -> None:
    """All sections, in the order of NAMES."""
    parts = [f"<!-- {name} -->\n{sections[name]}<!-- end -->\n" for name in NAMES if name in sections]
    path.write_text("\n".join([HEAD, *parts]), encoding="utf-8")


if __name__ == "__main__":
    main()
