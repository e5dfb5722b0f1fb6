"""Waiting threads sleep, so that a busy machine does not slow small fits down a hundredfold, unless told otherwise."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
from fairmf.backends import get_backend
get_backend("cpu")
print(os.environ["OMP_WAIT_POLICY"], any("omppool" in name for name in sys.modules))
"""


@pytest.mark.parametrize(("given", "expected"), [({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active")])
def test_the_policy_is_set_before_any_thread_is_started(given, expected):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | given
    run = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split() == [expected, "False"]
