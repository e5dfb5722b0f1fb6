"""Stand in for cupy.ndarray: an array that lives on the "device" and mixes with NumPy's no more than CuPy's does.

It wraps a NumPy array. What CuPy refuses is refused here too, since code that runs with this class should run on a
device: a conversion to a NumPy array that nobody asked for, arithmetic between both kinds, and functions that CuPy does
not have.
"""

import operator
import weakref

import numpy as np

GUARD = 64  # bytes before and after an allocation; kernels must leave them as they are
ALIGNED = 512  # an allocation of CuPy starts at a multiple of this
CANARY, POISON = 0xA5, 0xFF  # what guards hold, and what new memory holds: NaN as a float, -1 as an integer
TOTAL_BYTES = 16 << 30  # memory of the device

allocated = {"bytes": 0}


class Memory:
    """Hold an allocation, with guards around it."""

    def __init__(self, size):
        self.size = size
        self.raw = np.full(size + 2 * GUARD + ALIGNED, CANARY, dtype=np.uint8)
        self.start = GUARD + -(self.raw.ctypes.data + GUARD) % ALIGNED
        self.raw[self.start : self.start + size] = POISON
        allocated["bytes"] += size
        weakref.finalize(self, _free, size)

    def is_intact(self):
        """Return whether nobody wrote to the guards."""
        after = self.start + self.size
        guards = self.raw[self.start - GUARD : self.start], self.raw[after : after + GUARD]
        return all((guard == CANARY).all() for guard in guards)


def _free(size):
    allocated["bytes"] -= size


class Pointer:
    """Stand in for cupy.cuda.MemoryPointer."""

    def __init__(self, ptr):
        self.ptr = ptr


class ndarray:  # noqa: N801 - CuPy's name
    """Hold an array of the emulated device."""

    __hash__ = None

    def __init__(self, values, memory=None):
        self.values = values
        self.memory = memory

    # -- what it is -----------------------------------------------------------------------------------------------

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)
    ndim = property(lambda self: self.values.ndim)
    size = property(lambda self: self.values.size)
    nbytes = property(lambda self: self.values.nbytes)
    strides = property(lambda self: self.values.strides)
    data = property(lambda self: Pointer(self.values.ctypes.data))
    T = property(lambda self: self._view(self.values.T))

    def __len__(self):
        return len(self.values)

    def __repr__(self):
        return f"device {self.values!r}"

    def _view(self, values):
        return ndarray(values, self.memory)

    # -- to the host ----------------------------------------------------------------------------------------------

    def get(self, out=None):
        """Return a copy on the host, or copy there."""
        if out is None:
            return self.values.copy()
        if not isinstance(out, np.ndarray) or not out.flags.c_contiguous or out.dtype != self.dtype:
            raise TypeError("get(out=) needs a C-contiguous NumPy array of the same dtype")
        out[...] = self.values
        return out

    def item(self):
        """Return the one number."""
        return self.values.item()

    def tolist(self):
        """Return a list."""
        return self.values.tolist()

    def __float__(self):
        return float(self.values)

    def __int__(self):
        return int(self.values)

    def __index__(self):
        return operator.index(self.values)

    def __bool__(self):
        return bool(self.values)

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    # -- pieces ---------------------------------------------------------------------------------------------------

    def __getitem__(self, index):
        found = self.values[_index(index)]
        return self._view(found) if isinstance(found, np.ndarray) else wrapped(found)

    def __setitem__(self, index, value):
        self.values[_index(index)] = on_device(value)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def reshape(self, *shape):
        """Return it in another shape."""
        return self._view(self.values.reshape(*shape))

    def ravel(self):
        """Return it as a vector."""
        return self._view(self.values.ravel())

    def transpose(self, *axes):
        """Return it with its axes permuted."""
        return self._view(self.values.transpose(*axes))

    # -- arithmetic -----------------------------------------------------------------------------------------------

    def astype(self, dtype, copy=True):
        """Return it as that dtype."""
        return self if not copy and self.dtype == np.dtype(dtype) else ndarray(silent(self.values.astype)(dtype))

    def copy(self):
        """Return a copy."""
        return ndarray(self.values.copy())

    def fill(self, value):
        """Set every number."""
        self.values.fill(on_device(value))

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        if method != "__call__":
            return NotImplemented
        given = [on_device(x) for x in inputs]
        if out is not None:
            options["out"] = tuple(on_device(x) for x in out)
        found = silent(ufunc)(*given, **options)
        return out[0] if out is not None else wrapped(found)

    def __array_function__(self, function, types, args, options):
        # NumPy's name of a function is CuPy's, where CuPy has it: functions.py lists those that fairmf may use.
        from cupy.functions import KNOWN

        name = f"{function.__module__}.{function.__name__}".replace("numpy.", "", 1)
        if name not in KNOWN:
            raise TypeError(f"the emulator of CuPy has no function {name}: is it one of CuPy's?")
        return KNOWN[name](*args, **options)


def _method(name):
    def method(self, *args, **options):
        return wrapped(silent(getattr(self.values, name))(*map(on_device, args), **options))

    return method


for _name in ("sum", "max", "min", "mean", "all", "any", "dot", "argmax", "argmin", "trace", "diagonal"):
    setattr(ndarray, _name, _method(_name))


def _operator(function, swapped=False):
    def apply(self, other):
        left, right = (on_device(other), self.values) if swapped else (self.values, on_device(other))
        return wrapped(silent(function)(left, right))

    return apply


def _in_place(function):
    def apply(self, other):
        silent(function)(self.values, on_device(other))
        return self

    return apply


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    _function = getattr(operator, f"__{_name}__")
    setattr(ndarray, f"__{_name}__", _operator(_function))
    setattr(ndarray, f"__r{_name}__", _operator(_function, swapped=True))
    setattr(ndarray, f"__i{_name}__", _in_place(getattr(operator, f"__i{_name}__")))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(ndarray, f"__{_name}__", _operator(getattr(operator, f"__{_name}__")))
for _name in ("neg", "abs", "invert"):
    setattr(ndarray, f"__{_name}__", _method(f"__{_name}__"))


def on_device(value):
    """Return the NumPy array behind an array of the device, or a scalar; raise TypeError for an array of the host."""
    if isinstance(value, ndarray):
        return value.values
    if isinstance(value, np.ndarray) and value.ndim > 0:
        raise TypeError(f"Unsupported type {type(value)}: an array of the host meets one of the device")
    return value


def silent(function):
    """Return the function without NumPy's warnings: a device has none for overflow or NaN."""

    def call(*args, **options):
        with np.errstate(all="ignore"):
            return function(*args, **options)

    return call


def wrapped(found):
    """Return arrays and numbers that NumPy computed as arrays of the device."""
    if isinstance(found, tuple):
        return tuple(wrapped(x) for x in found)
    return ndarray(np.asarray(found)) if isinstance(found, (np.ndarray, np.generic)) else found


def _index(index):
    """Return an index with the NumPy arrays behind arrays of the device; CuPy takes arrays of the host there too."""
    if isinstance(index, tuple):
        return tuple(_index(part) for part in index)
    return index.values if isinstance(index, ndarray) else index


def empty(shape, dtype=np.float64):
    """Allocate an array that holds NaN, or -1."""
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = Memory(size)
    values = memory.raw[memory.start : memory.start + size].view(dtype).reshape(shape)
    return ndarray(values, memory)
