"""Two products of matrices in a processor's registers, of which a CPU's kernels are made; Numba compiles them.

A library's product of a few rows is mostly its call and arranging the factors. These are the inner loops alone; the
caller's loops go over groups of rows, parts of a layer and threads. Sums and rows are float32, factors float32 or
bfloat16; products and sums are fused where the processor can, and every sum is added in the same order whatever else is
computed beside it. A tile's size is known when it is compiled, everything else when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, product
from typing import Any, NamedTuple

from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from auras_ros.kernels.compiled import number, pointer

BYTES, HALF_BYTES = 4, 2  # of a number, of a bfloat16
ROWS = (6, 4, 2, 1)  # of a tile
_WIDE_REGISTERS = bool(binding.get_host_cpu_features().get("avx512f"))  # and twice as many of them
LANES = 16 if _WIDE_REGISTERS else 8 if binding.get_host_cpu_features().get("avx2") else 4
COLUMNS = 4 if _WIDE_REGISTERS else 2  # of a tile of `inner_products`
LINE = 64  # bytes that are fetched at once
AHEAD = 2  # tiles of `add_products` after which one is needed whose factors are fetched now
COPIED = 8  # numbers at once, of `copy_numbers`
WIDE = LANES * (4 if _WIDE_REGISTERS else 2)  # of `add_products`; a tile's sums fit in the registers

_FLOAT, _INT, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_FUSED = ("contract",)


@njit
def rows_of_tile(left, columns):
    """left: rows from here on. A tile of one column has one row, as every tile takes time to compile."""
    if columns == 1:
        return 1
    return 6 if left >= 6 else 4 if left >= 4 else 2 if left >= 2 else 1


@njit
def columns_of_tile(left):
    """Of `add_products`."""
    return WIDE if left >= WIDE else LANES if left >= LANES else 1


def _at(builder: Any, address: Any, place: Any) -> Any:
    return builder.add(address, builder.mul(place, _LONG(BYTES)))


def _row(builder: Any, address: Any, row: Any, step: Any) -> Any:
    return _at(builder, address, builder.mul(row, step))


def _load(builder: Any, address: Any, kind: Any) -> Any:
    found = builder.load(pointer(builder, address, kind))
    found.align = BYTES
    return found


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, pointer(builder, address, value.type)).align = BYTES


def _store_past_cache(builder: Any, value: Any, address: Any) -> None:
    """At a multiple of the vector's size."""
    stored = builder.store(value, pointer(builder, address, value.type))
    stored.align = LANES * BYTES
    stored.set_metadata("nontemporal", builder.module.add_metadata([_INT(1)]))


def _prefetch(builder: Any, address: Any) -> None:
    """Into the nearest cache, to be read."""
    byte = ir.IntType(8)
    kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), _INT, _INT, _INT])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [pointer(builder, address, byte), _INT(0), _INT(3), _INT(1)])


def _zeros(builder: Any, kind: Any, count: int) -> list[Any]:
    """Variables, which the compiler keeps in registers."""
    places = [cgutils.alloca_once(builder, kind) for _ in range(count)]
    for place in places:
        builder.store(kind(None), place)
    return places


def _add_product(builder: Any, total: Any, one: Any, other: Any) -> None:
    made = builder.fadd(builder.load(total), builder.fmul(one, other, flags=_FUSED), flags=_FUSED)
    builder.store(made, total)


def _repeated(builder: Any, number: Any, kind: Any) -> Any:
    none = kind(ir.Undefined)
    first = builder.insert_element(none, number, _INT(0))
    return builder.shuffle_vector(first, none, ir.VectorType(_INT, kind.count)(None))


def _some(builder: Any, vector: Any, places: Sequence[int]) -> Any:
    chosen = ir.Constant(ir.VectorType(_INT, len(places)), [_INT(each) for each in places])
    return builder.shuffle_vector(vector, vector.type(ir.Undefined), chosen)


