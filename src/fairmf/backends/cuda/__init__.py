"""CUDA: CuPy for dense algebra, own CUDA C kernels for everything that walks over sparse rows."""
