"""``numba.njit`` with a cache on disk where possible, and SIMD vectors of 64 bytes with sums in a fixed order.

A compiler vectorizes a sum only if it may reorder it (``fastmath``); the order then depends on the processor, the
surrounding code and even array addresses. In ``Lanes``, lane i adds the terms i, i + n, i + 2n, ... (n = 16 for
float32, 8 for float64), and ``total`` adds the lanes pairwise. Arrays must be one-dimensional and contiguous; bounds
are not checked.
"""
# ruff: noqa: ARG001, ARG005  (Numba passes all arguments to the code generators)

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from multiprocessing import parent_process
from typing import Any

from streaming_jsmf.errors import InputError, first_line

try:
    from llvmlite import ir
    from numba import config, njit
    from numba.core import cgutils, types
    from numba.extending import intrinsic, models, register_model
except ValueError as error:
    raise InputError(f"numba cannot be loaded ({first_line(error)}); unset NUMBA_NUM_THREADS") from error
if config.DISABLE_JIT:
    raise InputError("NUMBA_DISABLE_JIT is set, and without compilation nothing can be computed; unset it")

logger = logging.getLogger(__name__)

BYTES = 64
_I32 = ir.IntType(32)


def compiled(*, internal: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit(cache=True, **options)``, or without the cache if no directory for it is writable.

    ``internal`` functions are called by compiled functions only. They have no wrapper for Python, which takes almost
    .1 s to compile.

    Raises ``ValueError`` for ``fastmath``: it lets the order of a sum depend on the compiler and on array addresses, so
    bits differ between processes. Use ``Lanes`` for fast sums in a fixed order.
    """
    if "fastmath" in options:
        raise ValueError("with fastmath, results depend on memory addresses; use Lanes for fast sums")

    options |= {"no_cpython_wrapper": internal, "no_cfunc_wrapper": True}

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError as error:
            if "no locator" not in str(error):
                raise
        _warn_once()
        return njit(**options)(function)

    return decorate


@cache
def _warn_once() -> None:
    if parent_process() is None:
        logger.warning(
            "compiled functions cannot be cached, so every run compiles them again (some seconds); set NUMBA_CACHE_DIR "
            "to a writable directory"
        )


class Lanes(types.Type):
    """Numba type of a vector."""

    def __init__(self, dtype: Any) -> None:
        self.dtype, self.count = dtype, 8 * BYTES // dtype.bitwidth
        super().__init__(f"Lanes({dtype})")


@register_model(Lanes)
class _Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        super().__init__(manager, lanes, ir.VectorType(manager[lanes.dtype].get_value_type(), lanes.count))


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    vector = context.get_value_type(Lanes(signature.args[0].dtype))
    return builder.bitcast(builder.gep(array.data, [arguments[1]]), vector.as_pointer())


def _shuffled(builder: Any, vector: Any, places: Any) -> Any:
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(_I32, len(places)), list(places)))


def _repeated(builder: Any, number: Any, count: int) -> Any:
    vector = ir.Constant(ir.VectorType(number.type, count), ir.Undefined)
    return _shuffled(builder, builder.insert_element(vector, number, _I32(0)), [0] * count)


def _filled(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return _repeated(builder, arguments[0], signature.return_type.count)


@intrinsic  # type: ignore[untyped-decorator]
def width(_: Any, array: Any) -> Any:
    """Number of lanes for the dtype of an array."""
    count = Lanes(array.dtype).count
    return types.intp(array), lambda context, *_: context.get_constant(types.intp, count)


@intrinsic  # type: ignore[untyped-decorator]
def load(_: Any, array: Any, place: Any) -> Any:
    """Load a vector from an array, starting at ``place``."""

    def emit(context: Any, builder: Any, *call: Any) -> Any:
        return builder.load(_place(context, builder, *call), align=array.dtype.bitwidth // 8)

    return Lanes(array.dtype)(array, types.intp), emit


@intrinsic  # type: ignore[untyped-decorator]
def store(_: Any, array: Any, place: Any, lanes: Any) -> Any:
    """Store a vector in an array, starting at ``place``."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        to = _place(context, builder, signature, arguments)
        builder.store(arguments[2], to, align=array.dtype.bitwidth // 8)

    return types.void(array, types.intp, lanes), emit


@intrinsic  # type: ignore[untyped-decorator]
def fill(_: Any, number: Any) -> Any:
    """A vector with the same number in every lane."""
    return Lanes(number)(number), _filled


@intrinsic  # type: ignore[untyped-decorator]
def add(_: Any, x: Any, y: Any) -> Any:
    """x + y."""
    return x(x, y), lambda _, builder, signature, arguments: builder.fadd(*arguments)


@intrinsic  # type: ignore[untyped-decorator]
def multiply(_: Any, x: Any, y: Any) -> Any:
    """x y."""
    return x(x, y), lambda _, builder, signature, arguments: builder.fmul(*arguments)


@intrinsic  # type: ignore[untyped-decorator]
def multiply_add(_: Any, x: Any, y: Any, z: Any) -> Any:
    """x y + z, rounded once on processors with fused multiply-add."""

    def emit(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = arguments[0].type
        function = ir.FunctionType(vector, [vector] * 3)
        name = f"llvm.fmuladd.v{vector.count}f{x.dtype.bitwidth}"
        return builder.call(cgutils.get_or_insert_function(builder.module, function, name), arguments)

    return x(x, y, z), emit


@intrinsic  # type: ignore[untyped-decorator]
def maximum(_: Any, x: Any, y: Any) -> Any:
    """The larger of x and y."""

    def emit(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return x(x, y), emit


@intrinsic  # type: ignore[untyped-decorator]
def replaced(_: Any, lanes: Any, place: Any, number: Any) -> Any:
    """The vector with ``number`` in lane ``place``, or unchanged if there is no such lane."""

    def emit(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector, here, value = arguments
        count = vector.type.count
        own = _repeated(builder, builder.trunc(here, _I32), count)
        lane = ir.Constant(own.type, list(range(count)))
        return builder.select(builder.icmp_signed("==", own, lane), _repeated(builder, value, count), vector)

    return lanes(lanes, place, number), emit


@intrinsic  # type: ignore[untyped-decorator]
def total(_: Any, lanes: Any) -> Any:
    """Pairwise sum of the lanes, a scalar."""

    def emit(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        [vector] = arguments
        while (half := vector.type.count // 2) > 0:
            vector = builder.fadd(*(_shuffled(builder, vector, range(i, i + half)) for i in (0, half)))
        return builder.extract_element(vector, _I32(0))

    return lanes.dtype(lanes), emit


@intrinsic  # type: ignore[untyped-decorator]
def running(_: Any, lanes: Any) -> Any:
    """The sums of the first 1, 2, ... lanes."""

    def emit(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        [vector] = arguments
        zeros, count, step = ir.Constant(vector.type, None), vector.type.count, 1
        while step < count:
            places = ir.Constant(ir.VectorType(_I32, count), list(range(count - step, 2 * count - step)))
            vector = builder.fadd(vector, builder.shuffle_vector(zeros, vector, places))
            step *= 2
        return vector

    return lanes(lanes), emit


@intrinsic  # type: ignore[untyped-decorator]
def at_most(_: Any, lanes: Any, limit: Any) -> Any:
    """The number of lanes that are at most ``limit``."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        mask = builder.fcmp_ordered(
            "<=", arguments[0], _filled(context, builder, lanes(limit), arguments[1:])
        )
        bits = builder.bitcast(mask, ir.IntType(mask.type.count))
        return builder.zext(builder.ctpop(bits), context.get_value_type(types.intp))

    return types.intp(lanes, limit), emit


@intrinsic  # type: ignore[untyped-decorator]
def between(_: Any, lanes: Any, low: Any, high: Any) -> Any:
    """Bits of the lanes of unsigned integers that are ``low`` to ``high``, the first lane in the lowest bit."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector, *bounds = arguments
        kind = vector.type.element
        low, high = (
            _filled(context, builder, lanes(lanes.dtype), [builder.trunc(bound, kind)]) for bound in bounds
        )
        inside = builder.icmp_unsigned("<=", builder.sub(vector, low), builder.sub(high, low))
        return builder.bitcast(inside, ir.IntType(vector.type.count))

    return types.uint64(lanes, types.intp, types.intp), emit


@intrinsic  # type: ignore[untyped-decorator]
def eight_bytes(_: Any, array: Any, place: Any) -> Any:
    """Eight entries of an array of bytes as one number, on most processors the first in the lowest bits."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(array)(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(array, types.uint64), emit


@intrinsic  # type: ignore[untyped-decorator]
def lowest_bit(_: Any, bits: Any) -> Any:
    """The place of the lowest bit that is set; 64 if none is."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), emit


@compiled(nogil=True, forceinline=True)
def dot(x: Any, y: Any, size: int) -> Any:
    """Inner product of the first ``size`` entries of two arrays of the same dtype."""
    whole = size // width(x) * width(x)
    sums = fill(x.dtype.type(0))
    for i in range(0, whole, width(x)):
        sums = multiply_add(load(x, i), load(y, i), sums)
    product = total(sums)
    for i in range(whole, size):
        product += x[i] * y[i]
    return product