def _totals(builder: Any, vectors: Sequence[Any]) -> list[Any]:
    """Of each vector's numbers: halves added until there is one. Returns vectors that have the totals side by side, the
    last one filled up: two vectors' halves are added at once, and so on."""
    found, (size,) = list(vectors), {each.type.count for each in vectors}
    half = size // 2
    while half > 0:
        found += found[-1:] * (len(found) % 2)
        groups = list(range(0, 2 * size, 2 * half))
        low, high = (
            ir.Constant(
                ir.VectorType(_INT, size), [_INT(begin + each + shift) for begin in groups for each in range(half)]
            )
            for shift in (0, half)
        )
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [
            builder.fadd(*(builder.shuffle_vector(one, other, each) for each in (low, high))) for one, other in pairs
        ]
        half //= 2
    return found


def _choose(builder: Any, sizes: Sequence[Any], tiles: Any, tile: Callable[[int, int], None]) -> None:
    """The code of the tile that has these sizes."""
    for rows, columns in tiles:
        fits = [builder.icmp_signed("==", own, _LONG(each)) for own, each in zip(sizes, (rows, columns), strict=True)]
        with builder.if_then(builder.and_(*fits)):
            tile(rows, columns)


class FactorLayout(NamedTuple):
    """How factors are in memory. size: bytes of a number. load: of a builder, the address of an array, a place in it
    and the type of what is loaded, of float32."""

    size: int
    load: Callable[[Any, Any, Any, Any], Any]

    def prefetch(self, builder: Any, address: Any, place: Any, count: int) -> None:
        """So many numbers from a place on."""
        at = builder.add(address, builder.mul(place, _LONG(self.size)))
        for line in range(0, count * self.size, LINE):
            _prefetch(builder, builder.add(at, _LONG(line)))


def _inner_products(layout: FactorLayout) -> Any:
    @intrinsic
    def multiply(typing, rows, columns, x, x_step, index, a, a_step, width, out, out_step, add):
        """out[m, n] = sum over k of x[index[m], k] * a[n, k], for `rows` (of ROWS) and `columns` (COLUMNS, or 1
        of 1 row). x, a, out and index (int64) are addresses. Steps: numbers from one row to the next. add: 1 to add
        to out, or 0."""

        def generate(context, builder, signature, arguments):
            x, x_step, index, a, a_step, width, out, out_step, add = arguments[2:]
            adds = builder.icmp_signed("!=", add, _LONG(0))
            whole = builder.mul(builder.sdiv(width, _LONG(LANES)), _LONG(LANES))

            def tile(rows: int, columns: int) -> None:
                xs = [_row(builder, x, number(builder, index, _LONG(m)), x_step) for m in range(rows)]
                factors = [builder.mul(_LONG(n), a_step) for n in range(columns)]
                next_tile = builder.mul(_LONG(columns), a_step)

                def sums(kind: Any, begin: Any, end: Any, step: int) -> list[Any]:
                    totals = _zeros(builder, kind, rows * columns)
                    with cgutils.for_range_slice(builder, begin, end, _LONG(step), _LONG) as (place, _):
                        own = [_load(builder, _at(builder, each, place), kind) for each in xs]
                        for n, factor in enumerate(factors):
                            at = builder.add(factor, place)
                            numbers = layout.load(builder, a, at, kind)
                            layout.prefetch(builder, a, builder.add(at, next_tile), step)
                            for m in range(rows):
                                _add_product(builder, totals[m * columns + n], own[m], numbers)
                    return [builder.load(each) for each in totals]

                vectors = _totals(builder, sums(ir.VectorType(_FLOAT, LANES), _LONG(0), whole, LANES))
                outs = [_row(builder, out, _LONG(m), out_step) for m in range(rows)]
                for m, row in enumerate(outs):
                    at, first = divmod(m * columns, LANES)
                    made = _some(builder, vectors[at], range(first, first + columns))
                    before = builder.select(adds, _load(builder, row, made.type), made.type(None))
                    _store(builder, builder.fadd(before, made), row)
                with builder.if_then(builder.icmp_signed("<", whole, width)):
                    for place, more in enumerate(sums(_FLOAT, whole, width, 1)):
                        m, n = divmod(place, columns)
                        at = _at(builder, outs[m], _LONG(n))
                        _store(builder, builder.fadd(_load(builder, at, _FLOAT), more), at)

            _choose(builder, arguments[:2], [*product(ROWS, (COLUMNS,)), (1, 1)], tile)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11), generate

    return multiply


