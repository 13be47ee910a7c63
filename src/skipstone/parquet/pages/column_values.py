"""Values of one leaf with their levels: of a page, of a whole chunk, or of a run of its rows.

    entry               0     1     2     3     4
    repetition level    0     1     0     0     1      0 begins a row
    definition level    2     2     0     2     1      the highest level has a value
    values              a     b           c

A ``LeafColumn`` holds no nulls, so it has at most as many values as entries.
Dictionary-encoded values stay indices into their dictionary until they are needed.

    page v1   decompress(body)  ->  levels, values
    page v2   levels, decompress(rest)  ->  values        unless ``is_compressed`` is false

The number of stored values is the number of entries whose definition level is the highest. The page
header declares the decompressed length of the body. The decoder never makes anything longer.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from skipstone._arrays import within
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.encodings import decode_values, delta
from skipstone.parquet.encodings.codecs import decompress
from skipstone.parquet.encodings.dictionary import decode_indices, gather
from skipstone.parquet.format.enums import Encoding, PageType, Type
from skipstone.parquet.pages.levels import levels_v1, levels_v2, row_starts
from skipstone.parquet.values import MAX_BYTES, Values
from skipstone.parquet.values import concat as concat_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.values import I32, I64, U8

    from .page import Page


# From ``_RANGES`` ranges on, one look-up of all rows takes less time than a slice of each range,
# unless ranges have more rows than ``_ROWS_OF_RANGE`` on average.
_RANGES = 8
_ROWS_OF_RANGE = 256


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Consecutive values: ``values`` themselves, or ``indices`` into them as a dictionary.

    Indices are below the dictionary's length: the caller has checked it.
    """

    values: Values
    indices: I32 | None = None

    def __len__(self) -> int:
        return len(self.values if self.indices is None else self.indices)

    def __getitem__(self, rows: slice) -> Run:
        """The values ``start:stop``, not copied."""
        if self.indices is None:
            return Run(self.values[rows])
        return Run(self.values, self.indices[rows])

    def take(self, places: I64) -> Run:
        """The values at these places, copied; a dictionary is not."""
        if self.indices is None:
            return Run(gather(self.values, places))
        return Run(self.values, self.indices[places])

    @property
    def content_size(self) -> int:
        """The bytes of the values that ``plain`` returns."""
        if self.indices is None:
            return self.values.nbytes
        if isinstance(self.values, np.ndarray):
            width = self.values.itemsize * int(np.prod(self.values.shape[1:]))
            return len(self.indices) * width
        return int(self.values.lengths[self.indices].sum())

    def plain(self) -> Values:
        """The values, looked up in the dictionary if there is one."""
        if self.indices is None:
            return self.values
        return gather(self.values, self.indices)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeafColumn:
    """Entries of one leaf; see the module.

    ``definition_levels`` is ``None`` where every entry has the highest level, and
    ``repetition_levels`` where every entry begins a row. ``runs`` hold one value for each entry of
    the highest definition level.
    """

    leaf: ColumnDescriptor
    num_entries: int
    definition_levels: U8 | None
    repetition_levels: U8 | None
    runs: tuple[Run, ...] = field(repr=False)

    @property
    def num_values(self) -> int:
        """The number of values, without nulls."""
        return sum(map(len, self.runs))

    @property
    def num_nulls(self) -> int:
        """Entries without a value: nulls, and empty or null lists above them."""
        return self.num_entries - self.num_values

    @property
    def content_size(self) -> int:
        """The bytes of its values, repeated ones each time."""
        return sum(run.content_size for run in self.runs)

    @property
    def num_rows(self) -> int:
        """Rows that begin here."""
        if self.repetition_levels is None:
            return self.num_entries
        return self.num_entries - int(np.count_nonzero(self.repetition_levels))

    def values(self) -> Values:
        """The values without nulls, in order."""
        return join_values([run.plain() for run in self.runs], self.leaf)

    def rows(self, start: int, stop: int) -> LeafColumn:
        """The rows ``start`` to ``stop`` of those that begin here, clipped to the existing rows.

        Row 0 is the first row that begins here. Entries before it continue a row of the previous
        page and are left out.
        """
        start = max(start, 0)
        stop = max(min(stop, self.num_rows), start)
        if self.repetition_levels is None:
            return self.entries(start, stop)
        places = row_starts(self.repetition_levels)
        first = int(places[start]) if start < len(places) else self.num_entries
        last = int(places[stop]) if stop < len(places) else self.num_entries
        return self.entries(first, last)

    def ranges(self, starts: I64, stops: I64) -> LeafColumn:
        """The rows of these ranges, ascending, one after another; all of them begin here."""
        counts = stops - starts
        if (
            self.repetition_levels is not None
            or len(counts) < _RANGES
            or counts.sum() > _ROWS_OF_RANGE * len(counts)
        ):
            pairs = zip(starts.tolist(), stops.tolist(), strict=True)
            return concat(self.leaf, [self.rows(start, stop) for start, stop in pairs])
        entries = np.repeat(starts, counts) + within(counts)
        definition, values = self.definition_levels, entries
        if definition is not None:
            has_value = definition == self.leaf.max_definition_level
            definition = definition[entries]
            values = (np.cumsum(has_value) - 1)[entries[has_value[entries]]]
        runs: list[Run] = []
        at = 0
        for run in self.runs:
            first, last = values.searchsorted((at, at + len(run))).tolist()
            if first < last:
                runs.append(run.take(values[first:last] - at))
            at += len(run)
        return LeafColumn(
            leaf=self.leaf,
            num_entries=len(entries),
            definition_levels=definition,
            repetition_levels=None,
            runs=_joined(runs, self.leaf),
        )

    def entries(self, start: int, stop: int) -> LeafColumn:
        """The entries ``start`` to ``stop``; levels and values are shared."""
        if start == 0 and stop >= self.num_entries:
            return self
        start = min(start, self.num_entries)
        stop = max(start, min(stop, self.num_entries))
        definition, repetition = self.definition_levels, self.repetition_levels
        first, last = start, stop
        if definition is not None:
            highest = self.leaf.max_definition_level
            first = int(np.count_nonzero(definition[:start] == highest))
            last = first + int(np.count_nonzero(definition[start:stop] == highest))
        return LeafColumn(
            leaf=self.leaf,
            num_entries=stop - start,
            definition_levels=None if definition is None else definition[start:stop],
            repetition_levels=None if repetition is None else repetition[start:stop],
            runs=_cut(self.runs, first, last),
        )


