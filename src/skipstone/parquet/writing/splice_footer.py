"""Footers changed by splicing bytes: what is not changed stays as it is, to the byte.

Thrift's compact protocol has no lengths around structs and lists, so a piece can be put in place of
another, whatever their lengths:

    version  schema  num_rows  row_groups [head] RowGroup RowGroup …  key_value_metadata …
                     ^^^^^^^^              ^^^^                     ^
    append:          the sum              its size                 RowGroup structs go in here

A struct of which a field changes is read and written losslessly (``thrift.Struct``): unknown fields
stay, in their order. Offsets that move with their data: all of a row group's, and those in its
offset indexes; a column index and a Bloom filter hold none. A footer's signature (28 bytes after a
plaintext footer of an encrypted file) is not kept: sign anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.thrift.compact import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Limits,
    ListOf,
    Reader,
    Struct,
    Writer,
    read_struct,
    write_struct,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.thrift.structs import Declared

__all__ = [
    "append_row_groups",
    "rebase_offset_index",
    "rebase_row_group",
    "row_group_bytes",
    "row_group_named",
    "same_columns",
    "set_fields",
    "with_file_path",
    "with_row_groups",
    "without_row_groups",
]

_SCHEMA, _NUM_ROWS, _ROW_GROUPS, _COLUMN_ORDERS = 2, 3, 4, 7
_COLUMNS, _META_DATA, _CRYPTO_METADATA = 1, 3, 8
_GROUP_NUM_ROWS, _GROUP_FILE_OFFSET, _GROUP_ORDINAL = 3, 5, 7
_FILE_PATH = 1
_CHUNK_FIELDS = {
    "file_path": (_FILE_PATH, BINARY),
    "file_offset": (2, I64),
    "offset_index_offset": (4, I64),
    "offset_index_length": (5, I32),
    "column_index_offset": (6, I64),
    "column_index_length": (7, I32),
}
_META_FIELDS = {
    "statistics": (12, STRUCT),
    "bloom_filter_offset": (14, I64),
    "bloom_filter_length": (15, I32),
    "size_statistics": (16, STRUCT),
    "geospatial_statistics": (17, STRUCT),
}
# file_offset, offset_index_offset, column_index_offset; then those of ColumnMetaData: data page,
# index page, dictionary page, Bloom filter.
_CHUNK_OFFSETS = (2, 4, 6)
_META_OFFSETS = (9, 10, 11, 14)


def _read(data: bytes) -> Struct:
    return read_struct(data, limits=Limits(values=max(1 << 16, 2 * len(data))))[0]


def row_group_bytes(footer: FooterArrays, r: int) -> bytes:
    """The bytes of a ``RowGroup`` as the footer has them."""
    start = int(footer.group("row_group_start")[r])
    return footer.data[start : start + int(footer.group("row_group_length")[r])]


def same_columns(one: FooterArrays, other: FooterArrays) -> bool:
    """Whether row groups of the one may stand in the other: same schema, same column orders."""

    def of(footer: FooterArrays, id: int) -> bytes | None:
        place = footer.scanned.fields.get(id)
        return None if place is None else footer.data[place[1] : place[2]]

    return all(of(one, id) == of(other, id) for id in (_SCHEMA, _COLUMN_ORDERS))


def append_row_groups(footer: FooterArrays, row_groups: Sequence[bytes]) -> bytes:
    """The footer's bytes with ``RowGroup`` structs after its own; ``num_rows`` is their sum.

    Their offsets must be right already (``rebase_row_group``), and their columns the footer's
    (``same_columns``).
    """
    rows = footer.num_rows
    for each in row_groups:
        found = _read(each).get(_GROUP_NUM_ROWS)
        if not isinstance(found, int):
            raise FormatError("a row group without num_rows")
        rows += found
    number, head = Writer(), Writer()
    number.integer(rows)
    head.list_head(STRUCT, footer.num_row_groups + len(row_groups))
    _, rows_start, rows_stop = footer.scanned.fields[_NUM_ROWS]
    _, groups_start, groups_stop = footer.scanned.fields[_ROW_GROUPS]
    reader = Reader(footer.data, groups_start, groups_stop)
    reader.list_head()
    return _spliced(
        footer,
        [
            (rows_start, rows_stop, bytes(number.out)),
            (groups_start, reader.at, bytes(head.out)),
            (groups_stop, groups_stop, b"".join(row_groups)),
        ],
    )


def without_row_groups(footer: FooterArrays) -> bytes:
    """The footer's bytes with no row groups, and ``num_rows`` 0: all that it says of the file."""
    return with_row_groups(footer, 0, ())


