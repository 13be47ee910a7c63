"""``bloomfilter``: whether a file may hold a value.

Stored value: a Bloom filter of Spark (``xskipper/format/sketch.py``, version 1), serialised as
Java does, as in Xskipper's stores. It holds the key of each value (``predicate/literals.py``):
integers, dates, timestamps and decimals of up to 18 digits as 64-bit integers; floats as the
sortable integer of the double, so that -0.0 is 0.0 and all NaNs are one; strings as UTF-8; binary
and longer decimals as bytes. Booleans are refused: a filter over two values proves less than their
bounds.

A filter is sized from the distinct values that the file really has and the wanted false positive
probability ``fpp``, up to ``max_bytes`` (8 MiB, about 7 million distinct values at 0.01). The size
is rounded up to one of 16 per octave, three hundredths more on average, so that files of about as
many values have filters of equal size.
While they fit the memory budget, pairs of hashes are kept, counted and put into a filter of the
right size. Past it, they go straight into a filter at the bound, which is folded down at the end
to the smallest half, quarter, … that keeps ``fpp``. A file is left out, with the reason, if a
filter at the bound would report more than a quarter of all absent values as present.

**The default ``fpp``** fits the table. A lookup of one value reads ``fpp x N`` of ``N`` files for
nothing, so a build without a given ``fpp`` chooses

    fpp = min(0.01, max(0.00001, 1 / N)), of two significant digits

for the ``N`` files that the table has then: about one file is read for nothing.

**Hash functions** are the best number for the size, and at most ``MOST_HASHES`` unless ``fpp`` is
less than 0.00001: a lookup by bit slices (``bloom_slices.py``) reads a row of one bit per file for
each of them. With seven it reads less than 1 MB for a million files. A filter with ``k`` of them,
fewer than the best, needs more bits for ``n`` keys and the same ``fpp``,
``-k n / ln(1 - fpp^(1/k))``:

| files | fpp | bits per key | with the best ``k`` |
|---|---|---|---|
| up to 100 | 0.01 | 9.6 | 9.6, k = 7 |
| 1,000 | 0.001 | 15.0 | 14.4, k = 10 |
| 10,000 | 0.0001 | 22.4 | 19.2, k = 13 |
| 100,000 and more | 0.00001 | 32.6 | 24.0, k = 17 |

The two hashes of the sketch set a floor: a filter of ``m`` bits reports about ``1 / m`` of all
absent values as present, whatever ``fpp`` is. So files of few values do not reach the default.

The definition then holds both numbers, ``bloom(fpp=0.001, files=1000)``. ``files`` says that
``fpp`` was chosen, and for how many files; ``bloom(files=1000)`` asks for the same. A refresh keeps
both, so that the filters of all files agree. Another build without a given ``fpp`` keeps them too,
until a lookup would read more than four files for nothing: then it chooses again.

It answers ``=`` and ``IN``, and proves only that a file holds no match.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone._numba import CompiledKernels
from skipstone.human import plural
from skipstone.predicate.literals import order_keys
from skipstone.predicate.members import keys_among
from skipstone.predicate.tree import Op
from skipstone.pruning.column_types import atomic, binary_parts, refuse
from skipstone.pruning.file_bounds import intervals_of
from skipstone.pruning.interval import window, with_nulls
from skipstone.pruning.kind import Builder, Built, PerFile, Rows
from skipstone.xskipper.format.bloom_probe import BlobColumn
from skipstone.xskipper.format.java_bloom import BloomFilterMetaData
from skipstone.xskipper.format.sketch import (
    U32,
    SketchFilter,
    hash_bytes,
    hash_longs,
    optimal_bits,
    optimal_hashes,
)

from .._arrays import distinct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from skipstone.predicate.tree import Leaf
    from skipstone.predicate.types import ManyValues
    from skipstone.pruning import BoolArray, Bounds
    from skipstone.pruning.kind import Chunk, Index, Stored
    from skipstone.xskipper.format.bloom_probe import Items


#: false positive probability by default, for a table of few files; and for one of very many
FPP, LEAST_FPP = 0.01, 1e-5
#: the expected number of files read in vain from which on filters count as outgrown
MOST_IN_VAIN = 4
#: most bytes of one filter by default
MAX_BYTES = 8 * 1024 * 1024

#: of a filter
MOST_HASHES = 7
# A filter that reports a larger share of absent values as present is not worth its bytes.
_WORTHLESS = 0.25
# The number of hash functions depends on the number of values only where they are few.
_MANY = 1_000_000
# With this many false positives in expectation, one of a thousand filters has none of some keys.
_BY_CHANCE = 7.0
# Values that are checked to distinguish a column of few distinct values from a key.
_SAMPLE = 4_096


class Bloom(PerFile):
    """A Bloom filter per file; see the module."""

    name = "bloomfilter"
    parameters = ("fpp", "files", "max_bytes")
    cost = 10.0
    joins = of_elements = True
    ops = frozenset({Op.EQ, Op.IN})

    def __init__(
        self,
        column: str,
        fpp: float | None = None,
        max_bytes: int = MAX_BYTES,
        *,
        files: int | None = None,
    ) -> None:
        """Without ``fpp``, ``files`` determines it; without either, the build chooses it."""
        super().__init__(column)
        if files is not None and files < 1:
            raise ValueError(f"files is at least 1, not {files}")
        if fpp is None and files is not None:
            fpp = fpp_for(files)
        if fpp is not None and not 0.0 < fpp < 1.0:
            raise ValueError(f"fpp is a probability between 0 and 1, not {fpp}")
        if max_bytes < 64:
            raise ValueError(f"max_bytes is at least 64, not {max_bytes}")
        #: whether no build has chosen ``fpp`` yet
        self.awaits_fpp = fpp is None
        self.fpp = FPP if fpp is None else fpp
        self.max_bytes, self.files = max_bytes, files

    @property
    def params(self) -> Mapping[str, str]:
        """As the fact store names them: ``fpp`` and the ``files`` that it was chosen for, as far as
        they are known, and ``max_bytes`` unless it is the default."""
        params = {} if self.files is None else {"files": str(self.files)}
        if not self.awaits_fpp:
            params["fpp"] = repr(self.fpp)
        if self.max_bytes != MAX_BYTES:
            params["max_bytes"] = str(self.max_bytes)
        return params

    @property
    def shown_params(self) -> str:
        """The parameters for people."""
        shown = "" if self.awaits_fpp else f"fpp={self.fpp!r}"
        if self.files is not None:
            shown += f" (chosen for {plural(self.files, 'file')})"
        if self.max_bytes != MAX_BYTES:
            shown += f"{', ' if shown else ''}max_bytes={self.max_bytes}"
        return shown

    @classmethod
    def from_params(cls, column: str, params: Mapping[str, str]) -> Self:
        """The definition behind ``params``; Xskipper's own name for ``fpp`` is accepted too."""
        fpp = params.get("fpp", params.get("io.xskipper.index.bloom.fpp"))
        files = params.get("files")
        return cls(
            column,
            fpp=None if fpp is None else float(fpp),
            max_bytes=int(params.get("max_bytes", MAX_BYTES)),
            files=None if files is None else int(files),
        )

    def for_table(self, files: int, existing: Index | None = None) -> Self:
        """With the ``fpp`` of ``existing`` filters, or one that suits this many files."""
        if not self.awaits_fpp:
            return self
        cls = type(self)
        if isinstance(existing, Bloom) and existing.max_bytes == self.max_bytes:
            had = cls(self.column, existing.fpp, self.max_bytes, files=existing.files)
            if had.fpp <= FPP and not had._in_vain(files):
                return had
        return cls(self.column, max_bytes=self.max_bytes, files=max(files, 1))

    def outgrown(self, files: int) -> tuple[str, str] | None:
        """Whether a chosen ``fpp`` now lets through too many of ``files`` files."""
        if self.files is None or not self._in_vain(files):
            return None
        text = (
            f"a lookup reads about {round(self.fpp * files):,} of {plural(files, 'file')} for "
            f"nothing: fpp={self.fpp!r} was chosen for {plural(self.files, 'file')}"
        )
        limit = "" if self.max_bytes == MAX_BYTES else f"(max_bytes={self.max_bytes})"
        return text, f"{self.column}:bloom{limit}"

    def _in_vain(self, files: int) -> bool:
        """Whether more files are read in vain than with finer filters."""
        return self.fpp * files > MOST_IN_VAIN and fpp_for(files) < self.fpp

    def stored_type(self, type: pa.DataType) -> pa.DataType:
        """``binary``, for any atomic type but boolean."""
        if not atomic(type):
            raise refuse(self.name, self.column, type, ())
        if pa.types.is_boolean(type):
            raise refuse(self.name, self.column, type, ("minmax", "valuelist"))
        return pa.binary()

    def build(self, type: pa.DataType, budget: int) -> Builder:
        """Keeps pairs of hashes up to the budget, then one filter."""
        self.stored_type(type)
        return BloomBuilder(type, self.fpp, min(self.max_bytes, max(budget, 64)), budget)

    def known(self, stored: Stored) -> BoolArray:
        """Flags of the rows with a readable filter."""
        return blobs_of(stored).ok

    def bounds_of(self, leaf: Leaf, rows: Rows) -> Bounds[BoolArray] | None:
        """``may`` where any value of the leaf may occur; never ``must``."""
        blobs = blobs_of(rows.stored)
        among = None
        if rows.at is not None:
            among = np.zeros(len(blobs), np.bool_)
            among[rows.at] = True
        if isinstance(leaf.values, tuple):
            some = blobs.might_contain_any(items_of(leaf), among)
        else:
            first, last = self.windows(leaf, leaf.values, len(blobs))
            asked = ~self.by_chance(last - first)
            if not asked.any():
                return None
            among = asked if among is None else among & asked
            hashed = leaf.values.cache.setdefault("bloom hashes", {})
            some = blobs.might_contain_any(items_of(leaf), among, (first, last), hashed)
        if rows.at is not None:
            some = some[rows.at]
        return with_nulls(leaf.op, some, np.zeros_like(some), rows.rows, rows.nulls)

    def windows(self, leaf: Leaf, values: ManyValues, count: int) -> tuple[I64, I64]:
        """Which of the ascending keys lie within the bounds of each file: for each of ``count``
        filters the first key, and the one after the last."""
        first, last = np.zeros(count, np.int64), np.full(count, len(values), np.int64)
        assert self.stored is not None
        for other in self.same_column:
            stored = other.stored
            if other.name != "minmax" or stored is None or stored.type != leaf.type:
                continue
            mine, theirs = self.stored.row_of_file, stored.row_of_file
            both = np.flatnonzero((mine >= 0) & (theirs >= 0))
            bounds = intervals_of(stored).where(theirs[both])
            low, high = window(values.keys, bounds)
            at = mine[both]
            first[at], last[at] = np.maximum(first[at], low), np.minimum(last[at], high)
        return first, np.maximum(first, last)

    def by_chance(self, keys: I64) -> BoolArray:
        """Whether any filter probably holds one of this many keys by chance."""
        return np.asarray(keys * self.fpp > _BY_CHANCE)

    def silence(self, leaf: Leaf) -> str:
        """Why the index cannot answer a leaf."""
        if leaf.op not in self.ops:
            return super().silence(leaf)
        return f"of {len(leaf.values):,} keys, a filter with fpp={self.fpp!r} holds one by chance"


