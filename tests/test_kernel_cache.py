"""Compiled kernels on disk: kept where they can be, compiled where they cannot, never the cause of an error."""

import contextlib
import importlib.util
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from fairmf import IALS, kernels, synthetic

SOURCE = """
from fairmf.kernels import kernel

@kernel
def double(x):
    return 2 * x
"""
numbers = itertools.count()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for compiled kernels of this test alone."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "_said", [])
    monkeypatch.setattr(kernels, "KERNELS", [])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # or the source gets a __pycache__, a place that Numba takes
    (tmp_path / "source.py").write_text(SOURCE)
    return tmp_path / "cache"


def fresh(tmp_path):
    """The kernel as a new process would have it: imported again, with nothing compiled."""
    kernels._sources.cache_clear()
    spec = importlib.util.spec_from_file_location(f"source{next(numbers)}", tmp_path / "source.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.double


def misses(made):
    return sum(made.stats.cache_misses.values())


def test_a_second_process_compiles_nothing(folder, tmp_path):
    assert fresh(tmp_path)(4) == 8
    again = fresh(tmp_path)
    assert again(4) == 8
    assert misses(again) == 0
    assert kernels.compiled_here() == 1


def test_numbas_own_cache_does_not_meet_these_files(folder, tmp_path):
    made = fresh(tmp_path)
    made(4)
    plain = numba.njit(cache=True)(made.py_func)
    assert plain(4) == 8
    again = fresh(tmp_path)
    again(4)
    assert misses(again) == 0


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", ["empty", "truncated", "garbage", "flipped", "gone"])
def test_a_damaged_file_is_replaced(folder, tmp_path, ending, damage):
    fresh(tmp_path)(4)
    [path] = folder.rglob(f"*.{ending}")
    whole = path.read_bytes()
    middle = len(whole) * 2 // 3
    damaged = {
        "empty": b"",
        "truncated": whole[:middle],
        "garbage": bytes(range(256)) * 8,
        "flipped": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
    }
    path.unlink() if damage == "gone" else path.write_bytes(damaged[damage])
    made = fresh(tmp_path)
    assert made(4) == 8
    assert misses(made) == 1
    after = fresh(tmp_path)
    assert after(4) == 8
    assert misses(after) == 0


def test_code_that_another_process_stored_under_the_same_number_is_not_taken(folder, tmp_path):
    fresh(tmp_path)(4)
    [of_whole] = folder.rglob("*.nbc")
    whole = of_whole.read_bytes()
    of_whole.unlink()
    [index] = folder.rglob("*.nbi")
    index.unlink()
    fresh(tmp_path)(4.5)  # both are number 1 now, as they are where two processes begin at the same time
    of_whole.write_bytes(whole)
    made = fresh(tmp_path)
    assert made(4.5) == 9.0
    assert misses(made) == 1


def test_a_change_in_a_file_beside_it_is_a_change(folder, tmp_path):
    fresh(tmp_path)(4)
    (tmp_path / "other.py").write_text("from fairmf.kernels import kernel")
    made = fresh(tmp_path)
    made(4)
    assert misses(made) == 1


@pytest.fixture
def nothing_is_writable(monkeypatch):
    def refuse(self):
        raise PermissionError("read-only file system")

    base = next(c for c in kernels._given.__mro__ if "ensure_cache_path" in vars(c))
    monkeypatch.setattr(base, "ensure_cache_path", refuse)


def test_without_any_folder_kernels_work_and_it_is_said_once(folder, tmp_path, nothing_is_writable, caplog):
    for _ in range(2):
        made = fresh(tmp_path)
        assert made(4) == 8
    [said] = caplog.messages
    assert re.search("not stored, so every process compiles them again.*NUMBA_CACHE_DIR.*fairmf warmup", said)


def test_code_in_a_folder_that_can_only_be_read_is_used(folder, tmp_path, monkeypatch, caplog, request):
    fresh(tmp_path)(4)
    request.getfixturevalue("nothing_is_writable")
    made = fresh(tmp_path)
    assert made(4) == 8
    assert misses(made) == 0
    assert not caplog.messages

    def refuse(self, filepath):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(kernels._CheckedFile, "_open_for_write", refuse)
    assert made(4.5) == 9.0  # not there: compiled, and not kept
    assert len(caplog.messages) == 1


def test_code_compiled_before_is_stored_as_well(folder, tmp_path):
    made = fresh(tmp_path)
    made(4)
    kernels.keep_in(tmp_path / "elsewhere")
    made(4.5)
    again = fresh(tmp_path)
    assert again(4) + again(4.5) == 17
    assert misses(again) == 0


def test_every_compiled_function_is_a_kernel():
    """Numba's own threads die in forked children, and its own cache raises where it cannot write."""
    sources = Path(kernels.__file__).parent.rglob("*.py")
    others = [path for path in sources if re.search(r"\bn?jit\(|prange|parallel=True", path.read_text())]
    assert [path.name for path in others] == ["kernels.py"]


USE = """
import sys
import numpy as np
from fairmf import FairALS, IALS, FiADMM, Interactions, load_model, synthetic
from fairmf.kernels import compiled_here
data = synthetic(800, 300, 20_000, random_state=3)
for weighted in (False, True):
    given = data.reweighted("bm25") if weighted else data
    few = {"factors": 12, "epochs": 2}
    for model in (FairALS(**few), IALS(**few, solver="cholesky"), FiADMM(**few)):
        model.fit(given, progress=False).save(sys.argv[1])
        for served in (model, load_model(sys.argv[1], mmap=True)):
            served.recommend(data.user_ids.values, N=20)
            served.recommend(data.user_ids.values[5], N=20, fairness=0.5)
            served.fold_in_user(list(data.item_ids.values[:3]))
            served.similar_items(data.item_ids.values[2])
print(compiled_here())
"""


BITS = """
import hashlib
import numpy as np
from fairmf import FairALS, FiADMM, synthetic
data = synthetic(600, 300, 12_000)
new = data.take_users(np.arange(50))
for model in (
    FairALS(factors=16, epochs=3),
    FairALS(factors=16, epochs=3, cg_steps=3, unobserved_weight=0.9),
    FairALS(factors=16, epochs=2, solver="cholesky"),
    FairALS(factors=16, epochs=2, solver="subspace", block_size=6),
    FiADMM(factors=16, epochs=4),
):
    model.fit(data, progress=False)
    digest = hashlib.sha256()
    lists, scores = model.recommend(np.arange(100), N=20, by="row")
    for part in (model.user_factors, model.item_factors, model.fold_in(new), lists, scores):
        digest.update(np.ascontiguousarray(part).tobytes())
    print("bits", digest.hexdigest(), model.history.column("objective.total"))
"""

WARMUP = "from fairmf.cli.app import run\nassert run(['warmup', {folder!r}]) == 0\n"


@pytest.mark.slow
def test_after_warmup_a_new_process_compiles_nothing_and_gets_the_same_bits(tmp_path):
    """The first process compiles every kernel and then fits; the others find the kernels compiled."""

    def python(code, cache):
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / cache)}
        command = [sys.executable, "-c", code, tmp_path / "model.fairmf"]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert run.stderr == ""
        return run.stdout

    warmup = WARMUP.format(folder=str(tmp_path / "kernels"))
    first = python(warmup + BITS, "elsewhere")
    assert str(tmp_path / "kernels") in first.replace("\n", "")
    assert python(USE, "kernels") == "0\n"
    again = python(warmup + BITS, "kernels")
    assert "all were compiled already" in again
    bits = [[line for line in said.splitlines() if line.startswith("bits")] for said in (first, again)]
    assert len(bits[0]) == 5
    assert bits[0] == bits[1]


def test_the_first_fit_and_the_first_lists_say_that_kernels_are_compiled(monkeypatch, caplog):
    from fairmf.backends.cpu import backend
    from fairmf.models import fit_loop

    notes = []

    @contextlib.contextmanager
    def bar(*_):
        yield lambda note, steps=1: notes.append(note)

    data = synthetic(60, 40, 600)
    model = IALS(factors=4, epochs=1).fit(data, progress=False)
    model.recommend(data.user_ids.values[:3])  # these two may compile
    with caplog.at_level("INFO", "fairmf"):
        caplog.clear()
        model.fit(data, progress=False).recommend(data.user_ids.values[:3])
        assert "compiling" not in caplog.text
        caplog.clear()
        monkeypatch.setattr(backend, "is_compiled", lambda _: False)
        monkeypatch.setattr(fit_loop, "progress_bar", bar)
        model.fit(data, progress=True)
        assert [record.kind for record in caplog.records if hasattr(record, "kind")] == ["compiling"]
        assert notes[0] == "compiling kernels, once: about 6 s"
        caplog.clear()
        model.recommend(data.user_ids.values[:3])
        assert "compiling kernels, once: about 5 s" in caplog.text