def _cut(runs: Sequence[Run], start: int, stop: int) -> tuple[Run, ...]:
    kept: list[Run] = []
    at = 0
    for run in runs:
        low, high = max(start - at, 0), min(stop - at, len(run))
        if low < high:
            kept.append(run if high - low == len(run) else run[low:high])
        at += len(run)
    return tuple(kept)


def concat(leaf: ColumnDescriptor, parts: Sequence[LeafColumn]) -> LeafColumn:
    """All entries of all parts, in order; runs of one dictionary are joined."""
    if len(parts) == 1:
        return parts[0]
    total = sum(part.num_entries for part in parts)
    return LeafColumn(
        leaf=leaf,
        num_entries=total,
        definition_levels=_levels(
            [(part.definition_levels, part.num_entries) for part in parts],
            leaf.max_definition_level,
        ),
        repetition_levels=_levels(
            [(part.repetition_levels, part.num_entries) for part in parts], 0
        ),
        runs=_joined([run for part in parts for run in part.runs if len(run)], leaf),
    )


def _levels(parts: Sequence[tuple[U8 | None, int]], absent: int) -> U8 | None:
    if all(levels is None for levels, _ in parts):
        return None
    made = np.empty(sum(count for _, count in parts), np.uint8)
    at = 0
    for levels, count in parts:
        made[at : at + count] = absent if levels is None else levels
        at += count
    return made


def _joined(runs: Sequence[Run], leaf: ColumnDescriptor) -> tuple[Run, ...]:
    made: list[Run] = []
    at = 0
    while at < len(runs):
        first, stop = runs[at], at + 1
        while stop < len(runs) and _alike(first, runs[stop]):
            stop += 1
        if stop - at == 1:
            made.append(first)
        elif first.indices is None:
            made.append(Run(join_values([run.values for run in runs[at:stop]], leaf)))
        else:
            indices = [run.indices for run in runs[at:stop] if run.indices is not None]
            made.append(Run(first.values, np.concatenate(indices)))
        at = stop
    return tuple(made)


def _alike(a: Run, b: Run) -> bool:
    if a.indices is None or b.indices is None:
        return a.indices is b.indices
    return a.values is b.values


def join_values(parts: Sequence[Values], leaf: ColumnDescriptor) -> Values:
    """The values of all parts of one leaf, in order."""
    if not parts:
        return no_values(leaf)
    if (
        len(
            {
                (each.dtype, each.shape[1:]) if isinstance(each, np.ndarray) else None
                for each in parts
            }
        )
        > 1
    ):
        raise FormatError(f"values of two types in column {leaf.name}")
    return concat_values(parts)


def no_values(leaf: ColumnDescriptor) -> Values:
    """No values of the leaf's physical type."""
    return decode_values(Encoding.PLAIN, b"", 0, leaf.type, leaf.type_length)


# A page of a few bytes may represent any number of equal values. Only hostile files exceed these
# limits: writers end pages at 20,000 rows, and older ones at 64 Mi.
MOST_VALUES = 1 << 27
_MOST_PER_BYTE = 1 << 10


