"""`fairmf serve MODEL`: answer requests for lists over HTTP."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairmf.cli.catalogue import Catalogue as CatalogueFlags
from fairmf.cli.errors import Problem
from fairmf.cli.options import Flags
from fairmf.cli.session import Session
from fairmf.cli.terminal import marked
from fairmf.errors import MissingDependency
from fairmf.lazy import lazy_module
from fairmf.version import install_command

if TYPE_CHECKING:
    from fairmf.serve import launch as launching
    from fairmf.serve import served_model as served_models
    from fairmf.serve import settings as setting_types
    from fairmf.serve.served_model import Catalogue
    from fairmf.serve.settings import Settings
else:  # the extra may be missing: then there is a better message than an ImportError
    launching, setting_types = lazy_module("fairmf.serve.launch"), lazy_module("fairmf.serve.settings")
    served_models = lazy_module("fairmf.serve.served_model")

LIMITS, TIMES, LOGS = "Limits", "Queue and time-outs", "Logs"
SHORTEST_KEY = 16  # characters


@dataclass
class Address(Flags):
    """Flags that say where to listen, with how many processes, and who may ask."""

    host: Annotated[
        str, typer.Option(help="Address to listen at. 127.0.0.1 is this machine alone; 0.0.0.0 is every network.")
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes a free one.")] = 8080
    workers: Annotated[int, typer.Option(min=1, max=256, help="Number of processes that answer requests.")] = 1
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            help="File with API keys, one per line. Requests then need the header 'Authorization: Bearer KEY'."
        ),
    ] = None
    reload: Annotated[
        bool, typer.Option("--reload", help="Watch the model file, and load it again when it is replaced.")
    ] = False
    name: Annotated[str, typer.Option(help="Name of the model in KServe's routes.")] = "fairmf"
    ann: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Find items through this nearest-neighbour index (fairmf export -o items.ann)."
        ),
    ] = None
    control: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="TOML file with the minimum and the maximum exposure of items or groups. The server keeps "
            "exposure between them.",
        ),
    ] = None


@dataclass
class Most(Flags):
    """Flags that limit what one request may ask for."""

    max_n: Annotated[int, typer.Option(min=1, rich_help_panel=LIMITS, help="Longest list.")] = 200
    max_evenness: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            rich_help_panel=LIMITS,
            help="Highest evenness. A request for a higher evenness gets this one.",
        ),
    ] = 1.0
    max_history: Annotated[int, typer.Option(min=1, rich_help_panel=LIMITS, help="Longest history.")] = 1000
    max_items: Annotated[
        int,
        typer.Option(
            min=1,
            rich_help_panel=LIMITS,
            help="Maximum number of ids in the field 'items' of a request, and in its field 'exclude'.",
        ),
    ] = 10_000
    max_batch: Annotated[
        int, typer.Option(min=1, rich_help_panel=LIMITS, help="Maximum number of requests in one body.")
    ] = 64
    max_body: Annotated[int, typer.Option(min=1, rich_help_panel=LIMITS, help="Largest body, in bytes.")] = 1 << 20
    max_connections: Annotated[
        int, typer.Option(min=1, rich_help_panel=LIMITS, help="Maximum number of open connections of a worker.")
    ] = 1000


@dataclass
class Times(Flags):
    """Flags of the queue and of time-outs."""

    queue: Annotated[
        int,
        typer.Option(
            min=1, rich_help_panel=TIMES, help="Number of requests that may wait. Further requests get status 429."
        ),
    ] = 256
    batch_wait_ms: Annotated[
        float,
        typer.Option(
            min=0,
            max=1000,
            rich_help_panel=TIMES,
            help="How long a request waits for more requests to join its batch, in ms.",
        ),
    ] = 2.0
    deadline_ms: Annotated[
        int,
        typer.Option(min=1, rich_help_panel=TIMES, help="Reject requests that have waited longer than this, in ms."),
    ] = 2000
    read_timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            rich_help_panel=TIMES,
            help="Time limit in seconds for a client to send the head of a request. Its body has the same limit.",
        ),
    ] = 10.0
    drain: Annotated[
        float,
        typer.Option(
            min=0.1, rich_help_panel=TIMES, help="After SIGTERM, wait at most this many seconds for open requests."
        ),
    ] = 20.0
    threads: Annotated[
        int, typer.Option(min=0, rich_help_panel=TIMES, help="Number of threads with which each worker ranks items. "
                          "0: all cores if there is one worker, one thread per worker if there are more.")
    ] = 0  # fmt: skip


@dataclass
class Logs(Flags):
    """Flags that say what is logged."""

    events: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", rich_help_panel=LOGS, help="Store what is sent to /v1/events in this folder."),
    ] = None
    log_requests: Annotated[
        bool, typer.Option("--log-requests", rich_help_panel=LOGS, help="Log a line for every request.")
    ] = False
    log_histories: Annotated[
        bool, typer.Option("--log-histories", rich_help_panel=LOGS, help="Log the bodies of requests too.")
    ] = False
    window: Annotated[
        float, typer.Option(min=1, rich_help_panel=LOGS, help="Seconds over which /metrics counts exposure.")
    ] = 600.0


def serve(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model written by fit.")],
    *,
    session: Session,
    address: Address,
    catalogue: CatalogueFlags,
    most: Most,
    times: Times,
    logs: Logs,
) -> None:
    """Serve a model over HTTP: a history in, a list out, with an evenness for each request.

    Open the address in a browser to try the server. /openapi.json describes all routes. After Ctrl-C or SIGTERM the
    server finishes the requests that it has, and stops. SIGHUP loads the model file again.

    [dim]Examples:[/dim]

      fairmf serve model.fairmf

      fairmf serve model.fairmf --catalogue movies.csv --workers 2 --reload

      curl localhost:8080/v1/recommend -H 'Content-Type: application/json' -d '{"history": \\[1, 50], "evenness": 0.3}'
    """
    for package in ("msgspec", "uvicorn", "httptools"):
        if importlib.util.find_spec(package) is None:
            raise MissingDependency(f"fairmf serve needs {package}: {install_command('serve')}")
    if logs.log_histories and not logs.log_requests:
        raise Problem("--log-histories logs bodies with the requests, which are not logged.", "add --log-requests")
    settings = _settings(address, most, times, logs)
    read_items(catalogue)  # errors of the table are told here, not by a worker

    def tell(where: str) -> None:
        session.note(f"serving  {marked(where)}  (Ctrl-C stops)")

    launching.launch(
        model,
        settings,
        launching.Place(address.host, address.port, address.workers, address.reload),
        catalogue=functools.partial(read_items, catalogue),
        beside=catalogue.catalogue,
        on_ready=tell,
    )


def read_items(flags: CatalogueFlags) -> Catalogue:
    """Read titles and groups; workers call it again for a new model."""
    return served_models.Catalogue(*flags.table())


def _settings(address: Address, most: Most, times: Times, logs: Logs) -> Settings:
    return setting_types.Settings(
        limits=setting_types.Limits(
            most.max_body, most.max_batch, most.max_n, most.max_history, most.max_items, most.max_evenness
        ),
        name=address.name, waiting=times.queue, batch_wait=times.batch_wait_ms / 1000,
        deadline=times.deadline_ms / 1000, read_timeout=times.read_timeout, drain=times.drain,
        connections=most.max_connections, window=logs.window,
        keys=() if address.api_key_file is None else read_keys(address.api_key_file),
        log_requests=logs.log_requests, log_histories=logs.log_histories, events=logs.events,
        num_threads=times.threads or (1 if address.workers > 1 else 0),
        index=address.ann, control=address.control,
    )  # fmt: skip


def read_keys(path: Path) -> tuple[bytes, ...]:
    """Return the digests of the keys in a file: one a line; empty lines and lines that start with # do not count."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise Problem(f"There is no key in {path}.", "write one key a line")
    if min(map(len, keys)) < SHORTEST_KEY:
        raise Problem(
            f"A key in {path} is shorter than {SHORTEST_KEY} characters.",
            "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return tuple(hashlib.sha256(key.encode()).digest() for key in keys)
