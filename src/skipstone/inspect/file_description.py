"""``FileInspection``: the content of a Parquet file, as JSON and as text.

``to_dict()`` is one JSON-ready document with the field names of parquet.thrift: ``metadata`` is
``FileMetaData``; with ``pages``, each chunk has its page headers, ``OffsetIndex``, ``ColumnIndex``,
``BloomFilterHeader`` and the roots of its index pages. Bytes are hex; each bound also has its
meaning as ``…_text``. The text output shortens long lists and states how much it left out.
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.human import Report, aligned, cut, of_total, plural, size
from skipstone.parquet.arrow import metadata_tables as tables
from skipstone.parquet.format.enums import FieldRepetitionType
from skipstone.parquet.reading.file_reader import names_its_file

from .inspection import InspectionReport, indented, more

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from skipstone.parquet.encryption.open_footer import EncryptionDescription
    from skipstone.parquet.format.footer import Tail
    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.schema import ColumnDescriptor, Node
    from skipstone.parquet.reading.verify import Verification


#: what a chunk may have besides its pages, as fields of ``ChunkInspection``
CHUNK_PARTS: Final = ("offset_index", "column_index", "bloom_filter_header", "index_pages")

_MOST = 60
_WIDEST = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkInspection(Report):
    """The pages and indexes of one column chunk, JSON-ready; ``trouble`` has the errors."""

    row_group: int
    column: str
    page_headers: tuple[Mapping[str, Any], ...] = ()
    offset_index: Mapping[str, Any] | None = None
    column_index: Mapping[str, Any] | None = None
    bloom_filter_header: Mapping[str, Any] | None = None
    index_pages: Mapping[str, Any] | None = None
    trouble: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"row_group": self.row_group, "column": self.column}
        found["page_headers"] = [dict(each) for each in self.page_headers]
        for name in CHUNK_PARTS:
            value = getattr(self, name)
            if value is not None:
                found[name] = dict(value)
        if self.trouble:
            found["trouble"] = list(self.trouble)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInspection(InspectionReport):
    """See the module. ``arrays`` is ``None`` if the footer is encrypted and cannot be read.

    ``leaves`` are the selected columns; ``chunks`` is set with ``pages``, ``verification`` with
    ``verify``; ``rows`` are the first rows.
    """

    path: str
    size: int
    tail: Tail
    arrays: FooterArrays | None
    leaves: tuple[ColumnDescriptor, ...] = ()
    encryption: EncryptionDescription | None = None
    chunks: tuple[ChunkInspection, ...] | None = None
    verification: Verification | None = None
    rows: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """False if ``verify`` found a problem."""
        return self.verification is None or self.verification.ok

    @names_its_file
    def row_groups(self) -> pa.Table:
        """``tables.row_groups``."""
        assert self.arrays is not None
        return tables.row_groups(self.arrays)

    @names_its_file
    def chunk_table(self) -> pa.Table:
        """``tables.chunks`` of the selected columns."""
        import pyarrow as pa
        import pyarrow.compute as pc

        assert self.arrays is not None
        whole = tables.chunks(self.arrays)
        if len(self.leaves) == self.arrays.num_leaves:
            return whole
        wanted = pa.array([leaf.ordinal for leaf in self.leaves], pa.int32())
        return whole.filter(pc.is_in(whole["leaf"], wanted))

    @names_its_file
    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "path": self.path,
            "format": "parquet",
            "size": self.size,
            "footer": {
                "offset": self.tail.offset,
                "length": self.tail.length,
                "magic": self.tail.magic.decode(),
            },
        }
        if self.encryption is not None:
            found["encryption"] = self.encryption.to_dict()
        if self.arrays is not None:
            found["metadata"] = self._metadata(self.arrays)
        if self.chunks is not None:
            found["chunks"] = [each.to_dict() for each in self.chunks]
        if self.verification is not None:
            found["verification"] = self.verification.to_dict()
        found["rows_shown"] = [dict(row) for row in self.rows]
        found["notes"] = list(self.notes)
        return found

    def _metadata(self, arrays: FooterArrays) -> dict[str, Any]:
        """``FileMetaData`` with the chunks of the selected columns, and their bounds as text."""
        found = arrays.metadata.to_dict()
        texts = self.chunk_table().select(["min_text", "max_text"]).to_pylist()
        wanted = [leaf.ordinal for leaf in self.leaves]
        at = 0
        for group in found["row_groups"]:
            group["columns"] = [group["columns"][ordinal] for ordinal in wanted]
            for chunk in group["columns"]:
                statistics = chunk.get("meta_data", {}).get("statistics")
                for name, text in texts[at].items():
                    if statistics is not None and text is not None:
                        statistics[name] = text
                at += 1
        return found

    @names_its_file
    def __str__(self) -> str:
        return _text(self)


def _text(found: FileInspection) -> str:
    parts = [_head(found)]
    if found.encryption is not None:
        parts.append(_encryption(found))
    if found.arrays is not None:
        parts += [_schema(found.arrays), _columns(found, found.arrays), _row_groups(found)]
    for chunk in found.chunks or ():
        parts.append(_pages(chunk))
    if found.rows:
        parts.append(_rows(found.rows))
    parts += [f"note: {note}" for note in found.notes]
    if found.verification is not None:
        # Last, so that it stays visible at the end of a long output.
        parts.append(f"verification\n{indented(str(found.verification))}")
    return "\n\n".join(parts)


def _head(found: FileInspection) -> str:
    tail, arrays = found.tail, found.arrays
    lines = [
        ("size", size(found.size)),
        ("footer", f"{size(tail.length)} at byte {tail.offset:,}"
         + (", encrypted" if tail.encrypted else "")),
    ]  # fmt: skip
    if arrays is not None:
        groups = plural(arrays.num_row_groups, "row group")
        lines.append(("rows", f"{int(arrays.row_starts[-1]):,} in {groups}"))
        if arrays.num_rows != arrays.row_starts[-1]:
            lines.append(("footer says", plural(arrays.num_rows, "row")))
        lines.append(("columns", f"{arrays.num_leaves:,}"))
        lines.append(("version", str(arrays.version)))
        if arrays.created_by:
            lines.append(("created by", arrays.created_by))
        lines += _indexes(arrays)
        for pair in arrays.key_value_metadata or ():
            value = pair.value or ""
            shown = value if len(value) <= _MOST else f"{len(value):,} characters"
            lines.append((f"metadata {pair.key}", shown))
    return f"parquet   {found.path}\n{indented(aligned(lines))}"


def _indexes(arrays: FooterArrays) -> list[tuple[str, str]]:
    chunks = arrays.num_row_groups * arrays.num_leaves
    lines = []
    for name, title in (
        ("offset_index", "offset index"),
        ("column_index", "column index"),
        ("bloom_filter", "bloom filters"),
    ):
        there = arrays.chunk(f"{name}_offset") >= 0
        count = int(np.count_nonzero(there))
        said = f"{of_total(count, chunks, 'chunks')}"
        if count:
            lengths = arrays.chunk(f"{name}_length")[there]
            if (lengths >= 0).all():
                said += f", {size(int(lengths.sum()))}"
            if name == "bloom_filter":
                leaves = np.flatnonzero(there.any(axis=0))[:8].tolist()
                said += f", on {', '.join(arrays.schema.leaves[leaf].name for leaf in leaves)}"
        lines.append((title, said))
    trees = int(np.count_nonzero(arrays.chunk("index_page_offset") > 0))
    if trees:
        lines.append(("index pages", f"{of_total(trees, chunks, 'chunks')}"))
    return lines


def _encryption(found: FileInspection) -> str:
    assert found.encryption is not None
    described = found.encryption.to_dict()
    columns = described.pop("columns", None)
    lines = [(name.replace("_", " "), _cell(value)) for name, value in described.items()]
    body = aligned(lines)
    if columns:
        heads = ["column", "key", "key label", "readable"]
        rows = [
            [each["column"], each["key"], _cell(each["key_label"]),
             "yes" if each["unavailable"] is None else "no"]
            for each in columns[:_MOST]
        ]  # fmt: skip
        body += "\n\n" + aligned([heads, *rows]) + more(len(columns), _MOST, "encrypted columns")
    return f"encryption\n{indented(body)}"


def _schema(arrays: FooterArrays) -> str:
    nodes = list(arrays.schema.root.walk())[1:]
    lines = []
    for node in nodes[:_MOST]:
        indent = "  " * (len(node.path) - 1)
        lines.append((f"{indent}{node.name}", *_described(node)))
    return (
        f"schema\n{indented(aligned(lines))}{more(len(nodes), _MOST, 'fields')}"
        if lines
        else "schema"
    )


def _described(node: Node) -> tuple[str, str, str]:
    element = node.element
    kind = "group" if element.type is None else getattr(element.type, "name", str(element.type))
    if element.type_length and element.type is not None:
        kind += f"({element.type_length})"
    logical = ""
    if element.logicalType is not None:
        logical = element.logicalType.name or "unknown logical type"
        details = element.logicalType.to_dict().get(logical)
        if details:
            shown = ", ".join(f"{name}={_cell(value)}" for name, value in details.items())
            logical += f"({shown})"
    elif element.converted_type is not None:
        logical = str(getattr(element.converted_type, "name", element.converted_type))
    repetition = node.repetition
    shown = "" if repetition is FieldRepetitionType.OPTIONAL else repetition.name.lower()
    if element.field_id is not None:
        logical = f"{logical}  id {element.field_id}".strip()
    return kind, shown, logical


def _columns(found: FileInspection, arrays: FooterArrays) -> str:
    import pyarrow.compute as pc

    chunks = found.chunk_table()
    heads = ["column", "codec", "encodings", "stored", "plain", "values", "nulls", "min", "max"]
    rows = []
    for leaf in found.leaves[:_MOST]:
        at = leaf.ordinal
        if not (arrays.chunk("has_meta_data")[:, at] == 1).all():
            rows.append([leaf.name, "encrypted", *[""] * 7])
            continue
        table = chunks.filter(pc.equal(chunks["leaf"], at))
        nulls = arrays.chunk("null_count")[:, at]
        known = bool((nulls >= 0).all())
        rows.append(
            [
                leaf.name,
                ", ".join(_distinct(table["codec"])),
                ", ".join(_distinct(table["encodings"])),
                size(int(arrays.chunk("total_compressed_size")[:, at].sum())),
                size(int(arrays.chunk("total_uncompressed_size")[:, at].sum())),
                f"{int(arrays.chunk('num_values')[:, at].sum()):,}",
                f"{int(nulls.sum()):,}" if known else "-",
                _range(table["min_text"]),
                _range(table["max_text"]),
            ]
        )
    shown = aligned([heads, *rows], numbers=(3, 4, 5, 6))
    only = arrays.num_row_groups != 1
    title = "columns (min and max of the first row group that has them)" if only else "columns"
    return f"{title}\n{indented(shown)}{more(len(found.leaves), _MOST, 'columns')}"


def _distinct(column: pa.ChunkedArray) -> list[str]:
    found: dict[str, None] = {}
    for value in column.to_pylist():
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                found.setdefault(each)
    return list(found)


def _range(column: pa.ChunkedArray) -> str:
    return _cut(next((value for value in column.to_pylist() if value is not None), "-"))


def _row_groups(found: FileInspection) -> str:
    rows = found.row_groups().to_pylist()
    heads = ["row group", "first row", "rows", "stored", "plain", "sorted by"]
    cells = [
        [
            str(row["row_group"]),
            f"{row['first_row']:,}",
            f"{row['num_rows']:,}",
            "-" if row["total_compressed_size"] is None else size(row["total_compressed_size"]),
            "-" if row["total_byte_size"] is None else size(row["total_byte_size"]),
            _sorted(row["sorting_columns"]),
        ]
        for row in rows[:_MOST]
    ]
    shown = aligned([heads, *cells], numbers=(0, 1, 2, 3, 4))
    return f"row groups\n{indented(shown)}{more(len(rows), _MOST, 'row groups')}"


def _sorted(columns: Sequence[Mapping[str, Any]] | None) -> str:
    if not columns:
        return "-"
    return ", ".join(
        f"{each['column']}{' descending' if each['descending'] else ''}"
        f" nulls {'first' if each['nulls_first'] else 'last'}"
        for each in columns
    )


def _pages(chunk: ChunkInspection) -> str:
    heads = ["page", "type", "offset", "stored", "plain", "values", "first row", "encoding",
             "nulls", "min", "max", "crc"]  # fmt: skip
    offsets = (chunk.offset_index or {}).get("page_locations", ())
    first_rows = {each["offset"]: each["first_row_index"] for each in offsets}
    index = chunk.column_index or {}
    rows, data = [], 0
    for at, header in enumerate(chunk.page_headers[:_MOST]):
        kind = str(header["type"])
        own = (value for name, value in header.items() if name.endswith(("_header", "_header_v2")))
        one: Mapping[str, Any] = next(own, {})
        is_data = kind.startswith("DATA_PAGE")
        entry = data if is_data else -1
        data += is_data
        first = first_rows.get(header["offset"])
        rows.append(
            [
                str(at),
                kind,
                f"{header['offset']:,}",
                size(header["header_length"] + header["compressed_page_size"]),
                size(header["uncompressed_page_size"]),
                f"{one['num_values']:,}" if "num_values" in one else "-",
                f"{first:,}" if first is not None else "-",
                str(one.get("encoding", "-")),
                _entry(index.get("null_counts"), entry),
                _entry(index.get("min_texts"), entry),
                _entry(index.get("max_texts"), entry),
                "yes" if "crc" in header else "-",
            ]
        )
    title = f"pages of {chunk.column}, row group {chunk.row_group}"
    if "boundary_order" in index:
        title += f" (boundary order {index['boundary_order']})"
    body = aligned([heads, *rows], numbers=(0, 2, 3, 4, 5, 6, 8)) if rows else "no pages"
    shown = f"{title}\n{indented(body)}{more(len(chunk.page_headers), _MOST, 'pages')}"
    if chunk.bloom_filter_header is not None:
        shown += f"\n  bloom filter of {size(chunk.bloom_filter_header['numBytes'])}"
    for name, root in (chunk.index_pages or {}).items():
        kind = "keys" if "min_value" in root else "ordinals"
        after = ", after it" if name == "ordinals" else ""
        shown += f"\n  root of index pages{after}: {len(root['page_offset']):,} {kind}"
    return shown + "".join(f"\n  trouble: {each}" for each in chunk.trouble)


def _entry(values: Sequence[Any] | None, at: int) -> str:
    if values is None or not 0 <= at < len(values) or values[at] is None:
        return "-"
    return f"{values[at]:,}" if isinstance(values[at], int) else _cut(str(values[at]))


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    shown = [
        aligned([[name, _cut(_top(value), 100)] for name, value in row.items()]) for row in rows
    ]
    return "first rows\n" + "\n\n".join(map(indented, shown))


def _top(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else _value(value)


def _value(value: Any) -> str:
    """A value of a row as JSON, but without quotes around field names."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_value(each)}' for name, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        # Members of a union are often empty structs: only the name matters.
        inner = [
            str(name) if each == {} else f"{name}={_cell(each)}" for name, each in value.items()
        ]
        return ", ".join(inner)
    return str(value)


def _cut(value: str, widest: int = _WIDEST) -> str:
    return cut(value.replace("\n", " "), widest)
