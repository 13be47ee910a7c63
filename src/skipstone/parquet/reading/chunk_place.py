"""Where a column chunk lies: its file, its bytes, and what a reader of its pages must know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skipstone.errors import FormatError
from skipstone.parquet.format.metadata import ColumnMetaData
from skipstone.parquet.pages.page import chunk_range

if TYPE_CHECKING:
    from skipstone.parquet.format.footer_arrays import FooterArrays

__all__ = ["ChunkPlace", "beside", "chunk_place"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPlace:
    """Bytes ``start`` to ``stop`` of the file at ``path``; ``rows`` are those of its row group."""

    path: str
    row_group: int
    leaf: int
    start: int
    stop: int
    codec: int
    num_values: int
    rows: int


def beside(path: str, file_path: str) -> str:
    """What a chunk's ``file_path`` names: a file relative to the directory of the one it is in."""
    absolute = file_path.startswith("/") or "://" in file_path
    if not file_path or absolute or ".." in file_path.split("/") or "\0" in file_path:
        raise FormatError(
            "a file_path that leaves the directory",
            file=path,
            got=file_path,
            hint="columns are read from files beside or below the one that names them: move them",
        )
    return f"{path.rpartition('/')[0]}/{file_path}"


def chunk_place(
    footer: FooterArrays, row_group: int, leaf: int, *, path: str, size: int
) -> ChunkPlace:
    """The place of a chunk in the file at ``path``, of ``size`` bytes; ``FormatError`` when it
    cannot be there."""

    def of(field: str) -> int:
        return int(footer.chunk(field)[row_group, leaf])

    dictionary = of("dictionary_page_offset")
    data, length = of("data_page_offset"), of("total_compressed_size")
    num_values, rows = of("num_values"), int(footer.group("num_rows")[row_group])
    if num_values < 0 or rows < 0:
        raise FormatError(
            "a chunk of a negative number of values or rows",
            file=path,
            got=f"{num_values} values, {rows} rows",
        )
    start, stop = chunk_range(
        ColumnMetaData(
            type=of("type"),
            encodings=(),
            codec=of("codec"),
            num_values=num_values,
            total_uncompressed_size=0,
            total_compressed_size=length,
            data_page_offset=data,
            dictionary_page_offset=dictionary,
        ),
        file_size=size,
        created_by=footer.created_by,
    )
    return ChunkPlace(
        path=path,
        row_group=row_group,
        leaf=leaf,
        start=start,
        stop=stop,
        codec=of("codec"),
        num_values=num_values,
        rows=rows,
    )
