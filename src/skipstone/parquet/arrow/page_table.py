"""The pages of a file as an Arrow table, from an index or from page headers.

``PagesOf`` describes the pages of one column chunk, one entry per page. An index knows their
places, rows and bounds; page headers know all the rest. An unknown field is ``None`` for all pages,
or -1 (``None`` for bounds and checksums) for one page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from skipstone.parquet.format.enums import Encoding, PageType

from .metadata_tables import names, numbers, shown, texts_by_leaf

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skipstone.parquet.format.page_index import ColumnIndexArrays, OffsetIndexArrays
    from skipstone.parquet.format.schema import Leaf
    from skipstone.parquet.pages.page import Page


_NUMBERS = (
    "offset",
    "compressed_size",
    "header_size",
    "uncompressed_page_size",
    "num_values",
    "first_row_index",
    "num_rows",
    "null_count",
    "nan_count",
    "unencoded_byte_array_data_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PagesOf:
    """Pages of the chunk of ``leaf`` in ``row_group``; sequences of one entry per page.

    ``compressed_size`` is the size of a page in the file, header included; ``page_type`` and
    ``encoding`` are numbers of their enumerations; ``crc`` is the i32 of the header;
    ``first_row_index`` counts from the first row of the row group.
    """

    row_group: int
    leaf: Leaf
    offset: Sequence[int]
    compressed_size: Sequence[int]
    page_type: Sequence[int] | None = None
    encoding: Sequence[int] | None = None
    header_size: Sequence[int] | None = None
    uncompressed_page_size: Sequence[int] | None = None
    num_values: Sequence[int] | None = None
    first_row_index: Sequence[int] | None = None
    num_rows: Sequence[int] | None = None
    null_count: Sequence[int] | None = None
    nan_count: Sequence[int] | None = None
    unencoded_byte_array_data_bytes: Sequence[int] | None = None
    null_page: Sequence[bool] | None = None
    min_value: Sequence[bytes | None] | None = None
    max_value: Sequence[bytes | None] | None = None
    crc: Sequence[int | None] | None = None

    @classmethod
    def from_index(
        cls,
        row_group: int,
        leaf: Leaf,
        num_rows: int,
        offset_index: OffsetIndexArrays,
        column_index: ColumnIndexArrays | None = None,
    ) -> Self:
        """The data pages of a row group of ``num_rows`` rows, from the page index.

        The bounds of null pages are placeholders and left out.
        """
        known: dict[str, Any] = {}
        if column_index is not None:
            null = column_index.null_pages.tolist()
            known = {"null_page": null, "null_count": column_index.null_counts}
            known["nan_count"] = column_index.nan_counts
            for side in ("min_value", "max_value"):
                bounds = getattr(column_index, f"{side}s")
                known[side] = [
                    None if is_null else value for is_null, value in zip(null, bounds, strict=True)
                ]
        return cls(
            row_group=row_group,
            leaf=leaf,
            offset=offset_index.offset.tolist(),
            compressed_size=offset_index.compressed_page_size.tolist(),
            first_row_index=offset_index.first_row_index.tolist(),
            num_rows=offset_index.rows(num_rows).tolist(),
            unencoded_byte_array_data_bytes=_list(offset_index.unencoded_byte_array_data_bytes),
            **{name: _list(value) for name, value in known.items()},
        )

    @classmethod
    def from_pages(cls, row_group: int, leaf: Leaf, walked: Iterable[Page]) -> Self:
        """All pages of a chunk, from their headers; dictionary and unknown pages included.

        Rows are known for v2 pages, and for all pages of a leaf that is not repeated.
        """
        found = list(walked)
        v2 = [page.type == PageType.DATA_PAGE_V2 for page in found]
        flat = not leaf.max_repetition_level
        data = [page.ordinal >= 0 for page in found]
        holding = [
            (page, is_data or page.type == PageType.DICTIONARY_PAGE)
            for page, is_data in zip(found, data, strict=True)
        ]
        rows = [
            page.num_rows if is_v2 else (page.num_values if flat and is_data else -1)
            for page, is_v2, is_data in zip(found, v2, data, strict=True)
        ]
        firsts: list[int] = []
        first = 0
        for count, is_data in zip(rows, data, strict=True):
            firsts.append(first if is_data else -1)
            # After the first page whose row count only its levels tell, row numbers are unknown.
            if is_data:
                first = first + count if first >= 0 and count >= 0 else -1
        return cls(
            row_group=row_group,
            leaf=leaf,
            offset=[page.offset for page in found],
            compressed_size=[page.header_length + len(page.body) for page in found],
            page_type=[int(page.type) for page in found],
            encoding=[page.encoding if values else -1 for page, values in holding],
            header_size=[page.header_length for page in found],
            uncompressed_page_size=[page.uncompressed_page_size for page in found],
            num_values=[page.num_values if values else -1 for page, values in holding],
            first_row_index=firsts,
            num_rows=rows,
            null_count=[
                page.num_nulls if is_v2 else -1 for page, is_v2 in zip(found, v2, strict=True)
            ],
            crc=[page.crc for page in found],
        )


def _list(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _joined(parts: Sequence[PagesOf], name: str, absent: Any) -> list[Any]:
    joined: list[Any] = []
    for part in parts:
        values = getattr(part, name)
        joined += [absent] * len(part.offset) if values is None else list(values)
    return joined


def pages(parts: Iterable[PagesOf]) -> pa.Table:
    """One row per page, in the order given."""
    parts = list(parts)
    counts = [len(part.offset) for part in parts]
    leaves, ordinals = _leaves(parts, counts)
    table: dict[str, pa.Array] = {
        "row_group": pa.array(np.repeat([part.row_group for part in parts], counts), pa.int32()),
        "leaf": pa.array(ordinals, pa.int32()),
        "column": pa.array(
            [
                shown(part.leaf.name)
                for part, n in zip(parts, counts, strict=True)
                for _ in range(n)
            ],
            pa.string(),
        ),
        "page": pa.array([at for n in counts for at in range(n)], pa.int32()),
        "page_type": names(np.array(_joined(parts, "page_type", -1), np.int64), PageType),
        "encoding": names(np.array(_joined(parts, "encoding", -1), np.int64), Encoding),
    }
    for name in _NUMBERS:
        table[name] = numbers(np.array(_joined(parts, name, -1), np.int64))
    table["null_page"] = pa.array(_joined(parts, "null_page", None), pa.bool_())
    for side in ("min", "max"):
        bounds = pa.array(_joined(parts, f"{side}_value", None), pa.binary())
        table[f"{side}_value"] = bounds
        table[f"{side}_text"] = texts_by_leaf(bounds, ordinals, leaves)
    table["crc"] = pa.array(_joined(parts, "crc", None), pa.int32())
    return pa.table(table)


def _leaves(parts: Sequence[PagesOf], counts: Sequence[int]) -> tuple[list[Leaf | None], Any]:
    ordinals = [part.leaf.ordinal for part in parts]
    found: list[Leaf | None] = [None] * (max(ordinals, default=-1) + 1)
    for part in parts:
        found[part.leaf.ordinal] = part.leaf
    return found, np.repeat(np.array(ordinals, np.int64), counts)
