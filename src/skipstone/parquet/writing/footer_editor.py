"""Changes a footer. Everything else keeps its bytes, also unknown fields.

Thrift's compact protocol stores no lengths of structs and lists, so any piece can replace another
of any length. The editor keeps every ``RowGroup`` struct apart from the bytes around them:

    version  schema  num_rows  …  row_groups [head] RowGroup RowGroup …  key_value_metadata …
                     ^^^^^^^^                ^^^^^^^^^^^^^^^^^^^^^^^^^^
                     their sum               may be added, replaced, edited, left out

A struct with a changed field is read and written losslessly (``thrift.compact.Struct``): its fields
stay in their order. ``created_by`` stays, too: readers use it to work around bugs of the writers
that made the pages. When data moves, all offsets of its row group move with it, and those in its
offset indexes; column indexes and Bloom filters hold none. The signature of a footer (28 bytes
after a plaintext footer of an encrypted file) is not kept: sign again.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.metadata import (
    TYPE_ORDER,
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    KeyValue,
    RowGroup,
)
from skipstone.parquet.thrift.compact import (
    BINARY,
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
from skipstone.parquet.thrift.structs import Declared, Wire, field_ids, wires_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


#: Values of fields by their names in parquet.thrift; ``None`` removes a field.
FieldValues: TypeAlias = "Mapping[str, object]"

_SCHEMA, _NUM_ROWS, _ROW_GROUPS, _KEY_VALUES, _COLUMN_ORDERS = 2, 3, 4, 5, 7
_NUM_CHILDREN: Final = 5
_COLUMNS, _GROUP_FILE_OFFSET, _GROUP_ORDINAL = 1, 5, 7
_FILE_PATH, _META_DATA, _CRYPTO_METADATA = 1, 3, 8
_TOTAL_UNCOMPRESSED_SIZE, _TOTAL_COMPRESSED_SIZE = 6, 7
#: fields of ``ColumnChunk``; the other names are those of ``ColumnMetaData``
CHUNK_FIELDS: Final = frozenset(field_ids(ColumnChunk))
# Fields that no edit sets: they say what the pages are, or hold the structs that are edited.
_FIXED: Final = frozenset(
    ("version", "schema", "row_groups", "columns", "meta_data", "type", "path_in_schema", "codec")
)
# file_offset, offset_index_offset, column_index_offset; then those of ColumnMetaData: data page,
# index page, dictionary page, Bloom filter.
_CHUNK_OFFSETS = (2, 4, 6)
_META_OFFSETS = (9, 10, 11, 14)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupEdit:
    """New fields of a ``RowGroup`` and of each of its chunks. One mapping holds the fields of
    ``ColumnChunk`` and ``ColumnMetaData``, whose names are distinct."""

    fields: FieldValues = field(default_factory=dict)
    chunks: Sequence[FieldValues] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FooterEditor:
    """One footer. Every change returns another editor; ``to_bytes`` returns ``FileMetaData``.

    ``rows`` and ``row_groups`` have one entry for each row group. ``columns`` are the bytes of
    schema and column orders: row groups may be used in another footer only if these are equal.
    ``num_rows`` is the sum of ``rows``, or the footer's own number if its row groups are unchanged.
    """

    around: tuple[bytes, bytes, bytes]
    #: whether ``num_rows`` precedes ``row_groups``, as in the order of field numbers
    rows_first: bool
    columns: tuple[bytes, bytes]
    num_rows: int
    rows: tuple[int, ...]
    row_groups: tuple[bytes, ...]

    @classmethod
    def of(cls, footer: FooterArrays | bytes) -> Self:
        """The editor of a whole footer."""
        if isinstance(footer, bytes):
            footer = FooterArrays.scan(footer)
        if footer.selected is not None:
            raise ValueError("a selection of row groups has no footer of its own to edit")
        fields, data = footer.scanned.fields, footer.data
        _, groups_start, groups_stop = fields[_ROW_GROUPS]
        Reader(data, groups_start, groups_stop).list_head()
        (_, start, stop), (_, second, last) = sorted((fields[_NUM_ROWS], fields[_ROW_GROUPS]),
                                                     key=lambda each: each[1])  # fmt: skip
        columns = [
            b"" if place is None else data[place[1] : place[2]]
            for place in (fields.get(_SCHEMA), fields.get(_COLUMN_ORDERS))
        ]
        return cls(
            around=(data[:start], data[stop:second], data[last : footer.end]),
            rows_first=second == groups_start,
            columns=(columns[0], columns[1]),
            num_rows=footer.num_rows,
            rows=tuple(footer.group("num_rows").tolist()),
            row_groups=tuple([row_group_bytes(footer, r) for r in range(footer.num_row_groups)]),
        )

    def to_bytes(self) -> bytes:
        """``FileMetaData``."""
        number, head = Writer(), Writer()
        number.integer(self.num_rows)
        head.list_head(STRUCT, len(self.row_groups))
        before, between, after = self.around
        groups = [bytes(head.out), *self.row_groups]
        if self.rows_first:
            return b"".join([before, bytes(number.out), between, *groups, after])
        return b"".join([before, *groups, between, bytes(number.out), after])

    # -- row groups --------------------------------------------------------------------------------

    def with_row_groups(self, rows: Sequence[int], row_groups: Sequence[bytes]) -> Self:
        """A copy with other row groups; their offsets must be final."""
        held = tuple(rows)
        return replace(self, num_rows=sum(held), rows=held, row_groups=tuple(row_groups))

    def edited(self, edits: Sequence[RowGroupEdit]) -> Self:
        """A copy with an edit for every row group. ``UnsupportedError`` for a field in encrypted
        metadata."""
        if len(edits) != len(self.row_groups):
            raise FormatError("row groups of a footer", expected=len(edits))
        made = [_edited(*each) for each in zip(self.row_groups, edits, strict=True)]
        return replace(self, row_groups=tuple(made))

    def with_columns(
        self, fields: Sequence[int], leaves: Sequence[int], starts: Sequence[int]
    ) -> Self:
        """The footer of a file with only these ``fields`` of the root, which have these ``leaves``.

        ``starts`` are the offsets of the row groups in the new file; those of the chunks are
        final. Fields that name columns by number (sorting columns) or describe all columns
        (key-values) are left out.
        """
        top = self._top()
        elements = _structs(top, _SCHEMA)
        spans = _root_fields(elements)
        root = elements[0].replace(_NUM_CHILDREN, I32, len(fields))
        kept = [each for at in fields for each in elements[slice(*spans[at])]]
        top = top.replace(_SCHEMA, LIST, ListOf(STRUCT, (root, *kept))).without(_KEY_VALUES)
        orders = top.get(_COLUMN_ORDERS)
        if isinstance(orders, ListOf):
            held = tuple([orders.values[leaf] for leaf in leaves])
            top = top.replace(_COLUMN_ORDERS, LIST, ListOf(orders.type, held))
        groups = [
            _of_leaves(data, leaves, start)
            for data, start in zip(self.row_groups, starts, strict=True)
        ]
        return replace(self._with_top(top), row_groups=tuple(groups))

    # -- the file ----------------------------------------------------------------------------------

    def with_fields(self, fields: FieldValues) -> Self:
        """A copy with other ``key_value_metadata``, ``created_by`` or ``column_orders``."""
        return self._with_top(_set(self._top(), FileMetaData, fields))

    def with_key_values(self, pairs: Mapping[str, str]) -> Self:
        """A copy with more key-values after the existing ones."""
        top = self._top()
        added = [_read(KeyValue(key=key, value=value).to_bytes()) for key, value in pairs.items()]
        held = ListOf(STRUCT, (*_structs(top, _KEY_VALUES), *added))
        return self._with_top(top.replace(_KEY_VALUES, LIST, held))

    def with_column_orders(self, leaves: int) -> Self:
        """A copy with TYPE_ORDER for every leaf, if the footer has no column orders."""
        if not leaves or self.columns[1]:
            return self
        return self.with_fields({"column_orders": (TYPE_ORDER,) * leaves})

    def _top(self) -> Struct:
        """The footer without its row groups."""
        return _read(self.with_row_groups((), ()).to_bytes())

    def _with_top(self, top: Struct) -> Self:
        made = self.of(write_struct(top))
        return replace(made, num_rows=self.num_rows, rows=self.rows, row_groups=self.row_groups)


def row_group_bytes(footer: FooterArrays, r: int) -> bytes:
    """The bytes of a ``RowGroup`` in the footer."""
    start = int(footer.group("row_group_start")[r])
    return footer.data[start : start + int(footer.group("row_group_length")[r])]


def moved_row_group(
    data: bytes,
    delta: int,
    *,
    ordinal: int | None = None,
    chunks: Sequence[FieldValues] = (),
) -> bytes:
    """A ``RowGroup`` whose chunks, indexes and Bloom filters have moved ``delta`` bytes on.

    ``ordinal`` is its new number, if it has one. ``chunks`` are fields of each chunk, set after the
    move. Chunks in another file (``file_path``) stay. Offset indexes hold offsets as well: see
    ``moved_offset_index``. ``UnsupportedError`` for encrypted columns: their AAD has the number of
    the row group, and their metadata may be encrypted.
    """
    group = _read(data)
    moved = []
    for chunk in _columns(group):
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
    if chunks:
        moved = [_edited_chunk(*each) for each in zip(moved, chunks, strict=True)]
    group = _shifted(_with_chunks(group, moved), (_GROUP_FILE_OFFSET,), delta)
    if ordinal is not None and group.get(_GROUP_ORDINAL) is not None:
        # The field has 16 bits and is optional: a larger number is left out.
        held = ordinal if ordinal < 1 << 15 else None
        group = _set(group, RowGroup, {"ordinal": held})
    return write_struct(group)


def moved_offset_index(data: bytes | memoryview, delta: int) -> bytes:
    """The bytes of an ``OffsetIndex`` whose pages have moved ``delta`` bytes on.

    Their length may change: the length of an offset depends on its value.
    """
    index = _read(bytes(data))
    locations = index.get(1)
    if not isinstance(locations, ListOf) or (locations.values and locations.type != STRUCT):
        raise FormatError("an offset index without page_locations")
    moved = tuple([_shifted(each, (1,), delta) for each in locations.values])
    return write_struct(index.replace(1, LIST, ListOf(locations.type, moved)))


def row_group_in_file(footer: FooterArrays, r: int, path: str) -> bytes:
    """A ``RowGroup`` with ``path`` as the file of its chunks, which named none before.

    No chunk is decoded. ``file_path`` is the first field of ``ColumnChunk``, so it goes before the
    others. Only the head of the next field changes, because it is relative to the field before.
    ``UnsupportedError`` if a chunk names a file already.
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
                raise UnsupportedError(f"columns of row group {r} are in other files already")
            # Fields that are not in order, or a long form of their heads.
            edit: FieldValues = {"file_path": path}
            return _edited(group, RowGroupEdit(chunks=(edit,) * footer.num_leaves))
        pieces += [group[at:start], name.out, bytes([(delta - _FILE_PATH) << 4 | kind])]
        at = start + 1
    pieces.append(group[at:])
    return b"".join(pieces)


