"""Decodes every page of the row groups that were found, and copies the row groups to save.

Pages are copied unchanged, with a new footer that has no statistics. Null pages replace damaged
ones where the caller asks for it and the schema allows it, so that the rest of their row group can
be read.

A null must be at the same place in the tree as the lost value, or the other columns of the same
group or list would disagree with it. A ``sibling`` column shows that place:

    list of struct a, b     page of b lost: the levels of a's same rows, reduced to the common
                            nodes, and null below
    struct of one field     no column shows whether the struct was there: it becomes null itself
    list of its own         the list becomes null

The first node below the common one has to be optional: a null needs an optional node. The rows of a
page of a repeated column have to be known, and to begin and end with it, as in v2 pages.

A lost dictionary is replaced by an empty one, where the pages that refer to it hold only nulls:
they can be decoded without it, but most readers refuse to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.parquet.encodings.codecs import compress
from skipstone.parquet.encodings.rle import encode_prefixed
from skipstone.parquet.format.enums import CompressionCodec, Encoding, FieldRepetitionType, PageType
from skipstone.parquet.format.metadata import (
    ColumnChunk,
    ColumnMetaData,
    DataPageHeader,
    DictionaryPageHeader,
    FileMetaData,
    PageHeader,
    RowGroup,
)
from skipstone.parquet.pages.page import page_checksum
from skipstone.parquet.pages.page_headers import (
    COMPRESSED,
    DATA_PAGES,
    ENCODING,
    HEADER_LENGTH,
    INDICES,
    NUM_ROWS,
    NUM_VALUES,
    OFFSET,
    TYPE,
    UNCOMPRESSED,
    page_stop,
)
from skipstone.parquet.writing.file_writer import FileWriter

from .page_check import BadPage, ChunkCheck, PageCheck
from .report import GroupReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from skipstone.parquet.format.schema import ColumnDescriptor, Node
    from skipstone.parquet.pages.column_values import LeafColumn
    from skipstone.parquet.reading.chunk_pages import ChunkKey
    from skipstone.storage.atomic_replace import ByteSink

    from .encrypted_row_groups import FileImage
    from .found_row_groups import FoundRowGroup
    from .schema_source import SchemaSource

    U8 = npt.NDArray[np.uint8]
    from skipstone.parquet.pages.page_headers import I64


_CREATED_BY: Final = "skipstone salvage"


class WrittenPage(NamedTuple):
    """A page of the new file: ``uncompressed`` counts its header too, ``num_values`` those of a
    data page."""

    header: bytes | memoryview
    body: bytes | memoryview
    uncompressed: int
    encoding: int = Encoding.PLAIN
    num_values: int = 0
    dictionary: bool = False


@dataclass(frozen=True, slots=True)
class ChunkCopy:
    """Pages of a chunk to copy; ``instead`` has null pages for bad ones, ``None`` to drop one."""

    rows: I64
    codec: int
    instead: dict[int, WrittenPage | None]

    @property
    def lacks_dictionary(self) -> bool:
        """Whether pages refer to a dictionary that is not copied."""
        kept = [row for k, row in enumerate(self.rows) if k not in self.instead]
        coded = any(row[TYPE] in DATA_PAGES and row[ENCODING] in INDICES for row in kept)
        return coded and not any(row[TYPE] == PageType.DICTIONARY_PAGE for row in kept)

    def pages(self, data: memoryview) -> Iterator[WrittenPage]:
        """The pages to write; those that are copied are views of ``data``."""
        if self.lacks_dictionary:
            yield _empty_dictionary(self.codec)
        for k, row in enumerate(self.rows):
            kind = row[TYPE]
            if kind == PageType.INDEX_PAGE:
                continue  # it refers to offsets in the old file
            if k in self.instead:
                made = self.instead[k]
                if made is not None:
                    yield made
                continue
            body = int(row[OFFSET] + row[HEADER_LENGTH])
            yield WrittenPage(
                header=data[int(row[OFFSET]) : body],
                body=data[body : body + int(row[COMPRESSED])],
                uncompressed=int(row[HEADER_LENGTH] + row[UNCOMPRESSED]),
                encoding=int(row[ENCODING]),
                num_values=int(row[NUM_VALUES]) if kind in DATA_PAGES else 0,
                dictionary=kind == PageType.DICTIONARY_PAGE,
            )


@dataclass(frozen=True, slots=True)
class RowGroupCopy:
    """A row group to write."""

    num_rows: int
    chunks: list[ChunkCopy]


class RowGroupCopier:
    """Examines the row groups of one file, and writes those to save."""

    def __init__(
        self,
        data: memoryview,
        leaves: Sequence[ColumnDescriptor],
        origin: SchemaSource,
        skip_bad_pages: bool,
        image: FileImage | None = None,
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
        stop = max((page_stop(rows[-1]) for rows in group.chunks if len(rows)), default=group.start)
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
            chunk = ChunkCopy(rows, checked.codec, {})
            made.chunks.append(chunk)
            if checked.bad:
                first = self._placed(checked.bad[0])
                where = f"column {leaf.name}, byte {first.offset:,}: {first.why}"
                if self.skip_bad_pages and not why:
                    reason = self._instead(group, leaf, found, chunk)
                    why = f"{where}; {reason}" if reason else ""
                else:
                    why = why or where
            nulls += sum(each.num_values for each in chunk.instead.values() if each is not None)
        if not why:
            self.with_checksum += sum(each.with_checksum for each in found)
        report = GroupReport(
            start=group.start,
            stop=group.stop or stop,
            num_rows=group.num_rows,
            pages=sum(map(len, group.chunks)),
            why=why,
            bad_pages=tuple([self._placed(each) for checked in found for each in checked.bad]),
            values_made_null=0 if why else nulls,
        )
        return report, made

    def _placed(self, bad: BadPage) -> BadPage:
        """The page with its offset in the file, if it was read from a decrypted image."""
        if self.image is None:
            return bad
        why = self.image.damaged.get(bad.offset, bad.why)
        return replace(bad, offset=self.image.place_of(bad.offset), why=why)

    def _instead(
        self,
        group: FoundRowGroup,
        leaf: ColumnDescriptor,
        found: Sequence[ChunkCheck],
        chunk: ChunkCopy,
    ) -> str:
        """Puts null pages in place of the bad ones; why that is impossible, or empty."""
        checked, rows = found[leaf.ordinal], chunk.rows
        bad = {each.page for each in checked.bad}
        others = _sibling_leaves(leaf, self.leaves)
        sibling = self._sibling(group, others, found)
        if others and sibling is None:
            return "no other column of its group is complete"
        at = 0
        for k, row in enumerate(rows):
            kind = int(row[TYPE])
            if kind not in DATA_PAGES:
                if k in bad and kind == PageType.DICTIONARY_PAGE:
                    chunk.instead[k] = None  # every page that refers to it is bad as well
                continue
            if leaf.max_repetition_level and kind != PageType.DATA_PAGE_V2:
                return "the number of its rows is not known"
            count = int(row[NUM_ROWS if leaf.max_repetition_level else NUM_VALUES])
            if k in bad:
                same = None if sibling is None else (sibling[0].rows(at, at + count), sibling[1])
                page = _null_page(leaf, count, checked.codec, same)
                if page is None:
                    return "nulls cannot replace it"
                chunk.instead[k] = page
            at += count
        if at != group.num_rows:
            return f"{at:,} rows instead of {group.num_rows:,}"
        return ""

    def _sibling(
        self,
        group: FoundRowGroup,
        others: Sequence[tuple[ColumnDescriptor, Node]],
        found: Sequence[ChunkCheck],
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
        writer = FileWriter(out)
        made = [self._row_group(writer, group, at) for at, group in enumerate(groups)]
        footer = FileMetaData(
            version=1,
            schema=self.origin.elements,
            num_rows=sum(group.num_rows for group in groups),
            row_groups=tuple(made),
            key_value_metadata=self.origin.pairs,
            created_by=_CREATED_BY,
        )
        writer.write_footer(footer.to_bytes())

    def _row_group(self, writer: FileWriter, group: RowGroupCopy, ordinal: int) -> RowGroup:
        start = writer.out.at
        columns = tuple(
            [
                self._chunk(writer, (ordinal, leaf.ordinal), leaf, chunk)
                for leaf, chunk in zip(self.leaves, group.chunks, strict=True)
            ]
        )
        ended = writer.end_row_group()
        writer.write_indexes()
        return RowGroup(
            columns=columns,
            total_byte_size=sum(each.size("total_uncompressed_size") for each in ended),
            num_rows=group.num_rows,
            file_offset=start,
            total_compressed_size=sum(each.size("total_compressed_size") for each in ended),
            ordinal=ordinal if ordinal < 1 << 15 else None,
        )

    def _chunk(
        self, writer: FileWriter, key: ChunkKey, leaf: ColumnDescriptor, chunk: ChunkCopy
    ) -> ColumnChunk:
        out = writer.chunk(key, leaf.path)
        encodings = {int(Encoding.RLE)}
        uncompressed = num_values = 0
        for page in chunk.pages(self.data):
            out.page(page.header, page.body, page.dictionary)
            encodings.add(page.encoding)
            uncompressed += page.uncompressed
            num_values += page.num_values
        meta = ColumnMetaData(
            type=leaf.type,
            encodings=tuple(sorted(encodings)),
            path_in_schema=leaf.path,
            codec=CompressionCodec(chunk.codec),
            num_values=num_values,
            total_uncompressed_size=0,
            total_compressed_size=0,
            data_page_offset=0,
        )
        made = ColumnChunk(file_offset=0, meta_data=meta)
        out.end(made, uncompressed)
        return writer.metadata(out, made)


# -- null pages ------------------------------------------------------------------------------------


def _sibling_leaves(
    leaf: ColumnDescriptor, leaves: Sequence[ColumnDescriptor]
) -> list[tuple[ColumnDescriptor, Node]]:
    """The leaves that share most groups with this one, and the last node that they share with it.

    Any of them is enough. A leaf that shares fewer groups does not show the inner ones.
    """
    found: list[tuple[ColumnDescriptor, Node]] = []
    for each in leaves:
        pairs = zip(leaf.ancestors, each.ancestors, strict=False)
        common = [a for a, b in pairs if a.path == b.path and a.path]
        if each.ordinal != leaf.ordinal and common:
            found.append((each, common[-1]))
    most = max((len(node.path) for _, node in found), default=0)
    sibling = [pair for pair in found if len(pair[1].path) == most]
    return sorted(sibling, key=lambda pair: pair[0].max_repetition_level)


def _null_page(
    leaf: ColumnDescriptor, rows: int, codec: int, sibling: tuple[LeafColumn, Node] | None
) -> WrittenPage | None:
    """A page of ``rows`` rows without values of this leaf; ``None`` if no node may be null.

    ``sibling``: the same rows of another leaf, undamaged, and the last node that both share.
    """
    shared, repetition = 0, np.zeros(rows, np.uint8)
    definition = np.zeros(rows, np.uint8)
    depth = 0
    if sibling is not None:
        column, node = sibling
        depth, shared = len(node.path), node.max_definition_level
        repetition, definition = _shared(column, node)
    # Where the shared node is present, the next node has to be null.
    path = [*[each for each in leaf.ancestors if each.path], leaf.node]
    below = path[depth]
    while below.repetition is FieldRepetitionType.REQUIRED and depth + 1 < len(path):
        depth += 1
        below = path[depth]
    if below.repetition is not FieldRepetitionType.OPTIONAL and bool((definition == shared).any()):
        return None
    parts = []
    if leaf.max_repetition_level:
        parts.append(encode_prefixed(repetition, leaf.max_repetition_level.bit_length()))
    parts.append(encode_prefixed(definition, leaf.max_definition_level.bit_length()))
    count = len(definition)
    header = DataPageHeader(
        num_values=count,
        encoding=Encoding.PLAIN,
        definition_level_encoding=Encoding.RLE,
        repetition_level_encoding=Encoding.RLE,
    )
    page = _page(PageType.DATA_PAGE, codec, b"".join(parts), data_page_header=header)
    return page._replace(num_values=count)


def _empty_dictionary(codec: int) -> WrittenPage:
    """A dictionary of no values."""
    header = DictionaryPageHeader(num_values=0, encoding=Encoding.PLAIN)
    page = _page(PageType.DICTIONARY_PAGE, codec, b"", dictionary_page_header=header)
    return page._replace(dictionary=True)


def _page(type: PageType, codec: int, plain: bytes, **header: Any) -> WrittenPage:
    body = compress(codec, plain)
    made = PageHeader(
        type=type,
        uncompressed_page_size=len(plain),
        compressed_page_size=len(body),
        crc=page_checksum(body),
        **header,
    ).to_bytes()
    return WrittenPage(header=made, body=body, uncompressed=len(made) + len(plain))


def _shared(column: LeafColumn, node: Node) -> tuple[U8, U8]:
    """The levels of a column's entries, cut down to a node above it."""
    count = column.num_entries
    definition, repetition = column.definition_levels, column.repetition_levels
    if definition is None:
        definition = np.full(count, column.leaf.max_definition_level, np.uint8)
    if repetition is None:
        repetition = np.zeros(count, np.uint8)
    begins = repetition <= node.max_repetition_level
    least = np.minimum(definition[begins], np.uint8(node.max_definition_level))
    return repetition[begins], least.astype(np.uint8)