def _add_products(layout: FactorLayout) -> Any:
    @intrinsic
    def add(typing, rows, columns, out, base, out_step, index, factors, row_step, step, t, t_step, steps, sign):
        """out[index[m], o] = base[index[m], o] + sign * sum over j of factors[m, j] * t[j, o], for `rows` (of ROWS)
        and `columns` (WIDE or LANES, or 1 of 1 row). As in `inner_products`; row_step, step: from a factor to that of
        the next m and j. base may be out. sign: float32."""

        def generate(context, builder, signature, arguments):
            out, base, out_step, index, factors, row_step, step, t, t_step, steps, sign = arguments[2:]

            def tile(rows: int, columns: int) -> None:
                kind = ir.VectorType(_FLOAT, min(columns, LANES))
                places = [_LONG(each) for each in range(0, columns, LANES)]
                sums = [_zeros(builder, kind, len(places)) for _ in range(rows)]
                own = [_row(builder, factors, _LONG(m), row_step) for m in range(rows)]
                for m in range(rows):
                    row = builder.mul(number(builder, index, _LONG(m)), out_step)
                    for place in places:
                        _prefetch(builder, _at(builder, base, builder.add(row, place)))
                with cgutils.for_range(builder, steps) as loop:
                    row = builder.mul(loop.index, t_step)
                    numbers = [layout.load(builder, t, builder.add(row, place), kind) for place in places]
                    layout.prefetch(builder, t, builder.add(row, _LONG(AHEAD * columns)), columns)
                    for m in range(rows):
                        factor = _load(builder, _row(builder, own[m], loop.index, step), _FLOAT)
                        repeated = _repeated(builder, factor, kind)
                        for total, each in zip(sums[m], numbers, strict=True):
                            _add_product(builder, total, repeated, each)
                signs = _repeated(builder, sign, kind)

                for m in range(rows):
                    row = builder.mul(number(builder, index, _LONG(m)), out_step)
                    for place, total in zip(places, sums[m], strict=True):
                        offset = builder.add(row, place)
                        added = builder.fmul(signs, builder.load(total), flags=_FUSED)
                        made = builder.fadd(_load(builder, _at(builder, base, offset), kind), added, flags=_FUSED)
                        _store(builder, made, _at(builder, out, offset))

            _choose(builder, arguments[:2], [*product(ROWS, (WIDE, LANES)), (1, 1)], tile)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 12, types.float32), generate

    return add


