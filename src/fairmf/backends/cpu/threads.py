"""Run kernels on several threads of this process, whatever else it does: fork, threads of its own, Ctrl-C.

1. `use` says how many threads the calls inside it take, and holds BLAS to one thread as long as anyone is inside.
2. `run` cuts a kernel's blocks into parts. The caller works through them, with threads that wait for such work; who is
   free takes the next part. Blocks depend on the data alone, so bits do not depend on who does which.
3. Before a fork, running parts end and no new one begins, so that a child never inherits a lock that nobody will
   release. In the child the waiting threads are gone: it starts its own when it first needs them.

Why not Numba's own threads: docs/decisions/0016-threads.md.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
import threadpoolctl
from numba import types
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import get_cython_function_address
from numpy.typing import NDArray

from fairmf.data.csr import Rows, read_only
from fairmf.errors import InvalidData

# SciPy's own BLAS and LAPACK, callable inside Numba kernels without Python and without allocation.
#
# The addresses are registered with LLVM under a name of ours, so that compiled kernels can still be cached on disk (a
# ctypes pointer inside a kernel could not). All arguments are addresses, as Fortran passes them.


def _external(module: str, name: str, arguments: int) -> Any:
    symbol = f"fairmf_{name}"
    llvm.add_symbol(symbol, get_cython_function_address(f"scipy.linalg.{module}", name))
    return types.ExternalFunction(symbol, types.void(*[types.uintp] * arguments))


# C = alpha A A' + beta C on one triangle: (uplo, trans, n, k, alpha, a, lda, beta, c, ldc)
ssyrk = _external("cython_blas", "ssyrk", 10)
# Solve A X = B for symmetric positive definite A, in place: (uplo, n, nrhs, a, lda, b, ldb, info)
sposv = _external("cython_lapack", "sposv", 8)
# Solve A X = B from the Cholesky factor that sposv leaves, in place: (uplo, n, nrhs, a, lda, b, ldb, info)
spotrs = _external("cython_lapack", "spotrs", 8)
# Inverse from the Cholesky factor that sposv leaves, in place, one triangle: (uplo, n, a, lda, info)
spotri = _external("cython_lapack", "spotri", 5)


# Fixed partitions of rows: the unit of work of one thread, and the unit of every ordered reduction.
#
# They depend on the data alone, never on the number of threads: that is what makes results bit-identical.


COUNT = 256  # enough pieces for any machine's cores, few enough that one scratch buffer per piece costs nothing


def even(n: int, size: int, most: int = COUNT) -> NDArray[np.int64]:
    """Bounds of blocks of about equal length: at most `size` rows each, unless that took more than `most` blocks."""
    count = max(1, min(most, -(-n // size)))
    return (np.arange(count + 1, dtype=np.int64) * n) // count


def balanced(rows: Rows, cost_per_row: float, count: int = COUNT) -> NDArray[np.int64]:
    """Bounds of blocks of about equal cost, where a row costs its entries plus `cost_per_row`."""
    n = rows.count
    if n <= 1:
        return np.array([0, n])
    count = min(count, n)
    cost = rows.indptr + np.arange(n + 1) * cost_per_row
    bounds = np.searchsorted(cost, np.linspace(0, cost[-1], count + 1)).astype(np.int64)
    bounds[0], bounds[-1] = 0, n
    return bounds


_largest: dict[int, tuple[weakref.ref[Any], int]] = {}
"""The largest column of rows that cannot change, by the identity of their indices: a fit asks for it all the time."""


def check(rows: Rows, this: NDArray[Any] | None, other: NDArray[Any]) -> None:
    """Raise InvalidData unless there is a row for each of `this` (where given), with columns that are rows of `other`.

    Kernels look at no bounds: what they are given beyond the end of an array they would read, or crash.
    """
    if this is not None and rows.count != len(this):
        raise InvalidData(f"There are {rows.count:,} sparse rows for {len(this):,} vectors.")
    if rows.nnz > len(rows.indices):
        raise InvalidData(f"The rows end at entry {rows.nnz:,}, but there are {len(rows.indices):,}.")
    if rows.nnz and largest_column(rows) >= len(other):
        raise InvalidData(f"The rows hold columns beyond the last one, {len(other) - 1:,}.")


def largest_column(rows: Rows) -> int:
    """The largest column; `2**32` or more where one is negative or the rows' bounds are not ascending."""
    indices, indptr = rows.indices, rows.indptr
    known = _largest.get(id(indices))
    if known is not None and known[0]() is indices:
        return known[1]
    if indptr[0] < 0 or (np.diff(indptr) < 0).any():
        return 2**32
    found = int(indices.view(np.uint32).max(initial=0))  # a negative one is a huge one
    if not indices.flags.writeable and len(indices) > 4096:
        address = id(indices)
        _largest[address] = weakref.ref(indices, lambda _: _largest.pop(address, None)), found
    return found


