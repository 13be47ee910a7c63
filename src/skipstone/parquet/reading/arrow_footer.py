"""Some columns of a file as Arrow decodes them, with a footer that is encoded from checked values.

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
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import UnsupportedError
from skipstone.parquet.arrow.arrow_types import ShapeKind
from skipstone.parquet.format.enums import Encoding
from skipstone.parquet.format.footer import MAGIC, TAIL_LENGTH
from skipstone.parquet.format.metadata import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    KeyValue,
    RowGroup,
    SchemaElement,
)
from skipstone.parquet.format.schema import arrow_name

from .row_ranges import check_row_counts
from .selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from skipstone.parquet.arrow.arrow_types import Shape
    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.schema import Node

    from .selection import SelectedField


# Arrow wants a list; what the pages use is in their headers.
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
        """For ``pyarrow.parquet.ParquetFile`` over the bytes of the file."""
        made = self._made().to_bytes()
        whole = MAGIC + made + len(made).to_bytes(4, "little") + MAGIC
        return pq.read_metadata(pa.py_buffer(whole))

    def _made(self) -> FileMetaData:
        footer = self.footer
        elements = [SchemaElement(name="schema", num_children=len(self.fields))]
        leaves: list[int] = []
        paths: list[tuple[str, ...]] = []
        for at, field in enumerate(self.fields):
            for node, element, path in _elements(field.shape.node, field.shape, (str(at),)):
                elements.append(element)
                if node.is_leaf:
                    leaves.append(node.first_leaf)
                    paths.append(path)
        self._require_here(leaves)
        columns = [_chunks(footer, leaf, path) for leaf, path in zip(leaves, paths, strict=True)]
        groups = [
            RowGroup(columns=chunks, total_byte_size=size, num_rows=rows)
            for chunks, size, rows in zip(
                zip(*columns, strict=True) if columns else [()] * footer.num_row_groups,
                footer.chunk("total_uncompressed_size")[:, leaves].sum(axis=1).tolist(),
                footer.group("num_rows").tolist(),
                strict=True,
            )
        ]
        return FileMetaData(
            version=2,
            schema=tuple(elements),
            num_rows=int(footer.row_starts[-1]),
            row_groups=tuple(groups),
            key_value_metadata=self._types() if self.selection.typed else None,
            created_by=footer.created_by,
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
        schema = pa.schema([field.field for field in self.fields]).remove_metadata()
        text = base64.b64encode(schema.serialize().to_pybytes()).decode()
        return (KeyValue(key="ARROW:schema", value=text),)


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


def _chunks(footer: FooterArrays, leaf: int, path: tuple[str, ...]) -> list[ColumnChunk]:
    """The chunks of a leaf, in all row groups."""

    def values(field: str) -> list[int]:
        found: list[int] = footer.chunk(field)[:, leaf].tolist()
        return found

    type_ = footer.schema.leaves[leaf].type
    places: Any = zip(
        values("codec"),
        values("num_values"),
        values("total_uncompressed_size"),
        values("total_compressed_size"),
        values("data_page_offset"),
        values("dictionary_page_offset"),
        strict=True,
    )
    return [
        ColumnChunk(
            file_offset=0,
            meta_data=ColumnMetaData(
                type=type_,
                encodings=_ENCODINGS,
                path_in_schema=path,
                codec=codec,
                num_values=count,
                total_uncompressed_size=plain,
                total_compressed_size=stored,
                data_page_offset=data,
                dictionary_page_offset=dictionary if dictionary > 0 else None,
            ),
        )
        for codec, count, plain, stored, data, dictionary in places
    ]
