"""Numba on the CPU: float32 storage, float64 reductions, all cores, the same bits for any number of threads."""
