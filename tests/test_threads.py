"""Test kernels on several threads: every block runs once, errors and Ctrl-C wait for helpers, BLAS is restored."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import numba
import numpy as np
import pytest
import threadpoolctl

from fairmf import threads
from fairmf.backends.contract import Effort, HalfStep
from fairmf.backends.registry import get_backend
from fairmf.data import csr
from fairmf.data.csr import Rows, check_rows
from fairmf.errors import InvalidData, NotFinite

MUCH = 1e12


@pytest.fixture
def four(monkeypatch):
    """Four threads, however many cores there are."""
    monkeypatch.setattr(threads.numba.config, "NUMBA_NUM_THREADS", 4)


@pytest.fixture
def two_blas_threads():
    """BLAS with two threads; yields a function that says how many it has."""

    def now():
        return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}

    with threadpoolctl.threadpool_limits(2, "blas"):
        if now() != {2}:
            pytest.skip("this BLAS has one thread")
        yield now


@pytest.mark.parametrize("count", [1, 2, 3, 16, 17, 257])
def test_every_block_is_done_once(four, count):
    done, workers = np.zeros(count, dtype=int), set()

    def add_one(low, high, out):
        workers.add(threading.get_ident())
        time.sleep(1e-3)
        out[low:high] += 1

    threads.run(add_one, count, out=(done,), work=MUCH)
    assert done.tolist() == [1] * count
    assert len(workers) <= min(4, count)
    if count == 257:
        assert len(workers) > 1


def test_a_little_work_is_done_by_the_caller_in_one_piece(four):
    calls = []
    threads.run(lambda low, high: calls.append((low, high, threading.get_ident())), 100, work=1e3)
    assert calls == [(0, 100, threading.get_ident())]


@pytest.mark.parametrize("work", [1e3, MUCH])  # on this thread, on several
def test_division_by_zero_ends_in_not_finite_and_other_errors_as_they_are(four, work):
    @numba.njit(nogil=True)
    def divide(low, high, numbers):
        for i in range(low, high):
            numbers[i] = 1 // (numbers[i] - numbers[i])

    def fail(low, high):
        raise SystemError("of another kind")

    with pytest.raises(NotFinite, match="divides by zero"):
        threads.run(divide, 64, out=(np.ones(64, dtype=np.int64),), work=work)
    with pytest.raises(SystemError, match="of another kind"):
        threads.run(fail, 64, work=work)


def test_many_callers_at_once_get_their_own_results(four):
    wrong = []

    def ask(number):
        for _ in range(50):
            out = np.zeros(64, dtype=int)
            threads.run(lambda low, high, out=out: out.__setitem__(slice(low, high), number), 64, work=MUCH)
            if (out != number).any():
                wrong.append(number)

    callers = [threading.Thread(target=ask, args=(number,)) for number in range(1, 9)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=30)
    assert not wrong
    assert not any(caller.is_alive() for caller in callers)


@pytest.mark.parametrize("where", ["caller", "helper"])
def test_an_error_is_raised_when_nobody_works_any_more(four, where):
    caller, running, after = threading.get_ident(), set(), []

    def kernel(low, high):
        me = threading.get_ident()
        running.add(me)
        time.sleep(0.01)
        running.discard(me)
        if (me == caller) == (where == "caller"):
            raise ArithmeticError(where)

    with pytest.raises(ArithmeticError, match=where):
        threads.run(kernel, 64, work=MUCH)
    after.append(set(running))
    assert after == [set()]


@pytest.mark.parametrize("moment", ["at work", "waiting"])
def test_ctrl_c_is_raised_when_nobody_works_any_more(four, moment):
    caller, others, wakes = threading.get_ident(), set(), threading.Event()

    def kernel(low, high):
        me = threading.get_ident()
        if me == caller:
            wakes.wait(timeout=10)
            if moment == "at work":
                os.kill(os.getpid(), signal.SIGINT)
            return
        others.add(me)
        wakes.set()
        time.sleep(0.05)
        if moment == "waiting":  # by now the caller has nothing left to do
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
        others.discard(me)

    with pytest.raises(KeyboardInterrupt):
        threads.run(kernel, 8, work=MUCH)
    assert others == set()


def test_where_no_thread_can_be_started_the_caller_does_it_all(four, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_helpers", threads._Helpers())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    done = np.zeros(50, dtype=int)
    threads.run(lambda low, high: done.__setitem__(slice(low, high), 1), 50, work=MUCH)
    assert done.all()


def test_blas_is_given_back_after_calls_that_overlap(two_blas_threads):
    first_is_in, second_is_in = threading.Event(), threading.Event()
    backend = get_backend("cpu")

    def first():
        with backend.threads(1):
            first_is_in.set()
            second_is_in.wait(timeout=10)

    one = threading.Thread(target=first)
    one.start()
    first_is_in.wait(timeout=10)
    with backend.threads(1):
        second_is_in.set()
        one.join()
        assert two_blas_threads() == {1}  # one is still inside
    assert two_blas_threads() == {2}


def test_blas_is_given_back_after_an_error_inside_another(two_blas_threads):
    backend, before = get_backend("cpu"), threads.count()
    with pytest.raises(KeyError), backend.threads(2), backend.threads(1):
        raise KeyError
    assert two_blas_threads() == {2}
    assert threads.count() == before


# -- kernels look at no bounds: what they are given is checked ---------------------------------------------------------


def rows(indptr, indices):
    return Rows(np.array(indptr, dtype=np.int64), np.array(indices, dtype=np.int32), None)


BAD = [
    (rows([0, 1, 2], [0, 5]), "columns beyond the last one, 4"),
    (rows([0, 1, 2], [0, -1]), "columns beyond the last one, 4"),
    (rows([0, 1], [0]), "1 sparse rows for 2 vectors"),
    (rows([0, 1, 9], [0, 1]), "end at entry 9, but there are 2"),
    (rows([0, 2, 1], [0, 1]), "do not ascend"),
    (rows([-3, 1, 2], [0, 1]), "do not ascend"),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_rows_that_do_not_fit_are_refused_at_the_door(bad, message):
    backend = get_backend("cpu")
    this, other = backend.array(np.ones((2, 3))), backend.array(np.ones((5, 3)))
    items, scores = np.zeros((2, 2), dtype=np.int32), np.zeros((2, 2), dtype=np.float32)
    step = HalfStep(backend, bad, other, np.ones(3), np.ones(2), np.ones(3))
    for ask in (
        lambda: backend.top_k(this, other, 2, bad, items, scores),
        lambda: backend.solve(step),
        lambda: backend.mean_inverse(step),
        lambda: backend.improve(step, this, Effort(1)),
        lambda: backend.residual(step, this),
        lambda: backend.observed_loss(bad, this, other),
        lambda: backend.entry_scores(bad, this, other),
    ):
        with pytest.raises(InvalidData, match=message):
            ask()


def test_the_largest_column_of_rows_that_cannot_change_is_looked_for_once():
    many = rows([0, 5000], np.arange(5000))
    many.indices.flags.writeable = False
    with pytest.raises(InvalidData, match="columns beyond the last one, 4,998"):
        check_rows(many, None, np.ones((4999, 1)))
    assert csr._largest[id(many.indices)][1] == 4999
    many.indices.flags.writeable = True
    many.indices[:] = 0  # breaking the promise shows that nobody looks again
    with pytest.raises(InvalidData, match="columns beyond the last one, 4,998"):
        check_rows(many, None, np.ones((4999, 1)))
    key = id(many.indices)
    del many
    assert key not in csr._largest


def test_uses_may_be_closed_in_any_order():
    before = threads.count()
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    first.enter_context(threads.use(1))
    second.enter_context(threads.use(1))
    first.close()
    assert threads.count() == 1
    second.close()
    assert threads.count() == before


def test_a_blas_that_is_loaded_later_gets_one_thread_too(monkeypatch):
    class Library:
        user_api, number = "blas", 4

        def get_num_threads(self):
            return self.number

        def set_num_threads(self, number):
            self.number = number

    class Controller:
        lib_controllers = ()

    threads._loaded.cache_clear()
    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", Controller)
    with threads.use(1):
        pass
    late = Library()
    Controller.lib_controllers = (late,)
    monkeypatch.setitem(sys.modules, "a module that brings it", threading)
    with threads.use(1):
        assert late.number == 1
    assert late.number == 4
    later = Library()
    with threads.use(1):  # a fit loads its backend inside
        Controller.lib_controllers = (late, later)
        monkeypatch.setitem(sys.modules, "another", threading)
        with threads.use(1):
            assert (late.number, later.number) == (1, 1)
        assert (late.number, later.number) == (1, 1)
    assert (late.number, later.number) == (4, 4)
    threads._loaded.cache_clear()


FIRST_FIT = """
import hashlib, sys
import numpy as np
import scipy.sparse
from fairmf import FairALS

generator = np.random.default_rng(0)
matrix = scipy.sparse.csr_array(generator.random((300, 200)) < 0.1, dtype=np.float32)
assert "scipy.linalg" not in sys.modules
model = FairALS(factors=200, epochs=3, fairness=1.0).fit(matrix)
print(hashlib.sha256(model.item_factors.tobytes()).hexdigest())
"""


def test_the_first_fit_of_a_process_limits_every_blas():
    """SciPy brings one of its own, which is loaded only when the backend is."""
    found = {
        subprocess.run(
            [sys.executable, "-c", FIRST_FIT], env=os.environ | {"OPENBLAS_NUM_THREADS": count},
            capture_output=True, text=True, check=True,
        ).stdout
        for count in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1
