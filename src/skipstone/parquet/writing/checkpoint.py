"""Cumulative footers within a file, so that a crash loses the row groups since the last one.

    PAR1 | row groups | footer length PAR1 | row groups | footer length PAR1 | … | footer …
                        of those before it              of all before it           of all

A file that was cut behind a checkpoint is whole but for what follows: the part up to it is a
Parquet file by itself. A finished file ends with a footer of everything, and to readers the earlier
ones are bytes between row groups that nobody points at. ``salvage`` finds the last one.

Of an encrypted file every footer is sealed as the last one is. So whoever cuts a finished file
behind a checkpoint has a file that authenticates: that more was written, it does not tell.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from skipstone.errors import UnsupportedError
from skipstone.parquet.format.footer import MAGIC, MAGIC_ENCRYPTED, TAIL_LENGTH, Tail

from .footer_editor import FooterEditor, row_group_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.parquet.format.footer_arrays import FooterArrays

__all__ = ["CheckpointWriter", "Sink", "row_groups_of"]

_MOST: Final = 0x7FFF_FFFF


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
    next row group is written. ``magic`` is that of the file; ``seal`` makes of ``FileMetaData``
    what lies before the length, where that is more.
    """

    sink: Sink
    template: FooterArrays
    every: int
    descriptor: int | None = None
    magic: bytes = MAGIC
    seal: Callable[[bytes], bytes] | None = None
    checkpoints: int = 0
    rows: list[int] = field(default_factory=list)
    row_groups: list[bytes] = field(default_factory=list)
    _editor: FooterEditor = field(init=False)
    _finished: bool = False

    def __post_init__(self) -> None:
        self._editor = FooterEditor.of(self.template)

    def begin(self) -> None:
        """The magic; row groups are placed from ``sink.at`` on."""
        self.sink.write(self.magic)

    def add(self, row_group: bytes, num_rows: int) -> None:
        """A ``RowGroup`` whose pages are in the sink already and whose offsets are right."""
        if self._finished:
            raise ValueError("the file is finished")
        self.row_groups.append(row_group)
        self.rows.append(num_rows)
        if self.due(0):
            self._footer()
            self.sink.flush()
            if self.descriptor is not None:
                os.fsync(self.descriptor)
            self.checkpoints += 1

    def due(self, more: int) -> bool:
        """Whether there is a checkpoint behind so many more row groups."""
        return bool(self.every) and not (len(self.row_groups) + more) % self.every

    def finish(self) -> None:
        """The footer of everything. Behind a checkpoint that says the same there is none to add."""
        if not (self.row_groups and self.due(0)):
            self._footer()
        self.sink.flush()
        self._finished = True

    def footer(self) -> bytes:
        """``FileMetaData`` of the row groups so far."""
        return self._editor.with_row_groups(self.rows, self.row_groups).to_bytes()

    def _footer(self) -> None:
        footer = self.footer()
        if self.seal is not None:
            footer = self.seal(footer)
        if len(footer) > _MOST:
            raise UnsupportedError("a footer of more than 2 GiB", hint="write fewer row groups")
        self.sink.write(footer)
        size = self.sink.at + TAIL_LENGTH
        self.sink.write(Tail(size, len(footer), self.magic == MAGIC_ENCRYPTED).to_bytes())


def row_groups_of(footer: FooterArrays) -> list[tuple[bytes, int]]:
    """``RowGroup`` structs of a footer as they are, and their rows."""
    rows = footer.group("num_rows").tolist()
    return [(row_group_bytes(footer, r), int(n)) for r, n in enumerate(rows)]
