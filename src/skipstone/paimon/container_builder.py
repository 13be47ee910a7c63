"""Builds the blobs of row indexes from column chunks, and the container of a file from its blobs.

A builder holds values as codes: 4 bytes a row, and each distinct key once per chunk. At the end it
renumbers the codes of all chunks in the order of the keys, and writes the rows of each key, or the
bits of each code. That takes about 30 bytes a row for a moment. A file that does not fit the memory
budget is left out before it is written, with the reason. There is no object per row or per value.

The container has all blobs of the file, ordered by column and then by kind: equal blobs give equal
bytes. It must stay below 2 GiB: the largest blobs are left out until it does, with the reason.
"""

from __future__ import annotations

import zlib
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._dataclasses import dataclass
from skipstone.errors import UnsupportedError
from skipstone.parquet.values import ByteArrays
from skipstone.pruning.column_types import is_text
from skipstone.pruning.file_bounds import RangeBuilder
from skipstone.pruning.kind import Builder, Built, Chunk, Index

from .base import PLACE, BlockSums, PaimonIndex, no_place, paimon_column
from .format.column_keys import LARGEST_ROW_COUNT, CodedColumn, column_of
from .format.container import LARGEST, ContainerHead, to_bytes
from .format.keys import KeyArray, PaimonType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray


# Bytes per row that writing needs for a moment, in addition to the codes.
_ROOM = 32


def coded(type: PaimonType, chunks: list[pa.DictionaryArray]) -> CodedColumn:
    """A whole column from its chunks, as ``encoded`` makes them."""
    none = pa.array([], pa.int64() if type.width else pa.binary()).dictionary_encode()
    indices, dictionary = _joined(chunks or [none])
    codes, distinct = _renumbered(indices, dictionary)
    used = np.bincount(codes[codes >= 0], minlength=len(distinct)) > 0
    if not used.all():  # a dictionary may have values that no row of this file has
        codes = np.append(np.cumsum(used) - 1, -1)[codes].astype(np.int32)
        distinct = distinct.filter(pa.array(used))
    values = ByteArrays.from_arrow(distinct) if not type.width else np.asarray(distinct)
    return CodedColumn(KeyArray(type, values), codes)


