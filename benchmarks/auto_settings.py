"""What automatic settings cost, and how near they come to a search with 50 trials."""

from __future__ import annotations

import time

from benchmarks.evenness import add
from benchmarks.fronts_data import SETS, Set
from benchmarks.fronts_methods import Cohort
from benchmarks.result import Result
from fairmf import FairALS, Level
from fairmf.control.search_space import default_space
from fairmf.control.tuning import tune
from fairmf.data.split import HeldOut, Split
from fairmf.models import auto_settings

TRIALS = 50


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
    began = time.perf_counter()
    found = auto_settings.choose(FairALS(), parts.chosen_on, progress=False)
    searched = time.perf_counter() - began
    began = time.perf_counter()
    model = FairALS(**found.settings).fit(parts.chosen_on, objective_every=0, progress=False)
    fitted = time.perf_counter() - began
    point = Cohort(model, parts.validation, parts.chosen_on, chosen.recall_by_targets).at(Level(), 0.0)
    add(result, "fit with settings chosen, s", chosen.name, fitted, searched + fitted, 4.0)
    result.findings.append(
        f"{chosen.name}: {found}; nDCG@20 {point.ndcg20.mean():.4f} on validation data, 128 factors."
    )


def against_tune(result: Result, chosen: Set) -> None:
    """nDCG@20 of the test users with automatic settings, and with the best of 50 trials of `tune`."""
    parts = chosen.load(chosen.path)
    known = parts.test.known_users
    test = HeldOut(parts.chosen_on, parts.test.targets, known_users=True) if known else parts.test  # not looked at
    split = Split(parts.chosen_on, parts.validation, test, "by_interaction" if known else "by_user")
    space = default_space(FairALS(), several=False)
    del space["factors"]  # 128 for both
    found = tune(FairALS(), split, metric="ndcg@20", also=(), trials=TRIALS, space=space, progress=False)
    quality = []
    for model in (FairALS(settings="auto"), FairALS(**found.best().settings)):
        model.fit(parts.train, objective_every=0, progress=False)
        point = Cohort(model, parts.test, parts.train, chosen.recall_by_targets).at(Level(), 0.0)
        quality.append((float(point.ndcg20.mean()), point.gini))
    (auto, auto_gini), (tuned, tuned_gini) = quality
    verdict = "met" if auto >= 0.97 * tuned else "MISSED"
    result.findings.append(
        f"{chosen.name}, test users, 128 factors: nDCG@20 {auto:.4f} (Gini@20 {auto_gini:.3f}) with automatic "
        f"settings, {tuned:.4f} ({tuned_gini:.3f}) with the best of {TRIALS} trials of `tune` "
        f"on the validation data: {100 * (auto / tuned - 1):+.1f} % (goal -3 %: {verdict})."
    )
