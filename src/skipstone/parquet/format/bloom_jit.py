"""``BloomKernels`` compiled by numba: XXH64 of byte strings, and insertion into a Bloom filter.

Imported only for many values. Machine code is cached in a folder that can be written. The hashing
loop gets whole arrays and checks each string's ends against the data before it reads. A block's
number is below the number of blocks by its formula (see ``bloom_filter.py``), so nothing outside
the array is touched.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from skipstone._arrays import read_only
from skipstone._numba import compile_kernel

from . import bloom_filter
from .bloom_filter import SALT, BloomKernels

if TYPE_CHECKING:
    from numpy.typing import NDArray


_tools: Any = cgutils  # llvmlite and numba's code generation have no types
_WORD: Any = ir.IntType(32)
_WORDS: Any = ir.VectorType(_WORD, 8)
_EIGHT = np.uint64((bloom_filter.P5 + 8) & 0xFFFF_FFFF_FFFF_FFFF)
_HALF = np.uint64(32)
_RUN = 1_024
P1, P2, P3, P4, P5 = (
    np.uint64(p)
    for p in (bloom_filter.P1, bloom_filter.P2, bloom_filter.P3, bloom_filter.P4, bloom_filter.P5)
)
_LANE1 = np.uint64((bloom_filter.P1 + bloom_filter.P2) & 0xFFFF_FFFF_FFFF_FFFF)
_LANE4 = np.uint64((1 << 64) - bloom_filter.P1)


# Written out, so that the compiler sees one load.
@register_jitable
def _four(data: Any, at: Any) -> Any:
    return (
        np.uint64(data[at])
        | (np.uint64(data[at + 1]) << np.uint64(8))
        | (np.uint64(data[at + 2]) << np.uint64(16))
        | (np.uint64(data[at + 3]) << np.uint64(24))
    )


@register_jitable
def _eight(data: Any, at: Any) -> Any:
    return (
        np.uint64(data[at])
        | (np.uint64(data[at + 1]) << np.uint64(8))
        | (np.uint64(data[at + 2]) << np.uint64(16))
        | (np.uint64(data[at + 3]) << np.uint64(24))
        | (np.uint64(data[at + 4]) << np.uint64(32))
        | (np.uint64(data[at + 5]) << np.uint64(40))
        | (np.uint64(data[at + 6]) << np.uint64(48))
        | (np.uint64(data[at + 7]) << np.uint64(56))
    )


@register_jitable
def _rotate(value: Any, by: Any) -> Any:
    return (value << np.uint64(by)) | (value >> np.uint64(64 - by))


@register_jitable
def _round(lane: Any, word: Any) -> Any:
    return _rotate(lane + word * P2, 31) * P1


@register_jitable
def _merge(found: Any, lane: Any) -> Any:
    return (found ^ _round(np.uint64(0), lane)) * P1 + P4


@register_jitable
def _avalanche(found: Any) -> Any:
    found = (found ^ (found >> np.uint64(33))) * P2
    found = (found ^ (found >> np.uint64(29))) * P3
    return found ^ (found >> np.uint64(32))


@register_jitable
def _hash(data: Any, start: Any, end: Any) -> Any:
    at = start
    if end - start >= 32:
        v1, v2, v3, v4 = _LANE1, P2, np.uint64(0), _LANE4
        while at + 32 <= end:
            v1 = _round(v1, _eight(data, at))
            v2 = _round(v2, _eight(data, at + 8))
            v3 = _round(v3, _eight(data, at + 16))
            v4 = _round(v4, _eight(data, at + 24))
            at += 32
        found = _rotate(v1, 1) + _rotate(v2, 7) + _rotate(v3, 12) + _rotate(v4, 18)
        found = _merge(_merge(_merge(_merge(found, v1), v2), v3), v4)
    else:
        found = P5
    found += np.uint64(end - start)
    while at + 8 <= end:
        found = _rotate(found ^ _round(np.uint64(0), _eight(data, at)), 27) * P1 + P4
        at += 8
    if at + 4 <= end:
        found = _rotate(found ^ (_four(data, at) * P1), 23) * P2 + P3
        at += 4
    while at < end:
        found = _rotate(found ^ (np.uint64(data[at]) * P5), 11) * P1
        at += 1
    return _avalanche(found)


def _hash_all(data: Any, offsets: Any, out: Any) -> bool:
    for i in range(len(out)):
        start, end = offsets[i], offsets[i + 1]
        if start < 0 or end < start or end > len(data):
            return False
        out[i] = _hash(data, start, end)
    return True


def _set_block(typing_context: Any, blocks: Any, block: Any, low: Any) -> Any:
    """Sets the bits of a hash in its block. All eight words are one vector: the compiler does not
    make one of them by itself. The blocks must lie one after another."""
    if (blocks.dtype, blocks.ndim, blocks.layout) != (types.uint32, 2, "C"):
        return None

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, arguments[0])
        block, low = arguments[1:]
        first = _tools.get_item_pointer(
            context,
            builder,
            signature.args[0],
            held,
            [block, block.type(0)],
            boundscheck=context.enable_boundscheck,
        )
        place = builder.bitcast(first, _WORDS.as_pointer())
        one = builder.insert_element(_WORDS(ir.Undefined), low, _WORD(0))
        each = builder.shuffle_vector(one, _WORDS(ir.Undefined), _WORDS([0] * 8))
        salted = builder.mul(each, _WORDS(SALT.tolist()))
        bits = builder.shl(_WORDS([1] * 8), builder.lshr(salted, _WORDS([27] * 8)))
        builder.store(builder.or_(builder.load(place, align=4), bits), place, align=4)
        return context.get_dummy_value()

    return types.void(blocks, types.intp, types.uint32), code


# numba passes the typing context; a type checker would expect it from the callers.
_set_bits: Any = intrinsic(_set_block)


@register_jitable
def _set(blocks: Any, h: Any) -> None:
    block = ((h >> _HALF) * np.uint64(len(blocks))) >> _HALF
    _set_bits(blocks, np.int64(block), np.uint32(h))


def _insert(blocks: Any, hashes: Any) -> None:
    for i in range(len(hashes)):
        _set(blocks, hashes[i])


# XXH64 of eight bytes for a run of values at a time.
def _insert_words(blocks: Any, words: Any) -> None:
    hashes = np.empty(_RUN, np.uint64)
    for start in range(0, len(words), _RUN):
        count = min(_RUN, len(words) - start)
        for i in range(count):
            h = _EIGHT ^ _round(np.uint64(0), words[start + i])
            h = _rotate(h, 27) * P1 + P4
            hashes[i] = _avalanche(h)
        for i in range(count):
            _set(blocks, hashes[i])


def compiled() -> BloomKernels:
    """See ``BloomKernels``."""
    compile = partial(compile_kernel, over=[bloom_filter])
    kernel = compile(_hash_all)

    def hash_all(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
        out = np.empty(len(offsets) - 1, np.uint64)
        if not kernel(read_only(data), read_only(offsets), out):
            raise ValueError("offsets of byte strings outside their data")
        return out

    return BloomKernels(hash=hash_all, hashes=compile(_insert), words=compile(_insert_words))


def warm_up(kernels: BloomKernels) -> None:
    """Compiles each kernel for the types of its arguments, by calls without values."""
    blocks, none = np.zeros((1, 8), np.uint32), read_only(np.zeros(0, np.uint64))
    kernels.hash(np.zeros(0, np.uint8), np.zeros(1, np.int64))
    kernels.hashes(blocks, none)
    kernels.words(blocks, none)
