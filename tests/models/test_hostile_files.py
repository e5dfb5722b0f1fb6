"""Damaged and malicious files: a clear error, never a crash, a hang, or more memory than the file deserves."""

import json
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import mutations
import pytest
from conftest import slow_values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_models import fitted

from fairmf import load_model
from fairmf.errors import BrokenFile

PROGRAM = Path(mutations.__file__)


@pytest.mark.parametrize("count", [80, *slow_values(1000)])
def test_mutated_files_in_a_process_with_little_memory(count, tmp_path):
    seeds = {str(tmp_path / name): seed for seed, name in enumerate(("fair_als", "fiadmm", "popularity"), 1)}
    for path, seed in seeds.items():
        fitted(Path(path).name, weighted=seed == 1).save(path)
    command = [sys.executable, PROGRAM, json.dumps(seeds), tmp_path, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    results = json.loads(done.stdout)
    assert results.keys() == seeds.keys()
    for result in results.values():
        assert result["wrong"] == []
        assert sum(result["counts"].values()) == count
        assert result["counts"]["refused"] > 0.6 * count, result  # a few edits are harmless: another date or seed


@pytest.fixture(scope="module")
def good_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "model"
    fitted().save(path)
    return path


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(mutations.ACCIDENTS), st.integers(0, 2**32))
def test_accidents_are_always_found(good_file, make, seed):
    raw = good_file.read_bytes()
    mutant = make(raw, random.Random(seed))
    path = good_file.with_name("mutant")
    path.write_bytes(mutant)
    tracemalloc.start()
    message = ""
    try:
        load_model(path)
    except BrokenFile as error:
        message = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    # Accepted only if the mutation undid itself, or moved a blank between two parts of the header.
    assert str(path) in message or mutations.split(mutant) == mutations.split(raw)
    assert peak < 20 * len(raw) + (4 << 20)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_at_all(tmp_path_factory, raw):
    path = tmp_path_factory.getbasetemp() / "bytes"
    path.write_bytes(raw)
    with pytest.raises(BrokenFile, match="bytes cannot be read as a fairmf model: "):
        load_model(path)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_header_at_all(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "header"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\x00" * 8)
    with pytest.raises(BrokenFile):
        load_model(path)


def forged(good_file, edit):
    """A file with an edited document and data, and checksums that fit."""
    table, document, data = mutations.split(good_file.read_bytes())
    data = bytearray(data)
    edit(table, document, data)
    path = good_file.with_name("forged")
    path.write_bytes(mutations.joined(table, document, bytes(data)))
    return path


def set_in(part, **values):
    return lambda table, document, data: document["content"][part].update(values)


def write_in(name, place, values):
    """Overwrite items of an array, and its checksum."""

    def edit(table, document, data):
        import hashlib

        import numpy as np

        kinds = {"I64": "<i8", "I32": "<i4", "F32": "<f4", "F64": "<f8", "U8": "u1"}
        a, b = table[name]["data_offsets"]
        array = np.frombuffer(bytes(data[a:b]), dtype=kinds[table[name]["dtype"]]).copy()
        array[place] = values
        data[a:b] = array.tobytes()
        document["arrays"][name][2] = hashlib.sha256(data[a:b]).hexdigest()

    return edit


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t, d, x: d["content"].update(model="subprocess"), "a model of the unknown class 'subprocess'"),
        (lambda t, d, x: d["content"].update(model="load_model"), "a model of the unknown class 'load_model'"),
        (lambda t, d, x: d["content"].pop("history"), "other parts than a model's"),
        (lambda t, d, x: d["content"].update(fairness=-1), "'fairness' in its document must be a number >= 0"),
        (lambda t, d, x: d["content"].update(fairness=True), "'fairness' in its document is of the wrong kind"),
        (lambda t, d, x: d["content"].update(trained_fairness={"$float": "nan"}), "must be a number >= 0"),
        (set_in("settings", factors=5), "its user_factors are not 40 x 5 floating-point numbers"),
        (set_in("settings", factors="4"), "The 'factors' parameter of FairALS must be an integer >= 1"),
        (set_in("parameters", backend="/bin/sh"), "The 'backend' parameter of FairALS must be"),
        (set_in("settings", newer=1), "FairALS has no setting 'newer' in this version of fairmf"),
        (set_in("extra", rho=1.0), "FairALS needs the numbers none; the file has others"),
        (set_in("ids", user_ids="none"), "it holds an array 'user_ids"),
        (set_in("ids", user_ids="integers"), "user_ids are not 40 integers"),
        (set_in("ids", user_ids="typed"), "one of its user_ids is not valid JSON"),
        (set_in("ids", user_ids=["x"]), "user_ids are of an unknown kind"),
        (set_in("history", records=[1]), "something else than records of epochs"),
        (set_in("history", kept_epoch=None), "its history is incomplete"),
        (lambda t, d, x: d["content"].update(interactions=False), "an array 'interactions"),
        (write_in("interactions.indices", -1, 10**6), "item indices outside 0 to 29"),
        (write_in("interactions.indices", 0, -1), "item indices outside 0 to 29"),
        (write_in("interactions.indices", slice(0, 2), 5), "its interactions are not in order, or repeated"),
        (write_in("interactions.indptr", 1, 10**12), "offsets of its interactions do not describe 40 pieces"),
        (write_in("interactions.indptr", 0, 1), "offsets of its interactions do not describe 40 pieces"),
        (write_in("interactions.indptr", -1, 0), "offsets of its interactions do not describe 40 pieces"),
        (write_in("user_ids.offsets", 5, 2**62), "offsets of user_ids do not describe 40 pieces"),
        (write_in("user_ids.bytes", 0, 0xFF), "user_ids are not text"),
        (write_in("merit", 0, float("nan")), "its merit hold numbers that are not finite"),
    ],
)  # fmt: skip
def test_what_checksums_do_not_cover_is_checked_too(good_file, edit, message, mmap):
    """An attacker can compute checksums, so nothing is believed because of them."""
    path = forged(good_file, edit)
    with pytest.raises(BrokenFile, match=message):
        load_model(path, mmap=mmap)


def test_weights_are_checked(tmp_path):
    fitted(weighted=True).save(tmp_path / "good")
    for value in (float("nan"), float("inf"), 0.0):
        path = forged(tmp_path / "good", write_in("interactions.weights", 7, value))
        with pytest.raises(BrokenFile, match="weights that are 0 or no numbers"):
            load_model(path)


def test_factors_that_are_not_finite(good_file):
    path = forged(good_file, write_in("user_factors", 7, float("inf")))
    with pytest.raises(BrokenFile, match="its user_factors hold numbers that are not finite"):
        load_model(path)
    load_model(path, mmap=True).recommend("user 1 é", N=3)  # not read while loading; a wrong score, no crash
