"""Rivals from papers at equal Gini: Frank-Wolfe, P-MMF, xQuAD, calibrated popularity, FairRec, EASE, a graph filter.

All re-rank the same model, the one whose calibrated path is shown in benchmarks/fronts/NAME.json, with the settings
that were chosen there. The rivals' own settings are chosen on validation data: of each method's variants the one that
reaches the most levels of Gini@20, and of those the one with the highest mean nDCG@20 at them. EASE and the graph
filter are models of their own; their settings are chosen by nDCG@20 on validation data. Then every method is measured
once on the test data, along its strengths.

`python -m benchmarks.rivals NAME ...` measures some sets and stores them in benchmarks/rivals/NAME.json, `--page`
writes the table of docs/rivals.md from what is stored.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.fronts import BALANCED, at_gini, row
from benchmarks.fronts import load as load_front
from benchmarks.fronts_data import SETS, Parts, Set
from benchmarks.fronts_methods import LONG, OURS, SHARES, Cohort, K, Point, along
from fairmf import EASE, PMMF, CalibratedPopularity, EvennessPath, FairALS, FrankWolfe, GraphFilter, Level, XQuAD
from fairmf.control.level_grid import learned_prices
from fairmf.data.split import HeldOut
from fairmf.types import Record

STORED = Path(__file__).parent / "rivals"
PAGE = Path(__file__).parents[1] / "docs" / "rivals.md"
NAMES = ("ml-1m", "citeulike-t")
SEEDS = (0, 1, 2)
LAMBDAS = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.175, 0.2, 0.25, 0.3, 0.4)
LIFTS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2)
CAPACITIES = (50.0, 30.0, 20.0, 15.0, 10.0, 7.0, 5.0, 3.5, 2.5, 1.5)
PARTS = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
EASES = (50.0, 100.0, 200.0, 400.0, 800.0)
FILTERS = tuple((k, alpha) for k in (64, 256) for alpha in (0.0, 0.3, 1.0))
LARGE = 10**8  # users times items from which on fewer variants, strengths and seeds are tried


@dataclasses.dataclass(frozen=True)
class Method:
    """A rival: its strengths, the variants among which validation data choose, and how it wraps a model."""

    name: str
    strengths: tuple[float, ...]
    variants: tuple[Record, ...]
    make: Callable[..., object]
    few: tuple[Record, ...] | None = None
    """The variants on large data; None: not measured there."""
    few_strengths: tuple[float, ...] = ()

    def on(self, large: bool) -> Method | None:
        """This method as it is measured on large or small data."""
        if not large:
            return self
        return None if self.few is None else dataclasses.replace(self, strengths=self.few_strengths, variants=self.few)


def frank_wolfe(model: FairALS, strength: float, **options: object) -> object:
    return FrankWolfe(model, strength, progress=False, **options)


def capped(model: FairALS, strength: float, weight: float, **options: object) -> object:
    return PMMF(model, weight, capacity=strength, progress=False, **options)


def uncapped(model: FairALS, strength: float, **options: object) -> object:
    return PMMF(model, strength, capacity=None, progress=False, **options)


METHODS = (
    Method(
        "Frank-Wolfe, online", LAMBDAS,
        tuple({"smoothing": b, "passes": p} for b in (0.3, 1.0, 3.0, 10.0) for p in (2, 10)), frank_wolfe,
        ({"smoothing": 1.0, "passes": 2, "batch_size": 256}, {"smoothing": 3.0, "passes": 2, "batch_size": 256}),
        (0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3),
    ),
    Method(
        "Frank-Wolfe, batch", LAMBDAS,
        tuple({"online": False, "smoothing": b, "passes": 30} for b in (1.0, 3.0, 10.0)), frank_wolfe,
    ),
    Method(
        "P-MMF, capacities", CAPACITIES,
        tuple({"weight": x, "showing": s, "batch_size": 4} for x in (0.01, 0.1) for s in (0.02, 0.1, 0.3)), capped,
        ({"weight": 0.1, "showing": 0.3, "batch_size": 32},), (20.0, 10.0, 5.0, 3.0, 1.5),
    ),
    Method(
        "P-MMF, no capacities", LIFTS, tuple({"showing": s, "batch_size": 4} for s in (0.05, 0.1, 0.25, 0.5)), uncapped,
        ({"showing": 0.5, "batch_size": 32}, {"showing": 1.0, "batch_size": 32}),
        (0.01, 0.02, 0.03, 0.045, 0.06, 0.1),
    ),
    Method(
        "xQuAD", PARTS,
        tuple(
            {"cover": c, "candidates": n, "head": h}
            for c in ("smooth", "binary") for n in (100, 300) for h in (0.5, 0.8)
        ),
        XQuAD, ({"candidates": 100, "head": 0.5}, {"candidates": 300, "head": 0.5}, {"candidates": 300, "head": 0.8}),
        PARTS[1::2],
    ),
    Method(
        "calibrated popularity", PARTS, tuple({"candidates": n} for n in (100, 300)), CalibratedPopularity,
        ({"candidates": 100}, {"candidates": 300}), PARTS[1::2],
    ),
)  # fmt: skip


def measure(data: Set) -> Record:
    """All rivals on one data set."""
    began, parts, front = time.time(), data.load(data.path), load_front(data.name)
    settings = {**front["settings"][BALANCED], "factors": data.factors, "backend": "cpu"}
    large = parts.train.n_users * parts.train.n_items >= LARGE
    methods = [found for method in METHODS if (found := method.on(large)) is not None]
    seeds = SEEDS[:1] if large else SEEDS
    chosen = choose(data, parts, settings, methods)
    path = EvennessPath.from_dict(front["path"])
    runs: dict[str, list[Record]] = {}
    for seed in seeds:
        model = FairALS(**settings, random_state=seed).fit(parts.train, objective_every=0, progress=False)
        cohort = Cohort(model, parts.test, parts.train, data.recall_by_targets)
        start = cohort.at(Level(), 0.0)
        for method in methods:
            points, seconds = family(cohort, parts.test, method, chosen[method.name], start)
            runs.setdefault(method.name, []).append({"points": points, "seconds": seconds})
        runs.setdefault("FairRec", []).append(fair_rec(cohort, start, SHARES[1::2] if large else SHARES))
        # Last, because prices belong to the path alone.
        prices = learned_prices(model, path.at, lambda _: None)
        model._fitted = dataclasses.replace(model.fitted, item_prices=prices)
        runs.setdefault(OURS, []).append({"points": along(cohort, path), "seconds": 0.0})
        _say(data.name, f"seed {seed}: nDCG@20 {start.ndcg20.mean():.4f} Gini@20 {start.gini:.4f}")
    anchors = [
        anchor(data, parts, kind, values)
        for kind, values in ((EASE, EASES), (GraphFilter, FILTERS[::2] if large else FILTERS))
    ]
    return {
        "name": data.name, "levels": list(data.levels), "users": parts.test.n_users, "items": parts.train.n_items,
        "factors": data.factors, "settings": settings, "seeds": len(seeds), "chosen": chosen,
        "rows": [
            {**row(data, BALANCED, name, made, runs[OURS]), "points": points_of(made)} for name, made in runs.items()
        ],
        "anchors": anchors, "seconds": round(time.time() - began),
    }  # fmt: skip


def choose(data: Set, parts: Parts, settings: Record, methods: list[Method]) -> Record:
    """The best variant of every method, on validation data."""
    model = FairALS(**settings).fit(parts.chosen_on, objective_every=0, progress=False)
    cohort = Cohort(model, parts.validation, parts.chosen_on, data.recall_by_targets)
    start, chosen = cohort.at(Level(), 0.0), {}
    for method in methods:
        found = []
        for variant in method.variants:
            points, seconds = family(cohort, parts.validation, method, variant, start)
            reached = [x for x in (at_gini(points, level, method.name) for level in data.levels) if x is not None]
            # What no variant reaches at all is compared at the most even point.
            last = points[-1]
            quality = float(np.mean([x["ndcg20"].mean() for x in reached])) if reached else float(last.ndcg20.mean())
            found.append((len(reached), quality, variant))
            _say(data.name, method.name, variant, len(reached), f"{quality:.4f}", f"{seconds:.1f} s")
        chosen[method.name] = max(found, key=lambda each: each[:2])[2]
    return chosen


def family(
    cohort: Cohort, held_out: HeldOut, method: Method, variant: Record, start: Point
) -> tuple[list[Point], float]:
    """Lists along the strengths, measured, until the last level is far behind; and the mean seconds of a strength."""
    points, began = [start], time.time()
    for strength in method.strengths:
        lists = method.make(cohort.model, strength, **variant).lists(
            held_out.fold_in, K, known_users=held_out.known_users
        )
        points.append(cohort.measure(padded(lists), strength))
        if points[-1].gini < LOWEST:
            break
    return points, (time.time() - began) / (len(points) - 1)


LOWEST = 0.5  # Gini below which nothing is compared


def fair_rec(cohort: Cohort, start: Point, shares: tuple[float, ...]) -> Record:
    """FairRec along its shares."""
    points, began = [start], time.time()
    for share in shares:
        # A share below one user per item guarantees one user all the same.
        made = cohort.model.with_fairrec(share, K=K).lists(cohort.users(None), cohort.rows, K).items
        points.append(cohort.measure(padded(made), share))
    return {"points": points, "seconds": (time.time() - began) / len(shares)}


def padded(lists: np.ndarray) -> np.ndarray:
    """Lists end after 20 items, because exposure is counted there."""
    return np.pad(lists, ((0, 0), (0, LONG - lists.shape[1])), constant_values=-1)


def anchor(data: Set, parts: Parts, kind: type, values: tuple) -> Record:
    """A model of its own, with the best settings by nDCG@20 on validation data; or why it was not run."""
    name, found = kind.__name__, []
    if kind is EASE and parts.train.n_items > 20_000:
        words = "items take m^3 operations: about 45 minutes, by the 6 s that 3,468 items took"
        return {"model": name, "left_out": f"{parts.train.n_items:,} {words}"}
    for value in values:
        arguments = value if isinstance(value, tuple) else (value,)
        quality = float(
            _lists_of(kind(*arguments).fit(parts.chosen_on), parts.validation, parts.chosen_on, data).ndcg20.mean()
        )
        found.append((quality, list(arguments)))
        _say(data.name, name, arguments, f"{quality:.4f}")
    best = max(found)[1]
    began = time.time()
    model = kind(*best).fit(parts.train)
    fitted = time.time() - began
    point = _lists_of(model, parts.test, parts.train, data)
    return {
        "model": name, "settings": best, "ndcg20": float(point.ndcg20.mean()), "recall20": float(point.recall20.mean()),
        "gini": point.gini, "coverage": point.coverage, "fit_seconds": round(fitted, 1),
    }  # fmt: skip


def _lists_of(model: EASE | GraphFilter, held_out: HeldOut, train: object, data: Set) -> Point:
    cohort = Cohort.__new__(Cohort)
    cohort.model, cohort.held_out, cohort.by_targets = model, held_out, data.recall_by_targets
    cohort.popularity = train.by_user.column_counts(train.n_items)
    blocks = model.rank(held_out.fold_in, LONG, known_users=held_out.known_users)
    return cohort.measure(np.concatenate([lists for _, lists in blocks]), 0.0)


def points_of(runs: list[Record]) -> list[Record]:
    """Means over the seeds at each strength that all of them have."""
    found = []
    for each in zip(*(run["points"] for run in runs), strict=False):
        found.append({
            "strength": each[0].strength, "gini": float(np.mean([p.gini for p in each])),
            "ndcg20": float(np.mean([p.ndcg20.mean() for p in each])),
            "coverage": float(np.mean([p.coverage for p in each])),
        })  # fmt: skip
    return [*found, {"seconds": float(np.mean([run["seconds"] for run in runs]))}]


# -- the page ---------------------------------------------------------------------------------------------------------


def table(stored: Record) -> list[str]:
    """The rows of one data set."""
    levels = stored["levels"]
    lines = [
        f"**{stored['name']}**: {stored['users']:,} test users, {stored['items']:,} items, "
        f"{stored['factors']} factors, {stored['seeds']} seed{'s' * (stored['seeds'] > 1)}.", "",
        "| method | " + " | ".join(f"Gini {level:g}" for level in levels) + " | least Gini | seconds |",
        "|---|" + "---|" * (len(levels) + 2),
    ]  # fmt: skip
    for made in sorted(stored["rows"], key=lambda made: made["method"] != OURS):
        cells = []
        for cell in made["cells"]:
            if cell is None:
                cells.append("-")
                continue
            text = f"{cell['ndcg20']:.4f}"
            if made["method"] != OURS and "above" in cell:
                text += f" ({cell['above']:+.4f})"
                if cell["above"] > cell["half_width"]:
                    text = f"**{text}**"
            cells.append(text)
        points = made["points"][:-1]
        last = min(points, key=lambda point: point["gini"])
        seconds = "" if made["method"] == OURS else f"{made['points'][-1]['seconds']:.1f}"
        lines.append(
            f"| {made['method']} | " + " | ".join(cells) + f" | {last['gini']:.3f}: {last['ndcg20']:.4f} | {seconds} |"
        )
    lines += [
        "",
        "| model | settings | nDCG@20 | Recall@20 | Gini@20 | coverage@20 | fit, seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    start = stored["rows"][0]["points"][0]
    lines.append(
        f"| the model above, plain lists | | {start['ndcg20']:.4f} | | {start['gini']:.3f} | "
        f"{start['coverage']:.3f} | |"
    )
    for made in stored["anchors"]:
        if "left_out" in made:
            lines.append(f"| {made['model']} | not run: {made['left_out']} | | | | | |")
            continue
        lines.append(
            f"| {made['model']} | {', '.join(f'{x:g}' for x in made['settings'])} | {made['ndcg20']:.4f} | "
            f"{made['recall20']:.4f} | {made['gini']:.3f} | {made['coverage']:.3f} | {made['fit_seconds']:g} |"
        )
    chosen = "; ".join(
        f"{name}: " + ", ".join(f"{k} {v}" for k, v in found.items()) for name, found in stored["chosen"].items()
    )
    return [*lines, "", f"Chosen on validation data: {chosen}.", ""]


def main() -> None:
    names = [word for word in sys.argv[1:] if not word.startswith("--")]
    STORED.mkdir(exist_ok=True)
    for data in SETS:
        if data.name in names:
            stored = json.dumps(measure(data), indent=1) + "\n"
            (STORED / f"{data.name}.json").write_text(stored, encoding="utf-8")
    if "--page" in sys.argv[1:]:
        lines = []
        for name in NAMES:
            file = STORED / f"{name}.json"
            if file.exists():
                lines += table(json.loads(file.read_text(encoding="utf-8")))
        text = PAGE.read_text(encoding="utf-8")
        before, after = text.split("<!-- table -->")[0], text.split("<!-- end of table -->")[1]
        PAGE.write_text(
            f"{before}<!-- table -->\n" + "\n".join(lines) + f"<!-- end of table -->{after}", encoding="utf-8"
        )


def _say(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
