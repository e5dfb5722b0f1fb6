"""Improve all rows by preconditioned conjugate gradients, in the basis where the shared matrix is diagonal.

In that basis a row's matrix-vector product costs O(nnz_i d), and (diagonal + ridge_i) is a good preconditioner that
costs nothing. Entries are processed eight at a time, so that the row's own vectors are read once per eight gathered
ones, and eight sums are under way at once; the last entries of a row four at a time.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fairmf.backends.cpu.simd import (
    LINE,
    MAY_FUSE,
    ZEROS,
    Part,
    curvature_of_eight,
    curvature_of_four,
    each_part,
    element,
    first_line,
    lane_total,
    length_of,
    pointer_to,
    pull_of_eight,
    pull_of_four,
    repeated,
    times_plus,
)
from fairmf.kernels import kernel

TINY = np.float32(1e-30)  # squares of float32 numbers this small underflow: a row below it counts as solved


AT_ONCE = 8  # entries that a pass processes at a time, or half as many at the end of a row
BYTES = np.uint64(4)  # of an index, and of a confidence


@kernel(inner=True)
def _copy_last(indices, weights, start, stop, columns, confidences):
    """Copy the last entries of a row, and repeat the last of them with confidence 0.   out: columns, confidences"""
    for e in range(AT_ONCE):
        columns[e] = indices[min(start + e, stop - 1)]
        confidences[e] = np.float32(0.0)
        if start + e < stop:
            confidences[e] = np.float32(1.0) if weights is None else weights[start + e]


@kernel(fastmath=True, inline="always")
def _pull_pass(indices, weights, start, stop, other, x, target, addresses, columns, confidences, out):
    """Add sum_j c_j (target - x.y_j) y_j to `out`; return sum_j c_j (target - x.y_j)^2.

    `addresses` are those of indices, weights, columns and confidences. The latter two are memory for a row's last
    entries; where `weights` is None, the second address is that of ones.   in and out: out
    """
    loss = 0.0
    for e in range(start, stop, AT_ONCE):
        at = addresses[0] + BYTES * np.uint64(e)
        own = addresses[1] if weights is None else addresses[1] + BYTES * np.uint64(e)
        # The next entries are loaded into the cache meanwhile, also where they belong to the next row.
        ahead = at if e + 2 * AT_ONCE > len(indices) else at + BYTES * np.uint64(AT_ONCE)
        if stop - e < AT_ONCE:
            _copy_last(indices, weights, e, stop, columns, confidences)
            at, own = addresses[2], addresses[3]
            ahead = at if e + 2 * AT_ONCE > len(indices) else ahead
        if stop - e > AT_ONCE // 2:
            loss += np.float64(pull_of_eight(at, own, other, x, target, out, ahead))
        else:
            loss += np.float64(pull_of_four(at, own, other, x, target, out, ahead))
    return loss


@kernel(fastmath=True, inline="always")
def _curvature_pass(indices, weights, start, stop, other, p, addresses, columns, confidences):
    """Return sum_j c_j (p.y_j)^2, which is all that the last step needs; arguments as above.

    It goes through the entries backwards, because those that the pass before read last are still in the cache.
    """
    curvature = 0.0
    for e in range(start + (stop - start - 1) // AT_ONCE * AT_ONCE, start - 1, -AT_ONCE):
        at = addresses[0] + BYTES * np.uint64(e)
        own = addresses[1] if weights is None else addresses[1] + BYTES * np.uint64(e)
        if stop - e < AT_ONCE:
            _copy_last(indices, weights, e, stop, columns, confidences)
            at, own = addresses[2], addresses[3]
        if stop - e > AT_ONCE // 2:
            curvature += np.float64(curvature_of_eight(at, own, other, p))
        else:
            curvature += np.float64(curvature_of_four(at, own, other, p))
    return curvature


# -- a row's own vectors ----------------------------------------------------------------------------------------------
#
# LLVM would not vectorise these loops: before each, it would have to check whether any two of so many arrays overlap.


def _add_products(b, totals, pairs):
    """Add the product of each pair of vectors to its total."""
    for total, (one, other) in zip(totals, pairs, strict=True):
        b.store(times_plus(b, one, other, b.load(total)), total)


def _store_totals(b, totals, result):
    """Store the sum of the lanes of each total."""
    for e, total in enumerate(totals):
        b.store(lane_total(b, b.load(total)), element(b, result, e))


@intrinsic
def begin_row(_typing, diagonal, ridge, shift, x, h, r):
    """Set h = diagonal + ridge and r = -shift - h x.   in: diagonal, ridge, shift, x   out: h, r"""
    signature = types.void(diagonal, types.float32, shift, x, h, r)

    def code(context, b, _signature, arguments):
        kinds = zip((diagonal, shift, x, h, r), (arguments[0], *arguments[2:]), strict=True)
        shared, moved, own, slopes, out = (pointer_to(context, b, *pair) for pair in kinds)
        added = repeated(b, arguments[1])

        def add(part: Part) -> None:
            slope = b.fadd(part.read(shared), added)
            part.write(slopes, slope)
            part.write(out, b.fneg(times_plus(b, slope, part.read(own), part.read(moved))))

        each_part(b, length_of(context, b, x, arguments[3]), add)
        return context.get_dummy_value()

    return signature, code


@intrinsic
def first_direction(_typing, r, h, shift, x, p, sums):
    """Set p = r / h, and the first three of `sums` to r.p, r.r and p.(r + shift + h x).

    in: r, h, shift, x   out: p, sums
    """
    signature = types.void(r, h, shift, x, p, sums)

    def code(context, b, _signature, arguments):
        kinds = zip((r, h, shift, x, p, sums), arguments, strict=True)
        left, slopes, moved, own, out, result = (pointer_to(context, b, *pair) for pair in kinds)
        totals = [cgutils.alloca_once_value(b, ZEROS) for _ in range(3)]

        def add(part: Part) -> None:
            rest, slope = part.read(left), part.read_divisor(slopes)
            direction = b.fdiv(rest, slope)
            part.write(out, direction)
            entries = times_plus(b, slope, part.read(own), b.fadd(rest, part.read(moved)))
            _add_products(b, totals, [(rest, direction), (rest, rest), (direction, entries)])

        each_part(b, length_of(context, b, x, arguments[3]), add)
        _store_totals(b, totals, result)
        return context.get_dummy_value()

    return signature, code


@intrinsic
def take_step(_typing, length, p, x):
    """Set x += length p; return x.x.   in: length, p   in and out: x"""
    signature = types.float32(types.float32, p, x)

    def code(context, b, _signature, arguments):
        far, direction = repeated(b, arguments[0]), pointer_to(context, b, p, arguments[1])
        own, total = pointer_to(context, b, x, arguments[2]), cgutils.alloca_once_value(b, ZEROS)

        def add(part: Part) -> None:
            moved = times_plus(b, far, part.read(direction), part.read(own))
            part.write(own, moved)
            _add_products(b, [total], [(moved, moved)])

        each_part(b, length_of(context, b, x, arguments[2]), add)
        return lane_total(b, b.load(total))

    return signature, code


@intrinsic
def step_residual(_typing, length, p, h, hp, r):
    """Set r += length (hp - h p), then hp = r / h; return r.hp.   in: length, p, h   in and out: hp, r"""
    signature = types.float32(types.float32, p, h, hp, r)

    def code(context, b, _signature, arguments):
        kinds = zip((p, h, hp, r), arguments[1:], strict=True)
        direction, slopes, product, left = (pointer_to(context, b, *pair) for pair in kinds)
        far, total = repeated(b, arguments[0]), cgutils.alloca_once_value(b, ZEROS)

        def add(part: Part) -> None:
            slope = part.read_divisor(slopes)
            change = b.fsub(part.read(product), b.fmul(slope, part.read(direction), flags=MAY_FUSE), flags=MAY_FUSE)
            rest = times_plus(b, far, change, part.read(left))
            part.write(left, rest)
            conditioned = b.fdiv(rest, slope)
            part.write(product, conditioned)
            _add_products(b, [total], [(rest, conditioned)])

        each_part(b, length_of(context, b, r, arguments[4]), add)
        return lane_total(b, b.load(total))

    return signature, code


@intrinsic
def next_direction(_typing, beta, z, h, r, shift, x, p, sums):
    """Set p = z + beta p, then z to 0, and the first two of `sums` to p.(h p) and p.(r + shift + h x).

    in: beta, h, r, shift, x   in and out: z, p   out: sums
    """
    signature = types.void(types.float32, z, h, r, shift, x, p, sums)

    def code(context, b, _signature, arguments):
        kinds = zip((z, h, r, shift, x, p, sums), arguments[1:], strict=True)
        conditioned, slopes, left, moved, own, direction, result = (pointer_to(context, b, *pair) for pair in kinds)
        kept, totals = repeated(b, arguments[0]), [cgutils.alloca_once_value(b, ZEROS) for _ in range(2)]

        def add(part: Part) -> None:
            slope = part.read(slopes)
            turned = times_plus(b, kept, part.read(direction), part.read(conditioned))
            part.write(direction, turned)
            part.write(conditioned, ZEROS)
            entries = times_plus(b, slope, part.read(own), b.fadd(part.read(left), part.read(moved)))
            _add_products(b, totals, [(turned, b.fmul(slope, turned)), (turned, entries)])

        each_part(b, length_of(context, b, p, arguments[6]), add)
        _store_totals(b, totals, result)
        return context.get_dummy_value()

    return signature, code


# -- steps ------------------------------------------------------------------------------------------------------------


@kernel(fastmath=True, inline="always")
def _dot(a, b):
    total = np.float32(0.0)
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@kernel(fastmath=True, inner=True)
def _improve_block(
    indptr, indices, weights, other, diagonal, ridge, shifts, vector, pulls, steps, tolerance, accuracy, relaxation,
    first, last, this, sums,
):  # fmt: skip
    """Improve rows first..last on this thread.   in: all but the last two   in and out: this   out: sums (3)

    This must stay a separate function that is too large to inline. Inlined into its caller, LLVM would optimise it a
    second time when the kernel is stored, and a process that compiles it would get other last bits than one that loads.
    """
    d = other.shape[1]
    width = (d + LINE - 1) // LINE * LINE
    memory = np.empty(5 * width + LINE, dtype=np.float32)
    at = first_line(memory)
    r, p, hp = memory[at : at + d], memory[at + width : at + width + d], memory[at + 2 * width : at + 2 * width + d]
    h, th = memory[at + 3 * width : at + 3 * width + d], memory[at + 4 * width : at + 4 * width + d]
    columns, confidences = np.empty(AT_ONCE, dtype=np.int32), np.ones(2 * AT_ONCE, dtype=np.float32)
    first_weight = confidences.ctypes.data + BYTES * np.uint64(AT_ONCE) if weights is None else weights.ctypes.data
    addresses = indices.ctypes.data, first_weight, columns.ctypes.data, confidences.ctypes.data
    products = np.empty(3, dtype=np.float32)
    one, none = np.float32(1.0), np.float32(0.0)
    total_loss = total_residual = total_l2 = 0.0
    for i in range(first, last):
        x, shift = this[i], shifts[min(i, len(shifts) - 1)]
        start, stop = indptr[i], indptr[i + 1]
        # 1. Residual r = b - shift - H x, with the preconditioner's diagonal h. The entries' part comes last.
        begin_row(diagonal, ridge[i], shift, x, h, r)
        if vector is not None:
            pull, tx = pulls[i], _dot(vector, x)
            for k in range(d):
                th[k] = vector[k] / h[k]
                r[k] -= pull * tx * vector[k]
            gain = pull / (np.float32(1.0) + pull * _dot(vector, th))
        loss = _pull_pass(indices, weights, start, stop, other, x, one, addresses, columns, confidences, r)
        # 2. First direction p = preconditioner^-1 r, and rz = r.p, by which convergence is measured.
        # slope is the entries' part of p.r, for the loss.
        first_direction(r, h, shift, x, p, products)
        rz, slope = products[0], products[2]
        total_residual += np.float64(products[1])
        if vector is not None:
            loaded = _dot(th, r)
            for k in range(d):
                p[k] -= gain * loaded * th[k]
            rz = _dot(r, p)
        if start == stop:  # without entries the preconditioner is the matrix itself, so x = -H^-1 shift exactly
            for k in range(d):
                x[k] = -shift[k] / h[k]
            if vector is not None:
                loaded = _dot(vector, x)
                for k in range(d):
                    x[k] -= gain * loaded * th[k]
            rz = np.float32(0.0)
        square = -one  # of the length of x, which is not known before the first step
        goal = max(rz * tolerance * tolerance, TINY)
        if accuracy > 0.0:
            size = np.float32(0.0)
            for k in range(d):
                size += h[k] * x[k] * x[k]
            goal = max(goal, accuracy * accuracy * size)
        # 3. Steps: length = rz / p'Hp minimises the quadratic along p.
        if steps > 1:
            for k in range(d):
                hp[k] = none
        for step in range(steps if rz > goal else 0):
            if vector is not None:
                tp = _dot(vector, p)
            if step + 1 == steps:
                curvature = _curvature_pass(indices, weights, start, stop, other, p, addresses, columns, confidences)
            else:  # -H p, but for its diagonal
                if vector is not None:
                    for k in range(d):
                        hp[k] = -pull * tp * vector[k]
                curvature = _pull_pass(
                    indices, weights, start, stop, other, p, none, addresses, columns, confidences, hp
                )
            # p'Hp = curvature (the entries' part) + shared. For the first p = r / h, shared is r.p.
            shared = rz
            if step > 0:
                shared, slope = products[0], products[1]
            elif vector is not None:
                shared = slope = none
                for k in range(d):
                    shared += h[k] * p[k] * p[k]
                    slope += p[k] * (r[k] + shift[k] + h[k] * x[k])
            if vector is not None:
                shared += pull * tp * tp
                slope += pull * tx * tp
            bend = np.float32(curvature) + shared
            if bend == 0.0:  # p is too short to be squared in float32, so that a step would change nothing
                break
            length = rz / bend
            if step + 1 == steps:
                length *= relaxation
            # The loss is a parabola in the step's length whose coefficients are known: no pass over entries is needed.
            loss += np.float64(length) * (np.float64(length) * curvature - 2.0 * np.float64(slope))
            square = take_step(length, p, x)
            if step + 1 == steps:  # no further direction is needed
                break
            before = rz
            rz = step_residual(length, p, h, hp, r)  # hp is now the residual divided by h
            if vector is not None:
                tx += length * tp
                loaded = _dot(th, r)
                rz -= gain * loaded * loaded
                for k in range(d):
                    hp[k] -= gain * loaded * th[k]
            if not rz > goal:
                break
            next_direction(rz / before, hp, h, r, shift, x, p, products)  # conjugate to the one before; hp is 0 again
        # 4. Sums for the objective, which cost no further pass over the entries.
        if square < none:
            square = _dot(x, x)
        total_l2 += np.float64(ridge[i]) * np.float64(square)
        total_loss += loss
    sums[0], sums[1], sums[2] = total_loss, total_residual, total_l2


@kernel(fastmath=True)
def improve_rows(
    low, high, indptr, indices, weights, other, diagonal, ridge, shifts, vector, pulls, steps, tolerance,
    accuracy, relaxation, bounds, this, sums,
):  # fmt: skip
    """Improve rows (`Backend.improve`). `vector` t and `pulls` (rank_one) may be None: Numba omits their code.

    `shifts` has a row for each row of `this`, or one for all: what is subtracted from the right-hand side.
    The preconditioner h + pull t t' is inverted by Sherman-Morrison: 1/h - gain th th', where th = t / h.
    in: all but the last two   in and out: this   out: sums (blocks x 3)
    """
    for block in range(low, high):
        _improve_block(
            indptr, indices, weights, other, diagonal, ridge, shifts, vector, pulls, steps, tolerance, accuracy,
            relaxation, bounds[block], bounds[block + 1], this, sums[block],
        )  # fmt: skip
