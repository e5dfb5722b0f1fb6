"""Generate wide vector instructions for kernels: tiles of matrix products, and passes over gathered rows.

LLVM vectorises most loops of the kernels well, but not these two: it does not keep a tile of a product in registers,
and it sums each of several inner products on its own. So their instructions are written here, for vectors as wide as
the processor's. Kernels call `product_tile`, `pull_of_eight`, ... like functions; Numba compiles them in place. The
loops over a row's own vectors are in cg.py.

Every number is summed in a fixed order: the bits depend on the width of the processor's vectors, not on threads, on
where arrays lie in memory, or on a BLAS library.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fairmf.kernels import kernel

if TYPE_CHECKING:
    from numba.core.base import BaseContext

LINE = 16  # floats in a cache line. Vectors that cross the border of a line are read in two pieces, which takes longer.


def _instructions() -> str:
    """Return the names of the processor's instruction sets, as Numba compiles for it."""
    asked = numba.config.CPU_FEATURES
    try:
        return llvm.get_host_cpu_features().flatten() if asked is None else asked
    except RuntimeError:  # LLVM cannot tell on every platform
        return ""


# Floats in a vector, and rows and vectors in a tile: as many as the registers hold beside a row of the other matrix.
if "+avx512f" in _instructions():
    LANES, TILE_ROWS, TILE_VECTORS = 16, 12, 2  # 32 registers
elif platform.machine() in ("arm64", "aarch64"):
    LANES, TILE_ROWS, TILE_VECTORS = 4, 6, 4  # 32 registers
else:
    LANES, TILE_ROWS, TILE_VECTORS = 8, 6, 2  # 16 registers
TILE_COLUMNS = LANES * TILE_VECTORS

FLOAT, INT, LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
WIDE, DOUBLES = ir.VectorType(FLOAT, LANES), ir.VectorType(ir.DoubleType(), LANES)
ZEROS = ir.Constant(WIDE, [0.0] * LANES)
MAY_FUSE = ("contract",)  # a product and a sum may become one instruction


# -- vectors ----------------------------------------------------------------------------------------------------------


def _shuffled(b: ir.IRBuilder, first: ir.Value, second: ir.Value | None, lanes: Sequence[int]) -> ir.Value:
    """Return the vector of these lanes of first and second, one after the other."""
    second = ir.Constant(first.type, ir.Undefined) if second is None else second
    return b.shuffle_vector(first, second, ir.Constant(ir.VectorType(INT, len(lanes)), list(lanes)))


def repeated(b: ir.IRBuilder, number: ir.Value, lanes: int = LANES) -> ir.Value:
    """Return a vector that holds the number in every lane."""
    empty = ir.Constant(ir.VectorType(FLOAT, lanes), ir.Undefined)
    return _shuffled(b, b.insert_element(empty, number, INT(0)), None, [0] * lanes)


