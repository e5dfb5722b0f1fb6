"""The cuda backend: CuPy for dense algebra, own CUDA C kernels for everything that walks over interactions."""