# -- structs ---------------------------------------------------------------------------------------


def _read(data: bytes) -> Struct:
    return read_struct(data, limits=Limits(values=max(1 << 16, 2 * len(data))))[0]


def _structs(struct: Struct, id: int) -> Sequence[Any]:
    found = struct.get(id)
    return found.values if isinstance(found, ListOf) else ()


def _columns(group: Struct) -> Sequence[Struct]:
    columns = group.get(_COLUMNS)
    if not isinstance(columns, ListOf) or (columns.values and columns.type != STRUCT):
        raise FormatError("a row group without columns")
    return columns.values


def _with_chunks(group: Struct, chunks: Sequence[Struct]) -> Struct:
    return group.replace(_COLUMNS, LIST, ListOf(STRUCT, tuple(chunks)))


def _edited(data: bytes, edit: RowGroupEdit) -> bytes:
    if not edit.fields and not edit.chunks:
        return data
    group = _read(data)
    if edit.chunks:
        chunks = _columns(group)
        if len(chunks) != len(edit.chunks):
            raise FormatError("columns of a row group", expected=len(edit.chunks))
        pairs = zip(chunks, edit.chunks, strict=True)
        group = _with_chunks(group, [_edited_chunk(*each) for each in pairs])
    return write_struct(_set(group, RowGroup, edit.fields))


