"""`fairmf warmup`: compile all kernels in advance, so that services and images start without compiling."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from fairmf.cli.output import make_folder
from fairmf.cli.session import Session
from fairmf.data.csr import Rows
from fairmf.data.interactions import Interactions
from fairmf.data.synthetic import synthetic
from fairmf.distributed.cluster import RayCluster
from fairmf.distributed.shards import InMemoryShards, ShardSource
from fairmf.distributed.team import LocalTeam
from fairmf.kernels import KERNELS, compiled_here, keep_in
from fairmf.models.als import IALS, FairALS
from fairmf.models.ann_requests import AnnRequests
from fairmf.models.base import IterativeModel
from fairmf.models.fiadmm import FiADMM
from fairmf.models.model_file import load_model
from fairmf.models.progress import progress_bar
from fairmf.ranking.level_groups import LevelGroups
from fairmf.types import Floats, Record

ROWS_READ = 200_000  # from this size on, compiled code reads a file


def warmup(
    session: Session,
    folder: Annotated[
        Path | None, typer.Argument(help="Folder for the compiled kernels. Default: Numba's cache.")
    ] = None,
) -> None:
    """Compile all kernels in advance, so that new processes do not wait for the compiler.

    With FOLDER, the compiled code is stored there. Set NUMBA_CACHE_DIR to this folder when you start a service: it then
    compiles nothing and needs no write permission. Compiled code works for one kind of processor, one version of Python
    and one version of fairmf. If a container image runs on several kinds of processors, set NUMBA_CPU_NAME=generic for
    warmup and for the service.

    [dim]Examples:[/dim]

      fairmf warmup

      fairmf warmup /opt/fairmf-kernels
    """
    if folder is not None:
        folder = folder.resolve()
        make_folder(folder)
        keep_in(folder)
    # Kernels say that they are compiled, which is what this command is for.
    logging.getLogger("fairmf").setLevel(logging.WARNING)
    before = compiled_here()
    steps = _steps()
    with session.timed("compile"), progress_bar("warmup", len(steps), session.progress) as advance:
        for name, run in steps.items():
            run()
            advance(name)
    compiled = compiled_here() - before
    place = None if folder is None else str(folder)
    session.result |= {"folder": place, "kernels": sum(bool(made.signatures) for made in KERNELS), "compiled": compiled}
    what = f"{compiled} compiled now" if compiled else "all were compiled already"
    session.show(f"{session.result['kernels']} kernels are ready, {what}.")
    if folder is not None:
        session.show(f"Start processes with NUMBA_CACHE_DIR={folder}")


def _steps() -> dict[str, Callable[[], None]]:
    """Return small tasks, by name, that together call every kernel with every type of argument it is used with."""
    data = _anonymous(synthetic(n_users=300, n_items=60, n_interactions=3000))
    # Kernels are compiled for each combination of types: with and without weights, with and without item weights.
    weights = np.linspace(0.5, 2.0, data.by_user.nnz).astype(np.float32)
    weighted = Interactions(Rows(*data.by_user[:2], weights), data.n_items)
    steps: dict[str, Callable[[], None]] = {"read files": _read_files}
    for kind, given in (("", data), (", weighted", weighted)):
        for item_weights in (None, np.linspace(0.5, 1.5, data.n_items)):
            more = kind + ("" if item_weights is None else ", item weights")
            for model in _models():
                name = f"{type(model).__name__} {getattr(model, 'solver', '')}{more}"
                steps[name] = _fit_and_ask(model, given, item_weights)
        steps[f"shards{kind}"] = _fit_on_shards(given)
    return steps


def _anonymous(data: Interactions) -> Interactions:
    return Interactions(data.by_user, data.n_items)


def _models() -> list[IterativeModel]:
    few: Record = {"factors": 8, "epochs": 2}
    return [
        FairALS(**few),
        FairALS(**few, solver="cholesky"),
        FairALS(**few, solver="subspace", block_size=4),
        IALS(**few),
        FiADMM(**few),
        FiADMM(**few, solver="eigenbasis_cg"),
    ]


def _fit_and_ask(model: IterativeModel, data: Interactions, item_weights: Floats | None) -> Callable[[], None]:
    def run() -> None:
        model.fit(data, progress=False, fairness_weights=item_weights)
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "model.fairmf")
            mapped = load_model(Path(folder) / "model.fairmf", mmap=True)
            for asked in (model, load_model(Path(folder) / "model.fairmf"), mapped):
                _ask(asked, data)
            del asked, mapped  # closes the mapped file, which some systems cannot delete otherwise

    return run


def _ask(model: IterativeModel, data: Interactions) -> None:
    """Call every method that answers a request: for one user and for many, for stored and for new users."""
    users, new = np.arange(100), data.take_users(np.arange(20))
    weights = None if data.by_user.weights is None else [1.0, 2.0]
    for who in (3, users):
        model.recommend(who, N=5)
        model.recommend(who, N=5, fairness=2.0)
    model.recommend(users, N=5, items=np.arange(30))
    model.similar_items(3)
    model.similar_users(3)
    model.fold_in_user([1, 2], weights)
    for given in ([1, 2], list(range(9))):
        model.recommend_for(given, N=5)
        model.recommend_for(given, N=5, evenness=0.3)
        model.recommend_for(given, N=5, evenness=0.3, candidates=np.arange(30))
    groups = LevelGroups.build(
        model.item_factors, model.fitted.item_dial, np.eye(model.factors), 4,
        lambda points, count: (np.arange(len(points)) % count).astype(np.int32),
    )  # fmt: skip
    for evenness in (None, 0.3):
        AnnRequests(model, groups, share=0.5).recommend_for([1, 2], N=5, evenness=evenness)
    model.fold_in(new)
    model.fold_in(new, method="cohort")
    model.explain(3, 5)
    for _ in model.rank(new, 5):
        pass
    model.recommend_fairly(users, N=5)
    model.fold_in_items(Interactions(data.by_item, data.n_users))
    model.with_fairness(0.5).partial_fit_users([0], data.take_users(np.arange(1)))


class _HereCluster(RayCluster):
    """A cluster whose workers run in this process, to compile their kernels without Ray."""

    @contextlib.contextmanager
    def team(
        self, data: Interactions | ShardSource, backend: str = "cpu", factor_dtype: str = "float32"
    ) -> Iterator[LocalTeam]:
        """Open the workers."""
        shards = InMemoryShards(data, self.shards or 1) if isinstance(data, Interactions) else data
        workers = LocalTeam(shards, backend, factor_dtype, 1)
        yield workers
        workers.close()


def _fit_on_shards(data: Interactions) -> Callable[[], None]:
    def run() -> None:
        for item_weights in (None, np.linspace(0.5, 1.5, data.n_items)):
            model = FairALS(factors=8, epochs=2, cg_steps=2, engine="ray")
            model.fit(data, progress=False, fairness_weights=item_weights, cluster=_HereCluster(shards=2))

    return run


def _read_files() -> None:
    """Read CSV files with numbers and with texts as ids, large enough for the compiled reader."""
    users, items = np.arange(ROWS_READ) % 5000, (np.arange(ROWS_READ) * 7919) % 1000
    with tempfile.TemporaryDirectory() as folder:
        for word in ("", "id "):
            path = Path(folder) / f"{word}.csv"
            rows = zip(users.tolist(), items.tolist(), strict=True)
            lines = [f"{word}{u},{word}{i},{1 + u % 3}.5" for u, i in rows]
            path.write_text("user,item,weight\n" + "\n".join(lines) + "\n")
            for weights in (None, "sum", "weight"):
                Interactions.from_csv(path, weights=weights)
