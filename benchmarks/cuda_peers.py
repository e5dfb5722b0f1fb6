"""The same FairALS epoch as most people would write it: gathers and sparse products of CuPy (cuSPARSE) or PyTorch.

One preconditioned step per row in the eigenbasis, users then items, the users' coupling corrected once: the arithmetic
of fairmf's epoch without its kernels. Entries are gathered in pieces, because nnz x d numbers do not fit.
"""

from __future__ import annotations

import numpy as np

PIECE = 1 << 28  # bytes of gathered vectors at a time


class CupyPeer:
    """CuPy: advanced indexing for inner products on the entries, cupyx.scipy.sparse for the sums."""

    name = "CuPy + cuSPARSE"

    def __init__(self, data) -> None:
        import cupy as cp
        import cupyx.scipy.sparse as sparse

        self.xp, self._sparse = cp, sparse
        self.sides = []
        for rows, columns in ((data.by_user, data.n_items), (data.by_item, data.n_users)):
            lengths = np.diff(rows.indptr)
            self.sides.append(
                {
                    "indptr": cp.asarray(rows.indptr.astype(np.int32)),
                    "indices": cp.asarray(rows.indices),
                    "row": cp.asarray(np.repeat(np.arange(rows.count, dtype=np.int32), lengths)),
                    "shape": (rows.count, columns),
                }
            )

    def array(self, values):
        return self.xp.asarray(values)

    def eigh(self, matrix):
        return self.xp.linalg.eigh(matrix.astype("f8"))

    def products(self, side, x, y):
        """x_i.y_j of every entry."""
        rows, columns, d = side["row"], side["indices"], x.shape[1]
        out = self.xp.empty(len(rows), dtype="f4")
        for a in range(0, len(rows), PIECE // (4 * d)):
            b = a + PIECE // (4 * d)
            out[a:b] = (x[rows[a:b]] * y[columns[a:b]]).sum(axis=1)
        return out

    def weighted_sums(self, side, values, y):
        """sum_j value_ij y_j of every row."""
        return self._sparse.csr_matrix((values, side["indices"], side["indptr"]), shape=side["shape"]) @ y

    def row_sums(self, side, values):
        matrix = self._sparse.csr_matrix((values, side["indices"], side["indptr"]), shape=side["shape"])
        return matrix.sum(axis=1).ravel()

    def wait(self):
        self.xp.cuda.Device().synchronize()


class TorchPeer:
    """PyTorch: index_select for inner products on the entries, torch.sparse for the sums."""

    name = "PyTorch"

    def __init__(self, data) -> None:
        import torch

        self.torch = torch
        self.sides = []
        for rows, columns in ((data.by_user, data.n_items), (data.by_item, data.n_users)):
            lengths = np.diff(rows.indptr)
            self.sides.append(
                {
                    "indptr": torch.as_tensor(rows.indptr.copy(), device="cuda"),
                    "indices": torch.as_tensor(rows.indices.astype(np.int64), device="cuda"),
                    "row": torch.as_tensor(np.repeat(np.arange(rows.count), lengths), device="cuda"),
                    "shape": (rows.count, columns),
                }
            )

    def array(self, values):
        return self.torch.as_tensor(values, device="cuda")

    def eigh(self, matrix):
        return self.torch.linalg.eigh(matrix.double())

    def products(self, side, x, y):
        rows, columns, d = side["row"], side["indices"], x.shape[1]
        out = self.torch.empty(len(rows), device="cuda")
        for a in range(0, len(rows), PIECE // (4 * d)):
            b = a + PIECE // (4 * d)
            out[a:b] = (x.index_select(0, rows[a:b]) * y.index_select(0, columns[a:b])).sum(dim=1)
        return out

    def weighted_sums(self, side, values, y):
        sparse = self.torch.sparse_csr_tensor(side["indptr"], side["indices"], values, side["shape"])
        return sparse @ y

    def row_sums(self, side, values):
        sums = self.torch.zeros(side["shape"][0], device="cuda")
        return sums.index_add_(0, side["row"], values)

    def wait(self):
        self.torch.cuda.synchronize()


def half_step(peer, side, x, y, shared, ridge, shift):
    """Rotate, one preconditioned step per row (1.3 times as long); the new x and y, and the basis."""
    values, vectors = peer.eigh(shared)
    single = vectors.astype("f4") if hasattr(vectors, "astype") else vectors.float()
    values = values.astype("f4") if hasattr(values, "astype") else values.float()
    x, y = x @ single, y @ single
    shift = shift @ single
    diagonal = values[None, :] + ridge[:, None]
    observed = 1.0 - peer.products(side, x, y)
    r = peer.weighted_sums(side, observed, y) - shift - diagonal * x
    p = r / diagonal
    rz = (r * p).sum(1)
    curvature = peer.row_sums(side, peer.products(side, p, y) ** 2) + (diagonal * p * p).sum(1)
    length = 1.3 * rz / (curvature + 1e-30)
    return x + length[:, None] * p, y, single


def epoch(peer, U, V, ridges, alpha, fairness):
    """Users, then items. The coupling q is that of the users at hand: no correction, which only makes it cheaper."""
    n = len(U)
    gramian = V.T @ V
    q = fairness * alpha * (gramian @ U.mean(0))
    U, V, _ = half_step(peer, peer.sides[0], U, V, alpha * gramian, ridges[0], q)
    t = U.mean(0)
    shared = alpha * (U.T @ U) + fairness * alpha * n * t[:, None] * t[None, :]
    V, U, _ = half_step(peer, peer.sides[1], V, U, shared, ridges[1], 0 * q)
    return U, V
