"""A ``_pm`` for any Parquet file, from its footer alone.

One column per leaf; name, field id and repetition are those of the field of the root above it. IDs
and types come from the JSON under ``questdb`` where there is one, else from the field ids and
``infer``. Sorting columns are those that the row groups agree on.

The **designated timestamp** is the one that the JSON flags, or else the first sorting column where
it is an ascending timestamp. In both cases it must be a column of the root that is REQUIRED; where
the JSON flags another, none is designated and nothing is said of the order.

Statistics are ``min_value`` and ``max_value`` verbatim; the deprecated ``min`` and ``max`` are left
alone, and so are those that are too long for a ``_pm``. Statistics and filters of an encrypted
column are left out unless they are asked for: the ``_pm`` is not encrypted.

Bloom filters need bytes of the file: ``bloom_places`` says which.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import Encoding, FieldRepetitionType
from skipstone.parquet.format.page_header import BloomFilterHeader
from skipstone.parquet.format.schema import Leaf, Schema
from skipstone.parquet.thrift.compact import Reader

from .layout import (
    COLUMN_DESCENDING,
    COLUMN_IS_ASCII,
    COLUMN_LOCAL_KEY_IS_GLOBAL,
    FIELD_REPETITION_SHIFT,
    MAX_OUT_OF_LINE,
)
from .questdb_json import KEY, QdbMeta
from .type_inference import infer, is_timestamp, order_is_told
from .types import UNKNOWN, ColumnType, Tag
from .values import Bloom, PmChunk, PmColumn, PmHead, PmRowGroup
from .writer import PmFooter, write

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from skipstone.parquet.format.footer import Tail
    from skipstone.parquet.format.metadata import (
        ColumnMetaData,
        ColumnOrder,
        FileMetaData,
        KeyValue,
        SortingColumn,
    )
    from skipstone.parquet.format.metadata import RowGroup as ParquetRowGroup

__all__ = [
    "ENCODING_BITS",
    "HEADER_BYTES",
    "BloomPlace",
    "Converted",
    "PmColumns",
    "bloom_of",
    "bloom_places",
    "convert",
    "doubtful_leaves",
]

#: What to do with filters: their bitsets into the _pm, or where they lie in the Parquet file.
BloomMode: TypeAlias = Literal["inlined", "external"]

#: ENCODINGS of a chunk: the bit of each encoding of Parquet.
ENCODING_BITS: Final[dict[int, int]] = {
    Encoding.PLAIN: 1 << 0,
    Encoding.PLAIN_DICTIONARY: 1 << 1,
    Encoding.RLE_DICTIONARY: 1 << 1,
    Encoding.DELTA_BINARY_PACKED: 1 << 2,
    Encoding.DELTA_LENGTH_BYTE_ARRAY: 1 << 3,
    Encoding.DELTA_BYTE_ARRAY: 1 << 4,
    Encoding.BYTE_STREAM_SPLIT: 1 << 5,
}
#: No header of a bloom filter is longer.
HEADER_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class BloomPlace:
    """Where the filter of a leaf in a row group lies in the Parquet file, its header included."""

    row_group: int
    leaf: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What a footer gives: the values of a ``_pm`` of one snapshot."""

    head: PmHead
    row_groups: tuple[PmRowGroup, ...]
    footer: PmFooter

    def to_bytes(self) -> bytes:
        """The file, in the order that QuestDB gives to a converted one."""
        return write(self.head, self.row_groups, self.footer, by_column=True)


def bloom_places(metadata: FileMetaData) -> tuple[BloomPlace, ...]:
    """The filters whose offset and length the footer tells. For "external" their first
    ``HEADER_BYTES`` bytes are enough.
    """
    found = []
    for row_group, group in enumerate(metadata.row_groups):
        for leaf, chunk in enumerate(group.columns):
            data = chunk.meta_data
            if data is None or chunk.crypto_metadata is not None:
                continue
            offset, length = data.bloom_filter_offset or 0, data.bloom_filter_length or 0
            if offset > 0 and length > 0:
                found.append(BloomPlace(row_group, leaf, offset, length))
    return tuple(found)


def doubtful_leaves(metadata: FileMetaData) -> tuple[int, ...]:
    """Leaves whose statistics a reader of the ``_pm`` alone cannot order rightly.

    Unsigned integers, decimals of odd width, INT96, and whatever the footer gives no known order.
    Hand them to ``convert`` as ``silent`` where the ``_pm`` will be read without the schema.
    """
    return PmColumns.of(
        Schema.of(metadata.schema), metadata.key_value_metadata, (), on_stale="ignore"
    ).doubtful(metadata.column_orders)