def with_row_groups(footer: FooterArrays, num_rows: int, row_groups: Sequence[bytes]) -> bytes:
    """The footer's bytes with these ``RowGroup`` structs in place of its own."""
    number, head = Writer(), Writer()
    number.integer(num_rows)
    head.list_head(STRUCT, len(row_groups))
    _, rows_start, rows_stop = footer.scanned.fields[_NUM_ROWS]
    _, groups_start, groups_stop = footer.scanned.fields[_ROW_GROUPS]
    return _spliced(
        footer,
        [
            (rows_start, rows_stop, bytes(number.out)),
            (groups_start, groups_stop, bytes(head.out) + b"".join(row_groups)),
        ],
    )


def _spliced(footer: FooterArrays, edits: Iterable[tuple[int, int, bytes]]) -> bytes:
    if footer.selected is not None:
        raise ValueError("a selection of row groups has no footer of its own to splice")
    pieces, at = [], 0
    for start, stop, piece in sorted(edits):
        pieces += [footer.data[at:start], piece]
        at = stop
    pieces.append(footer.data[at : footer.end])
    return b"".join(pieces)


def set_fields(
    footer: FooterArrays, changes: Mapping[tuple[int, int], Mapping[str, object]]
) -> bytes:
    """The footer's bytes with fields of chunks (row group, leaf) set; ``None`` removes a field.

    Fields of ``ColumnChunk``: file_path, file_offset, offset_index_offset, offset_index_length,
    column_index_offset, column_index_length. Of ``ColumnMetaData``: bloom_filter_offset,
    bloom_filter_length, and the structs statistics, size_statistics, geospatial_statistics (frozen
    values). ``UnsupportedError`` for fields of metadata that is encrypted.
    """
    edits = []
    start, length = footer.places("column_chunk")
    for (r, c), fields in changes.items():
        at = int(start[r, c])
        stop = at + int(length[r, c])
        chunk = _read(footer.data[at:stop])
        for name, value in fields.items():
            if name in _CHUNK_FIELDS:
                chunk = _set(chunk, *_CHUNK_FIELDS[name], value)
                continue
            meta = chunk.get(_META_DATA)
            if not isinstance(meta, Struct) or chunk.get(_CRYPTO_METADATA) is not None:
                raise UnsupportedError(
                    f"{name} of row group {r}, column {c}: its metadata is encrypted"
                )
            meta = _set(meta, *_META_FIELDS[name], value)
            chunk = chunk.replace(_META_DATA, STRUCT, meta)
        edits.append((at, stop, write_struct(chunk)))
    return _spliced(footer, edits)


def _set(struct: Struct, id: int, kind: int, value: Any) -> Struct:
    if value is None:
        return struct.without(id)
    if kind == STRUCT:
        declared: Declared = value
        value = _read(declared.to_bytes())
    elif kind == BINARY:
        value = value.encode("utf-8", "surrogateescape")
    else:
        value = int(value)
    return struct.replace(id, kind, value)


def _columns(group: Struct) -> ListOf:
    columns = group.get(_COLUMNS)
    if not isinstance(columns, ListOf) or (columns.values and columns.type != STRUCT):
        raise FormatError("a row group without columns")
    return columns


