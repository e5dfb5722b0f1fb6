"""Exposure control while serving: how quickly floors hold, and what they cost, in a simulation with held-out users."""

from __future__ import annotations

import numpy as np

from benchmarks.result import Result
from fairmf.control.exposure_control import ControlSettings, exposure_control
from fairmf.data.groups import read_groups
from fairmf.data.split_methods import split_by_user
from fairmf.data.synthetic import synthetic_events
from fairmf.models.als import FairALS
from fairmf.models.history_request import HistoryRequest

WINDOWS, AT_ONCE, N = 5, 50, 20
TOLERANCE = 0.2  # of a bound: counts of a window are a sample


def run(short: bool) -> Result:
    events = synthetic_events(n_users=8_000, n_items=1_500, n_interactions=300_000)
    split = split_by_user(events, heldout=800)
    model = FairALS(factors=32, item_balance=0.0, user_balance=0.0).fit(split.train, progress=False)
    held = split.test
    given, targets, names = held.fold_in.by_user, held.targets.by_user, model.fitted.item_ids.values
    everyone = [HistoryRequest(names[given.row(i)[0]].tolist(), N=N) for i in range(held.fold_in.n_users)]
    wanted = [set(targets.row(i)[0].tolist()) for i in range(len(everyone))]
    window = 5_000 if short else 20_000
    result = Result(
        "Exposure control while serving",
        f"{model.n_items:,} items, {len(everyone):,} held-out users who come in random order, lists of {N}; window of "
        f"{window:,} lists, step 1. Items (or tenths of the items by popularity) that were shown less than 80 % of "
        "their floor in the window, or more than 125 % of their cap, as a share of all; and nDCG@20 in the window.",
        ("control", *(f"window {w + 1}" for w in range(WINDOWS)), "nDCG@20, first window", "last window"),
    )
    tenth = np.argsort(np.argsort(-model.fitted.popularity, kind="stable")) * 10 // model.n_items
    groups = read_groups([f"tenth {t}" for t in tenth], model.n_items, None)
    cases = {
        "none (floor .2 per item, measured only)": (ControlSettings(window=window, step=1e-12, floor=0.2), None),
        "floor .2 per item": (ControlSettings(window=window, floor=0.2), None),
        "floor .5 per item": (ControlSettings(window=window, floor=0.5), None),
        "cap 5 per item": (ControlSettings(window=window, cap=5.0), None),
        "floor .5 per tenth": (ControlSettings(window=window, per="group", floor=0.5), groups),
    }
    for name, (settings, own) in cases.items():
        control = exposure_control(model, settings, own)
        outside, quality = simulate(model, control, everyone, wanted, window)
        shown = [f"{x:.3f}" for x in outside]
        result.rows.append((name, *shown, f"{quality[0]:.4f}", f"{quality[-1]:.4f}"))
    return result


def simulate(model, control, everyone, wanted, window):
    """Serve random users for some windows: units outside their bounds, and nDCG, window by window."""
    rng, outside, quality, vectors = np.random.default_rng(0), [], [], model.fitted.item_ids
    discounts = 1.0 / np.log2(np.arange(2, N + 2))
    for _ in range(WINDOWS):
        gains, shown = [], np.zeros(model.n_items)
        for _ in range(window // AT_ONCE):
            users = rng.integers(0, len(everyone), AT_ONCE)
            answers = model.recommend_histories([everyone[i] for i in users], prices=control.prices)
            lists = np.array([vectors.positions(answer.ids) for answer in answers])
            control.record(lists)
            shown += np.bincount(lists.ravel(), minlength=model.n_items)
            for i, row in zip(users, lists, strict=True):
                if wanted[i]:
                    hits = np.array([item in wanted[i] for item in row.tolist()])
                    gains.append((hits * discounts).sum() / discounts[: min(N, len(wanted[i]))].sum())
        units = np.bincount(control._codes, shown, len(control.names)) / shown.sum() / control._fair
        low, high = units < (1 - TOLERANCE) * control.floors, units > control.caps / (1 - TOLERANCE)
        outside.append((low | high).mean())
        quality.append(float(np.mean(gains)))
    return outside, quality
