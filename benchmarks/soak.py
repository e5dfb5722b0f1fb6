"""A server's life in short: 8 threads and 4 forked workers recommend, fold in, refit, save, load and are broken off.

Every answer is compared with one that was computed before, on one thread, with nothing else going on. One model is
fitted again and again on two data sets of different sizes while it is asked; an answer must be that of one of the two.
Workers are forked while the threads are at work. Some of them are sent Ctrl-C in the middle of a fit, and must end with
the model of a complete epoch. Memory must not grow: the resident size is read every second.
"""

from __future__ import annotations

import collections
import logging
import os
import pickle
import random
import select
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result import Result
from fairmf.data.interactions import Interactions
from fairmf.data.synthetic import synthetic
from fairmf.models.als import FairALS
from fairmf.models.model_file import load_model

THREADS, WORKERS = 8, 4
SECONDS, SECONDS_SHORT = 600.0, 30.0
EPOCHS = 8  # of a fit that is broken off
N = 10
READY = b"!"
GROWTH_ALLOWED = 0.1  # of the resident size, from the first third of the run to the last
HISTORIES = [[k, 2 * k + 1, 90 - k] for k in range(40)]


def run(short: bool) -> Result:
    """The benchmark: 30 seconds, or ten minutes."""
    return soak(SECONDS_SHORT if short else SECONDS)


