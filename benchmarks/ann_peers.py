"""Nearest-neighbour libraries on the same vectors, those that are installed: pip install hnswlib usearch voyager.

Graphs (HNSW) with the same number of links and construction width each, and faiss's inverted lists (IVF). "plain" gives
the library the inner product as its metric, "reduced" the vectors of fairmf.ranking.ann.
"""

from __future__ import annotations

import importlib.util
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

LINKS, CONSTRUCTION, WIDTHS = 16, 200, (100, 200, 400)
Search = Callable[[int], np.ndarray]  # search width -> users x k


def faiss_lists(items: np.ndarray, users: np.ndarray, k: int, threads: int) -> tuple[Search, Callable[[str], Any]]:
    import faiss

    faiss.omp_set_num_threads(threads)
    groups = math.isqrt(16 * len(items))
    nearest = faiss.IndexFlatIP(items.shape[1])
    index = faiss.IndexIVFFlat(nearest, items.shape[1], groups, faiss.METRIC_INNER_PRODUCT)
    index.cp.min_points_per_centroid = 1
    with threadpoolctl.threadpool_limits(1, "blas"):
        index.train(items)
    index.add(items)

    def search(width: int) -> np.ndarray:
        return index.search(users, k, params=faiss.SearchParametersIVF(nprobe=width))[1]

    return search, lambda path: faiss.write_index(index, path)


def faiss_graph(items: np.ndarray, users: np.ndarray, k: int, threads: int) -> tuple[Search, Callable[[str], Any]]:
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexHNSWFlat(items.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = CONSTRUCTION
    index.add(items)

    def search(width: int) -> np.ndarray:
        return index.search(users, k, params=faiss.SearchParametersHNSW(efSearch=width))[1]

    return search, lambda path: faiss.write_index(index, path)


def hnswlib_graph(items: np.ndarray, users: np.ndarray, k: int, threads: int) -> tuple[Search, Callable[[str], Any]]:
    import hnswlib

    index = hnswlib.Index("ip", items.shape[1])
    index.init_index(len(items), ef_construction=CONSTRUCTION, M=LINKS, random_seed=0)
    index.set_num_threads(threads)
    index.add_items(items)

    def search(width: int) -> np.ndarray:
        index.set_ef(width)
        return index.knn_query(users, k)[0]

    return search, index.save_index


def usearch_graph(items: np.ndarray, users: np.ndarray, k: int, threads: int) -> tuple[Search, Callable[[str], Any]]:
    from usearch.index import Index

    index = Index(
        ndim=items.shape[1], metric="ip", dtype="f32", connectivity=LINKS, expansion_add=CONSTRUCTION
    )  # fmt: skip
    index.add(np.arange(len(items), dtype=np.uint64), items, threads=threads)

    def search(width: int) -> np.ndarray:
        index.expansion_search = width
        return index.search(users, k, threads=threads).keys

    return search, index.save


def voyager_graph(items: np.ndarray, users: np.ndarray, k: int, threads: int) -> tuple[Search, Callable[[str], Any]]:
    from voyager import Index, Space

    # Its inner product is the same reduction, made by the library; on vectors of equal norms it adds nothing.
    index = Index(Space.InnerProduct, items.shape[1], M=LINKS, ef_construction=CONSTRUCTION, random_seed=0)
    index.add_items(items, num_threads=threads)
    return lambda width: index.query(users, k, num_threads=threads, query_ef=width)[0], index.save


INDEXES = {
    "faiss lists": (faiss_lists, (16, 32, 64, 128)),
    "faiss graph": (faiss_graph, WIDTHS),
    "hnswlib graph": (hnswlib_graph, WIDTHS),
    "usearch graph": (usearch_graph, WIDTHS),
    "voyager graph": (voyager_graph, WIDTHS),
}


def measure(
    metric: str, items: np.ndarray, users: np.ndarray, k: int, threads: int
) -> Iterator[tuple[str, str, float, float, np.ndarray, int]]:
    """(index, setting, seconds to build, seconds to search, lists, bytes) for every index and search width."""
    for name, (build, widths) in INDEXES.items():
        if importlib.util.find_spec(name.split()[0]) is None:
            continue
        began = time.perf_counter()
        search, save = build(items, users, k, threads)
        built = time.perf_counter() - began
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "index")
            save(path)
            size = Path(path).stat().st_size
        for width in widths:
            began = time.perf_counter()
            lists = search(width)
            yield f"{name}, {metric}", f"width {width}", built, time.perf_counter() - began, lists, size
