"""The command line run in this process, and small files for it."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairmf import synthetic_events
from fairmf.cli.app import run


@dataclass
class Done:
    """How a run ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


def runner(capsys):
    """A function that runs `fairmf` with the given arguments."""

    def fairmf(*arguments):
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    return fairmf


def write_events(path, users=150, items=60, interactions=2500, header=True, delimiter=","):
    """Write user_id, item_id, rating, timestamp; returns the rows."""
    events = synthetic_events(users, items, interactions, random_state=1)
    ratings = np.random.default_rng(0).integers(1, 6, len(events)).tolist()
    people = events.user_ids.values[events.users].tolist()
    things = (events.items + 100).tolist()
    rows = list(zip(people, things, ratings, events.times.tolist(), strict=True))
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        if header:
            writer.writerow(["user_id", "item_id", "rating", "timestamp"])
        writer.writerows(rows)
    return rows


def make_workspace(place):
    """events.csv, its split and a small model, made by the command line itself."""
    write_events(place / "events.csv")
    assert run(["split", str(place / "events.csv"), "-o", str(place / "split"), "-q", "--json"]) == 0
    small = ["--factors", "8", "--epochs", "4", "--fairness", "1", "--item-balance", "0", "--user-balance", "0", "-q"]
    assert run(["fit", str(place / "split"), "-o", str(place / "model.fairmf"), *small]) == 0
    return place
