"""The same bits for 1, 2 and 4 threads, in one subprocess that is allowed four."""

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
from fairmf.interactions import Interactions
from fairmf.models import IALS, FairALS, FiADMM

def Subspace(**settings):
    return FairALS(**settings, solver="subspace", block_size=24)

def bits(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()

own = random_item_weights(600)
results = {"threads_available": numba.config.NUMBA_NUM_THREADS, "digests": {}}
for weighted in (False, True):
    # More rows than one block of any reduction, so that blocks are really dealt to several threads.
    data = Interactions(random_rows(9000, 600, density=0.02, weighted=weighted), 600)
    for factors in (64, 256):
        for make, weights in (
            (IALS, None), (FairALS, None), (FiADMM, None), (Subspace, None), (FairALS, own), (FiADMM, own),
            (Subspace, own),
        ):
            if (weights is not None or make is Subspace) and factors > 64:
                continue
            found = []
            for threads in (1, 2, 4):
                model = make(factors=factors, epochs=2, num_threads=threads).fit(data, fairness_weights=weights)
                last = model.history.records[-1]["objective"]["total"]
                lists = model.recommend(np.arange(0, 9000, 3), N=20)
                found.append(bits(model.user_factors, model.item_factors, np.array(last), *lists))
            name = make.__name__ + ("" if weights is None else " item weights")
            results["digests"][f"{name} {factors} {'weighted' if weighted else 'binary'}"] = found
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def results():
    tests = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "NUMBA_NUM_THREADS": "4"}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, tests], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout)


def test_four_threads_were_really_allowed(results):
    assert results["threads_available"] == 4


@pytest.mark.parametrize("weights", ["binary", "weighted"])
@pytest.mark.parametrize(
    ("model", "factors"),
    [
        *((model, factors) for model in ("IALS", "FairALS", "FiADMM") for factors in (64, 256)),
        ("Subspace", 64),
        *((f"{model} item weights", 64) for model in ("FairALS", "FiADMM", "Subspace")),
    ],
)
def test_identical_bits_for_1_2_and_4_threads(results, model, factors, weights):
    one, two, four = results["digests"][f"{model} {factors} {weights}"]
    assert one == two == four
