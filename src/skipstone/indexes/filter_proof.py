"""Checks that the Bloom filters of a file hold all values of its columns, for ``check --deep``.

A filter is correct if each bit that a value of the file needs is set. So a proof is built from the
values in the same way as the filter, and in the size of the stored one. Each bit of the proof must
be set in the stored filter. This compares all values, for about the cost of a build. The stored
filter may have bits that no value needs.

A filter of texts that has only short grams needs only their bits (``text.py``). The filter of each
row group is compared with the values of its rows.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.errors import FormatError
from skipstone.human import of_total
from skipstone.pruning.kind import Builder, Built, Chunk, Index
from skipstone.xskipper.format.java_bloom import BloomFilterMetaData

from .bloom import Bloom, BloomBuilder
from .row_group_filters import BYTES, FilterBits, GroupFilters
from .sliced_bloom import SlicedBloom, SlicedText
from .text import SHORT_ALONE, TextBuilder, TextIndex
from .text_groups import GroupLimits, GroupsBuilder, TextGroups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import Answer, Fetched, Units
    from skipstone.pruning.kind import Blob
    from skipstone.xskipper.format.sketch import SketchFilter

    from .bloom import Pairs
    from .text_keys import Keys

    Read = Callable[[Blob], bytes | memoryview | None]


# Pairs of hashes that are put into a filter at a time.
_AT_ONCE = 1 << 20
# Bytes of the filters of one part that are read for one of its files.
_MOST_FILTERS = 1 << 30
_BUDGET = 1 << 30
#: the reason that a finished proof gives
COMPARED = "compared"


class FilterProof(Index):
    """Checks the filters that ``index`` has for one file: ``filter``, and those of its row groups.
    A build over the values of the file collects in ``untrue`` what the filters lack."""

    name = "proof"

    def __init__(self, asked: Index, filter: SketchFilter | None, number: int = 0) -> None:
        super().__init__(asked.column)
        #: the evidence that queries ask, and its definition
        self.asked, self.index = asked, _definition(asked)
        self.filter, self.number = filter, number
        self.groups: tuple[GroupFilters, memoryview] | None = None
        self.untrue: list[str] = []

    @property
    def params(self) -> dict[str, str]:
        """The proved index; ``number`` distinguishes equal ones."""
        return {"of": repr(self.asked), "number": str(self.number)}

    @property
    def filters(self) -> int:
        """The number of filters that it compares."""
        groups = 0 if self.groups is None else int((self.groups[0].table >= 0).sum())
        return groups + (self.filter is not None)

    def stored_type(self, type: pa.DataType) -> pa.DataType:
        """Nothing is stored."""
        return pa.null()

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        raise AssertionError("a proof answers nothing")

    def build(self, type: pa.DataType, budget: int) -> Builder:
        """Compares the filters with the values that the builder gets."""
        if isinstance(self.index, TextIndex):
            return _TextProof(self, self.index, type)
        assert self.filter is not None
        return _ValueProof(self, type, self.filter)

    def compare(self, what: str, needed: NDArray[Any], stored: NDArray[Any]) -> None:
        """Records the bits that are needed and not stored."""
        lacking = int(np.bitwise_count(needed & ~stored).sum())
        if lacking:
            total = int(np.bitwise_count(needed).sum())
            text = f"{what} lacks {of_total(lacking, total, 'bits')} that its values need"
            self.untrue.append(text)

    def said(self, values: pa.Array, type: pa.DataType) -> list[str]:
        """The problems found, with the first of the file's ``values`` that its filter lacks."""
        if not self.untrue or not len(values) or not self._lacks(values, type):
            return self.untrue
        while len(values) > 1:
            half = values.slice(0, len(values) // 2)
            values = half if self._lacks(half, type) else values.slice(len(half))
        shown = str(values[0].as_py())
        shown = shown if len(shown) <= 80 else shown[:80] + "…"
        return [f"{self.untrue[0]}: the first is {shown!r}", *self.untrue[1:]]

    def _lacks(self, values: pa.Array, type: pa.DataType) -> bool:
        """Whether the filter of the file lacks any of some values."""
        proof = FilterProof(self.asked, self.filter)
        builder = proof.build(type, _BUDGET)
        builder.add(Chunk(values))
        builder.finish()
        return bool(proof.untrue)


class _NeededBits(BloomBuilder):
    """Collects the bits that values need in a filter of the size of ``stored``."""

    def __init__(self, type: pa.DataType, stored: SketchFilter) -> None:
        super().__init__(type, 0.5, 64, _BUDGET)
        self.stored, self.needed = stored, np.zeros(len(stored.words), np.uint64)

    def take(self, pairs: Pairs) -> None:
        self.pairs.append(pairs)
        self.held += len(pairs)
        if self.held > _AT_ONCE:
            self._put()

    def _put(self) -> None:
        if self.pairs:
            pairs = np.concatenate(self.pairs)
            self.kernels.put(pairs, self.stored.num_hash_functions, self.needed)
        self.pairs, self.held = [], 0

    def needed_words(self) -> NDArray[np.uint64]:
        """The words of the bits that all values need."""
        self._put()
        return self.needed

    def lacking(self) -> NDArray[np.uint64]:
        """The needed bits that are not set."""
        return np.asarray(self.needed_words() & ~self.stored.words)


class _ValueProof(_NeededBits):
    """The proof of a filter of values."""

    def __init__(self, proof: FilterProof, type: pa.DataType, stored: SketchFilter) -> None:
        super().__init__(type, stored)
        self.proof = proof

    def finish(self) -> Built:
        self.proof.compare(repr(self.proof.index), self.needed_words(), self.stored.words)
        return Built(None, COMPARED)


class _TextProof(TextBuilder):
    """The proof of filters of the keys of texts."""

    def __init__(self, proof: FilterProof, index: TextIndex, type: pa.DataType) -> None:
        super().__init__(index, type, _BUDGET)
        self.proof = proof
        self.bits = None if proof.filter is None else _NeededBits(type, proof.filter)
        self.complete = True
        if proof.filter is not None:
            mark = _NeededBits(type, proof.filter)
            mark.take(mark.kernels.longs(SHORT_ALONE.view(np.int64)))
            self.complete = bool(mark.lacking().any())

    def cut(self, rows: Sequence[int]) -> None:
        """Compares the filters of the row groups too."""
        if self.proof.groups is None:
            return
        head, data = self.proof.groups
        if head.group_rows.tolist() == list(rows):
            self.groups = _GroupsProof(self.proof, self.index, head, data)
        else:
            text = f"{self.index!r} has filters of row groups of other rows"
            self.proof.untrue.append(text)

    def take_keys(self, which: int, keys: Keys) -> None:
        if self.bits is not None and (self.complete or not which):
            self.bits.kernels = self.kernels
            self.bits.take(self.kernels.longs(keys.view(np.int64)))

    def finish(self) -> Built:
        if self.failed is not None:
            self.proof.untrue.append(f"{self.index!r} has a filter, and {self.failed}")
        elif self.bits is not None:
            self.proof.compare(repr(self.index), self.bits.needed_words(), self.bits.stored.words)
        return Built(None, COMPARED)


class _GroupsProof(GroupsBuilder):
    """The proofs of the filters of row groups, one after the other."""

    def __init__(
        self, proof: FilterProof, index: TextIndex, head: GroupFilters, data: memoryview
    ) -> None:
        limits = GroupLimits(index.share, index.max_bytes, index.fpp, index.worthless)
        super().__init__(limits, head.rows.tolist(), _BUDGET)
        self.proof, self.head, self.data = proof, head, data
        self.bits: FilterBits | None = None

    def divide(self, nbytes: float) -> None:
        """Divides the row group as the stored filters do."""

    def take(self, which: int, keys: Keys) -> None:
        at = len(self.filters)
        if self.head.table[at] < 0 or (which and not self.head.complete[at]):
            return
        if self.bits is None:
            table = self.head.tables[int(self.head.table[at])]
            self.bits = FilterBits.of_size(table.blocks, table.hashes)
        self.bits.put(keys)

    def finish_one(self) -> None:
        at = len(self.filters)
        if self.bits is not None:
            table = self.head.tables[int(self.head.table[at])]
            size, lane = table.blocks * table.stride, int(self.head.lane[at]) * BYTES
            rows = np.frombuffer(self.data, np.uint8, size, table.start)
            stored = rows.reshape(-1, table.stride)[:, lane : lane + BYTES]
            unit = "part" if self.head.in_parts else "row group"
            what = f"{unit} {at:,}: {self.proof.index!r}"
            self.proof.compare(what, self.bits.finish(complete=True).blocks, stored)
        self.filters.append(None)
        self.begin()
        self.bits = None


def proofs_of(
    evidence: Iterable[Index], of_row_groups: Iterable[Index], file: int, read: Read
) -> list[FilterProof]:
    """The proofs of the filters of one file; ``read`` returns what is stored at a place.

    A filter that is absent, or that queries cannot read, has no proof.
    """
    found: list[FilterProof] = []
    for each in evidence:
        if isinstance(_definition(each), Bloom | TextIndex):
            blob = _filter_of(each, file)
            try:
                filter = None if blob is None else BloomFilterMetaData.from_bytes(blob).filter
            except FormatError:
                continue
            if filter is not None and filter.version == 1:
                found.append(FilterProof(each, filter, len(found)))
    for each in of_row_groups:
        place = each.place(file) if isinstance(each, TextGroups) else None
        data = None if place is None else read(place[0])
        if place is None or data is None:
            continue
        same = [p for p in found if p.index == _definition(each) and p.groups is None]
        proof = same[0] if same else FilterProof(each, None, len(found))
        found += [] if same else [proof]
        try:
            proof.groups = _checked(memoryview(data), place[1])
        except FormatError as error:
            proof.untrue.append(f"{proof.index!r}: {error.message}")
    return found


def _definition(index: Index) -> Index:
    """The index that the user named, for one that queries ask."""
    if isinstance(index, SlicedText | TextGroups):
        assert isinstance(index.kind, TextIndex)
        return index.kind
    return index


def _filter_of(index: Index, file: int) -> bytes | memoryview | None:
    """The stored filter of a file."""
    stored = index.stored
    row = -1 if stored is None else int(stored.row_of_file[file])
    if stored is None or row < 0:
        return None
    if not isinstance(index, SlicedBloom):
        value = stored.values[row]
        return memoryview(value.as_buffer()) if value.is_valid else None
    for part in index.parts:
        if part.first <= row < part.last and part.nbytes <= _MOST_FILTERS:
            found: bytes | None = part.read()[row - part.first].as_py()
            return found
    return None


def _checked(data: memoryview, head: int) -> tuple[GroupFilters, memoryview]:
    """The filters of row groups; ``FormatError`` where a checksum is wrong."""
    filters = GroupFilters.from_bytes(data[:head], len(data))
    for table in filters.tables:
        for at in range(table.start, table.start + table.blocks * table.stride, table.stride):
            block = data[at : at + table.stride]
            if zlib.crc32(block[:-4]) != int.from_bytes(block[-4:], "little"):
                raise FormatError("the checksum of a block of filters is wrong", offset=at)
    return filters, data
