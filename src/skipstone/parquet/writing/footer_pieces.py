"""A footer in pieces: its ``RowGroup`` structs apart from the bytes around them.

    before  num_rows  between  [head] RowGroup RowGroup …  after

So a footer is spliced anew in time of its bytes alone, whatever was added, replaced or left out;
what is not touched stays as it is, to the byte.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from skipstone.errors import UnsupportedError
from skipstone.parquet.thrift.compact import STRUCT, Reader, Writer

from .splice_footer import row_group_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.parquet.format.footer_arrays import FooterArrays

__all__ = ["FooterPieces"]

_SCHEMA: Final = 2
_NUM_ROWS: Final = 3
_ROW_GROUPS: Final = 4
_COLUMN_ORDERS: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class FooterPieces:
    """See the module; ``rows`` and ``row_groups`` have one entry for each row group.

    ``columns`` are the bytes of schema and column orders: row groups may stand in another file only
    where these are equal.
    """

    before: bytes
    between: bytes
    after: bytes
    columns: tuple[bytes, bytes]
    rows: tuple[int, ...]
    row_groups: tuple[bytes, ...]

    @classmethod
    def of(cls, footer: FooterArrays) -> Self:
        """Of a whole footer. ``UnsupportedError`` where num_rows does not precede row groups."""
        fields, data = footer.scanned.fields, footer.data
        _, rows_start, rows_stop = fields[_NUM_ROWS]
        _, groups_start, groups_stop = fields[_ROW_GROUPS]
        if rows_stop > groups_start:
            raise UnsupportedError("a footer whose fields are not in order")
        Reader(data, groups_start, groups_stop).list_head()
        columns = [
            b"" if place is None else data[place[1] : place[2]]
            for place in (fields.get(_SCHEMA), fields.get(_COLUMN_ORDERS))
        ]
        return cls(
            before=data[:rows_start],
            between=data[rows_stop:groups_start],
            after=data[groups_stop : footer.end],
            columns=(columns[0], columns[1]),
            rows=tuple(footer.group("num_rows").tolist()),
            row_groups=tuple([row_group_bytes(footer, r) for r in range(footer.num_row_groups)]),
        )

    def with_row_groups(self, rows: Sequence[int], row_groups: Sequence[bytes]) -> Self:
        """The same with other row groups; their offsets must be right already."""
        return replace(self, rows=tuple(rows), row_groups=tuple(row_groups))

    def to_bytes(self) -> bytes:
        """``FileMetaData``."""
        number, head = Writer(), Writer()
        number.integer(sum(self.rows))
        head.list_head(STRUCT, len(self.row_groups))
        return b"".join(
            [
                self.before,
                bytes(number.out),
                self.between,
                bytes(head.out),
                *self.row_groups,
                self.after,
            ]
        )
