"""What automatic settings cost, and how near they come to a search with 50 trials.

The search takes much longer than everything else, so what it found is kept in auto_settings.json beside this file, with
the date; delete it to search again.
"""

from __future__ import annotations

import datetime
import json
import time
from pathlib import Path

from benchmarks.evenness import add
from benchmarks.fronts_data import SETS, Parts, Set
from benchmarks.fronts_methods import Cohort
from benchmarks.result import Result
from fairmf import FairALS, Level, synthetic
from fairmf.control.search_space import default_space
from fairmf.control.tuning import tune
from fairmf.data.split import HeldOut, Split
from fairmf.models import auto_settings

TRIALS = 50
TUNED = Path(__file__).with_suffix(".json")
"""nDCG@20 of the test users with the best of 50 trials, by data set."""


def run(short: bool) -> Result:
    result = Result(
        "Automatic settings",
        '`settings="auto"`, 128 factors: how long a fit with it takes against a fit with the same settings given, and '
        f"the nDCG@20 that they give. `python -m benchmarks {'' if short else '--full '}auto_settings`",
        ("what", "data", "without", "with", "ratio", "goal"),
    )
    for chosen in SETS[:1] if short else SETS:
        if not chosen.path.exists():
            result.findings.append(f"{chosen.name}: not run, {chosen.file} is absent (FAIRMF_DATA names the folder).")
            continue
        automatic(result, chosen)
        if not short:
            against_tune(result, chosen)
    return result


def automatic(result: Result, chosen: Set) -> None:
    """Settings chosen from the data: how long it takes against a fit with them, and the nDCG@20 they give."""
    parts = chosen.load(chosen.path)
    for warm in (16, 64, 128):  # loads the kernels
        auto_settings.choose(FairALS(factors=warm, epochs=2), synthetic(300, 200, 5000), progress=False)
    searched, fitted = [], []
    for _ in range(2):
        began = time.perf_counter()
        found = auto_settings.choose(FairALS(), parts.chosen_on, progress=False)
        searched.append(time.perf_counter() - began)
        began = time.perf_counter()
        model = FairALS(**found.settings).fit(parts.chosen_on, objective_every=0, progress=False)
        fitted.append(time.perf_counter() - began)
    point = Cohort(model, parts.validation, parts.chosen_on, chosen.recall_by_targets).at(Level(), 0.0)
    add(result, "fit with settings chosen, s", chosen.name, min(fitted), min(searched) + min(fitted), 4.0)
    result.findings.append(
        f"{chosen.name}: {found}; nDCG@20 {point.ndcg20.mean():.4f} on validation data, 128 factors."
    )


def against_tune(result: Result, chosen: Set) -> None:
    """nDCG@20 of the test users with automatic settings, and with the best of 50 trials of `tune`."""
    known = json.loads(TUNED.read_text(encoding="utf-8")) if TUNED.exists() else {}
    parts = chosen.load(chosen.path)
    if chosen.name not in known:
        known[chosen.name] = tuned(parts, chosen)
        TUNED.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    best = known[chosen.name]
    auto, gini = on_test(FairALS(settings="auto"), parts, chosen)
    verdict = "met" if auto >= 0.97 * best["ndcg@20"] else "MISSED"
    result.findings.append(
        f"{chosen.name}, test users, 128 factors: nDCG@20 {auto:.4f} (Gini@20 {gini:.3f} of "
        f"{parts.test.n_users:,} users' lists) with automatic settings, {best['ndcg@20']:.4f} with the best "
        f"of {TRIALS} trials of `tune` on the validation data ({best['date']}): "
        f"{100 * (auto / best['ndcg@20'] - 1):+.1f} % (goal -3 %: {verdict})."
    )


def tuned(parts: Parts, chosen: Set) -> dict[str, float | str]:
    """Measure the best of 50 trials of `tune` on the test users."""
    known = parts.test.known_users
    test = HeldOut(parts.chosen_on, parts.test.targets, known_users=True) if known else parts.test  # not looked at
    split = Split(parts.chosen_on, parts.validation, test, "by_interaction" if known else "by_user")
    space = default_space(FairALS(), several=False)
    del space["factors"]  # 128 for both
    found = tune(FairALS(), split, metric="ndcg@20", also=(), trials=TRIALS, space=space, progress=False)
    ndcg, _ = on_test(FairALS(**found.best().settings), parts, chosen)
    return {"ndcg@20": round(ndcg, 4), "date": datetime.date.today().isoformat()}


def on_test(model: FairALS, parts: Parts, chosen: Set) -> tuple[float, float]:
    """Fit on all training data; return nDCG@20 and Gini@20 of the test users."""
    model.fit(parts.train, objective_every=0, progress=False)
    point = Cohort(model, parts.test, parts.train, chosen.recall_by_targets).at(Level(), 0.0)
    return float(point.ndcg20.mean()), point.gini
