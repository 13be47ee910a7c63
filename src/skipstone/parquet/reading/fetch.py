"""The pages that hold some rows: which they are, their bytes in one wave, and Arrow's decoding.

Leaves whose pages cover the same rows share a splice, since a row group has equally many rows in
all its columns. Each leaf is cut to the wanted rows after decoding. Pages that Arrow cannot read
are decoded by our own code from the same bytes.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone._numba import CompiledKernels, is_imported
from skipstone.errors import FormatError, MemoryLimitError, SkipstoneError
from skipstone.parquet.arrow.arrow_types import ShapeKind, leaf_type
from skipstone.parquet.encodings.kernels import NUMPY, Kernels
from skipstone.parquet.format.enums import Type
from skipstone.parquet.pages.column_values import LeafColumn, decode_pages
from skipstone.storage import ByteRange

from .chunk_pages import DICTIONARY_BYTES, ChunkKey, ChunkPages
from .decoding_memory import (
    bytes_of_strings,
    check_indices,
    claim_of,
    is_string,
    limit_of,
    longest_string,
    without_dictionary,
)
from .row_ranges import GroupRows, check_entries, take_ranges
from .splice_pages import Pages, SplicedGroup, Template, plain_pages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.values import I64

    from .page_tables import PageTable
    from .selection import SelectedField, Selection


# Below this many bytes of pages Arrow's threads cost more than they give.
_THREADED = 1 << 20
# If at most one of this many decoded rows is wanted, our own decoders are faster: they do not build
# the other rows.
_FEW = 16
# Up to this many pages they are also faster for fixed widths without a dictionary.
_FEW_PAGES = 4
# The unit of work is a dictionary decoded for a few rows: compiled, it takes a millisecond less.
_COMPILED = CompiledKernels[Kernels](
    module="skipstone.parquet.encodings.jit", total=500, share=1 / 2, plain=NUMPY
)


class Templates:
    """The splice templates of a file, by leaves; files of one schema share them."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self._own_types: dict[int, pa.DataType] = {}

    def own_type(self, leaf: int) -> pa.DataType:
        """The Arrow type of a leaf by Parquet's schema alone."""
        found = self._own_types.get(leaf)
        if found is None:
            found = self._own_types[leaf] = leaf_type(self.selection.tree.leaves[leaf])
        return found

    def of(self, leaves: tuple[int, ...], dictionaries: tuple[int, ...]) -> Template:
        """The template of these leaves, in this order; ``dictionaries`` are places among them."""
        selection = self.selection
        key, made = (leaves, dictionaries, selection.created_by), selection.shared.templates
        found: Template | None = made.get(key)
        if found is None:
            types = [selection.leaf_type(leaf) for leaf in leaves] if selection.typed else None
            of_leaves = [selection.tree.leaves[leaf] for leaf in leaves]
            found = Template(of_leaves, types, selection.created_by, dictionaries)
            made.put(key, found)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Pick:
    """Entries of a page table that are read."""

    table: PageTable
    entries: I64

    def covered(self) -> tuple[I64, I64]:
        """First row and the row after the last of each entry, in the row group."""
        first = self.table.first_row
        return first[self.entries], first[self.entries + 1]


def read_groups(
    chunks: ChunkPages,
    templates: Templates,
    fields: Sequence[SelectedField],
    wanted: Sequence[GroupRows],
) -> list[pa.ChunkedArray]:
    """One column per field: the wanted rows of all these row groups, fetched in one wave."""
    wave = _PageFetch(chunks, templates, fields, wanted)
    wave.fetch()
    wave.check_memory()
    made = {at: column for at, field in enumerate(fields) if (column := wave.picked(field))}
    rest = dict.fromkeys(
        leaf for at, field in enumerate(fields) if at not in made for leaf in field.shape.leaves
    )
    parts: dict[int, pa.ChunkedArray | None] = {}
    parts.update(dict.fromkeys(wave.large))
    for together in wave.alike([leaf for leaf in rest if leaf not in wave.large]):
        parts.update(wave.decode(together))
    return [made[at] if at in made else wave.column(each, parts) for at, each in enumerate(fields)]


