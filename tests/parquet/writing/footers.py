"""Footers put together by hand, for tests of what reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from skipstone.parquet.format.metadata import RowGroup
from skipstone.parquet.writing.footer_editor import FooterEditor, RowGroupEdit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.parquet.format.footer_arrays import FooterArrays


def with_more(footer: FooterArrays, row_groups: Sequence[bytes]) -> bytes:
    """The footer with these row groups behind its own."""
    editor = FooterEditor.of(footer)
    rows = [RowGroup.from_bytes(each).num_rows for each in row_groups]
    more = editor.with_row_groups((*editor.rows, *rows), (*editor.row_groups, *row_groups))
    return replace(more, num_rows=editor.num_rows + sum(rows)).to_bytes()


def with_fields(
    footer: FooterArrays, changes: Mapping[tuple[int, int], Mapping[str, object]]
) -> bytes:
    """The footer with fields of chunks (row group, leaf) set."""
    edits = [
        RowGroupEdit(chunks=[changes.get((r, c), {}) for c in range(footer.num_leaves)])
        for r in range(footer.num_row_groups)
    ]
    return FooterEditor.of(footer).edited(edits).to_bytes()


def in_file(row_group: bytes, path: str | None) -> bytes:
    """A row group whose chunks lie in the file ``path`` (``None``: in the footer's own)."""
    columns = len(RowGroup.from_bytes(row_group).columns)
    edit = RowGroupEdit(chunks=[{"file_path": path}] * columns)
    editor = FooterEditor(
        around=(b"", b"", b""),
        rows_first=True,
        columns=(b"", b""),
        num_rows=0,
        rows=(0,),
        row_groups=(row_group,),
    )
    return editor.edited([edit]).row_groups[0]
