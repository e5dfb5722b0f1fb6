"""Start a server for a model file: one process, or a supervisor with several workers, and the watch on the file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairmf.errors import InvalidParameter
from fairmf.serve import http_server
from fairmf.serve.figures import Figures
from fairmf.serve.reload import Pointer, Publisher
from fairmf.serve.routes import LABELS
from fairmf.serve.served_model import Catalogue
from fairmf.serve.settings import Settings
from fairmf.serve.supervisor import Plan, Supervisor


@dataclass(frozen=True)
class Place:
    """Where to listen, and with how many processes."""

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    reload: bool = False
    """Watch the model file."""


def launch(
    model: Path,
    settings: Settings,
    place: Place,
    *,
    catalogue: Catalogue | Callable[[], Catalogue] | None = None,
    beside: Path | None = None,
    on_ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve a model file until SIGTERM or Ctrl-C; call `on_ready` with the address when requests are answered.

    `catalogue` may be a function that reads the catalogue, and `beside` the file that it reads: it is then read again
    with every new model, and when the file changes.

    Raises BrokenFile if the file cannot be served, and InvalidParameter if the port is taken.
    """
    with tempfile.TemporaryDirectory(prefix="fairmf-serve-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        counts = Figures(LABELS, folder, worker=place.workers)  # the publisher's own, after those of the workers
        publisher = Publisher(
            model, folder, watched=place.reload, beside=beside, on_failure=lambda: counts.add("reload_failures")
        )
        pointer = Pointer(folder, catalogue, settings)
        try:
            socks = http_server.listening(place.host, place.port, place.workers)
        except OSError as error:
            reason = error.strerror or str(error)
            raise InvalidParameter(
                f"Cannot listen at {place.host}:{place.port}: {reason}.", hint="choose another {parameter}",
                parameter="port",
            ) from error  # fmt: skip
        host, port = socks[0].getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        publisher.start()
        try:
            if place.workers == 1:
                http_server.run(
                    pointer,
                    settings,
                    socks[0],
                    folder=folder,
                    on_ready=lambda: on_ready(address),
                    on_hangup=publisher.ask,
                )
            else:
                plan = Plan(pointer, settings, folder)
                Supervisor(plan, socks, on_ready=lambda: on_ready(address), on_hangup=publisher.ask).run()
        finally:
            publisher.stop()
            for sock in socks:
                sock.close()
