"""Run kernels on several threads, safely under fork, Ctrl-C and callers with threads of their own.

1. `use` sets how many threads calls of `run` inside it take, and limits BLAS to one thread meanwhile.
2. `run` splits a kernel's blocks into parts. The caller and waiting helper threads each take the next part when free.
   Blocks depend on the data alone, so bits do not depend on which thread computes which part.
3. Before a fork, running parts finish and no new one starts, so that a child never inherits a lock that is held. The
   child has no helper threads: it starts its own when it first needs them.

docs/decisions/0016-threads.md says why these are not Numba's own threads.
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
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numba
import numpy as np
import threadpoolctl
from numba.core.compiler_lock import global_compiler_lock
from numpy.typing import NDArray

from fairmf.errors import NotFinite
from fairmf.types import Array, frozen

# Fixed partitions of rows: a block is the smallest unit of work of a thread, and the unit of every ordered reduction.
#
# They depend on the data alone, never on the number of threads: that is what makes results bit-identical.


COUNT = 256  # enough blocks for any machine's cores, few enough that one scratch buffer per block costs nothing


def even(n: int, size: int, most: int = COUNT) -> NDArray[np.int64]:
    """Return bounds of blocks of about equal length: `size` rows at most, or more if there would be over `most`."""
    count = max(1, min(most, -(-n // size)))
    return (np.arange(count + 1, dtype=np.int64) * n) // count


def balanced(indptr: NDArray[np.int64], cost_per_row: float, count: int = COUNT) -> NDArray[np.int64]:
    """Return bounds of blocks of about equal cost, where a row costs its number of entries plus `cost_per_row`."""
    n = len(indptr) - 1
    if n <= 1:
        return np.array([0, n])
    count = min(count, n)
    cost = indptr + np.arange(n + 1) * cost_per_row
    bounds = np.searchsorted(cost, np.linspace(0, cost[-1], count + 1)).astype(np.int64)
    bounds[0], bounds[-1] = 0, n
    return bounds


LAYER = "fairmf's own threads (no OpenMP; safe under fork and threads)"
"""The line of `fairmf doctor` about threads. Numba's layers (NUMBA_THREADING_LAYER) are not used."""
WORTH_WAKING = 4e6  # flops per thread, about a millisecond: waking a sleeping thread takes that long on a busy machine
SHARE = 3  # a part is a third of what is left for each thread: large at first, small in the end, so that nobody waits
SMALLEST = 5e5  # flops of a part, much more than what it takes to begin one
LONGEST_WAIT = 60.0  # seconds that a fork waits for running kernels
PAUSE = 2e-4  # seconds between two checks, while a fork waits or is waited for

Arguments: TypeAlias = tuple[Any, ...]
"""The arguments of a kernel: arrays, numbers and None."""
Library: TypeAlias = "threadpoolctl.LibController"
"""A loaded BLAS library whose number of threads can be set."""


class _Use(threading.local):
    """Hold the settings of the calling thread."""

    def __init__(self) -> None:
        # A number of threads for each `use` it is inside, in a list of its own: `use` finds its own by identity.
        self.asked: list[list[int]] = []


_use = _Use()


def count() -> int:
    """Return how many threads a call of `run` takes here: as many as `use` asked for, by default all.

    There are NUMBA_NUM_THREADS at most, by default the cores that this process may use.
    """
    most = int(numba.config.NUMBA_NUM_THREADS)
    asked = _use.asked[-1][0] if _use.asked else 0
    return min(asked, most) if asked > 0 else most


