"""``salvage``: a good file out of one whose footer is lost, torn or damaged.

Pages are found by walking their headers, divided into chunks and row groups by what their values
count up to, and decoded, every one, before they are believed. Of each whole row group the pages are
copied as they are; the footer is new, without statistics. What is not certain is left out and said:
the rows that come out are rows that were written. The file itself is only ever read.
"""

from __future__ import annotations

import mmap
import os
import time
import zlib
from typing import TYPE_CHECKING, Final

from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.formats.parquet.codecs import compress
from skipstone.formats.parquet.enums import (
    CompressionCodec,
    Encoding,
    FieldRepetitionType,
    PageType,
)
from skipstone.formats.parquet.footer import MAGIC, MAGIC_ENCRYPTED, Tail
from skipstone.formats.parquet.metadata import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    RowGroup,
    SchemaElement,
)
from skipstone.formats.parquet.page_header import DataPageHeader, PageHeader
from skipstone.formats.parquet.schema import Schema

from .found_groups import FoundGroup, find_groups, whole_footer
from .page_check import BadPage, ChunkCheck, PageCheck
from .page_map import map_file
from .page_walk import COMPRESSED, ENCODING, HEADER_LENGTH, NUM_VALUES, OFFSET, TYPE, UNCOMPRESSED
from .replacing import local_path, replacing
from .salvage_report import GroupReport, SalvageReport
from .schema_source import SchemaSource, beside, given

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from skipstone.formats.parquet.schema import Leaf

    from .page_map import FileMap
    from .replacing import Output

    I64 = npt.NDArray[np.int64]

__all__ = ["salvage"]

_CREATED_BY: Final = "skipstone salvage"
_BLOCK: Final = 8 << 20
_DATA: Final = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)


def salvage(
    path: str,
    *,
    output: str | None = None,
    schema: str | Path | pa.Schema | None = None,
    skip_bad_pages: bool = False,
    row_group_rows: int | None = None,
    footer_only: bool = False,
) -> SalvageReport:
    """Write what can be saved of the Parquet file ``path`` to ``output``.

    ``output`` is ``<name>.salvaged.parquet`` beside it unless given, and must not be there yet.
    ``schema``: a Parquet file, an Arrow schema (or a file of one), or a text; without it, what is
    left of the footer, or the files beside it. ``skip_bad_pages``: a damaged page of an optional
    column of the root becomes nulls; otherwise its row group is left out. ``row_group_rows``: rows
    of every row group but the last, where only that tells chunks apart. ``footer_only``: no more
    than the footer is lost, so that a row group ends with the last page. ``FormatError`` if it is
    no Parquet file or there is no schema, ``UnsupportedError`` if it is encrypted.
    """
    started = time.perf_counter()
    source = local_path(path)
    target = source.with_name(f"{source.stem}.salvaged.parquet")
    if output is not None:
        target = local_path(output)
    if target.exists():
        raise SkipstoneError(f"{target} is there already", hint="name another --output")
    with source.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 2 * len(MAGIC):
            raise FormatError("too short for a Parquet file", file=path, got=size)
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        footer, origin = _schema(data, source, schema)
        shape = Schema.of(origin.elements)
        check = PageCheck(data)
        found_map = None if footer is not None else map_file(data)
        if found_map is not None and origin.what == _UNKNOWN:
            origin = _schema_found(found_map, source)
            shape = Schema.of(origin.elements)
        if not shape.leaves:
            raise UnsupportedError(f"{origin.what} has no columns")
        found = find_groups(
            data, shape.leaves, check, footer, found_map, row_group_rows, footer_only
        )
        work = _Work(data, shape.leaves, check, origin, skip_bad_pages)
        checked = [work.examine(each) for each in found.groups]
        saved = any(group.saved for group, _ in checked)
        if saved:
            with replacing(target) as out:
                work.write(out, [made for group, made in checked if group.saved])
    except FormatError as error:
        raise error.in_file(path) from error
    return SalvageReport(
        path=path,
        output=str(target) if saved else None,
        size=size,
        schema_from=origin.what,
        footer=found.footer,
        row_groups=tuple([group for group, _ in checked]),
        pages_found=found.pages_found,
        pages_with_checksum=work.with_checksum,
        ambiguous_pages=found.ambiguous_pages,
        incomplete_pages=found.incomplete_pages,
        left_out=tuple(found.left_out),
        lost=found.lost,
        notes=tuple(found.notes),
        seconds=time.perf_counter() - started,
    )


_UNKNOWN: Final = ""


def _schema(
    data: memoryview, source: Path, schema: str | Path | pa.Schema | None
) -> tuple[FileMetaData | None, SchemaSource]:
    """The footer if it can be read, and the schema if it can be told without a walk."""
    if data[:4] == MAGIC_ENCRYPTED or data[-4:] == MAGIC_ENCRYPTED:
        raise UnsupportedError(
            f"{source} is encrypted: without its footer nothing in it can be read",
            hint="decrypt it with its keys while the footer is whole",
        )
    footer = whole_footer(data)
    if footer is not None and footer.encryption_algorithm is not None:
        raise UnsupportedError(
            f"{source} is encrypted: its pages cannot be told apart",
            hint="decrypt it with its keys first",
        )
    if data[:4] != MAGIC and footer is None and data[-4:] != MAGIC:
        raise FormatError("no Parquet file", offset=0, expected="PAR1", got=bytes(data[:4]))
    if schema is not None:
        return footer, given(schema)
    if footer is not None:
        return footer, SchemaSource.of_footer("its footer", footer)
    return None, SchemaSource(what=_UNKNOWN, elements=(_ROOT,))


_ROOT: Final = SchemaElement(name="schema", num_children=0)