def soak(seconds: float) -> Result:
    """Run for so long; raise AssertionError if any answer was wrong or memory grew."""
    # A shell starts background jobs with Ctrl-C switched off; the fits below wait for it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning)
    logging.getLogger("fairmf").setLevel(logging.ERROR)  # fits that are broken off say so
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        sizes = server.live(seconds)
    result = Result(
        "Soak: threads, forks, refits and Ctrl-C at the same time",
        f"{THREADS} threads and {WORKERS} forked workers, {seconds:.0f} s; every answer against one computed serially.",
        ["operation", "times", "wrong"],
    )
    result.rows = [[name, count, server.wrong[name]] for name, count in sorted(server.done.items())]
    third = max(1, len(sizes) // 3)
    first, last = (float(np.median(part)) for part in (sizes[third : 2 * third] or sizes, sizes[-third:]))
    result.findings = [
        f"{sum(server.done.values()):,} operations, {sum(server.wrong.values())} wrong answers.",
        f"Resident memory: {sizes[0]:.0f} MB at the start, {first:.0f} in the middle third, {last:.0f} in the last.",
    ]
    problems = [*server.problems[:5]]
    if last > first * (1 + GROWTH_ALLOWED) and seconds >= SECONDS_SHORT:
        problems.append(f"memory grew from {first:.0f} to {last:.0f} MB")
    if problems:
        raise AssertionError("\n".join([result.markdown(), *problems]))
    return result


class Oracle:
    """What a fit on one data set answers, computed once on one thread."""

    def __init__(self, n_users: int, n_items: int, n_interactions: int):
        made = synthetic(n_users, n_items, n_interactions)
        self.data = Interactions(made.by_user, made.n_items)
        self.model = settings(num_threads=1).fit(self.data, progress=False)
        self.users = np.arange(self.data.n_users)
        self.lists = self.model.recommend(self.users, N=N)
        self.dialled = self.model.recommend(self.users, N=N, fairness=2.0)
        self.folded = [self.model.fold_in_user(history) for history in HISTORIES]
        self.similar = self.model.similar_items(np.arange(100), N=N)


def settings(**more: Any) -> FairALS:
    return FairALS(**{"factors": 16, "epochs": 2, **more})


def same(found: Any, expected: Any) -> bool:
    """Equal to the bit, arrays or tuples of them."""
    if isinstance(expected, tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    return np.array_equal(found, expected, equal_nan=True)


def some(lists: tuple[Any, ...], rows: Any) -> tuple[Any, ...]:
    return tuple(part[rows] for part in lists)


class Server:
    """The model that is served, what is known of it, and what has been done and gone wrong so far."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.oracles = [Oracle(1500, 400, 30_000), Oracle(700, 1100, 20_000)]
        self.fewest = min(len(oracle.users) for oracle in self.oracles)
        self.served = settings().fit(self.oracles[0].data, progress=False)
        data = self.oracles[0].data
        self.by_epochs = [
            settings(epochs=epochs, num_threads=1).fit(data, progress=False).user_factors
            for epochs in range(1, EPOCHS + 1)
        ]
        self.file = folder / "shared.fairmf"
        self.oracles[0].model.save(self.file)
        self.refits = threading.Lock()
        self.done: collections.Counter[str] = collections.Counter()
        self.wrong: collections.Counter[str] = collections.Counter()
        self.problems: list[str] = []
        self.over = threading.Event()

    # -- what is asked: each says whether the answer was right ------------------------------------------------------

    def recommend_while_refitted(self, draw: random.Random) -> bool:
        rows = np.array(draw.sample(range(self.fewest), draw.choice((1, 5, 300))))
        found = self.served.recommend(rows, N=N)
        return any(same(found, some(oracle.lists, rows)) for oracle in self.oracles)

    def fold_in_while_refitted(self, draw: random.Random) -> bool:
        k = draw.randrange(len(HISTORIES))
        found = self.served.fold_in_user(HISTORIES[k])
        return any(same(found, oracle.folded[k]) for oracle in self.oracles)

    def similar_while_refitted(self, draw: random.Random) -> bool:
        rows = np.array(draw.sample(range(100), 5))
        found = self.served.similar_items(rows, N=N)
        return any(same(found, some(oracle.similar, rows)) for oracle in self.oracles)

    def recommend_dialled(self, draw: random.Random) -> bool:
        oracle = draw.choice(self.oracles)
        rows = np.array(draw.sample(range(self.fewest), 20))
        return same(oracle.model.recommend(rows, N=N, fairness=2.0), some(oracle.dialled, rows))

    def fit_beside(self, draw: random.Random) -> bool:
        oracle = draw.choice(self.oracles)
        return same(settings().fit(oracle.data, progress=False).user_factors, oracle.model.user_factors)

    def refit_what_is_served(self, draw: random.Random) -> bool:
        if not self.refits.acquire(blocking=False):
            return self.recommend_while_refitted(draw)
        try:
            oracle = draw.choice(self.oracles)
            self.served.fit(oracle.data, progress=False)
            return same(self.served.user_factors, oracle.model.user_factors)
        finally:
            self.refits.release()

    def save_and_load(self, draw: random.Random) -> bool:
        oracle = draw.choice(self.oracles)
        path = self.folder / f"{os.getpid()}-{threading.get_ident()}.fairmf"
        oracle.model.save(path)
        loaded = load_model(path, mmap=draw.random() < 0.5)
        path.unlink()
        rows = np.array(draw.sample(range(self.fewest), 50))
        return same(loaded.recommend(rows, N=N), some(oracle.lists, rows))

    def load_while_replaced(self, draw: random.Random) -> bool:
        if draw.random() < 0.3:
            draw.choice(self.oracles).model.save(self.file)
            return True
        rows = np.array(draw.sample(range(self.fewest), 50))
        found = load_model(self.file, mmap=draw.random() < 0.5).recommend(rows, N=N)
        return any(same(found, some(oracle.lists, rows)) for oracle in self.oracles)

    # -- who asks ---------------------------------------------------------------------------------------------------

    def live(self, seconds: float) -> list[float]:
        """Let all of them work; returns the resident size, second by second."""
        workers = [threading.Thread(target=self.work, args=(k,)) for k in range(THREADS)]
        workers += [threading.Thread(target=self.fork, args=(k,)) for k in range(WORKERS)]
        for worker in workers:
            worker.start()
        sizes, until = [], time.monotonic() + seconds
        while time.monotonic() < until and not self.problems:
            time.sleep(min(1.0, seconds / 10))
            sizes.append(resident_megabytes())
        self.over.set()
        for worker in workers:
            worker.join()
        return sizes

    def work(self, number: int) -> None:
        """One thread of the server."""
        draw = random.Random(number)
        asks: list[Callable[[random.Random], bool]] = [
            *3 * [self.recommend_while_refitted], *2 * [self.fold_in_while_refitted], self.similar_while_refitted,
            self.recommend_dialled, self.refit_what_is_served, self.save_and_load, self.load_while_replaced,
        ]  # fmt: skip
        while not self.over.is_set():
            self.count("thread", draw.choice(asks), draw)

    def count(self, who: str, ask: Callable[[Any], bool], draw: Any) -> None:
        name = f"{who}: {ask.__name__.replace('_', ' ')}"
        try:
            right, why = ask(draw), "a wrong answer"
        except Exception as error:
            right, why = False, repr(error)
        self.done[name] += 1
        if not right:
            self.wrong[name] += 1
            self.problems.append(f"{name}: {why}")

    def fork(self, number: int) -> None:
        """Keep one worker alive: fork it, hear what it did, fork the next one."""
        draw = random.Random(100 + number)
        while not self.over.is_set():
            broken_off = draw.random() < 0.3
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                self._child(read, write, broken_off, draw.random())
            os.close(write)
            if broken_off and os.read(read, 1) == READY:
                time.sleep(draw.random())
                os.kill(child, signal.SIGINT)
                while not select.select([read], [], [], 5.0)[0]:  # Python loses one that comes inside a destructor
                    os.kill(child, signal.SIGINT)
            with os.fdopen(read, "rb") as pipe:
                said = pipe.read()
            status = os.waitpid(child, 0)[1]
            if not said:
                self.problems.append(f"a worker ended with status {status} and said nothing")
                return
            done, wrong, problems = pickle.loads(said)
            self.done.update(done)
            self.wrong.update(wrong)
            self.problems += problems

    def _child(self, read: int, write: int, broken_off: bool, seed: float) -> None:
        """What a forked worker does; does not return."""
        try:
            os.close(read)
            self.done.clear()
            self.wrong.clear()
            self.problems.clear()
            self.refits = threading.Lock()
            draw = random.Random(seed)
            if broken_off:
                self.count("worker", self.fit_until_ctrl_c, write)
            else:
                asks = [self.recommend_while_refitted, self.fold_in_while_refitted, self.recommend_dialled]
                asks += [self.fit_beside, self.refit_what_is_served, self.save_and_load, self.load_while_replaced]
                for _ in range(20):
                    self.count("worker", draw.choice(asks), draw)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            with os.fdopen(write, "wb") as pipe:
                pickle.dump((dict(self.done), dict(self.wrong), self.problems), pipe)
        finally:
            os._exit(0)

    def fit_until_ctrl_c(self, write: int) -> bool:
        """A fit that ends early has the model of a complete epoch, or none at all."""
        try:
            os.write(write, READY)
            while True:
                model = settings(epochs=EPOCHS).fit(self.oracles[0].data, progress=False)
                if not any(same(model.user_factors, expected) for expected in self.by_epochs):
                    return False
                if model.history.verdict == "interrupted":
                    return True
        except KeyboardInterrupt:
            return True


def resident_megabytes() -> float:
    """What this process holds in memory now."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
