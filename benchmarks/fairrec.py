"""FairRec: time and memory at catalogue size, and against scanning a dense matrix of scores at a size both can do."""

from __future__ import annotations

from benchmarks.alone import run_alone
from benchmarks.result import Result

ONE_RUN = """
import json, sys, time
from pathlib import Path
import numpy as np
from benchmarks.fairrec import dense_fair_rec
from fairmf.data.synthetic import synthetic
from fairmf.models.als import FairALS
from fairmf.ranking.fairrec import fair_rec

def memory(name):
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024

def timed(call, *arguments, **options):
    began = time.perf_counter()
    return call(*arguments, **options), time.perf_counter() - began

n, m, interactions, dense = map(int, sys.argv[1:5])
share = float(sys.argv[5])
data = synthetic(n, m, interactions, popularity_gini=0.8)
model = FairALS(factors=64, epochs=6).fit(data, progress=False, objective_every=0)
U, V = model.user_factors, model.item_factors
fair_rec(U[:300], V[:200], 5, 0.5)  # compile first
_, top = timed(fair_rec, U, V, 20, 1e-9, exclude=data.by_user)  # a share of nothing: plain top-K
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
found, seconds = timed(fair_rec, U, V, 20, share, exclude=data.by_user, order="allocation")
result = {"seconds": seconds, "top": top, "peak": memory("VmHWM"),
          "ell": found.certificate.guaranteed, "short": len(found.certificate.short)}
if dense:
    lists, result["dense"] = timed(dense_fair_rec, U, V, 20, found.certificate.guaranteed, data.by_user)
    result["same"] = float((lists == found.items).all(axis=1).mean())
print(json.dumps(result))
"""


def dense_fair_rec(U, V, K, ell, exclude):
    """FairRec on a users x items matrix: one argmax over a row per slot."""
    import numpy as np

    scores = U @ V.T
    for i in range(len(U)):
        scores[i, exclude.row(i)[0]] = -np.inf
    order = np.random.default_rng(0).permutation(len(U))
    stock = np.full(len(V), ell)
    lists = np.full((len(U), K), -1, dtype=np.int32)
    out_of_stock = np.zeros(len(V), dtype=np.float32)  # added to scores: 0 or -inf
    for slot in range(K):
        for i in order:
            best = int(np.argmax(scores[i] + out_of_stock))
            # A user who can take nothing now never can again; the second phase starts at its first empty slot.
            if scores[i, best] + out_of_stock[best] == -np.inf:
                continue
            lists[i, slot] = best
            scores[i, best] = -np.inf
            stock[best] -= 1
            if stock[best] == 0:
                out_of_stock[best] = -np.inf
    for i in order:
        for slot in range(K):
            if lists[i, slot] < 0:
                best = int(np.argmax(scores[i]))
                if scores[i, best] > -np.inf:
                    lists[i, slot], scores[i, best] = best, -np.inf
    return lists


def run(short: bool) -> Result:
    result = Result(
        "FairRec: K = 20, 64 factors",
        "FairALS on synthetic data (popularity Gini .8), the users' own items excluded; each run in a process of its "
        "own. Top-20 is the same call with a share of nothing. Dense: one argmax over a row of a users x items matrix "
        "per slot, NumPy. Memory: peak of the whole process, data and model included. `python -m benchmarks fairrec`",
        (
            "users",
            "items",
            "share",
            "ell",
            "items short",
            "top-20, s",
            "FairRec, s",
            "dense, s",
            "peak, MB",
        ),
    )
    sizes = [(4000, 1500, 120_000, 1, 0.5), (4000, 1500, 120_000, 1, 1.0)]
    if not short:
        sizes += [(20_000, 5000, 600_000, 1, 0.5)]
        sizes += [(100_000, 20_000, 3_000_000, 0, share) for share in (0.1, 0.5, 1.0)]
    for n, m, interactions, dense, share in sizes:
        found = run_alone(ONE_RUN, n, m, interactions, dense, share)
        cells = [f"{found[key]:.2f}" if key in found else "" for key in ("top", "seconds", "dense")]
        memory = f"{found['peak'] / 1e6:.0f}"
        result.rows.append((f"{n:,}", f"{m:,}", share, found["ell"], found["short"], *cells, memory))
        if dense:
            result.findings.append(
                f"{n:,} x {m:,}, share {share}: {found['dense'] / found['seconds']:.1f}x as fast as dense; "
                f"{100 * found['same']:.2f} % of the lists are the same (float32 sums round differently)."
            )
    return result