def _schema_found(found: FileMap, source: Path) -> SchemaSource:
    for _, stop, each in reversed(found.footers):
        return SchemaSource.of_footer(f"a footer that ends at byte {stop:,}", each)
    if found.torn is not None:
        return SchemaSource(what="what is left of its footer", elements=found.torn.schema)
    other = beside(source)
    if other is None:
        raise FormatError(
            "no footer, and no other file tells the schema",
            hint="name one that has the same columns: --schema FILE",
        )
    return other


class _Chunk:
    """Pages of a chunk to be copied, with what stands for those that are bad."""

    def __init__(self, rows: I64, codec: int, instead: dict[int, bytes]) -> None:
        self.rows, self.codec, self.instead = rows, codec, instead


class _Made:
    def __init__(self, num_rows: int, chunks: list[_Chunk]) -> None:
        self.num_rows, self.chunks = num_rows, chunks


class _Work:
    def __init__(
        self,
        data: memoryview,
        leaves: Sequence[Leaf],
        check: PageCheck,
        origin: SchemaSource,
        skip_bad_pages: bool,
    ) -> None:
        self.data, self.leaves, self.check = data, leaves, check
        self.origin, self.skip_bad_pages = origin, skip_bad_pages
        self.hints = list(origin.codecs) if len(origin.codecs) == len(leaves) else []
        self.hints = self.hints or [0] * len(leaves)
        self.with_checksum = 0

    # -- examined ----------------------------------------------------------------------------------

    def examine(self, group: FoundGroup) -> tuple[GroupReport, _Made]:
        """Every page of a row group decoded: the report, and what to write if it is to be saved."""
        made = _Made(group.num_rows, [])
        pages = sum(map(len, group.chunks))
        stop = max((_stop(rows[-1]) for rows in group.chunks if len(rows)), default=group.start)
        bad: list[BadPage] = []
        why, nulls, with_checksum = group.why, 0, 0
        for leaf, rows in zip(self.leaves, group.chunks, strict=False):
            hint = group.codecs[leaf.ordinal] if group.codecs else self.hints[leaf.ordinal]
            checked = self.check.chunk(rows, leaf, hint)
            self.hints[leaf.ordinal] = checked.codec
            with_checksum += checked.with_checksum
            bad += checked.bad
            instead: dict[int, bytes] = {}
            if checked.bad:
                lost = self._instead(rows, leaf, checked, instead)
                why = why or lost
                nulls += int(rows[sorted(instead), NUM_VALUES].sum()) if instead else 0
                nulls -= sum(
                    int(rows[k, NUM_VALUES])
                    for k in instead
                    if int(rows[k, TYPE]) == PageType.DICTIONARY_PAGE
                )
            elif checked.rows != group.num_rows and not checked.why:
                why = why or (
                    f"column {leaf.name} has {checked.rows:,} rows instead of {group.num_rows:,}"
                )
            why = why or checked.why
            made.chunks.append(_Chunk(rows, checked.codec, instead))
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
                rows_without_values=nulls if not why else 0,
            ),
            made,
        )

    def _instead(
        self, rows: I64, leaf: Leaf, checked: ChunkCheck, instead: dict[int, bytes]
    ) -> str:
        """Pages of nulls for the bad ones; why that cannot be, or empty."""
        first = checked.bad[0]
        where = f"column {leaf.name}, byte {first.offset:,}: {first.why}"
        if not self.skip_bad_pages:
            return where
        if not leaf.flat or leaf.node.repetition is not FieldRepetitionType.OPTIONAL:
            return f"{where}; no nulls can stand for it"
        for each in checked.bad:
            row = rows[each.page]
            if int(row[TYPE]) == PageType.DICTIONARY_PAGE:
                instead[each.page] = b""  # all that needs it is bad as well
            elif int(row[TYPE]) in _DATA:
                instead[each.page] = _nulls(int(row[NUM_VALUES]), checked.codec)
        return ""

    # -- written -----------------------------------------------------------------------------------

    def write(self, out: Output, groups: Sequence[_Made]) -> None:
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

    def _row_group(self, out: Output, group: _Made, ordinal: int) -> RowGroup:
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

    def _chunk(self, out: Output, leaf: Leaf, chunk: _Chunk) -> ColumnChunk:
        start, uncompressed = out.at, 0
        first_data = dictionary = None
        num_values = 0
        encodings = {int(Encoding.RLE)}
        for k, row in enumerate(chunk.rows):
            kind = int(row[TYPE])
            if kind == PageType.INDEX_PAGE:
                continue  # it points into the old file
            made = chunk.instead.get(k)
            if made == b"":
                continue
            if kind in _DATA:
                num_values += int(row[NUM_VALUES])
                first_data = out.at if first_data is None else first_data
            else:
                dictionary = out.at
            if made is not None:
                encodings.add(Encoding.PLAIN)
                header = PageHeader.from_bytes(made)
                uncompressed += header.uncompressed_page_size + len(header.to_bytes())
                out.write(made)
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


def _nulls(count: int, codec: int) -> bytes:
    """A page of so many nulls of an optional column of the root."""
    number, run = count << 1, bytearray()
    while number > 127:
        run.append(number & 127 | 128)
        number >>= 7
    levels = bytes([*run, number, 0])
    plain = len(levels).to_bytes(4, "little") + levels
    body = compress(codec, plain)
    crc = zlib.crc32(body)
    header = PageHeader(
        type=PageType.DATA_PAGE,
        uncompressed_page_size=len(plain),
        compressed_page_size=len(body),
        crc=crc - (1 << 32) if crc >> 31 else crc,
        data_page_header=DataPageHeader(
            num_values=count,
            encoding=Encoding.PLAIN,
            definition_level_encoding=Encoding.RLE,
            repetition_level_encoding=Encoding.RLE,
        ),
    )
    return header.to_bytes() + body
