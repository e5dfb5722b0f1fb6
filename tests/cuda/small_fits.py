"""Small fits that use every kernel, to be run under a sanitizer: compute-sanitizer --tool memcheck python small_fits.py

With `few`, fits so small that racecheck, which is far slower, ends in minutes; one row is still long enough to be cut.
"""

import sys

import numpy as np
import scipy.sparse as sp

from fairmf import FairALS, FiADMM, Interactions, synthetic

MANY = [
    FairALS(factors=33, epochs=2, backend="cuda"),
    FairALS(factors=128, epochs=2, backend="cuda", factor_dtype="float16"),
    FairALS(factors=16, epochs=1, solver="cholesky", backend="cuda"),
    FairALS(factors=24, epochs=1, solver="subspace", block_size=16, backend="cuda"),
    FiADMM(factors=8, epochs=1, backend="cuda"),
    FairALS(factors=1030, epochs=1, backend="cuda"),
]
FEW = [FairALS(factors=32, epochs=1, backend="cuda"), FairALS(factors=64, epochs=1, backend="cuda")]


def main(few: bool) -> None:
    data = synthetic(40, 2500, 40_000, random_state=0) if few else synthetic(400, 2600, 60_000, random_state=0)
    for model in FEW if few else MANY:
        model.fit(data, progress=False, settle=not few).recommend(data.user_ids.values[:8], N=5)
    if not few:
        fit_with_features_and_dislikes(data)


def fit_with_features_and_dislikes(data: Interactions) -> None:
    matrix = data.to_csr().astype(np.float32)
    matrix.data[::7] = -0.5
    given = Interactions.from_csr(matrix, weights="values")
    users, items = (sp.random(n, 5, 0.6, format="csr", random_state=n) for n in matrix.shape)  # rows that are cut too
    for solver in ("eigenbasis_cg", "cholesky", "subspace"):
        model = FairALS(factors=24, epochs=1, solver=solver, block_size=16, backend="cuda")
        model.fit(given, item_features=items, user_features=users, progress=False)


if __name__ == "__main__":
    main("few" in sys.argv[1:])
