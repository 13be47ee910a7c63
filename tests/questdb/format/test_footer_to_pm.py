"""Parquet files of all kinds become a `_pm`: columns, order, statistics, filters."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import ConvertedType, FieldRepetitionType, Type
from skipstone.parquet.format.metadata import (
    ColumnCryptoMetaData,
    ColumnOrder,
    EncryptionWithColumnKey,
    FileMetaData,
    IntType,
    LogicalType,
    SchemaElement,
)
from skipstone.parquet.format.schema import Schema
from skipstone.questdb.format.pm import Pm
from skipstone.questdb.format.pm_columns import QdbColumn, QdbMeta, infer
from tests.questdb.format.converting import bloom_places, convert, doubtful_leaves, footer_of
from tests.questdb.format.strategies import column_types
from tests.questdb.format.writing import read_row_groups
from tests.questdb.questdb_json import to_json

if TYPE_CHECKING:
    from skipstone.parquet.format.footer import Tail
    from skipstone.questdb.format.types import ColumnType
    from tests.questdb.format.converting import Converted


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


STAMPS = pa.field("ts", pa.timestamp("us"), nullable=False)


def sorted_file(*orders: pq.SortingColumn, field: pa.Field = STAMPS, **metadata: str) -> bytes:
    table = pa.table(
        {"n": pa.array([3, 1, 2]), "ts": pa.array([1, 2, 3]).cast(field.type)},
        schema=pa.schema([pa.field("n", pa.int64()), field], metadata=metadata or None),
    )
    return parquet(table, sorting_columns=list(orders) or None)


def order(converted: Converted) -> tuple[int, tuple[int, ...]]:
    return converted.head.designated_timestamp, converted.head.sorting_columns


def test_a_required_ascending_timestamp_is_designated() -> None:
    ascending = convert(*footer_of(sorted_file(pq.SortingColumn(1))))
    assert order(ascending) == (1, (1,))
    assert ascending.head.sorting_is_dts_asc
    falling = convert(*footer_of(sorted_file(pq.SortingColumn(1, descending=True))))
    assert order(falling) == (-1, (1,))
    assert falling.head.columns[1].descending
    second = convert(*footer_of(sorted_file(pq.SortingColumn(0), pq.SortingColumn(1))))
    assert order(second) == (-1, (0, 1))
    nullable = convert(
        *footer_of(sorted_file(pq.SortingColumn(1), field=STAMPS.with_nullable(True)))
    )
    assert order(nullable) == (-1, (1,))
    number = pa.field("ts", pa.int64(), nullable=False)
    assert order(convert(*footer_of(sorted_file(pq.SortingColumn(1), field=number)))) == (-1, (1,))
    assert order(convert(*footer_of(sorted_file()))) == (-1, ())


def test_row_groups_that_disagree_on_the_order_leave_it_unsaid() -> None:
    metadata, tail = footer_of(sorted_file(pq.SortingColumn(1)))
    (group,) = metadata.row_groups
    none = replace(group, sorting_columns=None)
    other = replace(group, sorting_columns=())
    assert order(convert(replace(metadata, row_groups=(none, group, other)), tail)) == (1, (1,))
    assert group.sorting_columns
    by_n = replace(group, sorting_columns=(replace(group.sorting_columns[0], column_idx=0),))
    assert order(convert(replace(metadata, row_groups=(group, by_n)), tail)) == (-1, ())
    beyond = replace(group, sorting_columns=(replace(group.sorting_columns[0], column_idx=2),))
    with pytest.raises(FormatError, match="sorting column"):
        convert(replace(metadata, row_groups=(beyond,)), tail)


def questdb(*types: int, **fields: Any) -> str:
    schema = tuple(QdbColumn(column_type=code, id=10 + i) for i, code in enumerate(types))
    return to_json(QdbMeta(schema=schema, **fields))


def test_the_json_of_questdb_wins_over_the_sorting_columns() -> None:
    data = sorted_file(pq.SortingColumn(0), questdb=questdb(6, 131080, squash_tracker=3))
    converted = convert(*footer_of(data), unused_bytes=77)
    assert order(converted) == (1, (1,))
    assert [(each.id, each.type) for each in converted.head.columns] == [(10, 6), (11, 131080)]
    assert converted.head.squash_tracker == 3
    assert converted.footer.unused_bytes == 77
    descending = sorted_file(questdb=questdb(6, 131080 | 1 << 20))
    head = convert(*footer_of(descending)).head
    assert (head.designated_timestamp, head.columns[1].descending) == (1, True)
    assert not head.sorting_is_dts_asc


def test_a_timestamp_that_may_be_null_is_not_designated_whatever_the_json_says() -> None:
    nullable = STAMPS.with_nullable(True)
    data = sorted_file(pq.SortingColumn(1), field=nullable, questdb=questdb(6, 131080))
    assert order(convert(*footer_of(data))) == (-1, ())


def test_stale_json_is_refused_or_passed_over() -> None:
    for stale in (questdb(131080), questdb(12, 131080), "{", '{"version": 1, "schema": []}'):
        metadata, tail = footer_of(sorted_file(questdb=stale))
        with pytest.raises(FormatError, match="questdb"):
            convert(metadata, tail)
        foreign = convert(metadata, tail, on_stale="ignore")
        assert [each.type for each in foreign.head.columns] == [6, 8]
    later = footer_of(sorted_file(questdb='{"version": 2, "schema": []}'))
    with pytest.raises(UnsupportedError):
        convert(*later, on_stale="ignore")


@given(column_types())
def test_what_questdb_writes_is_seen_as_itself_or_as_its_likeness(type: ColumnType) -> None:
    form = type.parquet
    seen = infer(leaf(form.type, form.logical, form.converted, form.length))
    assert seen is not None
    assert seen.parquet.type == form.type
    assert seen.parquet.length == form.length
    if type.is_decimal or type.name in ("timestamp", "date", "uuid", "byte", "short", "double"):
        wanted = replace(type, designated=False, descending=False)
        assert seen == wanted


def leaf(
    type: Type,
    logical: LogicalType | None = None,
    converted: ConvertedType | None = None,
    length: int = 0,
) -> Any:
    element = SchemaElement(
        name="c",
        type=type,
        type_length=length or None,
        repetition_type=FieldRepetitionType.OPTIONAL,
        logicalType=logical,
        converted_type=converted,
        precision=logical.DECIMAL.precision if logical and logical.DECIMAL else None,
        scale=logical.DECIMAL.scale if logical and logical.DECIMAL else None,
    )
    return Schema.of([SchemaElement(name="root", num_children=1), element]).leaves[0]


@pytest.mark.parametrize(
    "converted, type, code",
    [
        (ConvertedType.INT_8, Type.INT32, 2),
        (ConvertedType.INT_16, Type.INT32, 3),
        (ConvertedType.INT_32, Type.INT32, 5),
        (ConvertedType.UINT_8, Type.INT32, 5),
        (ConvertedType.DATE, Type.INT32, 7),
        (ConvertedType.TIME_MILLIS, Type.INT32, 5),
        (ConvertedType.TIMESTAMP_MILLIS, Type.INT64, 7),
        (ConvertedType.TIMESTAMP_MICROS, Type.INT64, 8),
        (ConvertedType.UTF8, Type.BYTE_ARRAY, 26),
        (ConvertedType.ENUM, Type.BYTE_ARRAY, 18),
        (None, Type.INT96, 262152),
    ],
)
def test_types_of_writers_without_logical_types(
    converted: ConvertedType | None, type: Type, code: int
) -> None:
    seen = infer(leaf(type, None, converted))
    assert seen is not None
    assert seen.code == code


def test_columns_that_have_no_equal() -> None:
    assert infer(leaf(Type.INT96, None, ConvertedType.INT_64)) is None
    assert infer(leaf(Type.FIXED_LEN_BYTE_ARRAY, length=5)) is None
    wide = LogicalType(INTEGER=IntType(bitWidth=16, isSigned=False))
    plain = infer(leaf(Type.INT32, wide))
    assert plain is not None
    assert plain.name == "int"


def test_statistics_are_copied_verbatim_or_left_out() -> None:
    table = pa.table({"a": pa.array([None, 5, -3], pa.int32()), "s": ["x" * 9, "y", "zz"]})
    metadata, tail = footer_of(parquet(table))
    (group,) = convert(metadata, tail).row_groups
    first, second = group.chunks
    assert (first.min, first.max) == (struct.pack("<i", -3), struct.pack("<i", 5))
    assert (first.null_count, first.num_values) == (1, 3)
    assert (second.min, second.max) == (b"x" * 9, b"zz")
    silent = convert(metadata, tail, silent=[1]).row_groups[0].chunks[1]
    assert (silent.min, silent.max, silent.null_count) == (None, None, None)
    chunk = metadata.row_groups[0].columns[1]
    assert chunk.meta_data is not None
    assert chunk.meta_data.statistics is not None

    def with_statistics(**fields: Any) -> Any:
        statistics = replace(chunk.meta_data.statistics, **fields)  # type: ignore[union-attr, type-var]
        data = replace(chunk.meta_data, statistics=statistics)  # type: ignore[type-var]
        old = metadata.row_groups[0]
        group = replace(old, columns=(old.columns[0], replace(chunk, meta_data=data)))
        return convert(replace(metadata, row_groups=(group,)), tail).row_groups[0].chunks[1]

    # Too long for the format, empty, deprecated; and a bound that says that it is none.
    long = with_statistics(max_value=b"x" * 65_536, min_value=b"")
    assert (long.min, long.max) == (None, None)
    old = with_statistics(max_value=None, min_value=None, max=b"b", min=b"a")
    assert (old.min, old.max) == (None, None)
    assert not with_statistics(is_max_value_exact=False).max_exact
    assert with_statistics(null_count=-1).null_count is None


def test_missing_bounds_of_the_timestamp_are_filled_in() -> None:
    metadata, tail = footer_of(sorted_file(pq.SortingColumn(1)))
    bare = parquet(
        pa.table({"ts": pa.array([1, 2]).cast(pa.timestamp("us"))}, schema=pa.schema([STAMPS])),
        sorting_columns=[pq.SortingColumn(0)],
        write_statistics=False,
    )
    filled = convert(*footer_of(bare), timestamps={0: (-1, 2)}).row_groups[0].chunks[0]
    assert (filled.min, filled.max) == (struct.pack("<q", -1), struct.pack("<q", 2))
    kept = convert(metadata, tail, timestamps={0: (7, 9)}).row_groups[0].chunks[1]
    assert kept.min == struct.pack("<q", 1)


def test_leaves_whose_order_a_reader_cannot_know() -> None:
    import decimal

    table = pa.table(
        {
            "n": pa.array([1], pa.int64()),
            "u": pa.array([1], pa.uint32()),
            "d9": pa.array([decimal.Decimal("1.1")], pa.decimal128(9, 1)),
            "d5": pa.array([decimal.Decimal("1.1")], pa.decimal128(5, 1)),
            "d20": pa.array([decimal.Decimal("1.1")], pa.decimal128(20, 1)),
            "t": ["x"],
            "h": pa.array([1.5], pa.float16()),
        }
    )
    metadata, _ = footer_of(parquet(table))
    # Arrow gives 9 digits 4 bytes as QuestDB does, but 5 digits 3 and 20 digits 9.
    assert doubtful_leaves(metadata) == (1, 3, 4, 6)
    assert doubtful_leaves(replace(metadata, column_orders=None)) == tuple(range(7))
    unknown = (ColumnOrder(), *(metadata.column_orders or ())[1:])
    assert doubtful_leaves(replace(metadata, column_orders=unknown)) == (0, 1, 3, 4, 6)


def filtered() -> tuple[bytes, FileMetaData, Tail]:
    table = pa.table({"a": np.arange(1_000), "b": [f"v{i}" for i in range(1_000)]})
    options = {"a": True, "b": {"ndv": 100}}
    try:
        data = parquet(table, row_group_size=500, bloom_filter_options=options)
    except TypeError:
        pytest.skip("this pyarrow does not write bloom filters")
    return data, *footer_of(data)


def test_bloom_filters_go_inline_or_stay_where_they_are() -> None:
    data, metadata, tail = filtered()
    places = bloom_places(metadata)
    assert [(place.row_group, place.leaf) for place in places] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    whole = {place: data[place.offset : place.offset + place.length] for place in places}
    inlined = Pm(convert(metadata, tail, blooms=whole).to_bytes())
    heads = {place: bytes_[:64] for place, bytes_ in whole.items()}
    external = Pm(convert(metadata, tail, blooms=heads, bloom_mode="external").to_bytes())
    assert (inlined.bloom_columns, inlined.bloom_external) == ((0, 1), False)
    assert (external.bloom_columns, external.bloom_external) == ((0, 1), True)
    outside, lengths = external.snapshot().bloom_places
    groups = read_row_groups(inlined.snapshot())
    for place in places:
        bitset = groups[place.row_group].chunks[place.leaf].bloom
        at, length = (int(array[place.row_group, place.leaf]) for array in (outside, lengths))
        assert bitset == data[at : at + length]
        assert length % 32 == 0
    # Broken, silent or cut ones are passed over.
    some = {place: (b"\xff" * 40 if place.leaf else piece) for place, piece in whole.items()}
    assert convert(metadata, tail, blooms=some).head.bloom_columns == (0,)
    assert convert(metadata, tail, blooms=whole, silent=[0, 1]).head.bloom_columns == ()
    assert convert(metadata, tail, blooms=heads).head.bloom_columns == ()


def test_chunks_elsewhere_and_hidden_ones_are_unsupported() -> None:
    metadata, tail = footer_of(sorted_file())
    (group,) = metadata.row_groups
    own_key = EncryptionWithColumnKey(path_in_schema=("n",))
    hidden = {
        "meta_data": None,
        "crypto_metadata": ColumnCryptoMetaData(ENCRYPTION_WITH_COLUMN_KEY=own_key),
        "encrypted_column_metadata": b"sealed",
    }
    for change in ({"file_path": "other.parquet"}, hidden):
        broken = replace(group, columns=(replace(group.columns[0], **change), group.columns[1]))
        with pytest.raises(UnsupportedError):
            convert(replace(metadata, row_groups=(broken,)), tail)
    short = replace(group, columns=group.columns[:1])
    with pytest.raises(FormatError, match="another number of columns"):
        convert(replace(metadata, row_groups=(short,)), tail)


@given(st.data())
def test_any_table_that_arrow_writes_converts(data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 20))
    values = {
        "i8": pa.int8(),
        "u64": pa.uint64(),
        "f": pa.float32(),
        "b": pa.bool_(),
        "d": pa.date32(),
        "l": pa.list_(pa.float64()),
        "q": pa.struct([("a b", pa.string()), ("é", pa.int16())]),
        "n": pa.null(),
    }
    names = data.draw(st.lists(st.sampled_from(sorted(values)), unique=True))
    arrays = {
        name: pa.array([None] * rows, values[name])
        if data.draw(st.booleans()) or name == "n"
        else pa.array([sample(name)] * rows, values[name])
        for name in names
    }
    file = parquet(pa.table(arrays), row_group_size=7)
    metadata, tail = footer_of(file)
    pm = Pm(convert(metadata, tail).to_bytes())
    snapshot = pm.snapshot(len(file))
    snapshot.verify()
    leaves = Schema.of(metadata.schema).leaves
    assert pm.names == tuple(each.path[0] for each in leaves)
    assert snapshot.num_rows.tolist() == [group.num_rows for group in metadata.row_groups]
    start, length = snapshot.byte_ranges()
    for number, group in enumerate(metadata.row_groups):
        for column, chunk in enumerate(group.columns):
            assert chunk.meta_data is not None
            assert length[number, column] == chunk.meta_data.total_compressed_size
            if group.num_rows:
                assert 4 <= start[number, column] < tail.offset
    nulls = snapshot.stats().all_null()
    for each in leaves:
        name = each.path[0]
        if each.flat and rows and name != "n":  # Arrow gives a column of type null no statistics
            assert nulls[:, each.ordinal].all() == (arrays[name].null_count == rows)


def sample(name: str) -> object:
    samples: dict[str, object] = {
        "i8": -3,
        "u64": (1 << 64) - 1,
        "f": float("nan"),
        "b": False,
        "d": -1,
        "l": [0.0, -0.0, None],
        "q": {"a b": "", "é": None},
    }
    return samples[name]
