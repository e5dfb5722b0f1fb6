"""Test that memory with features is linear in the number of stored values: a million items, 100,000 features."""

import json
import subprocess
import sys

import pytest

FIT = """
import json, resource, sys
from pathlib import Path
import numpy as np
from fairmf import IALS, Interactions
from fairmf.data.csr import Rows
m, p, each, n = (int(x) for x in sys.argv[1:])
rng = np.random.default_rng(0)
def largest():
    status = Path("/proc/self/status")  # unlike ru_maxrss it does not begin with the memory of the process that forked
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
def rows(count, width, each):
    columns = np.sort(rng.integers(0, width - each, (count, each)), axis=1) + np.arange(each)  # ascending, distinct
    return Rows(np.arange(count + 1, dtype=np.int64) * each, columns.astype(np.int32).ravel(), None)
data = Interactions(rows(n, m, 20), m)
X = rows(m, p, each).to_csr(np.ones(m * each, dtype=np.float32), p)
before = largest()
model = IALS(factors=8, epochs=1).fit(data, item_features=X, objective_every=0, settle=False, progress=False)
after = largest()
print(json.dumps({"grown": (after - before) * 1024, "finite": bool(np.isfinite(model.item_factors).all())}))
"""


def grown(m, p, each, n):
    """Return by how many bytes a fit raises the largest memory of its process."""
    done = subprocess.run(
        [sys.executable, "-c", FIT, *map(str, (m, p, each, n))], capture_output=True, text=True, check=True, timeout=600
    )
    found = json.loads(done.stdout)
    assert found["finite"]
    return found["grown"]


@pytest.mark.slow
def test_a_million_items_with_100_000_features_take_memory_linear_in_their_values():
    large = grown(1_000_000, 100_000, 10, 100_000)
    small = grown(250_000, 25_000, 10, 25_000)
    assert large < 5 * small + 100e6  # four times as much of everything; a dense p x p matrix would grow 16 times
    assert large < 3e9  # a dense matrix of features would have 800 GB, p x p 80 GB