def fpp_for(files: int) -> float:
    """The default ``fpp`` for a table of this many files; see the module."""
    return min(FPP, max(LEAST_FPP, float(f"{1 / max(files, 1):.1e}")))


def items_of(leaf: Leaf) -> Items:
    """The keys that builds put into filters for the values of a leaf."""
    keys = keys_among(leaf)
    if isinstance(keys.data, np.ndarray) or not isinstance(leaf.values, tuple):
        return keys.data
    items: list[bytes] = keys.data.to_pylist()
    return items


def blobs_of(stored: Stored) -> BlobColumn:
    """The filters of all fact rows, parsed once."""
    found: BlobColumn | None = stored.cache.get("blobs")
    if found is None:
        found = stored.cache["blobs"] = BlobColumn(stored.values)
    return found


class BloomBuilder(Builder):
    """Collects one file's column; ``kernels`` may be set before the first chunk."""

    #: hashes of a row, about
    per_row = 1

    def __init__(self, type: pa.DataType, fpp: float, max_bytes: int, budget: int) -> None:
        self.type, self.fpp, self.max_bytes, self.budget = type, fpp, max_bytes, budget
        self.kernels: HashKernels = NUMPY
        self.pairs: list[Pairs] = []
        self.held = 0
        # Once there are too many pairs: a filter of the largest size, which contains them.
        self.words: Bits | None = None

    @property
    def nbytes(self) -> int:
        return 8 * self.held + (0 if self.words is None else self.words.nbytes)

    def add(self, chunk: Chunk) -> None:
        values = without_repeats(chunk)
        if not len(values):
            return
        data = order_keys(values, self.type).data
        if isinstance(data, np.ndarray):
            self.take(self.kernels.longs(data))
        else:
            self.take(self.kernels.texts(*binary_parts(data)))

    def take(self, pairs: Pairs) -> None:
        """Adds pairs of hashes."""
        self.pairs.append(pairs)
        self.held += len(pairs)
        if self.words is not None or 8 * self.held > self.budget // 2:
            self._relieve()

    def _relieve(self) -> None:
        """Frees memory: drops repeats if they are many, else changes to the largest filter."""
        if self.words is None:
            if 2 * estimate_distinct(self.pairs, self.kernels) < self.held:
                self.pairs = [distinct(np.concatenate(self.pairs))]
                self.held = len(self.pairs[0])
                return
            self.words = self._bound()
        for pairs in self.pairs:
            self.kernels.put(pairs, sized(_MANY, self.fpp)[1], self.words)
        self.pairs, self.held = [], 0

    def finish(self) -> Built:
        if self.words is None:
            distinct = max(1, distinct_pairs(self.pairs, self.kernels))
            wanted, hashes = sized(distinct, self.fpp)
            found = self.filter_of(self.pairs, min(wanted, self.max_bytes // 8), hashes)
        else:
            found = self.folded()
        if found.expected_fpp() > _WORTHLESS:
            return Built(None, f"too many distinct values for {self.max_bytes:,} bytes")
        return built(found)

    def filter_of(self, parts: Sequence[Pairs], words: int, hashes: int) -> SketchFilter:
        """A filter of this many words that has these pairs."""
        made = np.zeros(words, np.uint64)
        for pairs in parts:
            self.kernels.put(pairs, hashes, made)
        return SketchFilter(version=1, num_hash_functions=hashes, words=made)

    def _bound(self) -> Bits:
        # A power of two can be halved all the way down.
        return np.zeros(1 << ((self.max_bytes // 8).bit_length() - 1), np.uint64)

    def folded(self, *others: BloomBuilder) -> SketchFilter:
        """The filter of the largest size, merged with those of ``others`` (of equal parameters),
        then folded as small as ``fpp`` allows."""
        words, hashes = self._bound(), sized(_MANY, self.fpp)[1]
        for each in (self, *others):
            if each.words is not None:
                words |= each.words
            for pairs in each.pairs:
                self.kernels.put(pairs, hashes, words)
        found = SketchFilter(version=1, num_hash_functions=hashes, words=words)
        return found.fold_down(self.fpp)


def built(filter: SketchFilter) -> Built:
    """The stored value of a filter."""
    return Built(pa.array([BloomFilterMetaData.of(filter).to_bytes()], pa.binary()))


def without_repeats(chunk: Chunk) -> pa.Array:
    """The non-null values of a chunk, each once where many repeat."""
    values = chunk.values
    if pa.types.is_dictionary(values.type) or _repeats(values):
        return chunk.distinct
    return values.drop_null() if values.null_count else values


def size_class(words: int) -> int:
    """``words`` rounded up to five significant bits: at most a sixteenth more.

    Files of about as many values then have filters of equal size (``bloom_slices.py``).
    """
    shift = max(0, words.bit_length() - 5)
    return -(-words >> shift) << shift


def sized(distinct: int, fpp: float) -> tuple[int, int]:
    """Words and hash functions of a filter; see the module."""
    bits = optimal_bits(distinct, fpp)
    hashes = optimal_hashes(distinct, bits)
    if hashes > MOST_HASHES and fpp >= LEAST_FPP:
        hashes = MOST_HASHES
        bits = math.ceil(-hashes * distinct / math.log1p(-(fpp ** (1 / hashes))))
    return size_class(-(-bits // 64)), hashes


def _repeats(values: pa.Array) -> bool:
    """True where each of the first values occurs about twice or more."""
    look = values.slice(0, _SAMPLE)
    return len(values) > _SAMPLE and 2 * len(look.unique()) <= len(look)


Pairs: TypeAlias = npt.NDArray[np.uint64]
Bits: TypeAlias = npt.NDArray[np.uint64]
I64: TypeAlias = npt.NDArray[np.int64]
U8: TypeAlias = npt.NDArray[np.uint8]

_EXACT = 1 << 16
_LEAST_MAP = 1 << 23
# Pairs at a time (their data stays in the cache), and bits of a filter at a time (a byte each).
_CHUNK, _SEGMENT = 1 << 15, 1 << 25


@dataclass(frozen=True, slots=True, kw_only=True)
class HashKernels:
    """Spark's two Murmur3 hashes of a value as a pair: one uint64, the first hash in the high half.

    - ``longs(values)``: pairs of int64 values;
    - ``texts(data, offsets)``: pairs of the byte strings ``data[offsets[i]:offsets[i + 1]]``;
    - ``occupied(parts, size)``: bits set of a bitmap of ``size`` (a power of two) bits;
    - ``put(pairs, hashes, words)``: sets the bits of all pairs in a version 1 filter.
    """

    longs: Callable[[I64], Pairs]
    texts: Callable[[U8, I64], Pairs]
    occupied: Callable[[Sequence[Pairs], int], int]
    put: Callable[[Pairs, int, Bits], None]


def distinct_pairs(parts: Sequence[Pairs], kernels: HashKernels) -> int:
    """The number of distinct pairs among all ``parts``: exact for at most 65,536 pairs."""
    total = sum(map(len, parts))
    if total <= _EXACT:
        return len(distinct(np.concatenate(parts))) if parts else 0
    return estimate_distinct(parts, kernels)


def estimate_distinct(parts: Sequence[Pairs], kernels: HashKernels) -> int:
    """The number of distinct pairs by linear counting: from the empty places of a bitmap."""
    size = max(_LEAST_MAP, 1 << (sum(map(len, parts)) - 1).bit_length())
    free = max(size - kernels.occupied(parts, size), 1)
    return round(size * math.log(size / free))


def _pack(hashes: tuple[U32, U32]) -> Pairs:
    pairs = np.empty((len(hashes[0]), 2), "<u4")
    pairs[:, 1], pairs[:, 0] = hashes
    return pairs.view("<u8").reshape(-1)


def _longs(values: I64) -> Pairs:
    return _pack(hash_longs(values))


def _texts(data: U8, offsets: I64) -> Pairs:
    return _pack(hash_bytes(data, offsets))


def _occupied(parts: Sequence[Pairs], size: int) -> int:
    seen = np.zeros(size, np.bool_)
    for pairs in parts:
        for at in range(0, len(pairs), _CHUNK):
            seen[(pairs[at : at + _CHUNK] & np.uint64(size - 1)).astype(np.intp)] = True
    return int(np.count_nonzero(seen))


def _put(pairs: Pairs, hashes: int, words: Bits) -> None:
    bits = 64 * len(words)
    for low in range(0, bits, _SEGMENT):
        high = min(low + _SEGMENT, bits)
        seen = np.zeros(high - low, np.bool_)
        for at in range(0, len(pairs), _CHUNK):
            part = pairs[at : at + _CHUNK]
            c, h2 = (part >> np.uint64(32)).astype(np.uint32), part.astype(np.uint32)
            for _ in range(hashes):
                c += h2
                signed = c.view(np.int32)
                place = (signed ^ (signed >> np.int32(31))).view(np.uint32)
                if bits < 1 << 31:  # no place is beyond
                    # NumPy divides by one number in SIMD, and has no such remainder.
                    place -= place // np.uint32(bits) * np.uint32(bits)
                if low or high < bits:
                    place = place[(place >= low) & (place < high)] - np.uint32(low)
                seen[place] = True
        part_words = words[low // 64 : high // 64]
        part_words |= np.packbits(seen, bitorder="little").view("<u8")


#: In values to hash: of one file, and of all files so far.
COMPILED = CompiledKernels[HashKernels](
    module=f"{__package__}.bloom_jit", once=4_000_000, total=10_000_000
)
NUMPY = HashKernels(longs=_longs, texts=_texts, occupied=_occupied, put=_put)
