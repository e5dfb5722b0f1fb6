"""Run benchmarks: `python -m benchmarks [--full] [name ...]`. All of them short by default, as `make bench` does."""

from __future__ import annotations

import argparse
import datetime
import importlib
import sys
from pathlib import Path

from benchmarks import machine

NAMES = ("epoch_cost", "fit_speed", "time_to_objective", "same_answer", "scaling", "pareto")
RESULTS = Path(__file__).parent / "RESULTS.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--full", action="store_true", help="full sizes instead of the short version")
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    chosen = options.names or NAMES
    command = "python -m benchmarks " + " ".join([*(["--full"] if options.full else []), *options.names])
    sections = [
        "# Benchmark results",
        "",
        f"{datetime.date.today().isoformat()}, {machine.describe()}. Command: `{command.strip()}`",
        "",
        "Every figure is a measurement of this one run; ratios compare both sides inside it.",
        "",
    ]
    for name in chosen:
        result = importlib.import_module(f"benchmarks.{name}").run(short=not options.full)
        sections.append(result.markdown())
        print(sections[-1], flush=True)
    RESULTS.write_text("\n".join(sections), encoding="utf-8")
    print(f"written to {RESULTS}", file=sys.stderr)


if __name__ == "__main__":
    main()
