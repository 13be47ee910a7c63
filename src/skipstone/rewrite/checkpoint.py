"""Cumulative footers within a file, so that a crash loses the row groups since the last one.

    PAR1 | row groups | footer length PAR1 | row groups | footer length PAR1 | … | footer …
                        of those before it              of all before it           of all

A file that was cut behind a checkpoint is whole but for what follows: the part up to it is a
Parquet file by itself. A finished file ends with a footer of everything, and to readers the earlier
ones are bytes between row groups that nobody points at. ``salvage`` finds the last one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from skipstone.formats.parquet.footer import MAGIC, Tail
from skipstone.formats.parquet.splice import row_group_bytes
from skipstone.formats.parquet.thrift import STRUCT, Reader, Writer

if TYPE_CHECKING:
    from skipstone.formats.parquet.footer_arrays import FooterArrays

__all__ = ["CheckpointWriter", "Sink", "row_groups_of"]

_NUM_ROWS, _ROW_GROUPS = 3, 4


class Sink(Protocol):
    """What takes the bytes of a file: ``replacing.Written`` or one like it."""

    at: int

    def write(self, piece: bytes | memoryview) -> None:
        """Append."""
        ...

    def flush(self) -> None:
        """Hand everything to the system."""
        ...


@dataclass(slots=True, kw_only=True)
class CheckpointWriter:
    """Row groups into ``sink``, with a footer behind every ``every`` of them (0: only the last).

    ``template`` is a footer of the same columns: its schema, pairs and orders are those of the
    file, its own row groups are not. With ``descriptor`` a checkpoint is on the medium before the
    next row group is written.
    """

    sink: Sink
    template: FooterArrays
    every: int
    descriptor: int | None = None
    rows: int = 0
    checkpoints: int = 0
    row_groups: list[bytes] = field(default_factory=list)
    _finished: bool = False

    def begin(self) -> None:
        """The magic; row groups are placed from ``sink.at`` on."""
        self.sink.write(MAGIC)

    def add(self, row_group: bytes, num_rows: int) -> None:
        """A ``RowGroup`` whose pages are in the sink already and whose offsets are right."""
        if self._finished:
            raise ValueError("the file is finished")
        self.row_groups.append(row_group)
        self.rows += num_rows
        if self.every and not len(self.row_groups) % self.every:
            self._footer()
            self.checkpoints += 1
            self.sink.flush()
            if self.descriptor is not None:
                os.fsync(self.descriptor)

    def finish(self) -> None:
        """The footer of everything. Behind a checkpoint that says the same there is none to add."""
        at_checkpoint = self.every and self.row_groups and not len(self.row_groups) % self.every
        if not at_checkpoint:
            self._footer()
        self.sink.flush()
        self._finished = True

    def footer(self) -> bytes:
        """``FileMetaData`` of the row groups so far."""
        template, data = self.template, self.template.data
        _, rows_start, rows_stop = template.scanned.fields[_NUM_ROWS]
        _, groups_start, groups_stop = template.scanned.fields[_ROW_GROUPS]
        reader = Reader(data, groups_start, groups_stop)
        reader.list_head()
        number, head = Writer(), Writer()
        number.integer(self.rows)
        head.list_head(STRUCT, len(self.row_groups))
        if rows_start > groups_start:
            raise ValueError("a footer whose fields are not in order")
        return b"".join(
            [
                data[:rows_start],
                bytes(number.out),
                data[rows_stop:groups_start],
                bytes(head.out),
                *self.row_groups,
                data[groups_stop : template.end],
            ]
        )

    def _footer(self) -> None:
        footer = self.footer()
        self.sink.write(footer)
        self.sink.write(Tail(self.sink.at + 8, len(footer), False).to_bytes())


def row_groups_of(footer: FooterArrays) -> list[tuple[bytes, int]]:
    """``RowGroup`` structs of a footer as they are, and their rows."""
    rows = footer.group("num_rows").tolist()
    return [(row_group_bytes(footer, r), int(n)) for r, n in enumerate(rows)]