def rebase_row_group(data: bytes, delta: int, *, ordinal: int | None = None) -> bytes:
    """A ``RowGroup`` whose chunks, indexes and Bloom filters have moved ``delta`` bytes on.

    ``ordinal`` numbers it anew where it has a number. Chunks that lie in another file
    (``file_path``) stay. The bytes of offset indexes hold offsets as well: see
    ``rebase_offset_index``. ``UnsupportedError`` for encrypted columns, whose offsets (and whose
    place among the row groups) are sealed.
    """
    group = _read(data)
    columns = _columns(group)
    moved = []
    for chunk in columns.values:
        if chunk.get(_CRYPTO_METADATA) is not None:
            raise UnsupportedError("a row group of encrypted columns cannot move")
        if isinstance(chunk.get(_FILE_PATH), bytes):
            moved.append(chunk)
            continue
        meta = chunk.get(_META_DATA)
        if not isinstance(meta, Struct):
            raise FormatError("a column chunk without metadata")
        meta = _shifted(meta, _META_OFFSETS, delta)
        moved.append(_shifted(chunk, _CHUNK_OFFSETS, delta).replace(_META_DATA, STRUCT, meta))
    group = group.replace(_COLUMNS, LIST, ListOf(columns.type, tuple(moved)))
    group = _shifted(group, (_GROUP_FILE_OFFSET,), delta)
    if ordinal is not None and group.get(_GROUP_ORDINAL) is not None:
        # The field has 16 bits; past them it says nothing, and it is optional.
        if ordinal < 1 << 15:
            group = group.replace(_GROUP_ORDINAL, I16, ordinal)
        else:
            group = group.without(_GROUP_ORDINAL)
    return write_struct(group)


def _shifted(struct: Struct, ids: Sequence[int], delta: int) -> Struct:
    for id in ids:
        value = struct.get(id)
        # 0 is where the magic lies: writers say it for "nowhere".
        if isinstance(value, int) and value > 0:
            if value + delta < 0:
                raise ValueError(f"offset {value} cannot move by {delta}")
            struct = struct.replace(id, I64, value + delta)
    return struct


def rebase_offset_index(data: bytes | memoryview, delta: int) -> bytes:
    """The bytes of an ``OffsetIndex`` whose pages have moved ``delta`` bytes on.

    Their number of bytes may change: an offset is as long as it is large.
    """
    index = _read(bytes(data))
    locations = index.get(1)
    if not isinstance(locations, ListOf) or (locations.values and locations.type != STRUCT):
        raise FormatError("an offset index without page_locations")
    moved = tuple([_shifted(each, (1,), delta) for each in locations.values])
    return write_struct(index.replace(1, LIST, ListOf(locations.type, moved)))


def with_file_path(data: bytes, path: str | None) -> bytes:
    """A ``RowGroup`` whose chunks lie in the file ``path`` (``None``: in the footer's own)."""
    group = _read(data)
    columns = _columns(group)
    named = tuple([_set(each, _FILE_PATH, BINARY, path) for each in columns.values])
    return write_struct(group.replace(_COLUMNS, LIST, ListOf(columns.type, named)))


def row_group_named(footer: FooterArrays, r: int, path: str) -> bytes:
    """``with_file_path`` of a row group whose chunks name no file, without decoding them.

    ``file_path`` is the first field of ``ColumnChunk``, so that it goes before the others; only the
    head of the one behind it changes, which counts from the field before. ``UnsupportedError``
    where a chunk names a file already.
    """
    group_start = int(footer.group("row_group_start")[r])
    group = row_group_bytes(footer, r)
    starts, _ = footer.places("column_chunk")
    name = Writer()
    name.field(_FILE_PATH, BINARY, path.encode("utf-8", "surrogateescape"), 0)
    pieces: list[bytes | bytearray] = []
    at = 0
    for start in (starts[r] - group_start).tolist():
        delta, kind = group[start] >> 4, group[start] & 15
        if delta == _FILE_PATH or not delta:
            if footer.places("file_path")[0][r].max(initial=-1) >= 0:
                raise UnsupportedError(f"columns of row group {r} lie in other files already")
            return with_file_path(group, path)
        pieces += [group[at:start], name.out, bytes([(delta - _FILE_PATH) << 4 | kind])]
        at = start + 1
    pieces.append(group[at:])
    return b"".join(pieces)