@intrinsic
def room(typing):
    """The address of a tile's numbers on the stack of the function that asks for it: of `stream_products`."""

    def generate(context, builder, signature, arguments):
        held = cgutils.alloca_once(builder, ir.VectorType(_FLOAT, LANES), size=ROWS[0] * WIDE // LANES)
        held.align = LANES * BYTES
        return builder.ptrtoint(held, _LONG)

    return types.int64(), generate


@intrinsic
def stream_products(typing, base, step, factors, factors_step, t, t_step, steps, sign, held, late_base, late_out):
    """held[m, o] = sign * sum over j of factors[m, j] * t[j, o], for ROWS[0] rows and WIDE columns, and between these
    sums late_out[m, o] = late_base[m, o] + what was in held: the tile before goes to memory, past the cache, while this
    one is computed, and what this one will be added to (base) comes from there. As in `add_products`; step: of base,
    late_base and late_out, whose rows begin at multiples of a vector. late_out 0: there is none before."""

    def generate(context, builder, signature, arguments):
        base, step, factors, factors_step, t, t_step, steps, sign, held, late_base, late_out = arguments
        kind, places = ir.VectorType(_FLOAT, LANES), [_LONG(each) for each in range(0, WIDE, LANES)]
        sums = [_zeros(builder, kind, len(places)) for _ in range(ROWS[0])]
        own = [_at(builder, factors, _LONG(m)) for m in range(ROWS[0])]
        before = builder.icmp_signed("!=", late_out, _LONG(0))

        def share(row: Any) -> Any:
            return builder.sdiv(builder.mul(row, steps), _LONG(ROWS[0]))

        with cgutils.for_range(builder, _LONG(ROWS[0])) as loop:
            after = share(builder.add(loop.index, _LONG(1)))
            with cgutils.for_range_slice(builder, share(loop.index), after, _LONG(1), _LONG) as (place, _):
                row = builder.mul(place, t_step)
                numbers = [_load(builder, _at(builder, t, builder.add(row, each)), kind) for each in places]
                for m in range(ROWS[0]):
                    factor = _load(builder, _row(builder, own[m], place, factors_step), _FLOAT)
                    repeated = _repeated(builder, factor, kind)
                    for total, each in zip(sums[m], numbers, strict=True):
                        _add_product(builder, total, repeated, each)
            row = builder.mul(loop.index, step)
            ready = _row(builder, held, loop.index, _LONG(WIDE))
            for place in places:
                _prefetch(builder, _at(builder, base, builder.add(row, place)))
            with builder.if_then(before):
                for place in places:
                    offset = builder.add(row, place)
                    more = _load(builder, _at(builder, ready, place), kind)
                    made = builder.fadd(_load(builder, _at(builder, late_base, offset), kind), more)
                    _store_past_cache(builder, made, _at(builder, late_out, offset))
        signs = _repeated(builder, sign, kind)
        for piece, total in enumerate(chain.from_iterable(sums)):
            made = builder.fmul(signs, builder.load(total))
            _store(builder, made, _row(builder, held, _LONG(piece), _LONG(LANES)))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7, types.float32, *[types.int64] * 3), generate


def _copy_numbers(layout: FactorLayout) -> Any:
    @intrinsic
    def copied(typing, source, out, count):
        """out[o] = source[o], for o up to count. source, out: addresses."""

        def generate(context, builder, signature, arguments):
            source, out, count = arguments
            whole = builder.mul(builder.sdiv(count, _LONG(COPIED)), _LONG(COPIED))
            vector = ir.VectorType(_FLOAT, COPIED)
            for kind, begin, end, step in ((vector, _LONG(0), whole, COPIED), (_FLOAT, whole, count, 1)):
                with cgutils.for_range_slice(builder, begin, end, _LONG(step), _LONG) as (place, _):
                    _store(builder, layout.load(builder, source, place, kind), _at(builder, out, place))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), generate

    return copied


def _load_plain(builder: Any, address: Any, place: Any, kind: Any) -> Any:
    return _load(builder, _at(builder, address, place), kind)


def _load_half(builder: Any, address: Any, place: Any, kind: Any) -> Any:
    """A bfloat16 is the upper half of a float32."""
    count = getattr(kind, "count", None)
    short, whole = (each if count is None else ir.VectorType(each, count) for each in (ir.IntType(16), _INT))
    found = builder.load(pointer(builder, builder.add(address, builder.mul(place, _LONG(HALF_BYTES))), short))
    found.align = HALF_BYTES
    places = _INT(16) if count is None else ir.Constant(whole, [16] * count)
    return builder.bitcast(builder.shl(builder.zext(found, whole), places), kind)


# For factors in float32, and in bfloat16
PLAIN, HALF = FactorLayout(BYTES, _load_plain), FactorLayout(HALF_BYTES, _load_half)
inner_products, inner_products_half = _inner_products(PLAIN), _inner_products(HALF)
add_products, add_products_half = _add_products(PLAIN), _add_products(HALF)
copy_numbers, copy_numbers_half = _copy_numbers(PLAIN), _copy_numbers(HALF)
