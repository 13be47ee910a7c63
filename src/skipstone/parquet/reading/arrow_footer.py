"""Selects columns of a file for Arrow to decode, with a footer made of checked values.

Arrow's metadata objects end the process where a value of a footer is not what they expect: an
encoding that is unknown, statistics of the wrong length, an encrypted chunk. So Arrow never gets
the footer of a file. It gets one that is made of what ``FooterArrays`` decoded and checked:

    schema      the elements of the wanted columns; a group without LIST and MAP has the wanted
                children alone
    row groups  for each wanted leaf: type, codec, counts, sizes and offsets; no statistics, no
                indexes, no lists of encodings (the headers of the pages say what they use)
    ARROW:schema where the file has one: the types of these columns alone
    created_by  because Arrow uses it to work around faults of old writers

Columns and the fields of structs are named by their positions (``0``, ``0.1``), so no name of the
file matters to Arrow, and two columns may have the same name.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone._parquet import read_metadata
from skipstone.errors import UnsupportedError
from skipstone.parquet.arrow.arrow_types import Shape, ShapeKind
from skipstone.parquet.format.enums import Encoding, Type
from skipstone.parquet.format.footer import TAIL_LENGTH, file_of
from skipstone.parquet.format.metadata import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    KeyValue,
    RowGroup,
    SchemaElement,
)
from skipstone.parquet.format.schema import Node, arrow_name
from skipstone.parquet.thrift.compact import STRUCT, Writer

from .row_ranges import check_row_counts
from .selection import SelectedField, Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from skipstone.parquet.format.footer_arrays import FooterArrays


# Arrow requires a list; the headers of the pages say what they use.
_ENCODINGS = (Encoding.PLAIN,)


@dataclass(frozen=True, eq=False)
class ArrowColumns:
    """The columns of ``paths`` in the file with this footer; see the module.

    Each path is that of a field or of a node below structs; paths within one field of the root
    share a column. ``size`` is that of the file. ``FormatError`` where the footer contradicts
    itself or the size, ``UnsupportedError`` where a column is encrypted or lies in another file.
    """

    footer: FooterArrays
    paths: tuple[tuple[str, ...], ...]
    path: str
    size: int

    def __post_init__(self) -> None:
        check_row_counts(self.footer)
        self.footer.check_extent(self.size - TAIL_LENGTH)

    @cached_property
    def selection(self) -> Selection:
        """The columns of the file."""
        return Selection(self.footer, self.path)

    @cached_property
    def fields(self) -> tuple[SelectedField, ...]:
        """The columns of the result, in their order."""
        return self.selection.of_paths(self.paths)

    def position(self, path: Sequence[str]) -> tuple[int, ...]:
        """Where Arrow puts one of ``paths``: the column, then the position in each struct."""
        shapes: Sequence[Shape] = [field.shape for field in self.fields]
        found = []
        for name in path:
            at = next(i for i, each in enumerate(shapes) if _called(each.node, name))
            found.append(at)
            shapes = shapes[at].children
        return tuple(found)

    @cached_property
    def metadata(self) -> pq.FileMetaData:
        """The ``metadata`` for ``pyarrow.parquet.ParquetFile`` over the bytes of the file."""
        return read_metadata(file_of(self._made()))

    def _made(self) -> bytes:
        footer, frame = self.footer, self._frame
        leaves = list(frame.leaves)
        self._require_here(leaves)
        chunks = ArrowChunks(
            numbers=np.stack([footer.chunk(name)[:, leaves] for name in _NUMBERS], axis=2),
            rows=footer.group("num_rows"),
        )
        return frame.footer_of(chunks)

    @property
    def _frame(self) -> ArrowFrame:
        """What the footers of files of this schema and writer have in common."""
        key, frames = (self.paths, self.footer.created_by), self.selection.shared.frames
        found: ArrowFrame | None = frames.get(key)
        if found is None:
            found = frames.put(key, self._new_frame())
        return found

    def _new_frame(self) -> ArrowFrame:
        elements = [SchemaElement(name="schema", num_children=len(self.fields))]
        leaves: list[int] = []
        paths: list[tuple[str, ...]] = []
        for at, field in enumerate(self.fields):
            for node, element, path in _elements(field.shape.node, field.shape, (str(at),)):
                elements.append(element)
                if node.is_leaf:
                    leaves.append(node.first_leaf)
                    paths.append(path)
        types = [self.footer.schema.leaves[leaf].type for leaf in leaves]
        return ArrowFrame.of(
            tuple(elements),
            tuple(zip(types, paths, strict=True)),
            tuple(leaves),
            key_values=self._types() if self.selection.typed else None,
            created_by=self.footer.created_by,
        )

    def _require_here(self, leaves: Sequence[int]) -> None:
        footer = self.footer
        if (footer.chunk("has_meta_data")[:, leaves] != 1).any():
            raise UnsupportedError(f"{self.path}: a column is encrypted")
        if (footer.chunk("encrypted")[:, leaves] > 0).any():
            raise UnsupportedError(f"{self.path}: a column is encrypted")
        if (footer.places("file_path")[0][:, leaves] >= 0).any():
            raise UnsupportedError(f"{self.path}: its columns lie in other files")

    def _types(self) -> tuple[KeyValue, ...]:
        schema = pa.schema([field.field for field in self.fields])
        return (arrow_schema_pair(schema.remove_metadata()),)


def arrow_schema_pair(schema: pa.Schema) -> KeyValue:
    """The key-value pair by which Arrow reads these types."""
    text = base64.b64encode(schema.serialize().to_pybytes()).decode()
    return KeyValue(key="ARROW:schema", value=text)


def _called(node: Node, name: str) -> bool:
    return name in (node.name, arrow_name(node))


def _elements(
    node: Node, shape: Shape | None, path: tuple[str, ...]
) -> Iterator[tuple[Node, SchemaElement, tuple[str, ...]]]:
    """The nodes of a field, depth first, with their elements and paths under their new names.

    Below lists and maps, where there is no ``shape``, all nodes stay, with their names: Arrow
    recognises the old forms of lists by them.
    """
    below: list[tuple[Node, Shape | None, str]]
    if shape is not None and shape.kind is ShapeKind.STRUCT:
        below = [(each.node, each, str(at)) for at, each in enumerate(shape.children)]
    else:
        below = [(child, None, arrow_name(child)) for child in node.children]
        if below and shape is not None:
            path = (*path[:-1], arrow_name(node))
    count = len(below) if below or not node.is_leaf else None
    yield node, replace(node.element, name=path[-1], num_children=count), path
    for child, kept, name in below:
        yield from _elements(child, kept, (*path, name))


# -- bytes -----------------------------------------------------------------------------------------

# The numbers of a chunk, in the order of their field ids.
_NUMBERS: Final = (
    "codec",
    "num_values",
    "total_uncompressed_size",
    "total_compressed_size",
    "data_page_offset",
    "dictionary_page_offset",
)
_DICTIONARY: Final = _NUMBERS.index("dictionary_page_offset")
_DECODED: Final = _NUMBERS.index("total_uncompressed_size")


@dataclass(frozen=True, slots=True, eq=False)
class ArrowChunks:
    """``numbers`` int64 (R, C, 6): codec, values, bytes decoded and stored, first data page and
    dictionary page (0 or less: none) of each chunk; ``rows`` int64 (R,)."""

    numbers: NDArray[np.int64]
    rows: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Form:
    """Bytes with holes for numbers: the place of each byte of a hole, which number it belongs to,
    its shift, and the bit that says that more bytes follow."""

    data: NDArray[np.uint8]
    place: NDArray[np.int64]
    number: NDArray[np.int64]
    shift: NDArray[np.uint64]
    more: NDArray[np.uint8]

    @classmethod
    def of(cls, make: Callable[[int, int], bytes]) -> _Form:
        """``make`` gives the bytes with an i64 and an i32 in place of all numbers.

        It is called twice, with numbers whose varints have the largest width and differ in every
        byte. So the numbers lie where the two results differ.
        """
        one, other = (np.frombuffer(make(*each), np.uint8) for each in _MARKS)
        place = np.flatnonzero(one != other)
        first = np.flatnonzero(np.diff(place, prepend=-2) > 1)
        number = np.searchsorted(first, np.arange(len(place)), side="right") - 1
        shift = 7 * (np.arange(len(place)) - first[number])
        more = np.full(len(place), 0x80, np.uint8)
        more[[*(first[1:] - 1), -1]] = 0
        return cls(one, place, number, shift.astype(np.uint64), more)

    def filled(self, numbers: NDArray[np.int64]) -> bytes:
        """One copy for each row of ``numbers``, int64 (R, holes)."""
        raw = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        out = np.tile(self.data, (len(numbers), 1))
        out[:, self.place] = (raw[:, self.number] >> self.shift) & np.uint64(0x7F)
        out[:, self.place] |= self.more
        return out.tobytes()


def _mark(bits: int, top: int) -> tuple[int, int]:
    low = [bits << 7 * at for at in range(9)]
    return sum(low) >> 1, (sum(low[:4]) | top << 28) >> 1


_MARKS: Final = (_mark(0x2A, 2), _mark(0x54, 4))


@dataclass(frozen=True, slots=True, eq=False)
class ArrowFrame:
    """A footer without its row groups; ``leaves`` are the ordinals of its columns in the file."""

    leaves: tuple[int, ...]
    head: _Form
    group: _Form
    rest: bytes

    @classmethod
    def of(
        cls,
        elements: tuple[SchemaElement, ...],
        columns: Sequence[tuple[Type, tuple[str, ...]]],
        leaves: tuple[int, ...],
        *,
        key_values: tuple[KeyValue, ...] | None = None,
        created_by: str | None = None,
    ) -> ArrowFrame:
        """``columns`` are types and paths of the leaves of ``elements``."""
        bare = FileMetaData(version=2, schema=elements, num_rows=0, row_groups=())
        whole = replace(bare, key_value_metadata=key_values, created_by=created_by)

        # The list of row groups ends with its size, and then comes the end of the struct.
        return cls(
            leaves,
            _Form.of(lambda wide, narrow: replace(bare, num_rows=wide).to_bytes()[:-2]),
            _Form.of(lambda wide, narrow: _row_group(columns, wide, narrow).to_bytes()),
            whole.to_bytes()[len(bare.to_bytes()) - 1 :],
        )

    def footer_of(self, chunks: ArrowChunks) -> bytes:
        """The footer with these chunks."""
        count = len(chunks.rows)
        numbers = chunks.numbers.copy()
        numbers[:, :, _DICTIONARY] = np.maximum(numbers[:, :, _DICTIONARY], 0)
        decoded = numbers[:, :, _DECODED].sum(axis=1)
        every = [
            numbers.reshape(count, 6 * numbers.shape[1]),
            np.stack([decoded, chunks.rows], axis=1),
        ]
        size = Writer()
        size.list_head(STRUCT, count)
        head = self.head.filled(chunks.rows.sum().reshape(1, 1))
        groups = self.group.filled(np.concatenate(every, axis=1))
        return b"".join([head, bytes(size.out), groups, self.rest])


def _row_group(columns: Sequence[tuple[Type, tuple[str, ...]]], wide: int, narrow: int) -> RowGroup:
    def chunk(type: Type, path: tuple[str, ...]) -> ColumnChunk:
        meta = ColumnMetaData(
            type=type,
            encodings=_ENCODINGS,
            path_in_schema=path,
            codec=narrow,
            num_values=wide,
            total_uncompressed_size=wide,
            total_compressed_size=wide,
            data_page_offset=wide,
            dictionary_page_offset=wide,
        )
        return ColumnChunk(file_offset=0, meta_data=meta)

    chunks = tuple([chunk(type, path) for type, path in columns])
    return RowGroup(columns=chunks, total_byte_size=wide, num_rows=wide)
