"""Accuracy at equal Gini: the calibrated path against one-line heuristics, the paper's regulariser, FairRec and others.

For every data set, settings of a plain and of a balanced model are chosen by nDCG@20 on validation data. Of the best
ones, that whose calibrated path is best on validation data takes the place of the balanced model. Then models are
trained with three seeds and measured once on the test data. Strengths are chosen by the Gini of the test users' lists,
which needs no labels; nothing else looks at them.

`python -m benchmarks.fronts NAME ...` measures some sets and stores them in benchmarks/fronts/NAME.json. With
`--choose` it stops after the choice and stores that, with `--show` it takes the stored choice. `--prices NAME ...`
compares paths that were found without and with the prices of items (docs/decisions/0021-lift.md); `--coarse gowalla`
adds what other settings give. `python -m benchmarks --full fronts` makes the section of RESULTS.md (stored sets are not
measured again), fronts_page.py the pages in docs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.fronts_data import SETS, Parts, Set
from benchmarks.fronts_methods import OURS, Cohort, K, Point, along, one_liners, retrained, slow
from benchmarks.result import Result
from fairmf import EvennessPath, FairALS, Level, calibrate
from fairmf.control.level_grid import learned_prices
from fairmf.types import Record

STORED = Path(__file__).parent / "fronts"
BACKEND = os.environ.get("FAIRMF_BACKEND", "auto")
SEEDS, TRIALS = (0, 1, 2), 80
PLAIN, BALANCED = "plain", "balanced"
PRICED = {
    # name: (regularization, unobserved_weight, item_balance, user_balance), chosen by nDCG@20 on validation data
    "ml-1m": ((0.0085, 0.23, 0.0, 0.0), (0.0101, 0.0915, 0.1, 0.25)),
    "epinions": ((0.0125, 0.069, 0.0, 0.0), (0.0182, 0.0788, 0.1, 0.5)),
    "lastfm": ((0.027, 0.149, 0.25, 0.25),),
    "citeulike-t": ((0.01, 0.003, 0.25, 0.25),),  # not searched for
}
COARSE = {
    # Settings of an earlier and coarser search, chosen on a tenth of the training entries too.
    "gowalla": {
        "regularization": 0.003, "unobserved_weight": 0.03, "regularization_exponent": 1.0, "item_balance": 0.4,
        "user_balance": 0.0,
    },
}  # fmt: skip
GOALS = {
    # name: (levels of Gini@20, nDCG@20 at each at least)
    "ml-1m": ((0.87, 0.84, 0.8, 0.75), (0.316, 0.304, 0.288, 0.268)),
    "gowalla": ((0.8, 0.75, 0.7), (0.146, 0.141, 0.132)),
}
GOALS_AT_START = {"gowalla": (0.151, 0.84)}
"""At evenness 0: nDCG@20 at least, Gini@20 at most."""
GOALS_WIDE = {"gowalla": (0.183, 0.1515)}
"""At evenness 0 with 1,024 factors: Recall@20 and nDCG@20 at least."""


def run(short: bool) -> Result:
    result = Result(
        "Fronts: nDCG@20 at equal Gini@20",
        "Test data, mean of three seeds; settings and path chosen on validation data. In brackets: how far a method is "
        "above (+) or below the calibrated path, and the half-width of the paired 95 % interval of that difference. A "
        "dash: Gini is not reached. Recall divides by |T| on gowalla and amazon-cds, by min(K, |T|) elsewhere. "
        f"`python -m benchmarks {'' if short else '--full '}fronts`",
        ("data", "model", "method", "strengths", *(f"level {k}" for k in range(1, 6))),
    )
    stored_ones: list[str] = []
    for data in SETS[:1] if short else SETS:
        if not short and (STORED / f"{data.name}.json").exists():
            add(result, load(data.name))
            stored_ones.append(data.name)
            continue
        if not data.path.exists():
            result.findings.append(f"{data.name}: not run, {data.file} is absent (FAIRMF_DATA names the folder).")
            continue
        stored = measure(data, short)
        if not short:
            store(data.name, stored)
        add(result, stored)
    if stored_ones:
        result.findings.append(
            f"{', '.join(stored_ones)}: measured before on one NVIDIA H200 (FAIRMF_BACKEND=cuda) and stored in "
            "benchmarks/fronts; remove a file there to measure it again."
        )
    return result


# -- measuring --------------------------------------------------------------------------------------------------------


def measure(data: Set, short: bool) -> Record:
    """All methods on one data set, at its five levels of Gini."""
    parts = data.load(data.path)
    return show(data, parts, choice(data, parts, short), short)


def choice(data: Set, parts: Parts, short: bool) -> Record:
    """The settings of the plain and of the balanced model, and the path, chosen on validation data."""
    began = time.time()
    found = {name: choose(data, parts, name == BALANCED, short) for name in (PLAIN, BALANCED)}
    few = (1, 0) if short else (4, 1) if data.large else (6, 2)
    candidates = [settings for name, n in zip((BALANCED, PLAIN), few, strict=True) for settings in found[name][:n]]
    path, balanced = best_path(data, parts, candidates)
    _say(data.name, "chosen", balanced, round(time.time() - began))
    settings = {PLAIN: found[PLAIN][0], BALANCED: balanced}
    return {"settings": settings, "path": path.to_dict(), "seconds": round(time.time() - began)}


def show(data: Set, parts: Parts, chosen: Record, short: bool) -> Record:
    """Train the chosen models and measure every method on the test data."""
    began, path = time.time(), EvennessPath.from_dict(chosen["path"])
    families: dict[tuple[str, str], list[dict[str, list[Point]]]] = {}
    seeds = SEEDS[:1] if short else SEEDS
    for seed in seeds:
        for name in (PLAIN, BALANCED):
            settings = {**chosen["settings"][name], "factors": data.factors, "random_state": seed, "backend": BACKEND}
            model = FairALS(**settings).fit(parts.train, objective_every=0, progress=False)
            cohort = Cohort(model, parts.test, parts.train, data.recall_by_targets)
            start = cohort.at(Level(), 0.0)
            found = one_liners(cohort, start)
            if name == BALANCED:
                prices = learned_prices(model, path.at, lambda _: None)
                model._fitted = dataclasses.replace(model.fitted, item_prices=prices)
                found[OURS] = along(cohort, path)
            if not short and (not data.large or (seed == 0 and name == BALANCED)):
                found |= slow(cohort, start, data.large)
            if not short and name == PLAIN and (seed == 0 or not data.large):
                found |= retrained(parts.train, settings, parts.test, start, data.recall_by_targets)
            for method, points in found.items():
                families.setdefault((name, method), []).append({"points": points})
            _say(
                data.name,
                f"seed {seed}, {name}: nDCG@20 {start.ndcg20.mean():.4f} Gini {start.gini:.4f}",
                round(time.time() - began),
            )
    rows = [row(data, *key, runs, families[BALANCED, OURS]) for key, runs in families.items()]
    wide = wider(data, parts, chosen["settings"][BALANCED]) if data.name == "gowalla" and not short else None
    return {
        "name": data.name, "levels": data.levels, "factors": data.factors, "users": parts.test.n_users,
        "items": parts.train.n_items, "settings": chosen["settings"], "path": chosen["path"], "rows": rows,
        "wide": wide, "seconds": chosen["seconds"] + round(time.time() - began), "seeds": len(seeds),
    }  # fmt: skip


def choose(data: Set, parts: Parts, balanced: bool, short: bool) -> list[Record]:
    """Settings by falling nDCG@20 on validation data: half of them at random, half near the best of these."""
    rng, found = np.random.default_rng(1), list[tuple[float, Record]]()
    trials = 4 if short else TRIALS
    for trial in range(trials):
        if trial < trials // 2:
            settings: Record = {
                "factors": data.factors, "fairness": 0.0, "backend": BACKEND,
                "regularization": float(10 ** rng.uniform(-3.3, -1.5)),
                "unobserved_weight": float(10 ** rng.uniform(-3, 0)),
                "regularization_exponent": 1.0 if balanced else float(rng.choice([0.75, 1.0])),
                "item_balance": float(rng.uniform(0.0, 0.5)) if balanced else 0.0,
                "user_balance": float(rng.uniform(0.0, 0.5)) if balanced else 0.0,
            }  # fmt: skip
        else:
            best = sorted(found, key=lambda pair: -pair[0])[: 4 if trial < 0.8 * trials else 2]
            settings = dict(best[rng.integers(0, len(best))][1])
            for name in ("regularization", "unobserved_weight"):
                settings[name] *= float(10 ** rng.normal(0, 0.15))
            for name in ("item_balance", "user_balance") if balanced else ():
                settings[name] = float(np.clip(settings[name] + rng.normal(0, 0.08), 0, 0.6))
        model = FairALS(**settings).fit(parts.chosen_on, objective_every=0, progress=False)
        point = Cohort(model, parts.validation, parts.chosen_on, data.recall_by_targets).at(Level(), 0.0)
        found.append((float(point.ndcg20.mean()), settings))
    found.sort(key=lambda pair: -pair[0])
    _say(data.name, *(f"{quality:.4f} {_settings(settings)};" for quality, settings in found[:5]))
    return [settings for _, settings in found]


def best_path(data: Set, parts: Parts, candidates: list[Record]) -> tuple[EvennessPath, Record]:
    """The path with the best quality over the levels, among these settings; and its settings."""
    best: tuple[float, EvennessPath, Record] | None = None
    for settings in candidates:
        settings = {**settings, "factors": data.factors}
        model = FairALS(**settings).fit(parts.chosen_on, objective_every=0, progress=False)
        path = calibrate(model, parts.validation, bootstrap=0, progress=False).path
        ginis, quality = [knot.gini for knot in path.knots[::-1]], [knot.quality for knot in path.knots[::-1]]
        mean = float(np.mean(np.interp(data.levels, ginis, quality)))
        if best is None or mean > best[0]:
            best = mean, path, settings
    assert best is not None
    return best[1], best[2]


def wider(data: Set, parts: Parts, settings: Record) -> Record:
    """The balanced model at 1,024 factors, without any evenness."""
    model = FairALS(**{**settings, "factors": 1024}).fit(parts.train, objective_every=0, progress=False)
    point = Cohort(model, parts.test, parts.train, data.recall_by_targets).at(Level(), 0.0)
    return {"recall@20": float(point.recall20.mean()), "ndcg@20": float(point.ndcg20.mean()), "gini@20": point.gini}


def coarse(data: Set, parts: Parts) -> Record:
    """The calibrated path of a model with the settings of a coarse grid."""
    settings = {**COARSE[data.name], "fairness": 0.0, "factors": data.factors, "backend": BACKEND}
    path = best_path(data, parts, [settings])[0]
    runs: list[Record] = []
    for seed in SEEDS:
        model = FairALS(**settings, random_state=seed).fit(parts.train, objective_every=0, progress=False)
        prices = learned_prices(model, path.at, lambda _: None)
        model._fitted = dataclasses.replace(model.fitted, item_prices=prices)
        runs.append({"points": along(Cohort(model, parts.test, parts.train, data.recall_by_targets), path)})
    made = row(data, "coarse", OURS, runs, runs)
    return {"settings": settings, "path": path.to_dict(), "row": made, "wide": wider(data, parts, settings)}


# -- from points to levels --------------------------------------------------------------------------------------------


def at_gini(points: list[Point], level: float, method: str) -> dict[str, np.ndarray | float] | None:
    """All metrics where a family first reaches a Gini, linear between its points; None if it never does.

    FairRec has a few strengths only (whole copies of every item), so nothing is between its points.
    """
    before = points[0]
    if before.gini <= level:
        return _values(before, before, 0.0)
    for after in points[1:]:
        if after.gini <= level:
            share = 1.0 if method == "FairRec" else (before.gini - level) / (before.gini - after.gini)
            return _values(before, after, share)
        before = after
    return None


def _values(a: Point, b: Point, share: float) -> dict[str, np.ndarray | float]:
    names = ("ndcg20", "ndcg100", "recall20", "coverage", "tail", "strength")
    return {name: (1 - share) * getattr(a, name) + share * getattr(b, name) for name in names}


def row(data: Set, model: str, method: str, runs: list[Record], ours: list[Record]) -> Record:
    """One method: means over seeds at each level, and the paired difference from the path."""
    cells = []
    for level in data.levels:
        own = [at_gini(run["points"], level, method) for run in runs]
        path = [at_gini(run["points"], level, OURS) for run in ours]
        if any(values is None for values in own):
            cells.append(None)
            continue
        cell = {name: float(np.mean([np.mean(values[name]) for values in own])) for name in own[0]}
        if all(values is not None for values in path):
            # The same users with every seed: average a user's differences over the seeds first.
            pairs = list(zip(own, path, strict=False))
            differences = np.mean([a["ndcg20"] - b["ndcg20"] for a, b in pairs], axis=0)
            cell["above"] = float(differences.mean())
            cell["half_width"] = float(1.96 * differences.std(ddof=1) / np.sqrt(len(differences)))
        cells.append(cell)
    starts = [run["points"][0] for run in runs]
    return {
        "model": model, "method": method, "seeds": len(runs), "cells": cells,
        "strengths": f"{runs[0]['points'][0].strength:g} to {runs[0]['points'][-1].strength:g}",
        "start": {
            "ndcg20": float(np.mean([p.ndcg20.mean() for p in starts])),
            "ndcg100": float(np.mean([p.ndcg100.mean() for p in starts])),
            "recall20": float(np.mean([p.recall20.mean() for p in starts])),
            "gini": float(np.mean([p.gini for p in starts])),
        },
    }  # fmt: skip


# -- tables -----------------------------------------------------------------------------------------------------------


def add(result: Result, stored: Record) -> None:
    """Add a data set's rows and findings."""
    for made in stored["rows"]:
        cells = [cell_text(cell) for cell in made["cells"]]
        seeds = "" if made["seeds"] == stored["seeds"] else f" ({made['seeds']} seed)"
        result.rows.append((stored["name"], made["model"], made["method"] + seeds, made["strengths"], *cells))
    ours = next(made for made in stored["rows"] if made["method"] == OURS)
    levels = ", ".join(f"{level:g}" for level in stored["levels"])
    start = ours["start"]
    name = stored["name"]
    result.findings.append(
        f"{name}: levels are Gini@20 {levels} of {stored['users']:,} users' lists over {stored['items']:,} items; "
        f"{stored['factors']} factors; at evenness 0 nDCG@20 {start['ndcg20']:.4f}, Recall@20 {start['recall20']:.4f}, "
        f"Gini@20 {start['gini']:.3f}. Settings: {_settings(stored['settings'][BALANCED])}; plain: "
        f"{_settings(stored['settings'][PLAIN])}. {stored['seconds']:,} s."
    )
    result.findings += goals(name, stored["levels"], ours, stored["wide"])
    if "coarse" in stored:
        other = stored["coarse"]
        result.findings.append(f"{name}, settings of an earlier search: {_settings(other['settings'])}.")
        result.findings += goals(name, stored["levels"], other["row"], other["wide"], ", settings of an earlier search")
    result.findings += exceptions(stored)


