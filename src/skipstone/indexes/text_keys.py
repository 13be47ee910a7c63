"""The keys of grams and tokens of texts: 64-bit integers, for whole columns at once.

A text is a run of code points. The **n-grams** of a text are all runs of ``n`` code points in it.
Its **tokens** are the longest runs of token characters. The key of a run ``c0 … cm`` is::

    (m + 1) + sum of c_i B^(m - i)      modulo 2^64, B = 0x9E3779B97F4A7C15

Equal runs have equal keys, so a filter contains the keys of a pattern that occurs. Different runs
may share a key, which only makes a filter less selective.

**Token characters** are, unless others are given: letters and digits of ASCII, and all characters
from U+00C0 on but × and ÷, U+2000 to U+206F (punctuation) and U+3000 to U+303F. They do not depend
on a version of Unicode.

**Ignoring case.** Spark lowers texts with the tables of its Java or ICU, which are of another
version of Unicode than Python's, in the locale of its JVM. ``codes_of`` folds each code point by
itself, such that

    fold(L(t)) = fold(t)        for every lower case L that Spark may have, but in Lithuanian

so what L(t) contains, folded, fold(t) contains. Proof: L maps a code point to itself, or to its
lower case in some version of Unicode. It depends on neighbours only for the Greek sigma, of which
``fold`` makes one, and for the dot above (U+0307). ``fold`` leaves out the dot, and makes one of I,
i, the dotted capital (which L makes i, with a dot or not) and the dotless i (Turkish for I).
``CASELESS`` are scripts and signs without case. In ``_CASED`` a code point is settled if Unicode
3.2 has it (Python keeps the tables of that version), and it is no letter, or its partner is settled
too. A pair never changes, and Unicode gives no second partner to a letter that has one. There
``fold`` is the lower case, and with it U+2126, U+212A and U+212B, whose lower case is a settled
letter. Every other code point becomes U+FFFD: so do both of a pair that only some version knows.
The tables are the same in every Python. A test compares all code points with the lower case of
Spark.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias
from unicodedata import ucd_3_2_0

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone.predicate.kernels.patterns import literal_runs
from skipstone.predicate.kernels.text import CASELESS
from skipstone.predicate.tree import Op

from .._arrays import distinct_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf

    Codes = NDArray[np.uint8] | NDArray[np.uint32]
    Keys = NDArray[np.uint64]


#: a text that a match contains; whether the match surely begins, or ends, with it
Run: TypeAlias = "tuple[str, bool, bool]"

# The most keys of a text that are looked up.
_MOST_KEYS: Final = 48
_BASE: Final = 0x9E37_79B9_7F4A_7C15
_MASK: Final = (1 << 64) - 1
# How many code points are taken at a time: their keys stay in the cache.
_BLOCK: Final = 1 << 16
# At most this many of the longest tokens are handled one by one.
_FEW: Final = 16
# How many recent keys are remembered, to leave out repeats, as a power of two.
_SEEN_BITS: Final = 20
_DOT, _OTHER = 0x307, 0xFFFD

# Latin, Greek and Cyrillic letters, whose lower case is taken.
_CASED = ((0x0, 0x180), (0x370, 0x530), (0x1E00, 0x2000))
_UNITS = (0x2126, 0x212A, 0x212B)
_SETTLED_ABOVE = ((0x1F300, 0x1FB00), (0x20000, 0x40000))
_PUNCTUATION = ((0x0, 0xC0), (0xD7, 0xD8), (0xF7, 0xF8), (0x2000, 0x2070), (0x3000, 0x3040))
_WORDS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@lru_cache(maxsize=1)
def _folds() -> NDArray[np.uint32]:
    """The fold of each code point below U+10000."""
    found = np.full(1 << 16, _OTHER, np.uint32)
    for first, last in CASELESS:
        found[first:last] = np.arange(first, last)
    known = [
        code
        for first, last in _CASED
        for code in range(first, last)
        if ucd_3_2_0.category(chr(code)) != "Cn"
    ]
    lower = {code: ord(chr(code).lower()[0]) for code in known}
    partners = {low for code, low in lower.items() if low != code}
    for code, low in lower.items():
        paired = low in lower if low != code else code in partners
        if paired or not chr(code).isalpha():
            found[code] = low
    for code in _UNITS:
        found[code] = found[ord(chr(code).lower())]
    found[[0x3C2, 0x130, 0x131]] = 0x3C3, 0x69, 0x69
    return found


def fold(codes: Codes) -> Codes:
    """Code points for comparisons that ignore case; see the module."""
    if codes.dtype == np.uint8:
        return np.asarray(_folds()[:128].astype(np.uint8)[codes])
    found = _folds()[np.minimum(codes, 0xFFFF)]
    above = np.flatnonzero(codes > 0xFFFF)
    if len(above):
        high = codes[above]
        inside = [(high >= first) & (high < last) for first, last in _SETTLED_ABOVE]
        found[above] = np.where(inside[0] | inside[1], high, _OTHER)
    return np.asarray(found)


def codes_of(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], *, lower: bool
) -> tuple[Codes, NDArray[np.int64]] | None:
    """The code points of texts and where each begins, and the end; ``None`` if a text is not UTF-8.
    ``data`` and ``offsets`` are as Arrow has them."""
    data, offsets = data[offsets[0] : offsets[-1]], offsets - offsets[0]
    if not len(data) or int(data.max()) < 128:
        return (fold(data) if lower else data), offsets
    starts = (data & 0xC0) != 0x80
    if not starts[offsets[offsets < len(data)]].all():
        return None
    try:
        codes = np.frombuffer(data.tobytes().decode().encode("utf-32-le"), "<u4")
    except UnicodeDecodeError:
        return None
    before = np.zeros(len(data) + 1, np.int64)
    np.cumsum(starts, out=before[1:])
    offsets = before[offsets]
    if not lower:
        return codes, offsets
    kept = codes != _DOT
    if not kept.all():
        offsets = np.concatenate(([0], np.cumsum(kept)))[offsets]
        codes = codes[kept]
    return fold(codes), offsets


class Seen:
    """Leaves out keys seen recently: nearly all repeats, if there are few distinct keys."""

    def __init__(self, bits: int = _SEEN_BITS) -> None:
        """Remembers the last ``2^bits`` keys, or fewer."""
        self._bits = min(max(bits, 1), _SEEN_BITS)
        self._held = np.zeros(1 << self._bits, np.uint64)
        self._held[0] = 1  # not 0: key 0, whose slot this is, was not seen yet

    def fresh(self, keys: Keys) -> Keys:
        """The keys that are not known to be repeats; some may still occur twice."""
        slots = (keys * np.uint64(_BASE)) >> np.uint64(64 - self._bits)
        new = self._held[slots] != keys
        if new.all():
            self._held[slots] = keys
            return keys
        keys = keys[new]
        self._held[slots[new]] = keys
        return keys


def gram_keys(codes: Codes, offsets: NDArray[np.int64], n: int) -> Iterator[Keys]:
    """The keys of all n-grams, in pieces."""
    count = len(codes) - n + 1
    if count <= 0:
        return
    whole = np.ones(count, np.bool_)
    for back in range(1, n):
        # Runs from here would begin in one text and end in another.
        at = offsets[1:] - back
        whole[at[(at >= 0) & (at < count)]] = False
    base = np.uint64(_BASE)
    for low in range(0, count, _BLOCK):
        held = min(_BLOCK, count - low)
        part = codes[low : low + held + n - 1].astype(np.uint64)
        keys = part[:held].copy()
        for after in range(1, n):
            keys *= base
            keys += part[after : after + held]
        keys += np.uint64(n)
        yield keys[whole[low : low + held]]


def token_flags(codes: Codes, characters: str | None) -> NDArray[np.bool_]:
    """Whether each code point is part of a token."""
    below = codes if codes.dtype == np.uint8 else np.minimum(codes, 0xFFFF)
    return np.asarray(_token_table(characters)[below])


@lru_cache(maxsize=8)
def _token_table(characters: str | None) -> NDArray[np.bool_]:
    """Which code points below U+10000 are in tokens; the last one represents all above."""
    found = np.full(1 << 16, characters is None, np.bool_)
    for first, last in () if characters is not None else _PUNCTUATION:
        found[first:last] = False
    found[[min(ord(char), 0xFFFF) for char in _WORDS if characters is None]] = True
    found[[min(ord(char), 0xFFFF) for char in characters or ""]] = True
    return found


def class_of(text: str) -> str:
    """The characters of a class of ASCII characters; ``ValueError`` for anything else."""
    if re.fullmatch(r"\[[^\[\]^\\][^\[\]\\]*\]", text, re.ASCII) and text.isascii():
        try:
            return "".join(char for char in map(chr, range(128)) if re.fullmatch(text, char))
        except re.error:
            pass
    raise ValueError(f"chars is a class of ASCII characters such as [A-Za-z0-9_], not {text}")


def tokens(
    codes: Codes, offsets: NDArray[np.int64], characters: str | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each token begins and ends."""
    flags = token_flags(codes, characters)
    inner = offsets[(offsets > 0) & (offsets < len(codes))]
    begins, ends = flags.copy(), flags.copy()
    begins[1:] &= ~flags[:-1]
    ends[:-1] &= ~flags[1:]
    begins[inner] = flags[inner]
    ends[inner - 1] = flags[inner - 1]
    return np.flatnonzero(begins), np.flatnonzero(ends) + 1


