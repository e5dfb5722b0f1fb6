"""The report: how large the page is and how long it takes, by the size of the catalogue and the intervals asked for.

The page must stay under 6 MB whatever the catalogue.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.result import Result
from fairmf.data.split_methods import split_by_user
from fairmf.data.synthetic import synthetic_events
from fairmf.models.als import FairALS
from fairmf.reports.page import report

LIMIT = 6e6


def run(short: bool) -> Result:
    result = Result(
        "Report: size and time",
        "Synthetic data, FairALS with 16 factors, lists of 2,000 test users (400 of 10,000 in the small case).",
        ("items", "users", "resamples", "page, MB", "seconds"),
    )
    sizes = [(2_000, 10_000, 400_000, 400)] + ([] if short else [(100_000, 20_000, 1_500_000, 2_000)])
    with tempfile.TemporaryDirectory() as folder:
        for items, users, interactions, heldout in sizes:
            split = split_by_user(synthetic_events(users, items, interactions), heldout=heldout)
            model = FairALS(factors=16, epochs=3).fit(split.train, progress=False)
            path = Path(folder) / "report.html"
            report(model, split, path, fairness=[0, 1], bootstrap=0, progress=False)  # compiles
            for bootstrap in (0, 50, 200):
                began = time.perf_counter()
                report(model, split, path, bootstrap=bootstrap, progress=False)
                seconds, size = time.perf_counter() - began, path.stat().st_size
                result.rows.append(
                    (f"{split.train.n_items:,}", f"{heldout:,}", bootstrap, f"{size / 1e6:.2f}", seconds)
                )
                if size > LIMIT:
                    result.findings.append(f"**Too large:** {size:,} bytes for {items:,} items.")
    if not result.findings:
        result.findings.append("Every page is under 6 MB.")
    return result
