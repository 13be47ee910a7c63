"""The first rows of one file by one column, and their keys, from its range-bitmap.

Which rows come first is in ``formats/paimon/range_bitmap`` (exactly k; of values that tie the
greatest positions, of nulls the least; or all that tie). To merge the rows of several files takes
their keys: the code of each row is put together from its bits, and the dictionary says which key it
stands for. It is read in rounds like any index: ``needs`` names what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import FormatError

from .format.keys import In
from .format.partial_blob import MissingBytes
from .format.range_bitmap import RangeBitmapIndex
from .verified_blob import VerifiedBlob

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from pyroaring import BitMap

    from skipstone.pruning import Fetched
    from skipstone.pruning.kind import Blob
    from skipstone.storage import ByteRange

    from .format.keys import Key
    from .format.types import PaimonType

__all__ = ["RankedRows", "TopFile"]


@dataclass(frozen=True, slots=True, eq=False)
class RankedRows:
    """``rows`` (int64, ascending) and the key of each, ``None`` for null."""

    rows: NDArray[np.int64]
    keys: list[Key | None]


@dataclass(slots=True, eq=False, kw_only=True)
class TopFile:
    """One file's range-bitmap at ``blob``, of a file with ``row_count`` rows. ``arrivals`` are its
    bytes as they come, held against their checksums; without it there are none."""

    blob: Blob
    type: PaimonType
    row_count: int
    arrivals: Callable[[], VerifiedBlob] | None = None
    _known: VerifiedBlob | None = field(default=None, init=False)
    _damage: FormatError | None = field(default=None, init=False)

    def take(self, have: Fetched) -> None:
        """Bytes that were asked for; the next question says what is wrong with them."""
        try:
            self._bytes().take(have)
        except FormatError as error:
            self._damage = error

    def _bytes(self) -> VerifiedBlob:
        if self._damage is not None:
            raise self._damage
        if self._known is None:
            self._known = VerifiedBlob(self.blob) if self.arrivals is None else self.arrivals()
        return self._known

    def head_needs(self) -> Sequence[ByteRange]:
        """What is missing of the head; errors are those of the index."""
        try:
            self._open()
        except MissingBytes as missing:
            return self._ask(missing)
        return ()

    def bounds(self) -> tuple[Key | None, Key | None, int]:
        """Least and greatest key, and the distinct ones, from the head."""
        index = self._open()
        return index.min, index.max, index.cardinality

    def needs(
        self, k: int, *, descending: bool, nulls_first: bool, ties: bool, among: BitMap | None
    ) -> Sequence[ByteRange]:
        """What is missing for ``first``."""
        try:
            self._first(k, descending, nulls_first, ties, among)
        except MissingBytes as missing:
            return self._ask(missing)
        return ()

    def first(
        self, k: int, *, descending: bool, nulls_first: bool, ties: bool, among: BitMap | None
    ) -> RankedRows:
        """The first ``k`` rows of those ``among`` (default: all)."""
        return self._first(k, descending, nulls_first, ties, among)

    def _ask(self, missing: MissingBytes) -> Sequence[ByteRange]:
        return self._bytes().ask(missing.spans)

    def _open(self) -> RangeBitmapIndex:
        pieces = self._bytes().pieces
        index = pieces.opened("top", lambda: RangeBitmapIndex.open(self.type, pieces))
        if index.row_count != self.row_count:
            raise FormatError(
                "the index is of another file",
                expected=f"{self.row_count} rows",
                got=index.row_count,
            )
        return index

    def _first(
        self, k: int, descending: bool, nulls_first: bool, ties: bool, among: BitMap | None
    ) -> RankedRows:
        index = self._open()
        chosen = index.first(
            k, descending=descending, nulls_first=nulls_first, ties=ties, among=among
        )
        if ties and self.type.is_float:
            chosen = self._with_zeros(index, chosen, among)
        rows = np.array(chosen.to_array(), np.int64)
        if not index.cardinality or not len(rows):
            return RankedRows(rows, [None] * len(rows))
        bits = max(1, (index.cardinality - 1).bit_length())
        slices = index.slices(list(range(bits)))
        valued = chosen & slices.planes.rows(slices.planes.copy(slices.existing))
        codes = np.full(len(rows), -1, np.int64)
        codes[np.searchsorted(rows, np.array(valued.to_array(), np.int64))] = 0
        base = slices.planes.of(valued)
        for bit in range(bits):
            hit = slices.planes.rows(
                slices.planes.meet(slices.planes.copy(base), slices.slice(bit))
            )
            codes[np.searchsorted(rows, np.array(hit.to_array(), np.int64))] |= 1 << bit
        if int(codes.max()) >= index.cardinality:
            raise FormatError("a code past the last", expected=f"below {index.cardinality}")
        known = self._keys(index, np.unique(codes[codes >= 0]).tolist())
        return RankedRows(rows, [known.get(code) for code in codes.tolist()])

    def _with_zeros(self, index: RangeBitmapIndex, chosen: BitMap, among: BitMap | None) -> BitMap:
        """Where a zero is chosen all are: -0.0 and 0.0 tie, and are two keys."""
        zeros = index.rows(In((0,)))
        if among is not None:
            zeros = zeros & among
        return chosen | zeros if chosen & zeros else chosen

    def _keys(self, index: RangeBitmapIndex, codes: list[int]) -> dict[int, Key]:
        """The keys of these codes; all missing chunks of the dictionary are asked for at once."""
        found: dict[int, Key] = {}
        missing: list[MissingBytes] = []
        for code in codes:
            try:
                found[code] = index.key(code)
            except MissingBytes as error:
                missing.append(error)
        if missing:
            raise MissingBytes(tuple(span for error in missing for span in error.spans))
        return found
