"""Turn a benchmark file beside the checkout into the folder of a split, for `fairmf reproduce --from FOLDER`:

python -m benchmarks.splits ml-1m splits/ml-1m

ml-1m and epinions are split already; gowalla's events are divided by user, seeded, 2,500 users each held out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.datasets import FOLDER
from benchmarks.pareto_data import whole_split
from fairmf.data.interactions import Interactions
from fairmf.data.split import Split
from fairmf.data.split_methods import split_by_user


def gowalla(path: Path) -> Split:
    """Both published parts together, divided by user."""
    arrays = np.load(path)
    ones = np.ones(len(arrays["indices"]), dtype=np.float32)
    matrix = sp.csr_array((ones, arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
    return split_by_user(Interactions.from_csr(matrix), 2_500, protocol="seeded", min_user=10)


SPLITS = {
    "ml-1m": ("ml-1m-split.npz", whole_split),
    "epinions": ("epinions-split.npz", whole_split),
    "gowalla": ("gowalla.npz", gowalla),
}


def main(name: str, folder: str) -> None:
    if name not in SPLITS:
        sys.exit(f"There is no {name}; there are {', '.join(SPLITS)}.")
    file, read = SPLITS[name]
    if not (FOLDER / file).exists():
        sys.exit(f"{file} is absent (FAIRMF_DATA names the folder).")
    split = read(FOLDER / file)
    split.save(folder)
    print(f"{folder}: {split.train}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("python -m benchmarks.splits NAME FOLDER")
    main(*sys.argv[1:])
