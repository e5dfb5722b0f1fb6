"""Read and write device memory by address, in the column-major order of cuBLAS and cuSOLVER."""

import ctypes

import numpy as np


def numbers(address, count, dtype):
    """Return that many numbers from an address on; writing to them writes there."""
    if count == 0:
        return np.empty(0, dtype)
    return np.frombuffer((ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(int(address)), dtype=dtype)


def matrix(address, rows, columns, leading):
    """Return the column-major float32 matrix at an address, whose columns are `leading` numbers apart."""
    flat = numbers(address, leading * (columns - 1) + rows, np.float32)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (4, 4 * leading))


def matrices(addresses, count, rows, columns, leading):
    """Return the matrices whose addresses are stored at `addresses`."""
    return [matrix(at, rows, columns, leading) for at in numbers(addresses, count, np.uintp)]
