"""Fingerprints of everything that a refactoring must not change: `python tools/goldens.py FILE` writes or compares.

The first run writes FILE; later runs compare with it and list what differs (exit code 1). `--renew NAME ...` accepts
new values for the entries whose names begin so.

Recorded: SHA-256 of factors and lists of every model x solver x backend x number of threads (1, 2, 4) and x number
of shards (1, 2, 5); the report's data; the files that models, splits, indexes and checkpoints save; docs/cli.md; and
every public name with its signature. Bits depend on the processor and on the builds of NumPy and SciPy, so FILE belongs
to one machine and is not kept with the project.
"""

from __future__ import annotations

import os

os.environ.setdefault("NUMBA_NUM_THREADS", "4")  # read by Numba on import: fits below use up to four

import argparse
import contextlib
import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tools", "tests", "tests/distributed", "tests/reports")]

from interface import interface as public_interface  # noqa: E402

import fairmf  # noqa: E402 - after the number of threads is set
from fairmf import IALS, FairALS, FiADMM, Interactions, Popularity  # noqa: E402

SIZES = {"n_users": 700, "n_items": 260, "n_interactions": 12_000}
SOLVERS: dict[Any, tuple[str, ...]] = {
    FairALS: ("eigenbasis_cg", "cholesky", "subspace"),
    IALS: ("eigenbasis_cg", "cholesky", "subspace"),
    FiADMM: ("eigenbasis_cg", "cholesky"),
}


def digest(*values: Any) -> str:
    """SHA-256 over arrays, texts and bytes."""
    found = hashlib.sha256()
    for value in values:
        if isinstance(value, (str, bytes)):
            found.update(value.encode() if isinstance(value, str) else value)
        else:
            array = np.ascontiguousarray(value)
            found.update(repr(array.tolist()).encode() if array.dtype == object else array.tobytes())
    return found.hexdigest()[:24]


def answers(model: Any, data: Interactions) -> dict[str, str]:
    """Return a fingerprint of each answer of a fitted model."""
    some = data.take_users(np.arange(0, data.n_users, 7))
    users = data.user_ids.values[:40]
    return {
        "factors": digest(model.user_factors, model.item_factors),
        "lists": digest(*model.recommend(users, N=12)),
        "objective": digest(json.dumps(model.history.final["objective"])),
        "fold_in": digest(model.fold_in(some)),
        "cohort": digest(model.fold_in(some, method="cohort")),
        "dial": digest(*model.recommend(users, N=12, fairness=3.0)),
        "with_fairness": digest(model.with_fairness(0.5).user_factors),
        "similar": digest(*model.similar_items(data.item_ids.values[3], N=5)),
        "explain": digest(repr(model.explain(users[0], data.item_ids.values[3]))),
    }


def fits() -> Iterator[tuple[str, str]]:
    """Models on one machine: every solver, backend, number of threads, with and without weights."""
    from fairmf.backends.registry import what_is_missing

    for weighted in (False, True):
        data = fairmf.synthetic(**SIZES, random_state=1)
        if weighted:
            data = data.reweighted("bm25")
        for model, solvers in SOLVERS.items():
            for solver in solvers:
                for backend in ("reference", "cpu", *(["cuda"] if what_is_missing() is None else [])):
                    for threads in (1, 2, 4) if backend == "cpu" else (1,):
                        settings = {"factors": 24, "epochs": 3, "num_threads": threads, "backend": backend}
                        if backend == "reference":
                            settings |= {"factors": 8, "epochs": 2}
                        name = f"fit {model.__name__} {solver} {backend} {threads} {'bm25' if weighted else 'binary'}"
                        fitted = model(**settings, solver=solver).fit(data, progress=False)
                        for question, value in answers(fitted, data).items():
                            yield f"{name}: {question}", value
        popular = Popularity().fit(data)
        yield (
            f"fit Popularity {'bm25' if weighted else 'binary'}",
            digest(*popular.recommend(data.user_ids.values, N=9)),
        )


def sharded_fits() -> Iterator[tuple[str, str]]:
    """Fits in shards, the workers in this process."""
    from in_process import InProcess

    data = fairmf.synthetic(**SIZES, random_state=1)
    for model in (FairALS, IALS):
        for shards in (1, 2, 5):
            fitted = model(factors=24, epochs=3, engine="ray").fit(
                data, cluster=InProcess(shards=shards), progress=False
            )
            yield f"shards {model.__name__} {shards}", digest(fitted.user_factors, fitted.item_factors)


def stored() -> Iterator[tuple[str, str]]:
    """Yield fingerprints of files, byte for byte, and of the report's data."""
    from small_report import data_of, small_model, small_split

    split, model = small_split(), small_model()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        model.save("model.fairmf")
        split.save("split")
        fairmf.Popularity().fit(split.train).save("popular.fairmf")
        FairALS(factors=6, epochs=2).fit(split.train, checkpoint="checkpoints", progress=False)
        for path in sorted(Path().rglob("*")):
            # A history holds seconds: of the model's file and the checkpoints only the arrays can be compared.
            if (
                path.is_file()
                and path.suffix != ".lock"
                and not path.name.startswith(("model", "popular", "epoch", "checkpoint"))
            ):
                yield f"file {path}", digest(path.read_bytes())
        fairmf.report(model, split, "report.html", progress=False)
        shown = data_of(Path("report.html").read_text(encoding="utf-8"))
        yield "report data", digest(json.dumps(_without_times(shown), sort_keys=True))


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_times(v) for k, v in value.items() if not re.search("second|time|version|made", k)}
    return [_without_times(v) for v in value] if isinstance(value, list) else value


def interface() -> Iterator[tuple[str, str]]:
    """The command line's reference, and every public name with its signature."""
    yield "docs/cli.md", digest((ROOT / "docs" / "cli.md").read_bytes())
    for name, parameters in public_interface().items():
        yield f"name {name}", json.dumps(parameters)


def main() -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--renew", nargs="*", default=[], metavar="NAME")
    chosen = parser.parse_args()
    found: dict[str, str] = {}
    for part in (interface, stored, sharded_fits, fits):
        for name, value in part():
            found[name] = value
    if not chosen.file.exists():
        chosen.file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{len(found)} fingerprints written")
        return 0
    known = json.loads(chosen.file.read_text(encoding="utf-8"))
    changed = sorted(name for name in known.keys() | found.keys() if known.get(name) != found.get(name))
    renewed = [name for name in changed if name.startswith(tuple(chosen.renew))] if chosen.renew else []
    if renewed:
        kept = {name: value for name, value in known.items() if name not in renewed}
        new = kept | {name: found[name] for name in renewed if name in found}
        chosen.file.write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")
    for name in changed:
        state = (
            "renewed" if name in renewed else "new" if name not in known else "gone" if name not in found else "differs"
        )
        print(f"{state}: {name}")
    print(f"{len(found)} fingerprints, {len(changed) - len(renewed)} differ")
    return int(len(changed) > len(renewed))


if __name__ == "__main__":
    sys.exit(main())
