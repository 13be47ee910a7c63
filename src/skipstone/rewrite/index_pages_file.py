"""``add_index_pages``: the index pages of 2013, added to a file that is there.

    PAR1 | chunks with their trees, Bloom filters | … | column indexes, offset indexes | footer

Pages are copied byte for byte, headers and all, and only those of the columns that get keys are
decoded. Old index pages are replaced. Bloom filters and the page index of today are kept: readers
of 2013 and of today find what they look for in the same file.
"""

from __future__ import annotations

import time
from dataclasses import (
    dataclass,
    field,
)
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    TypeAlias,
)

from skipstone.errors import (
    FormatError,
    SkipstoneError,
    StaleError,
    UnsupportedError,
)
from skipstone.human import (
    duration,
    of_total,
    plural,
    size,
)
from skipstone.parquet.format.footer import (
    MAGIC,
    TAIL_LENGTH,
    Tail,
)
from skipstone.parquet.format.index_pages import ROLL_OVER
from skipstone.parquet.format.page_index_structs import (
    OffsetIndex,
    PageLocation,
)
from skipstone.parquet.index_pages.tree import index_pages_of
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.reading.page_metadata import read_offset_index
from skipstone.parquet.writing.chunk_modules import (
    bloom_modules,
    index_ranges,
    plain_pages,
    unpadded,
)
from skipstone.parquet.writing.footer_editor import FooterEditor, RowGroupEdit
from skipstone.parquet.writing.retrofit_needs import refuse
from skipstone.storage.atomic_replace import (
    Counting,
    local_path,
    replacing,
)

if TYPE_CHECKING:
    import os
    from collections.abc import (
        Iterator,
        Sequence,
    )

    from skipstone.parquet.format.metadata import ColumnMetaData
    from skipstone.parquet.index_pages.tree import ChunkIndexPages
    from skipstone.parquet.reading.chunk_pages import ChunkKey
    from skipstone.parquet.reading.page_tables import ChunkPlace
    from skipstone.storage.atomic_replace import Output

    from .retrofit_file import RetrofitReport

__all__ = ["IndexPagesReport", "RetrofitWithIndexPages", "add_index_pages"]

ChunkEdit: TypeAlias = "dict[str, object]"
_COPY: Final = 8 << 20


def add_index_pages(
    path: str | os.PathLike[str],
    keys: Sequence[str] | None = None,
    *,
    interleave: bool = False,
    output: str | os.PathLike[str] | None = None,
    roll_over: int = ROLL_OVER,
    dry_run: bool = False,
) -> IndexPagesReport:
    """Give every chunk of a local file a tree of index pages, and replace the file (or write
    ``output``); ``dry_run`` writes nothing.

    ``keys`` are columns that get a tree of keys in each row group that is sorted by them, by
    default the first sorting column that the footer names; every other one gets a tree of ordinals.
    By default the trees follow the data pages, which every reader takes; with ``interleave`` they
    lie between them as the specification draws it, which DuckDB and polars refuse. A body rolls
    over at ``roll_over`` bytes.

    Raises ``FormatError`` for a damaged file, ``UnsupportedError`` where columns are encrypted or
    in other files, ``StaleError`` where it was changed meanwhile, and ``SkipstoneError`` for a name
    that the file does not have.
    """
    started = time.perf_counter()
    file = ParquetFile(path)
    place = local_path(file.path)
    target = place if output is None else local_path(str(output))
    refuse(file, "index pages")

    def still() -> None:
        if not file.id.same_version(file.reader.storage.stat(file.path)):
            raise StaleError(f"{file.path} was changed while it was read", hint="run it again")

    work = _Work(file, None if keys is None else _leaves(file, keys), interleave, roll_over)
    if dry_run:
        counted = Counting()
        work.write(counted)
        after = counted.at
    else:
        with replacing(target, still=still) as out:
            work.write(out)
            after = out.at
    leaves = file.footer.schema.leaves
    return IndexPagesReport(
        path=file.path,
        output=str(target),
        keys=tuple([leaves[each].name for each in sorted(work.keyed_leaves)]),
        interleave=interleave,
        rows=file.num_rows,
        row_groups=file.num_row_groups,
        chunks=file.num_row_groups * len(leaves),
        keyed=work.keyed,
        ordinal=work.ordinal,
        data_pages=work.data_pages,
        index_pages=work.index_pages,
        index_bytes=work.index_bytes,
        levels=work.levels,
        bytes_before=file.size,
        bytes_after=after,
        notes=tuple(work.notes),
        seconds=time.perf_counter() - started,
        dry_run=dry_run,
    )


