"""A child made by fork answers as its parent does, whatever the parent has done or is doing."""

import importlib.util
import os
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

PROGRAM = str(Path(__file__).with_name("forked_models.py"))


@pytest.mark.slow
def test_children_answer_as_their_parent(tmp_path):
    # NUMBA_NUM_THREADS: several threads on any machine. NUMBA_THREADING_LAYER: nothing may hang on it.
    environment = os.environ | {"NUMBA_NUM_THREADS": "3", "NUMBA_THREADING_LAYER": "workqueue"}
    subprocess.run([sys.executable, PROGRAM, "make", tmp_path], env=environment, check=True, timeout=300)
    serve = [sys.executable, PROGRAM, "serve", tmp_path]
    run = subprocess.run(serve, env=environment, capture_output=True, text=True, timeout=300)
    assert (run.stdout.strip(), run.returncode) == ("the same", 0), run.stderr[-2000:]


QUICK = """
import os, signal, threading, warnings
import numpy as np
from fairmf import FairALS, synthetic
warnings.simplefilter("ignore")
signal.signal(signal.SIGTERM, lambda *_: None)
data = synthetic(1000, 600, 20_000)
model = FairALS(factors=16, epochs=2).fit(data, progress=False)
ids, scores = model.recommend(data.user_ids.values, N=10)

def same():
    found = model.recommend(data.user_ids.values, N=10)
    return (found[0] == ids).all() and np.array_equal(found[1], scores, equal_nan=True)

child = os.fork()
if child == 0:
    os._exit(0 if same() else 3)
wrong = []
def ask():
    for _ in range(5):
        if not same():
            wrong.append(1)
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("child", os.waitpid(child, 0)[1], "wrong", len(wrong))
"""


def test_a_child_and_threads_that_share_a_process_where_numba_has_no_openmp():
    environment = os.environ | {"NUMBA_NUM_THREADS": "3", "NUMBA_THREADING_LAYER": "workqueue"}
    run = subprocess.run(
        [sys.executable, "-c", QUICK], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (run.stdout.strip(), run.returncode) == ("child 0 wrong 0", 0), run.stderr[-2000:]


APPLICATION = """
import json, os
from fairmf import load_model
model = load_model("model.fairmf")
users = model.fitted.user_ids.values
if os.environ["WARM"] == "yes":
    model.recommend(users[:100], N=10)

def application(environ, start_response):
    number = int(environ["PATH_INFO"].strip("/"))
    ids, scores = model.recommend(users[number : number + 100], N=10)
    vector = model.fold_in_user(list(ids[0]))
    body = json.dumps([ids.tolist(), scores.tolist(), vector.tolist()]).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("gunicorn") is None, reason="gunicorn is not installed")
@pytest.mark.parametrize("warm", ["no", "yes"])
def test_gunicorn_with_a_model_loaded_before_it_forks(tmp_path, warm):
    import json

    from fairmf import FairALS, synthetic

    data = synthetic(1000, 400, 20_000)
    model = FairALS(factors=16, epochs=2).fit(data)
    model.save(tmp_path / "model.fairmf")
    (tmp_path / "application.py").write_text(APPLICATION)
    log = tmp_path / "log"
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers=2", "--threads=2", "--bind=127.0.0.1:0"]
    with log.open("w") as file:
        server = subprocess.Popen(
            [*command, "application:application"],
            cwd=tmp_path,
            stdout=file,
            stderr=file,
            env=os.environ | {"WARM": warm},
        )
    try:
        address = listening_at(log, server)

        def ask(number):
            with urllib.request.urlopen(f"{address}/{number}", timeout=60) as answer:
                return number, json.load(answer)

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(ask, [k % 12 for k in range(24)]))
    finally:
        server.terminate()
        server.wait(timeout=30)
    users = data.user_ids.values
    for number, (ids, scores, vector) in answers:
        expected = model.recommend(users[number : number + 100], N=10)
        assert ids == expected[0].tolist()
        assert scores == expected[1].tolist()
        assert vector == model.fold_in_user(list(expected[0][0])).tolist()


def listening_at(log, server, patience=60.0):
    """The address that gunicorn writes into its log."""
    until = time.monotonic() + patience
    while time.monotonic() < until and server.poll() is None:
        for line in log.read_text().splitlines():
            if "Listening at: " in line:
                return line.split("Listening at: ")[1].split()[0]
        time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.mark.slow
def test_a_short_soak():
    """As `python -m benchmarks soak`, which runs for longer: threads, forks, refits and Ctrl-C at the same time."""
    code = "from benchmarks.soak import soak; soak(5)"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
