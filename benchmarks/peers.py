"""The libraries compared against, each as a function that trains and returns the seconds of every epoch.

Same data, same number of threads, same process; set-up is not counted, on either side. BLAS gets one thread, as
implicit's own documentation asks (fairmf pins it by itself).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import threadpoolctl

from fairmf.data.interactions import Interactions


def plain_csr(data: Interactions) -> sp.csr_matrix:
    """Writable int32 arrays: what the peers take."""
    csr = data.to_csr()
    arrays = np.array(csr.data), np.array(csr.indices), np.array(csr.indptr, dtype=np.int32)
    return sp.csr_matrix(arrays, shape=csr.shape)


def implicit_cg(data: Interactions, factors: int, epochs: int, threads: int) -> list[float]:
    """implicit's AlternatingLeastSquares with its default of three conjugate gradient steps."""
    from implicit.cpu.als import AlternatingLeastSquares

    seconds: list[float] = []
    with threadpoolctl.threadpool_limits(1, "blas"):
        model = AlternatingLeastSquares(factors=factors, iterations=epochs, num_threads=threads, random_state=0)
        model.fit(plain_csr(data), show_progress=False, callback=lambda _epoch, spent, *_: seconds.append(spent))
    return seconds


def irspack(
    solver: str, data: Interactions, factors: int, epochs: int, threads: int
) -> tuple[list[float], list[float]]:
    """irspack's trainer with the given solver; also F after every epoch (its "IALSPP" loss is ours)."""
    from irspack.recommenders import ials

    trainer = ials.IALSTrainer(
        plain_csr(data), factors, 0.1, 0.005, 1.0, 0.1, ials.str_to_solver_type(solver), 3, 64,
        ials.str_to_loss_type("IALSPP"), 0, threads, 5, 7,
    )  # fmt: skip
    seconds, losses = [], []
    for _ in range(epochs):
        began = time.perf_counter()
        trainer.core_trainer.step(trainer.solver_config)
        seconds.append(time.perf_counter() - began)
        losses.append(trainer.compute_loss())
    return seconds, losses


def available() -> dict[str, Callable[[Interactions, int, int, int], list[float]]]:
    """The peers that are installed, by name."""
    found: dict[str, Callable[[Interactions, int, int, int], list[float]]] = {}
    try:
        import implicit  # noqa: F401

        found["implicit CG"] = implicit_cg
    except ImportError:
        pass
    try:
        import irspack as _  # noqa: F401

        for solver in ("CG", "IALSPP", "CHOLESKY"):
            found[f"irspack {solver}"] = lambda *a, s=solver: irspack(s, *a)[0]
    except ImportError:
        pass
    return found
