"""A process that compiles the kernels and one that finds them compiled give the same bits."""

import os
import subprocess
import sys

import pytest

CODE = """
import hashlib
import numpy as np
from fairmf import FairALS, FiADMM, synthetic
data = synthetic(600, 300, 12_000)
new = data.take_users(np.arange(50))
for model in (
    FairALS(factors=16, epochs=3),
    FairALS(factors=16, epochs=3, cg_steps=3, unobserved_weight=0.9),
    FairALS(factors=16, epochs=2, solver="cholesky"),
    FairALS(factors=16, epochs=2, solver="subspace", block_size=6),
    FiADMM(factors=16, epochs=4),
):
    model.fit(data, progress=False)
    digest = hashlib.sha256()
    lists, scores = model.recommend(np.arange(100), N=20, by="row")
    for part in (model.user_factors, model.item_factors, model.fold_in(new), lists, scores):
        digest.update(np.ascontiguousarray(part).tobytes())
    print(digest.hexdigest(), model.history.column("objective.total"))
"""


@pytest.mark.slow
def test_the_first_run_is_like_all_others(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert len(runs[0].splitlines()) == 5
    assert runs[0] == runs[1]
