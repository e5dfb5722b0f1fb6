"""Find the N best items approximately, with a nearest-neighbour index of item vectors (faiss, extra `[ann]`).

Items are put on a sphere (`reduce_items`) and grouped by k-means, and a search looks only into the `probes` groups
nearest to the user. Scores are exact inner products, but an item outside these groups is missed. Building and searching
give the same bits for any number of threads.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairmf.data import stored_arrays
from fairmf.data.csr import Rows
from fairmf.data.ids import Ids
from fairmf.errors import InvalidData, MissingDependency
from fairmf.io import container
from fairmf.io.container import Arrays, Format
from fairmf.io.strict_json import Malformed
from fairmf.lazy import cached_property, lazy_module
from fairmf.params import check_count
from fairmf.ranking.level_groups import LevelGroups
from fairmf.ranking.top_n import check_exclusions, first_allowed, list_length
from fairmf.types import Array, Record
from fairmf.version import install_command

if TYPE_CHECKING:
    import fairmf.threads as cpu_threads
else:
    # It imports Numba, which a service that only searches does not need.
    cpu_threads = lazy_module("fairmf.threads")

Vectors = NDArray[np.float32]
CANDIDATES_AT_ONCE = 1 << 20  # searched for a block of users, which bounds the memory for any number of users
LEAST_PROBES = 64
LARGEST = 1e15  # its square, summed over thousands of factors, is still far below the largest float32
GROUPS_PER_PROBE = 16
INDEX = Format("fairmf nearest-neighbour index", version=1)
DTYPES = {"item_vectors": "f4", "centroids": "f4", "assignment": "i4", "offsets": "f4"}
DIMENSIONS = {"item_vectors": 2, "centroids": 2, "assignment": 1, "offsets": 1}


class AnnIndex:
    """Search item vectors that are grouped. Create an index with `build`, `load` or a model's `to_ann()`."""

    def __init__(
        self,
        item_vectors: NDArray[np.float32],
        offsets: NDArray[np.float32] | None,
        ids: Ids | None,
        centroids: NDArray[np.float32],
        assignment: NDArray[np.int32],
        probes: int,
        levels: LevelGroups | None = None,
    ):
        self.item_vectors, self.offsets, self.ids = item_vectors, offsets, ids
        self.centroids, self.assignment, self.probes = centroids, assignment, probes
        self.levels = levels
        """Groups for requests at any level of evenness (models/ann_requests.py); None without."""
        _check_lengths(item_vectors, offsets)

    @cached_property
    def _lists(self) -> tuple[Any, float]:
        """faiss's inverted lists and the radius of the sphere; made by the first search, for a server needs none."""
        reduced, radius = reduce_items(self.item_vectors, self.offsets)
        with _threads(0):
            return _inverted_lists(reduced, self.centroids, self.assignment), radius

    @classmethod
    def build(
        cls,
        item_vectors: Array,
        ids: Ids | Sequence[Hashable] | None = None,
        *,
        offsets: Array | None = None,
        groups: int | None = None,
        probes: int | None = None,
        num_threads: int = 0,
    ) -> AnnIndex:
        """Group the items by k-means and build the index.

        Parameters
        ----------
        item_vectors
            A row per item.
        ids
            What `recommend` returns for the items; by default their positions.
        offsets
            One number per item that is added to its scores.
        groups
            Number of groups, by default 4 sqrt(items).
        probes
            Number of groups that a search looks into, by default a sixteenth of them and at least 64. With more, recall
            rises and searches are slower; `probes=groups` searches exactly.
        num_threads
            0 uses all cores.
        """
        vectors = _check_vectors("item_vectors", item_vectors)
        m = len(vectors)
        groups = _count_or(min(m, max(1, math.isqrt(16 * m))), "groups", groups, m)
        probes = _count_or(min(groups, max(LEAST_PROBES, groups // GROUPS_PER_PROBE)), "probes", probes, groups)
        extra = None if offsets is None else _check_offsets(offsets, m)
        _check_lengths(vectors, extra)
        names = None if ids is None else Ids(ids).check("item")
        if names is not None and len(names) != m:
            raise InvalidData(f"There are {len(names):,} item ids for {m:,} item vectors.")
        with _threads(num_threads), cpu_threads.use(None):  # BLAS threads inside faiss's would only wait
            centroids, assignment = _group(reduce_items(vectors, extra)[0], groups)
            return cls(vectors, extra, names, centroids, assignment, probes)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_vectors)

    @property
    def n_groups(self) -> int:
        """Number of groups the items are in."""
        return len(self.centroids)

    def search(
        self,
        user_vectors: Array,
        N: int,
        *,
        exclude: Rows | None = None,
        probes: int | None = None,
        num_threads: int = 0,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return item positions and scores, users x min(N, items), best first, ties to the lower position.

        Row i of `exclude` holds the positions that user i must not get. More items than N are searched to make up for
        them, and then more groups, until N are found or no items are left: only then a slot holds -1 and NaN.
        """
        users = _check_vectors("user_vectors", user_vectors, self.item_vectors.shape[1])
        N = list_length(N, self.n_items)
        probes = _count_or(self.probes, "probes", probes, self.n_groups)
        items = np.full((len(users), N), -1, dtype=np.int32)
        scores = np.full((len(users), N), np.nan, dtype=np.float32)
        excluded = np.zeros(len(users), dtype=np.int64)
        if exclude is not None:
            check_exclusions(exclude, len(users), self.n_items)
            excluded = np.diff(exclude.indptr)
        queries, scale = reduce_users(users, self._lists[1], self.offsets is not None)
        with _threads(num_threads):
            for rows, k in _batches(np.minimum(N + excluded, self.n_items)):
                hidden = None if exclude is None else exclude.take(rows)
                found = self._fetch(queries[rows], N, k, hidden, probes)
                items[rows], scores[rows] = found[0], found[1] / scale[rows, None]
        return items, scores

    def _fetch(
        self, queries: NDArray[np.float32], N: int, k: int, exclude: Rows | None, probes: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the N best allowed items of each query; look into more groups for queries that found too few."""
        looked = _faiss().SearchParametersIVF(nprobe=probes)
        found_scores, found = self._lists[0].search(queries, k, params=looked)
        order = np.lexsort((found, -found_scores), axis=1)
        # faiss orders ties arbitrarily; -1 (nothing found) has the lowest score.
        found, found_scores = np.take_along_axis(found, order, 1), np.take_along_axis(found_scores, order, 1)
        items, scores = first_allowed(found.astype(np.int32), found_scores, N, exclude, self.n_items)
        if probes < self.n_groups:
            short = np.flatnonzero(items[:, -1] < 0)
            if len(short):
                hidden = None if exclude is None else exclude.take(short)
                items[short], scores[short] = self._fetch(queries[short], N, k, hidden, min(4 * probes, self.n_groups))
        return items, scores

    def recommend(
        self,
        user_vectors: Array,
        N: int = 10,
        *,
        exclude: Rows | None = None,
        probes: int | None = None,
        num_threads: int = 0,
    ) -> tuple[Array, NDArray[np.float32]]:
        """Search, and return the items' ids (positions if there are none); missing slots hold -1 or None, and NaN."""
        items, scores = self.search(user_vectors, N, exclude=exclude, probes=probes, num_threads=num_threads)
        return self.named(items), scores

    def named(self, items: NDArray[np.int32]) -> Array:
        """Return the ids of item positions."""
        return items if self.ids is None else self.ids.named(items)

    def save(self, path: str | Path) -> None:
        """Write vectors, groups and ids to one file, in one atomic step."""
        write(
            Path(path),
            {"item_vectors": self.item_vectors, "centroids": self.centroids, "assignment": self.assignment}
            | ({} if self.offsets is None else {"offsets": self.offsets})
            | ({} if self.levels is None else self.levels.arrays()),
            self.ids,
            self.probes,
        )

    @classmethod
    def load(cls, path: str | Path) -> AnnIndex:
        """Read a file that `save` wrote; BrokenFile if it is damaged. Nothing in the file is executed or unpickled.

        The arrays stay in the file until they are used, so that processes share them.
        """
        _faiss()
        found = read(Path(path))
        with container.reading(Path(path), INDEX.name):
            _check_sizes("centroids", found["centroids"])
            return cls(**found)

    def __repr__(self) -> str:
        m, d = self.item_vectors.shape
        return f"AnnIndex({m:,} items, {d} factors, {self.n_groups:,} groups, {self.probes} probes)"


# -- find the largest inner product as the nearest neighbour ----------------------------------------------------------
#
# With M the largest item norm, x_j = (v_j, sqrt(M^2 - |v_j|^2)) has norm M and y = (u, 0) gives y.x_j = u.v_j, so that
# |y - x_j|^2 = |u|^2 + M^2 - 2 u.v_j: the nearest x_j is the item with the largest score (Bachrach et al. 2014). An
# offset per item is a coordinate of its own: (v_j, o_j) against (u, 1).


def reduce_items(vectors: Vectors, offsets: Vectors | None) -> tuple[Vectors, float]:
    """Return the items on a sphere, and its radius M."""
    parts = [vectors] if offsets is None else [vectors, offsets[:, None]]
    squares = sum(np.einsum("ij,ij->i", part, part, dtype=np.float64) for part in parts)
    largest = float(np.max(squares))
    rest = np.sqrt(np.maximum(largest - squares, 0.0)).astype(np.float32)
    return np.concatenate([*parts, rest[:, None]], axis=1), float(np.sqrt(largest))


def reduce_users(vectors: Array, radius: float, with_offsets: bool) -> tuple[Vectors, Vectors]:
    """Return the users scaled to about the items' sphere, and the factor each was multiplied with.

    The order of the items depends only on a user's direction, but which groups are near depends on the length too. The
    factor is a power of two, so that dividing a score by it gives the inner product without any rounding.
    """
    columns = [vectors, *([np.ones((len(vectors), 1))] if with_offsets else []), np.zeros((len(vectors), 1))]
    extended = np.concatenate(columns, axis=1).astype(np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", extended, extended, dtype=np.float64))
    ratio = np.divide(radius, norms, out=np.ones_like(norms), where=(norms > 0) & (radius > 0))
    # Limited to float32's normal range, so that no factor underflows.
    scale = np.exp2(np.clip(np.round(np.log2(ratio)), -60, 60)).astype(np.float32)
    return extended * scale[:, None], scale


# -- the file of an index (the container: fairmf.io) ------------------------------------------------------------------
#
# It holds the vectors and their groups, not faiss's own format: that depends on faiss's version, and reading it runs a
# parser on untrusted bytes. The content is {"probes": number, "item_ids": kind of the ids}.


def write(path: Path, arrays: Arrays, ids: Ids | None, probes: int) -> None:
    """Write the arrays of an index, named as in DTYPES, in one atomic step."""
    kind, own = stored_arrays.ids_to_arrays("item_ids", ids)
    container.write(path, INDEX, {"probes": probes, "item_ids": kind}, arrays | own)


def read(path: Path) -> Record:
    """Read and check the arguments of AnnIndex; raise BrokenFile if the file cannot be used."""
    content, arrays = container.read(path, INDEX, mmap=True)
    with container.reading(path, INDEX.name):
        return _checked(content, arrays)


def _checked(content: object, arrays: Arrays) -> Record:
    if not isinstance(content, dict) or set(content) != {"probes", "item_ids"}:
        raise Malformed("its document has other parts than an index's")
    vectors, centroids, assignment = (_taken(name, arrays) for name in ("item_vectors", "centroids", "assignment"))
    offsets = _taken("offsets", arrays) if "offsets" in arrays else None
    m, d = vectors.shape
    groups, width = centroids.shape
    fitting = width == d + 1 + (offsets is not None) and assignment.shape == (m,) and m > 0 and groups > 0 and d > 0
    if not fitting or (offsets is not None and offsets.shape != (m,)):
        raise Malformed("its arrays do not fit each other")
    if assignment.min() < 0 or assignment.max() >= groups:
        raise Malformed("an item is in a group that does not exist")
    probes = content["probes"]
    if type(probes) is not int or not 1 <= probes <= groups:
        raise Malformed(f"its probes must be from 1 to {groups}")
    ids = stored_arrays.ids_from_arrays("item_ids", content["item_ids"], m, arrays)
    levels = LevelGroups.taken(arrays, m, d)
    if arrays:
        raise Malformed(f"it holds an array {next(iter(arrays))[:60]!r} that does not belong there")
    return {
        "item_vectors": vectors,
        "centroids": centroids,
        "assignment": assignment,
        "offsets": offsets,
        "ids": None if ids is None else ids.check("item"),
        "probes": probes,
        "levels": levels,
    }


def _taken(name: str, arrays: Arrays) -> Array:
    """Remove one array from `arrays`, check its shape and type, and return it."""
    array = arrays.pop(name, None)
    if array is None or array.ndim != DIMENSIONS[name]:
        raise Malformed(f"it has no {name}, or not in the right shape")
    if array.dtype != DTYPES[name] or not np.isfinite(array).all():
        raise Malformed(f"its {name} must hold finite numbers of type {DTYPES[name]}")
    return array


# -- faiss ------------------------------------------------------------------------------------------------------------


_forked = False
"""Whether this process was forked after faiss was loaded: OpenMP would wait for threads that no longer exist."""


def _faiss() -> ModuleType:
    """Import faiss; raise MissingDependency if it is not installed."""
    # By default OpenMP's threads spin while they wait. If another process uses a core, every search then takes a time
    # slice of the scheduler longer. OpenMP reads this variable once, when it is loaded; a user's own value is kept.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        import faiss
    except ImportError as error:
        raise MissingDependency(f"A nearest-neighbour index needs faiss: {install_command('ann')}") from error
    _watch_forks()
    return faiss


@functools.cache
def _watch_forks() -> None:
    """Note in child processes that they were forked (once is enough, so it is cached)."""

    def in_child() -> None:
        global _forked
        _forked = True

    if hasattr(os, "register_at_fork"):  # Windows cannot fork
        os.register_at_fork(after_in_child=in_child)


def cluster(points: NDArray[np.float32], groups: int, num_threads: int = 0) -> NDArray[np.int32]:
    """Return the group of each point (`LevelGroups.build`); k-means with few rounds, on a sample of many points."""
    with _threads(num_threads), cpu_threads.use(None):
        return _group(points, groups, rounds=10, sample=64)[1]


def _group(
    reduced: NDArray[np.float32], groups: int, rounds: int = 25, sample: int = 256
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return the centroids and the group of each point; k-means uses `sample` points for each group."""
    faiss = _faiss()
    clustering = faiss.Clustering(reduced.shape[1], groups)
    clustering.niter, clustering.max_points_per_centroid = rounds, sample
    clustering.min_points_per_centroid = 1  # few items per group are intended: no warning on stderr
    nearest = faiss.IndexFlatL2(reduced.shape[1])
    clustering.train(reduced, nearest)
    centroids = nearest.reconstruct_n(0, groups)
    return centroids, nearest.search(reduced, 1)[1][:, 0].astype(np.int32)


def _inverted_lists(reduced: NDArray[np.float32], centroids: NDArray[np.float32], assignment: NDArray[np.int32]) -> Any:
    """Build the index: groups are found by distance, items inside them by inner product, which is the score u.v."""
    faiss = _faiss()
    m, width = reduced.shape
    nearest = faiss.IndexFlatL2(width)
    nearest.add(centroids)
    lists = faiss.IndexIVFFlat(nearest, width, len(centroids), faiss.METRIC_INNER_PRODUCT)
    placed = assignment.astype(np.int64)
    lists.add_core(m, faiss.swig_ptr(reduced), None, faiss.swig_ptr(placed))
    return lists


@contextlib.contextmanager
def _threads(num_threads: int) -> Iterator[None]:
    faiss = _faiss()
    check_count("AnnIndex", "num_threads", num_threads, 0)
    before = faiss.omp_get_max_threads()
    wanted = 1 if _forked else int(num_threads)
    if wanted > 0:
        faiss.omp_set_num_threads(wanted)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _batches(wanted: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Yield users who need about equally many candidates (within a factor of two), and the largest number needed."""
    # A user with a long history needs many candidates; one search for all would need as many for everybody.
    doublings = np.frexp(wanted.astype(np.float64))[1]
    for size in np.unique(doublings):
        rows = np.flatnonzero(doublings == size)
        at_once = max(1, CANDIDATES_AT_ONCE >> int(size))
        for start in range(0, len(rows), at_once):
            block = rows[start : start + at_once]
            yield block, int(wanted[block].max())


def _check_vectors(name: str, values: Array, width: int | None = None) -> NDArray[np.float32]:
    vectors = np.ascontiguousarray(values, dtype=np.float32)
    if vectors.ndim != 2 or vectors.shape[1] == 0 or (width is None and len(vectors) == 0):
        raise InvalidData(f"{name} must be a matrix with one row each and at least one column; got {vectors.shape}.")
    if width is not None and vectors.shape[1] != width:
        raise InvalidData(f"{name} must have {width} columns, as the index has. Got {vectors.shape[1]} instead.")
    if not np.isfinite(vectors).all():
        raise InvalidData(f"{name} holds numbers that are not finite.")
    if width is not None:
        _check_sizes(name, vectors)
    return vectors


def _check_lengths(vectors: NDArray[np.float32], offsets: NDArray[np.float32] | None) -> None:
    for name, values in (("item_vectors", vectors), ("offsets", offsets)):
        if values is not None:
            _check_sizes(name, values)


def _check_sizes(name: str, values: NDArray[np.float32]) -> None:
    """Raise InvalidData for numbers whose squares overflow float32: faiss would abort the process."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest > LARGEST:
        raise InvalidData(f"{name} holds {largest:.3g}: an index takes numbers up to {LARGEST:g}. Scale them down.")


def _check_offsets(values: Array, n_items: int) -> NDArray[np.float32]:
    offsets = np.ascontiguousarray(values, dtype=np.float32)
    if offsets.shape != (n_items,) or not np.isfinite(offsets).all():
        raise InvalidData(f"offsets must be {n_items:,} finite numbers, one per item.")
    return offsets


def _count_or(default: int, name: str, value: int | None, most: int) -> int:
    return default if value is None else check_count("AnnIndex", name, value, 1, most)
