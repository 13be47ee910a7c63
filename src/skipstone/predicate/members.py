"""The values that a leaf lists, as keys: distinct, ascending, and searched.

For many keys, a set of bits is made once, with a bit for the hash of each key. Most values are no
keys, and one bit rules them out. The others are searched for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, arrow_bytes, distinct, numbers, within

from .literals import INFINITE, Keys, order_key, wide
from .types import Kind, kind_of, spark_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from .tree import Leaf
    from .types import Value


# Fewer keys become a set for each lookup.
_MANY = 1_024
# If a larger share of the values is left, all are searched for: copying the rest takes longer.
_MOST = 3 / 4
#: multiplied with a key, its upper bits are a hash
MIX = np.uint64(0x9E37_79B9_7F4A_7C15)


def from_keys(keys: Keys, type: pa.DataType) -> pa.Array:
    """The values that have these keys, as an array of the canonical type; nulls stay."""
    canonical = spark_type(type)
    assert canonical is not None
    mask = None if keys.valid.all() else pa.py_buffer(np.packbits(keys.valid, bitorder="little"))
    if not isinstance(keys.data, np.ndarray):
        if kind_of(type) is not Kind.DECIMAL:
            held = pc.cast(keys.data, pa.binary()) if _is_short(keys.data) else keys.data
            return held.view(canonical) if held.type == pa.binary() else held.cast(canonical)
        ends = np.frombuffer(keys.data.buffers()[1], np.int64)[keys.data.offset :]
        start = int(ends[0]) if len(ends) else 0
        raw = np.frombuffer(keys.data.buffers()[2] or b"", ">u8")[start // 8 :]
        words = raw[: 2 * len(keys)].reshape(-1, 2).astype(np.uint64)
        native = np.empty_like(words)
        native[:, 0], native[:, 1] = words[:, 1], words[:, 0] ^ np.uint64(1 << 63)
        return pa.Array.from_buffers(canonical, len(keys), [mask, pa.py_buffer(native)])
    data: NDArray[Any] = keys.data
    match kind_of(type):
        case Kind.FLOATING:
            bits = np.abs(data)
            data = np.where(data < 0, -bits.view(np.float64), bits.view(np.float64))
            data = np.where(keys.data > INFINITE, np.nan, data)
            if canonical.bit_width == 32:
                data = data.astype(np.float32)
        case Kind.DECIMAL:
            native = np.empty((len(data), 2), np.int64)
            native[:, 0], native[:, 1] = data, data >> 63
            return pa.Array.from_buffers(canonical, len(data), [mask, pa.py_buffer(native)])
        case Kind.BOOLEAN:
            bits = np.packbits(data != 0, bitorder="little")
            return pa.Array.from_buffers(canonical, len(data), [mask, pa.py_buffer(bits)])
        case Kind.DATE:
            data = data.astype(np.int32)
        case Kind.INTEGER:
            data = data.astype(f"i{canonical.bit_width // 8}")
    data = np.ascontiguousarray(data)
    return pa.Array.from_buffers(canonical, len(data), [mask, pa.py_buffer(data)])


def _is_short(data: pa.LargeBinaryArray) -> bool:
    """Whether the bytes fit 32-bit offsets."""
    return bool(data.nbytes < 1 << 31)


def ascending_distinct(keys: Keys) -> Keys:
    """The distinct keys of values that are not null, ascending."""
    if isinstance(keys.data, np.ndarray):
        data: Any = distinct(keys.data[keys.valid])
    else:
        held = keys if keys.valid.all() else keys.take(keys.valid)
        data = pc.take(held.data, arrow(_ascending_at(held)))
    return Keys(data, np.ones(len(data), np.bool_))


def _ascending_at(keys: Keys) -> NDArray[np.int64]:
    """The positions of the distinct byte strings, ascending: by their words, and by the strings if
    the words are equal; both have the same order."""
    _, words = keys.prefixed
    order = np.argsort(words, kind="stable")
    words = words[order]
    same = words[1:] == words[:-1]
    if not same.any():
        return order
    tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
    texts = pc.take(keys.data, arrow(order[tied]))
    within_ties = numbers(pc.sort_indices(texts)).astype(np.int64)
    order[tied] = order[tied][within_ties]
    texts = pc.take(texts, arrow(within_ties))
    again = np.zeros(len(tied), np.bool_)
    again[1:] = numbers(pc.equal(texts.slice(1), texts.slice(0, len(texts) - 1)))
    return np.delete(order, tied[again])


def keys_among(leaf: Leaf) -> Keys:
    """The keys of the values of a leaf, distinct and ascending."""
    if isinstance(leaf.values, tuple):
        return keys_of(leaf.values, leaf.type)
    held: Keys = leaf.values.keys
    return held


def keys_of(values: Iterable[Value], type: pa.DataType) -> Keys:
    """The keys of values in the stored domain of ``type``, distinct and ascending."""
    found = sorted({order_key(value, type) for value in values})
    valid = np.ones(len(found), np.bool_)
    if wide(type) or kind_of(type) in (Kind.STRING, Kind.BINARY):
        return Keys(arrow_bytes(cast("list[bytes]", found)), valid)
    return Keys(np.array(found, np.int64), valid)


def lists_nan(leaf: Leaf) -> bool:
    """Whether NaN is among the values of a leaf."""
    if isinstance(leaf.values, tuple):
        return any(isinstance(value, float) and math.isnan(value) for value in leaf.values)
    keys = leaf.values.keys.data  # ascending
    return bool(kind_of(leaf.type) is Kind.FLOATING and len(keys) and keys[-1] > INFINITE)


def isin(keys: Keys, among: Keys) -> NDArray[np.bool_]:
    """For each value: whether it is non-null and equal to one of ``among``, ascending keys."""
    if len(among) >= _MANY:
        found = np.zeros(len(keys), np.bool_)
        at = _near(keys, among)
        if len(at) > _MOST * len(keys):
            found = _isin(keys, among)
        elif len(at):
            found[at] = _isin(keys.take(at), among)
        return found & keys.valid
    if isinstance(keys.data, np.ndarray) and isinstance(among.data, np.ndarray):
        return np.asarray(np.isin(keys.data, among.data) & keys.valid, dtype=np.bool_)
    return numbers(pc.is_in(keys.data, value_set=among.data)) & keys.valid


def _isin(keys: Keys, among: Keys) -> NDArray[np.bool_]:
    """``isin`` for many keys, by search: Arrow would make a set of them in every call."""
    if isinstance(keys.data, np.ndarray) and isinstance(among.data, np.ndarray):
        at = _search(among.data, keys.data)
        return np.asarray(among.data[at] == keys.data)
    prefix, words = among.prefixed
    mine = keys.words(len(prefix))
    first = _search(words, mine)
    every = among.derived("runs", _runs)
    if not len(every):  # no word is that of two keys
        return numbers(pc.equal(keys.data, pc.take(among.data, arrow(first))), False)
    tied = np.flatnonzero(words[first] == mine)
    runs = every[first[tied]]
    owner = np.repeat(tied, runs)
    members = pc.take(among.data, arrow(np.repeat(first[tied], runs) + within(runs)))
    same = numbers(pc.equal(pc.take(keys.data, arrow(owner)), members), False)
    found = np.zeros(len(keys), np.bool_)
    found[owner[same]] = True
    return found


def _search(ascending: NDArray[Any], values: NDArray[Any]) -> NDArray[np.int64]:
    """The place of the first of ``ascending`` that is not below each value; 0 where there is none.

    Many values are sorted first: in order, they find what they need in the cache, which saves more
    time than sorting takes.
    """
    order = np.argsort(values)
    at = np.empty(len(values), np.int64)
    at[order] = np.searchsorted(ascending, values[order])
    at[at == len(ascending)] = 0
    return at


def _runs(keys: Keys) -> NDArray[np.int64]:
    """For each key, how many keys from it on have the same word. Empty if all words differ."""
    _, words = keys.prefixed
    last = np.flatnonzero(np.append(words[1:] != words[:-1], True))
    if len(last) == len(words):
        return np.empty(0, np.int64)
    counts = np.diff(last, prepend=-1)
    return np.repeat(last + 1, counts) - np.arange(len(words))


def marks(keys: Keys) -> NDArray[np.uint8]:
    """A set of bits with the hash of each key: 16 to 32 bits for each."""
    flags = np.zeros(1 << max(16, len(keys).bit_length() + 4), np.bool_)
    flags[_hashes(keys, keys, len(flags))] = True
    return np.packbits(flags, bitorder="little")


def _hashes(keys: Keys, among: Keys, bits: int) -> NDArray[np.uint64]:
    """Where in a set of ``bits`` the keys are; of byte strings, their words after the first bytes
    that all of ``among`` have."""
    if isinstance(keys.data, np.ndarray):
        words = keys.data.view(np.uint64)
    else:
        words = keys.words(len(among.prefixed[0]))
    return np.asarray(words * MIX >> np.uint64(65 - bits.bit_length()))


def _near(keys: Keys, among: Keys) -> NDArray[np.int64]:
    """The positions of those ``keys`` whose hash is that of one of ``among``."""
    held = among.derived("marks", marks)
    hashes = _hashes(keys, among, 8 * len(held))
    return np.flatnonzero(
        held[hashes >> np.uint64(3)] >> (hashes & np.uint64(7)).astype(np.uint8) & 1
    )
