"""Compute sums over rows of factors, and sums over users for every item.

Sums are float32 inside a short block and float64 across blocks, always in the same order: the bits are the same for any
number of threads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairmf.data.csr import Rows
from fairmf.kernels import kernel


@kernel
def sum_parts(low, high, this, bounds, out):
    """Set out[b] to the sum of the rows of block b.   in: this, bounds   out: out (blocks x d)"""
    for b in range(low, high):
        for i in range(bounds[b], bounds[b + 1]):
            for k in range(this.shape[1]):
                out[b, k] += this[i, k]


NOT_FINITE = 0x7F800000  # the bits of infinity; those of NaN are larger, those of all other numbers smaller


@kernel
def largest_exponents(low, high, bits, bounds, out):
    """Set out[b] to the largest of the bits, without signs, of the numbers in block b.   in: bits, bounds   out: out"""
    for b in range(low, high):
        largest = np.int32(0)
        for i in range(bounds[b], bounds[b + 1]):
            for k in range(bits.shape[1]):
                largest = max(largest, np.int32(bits[i, k] & np.int32(0x7FFFFFFF)))
        out[b] = largest


@kernel
def weighted_square_parts(low, high, this, weights, bounds, out):
    """Set out[b, k] to the sum of w_i x_ik^2 over block b.   in: this, weights, bounds   out: out (blocks x d)"""
    for b in range(low, high):
        for i in range(bounds[b], bounds[b + 1]):
            for k in range(this.shape[1]):
                out[b, k] += weights[i] * this[i, k] * this[i, k]


@kernel(fastmath=True)
def squared_distance_parts(low, high, this, other, bounds, out):
    """Set out[b] to the squared distance over the rows of block b.   in: this, other, bounds   out: out (blocks)"""
    for b in range(low, high):
        total = 0.0
        for i in range(bounds[b], bounds[b + 1]):
            for k in range(this.shape[1]):
                difference = np.float64(this[i, k]) - np.float64(other[i, k])
                total += difference * difference
        out[b] = total


@kernel(fastmath=True)
def observed_loss_parts(low, high, indptr, indices, weights, this, other, bounds, out):
    """Set out[b] to the sum of c_ij (1 - x_i.y_j)^2 over the rows of block b.   in: all but out   out: out (blocks)"""
    d = this.shape[1]
    for b in range(low, high):
        total = 0.0
        for i in range(bounds[b], bounds[b + 1]):
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                score = np.float32(0.0)
                for k in range(d):
                    score += this[i, k] * other[j, k]
                miss = 1.0 - np.float64(score)
                if weights is None:
                    total += miss * miss
                else:
                    total += weights[e] * miss * miss
        out[b] = total


# -- sums over users for every item, from rows of users: no rows of items are needed ----------------------------------
#
# A thread owns a range of items and walks over all users, so that each item's sum is added by one thread, in the order
# of users. A row's columns ascend, so its entries in a range are contiguous. The ranges depend on the data alone.

RANGES = 8  # at most this many threads can work; more ranges would cost more binary searches per row


def item_ranges(rows: Rows, n_items: int) -> NDArray[np.int64]:
    """Return bounds of ranges of items with about the same number of entries."""
    entries = np.concatenate(([0], np.cumsum(np.bincount(rows.indices, minlength=n_items))))
    count = max(1, min(RANGES, n_items))
    bounds = np.searchsorted(entries, np.linspace(0, entries[-1], count + 1)).astype(np.int64)
    bounds[0], bounds[-1] = 0, n_items
    return bounds


@kernel(inline="always")
def _first_at_least(indices, start, stop, item):
    """Return the first position in start..stop whose column is at least `item`, by binary search."""
    while start < stop:
        middle = (start + stop) // 2
        if indices[middle] < item:
            start = middle + 1
        else:
            stop = middle
    return start


@kernel(fastmath=True)
def _residual_range(indptr, indices, weights, users, items, low, high, out, losses):
    d = users.shape[1]
    for i in range(len(users)):
        x = users[i]
        e = _first_at_least(indices, indptr[i], indptr[i + 1], low)
        stop = _first_at_least(indices, e, indptr[i + 1], high)
        while e + 4 <= stop:
            a, b, c, f = indices[e], indices[e + 1], indices[e + 2], indices[e + 3]
            sa = sb = sc = sf = np.float32(0.0)
            for k in range(d):
                sa += items[a, k] * x[k]
                sb += items[b, k] * x[k]
                sc += items[c, k] * x[k]
                sf += items[f, k] * x[k]
            one = np.float32(1.0)
            sa, sb, sc, sf = one - sa, one - sb, one - sc, one - sf
            wa, wb, wc, wf = sa, sb, sc, sf
            if weights is not None:
                wa, wb, wc, wf = sa * weights[e], sb * weights[e + 1], sc * weights[e + 2], sf * weights[e + 3]
            losses[a] += np.float64(sa * wa)
            losses[b] += np.float64(sb * wb)
            losses[c] += np.float64(sc * wc)
            losses[f] += np.float64(sf * wf)
            for k in range(d):
                out[a, k] += wa * x[k]
                out[b, k] += wb * x[k]
                out[c, k] += wc * x[k]
                out[f, k] += wf * x[k]
            e += 4
        while e < stop:
            a = indices[e]
            sa = np.float32(0.0)
            for k in range(d):
                sa += items[a, k] * x[k]
            sa = np.float32(1.0) - sa
            wa = sa if weights is None else sa * weights[e]
            losses[a] += np.float64(sa * wa)
            for k in range(d):
                out[a, k] += wa * x[k]
            e += 1


@kernel(fastmath=True)
def _product_range(indptr, indices, weights, users, items, low, high, out):
    d = users.shape[1]
    for i in range(len(users)):
        x = users[i]
        e = _first_at_least(indices, indptr[i], indptr[i + 1], low)
        stop = _first_at_least(indices, e, indptr[i + 1], high)
        while e < stop:
            a = indices[e]
            sa = np.float32(0.0)
            for k in range(d):
                sa += items[a, k] * x[k]
            if weights is not None:
                sa *= weights[e]
            for k in range(d):
                out[a, k] += sa * x[k]
            e += 1


@kernel(fastmath=True)
def _curvature_range(indptr, indices, weights, users, items, low, high, out):
    d = users.shape[1]
    for i in range(len(users)):
        x = users[i]
        e = _first_at_least(indices, indptr[i], indptr[i + 1], low)
        stop = _first_at_least(indices, e, indptr[i + 1], high)
        while e + 4 <= stop:
            a, b, c, f = indices[e], indices[e + 1], indices[e + 2], indices[e + 3]
            sa = sb = sc = sf = np.float32(0.0)
            for k in range(d):
                sa += items[a, k] * x[k]
                sb += items[b, k] * x[k]
                sc += items[c, k] * x[k]
                sf += items[f, k] * x[k]
            wa, wb, wc, wf = sa, sb, sc, sf
            if weights is not None:
                wa, wb, wc, wf = sa * weights[e], sb * weights[e + 1], sc * weights[e + 2], sf * weights[e + 3]
            out[a] += np.float64(sa * wa)
            out[b] += np.float64(sb * wb)
            out[c] += np.float64(sc * wc)
            out[f] += np.float64(sf * wf)
            e += 4
        while e < stop:
            a = indices[e]
            sa = np.float32(0.0)
            for k in range(d):
                sa += items[a, k] * x[k]
            out[a] += np.float64(sa * sa if weights is None else sa * sa * weights[e])
            e += 1


@kernel(fastmath=True)
def residual(low, high, indptr, indices, weights, users, items, ranges, out, losses):
    """Add sum_i c_ij (1 - v_j.u_i) u_i to out_j and sum_i c_ij (1 - v_j.u_i)^2 to losses_j, for every item j.

    in: all but the last two   in and out: out (items x d), losses (items)
    """
    for r in range(low, high):
        _residual_range(indptr, indices, weights, users, items, ranges[r], ranges[r + 1], out, losses)


@kernel(fastmath=True)
def product(low, high, indptr, indices, weights, users, items, ranges, out):
    """Add sum_i c_ij (p_j.u_i) u_i to out_j; `items` holds p.   in: all but out   in and out: out (items x d)"""
    for r in range(low, high):
        _product_range(indptr, indices, weights, users, items, ranges[r], ranges[r + 1], out)


@kernel(fastmath=True)
def curvature(low, high, indptr, indices, weights, users, items, ranges, out):
    """Add sum_i c_ij (p_j.u_i)^2 to out_j; `items` holds p.   in: all but out   in and out: out (items)"""
    for r in range(low, high):
        _curvature_range(indptr, indices, weights, users, items, ranges[r], ranges[r + 1], out)
