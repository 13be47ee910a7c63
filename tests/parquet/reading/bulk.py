"""Reads columns of many files together, and compares them with what Arrow reads of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import skipstone
from skipstone.parquet.reading.bulk_chunks import KERNELS
from skipstone.parquet.reading.bulk_columns import BulkColumns, FilePart, read_bulk
from skipstone.parquet.reading.few_rows import FewRows, read_few_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from skipstone.parquet.reading.bulk_columns import LeafChunks


#: Loaded before Hypothesis draws: it takes constants from the modules that are loaded.
COMPILED = KERNELS.load()


def opened(path: Path | str, **options: Any) -> skipstone.ParquetFile:
    return skipstone.ParquetFile(str(path), **options)


def chunks_of(file: skipstone.ParquetFile, name: str) -> LeafChunks | None:
    return file.bulk_chunks(file.selection.of_paths([(name,)])[0])


def read_together(
    files: Sequence[skipstone.ParquetFile],
    names: Sequence[str],
    kernels: Any = COMPILED,
    **options: Any,
) -> BulkColumns | None:
    """All rows of these columns; ``None`` where a chunk has another form, or kinds differ."""
    parts = []
    kinds: list[Any] = []
    for file in files:
        spans = []
        for name in names:
            chunks = chunks_of(file, name)
            if chunks is None:
                return None
            spans.append(chunks.spans)
            kinds.append(chunks.kind)
        parts.append(FilePart(file.path, file.reader, tuple(spans)))
    kinds_of = kinds[: len(names)]
    if any(kinds[at] != kinds_of[at % len(names)] for at in range(len(kinds))):
        return None
    return read_bulk(parts, kinds_of, kernels, **options)


def read_rows(
    files: Sequence[skipstone.ParquetFile], name: str, rows: Sequence[NDArray[np.int64]]
) -> tuple[pa.Array | None, list[int]]:
    """Some rows of the first row group of each file, one after another: the values, ``None`` where
    they are not done, and the bytes read of each file."""
    parts, kinds = [], []
    for file, mine in zip(files, rows, strict=True):
        chunks = chunks_of(file, name)
        assert chunks is not None
        parts.append(FewRows(file.path, file.reader, file.page_entries([chunks], 0), mine))
        kinds.append(chunks.kind)
    assert all(kind == kinds[0] for kind in kinds)
    before = [file.bytes_read for file in files]
    found = read_few_rows(parts, kinds[:1], COMPILED)
    lengths = [file.bytes_read - each for file, each in zip(files, before, strict=True)]
    return None if found is None else found[0], lengths


def part(found: BulkColumns, column: int, number: int) -> pa.Array:
    first = found.first[column]
    return plain(found.arrays[column][first[number] : first[number + 1]])


def plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array


def same(one: pa.Array, other: pa.Array) -> bool:
    """Whether types, nulls and bits are equal: NaN is NaN, and -0.0 is not 0.0."""
    if one.type != other.type or len(one) != len(other):
        return False
    if pa.types.is_floating(one.type):
        bits = pa.int32() if one.type == pa.float32() else pa.int64()
        one, other = one.view(bits), other.view(bits)
    return bool(one.equals(other))


def by_arrow(path: Path | str, name: str, type: pa.DataType | None = None) -> pa.Array:
    column = pq.read_table(path, columns=[name], partitioning=None).column(0).combine_chunks()
    column = plain(column)
    return column if type is None or column.type == type else column.cast(type)