class _PageFetch:
    """Some rows of some leaves: the picked pages, their bytes, and the decoded columns."""

    def __init__(
        self,
        chunks: ChunkPages,
        templates: Templates,
        fields: Sequence[SelectedField],
        wanted: Sequence[GroupRows],
    ) -> None:
        self.chunks, self.templates, self.wanted = chunks, templates, wanted
        self.leaves = list(dict.fromkeys(leaf for field in fields for leaf in field.shape.leaves))
        keys = [(group.row_group, leaf) for group in wanted for leaf in self.leaves]
        self.picks: dict[ChunkKey, _Pick] = {}
        rows = chunks.footer.group("num_rows")
        full = {group.row_group for group in wanted if group.count == rows[group.row_group]}
        tables = iter(chunks.tables(keys, full))
        for group in wanted:
            for leaf in self.leaves:
                table = next(tables)
                entries = table.holding(group.starts, group.stops)
                self.picks[group.row_group, leaf] = _Pick(table, entries)
        self.pages: dict[ChunkKey, Pages] = {}
        self.size = self.limit = self.certain = 0
        # Strings that are decoded as indices first, and leaves that may be too large otherwise.
        self.indexed: set[int] = set()
        self.large: set[int] = set()
        self.few: set[int] = set()
        flat = [each.shape.leaves[0] for each in fields if each.shape.kind is ShapeKind.LEAF]
        dictionaries = sum(map(self._dictionaries, flat))
        if dictionaries or is_imported():
            few = {leaf for leaf in flat if self._wants_few(leaf)}
            work = sum(map(self._dictionaries, few)) or float(is_imported())
            if few and _COMPILED.for_work(work) is not None:
                self.few = few

    def _dictionaries(self, leaf: int) -> int:
        """How many of the wanted chunks of a leaf have a dictionary."""
        tables = [self.picks[group.row_group, leaf].table for group in self.wanted]
        return sum(table.dictionary[1] > 0 for table in tables)

    def _wants_few(self, leaf: int) -> bool:
        decoded = 0
        for group in self.wanted:
            first, stop = self.picks[group.row_group, leaf].covered()
            decoded += int((stop - first).sum())
        return sum(group.count for group in self.wanted) * _FEW <= decoded

    def fetch(self) -> None:
        """The bytes of all picks, in one wave."""
        ranges: dict[ChunkKey, tuple[ByteRange | None, list[ByteRange]]] = {}
        every: list[ByteRange] = []
        for key, pick in self.picks.items():
            path = self.chunks.place(key).path
            offset, length = pick.table.dictionary
            head = ByteRange(path, offset, length) if length and len(pick.entries) else None
            if key[1] in self.few and self.chunks.dictionaries.get(key) is not None:
                head = None
            data = [
                ByteRange(path, start, size)
                for start, size in zip(
                    pick.table.offset[pick.entries].tolist(),
                    pick.table.length[pick.entries].tolist(),
                    strict=True,
                )
            ]
            ranges[key] = head, data
            every += data if head is None else [head, *data]
        held = self.chunks.reader.read(every) if every else {}
        self.size = sum(each.length for each in every)
        for key, (head, data) in ranges.items():
            pick = self.picks[key]
            place = self.chunks.place(key)
            try:
                self.pages[key] = plain_pages(
                    place,
                    pick.table,
                    pick.entries,
                    memoryview(b"") if head is None else held[head],
                    [held[each] for each in data],
                    self.chunks.column_decryptor(key),
                    verify_crc=self.chunks.verify_crc,
                )
            except FormatError as error:
                raise error.in_file(place.path) from error

    def check_memory(self) -> None:
        """``MemoryLimitError`` where the pages claim more than decoding may take."""
        self.limit = limit_of(self.chunks.memory, self.size)
        if not self.wanted:
            return
        selection = self.templates.selection
        most: dict[int, int] = {}
        can_index: set[int] = set()
        largest = (-1, (0, 0))
        for leaf in self.leaves:
            described = selection.tree.leaves[leaf]
            keys = [(group.row_group, leaf) for group in self.wanted]
            claims = [claim_of(described, self.pages[key].headers) for key in keys]
            certain = sum(claim.certain for claim in claims)
            self.certain += certain
            largest = max(largest, (certain, keys[0]))
            if described.type is not Type.BYTE_ARRAY:
                continue
            if (
                described.flat
                and all(claim.indexed for claim in claims)
                and is_string(selection.leaf_type(leaf))
            ):
                can_index.add(leaf)
                if all(claim.repeats for claim in claims):
                    self.indexed.add(leaf)
                    continue
            most[leaf] = sum(claim.most - claim.certain for claim in claims)
        if self.certain > self.limit:
            self._refuse(largest[1], largest[0])
        if self.certain + sum(most.values()) > self.limit:
            for leaf in most:
                most[leaf] = self._most_of_strings(leaf)
        if self.certain + sum(most.values()) > self.limit:
            self.indexed |= can_index
            self.large = set(most) - can_index

    def _most_of_strings(self, leaf: int) -> int:
        """The most that the strings of a leaf can take, by the longest of its dictionaries."""
        described = self.templates.selection.tree.leaves[leaf]
        total = 0
        for group in self.wanted:
            key = group.row_group, leaf
            try:
                pages = self.pages[key]
                longest = longest_string(self.chunks, key, pages.codec, pages.headers)
            except FormatError:
                continue  # without a dictionary that decodes, no string is copied
            found = claim_of(described, self.pages[key].headers, longest)
            total += found.most - found.certain
        return total

    def _refuse(self, key: ChunkKey, needed: int) -> NoReturn:
        name = self.templates.selection.tree.leaves[key[1]].name
        raise MemoryLimitError(
            file=self.chunks.place(key).path, column=name, needed=needed, limit=self.limit
        )

    def _claim(self, key: ChunkKey, content: int) -> None:
        """Counts bytes of strings that are about to be copied."""
        self.certain += content
        if self.certain > self.limit:
            self._refuse(key, content)

    def picked(self, field: SelectedField) -> pa.ChunkedArray | None:
        """A flat column by our own decoders where they are faster, else ``None``."""
        if field.shape.kind is not ShapeKind.LEAF or not self._is_cheap(field.shape.leaves[0]):
            return None
        try:
            made = [self._flat(group, field) for group in self.wanted]
            return pa.chunked_array(made, field.field.type)
        except MemoryLimitError:
            raise
        except SkipstoneError:
            return None  # Arrow may read it, or raises the better error

    def _is_cheap(self, leaf: int) -> bool:
        if leaf in self.few:
            return True
        tree = self.templates.selection.tree.leaves[leaf]
        keys = [(group.row_group, leaf) for group in self.wanted]
        return (
            tree.type != Type.BYTE_ARRAY
            and sum(len(self.picks[key].entries) for key in keys) <= _FEW_PAGES
            and not any(self.pages[key].dictionary for key in keys)
            and self._has_no_nulls(tree)
        )

    def _has_no_nulls(self, leaf: ColumnDescriptor) -> bool:
        if not leaf.max_definition_level:
            return True
        nulls = self.chunks.footer.chunk("null_count")
        return not any(nulls[group.row_group, leaf.ordinal] for group in self.wanted)

    def _flat(self, group: GroupRows, field: SelectedField) -> pa.Array:
        """The wanted rows of a flat column in one row group."""
        from skipstone.parquet.arrow.arrow_values import leaf_array

        column = self._leaf_column(group, field.shape.leaves[0])
        levels = column.definition_levels
        valid = None if levels is None else levels == column.leaf.max_definition_level
        if valid is not None and valid.all():
            valid = None
        own = self.templates.own_type(field.shape.leaves[0])
        return leaf_array(column, valid, field.field.type, own)

    def alike(self, leaves: Sequence[int]) -> list[tuple[int, ...]]:
        """These leaves in groups whose pages cover the same rows in every row group."""
        found: dict[object, list[int]] = {}
        for leaf in leaves:
            covered = []
            for group in self.wanted:
                first, stop = self.picks[group.row_group, leaf].covered()
                covered += [first.tobytes(), stop.tobytes()]
            found.setdefault(tuple(covered), []).append(leaf)
        return [tuple(each) for each in found.values()]

    def decode(self, together: tuple[int, ...]) -> dict[int, pa.ChunkedArray | None]:
        """The wanted rows of these leaves by Arrow; ``None`` for a leaf that it refuses."""
        indexed = tuple(at for at, leaf in enumerate(together) if leaf in self.indexed)
        groups = []
        for group in self.wanted:
            first, stop = self.picks[group.row_group, together[0]].covered()
            pages = [self.pages[group.row_group, leaf] for leaf in together]
            groups.append(SplicedGroup(int((stop - first).sum()), pages))
        rows = sum(group.rows for group in groups)
        try:
            template = self.templates.of(together, indexed)
            table = template.decode(
                groups,
                threads=self.size > _THREADED and len(together) > 1,
                verify_crc=self.chunks.verify_crc,
            )
            if table.num_rows != rows or len(table.columns) != len(together):
                raise FormatError("pages with another number of rows than stated", expected=rows)
            for at, (leaf, column) in enumerate(zip(together, table.columns, strict=True)):
                self._check_rows(leaf, column)
                if leaf in self.indexed:
                    headers = chain.from_iterable(each.leaves[at].headers for each in groups)
                    check_indices(column, [page.num_values for page in headers if not page.is_data])
        except (NotImplementedError, FormatError):
            if len(together) == 1:
                return {together[0]: None}
            return {leaf: part for each in together for leaf, part in self.decode((each,)).items()}
        cut = self._cut(together[0], rows)
        taken = {
            leaf: _taken(column, cut) for leaf, column in zip(together, table.columns, strict=True)
        }
        for leaf in self.indexed.intersection(together):
            taken[leaf] = self._strings(leaf, taken[leaf])
        return taken

    def _strings(self, leaf: int, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """A leaf that was decoded as indices into a dictionary, as strings."""
        self._claim(
            (self.wanted[0].row_group, leaf), bytes_of_strings(column, self.limit - self.certain)
        )
        return without_dictionary(column, self.templates.selection.leaf_type(leaf))

    def _entries(self, key: ChunkKey) -> I64:
        """Entries of levels in each picked entry of a page table."""
        pick = self.picks[key]
        if pick.table.values is not None:
            return pick.table.values[pick.entries]
        # With an offset index, an entry is a page.
        found = [page.num_values for page in self.pages[key].headers if page.is_data]
        if len(found) != len(pick.entries):
            raise FormatError("other pages than in the offset index", expected=len(pick.entries))
        return np.array(found, np.int64)

    def _check_rows(self, leaf: int, column: pa.ChunkedArray) -> None:
        """``FormatError`` where the lists of a leaf do not fill its pages; the pages of flat leaves
        were checked before."""
        described = self.templates.selection.tree.leaves[leaf]
        if not described.max_repetition_level:
            return
        keys = [(group.row_group, leaf) for group in self.wanted]
        covered = [self.picks[key].covered() for key in keys]
        rows = np.concatenate([stop - first for first, stop in covered])
        entries = np.concatenate([self._entries(key) for key in keys])
        check_entries(column, rows, entries, described.name)

    def _cut(self, leaf: int, rows: int) -> tuple[I64, I64] | None:
        """Starts and lengths of the wanted rows in the decoded rows; ``None`` is all of them."""
        starts, lengths, before = [], [], 0
        for group in self.wanted:
            first, stop = self.picks[group.row_group, leaf].covered()
            placed = before + np.concatenate(([0], np.cumsum(stop - first)))
            entry = np.searchsorted(first, group.starts, side="right") - 1
            starts.append(placed[entry] + group.starts - first[entry])
            lengths.append(group.stops - group.starts)
            before = int(placed[-1])
        start, length = np.concatenate(starts), np.concatenate(lengths)
        return None if int(length.sum()) == rows else (start, length)

    # -- columns -----------------------------------------------------------------------------------

    def column(
        self, field: SelectedField, parts: Mapping[int, pa.ChunkedArray | None]
    ) -> pa.ChunkedArray:
        """A field from its leaves."""
        from skipstone.parquet.arrow.assembly import join

        mine: dict[int, pa.ChunkedArray] = {}
        for leaf in field.shape.leaves:
            part = parts[leaf]
            if part is not None:
                mine[leaf] = part
        if not mine or len(mine) < len(field.shape.leaves):
            return self._own(field)
        if field.shape.kind is ShapeKind.LEAF:
            (part,) = mine.values()
            if part.type == field.field.type:
                return part
        rows = {leaf: _one(part) for leaf, part in mine.items()}
        if any(part is None for part in rows.values()):
            return self._own(field)
        whole = {leaf: part for leaf, part in rows.items() if part is not None}
        return pa.chunked_array([join(field.shape, whole)], field.field.type)

    def _own(self, field: SelectedField) -> pa.ChunkedArray:
        """A field decoded by our own decoders, row group by row group."""
        from skipstone.parquet.arrow.assembly import assemble_rows

        made: list[pa.Array] = []
        for group in self.wanted:
            columns = {leaf: self._leaf_column(group, leaf) for leaf in field.shape.leaves}
            made += assemble_rows(field.shape, columns, group.count)
        return pa.chunked_array(made, field.field.type)

    def _leaf_column(self, group: GroupRows, leaf: int) -> LeafColumn:
        key = group.row_group, leaf
        pages, place = self.pages[key], self.chunks.place(key)
        described = self.templates.selection.tree.leaves[leaf]
        known = self.chunks.dictionaries.get(key) if leaf in self.few else None
        try:
            column = decode_pages(
                pages.headers,
                described,
                pages.codec,
                dictionary=known,
                verify_crc=self.chunks.verify_crc,
                most_bytes=self.limit,
            )
            first, stop = self.picks[key].covered()
            placed = np.zeros(len(first) + 1, np.int64)
            np.cumsum(stop - first, out=placed[1:])
            if column.num_rows != placed[-1]:
                raise FormatError(
                    f"rows in pages of {described.name}", expected=int(placed[-1]),
                    got=column.num_rows,
                )  # fmt: skip
            if column.repetition_levels is not None:
                begins = np.concatenate(([0], np.cumsum(column.repetition_levels == 0)))
                ends = np.concatenate(([0], np.cumsum(self._entries(key))))
                if not np.array_equal(begins[ends], placed):
                    raise FormatError(
                        f"pages of {described.name} hold other rows than in their index"
                    )
        except FormatError as error:
            raise error.in_file(place.path) from error
        if leaf in self.few and known is None:
            for run in column.runs[:1]:
                if run.indices is not None and run.values.nbytes <= DICTIONARY_BYTES:
                    self.chunks.dictionaries.put(key, run.values)
        entry = first.searchsorted(group.starts, side="right") - 1
        begin = placed[entry] + group.starts - first[entry]
        found = column.ranges(begin, begin + group.stops - group.starts)
        if leaf in self.large or leaf in self.indexed:
            self._claim(key, found.content_size)
        return found


def _taken(column: pa.ChunkedArray, cut: tuple[I64, I64] | None) -> pa.ChunkedArray:
    return column if cut is None else take_ranges(column, *cut)


def _one(column: pa.ChunkedArray) -> pa.Array | None:
    """The column as one array; ``None`` where 32-bit offsets are too small."""
    if column.num_chunks == 1:
        return column.chunk(0)
    try:
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    except pa.ArrowException:
        return None