@dataclass(frozen=True, slots=True, kw_only=True)
class PmColumns:
    """What the schema and the JSON say of the columns, before any row group.

    ``types`` are QuestDB's codes; ``sorting`` columns with whether they fall; ``designated`` is the
    timestamp's column or -1.
    """

    schema: Schema
    types: list[int]
    columns: tuple[PmColumn, ...]
    sorting: tuple[tuple[int, bool], ...]
    designated: int
    squash_tracker: int | None

    @classmethod
    def of(
        cls,
        schema: Schema,
        pairs: Iterable[KeyValue] | None,
        sortings: Iterable[Sequence[SortingColumn] | None],
        *,
        on_stale: Literal["refuse", "ignore"],
    ) -> PmColumns:
        """Of a footer with these key-value pairs, whose row groups claim these orders."""
        qdb = _qdb_meta(pairs, schema, on_stale=on_stale)
        types = _types(schema, qdb)
        sorting, ts = _order(sortings, schema, qdb, types)
        descending = {column for column, falls in sorting if falls}
        tracker = -1 if qdb is None else qdb.squash_tracker
        return cls(
            schema=schema,
            types=types,
            columns=tuple(
                _column(leaf, types[leaf.ordinal], qdb, descending=leaf.ordinal in descending)
                for leaf in schema.leaves
            ),
            sorting=tuple(sorting),
            designated=ts,
            squash_tracker=None if tracker == -1 else tracker,
        )

    def doubtful(self, orders: Sequence[ColumnOrder] | None) -> tuple[int, ...]:
        """See ``doubtful_leaves``; ``orders`` are the footer's."""
        found = []
        for leaf, code in zip(self.schema.leaves, self.types, strict=True):
            told = orders is not None and leaf.ordinal < len(orders)
            told = told and orders[leaf.ordinal].TYPE_ORDER is not None  # type: ignore[index]
            if not told or not order_is_told(leaf, ColumnType.of(code)):
                found.append(leaf.ordinal)
        return tuple(found)

    def head(self, bloom_columns: Iterable[int], *, external: bool) -> PmHead:
        """The header of a ``_pm`` in which these columns have filters."""
        used = tuple(sorted(bloom_columns))
        return PmHead(
            columns=self.columns,
            designated_timestamp=self.designated,
            sorting_columns=tuple(column for column, _ in self.sorting),
            bloom_columns=used,
            bloom_external=external and bool(used),
            squash_tracker=self.squash_tracker,
        )


def convert(
    metadata: FileMetaData,
    tail: Tail,
    *,
    blooms: Mapping[BloomPlace, bytes] | None = None,
    bloom_mode: BloomMode = "inlined",
    silent: Collection[int] = (),
    timestamps: Mapping[int, tuple[int, int]] | None = None,
    on_stale: Literal["refuse", "ignore"] = "refuse",
    unused_bytes: int = 0,
    plaintext: bool = False,
) -> Converted:
    """The ``_pm`` of a Parquet file with this footer and this tail.

    ``blooms`` are bytes by place (see ``bloom_places``); one that is no uncompressed split-block
    filter is passed over, as is one that is not handed in. ``silent`` leaves get no statistics and
    no filters. ``timestamps`` are (minimum, maximum) of the designated timestamp by row group, for
    those whose footer has none. ``on_stale`` says what to do with a JSON of another schema. Dead
    bytes are unknown to the footer, whatever the JSON says of them: ``unused_bytes`` tells them.

    ``FormatError`` where the footer contradicts itself, or the JSON is stale and refused;
    ``UnsupportedError`` for chunks in other files and for metadata that is encrypted.
    """
    described = PmColumns.of(
        Schema.of(metadata.schema),
        metadata.key_value_metadata,
        (group.sorting_columns for group in metadata.row_groups),
        on_stale=on_stale,
    )
    ts = described.designated
    filters: dict[tuple[int, int], Bloom] = {}
    for place, data in (blooms or {}).items():
        bloom = bloom_of(place, data, bloom_mode)
        if bloom is not None and place.leaf not in silent:
            filters[place.row_group, place.leaf] = bloom
    row_groups = tuple(
        _row_group(
            metadata, number, len(described.columns), filters, set(silent), plaintext=plaintext
        )
        for number in range(len(metadata.row_groups))
    )
    if ts >= 0 and timestamps:
        row_groups = tuple(
            _timed(group, ts, timestamps.get(number)) for number, group in enumerate(row_groups)
        )
    # What was handed in counts, not what was used: an encrypted column has no filter here.
    used = {
        column
        for group in row_groups
        for column, chunk in enumerate(group.chunks)
        if chunk.bloom is not None
    }
    head = described.head(used, external=bloom_mode == "external")
    footer = PmFooter.of_parquet(tail.size, tail.length, unused_bytes=unused_bytes)
    return Converted(head=head, row_groups=row_groups, footer=footer)


