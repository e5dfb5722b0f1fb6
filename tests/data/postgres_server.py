"""A real PostgreSQL server for the tests, started on a free port and removed afterwards."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

PASSWORD = "s3kret/with @signs%"  # needs quoting in a URL


def programs():
    """The folder of initdb and postgres, or None."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


def unprivileged():
    """How to start a process that PostgreSQL accepts: it refuses to run as root."""
    if os.getuid() != 0:
        return {}
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        pytest.skip("PostgreSQL refuses to run as root, and there is no user nobody to run it as")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


@contextlib.contextmanager
def server():
    """Starts a server; gives the port on which the user `tester` may log in with PASSWORD."""
    folder = programs()
    if folder is None:
        pytest.skip("needs PostgreSQL's own programs, initdb and postgres (Debian: apt install postgresql)")
    as_user = unprivileged()
    # Not tmp_path: its parents belong to whoever runs the tests, and nobody could not enter them.
    home = Path(tempfile.mkdtemp(prefix="fairmf-postgres-"))
    try:
        (home / "password").write_text(PASSWORD)
        (home / "password").chmod(0o644)
        (home / "data").mkdir(mode=0o700)
        if as_user:
            os.chown(home, as_user["user"], as_user["group"])
            os.chown(home / "data", as_user["user"], as_user["group"])
        options = ["-U", "tester", "--auth=scram-sha-256", f"--pwfile={home / 'password'}", "-N", "-E", "UTF8"]
        made = subprocess.run(
            [folder / "initdb", "-D", home / "data", *options], capture_output=True, text=True, cwd=home, **as_user
        )
        assert made.returncode == 0, made.stderr
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [folder / "postgres", "-D", home / "data", "-h", "127.0.0.1", "-p", str(port), "-k", "", "-F"]
        with (home / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=home, **as_user)
        try:
            await_start(process, port, home / "log")
            yield port
        finally:
            process.send_signal(signal.SIGINT)  # "fast shutdown"
            process.wait(timeout=60)
    finally:
        shutil.rmtree(home)


def await_start(process, port, log):
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        if "ready to accept connections" in log.read_text():
            return
        time.sleep(0.1)
    pytest.fail(f"PostgreSQL did not start in a minute: {log.read_text()}")