LAYER = "fairmf's own threads (no OpenMP; safe under fork and threads)"
"""What `fairmf doctor` shows. Numba's layers (NUMBA_THREADING_LAYER) are not used."""
WORTH_WAKING = 4e6  # flops, a millisecond or so: a sleeping thread is awake by then, even on a busy machine
PARTS_PER_THREAD = 4  # so that nobody waits long for a thread whose core was taken away
LONGEST_WAIT = 60.0  # seconds that a fork waits for running kernels
PAUSE = 2e-4  # seconds between two looks, while a fork waits or is waited for


class _Use(threading.local):
    """What the calling thread has asked for."""

    depth = 0  # how many `use` it is inside

    def __init__(self) -> None:
        self.asked: list[list[int]] = []  # numbers of threads, one list each, so that each is told from its equals


_use = _Use()


def most() -> int:
    """Threads there can be: NUMBA_NUM_THREADS, by default the cores this process may use."""
    return int(numba.config.NUMBA_NUM_THREADS)


def count() -> int:
    """Threads that a call of `run` takes here."""
    return _use.asked[-1][0] if _use.asked else most()


@contextlib.contextmanager
def use(num_threads: int) -> Iterator[None]:
    """Take this many threads (0: all) for calls of `run` by this thread. BLAS gets one: the parallelism is ours.

    Of several that are open the one opened last counts. They may be closed in any order: workers in one process are.
    """
    own = [min(num_threads, most()) if num_threads > 0 else most()]
    with one_blas_thread():
        _use.asked.append(own)
        try:
            yield
        finally:
            _use.asked = [other for other in _use.asked if other is not own]


def one_blas_thread() -> AbstractContextManager[None]:
    """Hold BLAS to one thread, in the whole process, while anybody is inside."""
    return _blas.limited()


def run(
    kernel: Callable[..., None], blocks: int, *inputs: Any, out: tuple[NDArray[Any], ...] = (), work: float
) -> None:
    """Call kernel(first, last, *inputs, *out) for ranges of blocks that together are 0..blocks.

    Kernels get read-only views of their inputs, so that each is compiled once, whether or not the caller may write to
    them. `work` is about how many flops that takes: a little is done by the caller alone. Returns, or raises, when no
    thread works on it any more.
    """
    arguments = *(read_only(x) if isinstance(x, np.ndarray) else x for x in inputs), *out
    threads = max(1, min(count(), blocks, int(work / WORTH_WAKING)))
    if threads == 1:
        _call(kernel, 0, blocks, arguments)
        return
    job = _Job(kernel, blocks, arguments, parts=min(blocks, PARTS_PER_THREAD * threads))
    try:
        _helpers.ask(job, threads - 1)
        job.work_as_caller()
    finally:
        job.end()
    if job.error is not None:
        raise job.error


