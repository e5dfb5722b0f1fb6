"""`fairmf serve` under load: requests a second at a latency, against FastAPI with implicit, on one machine.

A load generator in a process of its own sends requests at a fixed rate, whatever is answered (serving_load.py); latency
counts from when a request was due. Histories have 20 items, lists 20, and every request has an evenness of its own. The
models have random vectors (serving_model.py). The peer (serving_peer.py) has the same vectors and no evenness.

The generator shares the machine with the server: what it takes, the server lacks.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.result import Result
from benchmarks.serving_model import save_for_implicit, synthetic_model

SHAPE = (20_108, 128)  # items and factors of MovieLens-20M
LIMIT = 25.0  # ms of p99 at which throughputs are compared
ROOT = Path(__file__).resolve().parents[1]


def run(short: bool) -> Result:
    """The benchmark: a minute, or the long run of five minutes and the search for the highest rates."""
    result = Result(
        "Serving over HTTP",
        f"{SHAPE[0]:,} items, {SHAPE[1]} factors, exact; histories and lists of 20 items, evenness random per request; "
        "open loop on 127.0.0.1, the generator on the same machine.",
        ["server", "workers", "rate asked", "seconds", "answered", "errors", "p50, ms", "p90", "p99", "max"],
    )
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        model = synthetic_model(*SHAPE)
        model.save(folder / "model.fairmf", interactions=False)
        write_bodies(folder / "bodies.jsonl", SHAPE[0])
        started = steady(result, folder, 1000.0, 15.0 if short else 300.0)
        result.findings.append(f"From start to ready {started:.1f} s, kernels compiled before.")
        killed(result, folder, 1000.0, 15.0 if short else 30.0)
        if not short:
            save_for_implicit(model, folder / "implicit.npz")
            compare(result, folder)
    return result


def steady(result: Result, folder: Path, rate: float, seconds: float) -> float:
    """One worker at a constant rate; returns the seconds from start to ready."""
    with server(ours(folder / "model.fairmf", 1)) as running:
        load(running.port, folder, 200.0, 2.0)
        sizes: list[float] = []
        told = load(running.port, folder, rate, seconds, running.pid, sizes)
        add(result, "fairmf serve", 1, rate, told)
    third = max(1, len(sizes) // 3)
    first, last = sum(sizes[:third]) / third, sum(sizes[-third:]) / third
    result.findings.append(f"Memory of the server: {first:.0f} MB in the first third, {last:.0f} MB in the last.")
    return running.seconds


def killed(result: Result, folder: Path, rate: float, seconds: float) -> None:
    """Two workers, one of which is killed (SIGKILL) now and then: what is in flight there is lost."""
    with server(ours(folder / "model.fairmf", 2)) as running:
        load(running.port, folder, 200.0, 2.0)
        kills = [seconds * share for share in ([0.5] if seconds < 30 else [0.3, 0.6])]
        threads = [threading.Timer(after, kill_a_worker, [running.pid]) for after in kills]
        for thread in threads:
            thread.start()
        told = load(running.port, folder, rate, seconds)
        add(result, f"fairmf serve, {len(kills)} workers killed", 2, rate, told)
    share = 1 - told["errors"] / told["sent"]
    result.findings.append(f"With {len(kills)} kills in {seconds:.0f} s, {share:.4%} of the requests were answered.")


def kill_a_worker(supervisor: int) -> None:
    os.kill(max(children(supervisor)), signal.SIGKILL)


def compare(result: Result, folder: Path) -> None:
    """The highest rates at which p99 stays below the limit, ours and the peer's, with one worker and with two."""
    best: dict[str, float] = {}
    for workers in (1, 2):
        peer = (
            [sys.executable, "-m", "uvicorn", "benchmarks.serving_peer:app", "--workers", str(workers), "--log-level",
             "warning", "--port"],
            {"IMPLICIT_MODEL": str(folder / "implicit.npz"), "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        rates = {"fairmf serve": (1000, 1250, 1500, 1750, 2000), "FastAPI + implicit": (200, 400, 600, 800, 1000)}
        for name, how in (("fairmf serve", ours(folder / "model.fairmf", workers)), ("FastAPI + implicit", peer)):
            with server(how) as running:
                load(running.port, folder, 150.0, 3.0)
                for rate in rates[name]:
                    told = load(running.port, folder, float(rate), 6.0)
                    add(result, name, workers, rate, told)
                    if told["p99"] > LIMIT or told["errors"]:
                        break
                    best[name] = max(best.get(name, 0.0), float(rate))
    own, other = best.get("fairmf serve", 0.0), best.get("FastAPI + implicit", 0.0)
    ratio = f"{own / other:.1f} times" if other else "no rate of the peer was low enough to compare with"
    result.findings.append(
        f"Highest rate tried with p99 below {LIMIT:.0f} ms and no error, the better of one and two workers: "
        f"fairmf serve {own:.0f} a second, FastAPI + implicit {other:.0f} ({ratio})."
    )


def add(result: Result, name: str, workers: int, rate: float, told: dict[str, Any]) -> None:
    result.rows.append(
        [name, workers, f"{rate:.0f}", f"{told['seconds']:.0f}", f"{told['answered']:,}", told["errors"],
         *(told[q] for q in ("p50", "p90", "p99", "max"))]
    )  # fmt: skip
    print(result.rows[-1], file=sys.stderr, flush=True)


# -- servers ----------------------------------------------------------------------------------------------------------


def ours(model: Path, workers: int, *flags: str) -> tuple[list[str], dict[str, str]]:
    """The command of our server, without its port."""
    code = "from fairmf.cli import main; main()"
    return [sys.executable, "-c", code, "serve", str(model), "-q", "--workers", str(workers), *flags, "--port"], {}


class Running:
    """A server that answers."""

    def __init__(self, port: int, pid: int, seconds: float):
        self.port, self.pid, self.seconds = port, pid, seconds


@contextlib.contextmanager
def server(how: tuple[Sequence[str], dict[str, str]]) -> Iterator[Running]:
    """Start a server on a free port, wait until it is ready, and stop it in the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.perf_counter()
    process = subprocess.Popen([*how[0], str(port)], env={**os.environ, **how[1]}, cwd=ROOT)
    try:
        while not is_ready(port):
            if process.poll() is not None or time.perf_counter() - began > 120:
                raise RuntimeError("The server did not start.")
            time.sleep(0.02)
        yield Running(port, process.pid, time.perf_counter() - began)
    finally:
        process.terminate()
        process.wait(30)


def is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/healthz/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


# -- load -------------------------------------------------------------------------------------------------------------


def write_bodies(path: Path, n_items: int, count: int = 5000) -> None:
    """Requests: random histories, a random evenness each."""
    draw = random.Random(1)
    asked = [
        {"history": draw.sample(range(n_items), 20), "n": 20, "evenness": round(draw.random(), 3)} for _ in range(count)
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in asked), encoding="utf-8")


def load(
    port: int, folder: Path, rate: float, seconds: float, pid: int | None = None, sizes: list[float] | None = None
) -> dict[str, Any]:
    """Run the generator; note the memory of a process every second meanwhile."""
    command = [sys.executable, "-m", "benchmarks.serving_load", "--port", str(port), "--rate", str(rate)]
    command += ["--seconds", str(seconds), "--bodies", str(folder / "bodies.jsonl")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        while process.poll() is None:
            if pid is not None and sizes is not None:
                sizes.append(resident_megabytes(pid))
            time.sleep(min(1.0, seconds / 10))
        out, _ = process.communicate()
    finally:
        process.kill()
    told: dict[str, Any] = json.loads(out)
    return told


def children(pid: int) -> list[int]:
    """Processes that a process spawned as workers."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((place / "stat").read_text(encoding="latin-1").rpartition(")")[2].split()[1])
            if parent == pid and b"spawn_main" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
    return found


def resident_megabytes(pid: int) -> float:
    """Resident memory of a process and its workers."""
    pages = 0
    for one in (pid, *children(pid)):
        with contextlib.suppress(OSError, ValueError, IndexError):
            pages += int(Path(f"/proc/{one}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
