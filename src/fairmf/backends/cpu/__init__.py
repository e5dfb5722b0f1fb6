"""Numba on the CPU: float32 storage, float64 reductions, all cores, the same bits for any number of threads."""

import os

# Threads that wait must sleep. Left alone they spin, and where another process has one of the cores (or a container has
# fewer than it sees) every parallel loop costs a time slice of the scheduler: small fits took 100 times as long. OpenMP
# reads this once, when Numba starts its threads, which is after this import. A user's own setting is respected.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
