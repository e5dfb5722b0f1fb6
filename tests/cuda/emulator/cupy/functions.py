"""Stand in for the functions of CuPy that fairmf uses, by NumPy's. NumPy's functions on its arrays end up here."""

import numpy as np

from cupy.arrays import empty, ndarray, on_device, silent, wrapped


def asarray(values, dtype=None):
    """Return the values on the device; a copy unless they are there as that dtype."""
    if isinstance(values, ndarray):
        return values if dtype is None else values.astype(dtype, copy=False)
    host = np.asarray(values, dtype=dtype)
    out = empty(host.shape, host.dtype)
    out.values[...] = host
    return out


def ascontiguousarray(values, dtype=None):
    """Return the values on the device, C-contiguous."""
    found = asarray(values, dtype)
    return found if found.values.flags.c_contiguous else found.copy()


def asnumpy(values):
    """Return the values on the host."""
    return values.get() if isinstance(values, ndarray) else np.asarray(values)


def full(shape, value, dtype=None):
    """Return an array of one value."""
    out = empty(shape, np.asarray(value).dtype if dtype is None else dtype)
    out.values[...] = value
    return out


def zeros(shape, dtype=np.float64):
    """Return an array of zeros."""
    return full(shape, 0, dtype)


def ones(shape, dtype=np.float64):
    """Return an array of ones."""
    return full(shape, 1, dtype)


def matmul(a, b, out=None):
    """Return the product, or write it to `out`. As with CuPy, `out` must be neither factor."""
    if out is None:
        return wrapped(silent(np.matmul)(on_device(a), on_device(b)))
    if any(np.shares_memory(x.values, out.values) for x in (a, b)):
        raise ValueError("matmul cannot multiply in place")
    silent(np.matmul)(a.values, b.values, out=out.values)
    return out


def array_equal(a, b):
    """Return whether all numbers are the same, as an array of the device."""
    return wrapped(np.bool_(np.array_equal(on_device(a), on_device(b))))


def _of_numpy(function):
    def call(*args, **options):
        given = [[on_device(x) for x in a] if isinstance(a, (list, tuple)) else on_device(a) for a in args]
        return wrapped(silent(function)(*given, **{name: on_device(value) for name, value in options.items()}))

    return call


# Functions that CuPy has under the same name and with the same meaning.
_SAME = (
    "abs", "arange", "argsort", "column_stack", "concatenate", "copy", "cumsum", "diag", "diff", "dot", "einsum",
    "full_like", "hstack", "isfinite", "max", "maximum", "mean", "minimum", "ones_like", "outer", "searchsorted",
    "sort", "sqrt", "square", "stack", "sum", "take", "take_along_axis", "tile", "trace", "vstack", "where",
    "zeros_like",
    "linalg.eigh", "linalg.eigvalsh", "linalg.norm", "linalg.solve",
)  # fmt: skip


def _numpy(name):
    module, _, function = name.rpartition(".")
    return getattr(np.linalg if module else np, function)


KNOWN = {name: _of_numpy(_numpy(name)) for name in _SAME} | {"array_equal": array_equal, "matmul": matmul}