def _edited_chunk(chunk: Struct, fields: FieldValues) -> Struct:
    of_meta = {name: value for name, value in fields.items() if name not in CHUNK_FIELDS}
    if of_meta:
        meta = chunk.get(_META_DATA)
        if chunk.get(_CRYPTO_METADATA) is not None:
            raise UnsupportedError(f"{', '.join(of_meta)}: the metadata of the column is encrypted")
        if not isinstance(meta, Struct):
            raise FormatError("a column chunk without metadata")
        chunk = chunk.replace(_META_DATA, STRUCT, _set(meta, ColumnMetaData, of_meta))
    of_chunk = {name: value for name, value in fields.items() if name in CHUNK_FIELDS}
    return _set(chunk, ColumnChunk, of_chunk)


def _set(struct: Struct, kind: type[Declared], fields: FieldValues) -> Struct:
    wires = wires_of(kind)
    for name, value in fields.items():
        if name in _FIXED:
            raise KeyError(name)
        id, wire = wires[name]
        if value is None:
            struct = struct.without(id)
        else:
            struct = struct.replace(id, wire.kinds[0], _held(value, wire))
    return struct


def _held(value: object, wire: Wire) -> object:
    """A value of a declared field as a ``Struct`` holds it."""
    if isinstance(value, int):
        return int(value)
    writer = Writer()
    wire.write(writer, value)
    return Reader(writer.out).value(wire.kinds[0])