def goals(name: str, levels: list[float], ours: Record, wide: Record | None, which: str = "") -> list[str]:
    """Say of every goal for a data set whether the path meets it, with the settings that `which` names."""
    said, start, title = [], ours["start"], name + which
    if name in GOALS_AT_START:
        ndcg, gini = GOALS_AT_START[name]
        met = start["ndcg20"] >= ndcg and start["gini"] <= gini
        said.append(
            f"{title}, evenness 0: nDCG@20 {start['ndcg20']:.4f} at Gini@20 {start['gini']:.3f}, Recall@20 "
            f"{start['recall20']:.4f} (goal nDCG@20 {ndcg:g} with Gini@20 at most {gini:g}: {verdict(met)})."
        )
    for level, goal in zip(*GOALS.get(name, ((), ())), strict=True):
        cell = ours["cells"][list(levels).index(level)]
        shown = "not reached" if cell is None else f"{cell['ndcg20']:.4f}"
        met = cell is not None and cell["ndcg20"] >= goal
        said.append(f"{title}, Gini@20 <= {level:g}: {shown} (goal {goal:g}: {verdict(met)}).")
    if wide and name in GOALS_WIDE:
        recall, ndcg = GOALS_WIDE[name]
        said.append(
            f"{title}, 1,024 factors, evenness 0: Recall@20 {wide['recall@20']:.4f} (goal {recall:g}: "
            f"{verdict(wide['recall@20'] >= recall)}), nDCG@20 {wide['ndcg@20']:.4f} (goal {ndcg:g}: "
            f"{verdict(wide['ndcg@20'] >= ndcg)}), Gini@20 {wide['gini@20']:.3f}."
        )
    return said


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def exceptions(stored: Record) -> list[str]:
    """Where a method is above the path by more than its interval."""
    found = []
    for made in stored["rows"]:
        for level, cell in zip(stored["levels"], made["cells"], strict=True):
            if made["method"] != OURS and cell and cell.get("above", 0) > cell.get("half_width", 0):
                found.append(
                    f"{stored['name']}, Gini@20 {level:g}: {made['method']} on the {made['model']} model is above the "
                    f"path by {cell['above']:.4f} (+- {cell['half_width']:.4f})."
                )
    return found or [f"{stored['name']}: no method is above the path by more than its interval, at any level."]


