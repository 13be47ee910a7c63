"""A ``_pm`` written again from its values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from skipstone.errors import FormatError
from skipstone.questdb.format.values import PmHead
from skipstone.questdb.format.writer import PmFooter, read_row_groups, write

if TYPE_CHECKING:
    from skipstone.questdb.format.pm import PmSnapshot


def rewrite(snapshot: PmSnapshot, *, by_column: bool = False) -> bytes:
    """The same snapshot as a fresh file: no predecessors, no dead bytes, no unknown sections."""
    head = PmHead.of(snapshot.pm)
    try:
        head.check()
    except ValueError as error:
        raise FormatError(str(error)) from None
    groups = [replace(group, unreferenced=b"") for group in read_row_groups(snapshot)]
    footer = replace(PmFooter.of(snapshot), other_flags=0, other_sections=b"")
    return write(head, groups, footer, by_column=by_column)