@contextlib.contextmanager
def use(num_threads: int | None) -> Iterator[None]:
    """Let calls of `run` by this thread take this many threads (0: all; None: as many as before), and BLAS only one.

    `run` is the parallelism, so BLAS is limited in the whole process: each caller limits the libraries that are loaded
    when it enters, the last to leave restores them. If several are open, the one opened last counts. They may close in
    any order, as workers in one process do.
    """
    own = [_use.asked[-1][0] if num_threads is None and _use.asked else num_threads or 0]
    inside, here = False, _set_threads([(library, 1) for library in _loaded(len(sys.modules)).by_thread])
    try:
        with _blas.lock:
            # Also inside another: a library may have been loaded since. What was limited first is restored last.
            _blas.before = _set_threads([(each, 1) for each in _loaded(len(sys.modules)).by_process]) + _blas.before
            _blas.users += 1
            _use.asked.append(own)
            inside = True
        yield
    finally:
        _set_threads(here)
        if inside:
            with _blas.lock:
                _blas.users -= 1
                _use.asked = [other for other in _use.asked if other is not own]
                if _blas.users == 0:
                    _set_threads(_blas.before)
                    _blas.before = []


def run(
    kernel: Callable[..., None], blocks: int, *inputs: object, out: tuple[Array | None, ...] = (), work: float
) -> None:
    """Call kernel(first, last, *inputs, *out) on several threads, for ranges of blocks that together are 0..blocks.

    Kernels get read-only views of their inputs, so that Numba compiles each once, for writable and read-only arrays
    alike. `work` estimates the flops: the caller does small work alone. It returns, or raises, when all threads have
    finished.
    """
    # The condition spares a call for each array that is read-only already: a request has a dozen of them.
    arguments = *[frozen(x) if isinstance(x, np.ndarray) and x.flags.writeable else x for x in inputs], *out
    threads = max(1, min(count(), blocks, int(work / WORTH_WAKING)))
    if threads == 1:
        _call(kernel, 0, blocks, arguments)
        return
    job, helpers = (
        _Job(kernel, blocks, arguments, SHARE * threads, smallest=-(-int(blocks * SMALLEST) // int(work))),
        _helpers,
    )
    try:
        if helpers.number < threads - 1:
            # Where no thread can be started (a limit, the end of the process) the caller does all the work.
            with helpers.lock, contextlib.suppress(RuntimeError):
                while helpers.number < threads - 1:
                    threading.Thread(target=_help, args=(helpers.jobs,), name="fairmf", daemon=True).start()
                    helpers.number += 1
        for _ in range(min(threads - 1, helpers.number)):
            helpers.jobs.put(job)
        # Ctrl-C may raise at any moment, so no lock is held while a part is taken; `next` alone is atomic.
        while (part := next(job.open, None)) is not None:
            _call(kernel, *part, arguments)
    finally:
        job.end()
    if job.error is not None:
        raise job.error


class _Job:
    """Hold one call of `run`: the parts that no thread has taken yet, and how many helpers are working."""

    def __init__(self, kernel: Callable[..., None], blocks: int, arguments: Arguments, share: int, smallest: int):
        self.kernel, self.arguments = kernel, arguments
        bounds = [0]
        while (left := blocks - bounds[-1]) > 0:
            bounds.append(bounds[-1] + min(left, max(smallest, left // share)))
        self.open = iter(list(itertools.pairwise(bounds)))
        # `over` is a signal: taken below, released by the last helper, and `end` waits for it.
        self.lock, self.over = threading.Lock(), threading.Lock()
        self.helpers = 0
        self.error: BaseException | None = None
        self.over.acquire()

    def end(self) -> None:
        """Drop the parts that no thread has taken, and wait for the helpers: they write into the caller's arrays."""
        stopped: BaseException | None = None
        while True:
            try:
                for _ in self.open:
                    pass
                with self.lock:
                    alone = self.helpers == 0
                if alone or self.over.acquire():
                    break
            except BaseException as error:  # Ctrl-C: raise it only when the helpers have finished
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
                # The call will raise, so nobody needs the parts that are left.
                self.error = error
                for _ in self.open:
                    pass
            with self.lock:
                part = next(self.open, None)
        with self.lock:  # no part is left, so no other helper joins: the number only falls
            self.helpers -= 1
            last = self.helpers == 0
        if last:
            self.over.release()


class _Helpers:
    """Keep threads that wait for jobs. They sleep while they wait, and end with the process."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.number = 0


def _help(jobs: queue.SimpleQueue[_Job]) -> None:
    _set_threads([(library, 1) for library in _loaded(len(sys.modules)).by_thread])
    while True:
        jobs.get().work_as_helper()


# -- fork -------------------------------------------------------------------------------------------------------------

# Adding to a set and discarding from it are atomic in CPython: there is no lock that a fork could catch held.
_inside: set[int] = set()
"""Idents of the threads that are running a kernel."""
_forks = threading.RLock()
_forking = False


def _call(kernel: Callable[..., None], first: int, last: int, arguments: Arguments) -> None:
    """Run a part on this thread, after waiting for any fork in progress. Division by zero raises NotFinite."""
    me = threading.get_ident()
    try:
        # Announce first, then look: a fork that starts in between sees this thread and waits for it.
        _inside.add(me)
        while _forking:
            _inside.discard(me)
            time.sleep(PAUSE)
            _inside.add(me)
        kernel(first, last, *arguments)
    except (SystemError, ZeroDivisionError) as error:
        if not isinstance(error.__cause__ or error, ZeroDivisionError):  # Numba raises SystemError from it
            raise
        raise NotFinite("A kernel divides by zero: numbers are too large or too small.") from error
    finally:
        _inside.discard(me)


def _before_fork() -> None:
    """Wait until no kernel runs or compiles: a child could never release the locks of BLAS and of the compiler."""
    global _forking
    _forks.acquire()
    _forking = True
    me, patience = threading.get_ident(), time.monotonic() + LONGEST_WAIT
    while _inside - {me} and time.monotonic() < patience:
        time.sleep(PAUSE)
    # Released after the fork in the reverse order, in the parent and in the child.
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
    # Of all who needed BLAS limited, only the thread that forked exists in the child. The lock is still held.
    _blas.users = max(0, min(_blas.users, len(_use.asked)))
    if _blas.users == 0:
        _set_threads(_blas.before)
        _blas.before = []
    _after_fork_in_parent()


# -- BLAS -------------------------------------------------------------------------------------------------------------


class _BlasLimit:
    """Count who needs BLAS limited to one thread, and remember the numbers to restore."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.users = 0
        self.before: list[tuple[Library, int]] = []


class _Libraries(NamedTuple):
    """Hold the loaded BLAS libraries, by how their number of threads is set."""

    by_process: list[Library]
    by_thread: list[Library]
    """Those on OpenMP, where each thread of ours has a number of its own."""


@functools.lru_cache(maxsize=1)
def _loaded(_modules: int) -> _Libraries:
    """Find the BLAS libraries in this process.

    That takes milliseconds, so the answer is cached until the number of imported modules changes: faiss and PyTorch
    bring a BLAS of their own.
    """
    found = _Libraries([], [])
    for library in threadpoolctl.ThreadpoolController().lib_controllers:
        if library.user_api == "blas":
            found[getattr(library, "threading_layer", "") == "openmp"].append(library)
    return found


def _set_threads(numbers: list[tuple[Library, int]]) -> list[tuple[Library, int]]:
    """Give libraries these numbers of threads; return those that had another, with the number they had."""
    before = []
    for library, number in numbers:
        had = library.get_num_threads()
        if had == number:
            continue
        before.append((library, had))
        # threadpoolctl 3.8 and later accept a number only from the thread that set it first, until that one lets go.
        # Here one thread may limit a library and another restore it.
        let_go = getattr(library, "clear_controlling_thread", None)
        if let_go is not None:
            let_go(force=True)
        library.set_num_threads(number)
        if let_go is not None:
            let_go(force=True)
    return before


_blas = _BlasLimit()
_helpers = _Helpers()
if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
