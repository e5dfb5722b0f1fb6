"""The same bits for 1, 2 and 4 threads, of fits and of lists (plain and at a level), in a subprocess that has four.

Here few factors, with weights of interactions and of items both or neither; every pair and many factors as slow tests.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import dataclasses, hashlib, json, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from conftest import random_item_weights, random_rows
import numba
from fairmf.control.level_grid import learned_prices
from fairmf.data.interactions import Interactions
from fairmf.models.evenness import Level
from fairmf.models.als import IALS, FairALS
from fairmf.models.fiadmm import FiADMM

def Subspace(**settings):
    return FairALS(**settings, solver="subspace", block_size=20)

def bits(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()

names, sizes = json.loads(sys.argv[2]), [int(size) for size in sys.argv[3:]]
own = random_item_weights(600)
results = {"threads_available": numba.config.NUMBA_NUM_THREADS, "digests": {}, "levels": {}}
users = np.arange(0, 4500, 9)
level = Level(0.5, 0.4, 0.2, 0.3)
for weighted in (False, True):
    # More rows than one block of any reduction, so that blocks are really dealt to several threads.
    data = Interactions(random_rows(4500, 600, density=0.02, weighted=weighted), 600)
    for factors in sizes:
        for make, weights in (
            (IALS, None), (FairALS, None), (FiADMM, None), (Subspace, None), (FairALS, own), (FiADMM, own),
            (Subspace, own),
        ):
            name = make.__name__ + (" item weights" if weights is not None else "")
            name += " weighted" if weighted else " binary"
            if name not in names:
                continue
            found, at_level = [], []
            for threads in (1, 2, 4):
                model = make(factors=factors, epochs=2, num_threads=threads).fit(data, fairness_weights=weights)
                last = model.history.records[-1]["objective"]["total"]
                lists = model.recommend(users, N=20)
                found.append(bits(model.user_factors, model.item_factors, np.array(last), *lists))
                prices = learned_prices(model, 20, lambda _: None)
                model._fitted = dataclasses.replace(model.fitted, item_prices=prices)
                shown = model.recommend(users, N=20, evenness=level)
                assert not np.array_equal(shown[0], lists[0])
                at_level.append(bits(prices, *shown))
            results["digests"][f"{name} {factors}"] = found
            results["levels"][f"{name} {factors}"] = at_level
print(json.dumps(results))
"""


MODELS = ["IALS", *(f"{name}{own}" for name in ("FairALS", "FiADMM", "Subspace") for own in ("", " item weights"))]
CASES = [f"{model} {weights}" for model in MODELS for weights in ("binary", "weighted")]
FEW = [case for case in CASES if "IALS" in case or ("item weights" in case) == case.endswith("weighted")]


def results_for(names, *sizes):
    tests = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "NUMBA_NUM_THREADS": "4"}
    command = [sys.executable, "-c", SCRIPT, tests, json.dumps(names), *map(str, sizes)]
    results = json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert results["threads_available"] == 4
    assert results["digests"].keys() == {f"{name} {size}" for name in names for size in sizes}
    return results


@pytest.fixture(scope="module")
def few():
    return results_for(FEW, 32)


@pytest.mark.parametrize("case", FEW)
def test_identical_bits_for_1_2_and_4_threads(few, case):
    one, two, four = few["digests"][f"{case} 32"]
    assert one == two == four


@pytest.mark.parametrize("case", FEW)
def test_identical_lists_and_prices_at_a_level_for_1_2_and_4_threads(few, case):
    one, two, four = few["levels"][f"{case} 32"]
    assert one == two == four


@pytest.mark.slow
def test_identical_bits_of_every_case_with_many_factors():
    found = results_for(CASES, 256)
    for kind in ("digests", "levels"):
        for name, (one, two, four) in found[kind].items():
            assert one == two == four, (kind, name)
