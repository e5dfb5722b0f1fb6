"""On real data the fast solver ends where the exact one does, F never rises, and users equal their own fold-in.

A part of the grid of `python -m benchmarks --full same_answer`, which is too long for a test.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import load_real_split, real_file

from fairmf.data.interactions import Interactions
from fairmf.models.als import FairALS

pytestmark = [pytest.mark.realdata, pytest.mark.slow]


def movielens():
    return load_real_split("ml-1m-split.npz")[0]


def gowalla():
    arrays = np.load(real_file("gowalla.npz"))
    kept = (arrays["split"] == 0).astype(np.float32)
    matrix = sp.csr_matrix((kept, arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
    matrix.eliminate_zeros()
    return Interactions.from_csr(matrix)


def lastfm_counts():
    arrays = np.load(real_file("lastfm-hetrec.npz"))
    counts = arrays["ratings"].astype(np.float32)
    matrix = sp.csr_matrix((counts, arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
    return Interactions.from_csr(matrix, weights="values")


CASES = [
    (movielens, 0.1, 0.0, 60),
    (movielens, 0.1, 1.0, 60),
    (movielens, 0.1, 100.0, 60),
    (movielens, 0.003, 1.0, 60),
    (movielens, 0.003, 1e4, 60),
    (gowalla, 0.01, 1.0, 16),
    (lastfm_counts, 0.1, 0.0, 60),
    (lastfm_counts, 0.003, 100.0, 60),
]


@pytest.mark.parametrize(("load", "unobserved_weight", "fairness", "epochs"), CASES)
def test_same_answer_as_the_exact_solver(load, unobserved_weight, fairness, epochs):
    data = load()
    settings = {"factors": 16, "unobserved_weight": unobserved_weight, "fairness": fairness, "epochs": epochs}
    slow = FairALS(**settings, solver="cholesky").fit(data).history.column("objective.total")
    model = FairALS(**settings).fit(data)
    quick = np.array(model.history.column("objective.total"))
    assert quick[15] <= slow[15] * 1.001
    if epochs == 60:
        assert quick[59] <= slow[59] * 1.0005
    assert (np.diff(quick) / quick[:-1]).max() <= 1e-6
    users = model.fold_in(data)
    np.testing.assert_allclose(model.user_factors, users, atol=1e-3 * np.abs(users).max())
