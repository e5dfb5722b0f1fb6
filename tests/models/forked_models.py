"""Fork in every way a server does and compare the children's answers with the parent's.

`python forked_models.py make FOLDER`, then `serve`: says "the same" when all are equal, and what differs otherwise.
"""

import faulthandler
import importlib.util
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import threadpoolctl

from fairmf import FairALS, Interactions, evaluate, load_model, synthetic
from fairmf.backends.registry import get_backend
from fairmf.data.split import HeldOut

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of any fork beside threads
faulthandler.dump_traceback_later(150, exit=True)

DATA = synthetic(n_users=3000, n_items=900, n_interactions=60_000)
USERS = DATA.user_ids.values[:300]
NEW = DATA.take_users(np.arange(200))
differences = []


def half(which):
    """Every second item of the histories of the new users."""
    matrix = NEW.to_csr().copy()
    matrix.data[matrix.indices % 2 != which] = 0
    matrix.eliminate_zeros()
    return Interactions.from_csr(matrix, allow_empty=True)


HELD_OUT = HeldOut(half(0), half(1))


def answers(model):
    """Everything a worker is asked for, as bytes."""
    again = FairALS(factors=16, epochs=1).fit(DATA, progress=False)
    listed = evaluate(again, HELD_OUT, at=(5,), metrics=("ndcg",))
    found = [*model.recommend(USERS, N=20), *model.similar_items(DATA.item_ids.values[3]), model.fold_in(NEW)]
    found += [again.user_factors, *again.recommend(USERS, N=7), np.array(str(listed))]
    return [np.ascontiguousarray(part).astype(str).tobytes() for part in found]


def forked(model):
    """The answers of a child made by os.fork."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(answers(model), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    status = os.waitpid(child, 0)[1]
    return pickle.loads(said) if said else f"nothing, status {status}"


def pooled(model):
    """The answers of two workers of multiprocessing.Pool."""
    pool = multiprocessing.get_context("fork").Pool(2)
    found = pool.map_async(answers, [model, model]).get(timeout=100)
    pool.close()  # leaving it as a context would send SIGTERM and wait, for ever where a handler of ours swallows that
    pool.join()
    return found


def check(when, model, expected):
    for how, found in (("fork", [forked(model)]), ("pool", pooled(model))):
        differences.extend(f"{when}, {how}" for one in found if one != expected)


def in_child(ask):
    """What a child made by os.fork answers, as text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, repr(ask()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def check_blas():
    """A child in which nobody is inside fairmf has BLAS as it was, though a thread of its parent is."""

    def numbers():
        return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]

    before, inside, leave = numbers(), threading.Event(), threading.Event()

    def other():
        with get_backend("cpu").threads(1):
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(30)
    found = set(numbers()), in_child(numbers)
    leave.set()
    thread.join()
    if found != ({1}, repr(before)) or numbers() != before:
        differences.append(f"BLAS threads: {found}, {numbers()} instead of {before}")


def check_index(model):
    """faiss has threads of OpenMP, which do not survive a fork."""
    if importlib.util.find_spec("faiss") is None:
        return
    index = model.to_ann()

    def ask():
        again = model.to_ann()
        return [index.search(model.user_factors, 5)[0].tolist(), again.search(model.user_factors, 5)[0].tolist()]

    if in_child(ask) != repr(ask()):
        differences.append("the index")


def busy(stop):
    """Kernels on all threads, without a pause."""
    while not stop.is_set():
        FairALS(factors=32, epochs=2).fit(DATA, progress=False).recommend(USERS, N=20)


def make(folder):
    FairALS(factors=16, epochs=2).fit(DATA, progress=False).save(f"{folder}/model.fairmf")
    Path(folder, "expected").write_bytes(pickle.dumps(answers(load_model(f"{folder}/model.fairmf"))))


def serve(folder):
    expected = pickle.loads(Path(folder, "expected").read_bytes())
    model = load_model(f"{folder}/model.fairmf")
    check("before the parent has run any kernel", model, expected)
    if answers(model) != expected:
        differences.append("the parent")
    check("after the parent has run kernels", model, expected)
    check_blas()
    check_index(model)
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    check("with a handler of SIGTERM", model, expected)
    signal.signal(signal.SIGTERM, before)
    stop = threading.Event()
    others = [threading.Thread(target=busy, args=(stop,)) for _ in range(2)]
    for other in others:
        other.start()
    for _ in range(6):
        time.sleep(0.03)
        if forked(model) != expected:
            differences.append("a fork while other threads run kernels")
    stop.set()
    for other in others:
        other.join()
    sys.stdout.write("\n".join(differences) or "the same")


if __name__ == "__main__":
    {"make": make, "serve": serve}[sys.argv[1]](sys.argv[2])
