"""Run on the CPU with Numba: float32 storage, float64 reductions, the same bits for any number of threads."""
