"""`fairmf doctor`: check versions, threads, BLAS, GPUs and extras, and say how to install what is missing."""

from __future__ import annotations

import importlib
import os
import platform
import re
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

from rich.table import Table

import fairmf
from fairmf.cli.errors import Problem
from fairmf.cli.session import Session
from fairmf.cli.terminal import marked
from fairmf.errors import FairmfError
from fairmf.lazy import lazy_module
from fairmf.version import extras, install_command, installed, versions

if TYPE_CHECKING:
    import threadpoolctl

    from fairmf import threads
    from fairmf.backends import registry
    from fairmf.backends.cpu import reductions
    from fairmf.data import download
    from fairmf.types import Record
else:
    threadpoolctl = lazy_module("threadpoolctl")
    registry = lazy_module("fairmf.backends.registry")
    reductions = lazy_module("fairmf.backends.cpu.reductions")
    threads = lazy_module("fairmf.threads")
    download = lazy_module("fairmf.data.download")

_FOR = {
    "ann": "nearest-neighbour search",
    "cuda": "NVIDIA GPUs",
    "milvus": "export to Milvus",
    "pgvector": "export to PostgreSQL",
    "qdrant": "export to Qdrant",
    "ray": "many machines",
    "redis": "export to Redis",
    "report": "plots",
    "sql": "reading from databases",
    "tune": "searching for settings",
    "vae": "neural baselines",
}


def doctor(session: Session) -> None:
    """Check the installation: what works, what is missing, and how to install the missing parts.

    The exit code is 1 only if fairmf itself does not work.

    [dim]Examples:[/dim]

      fairmf doctor

      fairmf doctor --json
    """
    with session.busy("check"):
        facts = {
            "versions": versions(("numpy", "scipy", "numba", "pyarrow", "narwhals", "typer", "rich")),
            "system": _system(),
            "threads": _threads(),
            "gpu": _gpu(),
            "extras": _extras(),
            "data": _data(),
            "kernels": _kernels(),
        }
    session.result |= facts
    session.show(*_tables(facts))
    if not facts["kernels"]["works"]:
        raise Problem(
            f"The kernels do not run: {facts['kernels']['error']}.",
            "fairmf doctor --debug",
        )


def _system() -> Record:
    return {"platform": platform.platform(), "processors": os.cpu_count(), "usable": _usable()}


def _usable() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _threads() -> Record:
    """Describe the loaded BLAS libraries, the threads of kernels, and where compiled kernels are stored."""
    for library in ("numpy", "scipy.linalg"):  # each loads its BLAS library when it is imported
        importlib.import_module(library)
    pools = [
        {"library": pool.get("internal_api"), "version": pool.get("version"), "threads": pool.get("num_threads")}
        for pool in threadpoolctl.threadpool_info()
        if pool.get("user_api") == "blas"
    ]
    named = {
        name: os.environ[name]
        for name in sorted(os.environ)
        if re.fullmatch(r"(OMP|MKL|OPENBLAS|NUMBA)_NUM_THREADS|NUMBA_(CACHE_DIR|CPU_NAME)", name)
    }
    # Any kernel can tell where Numba stores compiled code.
    cache = reductions.sum_parts.stats.cache_path
    return {
        "kernels": threads.count(), "layer": threads.LAYER, "cache": cache, "blas": pools, "environment": named
    }  # fmt: skip


def _gpu() -> Record:
    """Describe the GPUs that the driver reports, and try the backend `cuda`."""
    try:
        registry.get_backend("cuda")
    except FairmfError as error:
        return {**_devices(), "works": False, "error": " ".join(str(error).split())}
    return {**_devices(), "works": True}


def _devices() -> Record:
    program = shutil.which("nvidia-smi")
    if program is None:
        return {"found": False}
    asked = [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return {"found": False, "error": str(error)}
    return {"found": True, "devices": [line.strip() for line in said.splitlines() if line.strip()]}


def _extras() -> Record:
    """List every extra that this version of fairmf declares, and which of its packages are installed."""
    found: Record = {}
    for label, packages in extras().items():
        versions = {name: installed(name) for name in (re.split(r"[\s<>=!~\[(]", one)[0] for one in packages)}
        ready = all(version is not None for version in versions.values())
        found[label] = {
            "for": _FOR.get(label, ""),
            "packages": versions,
            "ready": ready,
            "install": None if ready else install_command(label),
        }
    return found


def _data() -> Record:
    folder = download.cache_folder()
    # The folder may not exist yet: then its nearest existing parent decides.
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return {
        "folder": str(folder),
        "writable": os.access(there, os.W_OK),
        "free_gb": round(shutil.disk_usage(there).free / 1e9, 1),
    }


def _kernels() -> Record:
    """Run a small fit; it compiles the kernels that are not compiled yet."""
    began = time.perf_counter()
    try:
        data = fairmf.synthetic(n_users=200, n_items=50, n_interactions=2000)
        fairmf.FairALS(factors=4, epochs=2).fit(data, progress=False).recommend(data.user_ids.values[:2], N=3)  # type: ignore[union-attr]
    except Exception as error:  # doctor reports every failure
        return {"works": False, "error": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    return {"works": True, "seconds": round(time.perf_counter() - began, 2)}


def _tables(facts: Record) -> list[Table]:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("versions", ", ".join(f"{name} {version}" for name, version in facts["versions"].items()))
    system, threads, gpu, data, kernels = (facts[name] for name in ("system", "threads", "gpu", "data", "kernels"))
    table.add_row("system", f"{system['platform']}, {system['processors']} processors, {system['usable']} usable")
    pools = (
        ", ".join(f"{p['library']} {p['version']} ({p['threads']} threads)" for p in threads["blas"]) or "none found"
    )
    table.add_row("BLAS", pools)
    table.add_row("threads", f"{threads['kernels']}, {threads['layer']}")
    table.add_row(
        "compiled code", threads["cache"] or "[yellow]not stored[/yellow]: set NUMBA_CACHE_DIR (fairmf warmup)"
    )
    if threads["environment"]:
        table.add_row("", ", ".join(f"{name}={marked(value)}" for name, value in threads["environment"].items()))
    table.add_row("GPU", "; ".join(gpu.get("devices", [])) if gpu["found"] else "none found (nvidia-smi)")
    if gpu["found"]:
        table.add_row("", "backend cuda [green]works[/green]" if gpu["works"] else marked(gpu["error"]))
    room = f"{data['free_gb']:,} GB free" + ("" if data["writable"] else ", [red]not writable[/red]")
    table.add_row("data sets", f"{marked(data['folder'])} ({room})")
    table.add_row(
        "kernels", f"[green]work[/green] ({kernels['seconds']} s)" if kernels["works"] else "[red]do not work[/red]"
    )
    extras = Table(title="extras", title_justify="left")
    for column in ("extra", "for", "packages", "to install"):
        extras.add_column(column, overflow="fold")
    for name, entry in facts["extras"].items():
        packages = ", ".join(f"{package} {version or '-'}" for package, version in entry["packages"].items())
        command = "[green]ready[/green]" if entry["ready"] else entry["install"].replace("[", "\\[")
        extras.add_row(name, entry["for"], packages, command)
    return [table, extras]