def cell_text(cell: Record | None) -> str:
    if cell is None:
        return "-"
    if "above" not in cell or cell["half_width"] == 0:
        return f"{cell['ndcg20']:.4f}"
    return f"{cell['ndcg20']:.4f} ({cell['above']:+.4f}, {cell['half_width']:.4f})"


def _settings(settings: Record) -> str:
    names = ("regularization", "unobserved_weight", "regularization_exponent", "item_balance", "user_balance")
    return ", ".join(f"{name} {settings[name]:.3g}" for name in names)


def store(name: str, stored: Record) -> None:
    """Keep the figures of a data set."""
    STORED.mkdir(exist_ok=True)
    (STORED / f"{name}.json").write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


def load(name: str) -> Record:
    """Figures that were kept."""
    stored: Record = json.loads((STORED / f"{name}.json").read_text(encoding="utf-8"))
    return stored


def _say(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


def compare_prices(data: Set, parts: Parts) -> None:
    """Print nDCG@20 of the test users along paths that were found without and with the prices of items."""
    for values in PRICED[data.name]:
        names = ("regularization", "unobserved_weight", "item_balance", "user_balance")
        settings = {**dict(zip(names, values, strict=True)), "factors": 128, "backend": BACKEND}
        chosen_on = FairALS(**settings).fit(parts.chosen_on, objective_every=0, progress=False)
        shown = FairALS(**settings).fit(parts.train, objective_every=0, progress=False)
        prices = learned_prices(shown, K, lambda _: None)
        shown._fitted = dataclasses.replace(shown.fitted, item_prices=prices)
        for words, learn in (("without", lambda *_: None), ("with", learned_prices)):
            with mock.patch("fairmf.control.calibrate.learned_prices", learn):
                path = calibrate(chosen_on, parts.validation, bootstrap=0, progress=False).path
            points = along(Cohort(shown, parts.test, parts.train, data.recall_by_targets), path)
            found = [at_gini(points, level, OURS) for level in data.levels]
            cells = ["-" if cell is None else f"{np.mean(cell['ndcg20']):.4f}" for cell in found]
            _say(data.name, settings, words, "prices, at Gini@20", data.levels, " ".join(cells))


def main() -> None:
    flag = next((word for word in sys.argv[1:] if word.startswith("--")), "")
    for data in SETS:
        if data.name not in sys.argv[1:]:
            continue
        parts = data.load(data.path)
        if flag == "--prices":
            compare_prices(data, parts)
            continue
        if flag == "--coarse":
            store(data.name, load(data.name) | {"coarse": coarse(data, parts)})
            continue
        chosen = load(f"{data.name}-chosen") if flag == "--show" else choice(data, parts, short=False)
        if flag == "--choose":
            store(f"{data.name}-chosen", chosen)
        else:
            store(data.name, show(data, parts, chosen, short=False))


if __name__ == "__main__":
    main()
