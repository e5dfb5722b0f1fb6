"""Gowalla with 1,024 factors: a small grid instead of a search, because a fit takes minutes.

`python -m benchmarks.large_boards` runs the next fit that is missing and stores it in benchmarks/leaderboards/
gowalla-grid.json; call it until it says that nothing is left. Four settings are tried on the hidden fifth of the
training part. The best is then trained on the whole training part and tested once; its row joins
benchmarks/leaderboards/gowalla.json.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from fairmf import FairALS, evaluate
from fairmf.leaderboards.boards import Board, load_board
from fairmf.leaderboards.run import forget_peak, measure, peak_mb
from fairmf.types import Record

STORED = Path(__file__).parent / "leaderboards"
GRID, BOARD = STORED / "gowalla-grid.json", STORED / "gowalla.json"
NAME = "FairALS, grid"
NAMES = ("regularization", "unobserved_weight", "item_balance", "user_balance")
TRIED = ((0.003, 0.03, 0.25, 0.0), (0.003, 0.03, 0.4, 0.0), (0.003, 0.06, 0.35, 0.2), (0.005, 0.03, 0.35, 0.2))
FACTORS = 1024


def settings(values: tuple[float, ...]) -> Record:
    return {**dict(zip(NAMES, values, strict=True)), "factors": FACTORS, "random_state": 0}


def missing(done: list[Record]) -> Record | None:
    """The next settings to try on the hidden fifth; None if all are done."""
    for values in TRIED:
        if settings(values) not in [one["settings"] for one in done]:
            return settings(values)
    return None


def tried(board: Board, wanted: Record) -> Record:
    """Train without the hidden fifth, and measure on it."""
    began = time.perf_counter()
    model = FairALS(fairness=0.0, **wanted).fit(board.chosen_on, objective_every=0, progress=False)
    found = evaluate(model, board.validation, metrics=[board.chosen_by], train=board.chosen_on, bootstrap=0)
    seconds = round(time.perf_counter() - began, 1)
    return {"settings": wanted, "validation": float(found[board.chosen_by]), "seconds": seconds}


def tested(board: Board, tries: list[Record]) -> Record:
    """Train the best on the whole training part, and test it."""
    best = max(tries, key=lambda one: one["validation"])
    forget_peak()
    began = time.perf_counter()
    model = FairALS(fairness=0.0, **best["settings"]).fit(board.train, objective_every=0, progress=False)
    seconds = round(time.perf_counter() - began, 2)
    return {
        "model": NAME, "factors": best["settings"]["factors"], "settings": best["settings"],
        "validation": best["validation"], "trials": len(tries),
        "tuning_seconds": round(sum(one["seconds"] for one in tries), 1), "best": False, "evenness": 0.0,
        "fit_seconds": seconds, "peak_mb": peak_mb(), "values": measure(board, model),
    }  # fmt: skip


def main() -> None:
    stored: Record = json.loads(GRID.read_text(encoding="utf-8")) if GRID.exists() else {"tries": []}
    if "row" in stored:
        print("nothing is left")
        return
    board, wanted = load_board("gowalla"), missing(stored["tries"])
    if wanted is not None:
        stored["tries"].append(tried(board, wanted))
    else:
        stored["row"] = tested(board, stored["tries"])
        whole = json.loads(BOARD.read_text(encoding="utf-8"))
        whole["rows"] = [*(row for row in whole["rows"] if row["model"] != NAME), stored["row"]]
        best = max((row for row in whole["rows"] if "validation" in row), key=lambda row: row["validation"])
        for row in whole["rows"]:
            row["best"] = row is best
        BOARD.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    GRID.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(stored.get("row", stored["tries"][-1])))


if __name__ == "__main__":
    main()
