"""The columns of one file as Arrow decodes them, row group by row group, for a build.

A value lies in structs, lists and maps: ``DecodedLeaf`` says where. Strings with dictionary-encoded
pages are read as dictionaries. A row group that does not fit into the memory is read in batches.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skipstone._dataclasses import dataclass
from skipstone.parquet.format.enums import Type
from skipstone.predicate.types import TIMESTAMP, MapKey, column_name, is_list
from skipstone.pruning.column_types import values_of_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.reading.arrow_footer import ArrowColumns
    from skipstone.parquet.reading.file_reader import FileReader
    from skipstone.parquet.reading.selection import Selection


# Writers whose dictionaries have no entry twice. From others, Arrow (as of 26) reads wrong values
# with ``read_dictionary``. DuckDB writes the unused values of an ENUM as empty texts, but then its
# greatest index is beyond what Arrow keeps, which is an error.
_DISTINCT_DICTIONARIES = (
    *("parquet-mr", "parquet-cpp", "parquet-rs", "datafusion", "Polars", "skipstone", "DuckDB"),
)
# The bytes of a decoded value of a type without a fixed width.
_WIDTH = 16


@dataclass(frozen=True, slots=True)
class DecodedLeaf:
    """A leaf column: the position of its values in what Arrow reads, its ordinal in the file, its
    physical type. The values of a list are its elements; a map is read whole.

    ``key`` is the key of the map, if the column is the value of one: the values are then maps.
    """

    position: tuple[int, ...]
    ordinal: int
    type: Type
    key: MapKey | None = None

    @property
    def name(self) -> str:
        """Arrow's path of the values."""
        return ".".join(map(str, self.position))


def nodes_of(path: tuple[str, ...]) -> tuple[str, ...]:
    """The path without the key of a map."""
    return tuple([part for part in path if not isinstance(part, MapKey)])


def is_atomic(selection: Selection, path: tuple[str, ...]) -> bool:
    """Whether the path names one leaf, a list of one, a map with one leaf of values, or a key of
    it."""
    node = selection.node(nodes_of(path))
    count = node.stop_leaf - node.first_leaf
    if node.is_map or isinstance(path[-1], MapKey):
        return count == 2
    if node.is_list:
        # Arrow gives INT96 in lists in other units.
        return count == 1 and selection.tree.leaves[node.first_leaf].type is not Type.INT96
    return bool(node.is_leaf)


def leaf_of(columns: ArrowColumns, path: tuple[str, ...]) -> DecodedLeaf:
    """The leaf of an atomic path."""
    last = path[-1]
    ordinal = columns.selection.node(nodes_of(path)).stop_leaf - 1
    return DecodedLeaf(
        position=columns.position(nodes_of(path)),
        ordinal=ordinal,
        type=columns.footer.schema.leaves[ordinal].type,
        key=last if isinstance(last, MapKey) else None,
    )


def decoded(
    source: BinaryIO, columns: ArrowColumns, leaves: dict[str, DecodedLeaf], room: int
) -> Iterator[tuple[str, pa.Array]]:
    """The columns of the leaves, piece by piece in file order; about ``room`` bytes at a time."""
    if not leaves:
        return
    footer = columns.footer
    paying = {leaf.name for leaf in leaves.values() if _dictionary_pays(footer, leaf)}
    schema = columns.metadata.schema
    named = [schema.column(at).path for at in range(len(schema)) if paying]
    # The name of a list's values is within the list.
    repetitive = [
        name for name in named if not paying.isdisjoint(accumulate(name.split("."), "{}.{}".format))
    ]
    sizes = _decoded_sizes(footer, leaves)
    parquet = pq.ParquetFile(
        source,
        metadata=columns.metadata,
        read_dictionary=repetitive,
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
        # Whole column chunks where they fit, else a moving window.
        buffer_size=0 if max(sizes, default=0) <= room else 1 << 20,
    )
    for group, (size, rows) in enumerate(
        zip(sizes, footer.group("num_rows").tolist(), strict=True)
    ):
        if size <= room:
            pieces = iter([parquet.read_row_group(group, use_threads=False)])
        else:
            pieces = parquet.iter_batches(
                batch_size=max(1_024, rows * room // (size + 1)),
                row_groups=[group],
                use_threads=False,
            )
        for piece in pieces:
            for column, leaf in leaves.items():
                values = piece.column(leaf.position[0])
                chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
                yield from ((column, chunk) for chunk in chunks)


def decoded_here(
    file: FileReader, paths: dict[str, tuple[str, ...]]
) -> Iterator[tuple[str, pa.Array]]:
    """The columns of these paths, one after the other, decoded by ``file`` instead of Arrow."""
    for column, path in paths.items():
        yield from ((column, batch.column(0)) for batch in file.iter_rows([column_name(path)]))


def leaf_values(chunk: pa.Array, leaf: DecodedLeaf) -> pa.Array:
    """The values of a leaf in a chunk of its column."""
    # A value is null where any struct above it is null.
    values = pc.struct_field(chunk, leaf.position[1:]) if leaf.position[1:] else chunk
    if leaf.key is not None:
        values = values_of_key(values, leaf.key)
    if is_list(values.type):
        values = pc.list_flatten(values)
    # INT96: Arrow gives a time without zone, Spark an instant.
    return values.view(TIMESTAMP) if leaf.type is Type.INT96 else values


def _dictionary_pays(footer: FooterArrays, leaf: DecodedLeaf) -> bool:
    """True where most pages of a string column hold dictionary indices.

    The footer may count the pages by encoding. If it does not: a plain value takes at least the 4
    bytes of its length, so pages with fewer bytes per value are not plain.
    """
    if leaf.type is not Type.BYTE_ARRAY or leaf.key is not None:
        return False
    if not (footer.created_by or "").startswith(_DISTINCT_DICTIONARIES):
        return False
    if (footer.chunk("dictionary_page_offset")[:, leaf.ordinal] <= 0).any():
        return False
    if (footer.chunk("dict_only")[:, leaf.ordinal] == 1).all():
        return True
    size: int = sum(footer.chunk("total_uncompressed_size")[:, leaf.ordinal].tolist())
    values: int = sum(footer.chunk("num_values")[:, leaf.ordinal].tolist())
    return 0 < size < 4 * values


def _decoded_sizes(footer: FooterArrays, leaves: dict[str, DecodedLeaf]) -> list[int]:
    """Estimates the bytes of the leaves of each row group, decoded and during decoding."""
    at = sorted({leaf.ordinal for leaf in leaves.values()})
    plain, values = footer.chunk("total_uncompressed_size"), footer.chunk("num_values")
    return [
        sum(2 * size + _WIDTH * count for size, count in zip(sizes, counts, strict=True))
        for sizes, counts in zip(plain[:, at].tolist(), values[:, at].tolist(), strict=True)
    ]
