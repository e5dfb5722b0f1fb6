"""docs/architecture.md lists every module, in its own words."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_tree_on_the_page_is_the_tree():
    command = [sys.executable, "tools/architecture.py", "--check"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
