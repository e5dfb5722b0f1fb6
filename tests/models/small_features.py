"""Make small weighted interactions, matrices of features and models for the tests of features."""

import numpy as np
import scipy.sparse as sp

from fairmf import IALS, Interactions

N, M, P, D = 40, 25, 6, 3
SETTINGS = {"factors": D, "regularization": 0.05, "unobserved_weight": 0.1, "random_state": 3}


def matrix(rows, columns, seed=0):
    found = sp.random(rows, columns, 0.5, format="csr", random_state=seed)
    found.data -= 0.3  # negative values too
    return found


def some_data():
    """Some weighted interactions; users 0 and 1 and items 3 and 7 have none."""
    generator = np.random.default_rng(5)
    values = generator.random((N, M)) * (generator.random((N, M)) < 0.3)
    values[0] = values[1] = 0
    values[:, [3, 7]] = 0
    ids = {"user_ids": [f"u{i}" for i in range(N)], "item_ids": [f"i{j}" for j in range(M)]}
    return Interactions.from_csr(sp.csr_array(values), weights="values", **ids)


def model_of(kind=IALS, **changes):
    return kind(**{**SETTINGS, "backend": "reference", "epochs": 300, **changes})
