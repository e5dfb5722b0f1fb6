"""The oracle: every kernel in plain float64 NumPy, one row at a time."""
