"""Locks on files: one process at a time, and free again when it ends, however it ends."""

import errno
import os
import signal
import subprocess
import sys

import filelock
import pytest

from fairmf.io.atomic import Busy, locked

HOLD = """
import sys, time
from pathlib import Path
from fairmf.io.atomic import locked
with locked(Path(sys.argv[1]), wait=False):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_is_held_by_one(tmp_path):
    path = tmp_path / "lock"
    with locked(path, wait=False), pytest.raises(Busy), locked(path, wait=False):
        pass
    with locked(path, wait=False):
        assert path.exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_the_lock_of_a_killed_process_is_free(tmp_path):
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(Busy), locked(path, wait=False):
                pass
        finally:
            holder.send_signal(signal.SIGKILL)
    with locked(path, wait=True):
        pass


@pytest.mark.parametrize("error", [OSError(errno.ENOTSUP, "no locks"), NotImplementedError()])
def test_a_file_system_without_locks_guards_nothing(tmp_path, monkeypatch, error):
    def refuse(self, *_, **__):
        raise error

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    with locked(tmp_path / "lock", wait=False):
        pass


def test_a_lock_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError), locked(tmp_path / "file" / "lock", wait=False):
        pass