def check_num_values(num_values: int, size: int) -> None:
    """UnsupportedError for more values than ``size`` bytes may represent."""
    most = MOST_VALUES + _MOST_PER_BYTE * size
    if num_values > most:
        raise UnsupportedError(f"{num_values} values in {size} bytes: at most {most} are read")


def decode_dictionary_page(
    page: Page, leaf: ColumnDescriptor, codec: int, body: memoryview
) -> Values:
    """The dictionary's values; ``body`` is the page's body, decrypted if it was encrypted."""
    if page.encoding not in (Encoding.PLAIN, Encoding.PLAIN_DICTIONARY):
        raise UnsupportedError(f"a dictionary page of encoding {page.encoding}")
    data = _decompressed(codec, body, page.uncompressed_page_size)
    return decode_values(Encoding.PLAIN, data, page.num_values, leaf.type, leaf.type_length)


def decode_data_page(
    page: Page,
    leaf: ColumnDescriptor,
    codec: int,
    dictionary: Values | None,
    body: memoryview,
    most_bytes: int = MAX_BYTES,
) -> LeafColumn:
    """The entries of a data page; dictionary indices are kept as such.

    ``body`` is the page's body, decrypted if it was encrypted; ``most_bytes`` limits the bytes of
    strings that the page stores with shared prefixes. FormatError where the page is damaged,
    UnsupportedError for codecs and encodings that are not read.
    """
    check_num_values(page.num_values, len(body))
    if page.type == PageType.DATA_PAGE_V2:
        repetition, definition, at = levels_v2(page, body, leaf)
        size = page.uncompressed_page_size - at
        if size < 0:
            raise FormatError(
                "levels longer than their page", expected=page.uncompressed_page_size, got=at
            )
        data = body[at:]
        # For no values a writer may write no bytes, even if its codec makes some of empty input.
        data = _decompressed(codec if page.is_compressed else 0, data, size) if size else data[:0]
    else:
        data = _decompressed(codec, body, page.uncompressed_page_size)
        repetition, definition, at = levels_v1(page, data, leaf)
        data = data[at:]
    count = page.num_values
    if definition is not None:
        count = int((definition == leaf.max_definition_level).sum())
    return LeafColumn(
        leaf=leaf,
        num_entries=page.num_values,
        definition_levels=definition,
        repetition_levels=repetition,
        runs=(_values(page, leaf, dictionary, data, count, most_bytes),) if count else (),
    )


def _decompressed(codec: int, body: memoryview, size: int) -> memoryview:
    if not size:
        return body[:0]
    return decompress(codec, body, size)


def _values(
    page: Page,
    leaf: ColumnDescriptor,
    dictionary: Values | None,
    data: memoryview,
    count: int,
    most_bytes: int,
) -> Run:
    if page.encoding == Encoding.DELTA_BYTE_ARRAY and leaf.type is Type.BYTE_ARRAY:
        return Run(delta.decode_byte_array(data, count, most_bytes)[0])
    if page.encoding not in (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY):
        return Run(decode_values(page.encoding, data, count, leaf.type, leaf.type_length))
    if dictionary is None:
        raise FormatError("a dictionary-encoded page, but no dictionary before it")
    indices = decode_indices(data, count)
    low, high = int(indices.min()), int(indices.max())
    if low < 0 or high >= len(dictionary):
        raise FormatError(
            "an index outside the dictionary",
            expected=f"0 to {len(dictionary) - 1}",
            got=low if low < 0 else high,
        )
    return Run(dictionary, indices)


def decode_pages(
    pages: Iterable[Page],
    leaf: ColumnDescriptor,
    codec: int,
    *,
    dictionary: Values | None = None,
    verify_crc: bool = False,
    most_bytes: int = MAX_BYTES,
) -> LeafColumn:
    """The entries of all data pages among ``pages``, in order; their bodies are decrypted.

    A dictionary page replaces the ``dictionary`` that was read earlier. Errors name the offset of
    the page.
    """
    parts: list[LeafColumn] = []
    for page in pages:
        is_dictionary = page.type == PageType.DICTIONARY_PAGE
        if not is_dictionary and not page.is_data:
            continue
        if verify_crc:
            page.verify_crc()
        try:
            if is_dictionary:
                dictionary = decode_dictionary_page(page, leaf, codec, page.body)
            else:
                parts.append(decode_data_page(page, leaf, codec, dictionary, page.body, most_bytes))
        except FormatError as error:
            raise _at(error, page, leaf) from error
    return concat(leaf, parts)


def _at(error: FormatError, page: Page, leaf: ColumnDescriptor) -> FormatError:
    # Places inside a decompressed page have no offset in the file.
    where = f"page of column {leaf.name}"
    if error.offset is not None:
        where += f", byte {error.offset} of its content"
    message = error.message.removeprefix(f"at byte {error.offset}: ")
    return FormatError(f"{where}: {message}", offset=page.offset, hint=error.hint)