def _shifted(struct: Struct, ids: Sequence[int], delta: int) -> Struct:
    for id in ids:
        value = struct.get(id)
        # Writers store 0 for "none": the magic is there.
        if isinstance(value, int) and value > 0:
            if value + delta < 0:
                raise ValueError(f"offset {value} cannot move by {delta}")
            struct = struct.replace(id, I64, value + delta)
    return struct


def _root_fields(elements: Sequence[Struct]) -> list[tuple[int, int]]:
    """Start and end of the elements of each field of the root."""
    found: list[tuple[int, int]] = []
    at = 1
    while at < len(elements):
        start, open_ = at, 1
        while open_:
            if at >= len(elements):
                raise FormatError("a schema that ends within a group")
            children = elements[at].get(_NUM_CHILDREN)
            open_ += (children if isinstance(children, int) else 0) - 1
            at += 1
        found.append((start, at))
    return found


def _of_leaves(data: bytes, leaves: Sequence[int], start: int) -> bytes:
    group = _read(data)
    columns = _columns(group)
    chunks = [columns[leaf].without(_FILE_PATH) for leaf in leaves]
    metas = [each.get(_META_DATA) for each in chunks]
    sizes = [
        sum(meta.get(id) for meta in metas)
        for id in (_TOTAL_UNCOMPRESSED_SIZE, _TOTAL_COMPRESSED_SIZE)
    ]
    fields = {
        "total_byte_size": sizes[0],
        "sorting_columns": None,
        "file_offset": start,
        "total_compressed_size": sizes[1],
    }
    return write_struct(_set(_with_chunks(group, chunks), RowGroup, fields))
