"""``paimonbloom``: Paimon's Bloom filter. It proves that a file does not hold a value.

Stored value: ``struct<start: int32, length: int32, crc: int64, sums: binary, k: int32>``. ``start``
and ``length`` place the blob in the container of the file; ``crc`` is its CRC-32, ``sums`` has the
checksums of its blocks (``base``; values without this field are still read), and ``k`` is
the number of hash functions. A query for a value reads the ``k`` blocks that hold its probes. A
small filter is read whole, and so is any filter for a query of many values.

Parameters are Paimon's options: ``items``, the distinct values expected per file (1,000,000:
599,071 bytes per column and file, however few rows it has), and ``fpp`` (0.1), the share of absent
values that the filter reports as present. The hash of the value 0 is 0, so nearly all filters
report 0 as present.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from skipstone.errors import FormatError, UnsupportedError
from skipstone.predicate.tree import Const, Leaf, Op
from skipstone.pruning import Answer, BoolArray, Bounds, Cause, Fetched, Reason, Units
from skipstone.pruning.column_types import restate
from skipstone.pruning.kind import Blob, Builder, Built, Chunk

from .base import BlockSums, PaimonIndex, integers_of, no_place, place_fields
from .format import bloom_filter
from .format.bloom_filter import FPP, ITEMS, check_type, positions_of, sizing
from .format.column_keys import column_of
from .format.keys import In, PaimonType, safe
from .index_blob import SMALL
from .row_evidence import asks_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.storage import ByteRange


# A filter with more probes than this is read whole.
_MANY = 128


class PaimonBloom(PaimonIndex):
    """A Bloom filter per file, as Paimon writes it; see the module."""

    name = "paimonbloom"
    paimon = "bloom-filter"
    parameters = ("items", "fpp")
    instead = ("bloomfilter", "rangebitmap")
    cost = 20.0
    #: where bytes of some files cannot be read, the filters of the others still answer
    tolerates_loss = True

    def __init__(self, column: str, items: int = ITEMS, fpp: float = FPP) -> None:
        super().__init__(column)
        try:
            sizing(items, fpp)
        except UnsupportedError as error:
            raise ValueError(error.message) from error
        self.items, self.fpp = items, fpp

    @property
    def params(self) -> Mapping[str, str]:
        found = {} if self.items == ITEMS else {"items": str(self.items)}
        if self.fpp != FPP:
            found["fpp"] = repr(self.fpp)
        return found

    @classmethod
    def from_params(cls, column: str, params: Mapping[str, str]) -> Self:
        return cls(column, int(params.get("items", ITEMS)), float(params.get("fpp", FPP)))

    def check(self, type: PaimonType) -> None:
        """All but booleans and decimals."""
        check_type(type)

    def stored_type(self, type: pa.DataType) -> pa.DataType:
        self.paimon_type(type)
        return pa.struct([*place_fields(), pa.field("k", pa.int32())])

    def build(self, type: pa.DataType, budget: int) -> Builder:
        """Holds the filter."""
        stored = self.stored_type(type)
        return _BloomBuilder(self.paimon_type(type), stored, self.items, self.fpp, budget)

    # -- reading back -----------------------------------------------------------------------------

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """The bytes that hold the probes, of all files in ``units``."""
        if self.stored is None:
            return ()
        wanted: dict[ByteRange, None] = {}
        probes = self._probes(leaves)
        for row in self._rows(units)[1]:
            blob, k, sums = self._filter(row)
            if blob is None or blob.inline is not None:
                continue
            for probe in probes.values():
                spans = probe.spans(blob.length, k, sums)
                wanted.update(dict.fromkeys(blob.span(*span) for span in spans))
        return [need for need in wanted if need not in have]

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """Which files may hold any of the values of ``=`` and ``IN``."""
        if self.stored is None:
            return [Answer.silent(Cause.ABSENT, self.subject, "not read back")] * len(leaves)
        probes = self._probes(leaves)
        held, rows = self._rows(units)
        reasons = self._lacking(len(held) - len(rows), len(held))
        answers = []
        for leaf in leaves:
            local = restate(leaf, self.stored.type)
            if isinstance(local, Const) and len(rows):
                found = np.full(len(rows), local.value, np.bool_)
            elif leaf in probes and len(rows):
                found, corrupt, lost = self._check_files(probes[leaf], rows, have)
                reasons = (*reasons, *self._silent(corrupt, lost))
            elif not len(rows):
                answers.append(Answer(bounds=None, reasons=reasons))
                continue
            else:
                answers.append(self.silent(leaf))
                continue
            may: BoolArray = np.ones(len(held), np.bool_)
            may[held] = found
            answers.append(
                Answer(bounds=Bounds(np.zeros(len(held), np.bool_), may), reasons=reasons)
            )
        return answers

    def _probes(self, leaves: Sequence[Leaf]) -> dict[Leaf, _BloomProbe]:
        assert self.stored is not None
        type = self.paimon_type(self.stored.type)
        found = {}
        for leaf in leaves:
            local = restate(leaf, self.stored.type)
            if local is None or isinstance(local, Const) or local.op not in (Op.EQ, Op.IN):
                continue
            asks = asks_of(local, type)
            if asks is not None and isinstance(asks[0], In):
                found[leaf] = _BloomProbe(asks[0], type)
        return found

    def _rows(self, units: Units) -> tuple[BoolArray, list[int]]:
        """Which units have a stored value, and their fact rows."""
        assert self.stored is not None
        row = self.stored.row_of_file[units.file]
        valid = self.stored.cache.get("known")
        if valid is None:
            mask = self.stored.values.is_valid().to_numpy(zero_copy_only=False)
            valid = self.stored.cache["known"] = np.asarray(mask, np.bool_)
        held = row >= 0
        held[held] = valid[row[held]]
        return held, row[held].tolist()

    def _filter(self, row: int) -> tuple[Blob | None, int, BlockSums | None]:
        """The place of a fact row's filter, its number of hash functions, and the checksums of its
        blocks; ``None`` for no filter."""
        assert self.stored is not None
        ks = self.stored.cache.get("k")
        if ks is None:
            ks = self.stored.cache["k"] = integers_of(self.stored.values, "k", 0)
        blob, k = self.blob(row), int(ks[row])
        if blob is None or blob.length <= 4 or not 1 <= k <= 1 << 16:
            return None, k, None
        try:
            return blob, k, self.sums(row)
        except FormatError:
            return None, k, None

    def _check_files(
        self, probe: _BloomProbe, rows: list[int], have: Fetched
    ) -> tuple[BoolArray, int, int]:
        """Per fact row whether it may hold any of the keys; how many filters are damaged, and how
        many could not be read."""
        found, corrupt, lost = np.ones(len(rows), np.bool_), 0, 0
        for i, row in enumerate(rows):
            blob, k, sums = self._filter(row)
            if blob is None:
                corrupt += 1
                continue
            spans = [(0, blob.length)]
            if blob.inline is None:
                spans = probe.spans(blob.length, k, sums)
            try:
                parts = [blob.inline or memoryview(have[blob.span(*span)]) for span in spans]
            except KeyError:
                lost += 1
                continue
            try:
                for (start, _), part in zip(spans, parts, strict=True):
                    self._verify(row, sums, start, part, whole=len(part) == blob.length)
            except FormatError:
                corrupt += 1
                continue
            data: memoryview | dict[int, int] = parts[0]
            if len(parts[0]) < blob.length:
                data = {
                    start + inside: part[inside]
                    for (start, size), part in zip(spans, parts, strict=True)
                    for inside in probe.inside(blob.length, k, start, size)
                }
            found[i] = any(
                all(data[at] >> bit & 1 for at, bit in key) for key in probe.places(blob.length, k)
            )
        return found, corrupt, lost

    def _verify(
        self, row: int, sums: BlockSums | None, start: int, data: memoryview, *, whole: bool
    ) -> None:
        """``FormatError`` for damaged bytes."""
        if sums is not None:
            sums.check(start, data)
        elif whole and zlib.crc32(data) != self.crc(row):
            raise FormatError("an index with another checksum")

    def _silent(self, corrupt: int, lost: int) -> list[Reason]:
        """Why the filters of some files cannot answer; logs one warning."""
        reasons = []
        for count, cause, text in (
            (corrupt, Cause.CORRUPT, "not where the facts say, or damaged"),
            (lost, Cause.UNREADABLE, "bytes of it could not be read"),
        ):
            if not count:
                continue
            reasons.append(Reason(cause=cause, subject=self.subject, text=text, units=count))
            self.warn(text)
        return reasons


class _BloomProbe:
    """Keys, and the positions of their probes in filters of different sizes."""

    def __init__(self, ask: In, type: PaimonType) -> None:
        known = safe(ask, type)
        assert isinstance(known, In)
        self.keys, self.type = known.keys, type
        self._known: dict[tuple[int, int], NDArray[np.int64]] = {}
        self._places: dict[tuple[int, int], list[list[tuple[int, int]]]] = {}
        self._spans: dict[tuple[int, int, int], list[tuple[int, int]]] = {}

    def bits(self, length: int, k: int) -> NDArray[np.int64]:
        """Bit of each probe of each key, ``(keys, k)``, in a blob of ``length`` bytes."""
        if (length, k) not in self._known:
            self._known[length, k] = positions_of(self.keys, self.type, 8 * (length - 4), k)
        return self._known[length, k]

    def places(self, length: int, k: int) -> list[list[tuple[int, int]]]:
        """Per key the byte of the blob, and the bit in it, of each probe."""
        if (length, k) not in self._places:
            self._places[length, k] = [
                [(4 + (bit >> 3), bit & 7) for bit in key] for key in self.bits(length, k).tolist()
            ]
        return self._places[length, k]

    def spans(self, length: int, k: int, sums: BlockSums | None) -> list[tuple[int, int]]:
        """Offset and length of the bytes to read of a blob: all of it, or the blocks that hold the
        probes; without checksums only the bytes of the probes."""
        block = 1 if sums is None else sums.block
        if (length, k, block) not in self._spans:
            spans = [(0, length)]
            if length > SMALL and len(self.keys) * k <= _MANY:
                starts = np.unique((4 + (self.bits(length, k) >> 3)) // block) * block
                spans = [(start, min(block, length - start)) for start in starts.tolist()]
            self._spans[length, k, block] = spans
        return self._spans[length, k, block]

    def inside(self, length: int, k: int, start: int, size: int) -> list[int]:
        """Which of the ``size`` bytes from ``start`` hold probes, counted from ``start``."""
        at = 4 + (self.bits(length, k) >> 3).ravel() - start
        found: list[int] = at[(at >= 0) & (at < size)].tolist()
        return found


class _BloomBuilder(Builder):
    def __init__(
        self, type: PaimonType, stored: pa.DataType, items: int, fpp: float, budget: int
    ) -> None:
        self.type, self.stored, self.items, self.fpp = type, stored, items, fpp
        size = sizing(items, fpp)
        self.k = size.k
        self.over = None
        # The bits, and their copy in the blob.
        if size.bits // 4 > budget:
            self.over = f"a filter for {items:,} items takes more than its share of memory"
        self.raw = np.zeros(0 if self.over else size.bits // 8, np.uint8)

    @property
    def nbytes(self) -> int:
        """The bits, and their copy in the blob."""
        return 2 * len(self.raw)

    def add(self, chunk: Chunk) -> None:
        """Every distinct value of the chunk."""
        if self.over is None:
            bloom_filter.fill(self.raw, self.k, column_of(self.type, chunk.distinct).keys)

    def finish(self) -> Built:
        """The filter."""
        if self.over is not None:
            return Built(None, self.over)
        numbers = [*no_place(), pa.array([self.k], pa.int32())]
        value = pa.StructArray.from_arrays(numbers, fields=list(self.stored))
        return Built(value, blob=self.k.to_bytes(4, "big") + self.raw.tobytes())
