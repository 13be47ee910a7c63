"""Row groups encoded by Arrow in memory, and moved to a place in another file.

Arrow writes a whole file into a buffer; of it are taken

    PAR1 | pages, bloom filters, column indexes | offset indexes | footer
           verbatim                               each anew        its RowGroup structs

Offset indexes hold offsets, and an offset is as long as it is large: they lie behind everything
else, so what precedes them moves by one distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.parquet.format.footer import MAGIC, TAIL_LENGTH, Tail
from skipstone.parquet.format.footer_arrays import FooterArrays

from .footer_pieces import FooterPieces
from .splice_footer import rebase_offset_index, rebase_row_group, row_group_bytes, set_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Encoded", "Placed", "encode_rows"]

_FIRST: Final = len(MAGIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Row groups with the offsets that they have at one place of one file, up to byte ``stop``.

    ``pieces`` are to be written from that place on; ``filters`` are the Bloom filters among them by
    their offset in the file.
    """

    pieces: tuple[memoryview | bytes, ...]
    stop: int
    rows: tuple[int, ...]
    row_groups: tuple[bytes, ...]
    filters: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """What Arrow made of some rows: a buffer that is a Parquet file."""

    data: memoryview
    footer: FooterArrays
    pieces: FooterPieces
    body_stop: int

    @classmethod
    def of(cls, data: memoryview) -> Encoded:
        """Of a whole file that Arrow wrote."""
        tail = Tail.from_bytes(data[-TAIL_LENGTH:], len(data))
        footer = FooterArrays.scan(data[tail.offset : -TAIL_LENGTH], tail.offset)
        first = footer.chunk("offset_index_offset")
        first = first[first >= 0]
        body_stop = int(first.min()) if len(first) else tail.offset
        for name in ("column_index", "bloom_filter"):
            places = footer.chunk(f"{name}_offset")
            if (places >= body_stop).any():
                raise SkipstoneError(
                    f"this version of Arrow writes a {name} behind the offset indexes",
                    hint="use the version of pyarrow that Skipstone asks for",
                )
        return Encoded(
            data=data, footer=footer, pieces=FooterPieces.of(footer), body_stop=body_stop
        )

    def place(self, start: int, ordinal: int) -> Placed:
        """As it lies from byte ``start`` of a file on, its first row group number ``ordinal``."""
        delta, at = start - _FIRST, start + self.body_stop - _FIRST
        footer, moved = self.footer, list[bytes]()
        changes: dict[tuple[int, int], dict[str, object]] = {}
        offsets = footer.chunk("offset_index_offset").tolist()
        lengths = footer.chunk("offset_index_length").tolist()
        for r, (row_offsets, row_lengths) in enumerate(zip(offsets, lengths, strict=True)):
            for c, (offset, length) in enumerate(zip(row_offsets, row_lengths, strict=True)):
                if offset >= 0 and length > 0:
                    index = rebase_offset_index(self.data[offset : offset + length], delta)
                    # rebase_row_group adds delta to this as to every other offset.
                    changes[r, c] = {
                        "offset_index_offset": at - delta,
                        "offset_index_length": len(index),
                    }
                    moved.append(index)
                    at += len(index)
        if changes:
            footer = FooterArrays.scan(set_fields(footer, changes))
        return Placed(
            pieces=(self.data[_FIRST : self.body_stop], b"".join(moved)),
            stop=at,
            rows=tuple(footer.group("num_rows").tolist()),
            row_groups=tuple(
                [
                    rebase_row_group(row_group_bytes(footer, r), delta, ordinal=ordinal + r)
                    for r in range(footer.num_row_groups)
                ]
            ),
            filters={offset + delta: data for offset, data in self._filters()},
        )

    def _filters(self) -> Iterator[tuple[int, bytes]]:
        places = self.footer.chunk("bloom_filter_offset"), self.footer.chunk("bloom_filter_length")
        for offset, length in zip(*(each.ravel().tolist() for each in places), strict=True):
            if offset > 0 and length > 0:
                yield offset, bytes(self.data[offset : offset + length])


def encode_rows(rows: pa.Table, **options: Any) -> Encoded:
    """Rows as Arrow writes them, with the options of ``pyarrow.parquet.write_table``."""
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(rows, sink, **options)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnsupportedError(
            f"Arrow cannot write such rows: {error}", hint="cast the columns that it names"
        ) from error
    return Encoded.of(memoryview(sink.getvalue()).cast("B").toreadonly())
