"""Numba on the CPU: float32 storage, float64 reductions, the same bits for any number of threads."""
