"""Access to several bytes at once, beyond ``jit_runs``: 32 that are copied, 64 that are compared.

Callers ensure that the bytes are there; ``NUMBA_BOUNDSCHECK=1`` checks it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from skipstone.parquet.encodings.jit_runs import CHECKED

_tools: Any = cgutils  # without types
_BYTE: Any = ir.IntType(8)


def _vector(context: Any, builder: Any, kind: Any, array: Any, at: Any, count: int) -> Any:
    """A pointer to ``count`` bytes."""
    held = context.make_array(kind)(context, builder, array)
    if CHECKED:
        length = builder.extract_value(held.shape, 0)
        least = context.get_constant(types.intp, count - 1)
        _tools.do_boundscheck(context, builder, at, builder.sub(length, least), 0)
    return builder.bitcast(builder.gep(held.data, [at]), ir.VectorType(_BYTE, count).as_pointer())


def _copy32(typing_context: Any, out: Any, to: Any, data: Any, at: Any) -> Any:
    """Copies 32 bytes, all of which are read before one is written."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        source = _vector(context, builder, kinds[2], arguments[2], arguments[3], 32)
        word = builder.load(source, align=1)
        place = _vector(context, builder, kinds[0], arguments[0], arguments[1], 32)
        builder.store(word, place, align=1)
        return context.get_dummy_value()

    return types.void(out, types.intp, data, types.intp), code


def _equal64(typing_context: Any, data: Any, at: Any, byte: Any) -> Any:
    """The bits of those of 64 bytes that are ``byte``, the first the lowest."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = _vector(context, builder, signature.args[0], arguments[0], arguments[1], 64)
        word = builder.load(source, align=1)
        one = builder.insert_element(
            ir.Constant(word.type, ir.Undefined), arguments[2], ir.Constant(ir.IntType(32), 0)
        )
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
        every = builder.shuffle_vector(one, ir.Constant(word.type, ir.Undefined), zeros)
        return builder.bitcast(builder.icmp_unsigned("==", word, every), ir.IntType(64))

    return types.uint64(data, types.intp, types.uint8), code


def _lowest(typing_context: Any, word: Any) -> Any:
    """The place of the lowest bit of a number that is not 0."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), code


def _swapped(typing_context: Any, word: Any) -> Any:
    """The bytes in the other order."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(arguments[0])

    return types.uint64(types.uint64), code


def _as_float(typing_context: Any, word: Any) -> Any:
    """The float of the lower 32 bits."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.trunc(arguments[0], ir.IntType(32)), ir.FloatType())

    return types.float32(types.uint64), code


def _as_word(typing_context: Any, value: Any) -> Any:
    """The bits of a double."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.uint64(types.float64), code


# The typing context is numba's to pass: a type checker would ask the callers for it.
copy32: Any = intrinsic(_copy32)
equal64: Any = intrinsic(_equal64)
lowest: Any = intrinsic(_lowest)
swapped: Any = intrinsic(_swapped)
as_word: Any = intrinsic(_as_word)
as_float: Any = intrinsic(_as_float)
