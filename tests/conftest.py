"""Fixtures for all tests: small random problems, the table of backends, real data where there is any."""

import dataclasses
import gc
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import settings

from fairmf.backends.registry import BACKENDS as KNOWN
from fairmf.backends.registry import get_backend, what_is_missing
from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.models.als import FairALS
from fairmf.models.problem import Problem

REAL_DATA = Path(os.environ.get("FAIRMF_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))

# With FAIRMF_CUDA_EMULATOR=1 the cuda backend runs on the CPU: tests/cuda/emulator stands in for CuPy and the device.
EMULATED = os.environ.get("FAIRMF_CUDA_EMULATOR") == "1"
if EMULATED:
    _emulator = str(Path(__file__).parent / "cuda" / "emulator")
    sys.path.insert(0, _emulator)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_emulator, os.environ.get("PYTHONPATH"))))  # for children

# A shell starts background jobs with Ctrl-C switched off, and children inherit that: tests of Ctrl-C need it on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The first call of a kernel compiles it or loads it from the cache: the first example may take any time.
settings.register_profile("fairmf", deadline=None, max_examples=50)
settings.load_profile("fairmf")


def pytest_terminal_summary(terminalreporter):
    """List each reason to skip once, with the number of tests it concerns."""
    skipped = terminalreporter.stats.get("skipped", [])
    # Skipped reports carry (file, line, reason).
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    if reasons:
        terminalreporter.section("skipped")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:6,} {reason}")


def pytest_collection_modifyitems(items):
    """Run tests on a Ray cluster last: its processes take a part of the machine for as long as they are there."""
    items.sort(key=lambda item: "ray_session" in item.fixturenames)


@pytest.fixture(scope="module", autouse=True)
def frozen_heap():
    """Hide what lives before a file of tests from the garbage collector.

    pyarrow calls `gc.get_referrers` at every error of its CSV reader, which visits all objects of the process: with
    Python 3.10, late in a run of all tests, that took a second each. Frozen objects are not visited, and collections
    take less time for the same reason.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    """Let the interpreter collect everything when it ends: nanobind's modules print what is left of them."""
    gc.unfreeze()


def slow_values(*values):
    """Values of a parameter that `make test-slow` adds to those of `make test`."""
    return [pytest.param(*(v if isinstance(v, tuple) else (v,)), marks=pytest.mark.slow) for v in values]


def peer_library(name):
    """A module of another library, or a skip: wheels of implicit and irspack need libgomp, which some systems lack."""
    library = name.partition(".")[0]
    return pytest.importorskip(name, reason=f"{library} cannot be imported here", exc_type=ImportError)


def random_rows(n: int, m: int, density: float = 0.2, weighted: bool = False, seed: int = 0) -> Rows:
    """Random sparse rows; the first row is empty and the last one full, so that both ends are always met."""
    matrix = sp.random(n, m, density=density, format="lil", random_state=seed)
    matrix[0, :] = 0
    matrix[n - 1, :] = 1
    matrix = sp.csr_array(matrix)
    matrix.sort_indices()
    values = (0.2 + 3 * np.random.default_rng(seed).random(matrix.nnz)).astype(np.float32) if weighted else None
    return Rows(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), values)


def random_problem(backend="reference", n=30, m=20, weighted=False, lambda_f=4.0, seed=0, **settings) -> Problem:
    """A small problem with an empty user, a full one and every term of F switched on."""
    weights = {"regularization": 0.05, "regularization_exponent": 0.7, "unobserved_weight": 0.15} | settings
    data = Interactions(random_rows(n, m, weighted=weighted, seed=seed), m)
    return Problem(data, get_backend(backend), **weights, lambda_f=lambda_f)


def paper_als(**settings) -> FairALS:
    """FairALS as the paper has it: trained with fairness, without balances."""
    return FairALS(**{"fairness": 1.0, "item_balance": 0.0, "user_balance": 0.0} | settings)


def random_factors(backend, n, m, d, seed=0, scale=0.5):
    generator = np.random.default_rng(seed)
    return tuple(backend.array(generator.normal(0, scale, size=(rows, d))) for rows in (n, m))


def as_numpy(array, dtype=None):
    """An array of any backend, on the host."""
    return np.asarray(array.get() if hasattr(array, "get") else array, dtype=dtype)