def _qdb_meta(
    pairs: Iterable[KeyValue] | None, schema: Schema, *, on_stale: Literal["refuse", "ignore"]
) -> QdbMeta | None:
    texts = [pair.value for pair in pairs or () if pair.key == KEY]
    if not texts or texts[-1] is None:
        return None
    try:
        qdb = QdbMeta.from_json(texts[-1])
        if len(qdb.schema) != len(schema.leaves):
            raise FormatError(
                f"the JSON under {KEY!r} is of another schema",
                expected=f"{len(schema.leaves)} columns",
                got=len(qdb.schema),
                hint="another tool rewrote the file and kept QuestDB's metadata",
            )
        for leaf, column in zip(schema.leaves, qdb.schema, strict=True):
            type = ColumnType.of(column.column_type)
            if type is not None and not type.fits(leaf.type, leaf.type_length):
                raise FormatError(
                    f"the JSON under {KEY!r} gives {leaf.name!r} another type",
                    expected=leaf.type.name,
                    got=type.name,
                    hint="another tool rewrote the file and kept QuestDB's metadata",
                )
    except FormatError:
        if on_stale == "refuse":
            raise
        return None
    return qdb


def _types(schema: Schema, qdb: QdbMeta | None) -> list[int]:
    if qdb is not None:
        return [column.column_type for column in qdb.schema]
    inferred = [infer(leaf) for leaf in schema.leaves]
    return [UNKNOWN if type is None else type.code for type in inferred]


def _order(
    sortings: Iterable[Sequence[SortingColumn] | None],
    schema: Schema,
    qdb: QdbMeta | None,
    types: list[int],
) -> tuple[list[tuple[int, bool]], int]:
    """Sorting columns with their direction, and the designated timestamp or -1."""
    if qdb is not None:
        for leaf, code in zip(schema.leaves, types, strict=True):
            type = ColumnType.of(code)
            if type is not None and type.designated:
                if not _never_null(leaf):
                    return [], -1
                return [(leaf.ordinal, type.descending)], leaf.ordinal
    orders = {
        tuple((key.column_idx, key.descending) for key in sorting_columns)
        for sorting_columns in sortings
        if sorting_columns
    }
    # Row groups that disagree: a merge made such files. Nothing is said of their order.
    sorting = list(orders.pop()) if len(orders) == 1 else []
    count = len(schema.leaves)
    if any(not 0 <= column < count for column, _ in sorting):
        raise FormatError("a sorting column", expected=f"0 to {count - 1}", got=sorting)
    if len({column for column, _ in sorting}) != len(sorting):
        raise FormatError("a sorting column twice", got=sorting)
    if not sorting or sorting[0][1]:
        return sorting, -1
    first = schema.leaves[sorting[0][0]]
    tag = (ColumnType.of(types[first.ordinal]) or ColumnType(tag=Tag.BOOLEAN)).tag
    designated = is_timestamp(first) and _never_null(first) and tag in (Tag.TIMESTAMP, Tag.DATE)
    return sorting, first.ordinal if designated else -1


def _never_null(leaf: Leaf) -> bool:
    return leaf.flat and leaf.max_definition_level == 0


def _column(leaf: Leaf, code: int, qdb: QdbMeta | None, *, descending: bool) -> PmColumn:
    field = leaf.ancestors[1] if len(leaf.ancestors) > 1 else leaf.node
    repetition = field.element.repetition_type or FieldRepetitionType.REQUIRED
    flags = int(repetition) << FIELD_REPETITION_SHIFT
    flags |= COLUMN_DESCENDING if descending else 0
    id = -1 if field.element.field_id is None else max(-1, field.element.field_id)
    if qdb is not None:
        own = qdb.schema[leaf.ordinal]
        flags |= COLUMN_LOCAL_KEY_IS_GLOBAL if own.local_key_is_global else 0
        flags |= COLUMN_IS_ASCII if own.ascii else 0
        id = own.id if own.id >= 0 else id
    return PmColumn(
        name=field.name,
        type=code,
        physical_type=int(leaf.type),
        id=id,
        flags=flags,
        fixed_byte_len=leaf.type_length if leaf.type.name == "FIXED_LEN_BYTE_ARRAY" else 0,
        max_rep_level=leaf.max_repetition_level,
        max_def_level=leaf.max_definition_level,
    )


