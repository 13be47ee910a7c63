"""Decodes every page of the row groups that were found, and copies those that are to be saved.

Pages are copied unchanged, with a new footer that has no statistics. Null pages (``null_pages``)
replace damaged ones, where that is asked for and possible.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skipstone.parquet.format.enums import CompressionCodec, Encoding, PageType
from skipstone.parquet.format.footer import MAGIC, Tail
from skipstone.parquet.format.metadata import ColumnChunk, ColumnMetaData, FileMetaData, RowGroup

from .null_pages import empty_dictionary, null_page, sibling_leaves
from .page_check import PageCheck
from .page_walk import (
    COMPRESSED,
    ENCODING,
    HEADER_LENGTH,
    NUM_ROWS,
    NUM_VALUES,
    OFFSET,
    TYPE,
    UNCOMPRESSED,
)
from .report import GroupReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from skipstone.parquet.format.schema import Leaf, Node
    from skipstone.parquet.pages.column_values import LeafColumn
    from skipstone.storage.atomic_replace import ByteSink

    from .encrypted_row_groups import Image
    from .found_row_groups import FoundRowGroup
    from .null_pages import NullPage
    from .page_check import BadPage, ChunkCheck
    from .schema_source import SchemaSource

    I64 = npt.NDArray[np.int64]

__all__ = ["RowGroupCopier", "RowGroupCopy"]

_CREATED_BY: Final = "skipstone salvage"
_BLOCK: Final = 8 << 20
_DATA: Final = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)
_CODED: Final = (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY)


class _Chunk:
    """Pages of a chunk to copy; ``instead`` has the null page for a bad one, ``None`` to drop
    it."""

    def __init__(self, rows: I64, codec: int, instead: dict[int, NullPage | None]) -> None:
        self.rows, self.codec, self.instead = rows, codec, instead

    @property
    def lacks_dictionary(self) -> bool:
        """Whether pages refer to a dictionary that is not copied."""
        kept = [row for k, row in enumerate(self.rows) if k not in self.instead]
        coded = any(row[TYPE] in _DATA and row[ENCODING] in _CODED for row in kept)
        return coded and not any(row[TYPE] == PageType.DICTIONARY_PAGE for row in kept)


class RowGroupCopy:
    """A row group to write."""

    def __init__(self, num_rows: int, chunks: list[_Chunk]) -> None:
        self.num_rows, self.chunks = num_rows, chunks


class RowGroupCopier:
    """Examines the row groups of one file, and writes those that are to be saved."""

    def __init__(
        self,
        data: memoryview,
        leaves: Sequence[Leaf],
        origin: SchemaSource,
        skip_bad_pages: bool,
        image: Image | None = None,
    ) -> None:
        self.data, self.leaves = data if image is None else image.data, leaves
        self.check, self.image = PageCheck(self.data), image
        self.origin, self.skip_bad_pages = origin, skip_bad_pages
        self.hints = list(origin.codecs) if len(origin.codecs) == len(leaves) else []
        self.hints = self.hints or [0] * len(leaves)
        self.with_checksum = 0

    # -- examined ----------------------------------------------------------------------------------

    def examine(self, group: FoundRowGroup) -> tuple[GroupReport, RowGroupCopy]:
        """Decodes every page of a row group: the report, and what to write if it is saved."""
        made = RowGroupCopy(group.num_rows, [])
        pages = sum(map(len, group.chunks))
        stop = max((_stop(rows[-1]) for rows in group.chunks if len(rows)), default=group.start)
        stop = group.stop or stop
        why = group.why
        chunks = list(zip(self.leaves, group.chunks, strict=False))
        found: list[ChunkCheck] = []
        for leaf, rows in chunks:
            hint = group.codecs[leaf.ordinal] if group.codecs else self.hints[leaf.ordinal]
            checked = self.check.chunk(rows, leaf, hint)
            self.hints[leaf.ordinal] = checked.codec
            found.append(checked)
            if not checked.bad and not checked.why and checked.rows != group.num_rows:
                why = why or (
                    f"column {leaf.name} has {checked.rows:,} rows instead of {group.num_rows:,}"
                )
            why = why or checked.why
        nulls = 0
        for (leaf, rows), checked in zip(chunks, found, strict=True):
            chunk = _Chunk(rows, checked.codec, {})
            made.chunks.append(chunk)
            if checked.bad:
                first = self._placed(checked.bad[0])
                lost = f"column {leaf.name}, byte {first.offset:,}: {first.why}"
                if self.skip_bad_pages and not why:
                    lost = self._instead(group, leaf, found, chunk)
                why = why or lost
            nulls += sum(each.num_values for each in chunk.instead.values() if each is not None)
        with_checksum = sum(each.with_checksum for each in found)
        bad = [self._placed(each) for checked in found for each in checked.bad]
        if not why:
            self.with_checksum += with_checksum
        return (
            GroupReport(
                start=group.start,
                stop=stop,
                num_rows=group.num_rows,
                pages=pages,
                why=why,
                bad_pages=tuple(bad),
                values_made_null=nulls if not why else 0,
            ),
            made,
        )

    def _placed(self, bad: BadPage) -> BadPage:
        """The page with its offset in the file, if it was read from a decrypted image."""
        if self.image is None:
            return bad
        why = self.image.damaged.get(bad.offset, bad.why)
        return replace(bad, offset=self.image.place_of(bad.offset), why=why)

    def _instead(
        self, group: FoundRowGroup, leaf: Leaf, found: Sequence[ChunkCheck], chunk: _Chunk
    ) -> str:
        """Puts null pages in place of the bad ones; why that is impossible, or empty."""
        checked, rows = found[leaf.ordinal], chunk.rows
        bad = {each.page: each for each in checked.bad}
        first = self._placed(checked.bad[0])
        where = f"column {leaf.name}, byte {first.offset:,}: {first.why}"
        others = sibling_leaves(leaf, self.leaves)
        sibling = self._kin(group, others, found)
        if others and sibling is None:
            return f"{where}; no other column of its group is whole"
        at = 0
        for k, row in enumerate(rows):
            kind = int(row[TYPE])
            if kind not in _DATA:
                if k in bad and kind == PageType.DICTIONARY_PAGE:
                    chunk.instead[k] = None  # every page that refers to it is bad as well
                continue
            if leaf.max_repetition_level and kind != PageType.DATA_PAGE_V2:
                return f"{where}; how many rows it had is not known"
            count = int(row[NUM_ROWS if leaf.max_repetition_level else NUM_VALUES])
            if k in bad:
                same = None if sibling is None else (sibling[0].rows(at, at + count), sibling[1])
                page = null_page(leaf, count, checked.codec, same)
                if page is None:
                    return f"{where}; no nulls can stand for it"
                chunk.instead[k] = page
            at += count
        if at != group.num_rows:
            return f"{where}; {at:,} rows instead of {group.num_rows:,}"
        return ""

    def _kin(
        self, group: FoundRowGroup, others: Sequence[tuple[Leaf, Node]], found: Sequence[ChunkCheck]
    ) -> tuple[LeafColumn, Node] | None:
        """The first undamaged column, and the node that it shares."""
        for other, node in others:
            checked = found[other.ordinal]
            if not checked.bad:
                rows = group.chunks[other.ordinal]
                return self.check.column(rows, other, checked.codec), node
        return None

    # -- written -----------------------------------------------------------------------------------

    def write(self, out: ByteSink, groups: Sequence[RowGroupCopy]) -> None:
        """The whole new file."""
        out.write(MAGIC)
        made = [self._row_group(out, group, at) for at, group in enumerate(groups)]
        footer = FileMetaData(
            version=1,
            schema=self.origin.elements,
            num_rows=sum(group.num_rows for group in groups),
            row_groups=tuple(made),
            key_value_metadata=self.origin.pairs,
            created_by=_CREATED_BY,
        ).to_bytes()
        out.write(footer)
        out.write(Tail(out.at + 8, len(footer), False).to_bytes())

    def _row_group(self, out: ByteSink, group: RowGroupCopy, ordinal: int) -> RowGroup:
        start = out.at
        columns = tuple(
            [self._chunk(out, leaf, c) for leaf, c in zip(self.leaves, group.chunks, strict=True)]
        )
        metas = [each.meta_data for each in columns if each.meta_data is not None]
        return RowGroup(
            columns=columns,
            total_byte_size=sum(each.total_uncompressed_size for each in metas),
            num_rows=group.num_rows,
            file_offset=start,
            total_compressed_size=sum(each.total_compressed_size for each in metas),
            ordinal=ordinal if ordinal < 1 << 15 else None,
        )

    def _chunk(self, out: ByteSink, leaf: Leaf, chunk: _Chunk) -> ColumnChunk:
        start, uncompressed = out.at, 0
        first_data: int | None = None
        dictionary: int | None = None
        num_values = 0
        encodings = {int(Encoding.RLE)}
        if chunk.lacks_dictionary:
            page = empty_dictionary(chunk.codec)
            dictionary, uncompressed = start, page.uncompressed
            encodings.add(int(Encoding.PLAIN))
            out.write(page.data)
        for k, row in enumerate(chunk.rows):
            kind = int(row[TYPE])
            if kind == PageType.INDEX_PAGE:
                continue  # it refers to offsets in the old file
            made = chunk.instead.get(k)
            if k in chunk.instead and made is None:
                continue
            if kind in _DATA:
                num_values += int(row[NUM_VALUES]) if made is None else made.num_values
                first_data = out.at if first_data is None else first_data
            else:
                dictionary = out.at
            if made is not None:
                encodings.add(Encoding.PLAIN)
                uncompressed += made.uncompressed
                out.write(made.data)
                continue
            encodings.add(int(row[ENCODING]))
            uncompressed += int(row[HEADER_LENGTH] + row[UNCOMPRESSED])
            at, stop = int(row[OFFSET]), _stop(row)
            for low in range(at, stop, _BLOCK):
                out.write(self.data[low : min(low + _BLOCK, stop)])
        meta = ColumnMetaData(
            type=leaf.type,
            encodings=tuple(sorted(encodings)),
            path_in_schema=leaf.path,
            codec=CompressionCodec(chunk.codec),
            num_values=num_values,
            total_uncompressed_size=uncompressed,
            total_compressed_size=out.at - start,
            data_page_offset=start if first_data is None else first_data,
            dictionary_page_offset=dictionary,
        )
        return ColumnChunk(file_offset=0, meta_data=meta)


def _stop(row: I64) -> int:
    return int(row[OFFSET] + row[HEADER_LENGTH] + row[COMPRESSED])
