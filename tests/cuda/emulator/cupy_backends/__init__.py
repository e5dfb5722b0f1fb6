"""Stand in for CuPy's bindings of NVIDIA's libraries."""
