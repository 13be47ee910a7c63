"""``bitmap``, ``rangebitmap`` and ``bsi``: which rows hold which values.

Stored value: ``struct<start: int32, length: int32, crc: int64, sums: binary, distinct: int32,
min: T, max: T>``. ``start`` and ``length`` place the blob in the container of the file; ``crc`` is
its CRC-32 and ``sums`` has the checksums of its blocks (``base``; values without this field are
still read). ``distinct`` counts distinct values; ``min`` and ``max`` are bounds as in ``minmax``.
The bounds answer at the object level without a read. The rows are separate evidence, one for each
file (``row_evidence``).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from skipstone.errors import UnsupportedError
from skipstone.predicate.tree import Leaf, Op
from skipstone.pruning.evidence import KnownRows
from skipstone.pruning.file_bounds import intervals_of
from skipstone.pruning.interval import interval_bounds
from skipstone.pruning.kind import Builder, Index, IntArray, PerFile, Rows

from .base import PaimonIndex, integers_of, memory_size, place_fields
from .bloom import PaimonBloom
from .format import bitmap, bsi, range_bitmap
from .format.bitmap import BLOCK_SIZE
from .index_blob import SMALL
from .row_evidence import FileRows, remembered_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from skipstone.pruning import BoolArray, Bounds
    from skipstone.pruning.evaluation import Fetch

    from .format.column_keys import CodedColumn
    from .format.keys import PaimonType


class RowIndex(PerFile, PaimonIndex):
    """Base of the kinds that answer at the row level; see the module."""

    ops = frozenset(Op) - {Op.IS_NULL, Op.NOT_NULL, Op.NOT_LIKE}
    sweeps = like_pm = True

    def stored_type(self, type: pa.DataType) -> pa.DataType:
        self.paimon_type(type)
        numbers = [*place_fields(), pa.field("distinct", pa.int32())]
        return pa.struct([*numbers, pa.field("min", type), pa.field("max", type)])

    def write(self) -> Callable[[CodedColumn], bytes]:
        """The function that writes the blob of a column."""
        raise NotImplementedError

    def build(self, type: pa.DataType, budget: int) -> Builder:
        """Holds the codes of all rows."""
        from .container_builder import RowsBuilder  # needs ``pyarrow.compute``, queries do not

        stored = self.stored_type(type)
        paimon = self.paimon_type(type)
        return RowsBuilder(type, paimon, stored, self.write(), budget)

    def bounds_of(self, leaf: Leaf, rows: Rows) -> Bounds[BoolArray] | None:
        """Bounds of whole files, from least and greatest values."""
        intervals = intervals_of(rows.stored)
        return interval_bounds(leaf, intervals if rows.at is None else intervals.where(rows.at))

    def stored_bytes(self, files: IntArray) -> IntArray:
        """An upper estimate of the bytes of the column in each of ``files``, -1 where unknown. A
        value counts two bytes where the dictionary is small: reading its index takes as long."""
        stored, found = self.stored, np.full(len(files), -1, np.int64)
        if stored is None:
            return found
        if "distinct" not in stored.cache:
            stored.cache["distinct"] = integers_of(stored.values, "distinct", -1)
        facts = stored.row_of_file[files]
        known = np.flatnonzero(facts >= 0)
        distinct, rows = stored.cache["distinct"][facts[known]], stored.rows[facts[known]]
        is_small = (distinct >= 0) & (distinct <= _SMALL_DICTIONARY) & (rows >= 0)
        found[known[is_small]] = 2 * rows[is_small]
        return found

    def of_file(self, file: int, shared: dict[Any, Any] | None = None) -> FileRows | None:
        """Evidence about the rows of one file; ``None`` if this index was not built for it.

        ``shared`` holds what all files of one index share; pass the same mapping for all.
        """
        stored = self.stored
        if stored is None:
            return None
        row = int(stored.row_of_file[file])
        if row < 0 or not self.known(stored)[row]:
            return None
        shared = {} if shared is None else shared
        if "type" not in shared:
            shared["type"] = self.paimon_type(stored.type)
        return FileRows(
            index=self,
            type=shared["type"],
            blob=self.blob(row),
            rows=int(stored.rows[row]),
            nulls=int(stored.nulls[row]),
            fact=row,
            shared=shared,
        )


#: the most values of a dictionary that is small compared with the rows
_SMALL_DICTIONARY = 4096


class IndexedRows:
    """The row level source: the evidence of those ``indexes`` that answer for rows."""

    def __init__(self, indexes: Sequence[Index]) -> None:
        self.indexes = [index for index in indexes if isinstance(index, RowIndex)]
        self._shared: list[dict[Any, Any]] = [{} for _ in self.indexes]

    def __bool__(self) -> bool:
        return bool(self.indexes)

    def evidence(self, file: int, columns: frozenset[str]) -> list[FileRows]:
        """The evidence about the rows of one file."""
        found = [
            index.of_file(file, shared)
            for index, shared in zip(self.indexes, self._shared, strict=True)
            if index.column in columns
        ]
        return [each for each in found if each is not None]

    def known(self, leaves: Sequence[Leaf], files: IntArray, fetch: Fetch) -> Sequence[KnownRows]:
        """The answers that the indexes remember from earlier plans, and those of many files that
        are read together now (``bulk_rows.py``)."""
        from .bulk_rows import answers_many, learn

        chosen: list[tuple[Leaf, RowIndex]] = []
        for leaf in dict.fromkeys(leaves):
            for index in sorted(self.indexes, key=lambda each: each.row_cost):
                if index.column == leaf.column and (
                    remembered_rows(index, leaf) is not None or answers_many(index, leaf)
                ):
                    chosen.append((leaf, index))
                    break
            else:
                return ()
        found: list[KnownRows] = []
        # In the order in which they are evaluated.
        for leaf, index in sorted(chosen, key=lambda each: each[1].row_cost):
            assert index.stored is not None
            facts = index.stored.row_of_file
            took = learn(index, leaf, facts[files].tolist(), fetch)
            known = remembered_rows(index, leaf)
            if known is None:
                return ()
            made = KnownRows(
                leaf=leaf,
                index=index.name,
                cost=index.row_cost,
                facts=facts,
                bounds=known,
                joins=index.paimon == "bitmap" and len(leaf.values) > 1,
            )
            found.append(made if took is None else replace(made, **took))
        return found

    def stored(self, files: IntArray, column: str) -> IntArray:
        """See ``RowSource``."""
        for index in self.indexes:
            if index.column == column:
                return index.stored_bytes(files)
        return np.full(len(files), -1, np.int64)


class Bitmap(RowIndex):
    """A Roaring bitmap for each distinct value; see the module."""

    name = "bitmap"
    paimon = "bitmap"
    parameters = ("version", "index-block-size")
    instead = ("rangebitmap", "paimonbloom", "bsi")
    cost = 1.1
    row_cost = 1.0

    def __init__(self, column: str, version: int = 2, index_block_size: int = BLOCK_SIZE) -> None:
        super().__init__(column)
        if version not in (1, 2):
            raise ValueError(f"version is 1 or 2, not {version}")
        if index_block_size < 0:
            raise ValueError("index-block-size is a number of bytes, 0 or more")
        self.version, self.index_block_size = version, index_block_size

    @property
    def params(self) -> Mapping[str, str]:
        found = {} if self.version == 2 else {"version": str(self.version)}
        if self.index_block_size != BLOCK_SIZE:
            found["index-block-size"] = str(self.index_block_size)
        return found

    @classmethod
    def from_params(cls, column: str, params: Mapping[str, str]) -> Self:
        size = memory_size(params["index-block-size"]) if "index-block-size" in params else None
        return cls(column, int(params.get("version", 2)), BLOCK_SIZE if size is None else size)

    def check(self, type: PaimonType) -> None:
        """All but decimals and binary."""
        bitmap.check_type(type)

    def write(self) -> Callable[[CodedColumn], bytes]:
        """By version and block size."""
        return partial(bitmap.write_bitmap, version=self.version, block_size=self.index_block_size)


class RangeBitmap(RowIndex):
    """A dictionary of the distinct values and bit slices of their codes; see the module."""

    name = "rangebitmap"
    paimon = "range-bitmap"
    block = SMALL
    parameters = ("chunk-size",)
    instead = ("paimonbloom", "bsi")
    cost = 1.2
    row_cost = 5.0

    def __init__(self, column: str, chunk_size: int | None = None) -> None:
        super().__init__(column)
        if chunk_size is not None and not 0 <= chunk_size < 2**31:
            raise ValueError("chunk-size is a number of bytes below 2 gb")
        self.chunk_size = chunk_size

    @property
    def params(self) -> Mapping[str, str]:
        """``chunk-size``, if it was set."""
        return {} if self.chunk_size is None else {"chunk-size": str(self.chunk_size)}

    @classmethod
    def from_params(cls, column: str, params: Mapping[str, str]) -> Self:
        return cls(column, memory_size(params["chunk-size"]) if "chunk-size" in params else None)

    def check(self, type: PaimonType) -> None:
        """All but binary and decimals above 18 digits."""
        range_bitmap.check_type(type)

    def write(self) -> Callable[[CodedColumn], bytes]:
        """By chunk size."""
        return partial(range_bitmap.write_range_bitmap, chunk_size=self.chunk_size)


class Bsi(RowIndex):
    """Bit slices of the numbers themselves; deprecated by Paimon in favour of range-bitmap."""

    name = "bsi"
    paimon = "bsi"
    block = SMALL
    instead = ("rangebitmap", "bitmap", "paimonbloom")
    cost = 1.3
    row_cost = 6.0

    def check(self, type: PaimonType) -> None:
        """Integers, decimals, dates and timestamps; a file with a decimal that does not fit 64 bits
        is left out."""
        bsi.check_type(type)
        if not type.exact:
            raise UnsupportedError(f"a bsi index does not support a column of {type}")

    def write(self) -> Callable[[CodedColumn], bytes]:
        """A bsi has no parameters."""
        return bsi.write_bsi


KINDS: dict[str, type[PaimonIndex]] = {
    each.paimon: each for each in (PaimonBloom, Bitmap, Bsi, RangeBitmap)
}
