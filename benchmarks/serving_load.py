"""Send requests to a server at a fixed rate, whatever it answers (open loop), and measure how long answers take.

    python -m benchmarks.serving_load --port 8080 --rate 1000 --seconds 20 --bodies requests.jsonl

A request is due at a time drawn beforehand (Poisson arrivals) and its latency counts from then, so that a server that
falls behind cannot hide it. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

TICK = 0.001  # seconds between two looks at what is due
PATIENCE = 10.0  # seconds to wait for answers after the last request


class Connection(asyncio.Protocol):
    """One connection, with at most one request on it."""

    def __init__(self, load: Load):
        self.load, self.buffer, self.due = load, b"", 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.load.idle.append(self)
        self.load.open += 1

    def ask(self, due: float, content: bytes) -> None:
        self.due, self.buffer = due, b""
        self.transport.write(content)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        place = self.buffer.lower().find(b"content-length:")
        length = int(self.buffer[place + 15 : self.buffer.find(b"\r", place)])
        if len(self.buffer) < head + 4 + length:
            return
        status = int(self.buffer[9:12])
        self.load.answered(self.due, status, self.buffer[head + 4 :])
        self.due = 0.0
        self.load.idle.append(self)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self.load.open -= 1
        if self in self.load.idle:
            self.load.idle.remove(self)
        if self.due:
            self.load.answered(self.due, 0, b"")


class Load:
    """Requests in flight, and the latencies so far."""

    def __init__(self, options: argparse.Namespace):
        bodies = [line.encode() for line in Path(options.bodies).read_text(encoding="utf-8").splitlines()]
        self.path, self.host, self.port = options.path, options.host, options.port
        self.contents = [self._content(body) for body in bodies]
        self.rate, self.seconds, self.draw = options.rate, options.seconds, random.Random(options.seed)
        self.connections = options.connections
        self.idle: collections.deque[Connection] = collections.deque()
        self.waiting: collections.deque[float] = collections.deque()
        self.latencies: list[float] = []
        self.statuses: collections.Counter[int] = collections.Counter()
        self.open, self.wrong, self.sample = 0, 0, ""

    def _content(self, body: bytes) -> bytes:
        head = f"POST {self.path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def answered(self, due: float, status: int, body: bytes) -> None:
        self.latencies.append(time.perf_counter() - due)
        self.statuses[status] += 1
        if not self.sample and status == 200:
            self.sample = body.decode()

    async def run(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        for _ in range(self.connections):
            await loop.create_connection(lambda: Connection(self), self.host, self.port)
        began = time.perf_counter()
        due, end, sent = began + self.draw.expovariate(self.rate), began + self.seconds, 0
        while due < end or self.waiting:
            now = time.perf_counter()
            while due <= now and due < end:
                self.waiting.append(due)
                due += self.draw.expovariate(self.rate)
            if self.open < self.connections:  # a worker was killed: connect again
                await self._connect(loop)
            while self.waiting and self.idle:
                self.idle.popleft().ask(self.waiting.popleft(), self.contents[sent % len(self.contents)])
                sent += 1
            if now > end + PATIENCE:
                break
            await asyncio.sleep(TICK)
        until = time.perf_counter() + PATIENCE
        while len(self.latencies) < sent and time.perf_counter() < until:
            await asyncio.sleep(0.01)
        return self.result(sent, time.perf_counter() - began)

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await asyncio.wait_for(loop.create_connection(lambda: Connection(self), self.host, self.port), 1.0)
        except (OSError, asyncio.TimeoutError):
            self.statuses[-1] += 1

    def result(self, sent: int, seconds: float) -> dict[str, Any]:
        times = np.array(self.latencies) * 1000 if self.latencies else np.full(1, np.nan)
        quantiles = {f"p{q:g}": float(np.percentile(times, q)) for q in (50, 90, 99, 99.9)}
        return {
            "sent": sent, "answered": len(self.latencies), "unsent": len(self.waiting), "seconds": seconds,
            "rate": len(self.latencies) / min(seconds, self.seconds), "statuses": dict(self.statuses),
            "errors": sum(count for status, count in self.statuses.items() if status != 200) + len(self.waiting),
            **quantiles, "max": float(times.max()), "sample": self.sample[:400],
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", default="/v1/recommend")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--bodies", required=True, help="file with one JSON body a line")
    parser.add_argument("--seed", type=int, default=0)
    load = Load(parser.parse_args())
    try:
        import uvloop

        uvloop.install()
    except ImportError:
        pass
    print(json.dumps(asyncio.run(load.run())))


if __name__ == "__main__":
    main()
