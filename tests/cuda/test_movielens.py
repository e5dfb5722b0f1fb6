"""Test the objective of a fit on the GPU against the CPU's, on MovieLens-1M."""

import numpy as np
import pytest
from conftest import EMULATED, load_real_split

from fairmf import FairALS, Interactions
from fairmf.backends.registry import what_is_missing

REASON = "takes hours on an emulated device" if EMULATED else what_is_missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(REASON is not None, reason=str(REASON))]


@pytest.mark.parametrize("weighted", [False, True], ids=["binary", "weighted"])
@pytest.mark.parametrize("fairness", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("factors", [64, 256])
def test_f_is_that_of_the_cpu(factors, fairness, weighted):
    train, _ = load_real_split("ml-1m-split.npz")
    if weighted:
        matrix = train.to_csr()
        matrix.data = (0.5 + 4 * np.random.default_rng(0).random(matrix.nnz)).astype(np.float32)
        train = Interactions.from_csr(matrix, weights="values")
    totals = [
        FairALS(factors=factors, fairness=fairness, regularization=0.01, backend=backend)
        .fit(train, progress=False)
        .history.final["objective"]["total"]
        for backend in ("cpu", "cuda")
    ]
    assert totals[1] == pytest.approx(totals[0], rel=1e-4)