def times_plus(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    """Return x y + z."""
    return b.fadd(b.fmul(x, y, flags=MAY_FUSE), z, flags=MAY_FUSE)


def element(b: ir.IRBuilder, pointer: ir.Value, *counts: ir.Value | int) -> ir.Value:
    """Return the pointer after so many elements."""
    for count in counts:
        pointer = b.gep(pointer, [LONG(count) if isinstance(count, int) else count])
    return pointer


def _load(b: ir.IRBuilder, pointer: ir.Value, lanes: int = LANES) -> ir.Value:
    return b.load(b.bitcast(pointer, ir.VectorType(FLOAT, lanes).as_pointer()), align=4)


def _store(b: ir.IRBuilder, vector: ir.Value, pointer: ir.Value) -> None:
    b.store(vector, b.bitcast(pointer, vector.type.as_pointer()), align=4)


def _sums(b: ir.IRBuilder, vectors: list[ir.Value]) -> ir.Value:
    """Return a vector with the sum of the lanes of each of the vectors, whose number is a power of two.

    Each step adds the upper halves of what is left of two vectors to the lower ones, side by side in one vector. That
    takes fewer instructions than one sum after the other.
    """
    held, width = 1, vectors[0].type.count  # a vector holds `held` partial sums of `width` lanes
    while width > 1:
        half = width // 2
        pairs = zip(vectors[::2], vectors[1::2], strict=True) if len(vectors) > 1 else [(vectors[0], None)]
        held *= 2 if len(vectors) > 1 else 1
        lower = [part * width + lane for part in range(held) for lane in range(half)]
        upper = [lane + half for lane in lower]
        vectors = [b.fadd(_shuffled(b, x, y, lower), _shuffled(b, x, y, upper)) for x, y in pairs]
        width = half
    while len(vectors) > 1:
        held *= 2
        vectors = [_shuffled(b, x, y, range(held)) for x, y in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def lane_total(b: ir.IRBuilder, vector: ir.Value) -> ir.Value:
    """Return the sum of the lanes."""
    return b.extract_element(_sums(b, [vector]), INT(0))


def pointer_to(context: BaseContext, b: ir.IRBuilder, kind: types.Type, value: ir.Value) -> ir.Value:
    """Return the pointer to the first element of an array, which must be contiguous."""
    if not isinstance(kind, types.Array) or kind.layout != "C":
        raise TypeError(f"This needs a contiguous array, not {kind}.")
    return context.make_array(kind)(context, b, value).data


def length_of(context: BaseContext, b: ir.IRBuilder, kind: types.Type, value: ir.Value) -> ir.Value:
    """Return the length of the last axis of an array."""
    shape = context.make_array(kind)(context, b, value).shape
    return b.extract_value(shape, kind.ndim - 1)


@kernel(inner=True)
def first_line(memory):
    """Return the first position in a float32 array at the border of a cache line; LINE - 1 at most."""
    return (LINE - np.int64(memory.ctypes.data) // 4 % LINE) % LINE


# -- products of matrices ---------------------------------------------------------------------------------------------


@intrinsic
def product_tile(_typing, a, a_first, a_row, a_column, b, b_first, b_row, depth, out, out_first, out_row):
    """Set a tile of TILE_ROWS x TILE_COLUMNS of `out` to A B, where A has `depth` columns; add it if `out` is float64.

    Row i of A begins at element a_first + i a_row of `a`, and its elements are a_column apart. Rows of B begin at
    b_first, b_row apart, those of the result at out_first, out_row apart.   in: all but out   out: out
    """
    signature = types.void(*[a, *[types.intp] * 3, b, *[types.intp] * 3, out, types.intp, types.intp])

    def code(context, builder, _signature, arguments):
        a_, first, row, column, b_, b_first_, b_row_, depth_, out_, out_first_, out_row_ = arguments
        left = element(builder, pointer_to(context, builder, a, a_), first)
        right = element(builder, pointer_to(context, builder, b, b_), b_first_)
        result = element(builder, pointer_to(context, builder, out, out_), out_first_)
        rows = [element(builder, left, builder.mul(row, LONG(i))) for i in range(TILE_ROWS)]
        sums = [[cgutils.alloca_once_value(builder, ZEROS) for _ in range(TILE_VECTORS)] for _ in range(TILE_ROWS)]
        with cgutils.for_range(builder, depth_) as loop:
            line = element(builder, right, builder.mul(loop.index, b_row_))
            vectors = [_load(builder, element(builder, line, v * LANES)) for v in range(TILE_VECTORS)]
            at = builder.mul(loop.index, column)
            for i in range(TILE_ROWS):
                number = repeated(builder, builder.load(element(builder, rows[i], at)))
                for total, vector in zip(sums[i], vectors, strict=True):
                    builder.store(times_plus(builder, number, vector, builder.load(total)), total)
        for i in range(TILE_ROWS):
            line = element(builder, result, builder.mul(out_row_, LONG(i)))
            for v, total in enumerate(sums[i]):
                place, tile = element(builder, line, v * LANES), builder.load(total)
                if out.dtype == types.float64:
                    tile = builder.fpext(tile, DOUBLES)
                    before = builder.load(builder.bitcast(place, DOUBLES.as_pointer()), align=8)
                    tile = builder.fadd(tile, before)
                _store(builder, tile, place)
        return context.get_dummy_value()

    return signature, code


# -- passes over gathered rows ----------------------------------------------------------------------------------------


class Part:
    """Read and write the part of a row that a loop has come to: a whole vector, or the last few elements."""

    def __init__(self, builder: ir.IRBuilder, at: ir.Value, mask: ir.Value | None = None):
        self.builder, self.at, self.mask = builder, at, mask

    def read(self, row: ir.Value) -> ir.Value:
        """Read this part of a row; beyond its end there are zeros."""
        b, pointer = self.builder, element(self.builder, row, self.at)
        if self.mask is None:
            return _load(b, pointer)
        kind = ir.FunctionType(WIDE, [WIDE.as_pointer(), INT, self.mask.type, WIDE])
        # LLVM gives this function, and the two below, the name that they have in its version.
        load = cgutils.get_or_insert_function(b.module, kind, f"llvm.masked.load.v{LANES}f32.p0v{LANES}f32")
        return b.call(load, [b.bitcast(pointer, WIDE.as_pointer()), INT(4), self.mask, ZEROS])

    def read_divisor(self, row: ir.Value) -> ir.Value:
        """Read numbers to divide by: beyond the end they are 1, so that nothing is divided by 0."""
        ones = ir.Constant(WIDE, [1.0] * LANES)
        return self.read(row) if self.mask is None else self.builder.select(self.mask, self.read(row), ones)

    def write(self, row: ir.Value, vector: ir.Value) -> None:
        """Write this part of a row, and nothing beyond its end."""
        b, pointer = self.builder, element(self.builder, row, self.at)
        if self.mask is None:
            _store(b, vector, pointer)
            return
        kind = ir.FunctionType(ir.VoidType(), [WIDE, WIDE.as_pointer(), INT, self.mask.type])
        store = cgutils.get_or_insert_function(b.module, kind, f"llvm.masked.store.v{LANES}f32.p0v{LANES}f32")
        b.call(store, [vector, b.bitcast(pointer, WIDE.as_pointer()), INT(4), self.mask])

    def fetch(self, row: ir.Value) -> None:
        """Load the part into the cache."""
        b, byte = self.builder, ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, INT, INT, INT])
        fetch = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0i8")
        b.call(fetch, [b.bitcast(element(b, row, self.at), byte), INT(0), INT(3), INT(1)])


def each_part(b: ir.IRBuilder, length: ir.Value, body: Callable[[Part], None]) -> None:
    """Emit `body` for every part of rows of this length, which need not be a multiple of LANES."""
    whole = b.and_(length, LONG(-LANES))
    with cgutils.for_range_slice(b, LONG(0), whole, LONG(LANES), LONG) as (at, _):
        body(Part(b, at))
    with b.if_then(b.icmp_signed("<", whole, length), likely=False):
        lanes = ir.Constant(ir.VectorType(INT, LANES), list(range(LANES)))
        left = b.insert_element(ir.Constant(lanes.type, ir.Undefined), b.trunc(b.sub(length, whole), INT), INT(0))
        body(Part(b, whole, b.icmp_signed("<", lanes, _shuffled(b, left, None, [0] * LANES))))


def _gathered(b: ir.IRBuilder, other: ir.Value, length: ir.Value, indices: ir.Value, count: int) -> list[ir.Value]:
    """Return pointers to the rows of `other` that the next `count` indices name."""
    columns = [b.sext(b.load(element(b, indices, e)), LONG) for e in range(count)]
    return [element(b, other, b.mul(column, length)) for column in columns]


def _fetch(b: ir.IRBuilder, rows: list[ir.Value], length: ir.Value) -> None:
    """Load rows into the cache."""

    def fetch(part: Part) -> None:
        for row in rows:
            part.fetch(row)

    each_part(b, length, fetch)


def _products(b: ir.IRBuilder, rows: list[ir.Value], x: ir.Value, length: ir.Value) -> ir.Value:
    """Return a vector with the inner product of x and each of the rows."""
    sums = [cgutils.alloca_once_value(b, ZEROS) for _ in rows]

    def add(part: Part) -> None:
        own = part.read(x)
        for row, total in zip(rows, sums, strict=True):
            b.store(times_plus(b, own, part.read(row), b.load(total)), total)

    each_part(b, length, add)
    return _sums(b, [b.load(total) for total in sums])


def _numbers(b: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    """Return the pointer to the numbers at an address."""
    return b.inttoptr(address, kind.as_pointer())


def _pull(count: int) -> Callable[..., float]:
    """Make the intrinsic for `count` entries; see `pull_of_eight`."""

    @intrinsic
    def pull(_typing, columns, weights, other, x, target, out, ahead):
        signature = types.float32(types.uintp, types.uintp, other, x, types.float32, out, types.uintp)

        def code(context, b, _signature, arguments):
            columns_, weights_, other_, x_, target_, out_, ahead_ = arguments
            length, table = length_of(context, b, other, other_), pointer_to(context, b, other, other_)
            own, result = pointer_to(context, b, x, x_), pointer_to(context, b, out, out_)
            # Prefetching has loops of its own, because the processor has too few registers for the addresses of sixteen
            # rows. There are two, because it can wait for only a few cache lines at once.
            later = _gathered(b, table, length, _numbers(b, ahead_, INT), count)
            _fetch(b, later[: count // 2], length)
            for address in (columns_, weights_):  # two lines ahead: the processor does not see so many streams
                Part(b, LONG(2 * LINE)).fetch(_numbers(b, address, FLOAT))
            rows = _gathered(b, table, length, _numbers(b, columns_, INT), count)
            misses = b.fsub(repeated(b, target_, count), _products(b, rows, own, length))
            pulls = b.fmul(misses, _load(b, _numbers(b, weights_, FLOAT), count))
            _fetch(b, later[count // 2 :], length)
            factors = [_shuffled(b, pulls, None, [e] * LANES) for e in range(count)]

            def add(part: Part) -> None:
                sums = [part.read(result), ZEROS]  # two, because each step waits for the one before
                for e in range(count):
                    sums[e % 2] = times_plus(b, factors[e], part.read(rows[e]), sums[e % 2])
                part.write(result, b.fadd(*sums))

            each_part(b, length, add)
            return lane_total(b, b.fmul(misses, pulls))

        return signature, code

    return pull


def _curvature(count: int) -> Callable[..., float]:
    """Make the intrinsic for `count` entries; see `curvature_of_eight`."""

    @intrinsic
    def curvature(_typing, columns, weights, other, x):
        signature = types.float32(types.uintp, types.uintp, other, x)

        def code(context, b, _signature, arguments):
            columns_, weights_, other_, x_ = arguments
            length, table = length_of(context, b, other, other_), pointer_to(context, b, other, other_)
            rows = _gathered(b, table, length, _numbers(b, columns_, INT), count)
            products = _products(b, rows, pointer_to(context, b, x, x_), length)
            return lane_total(b, b.fmul(b.fmul(products, products), _load(b, _numbers(b, weights_, FLOAT), count)))

        return signature, code

    return curvature


# -- scores -----------------------------------------------------------------------------------------------------------


@intrinsic
def reaching(_typing, row, at, floor):
    """Return a number whose bit c says whether row[at + c] reaches the floor, for the 64 elements from `at` on."""
    signature = types.uint64(row, types.intp, types.float32)

    def code(context, b, _signature, arguments):
        begin, limit = (
            element(b, pointer_to(context, b, row, arguments[0]), arguments[1]),
            repeated(b, arguments[2], 16),
        )
        found = ir.Constant(LONG, 0)
        for part in range(4):
            hits = b.fcmp_ordered(">=", _load(b, element(b, begin, 16 * part), 16), limit)
            bits = b.zext(b.bitcast(hits, ir.IntType(16)), LONG)
            found = b.or_(found, b.shl(bits, LONG(16 * part)))
        return found

    return signature, code


@intrinsic
def lowest_bit(_typing, bits):
    """Return the position of the lowest bit that is set."""

    def code(_context, b, _signature, arguments):
        return b.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(bits), code


@intrinsic
def scores_of_eight(_typing, other, first, last, x, begin, out, at):
    """Set out[at] to out[at + 7] to the products of the vector at x[begin] and rows first, first + 1, ... of `other`.

    Beyond row `last`, that row is taken again.

    in: all but out   out: out
    """
    signature = types.void(other, types.intp, types.intp, x, types.intp, out, types.intp)

    def code(context, b, _signature, arguments):
        other_, first_, last_, x_, begin_, out_, at_ = arguments
        length, table = length_of(context, b, other, other_), pointer_to(context, b, other, other_)
        numbers = [b.add(first_, LONG(e)) for e in range(8)]
        numbers = [b.select(b.icmp_signed("<", number, last_), number, last_) for number in numbers]
        rows = [element(b, table, b.mul(number, length)) for number in numbers]
        products = _products(b, rows, element(b, pointer_to(context, b, x, x_), begin_), length)
        _store(b, products, element(b, pointer_to(context, b, out, out_), at_))
        return context.get_dummy_value()

    return signature, code


pull_of_eight, pull_of_four = _pull(8), _pull(4)
"""pull(columns, weights, other, x, target, out, ahead): add sum_e c_e (target - x.y_e) y_e to `out`, and return
sum_e c_e (target - x.y_e)^2. `columns` and `weights` are the addresses of the entries' columns and confidences. Rows of
the columns at the address `ahead` are loaded into the cache meanwhile.   in: all but out   in and out: out"""

curvature_of_eight, curvature_of_four = _curvature(8), _curvature(4)
"""curvature(columns, weights, other, x): return sum_e c_e (x.y_e)^2.   in: all"""
