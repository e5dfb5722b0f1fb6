"""The same bits for 1, 2 and 4 threads, in a subprocess that is allowed four.

Here few factors, with weights of interactions and of items both or neither; every pair and many factors as slow tests.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import hashlib, json, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from conftest import random_item_weights, random_rows
import numba
from fairmf.data.interactions import Interactions
from fairmf.models.als import IALS, FairALS
from fairmf.models.fiadmm import FiADMM

def Subspace(**settings):
    return FairALS(**settings, solver="subspace", block_size=20)

def bits(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()

names, sizes = json.loads(sys.argv[2]), [int(size) for size in sys.argv[3:]]
own = random_item_weights(600)
results = {"threads_available": numba.config.NUMBA_NUM_THREADS, "digests": {}}
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
            found = []
            for threads in (1, 2, 4):
                model = make(factors=factors, epochs=2, num_threads=threads).fit(data, fairness_weights=weights)
                last = model.history.records[-1]["objective"]["total"]
                lists = model.recommend(np.arange(0, 4500, 9), N=20)
                found.append(bits(model.user_factors, model.item_factors, np.array(last), *lists))
            results["digests"][f"{name} {factors}"] = found
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
    return results["digests"]


@pytest.fixture(scope="module")
def digests():
    return results_for(FEW, 32)


@pytest.mark.parametrize("case", FEW)
def test_identical_bits_for_1_2_and_4_threads(digests, case):
    one, two, four = digests[f"{case} 32"]
    assert one == two == four


@pytest.mark.slow
def test_identical_bits_of_every_case_with_many_factors():
    for name, (one, two, four) in results_for(CASES, 256).items():
        assert one == two == four, name
