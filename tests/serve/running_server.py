"""Start `fairmf serve` as users do, in processes of its own, and ask it over the network of this machine."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

PROGRAM = [sys.executable, "-c", "from fairmf.cli import main; main()"]


class RunningServer:
    """A server process; `log` has its lines."""

    def __init__(self, model, *flags, **environment):
        self.process = subprocess.Popen(
            [*PROGRAM, "serve", str(model), "--port", "0", *map(str, flags)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "NO_COLOR": "1", **environment},
        )  # fmt: skip
        self.log, self.port, self._known = [], None, threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._known.wait(60) or self.port is None:
            self.stop(signal.SIGKILL)
            raise AssertionError(f"the server did not start: {self.log}")

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip())
            if line.startswith("serving"):
                self.port = int(line.split("  (")[0].rsplit(":", 1)[1])
                self._known.set()
        self._known.set()

    def request(self, method, path, body=None, timeout=30, headers=None):
        """One request on a connection of its own: (status, JSON or text)."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)) as connection:
            content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, content, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if b"json" in answer.headers[
                "content-type"
            ].encode() else text.decode()

    def post(self, path, body, **options):
        return self.request("POST", path, body, **options)

    def workers(self):
        """Process ids of the workers."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int((place / "stat").read_text(encoding="latin-1").rpartition(")")[2].split()[1])
                if parent == self.process.pid and b"spawn_main" in (place / "cmdline").read_bytes():
                    found.append(int(place.name))
        return found

    def wait_for(self, condition, seconds=20):
        """Wait until something is the case."""
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, self.log[-5:]
            time.sleep(0.02)

    def stop(self, number=signal.SIGTERM, seconds=30):
        """Stop the server and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(seconds)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
        self._reader.join(5)
        self.process.stderr.close()
        return code


@contextlib.contextmanager
def serving(model, *flags, **environment):
    """A server for the length of a test."""
    server = RunningServer(model, *flags, **environment)
    try:
        yield server
    finally:
        server.stop()