def _leaves(file: ParquetFile, names: Sequence[str]) -> frozenset[int]:
    found = set()
    for name in names:
        leaf = file.footer.schema.leaf(name)
        if leaf is None:
            raise SkipstoneError(
                f"{name!r} is no column of {file.path}", hint="name leaves by their dotted paths"
            )
        found.add(leaf.ordinal)
    return frozenset(found)


@dataclass(slots=True)
class _Work:
    """The new file, and what is counted on the way."""

    file: ParquetFile
    asked: frozenset[int] | None
    interleave: bool
    roll_over: int
    keyed: int = 0
    ordinal: int = 0
    data_pages: int = 0
    index_pages: int = 0
    index_bytes: int = 0
    levels: int = 0
    keyed_leaves: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    _column_indexes: list[tuple[ChunkEdit, bytes]] = field(default_factory=list)
    _offset_indexes: list[tuple[ChunkEdit, bytes]] = field(default_factory=list)

    def write(self, out: Output) -> None:
        """All of it."""
        file = self.file
        out.write(MAGIC)
        groups = [self._group(r, out) for r in range(file.num_row_groups)]
        for name, found in (
            ("column_index", self._column_indexes),
            ("offset_index", self._offset_indexes),
        ):
            for edit, data in found:
                edit |= {f"{name}_offset": out.at, f"{name}_length": len(data)}
                out.write(data)
        footer = FooterEditor.of(file.footer).edited(groups).to_bytes()
        out.write(footer)
        out.write(Tail(TAIL_LENGTH + len(footer), len(footer), encrypted=False).to_bytes())

    def _group(self, r: int, out: Output) -> RowGroupEdit:
        old, begun = self.file.footer.row_group(r), out.at
        chunks = [self._chunk((r, leaf), out) for leaf in range(len(old.columns))]
        stop = out.at
        fields: dict[str, object] = {
            "total_byte_size": sum(int(str(e["total_uncompressed_size"])) for e in chunks)
        }
        if old.total_compressed_size is not None:
            fields["total_compressed_size"] = stop - begun
        if old.file_offset:
            fields["file_offset"] = begun
        for leaf, edit in enumerate(chunks):
            self._bloom_filter((r, leaf), edit, out)
        return RowGroupEdit(chunks=chunks, fields=fields)

    def _keys_of(self, r: int) -> frozenset[int]:
        if self.asked is not None:
            return self.asked
        sorting = self.file.footer.sorting_columns(r)
        if not sorting or sorting[0].descending:
            return frozenset()
        return frozenset((sorting[0].column_idx,))

    # -- chunks ------------------------------------------------------------------------------------

    def _chunk(self, cell: ChunkKey, out: Output) -> ChunkEdit:
        file, leaf = self.file, self.file.footer.schema.leaves[cell[1]]
        place = file.chunk_pages.place(cell)
        old_index = read_offset_index(file, cell)
        repeated = bool(leaf.max_repetition_level)
        first_rows = None
        if repeated and old_index is not None:
            first_rows = [each.first_row_index for each in old_index.page_locations]
        found = index_pages_of(
            (each.page for each in plain_pages(file.reader, place, None)),
            leaf,
            place.codec,
            keyed=cell[1] in self._keys_of(cell[0]),
            interleave=self.interleave,
            roll_over=self.roll_over,
            first_rows=first_rows,
        )
        if not repeated and found.sources and found.rows != place.rows:
            raise FormatError(
                f"rows in the pages of {leaf.name}",
                file=file.path,
                offset=place.start,
                expected=place.rows,
                got=found.rows,
            )
        start = out.at
        self._count(cell, leaf.name, found)
        self._copy(place, found, out)
        return self._edit(cell, start, out.at - start, found, old_index)

    def _count(self, cell: ChunkKey, name: str, found: ChunkIndexPages) -> None:
        if found.reason is not None and found.sources:
            self.notes.append(f"row group {cell[0]}, {name}: {_without(found)}: {found.reason}")
        self.data_pages += len(found.sources)
        plan = found.plan
        if plan is None:
            return
        self.keyed += plan.keyed
        self.ordinal += not plan.keyed
        if plan.keyed:
            self.keyed_leaves.add(cell[1])
        self.index_pages += len(plan.pages)
        self.index_bytes += plan.length
        self.levels = max(self.levels, plan.levels)

    def _copy(self, place: ChunkPlace, found: ChunkIndexPages, out: Output) -> None:
        """The pages as they lie there, with the index pages where they belong."""
        if found.dictionary is not None:
            out.write(self.file.reader.one(place.path, *found.dictionary))
        plan, done = found.plan, 0
        for each in () if plan is None else plan.pages:
            for offset, length in _runs(found.sources[done : each.after]):
                out.write(self.file.reader.one(place.path, offset, length))
            done = each.after
            out.write(each.data)
        for offset, length in _runs(found.sources[done:]):
            out.write(self.file.reader.one(place.path, offset, length))

    def _edit(
        self,
        cell: ChunkKey,
        start: int,
        length: int,
        found: ChunkIndexPages,
        old_index: OffsetIndex | None,
    ) -> ChunkEdit:
        old, plan = self.file.footer.column_chunk(*cell), found.plan
        meta = _meta(old.meta_data)
        head = 0 if found.dictionary is None else found.dictionary[1]
        if plan is not None:
            places = [start + each for each in plan.data_offsets]
        else:
            places = [start + head]
            for _, size in found.sources[:-1]:
                places.append(places[-1] + size)
        edit: ChunkEdit = {
            "offset_index_offset": None,
            "offset_index_length": None,
            "column_index_offset": None,
            "column_index_length": None,
            "total_uncompressed_size": found.uncompressed + (plan.length if plan else 0),
            "total_compressed_size": length,
            "data_page_offset": places[0],
            "index_page_offset": None if plan is None else start + plan.index_page_offset,
            "dictionary_page_offset": None if found.dictionary is None else start,
            "bloom_filter_offset": None,
            "bloom_filter_length": None,
        }
        if meta.bloom_filter_offset:
            edit["bloom_filter_offset"] = meta.bloom_filter_offset  # until it has its place
        if old.file_offset:
            edit["file_offset"] = start
        if old_index is not None:
            held = [at for at, _ in found.sources]
            now = dict(zip(held, places[: len(held)], strict=True))
            self._keep_indexes(cell, edit, old_index, now)
        return edit

    def _keep_indexes(
        self, cell: ChunkKey, edit: ChunkEdit, old: OffsetIndex, now: dict[int, int]
    ) -> None:
        """The page index of today, its pages where they lie now."""
        if any(each.offset not in now for each in old.page_locations):
            name = self.file.footer.schema.leaves[cell[1]].name
            self.notes.append(f"row group {cell[0]}, {name}: its offset index names other pages")
            return
        made = OffsetIndex(
            page_locations=tuple(
                [
                    PageLocation(
                        offset=now[each.offset],
                        compressed_page_size=each.compressed_page_size,
                        first_row_index=each.first_row_index,
                        unknown=each.unknown,
                    )
                    for each in old.page_locations
                ]
            ),
            unencoded_byte_array_data_bytes=old.unencoded_byte_array_data_bytes,
            unknown=old.unknown,
        )
        self._offset_indexes.append((edit, made.to_bytes()))
        where = index_ranges(self.file.footer.column_chunk(*cell), self.file.path).column_index
        if where is not None:
            data = self.file.reader.one(where.path, where.offset, where.length)
            self._column_indexes.append((edit, unpadded(bytes(data))))

    def _bloom_filter(self, cell: ChunkKey, edit: ChunkEdit, out: Output) -> None:
        if "bloom_filter_offset" not in edit or not edit["bloom_filter_offset"]:
            return
        meta = _meta(self.file.footer.column_chunk(*cell).meta_data)
        kept = bloom_modules(self.file.reader, self.file.path, meta, None, {})
        edit |= {"bloom_filter_offset": None, "bloom_filter_length": None}
        if kept is None:
            name = self.file.footer.schema.leaves[cell[1]].name
            self.notes.append(
                f"row group {cell[0]}, {name}: a Bloom filter of an old kind left out"
            )
            return
        data = kept.header + kept.bitset
        edit |= {"bloom_filter_offset": out.at, "bloom_filter_length": len(data)}
        out.write(data)