def token_keys(codes: Codes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Iterator[Keys]:
    """The keys of tokens, in pieces. Each step handles one character position of all tokens that
    have it. A few tokens that are much longer are handled one by one."""
    lengths = ends - starts
    order = np.argsort(-lengths, kind="stable")
    for low in range(0, len(order), _BLOCK):
        some = order[low : low + _BLOCK]
        at, left = starts[some], lengths[some]
        keys = np.zeros(len(some), np.uint64)
        steps = int(left[min(_FEW, len(left)) - 1])
        for step in range(steps):
            live = int(np.searchsorted(-left, -step, "left"))
            keys[:live] = keys[:live] * np.uint64(_BASE) + codes[at[:live] + step]
        for one in np.flatnonzero(left > steps).tolist():
            keys[one] = _key_of(codes[at[one] : at[one] + left[one]])
        yield keys + left.astype(np.uint64)


def _key_of(codes: Codes) -> int:
    """The sum in the key of one run, without its length."""
    key = 0
    for low in range(0, len(codes), _BLOCK):
        part = codes[low : low + _BLOCK].astype(np.uint64)
        powers = np.full(len(part) + 1, _BASE, np.uint64)
        powers[0] = 1
        powers = np.cumprod(powers)
        here = (part * powers[len(part) - 1 :: -1]).sum(dtype=np.uint64)
        key = (key * int(powers[-1]) + int(here)) & _MASK
    return key


def runs_of(leaf: Leaf) -> list[list[Run]]:
    """The texts that a match contains, for each value that it may have."""
    if leaf.op is Op.LIKE:
        texts = literal_runs(str(leaf.values[0]), str(leaf.values[1]))
        last = len(texts) - 1
        return [[(text, at == 0, at == last) for at, text in enumerate(texts) if text]]
    return [[(str(value), True, leaf.op is not Op.STARTS_WITH)] for value in leaf.values]


def spread(parts: list[Keys]) -> Keys:
    """The distinct keys; if there are many, a selection spread over all."""
    joined = np.concatenate([np.zeros(0, np.uint64), *parts])
    found = joined[np.sort(distinct_at(joined)[1])]
    return found[:: -(-len(found) // _MOST_KEYS) or 1]


def stored_bytes(values: pa.Array) -> int:
    """The bytes of texts; a repeated text of a dictionary counts once."""
    if pa.types.is_dictionary(values.type):
        used = pc.unique(values.indices).drop_null()
        values = values.dictionary.take(used)
    return int(pc.sum(pc.binary_length(values)).as_py() or 0)