def _row_group(
    metadata: FileMetaData,
    number: int,
    columns: int,
    filters: Mapping[tuple[int, int], Bloom],
    silent: set[int],
    *,
    plaintext: bool,
) -> PmRowGroup:
    group: ParquetRowGroup = metadata.row_groups[number]
    if len(group.columns) != columns:
        raise FormatError(
            f"row group {number}", expected=f"{columns} columns", got=len(group.columns)
        )
    chunks = []
    for leaf, column in enumerate(group.columns):
        if column.file_path is not None:
            raise UnsupportedError(
                f"row group {number}: a column chunk in the file {column.file_path!r}",
                hint="make the _pm of the file that holds the data",
            )
        if column.meta_data is None:
            raise UnsupportedError(
                f"row group {number}: column {leaf} has encrypted metadata",
                hint="decrypt the footer first",
            )
        hidden = leaf in silent or (column.crypto_metadata is not None and not plaintext)
        bloom = None if hidden else filters.get((number, leaf))
        chunks.append(_chunk(column.meta_data, bloom, hidden=hidden))
    _natural("num_rows", group.num_rows)
    return PmRowGroup(num_rows=group.num_rows, chunks=tuple(chunks))


def _chunk(data: ColumnMetaData, bloom: Bloom | None, *, hidden: bool) -> PmChunk:
    start = data.data_page_offset
    # Some writers put 0 for "no dictionary"; no page lies there.
    if data.dictionary_page_offset is not None and data.dictionary_page_offset > 0:
        start = data.dictionary_page_offset
    if not 0 <= int(data.codec) <= 0xFF:
        raise FormatError("codec of a column chunk", expected="0 to 255", got=int(data.codec))
    encodings = 0
    for encoding in data.encodings:
        encodings |= ENCODING_BITS.get(encoding, 0)
    known = None if hidden else data.statistics
    return PmChunk(
        num_values=_natural("num_values", data.num_values),
        byte_range_start=_natural("the start of a column chunk", start),
        total_compressed=_natural("total_compressed_size", data.total_compressed_size),
        codec=int(data.codec),
        encodings=encodings,
        null_count=None if known is None else _count(known.null_count),
        distinct_count=None if known is None else _count(known.distinct_count),
        min=None if known is None else _bound(known.min_value),
        max=None if known is None else _bound(known.max_value),
        # Writers before the two fields gave exact bounds, or said nothing: absent means exact.
        min_exact=known is None or known.is_min_value_exact is not False,
        max_exact=known is None or known.is_max_value_exact is not False,
        bloom=bloom,
    )


def _natural(what: str, number: int) -> int:
    if number < 0:
        raise FormatError(what, expected="0 or more", got=number)
    return number


def _count(number: int | None) -> int | None:
    return None if number is None or number < 0 else number


def _bound(value: bytes | None) -> bytes | None:
    return value if value and len(value) <= MAX_OUT_OF_LINE else None


def bloom_of(place: BloomPlace, data: bytes, mode: BloomMode) -> Bloom | None:
    """The filter whose first bytes are ``data``; ``None`` for one that no ``_pm`` has."""
    reader = Reader(memoryview(data)[:HEADER_BYTES], base=place.offset)
    try:
        header = BloomFilterHeader.read(reader)
    except FormatError:
        return None
    begin, size = reader.at, header.numBytes
    plain = header.algorithm.BLOCK and header.hash.XXHASH and header.compression.UNCOMPRESSED
    if not plain or size <= 0 or size % 32 or begin + size > place.length:
        return None
    if mode == "external":
        return place.offset + begin, size
    bitset = bytes(data[begin : begin + size])
    return bitset if len(bitset) == size else None


def _timed(group: PmRowGroup, ts: int, bounds: tuple[int, int] | None) -> PmRowGroup:
    chunk = group.chunks[ts]
    if bounds is None or (chunk.min is not None and chunk.max is not None):
        return group
    low, high = (bound.to_bytes(8, "little", signed=True) for bound in bounds)
    timed = replace(chunk, min=low, max=high, min_exact=True, max_exact=True)
    return replace(group, chunks=(*group.chunks[:ts], timed, *group.chunks[ts + 1 :]))
