"""Compile CUDA C with g++ and run it on the CPU (threads.h), with more checks of a launch than CuPy makes.

Compiled kernels are kept in build/cuda-emulator of the checkout.
"""

import ctypes
import hashlib
import os
import platform
import re
import subprocess
from pathlib import Path

import numpy as np

from cupy.arrays import ndarray

HERE = Path(__file__).resolve().parents[1]
CACHE = HERE.parents[2] / "build" / "cuda-emulator"
HEADER = HERE / "threads.h"
FLAGS = ("-std=c++17", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-shared", "-fPIC", "-w", f"-I{HERE}")
if platform.machine() == "x86_64":
    FLAGS = (*FLAGS, "-mno-red-zone")

MOST_SHARED, SHARED_UNASKED = 227 << 10, 48 << 10  # dynamic shared memory of a block; more than this must be asked for
MOST_THREADS, MOST_BLOCKS = 1024, (2**31 - 1, 65535, 65535)

DTYPES = {
    "float": np.float32, "double": np.float64, "int": np.int32, "unsigned": np.uint32, "unsigned int": np.uint32,
    "long long": np.int64, "unsigned long long": np.uint64, "__half": np.float16,
}  # fmt: skip

_KERNEL = re.compile(r'extern "C" __global__ void\s*(?:__launch_bounds__\(([^)]*)\)\s*)?(\w+)\(([^)]*)\)\s*\{')
_DYNAMIC = re.compile(r"extern __shared__ ([\w ]+?) (\w+)\[\];")


class Launch(ctypes.Structure):
    """The struct Launch of threads.h."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint64),
        ("backward", ctypes.c_int),
        ("error", ctypes.c_char * 512),
    )


class RawModule:
    """Stand in for cupy.RawModule."""

    def __init__(self, code, options=()):
        self.kernels = {name: (_parameters(declared), bounds) for bounds, name, declared in _KERNEL.findall(code)}
        half = "-DHALF=1" in options
        self.types = DTYPES | {"STORAGE": np.float16 if half else np.float32}
        self.library = ctypes.PyDLL(str(_compiled(_program(code, self.kernels), options)))

    def get_function(self, name):
        """Return a kernel."""
        return RawKernel(self, name)


class RawKernel:
    """Stand in for cupy.RawKernel."""

    def __init__(self, module, name):
        self.name = name
        self.max_dynamic_shared_size_bytes = SHARED_UNASKED
        declared, bounds = module.kernels[name]
        self.parameters = [(kind, pointer, module.types.get(kind)) for kind, pointer in declared]
        self.run = getattr(module.library, f"run_{name}")
        self.most_threads = getattr(module.library, f"most_threads_{name}")() if bounds else MOST_THREADS

    def __call__(self, grid, block, arguments, *, shared_mem=0):
        """Run all blocks."""
        launch = Launch(
            _three(grid), _three(block), shared_mem, os.environ.get("FAIRMF_CUDA_EMULATOR_ORDER") == "backward"
        )
        self._check(launch)
        if len(arguments) != len(self.parameters):
            raise TypeError(f"{self.name} takes {len(self.parameters)} arguments. Got {len(arguments)} instead.")
        held = [self._argument(at, value) for at, value in enumerate(arguments)]
        addresses = (ctypes.c_void_p * len(held))(*(ctypes.addressof(value) for value in held))
        self.run(ctypes.byref(launch), addresses)
        if launch.error:
            raise RuntimeError(f"{self.name}: {launch.error.decode()}")
        for at, value in enumerate(arguments):
            if isinstance(value, ndarray) and value.memory is not None and not value.memory.is_intact():
                raise RuntimeError(f"{self.name} writes beyond the array of argument {at}")

    def _check(self, launch):
        threads = int(np.prod(launch.block[:]))
        if not 0 < threads <= self.most_threads:
            raise RuntimeError(f"{self.name}: {threads} threads a block, at most {self.most_threads} were declared")
        if any(not 0 < size <= most for size, most in zip(launch.grid, MOST_BLOCKS, strict=True)):
            raise RuntimeError(f"{self.name}: a grid of {launch.grid[:]} blocks")
        if launch.shared_bytes > min(MOST_SHARED, self.max_dynamic_shared_size_bytes):
            raise RuntimeError(f"{self.name}: {launch.shared_bytes} bytes of shared memory, which it did not ask for")

    def _argument(self, at, value):
        """Return an argument as a ctypes number, after checking its type: CuPy passes its bytes on, right or wrong."""
        kind, pointer, dtype = self.parameters[at]
        if isinstance(value, ndarray):
            known = dtype is None or value.dtype == dtype
            if not pointer or not known or not value.values.flags.c_contiguous:
                layout = "contiguous" if value.values.flags.c_contiguous else "not contiguous"
                raise TypeError(f"argument {at} of {self.name} is {kind}{'*' * pointer}. Got {value.dtype}, {layout}.")
            return ctypes.c_void_p(value.data.ptr)
        if pointer:
            if not isinstance(value, np.uintp) or value != 0:
                raise TypeError(f"argument {at} of {self.name} is a pointer. Got {value!r} instead.")
            return ctypes.c_void_p(0)
        if not isinstance(value, np.generic) or value.dtype != dtype:
            raise TypeError(f"argument {at} of {self.name} is {kind}. Got {value!r} instead.")
        return np.ctypeslib.as_ctypes_type(value.dtype)(value.item())


def _three(sizes):
    return (ctypes.c_uint * 3)(*sizes, *[1] * (3 - len(sizes)))


def _parameters(text):
    """Return type and whether it is a pointer, for each parameter of a kernel."""
    found = []
    for declared in text.split(","):
        words = declared.replace("__restrict__", "").replace("*", " * ").split()
        kind = " ".join(word for word in words[:-1] if word not in ("const", "*"))
        found.append((kind, "*" in words))
    return found


def _program(code, kernels):
    """Return the source for g++: without linkage, so that modules share no static memory, and with launchers."""
    code = _DYNAMIC.sub(r"\1* \2 = reinterpret_cast<\1*>(emulator::dynamic_memory);", code)
    lines = ['#include "threads.h"', "namespace {", '#line 1 "kernels.cu"', code, "}", '#line 1 "launchers.cpp"']
    for name, (parameters, bounds) in kernels.items():
        given = ", ".join(
            f"*static_cast<{kind}{'*' * pointer}*>(a[{at}])" for at, (kind, pointer) in enumerate(parameters)
        )
        lines.append(f"static void call_{name}(void** a) {{ {name}({given}); }}")
        lines.append(
            f'extern "C" void run_{name}(emulator::Launch* l, void** a) {{ emulator::run(*l, call_{name}, a); }}'
        )
        if bounds:
            lines.append(f'extern "C" int most_threads_{name}() {{ return {bounds}; }}')
    return "\n".join(lines) + "\n"


def _compiled(text, options):
    """Return the path of the compiled program, from the cache if it is there."""
    flags = [*FLAGS, *(option for option in options if option.startswith("-D"))]
    key = hashlib.sha256("\0".join((*flags, HEADER.read_text(), text)).encode()).hexdigest()[:24]
    path = CACHE / f"{key}.so"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        own = CACHE / f"{key}.{os.getpid()}"
        source = own.with_suffix(f".{os.getpid()}.cpp")
        source.write_text(text)
        done = subprocess.run(["g++", *flags, "-o", own, source], capture_output=True, text=True, check=False)
        source.unlink()
        if done.returncode:
            raise RuntimeError(f"g++ cannot compile the kernels:\n{done.stderr[:4000]}")
        own.replace(path)
    return path