def random_item_weights(m, seed=0):
    """Fairness weights from 0 to 3, a fifth of them 0 and one 1."""
    generator = np.random.default_rng(seed)
    weights = 3 * generator.random(m)
    weights[generator.permutation(m)[: m // 5]] = 0.0
    weights[0] = 1.0
    return weights


@pytest.fixture(params=[lambda m: None, random_item_weights], ids=["", "item_weights"])
def item_weights(request):
    """Fairness weights for m items: none, then random ones."""
    return request.param


# Every backend; those that cannot run here are skipped, and say why.
_NO_CUDA = what_is_missing()
BACKENDS = [
    pytest.param(name, marks=pytest.mark.skipif(name == "cuda" and _NO_CUDA is not None, reason=str(_NO_CUDA)))
    for name in KNOWN
    if name != "auto"
]


@pytest.fixture(params=BACKENDS)
def backend(request):
    return get_backend(request.param)


@pytest.fixture(params=[False, True], ids=["binary", "weighted"])
def weighted(request):
    return request.param


def real_file(name: str) -> Path:
    """The path of a real data set, or a skip that says what is missing."""
    path = REAL_DATA / name
    if not path.exists():
        pytest.skip(f"needs {name}; point FAIRMF_DATA at the folder that holds it")
    return path


def load_real_split(name: str):
    """A benchmark split stored as npz, as (train, {part: (fold_in, targets)})."""
    arrays = np.load(real_file(name))

    def part(prefix: str) -> Interactions:
        rows = Rows(arrays[prefix + "_indptr"].astype(np.int64), arrays[prefix + "_indices"].astype(np.int32), None)
        return Interactions(rows, int(arrays[prefix + "_shape"][1]))

    held_out = {p: (part(f"{p}_tr"), part(f"{p}_te")) for p in ("validation", "test")}
    return part("train"), held_out


@pytest.fixture
def server():
    """A web server on this machine (tests/data/loopback.py)."""
    from loopback import Server

    running = Server()
    yield running
    running.close()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of data sets for this test alone, and no waiting between attempts to fetch."""
    monkeypatch.setenv("FAIRMF_DATA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("fairmf.data.download._PAUSE_SECONDS", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def published(server, monkeypatch):
    """The data sets at addresses of this machine, with the checksums of the small files."""
    from loopback import Served
    from small_files import files_of

    from fairmf.data.datasets import _BY_NAME, datasets

    def publish(name, **more):
        entry, files = datasets()[name], files_of(name)
        addresses = tuple(f"{server.address}/{name}/{file}" for file in files)
        for address, content in zip(addresses, files.values(), strict=True):
            path = address.removeprefix(server.address)
            server.files[path] = served = Served(content, etag='"1"')
            if entry.md5_beside:
                server.files[f"{path}.md5"] = Served(f"MD5 ({path[1:]}) = {served.md5}\n".encode())
        md5 = served.md5 if entry.md5 else None
        moved = dataclasses.replace(entry, **{"addresses": addresses, "md5": md5, **more})
        monkeypatch.setitem(_BY_NAME, name, moved)
        return moved

    return publish


@pytest.fixture
def empty_plots(monkeypatch):
    """Figures are made but their files stay empty: for tests of all else, as most of a plot's time is its drawing."""
    monkeypatch.setattr("fairmf.reports.plots.save", lambda figure, path, **_: path.touch() or path)


@pytest.fixture(scope="module")
def one_plot():
    """Of the plots in a folder the first is drawn; the files of the others stay empty."""
    from fairmf.reports import plots

    real = plots.save

    def save(figure, path, **how):
        return path.touch() or path if any(path.parent.glob("*.svg")) else real(figure, path, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "save", save)
        yield


@pytest.fixture
def fairmf(capsys, tmp_path, monkeypatch):
    """The command line, run in this process in an empty folder (tests/cli/running.py)."""
    from running import runner

    monkeypatch.chdir(tmp_path)
    for name, value in {"COLUMNS": "100", "NO_COLOR": "1", "FAIRMF_DATA_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    return runner(capsys)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A folder with events.csv, split and model.fairmf, made once by the command line; tests leave it as it is."""
    from running import make_workspace

    return make_workspace(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="session")
def served_model():
    """A small model for tests of the server (tests/serve/asgi_client.py); tests leave it as it is."""
    from asgi_client import small_model

    pytest.importorskip("msgspec", reason="needs the extra [serve]")
    return small_model()


@pytest.fixture
def ask(served_model):
    """A function that returns a client of an application: ask(model, limits={...}, deadline=...)."""
    from asgi_client import Client

    from fairmf.serve import app
    from fairmf.serve.settings import Limits, Settings

    clients = []

    def make(model=served_model, limits=None, catalogue=None, **settings):
        chosen = Settings(limits=Limits(**(limits or {})), **settings)
        clients.append(Client(app(model, settings=chosen, catalogue=catalogue)))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture(scope="session")
def ray_session():
    """Ray, if it is installed; when all tests are over nothing of it may be left (tests/distributed/ray_here.py)."""
    from ray_here import assert_gone, ray_or_skip, ray_processes

    ray = ray_or_skip()
    yield ray
    started = ray_processes()
    ray.shutdown()
    assert_gone(started)


@pytest.fixture
def ray_cluster(ray_session):
    """Ray with two CPUs. A test that stops it to start its own leaves the next test to start this one again."""
    from ray_here import start

    if not ray_session.is_initialized():
        start(ray_session, cpus=2)
    return ray_session