def _without(found: ChunkIndexPages) -> str:
    return "no index pages" if found.plan is None else "no tree of keys"


def _meta(found: ColumnMetaData | None) -> ColumnMetaData:
    if found is None:
        raise UnsupportedError("a column chunk without metadata")
    return found


def _runs(pages: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Pages that lie back to back, together, some megabytes at a time."""
    at = size = 0
    for offset, length in pages:
        if size and offset == at + size and size + length <= _COPY:
            size += length
            continue
        if size:
            yield at, size
        at, size = offset, length
    if size:
        yield at, size


_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPagesReport:
    """``keyed`` chunks of ``chunks`` have a tree of keys now, ``ordinal`` ones a tree of ordinals
    alone; the trees are ``index_pages`` pages of ``index_bytes`` bytes, at most ``levels`` deep.

    ``notes`` say which chunks have no tree, or not the one that was asked for, and why.
    """

    path: str
    output: str
    keys: Sequence[str] = ()
    interleave: bool = False
    rows: int = 0
    row_groups: int = 0
    chunks: int = 0
    keyed: int = 0
    ordinal: int = 0
    data_pages: int = 0
    index_pages: int = 0
    index_bytes: int = 0
    levels: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    dry_run: bool = False

    @property
    def ok(self) -> bool:
        """True: what could not be done is in the notes."""
        return True

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        names = [name for name in self.__slots__ if name not in ("keys", "notes")]
        return {
            **{name: getattr(self, name) for name in names},
            "keys": list(self.keys),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        verb = "would write" if self.dry_run else "wrote"
        what = f"{plural(self.rows, 'row')} in {plural(self.row_groups, 'row group')}"
        where = "between the data pages" if self.interleave else "behind the data pages"
        lines = [
            f"{verb} {self.output}: {what}, {plural(self.data_pages, 'data page')}",
            f"  trees of keys: {of_total(self.keyed, self.chunks, 'chunks')}"
            + (f" ({', '.join(self.keys)})" if self.keys else ""),
            f"  trees of ordinals alone: {of_total(self.ordinal, self.chunks, 'chunks')}",
            f"  {plural(self.index_pages, 'index page')} {where},"
            f" {plural(self.levels, 'level')}, {size(self.index_bytes)}",
        ]
        lines += [f"  {note}" for note in self.notes[:_SHOWN]]
        if len(self.notes) > _SHOWN:
            lines.append(f"  and {len(self.notes) - _SHOWN} more of that kind")
        lines.append(
            f"  {size(self.bytes_before)} before, {size(self.bytes_after)} after,"
            f" {duration(1000 * self.seconds)}"
        )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrofitWithIndexPages:
    """A retrofit, and the index pages that the file got after it."""

    retrofit: RetrofitReport
    index_pages: IndexPagesReport

    @property
    def ok(self) -> bool:
        """True where the file has now all that it can have."""
        return self.retrofit.ok

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values: those of the retrofit, and ``index_pages``."""
        return self.retrofit.to_dict() | {"index_pages": self.index_pages.to_dict()}

    def __str__(self) -> str:
        return f"{self.retrofit}\n{self.index_pages}"