class RowsBuilder(Builder):
    """Holds codes until the end; see the module. ``bounds`` builds least and largest value."""

    def __init__(
        self,
        type: pa.DataType,
        paimon: PaimonType,
        stored: pa.StructType,
        write: Callable[[CodedColumn], bytes],
        budget: int,
    ) -> None:
        self.paimon, self.stored, self.write, self.budget = paimon, stored, write, budget
        self.bounds = RangeBuilder(type)
        self.chunks: list[pa.DictionaryArray] = []
        self.rows = self.held = 0
        self.over: str | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held now, and those that writing will need in addition."""
        return self.held + self.rows * _ROOM if self.over is None else 0

    def add(self, chunk: Chunk) -> None:
        """Codes of the next values."""
        if self.over is not None:
            return
        self.bounds.add(chunk)
        self.rows += len(chunk.values)
        if self.rows > LARGEST_ROW_COUNT:
            self._leave(
                f"more than {LARGEST_ROW_COUNT:,} rows: a file index counts them in 31 bits"
            )
        elif self.rows * _ROOM + self.held > self.budget:
            self._leave(self._too_large())
        else:
            encode = partial(encoded, self.paimon, chunk.values)
            try:
                codes = chunk.once(("codes", self.paimon), encode)
            except UnsupportedError as error:
                self._leave(error.message)
                return
            self.chunks.append(codes)
            self.held += codes.nbytes
            if self.nbytes > self.budget:
                self._leave(self._too_large())

    def _too_large(self) -> str:
        return (
            f"writing it for {self.rows:,} rows or more takes more than its share of memory "
            f"({self.budget:,} bytes): build it alone, or with more (memory=…, --memory 2GB)"
        )

    def _leave(self, reason: str) -> None:
        self.over = reason
        self.chunks.clear()

    def finish(self) -> Built:
        """The blob, and the stored value: bounds and number of distinct values."""
        if self.over is not None:
            return Built(None, self.over)
        try:
            column = coded(self.paimon, self.chunks)
            self.chunks.clear()
            blob = self.write(column)
        except UnsupportedError as error:
            return Built(None, error.message)
        distinct = pa.array([len(column.keys)], pa.int32())
        ends = self.bounds.finish().value
        if ends is None:
            low = high = pa.nulls(1, self.stored.field("min").type)
        else:
            low, high = ends.flatten()
        value = pa.StructArray.from_arrays(
            [*no_place(), distinct, low, high], fields=list(self.stored)
        )
        return Built(value, blob=blob)


def encoded(paimon: PaimonType, values: pa.Array) -> pa.DictionaryArray:
    """Values as codes of keys: int64 ordinals, or bytes."""
    if not paimon.width:
        if pa.types.is_dictionary(values.type):
            dictionary = _as_bytes(values.dictionary)
            return pa.DictionaryArray.from_arrays(values.indices.cast(pa.int32()), dictionary)
        return _as_bytes(values).dictionary_encode()
    column = column_of(paimon, values)
    assert isinstance(column.keys.values, np.ndarray)
    if len(column.rows) == len(values):
        return pa.array(column.keys.values).dictionary_encode()
    ordinals, null = np.zeros(len(values), np.int64), np.ones(len(values), np.bool_)
    ordinals[column.rows], null[column.rows] = column.keys.values, False
    return pa.array(ordinals, mask=null).dictionary_encode()


def _as_bytes(values: pa.Array) -> pa.Array:
    return values.view(pa.binary()) if is_text(values.type) else values.cast(pa.binary())


def _joined(chunks: list[pa.DictionaryArray]) -> tuple[pa.Array, pa.Array]:
    """Indices and dictionary of all chunks together."""
    if len(chunks) == 1:
        return chunks[0].indices, chunks[0].dictionary
    unified = pa.chunked_array(chunks).unify_dictionaries()
    indices = pa.concat_arrays([chunk.indices for chunk in unified.chunks])
    return indices, unified.chunk(0).dictionary


def _renumbered(indices: pa.Array, dictionary: pa.Array) -> tuple[NDArray[np.int32], pa.Array]:
    """Codes in the order of the values, -1 for null, and the values in that order, each once."""
    again = dictionary.dictionary_encode()  # values may stand twice in it, and nulls too
    order = np.asarray(pc.sort_indices(again.dictionary))
    place = np.empty(len(order) + 1, np.int32)
    place[order], place[-1] = np.arange(len(order), dtype=np.int32), -1
    of_entry = place[_filled(again.indices)]
    codes = np.append(of_entry, np.int32(-1))[_filled(indices)]
    return codes, again.dictionary.take(pa.array(order))


def _filled(indices: pa.Array) -> NDArray[np.int32]:
    """Indices with -1 for null."""
    if indices.null_count:
        indices = indices.fill_null(-1)
    return np.asarray(indices).astype(np.int32, copy=False)


# Bytes reserved for the head.
_HEAD = 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """A container (``None`` if it is empty), stored values, and why some indexes have none."""

    container: bytes | None
    values: Mapping[Index, pa.Array]
    reasons: Mapping[Index, str]


def bundled(built: Mapping[Index, Built]) -> Bundle:
    """The container of one file's indexes; every ``Built`` has a blob and a value."""
    chosen: dict[tuple[str, str], tuple[PaimonIndex, bytes]] = {}
    reasons: dict[Index, str] = {}
    for index, each in built.items():
        assert isinstance(index, PaimonIndex)
        assert each.blob is not None
        key = (paimon_column(index.column), index.paimon)
        if len(key[0].encode("utf-8", "surrogatepass")) > 20_000:
            reasons[index] = "the column's name is too long for a container"
        elif key in chosen:
            reasons[index] = f"a container has one {index.paimon} index of a column"
        else:
            chosen[key] = (index, each.blob)
    room = LARGEST - _HEAD
    for key, (index, blob) in sorted(chosen.items(), key=lambda item: -len(item[1][1])):
        if sum(len(kept) for _, kept in chosen.values()) <= room:
            break
        reasons[index] = f"its {len(blob):,} bytes do not fit a container of 2 GiB"
        del chosen[key]
    if not chosen:
        return Bundle(None, {}, reasons)
    columns: dict[str, dict[str, bytes | None]] = {}
    for (column, kind), (_, blob) in chosen.items():
        columns.setdefault(column, {})[kind] = blob
    try:
        container = to_bytes(columns)
    except UnsupportedError as error:
        reasons.update({index: error.message for index, _ in chosen.values()})
        return Bundle(None, {}, reasons)
    values: dict[Index, pa.Array] = {}
    for described in ContainerHead.from_bytes(container).columns:
        for entry in described.indexes:
            index = chosen[described.name, entry.kind][0]
            value = built[index].value
            assert value is not None
            blob = chosen[described.name, entry.kind][1]
            sums = BlockSums.of(blob, index.block).to_bytes()
            values[index] = _placed(value, (entry.start, entry.length, zlib.crc32(blob), sums))
    return Bundle(container, values, reasons)


def _placed(value: pa.Array, place: tuple[int | bytes, ...]) -> pa.Array:
    """A stored value with ``place`` in its fields ``PLACE``."""
    fields = [pa.array([n], type) for n, type in zip(place, PLACE.values(), strict=True)]
    return pa.StructArray.from_arrays(
        [*fields, *value.flatten()[len(fields) :]], fields=list(value.type)
    )
