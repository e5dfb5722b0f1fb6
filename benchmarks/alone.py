"""A measurement in a process of its own, so that its peak of memory is its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_alone(code: str, *arguments: object) -> dict[str, Any]:
    """Run Python code with arguments; its last line of output is JSON."""
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
