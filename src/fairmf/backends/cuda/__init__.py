"""Run on NVIDIA GPUs: CuPy for dense algebra, CUDA C kernels for everything that walks over sparse rows."""
