"""Finds what each chunk lacks of the requested indexes, from the footer and one header per chunk.

| name | needed if |
|---|---|
| checksums | the first page of the chunk has none |
| offset index | there is none, and no page begins within a row |
| column index | there is none, and the order of the values is known |
| statistics | there is no null count, bounds, or NaN count of a floating point column |
| size statistics | levels or byte arrays are not counted |
| bloom filter | it is requested, and there is none |
| pages | a page holds more rows than requested |

A chunk with NaN gets neither a column index nor bounds (``chunk_statistics.py``), and needs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.parquet.format.enums import Type
from skipstone.parquet.format.metadata import TYPE_ORDER, ColumnMetaData, SortingColumn
from skipstone.parquet.reading.file_reader import is_sorted
from skipstone.parquet.reading.page_metadata import read_offset_index

from .column_order import Ordering

if TYPE_CHECKING:
    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.reading.chunk_pages import ChunkKey
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.parquet.reading.selection import Selection

    from .chunk_statistics import ChunkStatistics


#: kinds of needs, in the order of reports
KINDS: Final = (
    "offset index",
    "column index",
    "bloom filter",
    "checksums",
    "statistics",
    "size statistics",
    "pages",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """What a file must have, by ordinals of its leaves; ``bloom`` maps them to probabilities."""

    bloom: Mapping[int, float] = field(default_factory=dict)
    page_rows: int | None = None
    sorting: tuple[SortingColumn, ...] | None = None
    orders: tuple[Ordering | None, ...] = ()

    @classmethod
    def of(
        cls,
        footer: FooterArrays,
        selection: Selection,
        bloom: Mapping[str, float],
        page_rows: int | None,
        sorting: Sequence[str] | None,
    ) -> IndexOptions:
        """Resolve names to leaves. ``SkipstoneError`` for names that the file does not have,
        ``TypeError`` for arguments of other types.
        """
        if page_rows is not None and not is_whole(page_rows):
            raise TypeError(f"page_rows is a whole number, not {page_rows!r}")
        if page_rows is not None and page_rows < 1:
            raise ValueError(f"page_rows is {page_rows}, but must be at least 1")
        if not isinstance(bloom, Mapping):
            raise TypeError(f"bloom maps columns to probabilities, as {{'id': 0.01}}: {bloom!r}")
        keys = () if sorting is None else sorting
        if isinstance(keys, str | bytes) or not isinstance(keys, Sequence):
            raise TypeError(f"sorting is a sequence of sort keys, as ['ts:desc'], not {sorting!r}")
        leaves = footer.schema.leaves
        filters = {}
        for name, fpp in bloom.items():
            if not _is_number(fpp):
                raise TypeError(f"the probability for {name} is a number, not {fpp!r}")
            if not 0.0 < fpp < 1.0:
                raise SkipstoneError(
                    f"the Bloom filter of {name}: {fpp:g} is not a probability",
                    hint="give one between 0 and 1, as 0.01",
                )
            for ordinal in leaves_of(selection, name):
                if leaves[ordinal].type is Type.BOOLEAN:
                    raise UnsupportedError(f"{name}: booleans have no Bloom filter")
                filters[ordinal] = fpp
        given = footer.column_orders
        orders = given if given is not None else (TYPE_ORDER,) * len(leaves)
        found = [
            Ordering.of(leaf, orders[leaf.ordinal] if leaf.ordinal < len(orders) else None)
            for leaf in leaves
        ]
        wanted = tuple([_sorting(selection, each) for each in keys]) or None
        return cls(bloom=filters, page_rows=page_rows, sorting=wanted, orders=tuple(found))


def is_whole(given: object) -> bool:
    """Whether an argument is a whole number, of Python or NumPy."""
    return isinstance(given, Integral)


def _is_number(given: object) -> bool:
    return isinstance(given, Real)


def parse_bloom(text: str) -> tuple[str, float]:
    """Parses ``column`` or ``column:fpp`` (0.01 by default)."""
    name, colon, number = text.rpartition(":")
    if colon:
        try:
            return name, float(number)
        except ValueError:
            pass
    return text, 0.01


def leaves_of(selection: Selection, name: str) -> tuple[int, ...]:
    """The leaves of a column name; ``SkipstoneError`` if there is no such column."""
    leaf = selection.tree.leaf(name)
    if leaf is not None:
        return (leaf.ordinal,)
    return tuple([each for found in selection.fields([name]) for each in found.shape.leaves])


def _sorting(selection: Selection, text: str) -> SortingColumn:
    if not isinstance(text, str):
        raise TypeError(f"a sort key is text, as 'ts:desc', not {text!r}")
    name, *words = text.split(":")
    leaves = [selection.tree.leaves[ordinal] for ordinal in leaves_of(selection, name)]
    if len(leaves) != 1 or leaves[0].max_repetition_level:
        raise SkipstoneError(
            f"rows cannot be sorted by the column {name}", hint="name columns outside of lists"
        )
    if not set(words) <= {"desc", "asc", "nulls_first", "nulls_last"}:
        hint = "write column[:desc][:nulls_first]"
        raise SkipstoneError(f"{text!r} is not a sort key", hint=hint)
    return SortingColumn(
        column_idx=leaves[0].ordinal, descending="desc" in words, nulls_first="nulls_first" in words
    )


def refuse(file: ParquetFile, verb: str = "retrofit") -> None:
    """``UnsupportedError`` if a column is encrypted or in another file."""
    footer = file.footer
    if file.encrypted_footer or footer.encryption_algorithm is not None:
        raise UnsupportedError(
            f"{file.path} is encrypted: {verb} works on files in the clear",
            hint="decrypt it first, or write it again",
        )
    for r in range(footer.num_row_groups):
        for leaf in footer.schema.leaves:
            if footer.chunk("encrypted")[r, leaf.ordinal] == 1:
                raise UnsupportedError(f"column {leaf.name} of {file.path} is encrypted")
            elsewhere = footer.value_bytes("file_path", r, leaf.ordinal)
            if elsewhere is not None:
                raise UnsupportedError(
                    f"column {leaf.name} of {file.path} is in another file,"
                    f" {elsewhere.decode('utf-8', 'replace')}",
                    hint=f"{verb} that file",
                )


def needs_of(file: ParquetFile, index_options: IndexOptions) -> dict[ChunkKey, frozenset[str]]:
    """The needs of each chunk; chunks without needs are left out."""
    found = {}
    for r in range(file.num_row_groups):
        for leaf in file.footer.schema.leaves:
            try:
                names = frozenset(_needs(file, (r, leaf.ordinal), leaf, index_options))
            except FormatError as error:
                raise error.in_file(file.path) from None
            if names:
                found[r, leaf.ordinal] = names
    return found


def _needs(
    file: ParquetFile, key: ChunkKey, leaf: ColumnDescriptor, index_options: IndexOptions
) -> set[str]:
    chunk = file.footer.column_chunk(*key)
    meta = chunk.meta_data
    rows = int(file.footer.group("num_rows")[key[0]])
    names: set[str] = set()
    if meta is None or not rows or not meta.num_values:
        return names
    first = next(iter(file.chunk_pages.walk(key)), None)
    if first is not None and first.header.crc is None:
        names.add("checksums")
    has_offsets = bool(chunk.offset_index_offset and chunk.offset_index_length)
    can_have = has_offsets or not leaf.max_repetition_level or not _within_rows(file, key)
    if index_options.page_rows is not None and rows > index_options.page_rows:
        index = read_offset_index(file, key) if has_offsets else None
        starts = [each.first_row_index for each in index.page_locations] if index else [0]
        if np.diff([*starts, rows]).max() > index_options.page_rows:
            names.add("pages")
    if not has_offsets and (can_have or "pages" in names):
        names.add("offset index")
    order = index_options.orders[leaf.ordinal]
    # Some readers need bounds in all row groups or in none: see chunk_statistics.py.
    counts = file.footer.chunk("nan_count")[:, leaf.ordinal]
    nans = order is not None and order.misleads and bool((counts > 0).any())
    if (
        order is not None
        and not (chunk.column_index_offset and chunk.column_index_length)
        and (can_have or "pages" in names)
        and not (has_offsets and nans and counts[key[0]] > 0)
    ):
        names.add("column index")
    if _needs_statistics(file, meta, order, nans=nans):
        names.add("statistics")
    counted = leaf.type is Type.BYTE_ARRAY or leaf.max_definition_level or leaf.max_repetition_level
    if meta.size_statistics is None and counted:
        names.add("size statistics")
    if leaf.ordinal in index_options.bloom and not meta.bloom_filter_offset:
        names.add("bloom filter")
    return names


def _needs_statistics(
    file: ParquetFile, meta: ColumnMetaData, order: Ordering | None, *, nans: bool
) -> bool:
    found = meta.statistics
    if found is None or found.null_count is None:
        return True
    if order is None:
        return False
    if file.footer.column_orders is None or (order.floating and found.nan_count is None):
        return True
    if nans:
        return False
    bounds = found.min_value is not None and found.max_value is not None
    return not bounds and found.null_count + (found.nan_count or 0) < meta.num_values


def why_no_column_index(
    file: ParquetFile, key: ChunkKey, order: Ordering | None, facts: ChunkStatistics | None = None
) -> str:
    """Why a chunk gets no column index. Without ``facts`` of its pages, its footer says so."""
    footer = file.footer
    if footer.chunk("num_values")[key] <= 0:
        return "no values"
    if order is None:
        return "the order of the values is not known"
    counted = order.misleads and footer.chunk("nan_count")[key] > 0
    if counted if facts is None else facts.misleading:
        return "some values are NaN"
    crossing = footer.chunk("offset_index_offset")[key] <= 0 if facts is None else facts.within_rows
    return "rows continue in the next page" if crossing else "its offset index has other pages"


def _within_rows(file: ParquetFile, key: ChunkKey) -> bool:
    """Whether a page begins within a row, so that a page index is impossible."""
    return any(each.continues for each in file.chunk_pages.walked(key))


@dataclass(slots=True, kw_only=True)
class SortingOrders:
    """The sorting columns of each row group, for the footer.

    ``claimed`` counts the row groups with a new claim; ``changed`` says whether the footer changes.
    """

    groups: list[tuple[Any, ...] | None]
    changed: bool = False
    claimed: int = 0
    notes: tuple[str, ...] = ()


def sorting_orders(
    file: ParquetFile, index_options: IndexOptions, *, check_old: bool
) -> SortingOrders:
    """The claims that hold; with ``check_old`` the old claims are checked as well."""
    made = SortingOrders(groups=[])
    notes = []
    leaves = file.footer.schema.leaves
    for r in range(file.num_row_groups):
        old = file.footer.sorting_columns(r) or None
        found = old
        if check_old and old is not None and not _holds(file, r, old):
            found = None
            notes.append(f"row group {r} is not sorted as it claims: the claim is removed")
        if index_options.sorting is not None and index_options.sorting != found:
            if _holds(file, r, index_options.sorting):
                found = index_options.sorting
                made.claimed += 1
            else:
                names = ", ".join(leaves[each.column_idx].name for each in index_options.sorting)
                notes.append(f"row group {r} is not sorted by {names}: it claims no order")
        made.changed |= found != old
        made.groups.append(found)
    shown = notes[:5]
    if len(notes) > len(shown):
        shown.append(f"and {len(notes) - len(shown)} more of that kind")
    made.notes = tuple(shown)
    return made


def _holds(file: ParquetFile, row_group: int, claimed: Sequence[Any]) -> bool:
    leaves = file.footer.schema.leaves
    for each in claimed:
        if not 0 <= each.column_idx < len(leaves):
            return False
        if leaves[each.column_idx].max_repetition_level:
            return False
    return bool(is_sorted(file, row_group, claimed))
