"""Test with NVIDIA's compute-sanitizer that small fits access no memory out of bounds and have no data races."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import EMULATED

from fairmf.backends.registry import what_is_missing

HERE = Path(__file__).parent
SANITIZER = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
REASON = what_is_missing() or ("compute-sanitizer, a part of the CUDA toolkit, is not here" if not SANITIZER else None)
if EMULATED:
    REASON = "compute-sanitizer needs a device; the emulator guards arrays itself"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(REASON is not None, reason=str(REASON))]


@pytest.mark.parametrize(("tool", "size"), [("memcheck", "many"), ("racecheck", "few")])
def test_nothing_is_found(tool, size):
    source = HERE.parents[1] / "src"
    environment = os.environ | {"PYTHONPATH": str(source), "CUPY_CUDA_COMPILE_WITH_PTX": "0"}
    command = [SANITIZER, "--tool", tool, "--error-exitcode", "99", sys.executable, str(HERE / "small_fits.py"), size]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    report = done.stdout[-3000:] + done.stderr[-3000:]
    assert done.returncode == 0, report
    # Exactly that: a tool that could not attach would print no summary.
    assert ("0 errors" if tool == "memcheck" else "0 hazards displayed (0 errors, 0 warnings)") in report