class _Job:
    """One call of `run`: the parts that nobody has begun, and how many helpers are at work."""

    def __init__(self, kernel: Callable[..., None], blocks: int, arguments: tuple[Any, ...], parts: int):
        self.kernel, self.arguments = kernel, arguments
        bounds = [blocks * part // parts for part in range(parts + 1)]
        self.open = iter(list(itertools.pairwise(bounds)))
        self.lock, self.over = threading.Lock(), threading.Lock()
        self.helpers = 0
        self.error: BaseException | None = None
        self.over.acquire()

    def work_as_caller(self) -> None:
        # Ctrl-C may come at any moment, so no lock is held while a part is taken.
        while (part := next(self.open, None)) is not None:
            _call(self.kernel, *part, self.arguments)

    def end(self) -> None:
        """Leave out what nobody has begun, and wait for the helpers: they write into the caller's arrays."""
        stopped: BaseException | None = None
        while True:
            try:
                for _ in self.open:
                    pass
                with self.lock:
                    alone = self.helpers == 0
                if alone or self.over.acquire():
                    break
            except BaseException as error:  # Ctrl-C, which waits as well
                stopped = error
        if stopped is not None:
            raise stopped

    def work_as_helper(self) -> None:
        with self.lock:
            part = next(self.open, None)
            if part is None:
                return
            self.helpers += 1
        while part is not None:
            try:
                _call(self.kernel, *part, self.arguments)
            except BaseException as error:
                self.error = error
                for _ in self.open:
                    pass
            with self.lock:
                part = next(self.open, None)
        with self.lock:  # no part is left, so nobody joins any more: the number only falls
            self.helpers -= 1
            last = self.helpers == 0
        if last:
            self.over.release()


class _Helpers:
    """Threads that wait for jobs. They sleep without using the processor, and end with the process."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.number = 0

    def ask(self, job: _Job, number: int) -> None:
        """Let that many helpers have a look at the job."""
        if self.number < number:
            # Where no thread can be started (a limit, the end of the process) the caller does it all.
            with self.lock, contextlib.suppress(RuntimeError):
                while self.number < number:
                    threading.Thread(target=_help, args=(self.jobs,), name="fairmf", daemon=True).start()
                    self.number += 1
        for _ in range(min(number, self.number)):
            self.jobs.put(job)


def _help(jobs: queue.SimpleQueue[_Job]) -> None:
    _alone(_libraries(by_thread=True))
    while True:
        jobs.get().work_as_helper()


# -- fork -------------------------------------------------------------------------------------------------------------

_inside: set[int] = set()
"""Threads that run a kernel now."""
_forks = threading.RLock()
_forking = False


def _call(kernel: Callable[..., None], first: int, last: int, arguments: tuple[Any, ...]) -> None:
    """Run a part on this thread, but not while another thread forks."""
    me = threading.get_ident()
    try:
        _inside.add(me)
        while _forking:
            _inside.discard(me)
            time.sleep(PAUSE)
            _inside.add(me)
        kernel(first, last, *arguments)
    finally:
        _inside.discard(me)


def _before_fork() -> None:
    """Wait until no kernel runs or is compiled: BLAS and the compiler have locks that a child could never open."""
    global _forking
    _forks.acquire()
    _forking = True
    me, patience = threading.get_ident(), time.monotonic() + LONGEST_WAIT
    while _inside - {me} and time.monotonic() < patience:
        time.sleep(PAUSE)
    global_compiler_lock.acquire()
    _blas.lock.acquire()


def _after_fork_in_parent() -> None:
    global _forking
    _blas.lock.release()
    global_compiler_lock.release()
    _forking = False
    _forks.release()


def _after_fork_in_child() -> None:
    global _helpers
    _helpers = _Helpers()
    _inside.clear()
    _blas.after_fork()
    _after_fork_in_parent()


# -- BLAS -------------------------------------------------------------------------------------------------------------


class _OneBlasThread:
    """Hold BLAS to one thread while anybody is inside: the first one in sets it, the last one out sets it back."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.users = 0
        self.before: list[tuple[Any, int]] = []

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        inside, own = False, _alone(_libraries(by_thread=True))
        try:
            with self.lock:
                if self.users == 0:
                    self.before = _alone(_libraries(by_thread=False))
                self.users += 1
                _use.depth += 1
                inside = True
            yield
        finally:
            _give_back(own)
            if inside:
                with self.lock:
                    self.users -= 1
                    _use.depth -= 1
                    self._end()

    def after_fork(self) -> None:
        """Of those inside, only the thread that forked is left. Called with the lock held."""
        self.users = max(0, min(self.users, _use.depth))
        self._end()

    def _end(self) -> None:
        if self.users == 0:
            _give_back(self.before)
            self.before = []


def _libraries(by_thread: bool) -> list[Any]:
    """The loaded BLAS libraries whose number of threads is set thread by thread (those on OpenMP), or the others."""
    return _loaded(len(sys.modules))[by_thread]


@functools.lru_cache(maxsize=1)
def _loaded(_modules: int) -> tuple[list[Any], list[Any]]:
    """All BLAS libraries: those set once for the process, those set by thread.

    Finding them takes milliseconds, so they are kept until another module is imported: faiss and PyTorch bring a BLAS
    of their own.
    """
    found: tuple[list[Any], list[Any]] = ([], [])
    for library in threadpoolctl.ThreadpoolController().lib_controllers:
        if library.user_api == "blas":
            found[getattr(library, "threading_layer", "") == "openmp"].append(library)
    return found


def _alone(libraries: list[Any]) -> list[tuple[Any, int]]:
    """Give these libraries one thread; returns what they had."""
    before = [(library, library.get_num_threads()) for library in libraries]
    _give_back([(library, 1) for library in libraries])
    return before


def _give_back(numbers: list[tuple[Any, int]]) -> None:
    for library, number in numbers:
        # Newer versions of threadpoolctl (3.8) listen to the first thread that sets a number, and to no other until it
        # lets go. Here one thread may set it and another set it back.
        let_go = getattr(library, "clear_controlling_thread", None)
        if let_go is not None:
            let_go(force=True)
        library.set_num_threads(number)
        if let_go is not None:
            let_go(force=True)


_blas = _OneBlasThread()
_helpers = _Helpers()
if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
