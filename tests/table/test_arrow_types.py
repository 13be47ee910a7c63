"""Every Arrow type that the stored schema of a file can name, on every route that reads rows.

Arrow writers leave their schema in the footer (``ARROW:schema``): a column of texts is read as
``string_view`` where the writer had views. The rows do not depend on it: each test holds the table
against one of plain types.
"""

from __future__ import annotations

import base64
import itertools
import tempfile
import uuid
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 150
#: no value, and values that are not in order
PLACES = [None if i % 5 == 0 else i * 37 % 101 for i in range(ROWS)]


def column(of: Any, type: pa.DataType) -> pa.Array:
    return pa.array([None if each is None else of(each) for each in PLACES], type)


TEXTS = column(lambda i: f"v{i:03} and more than twelve bytes", pa.string())
NUMBERS = column(int, pa.int64())
# The column as Parquet stores it, and the types that Arrow restores for it.
STORED = {
    "string": (
        TEXTS,
        [
            pa.string_view(),
            pa.large_string(),
            pa.dictionary(pa.int32(), pa.string()),
            pa.dictionary(pa.uint64(), pa.string(), ordered=True),
            pa.run_end_encoded(pa.int32(), pa.string()),
            pa.json_(),
            pa.opaque(pa.string(), "a", "b"),
        ],
    ),
    "binary": (
        TEXTS.cast(pa.binary()),
        [pa.binary_view(), pa.large_binary(), pa.dictionary(pa.int32(), pa.binary())],
    ),
    "fixed": (column(lambda i: i.to_bytes(16, "big"), pa.binary(16)), [pa.uuid()]),
    "int64": (
        NUMBERS,
        [
            *map(pa.duration, ("s", "ms", "us", "ns")),
            pa.opaque(pa.int64(), "a", "b"),
            pa.dictionary(pa.int32(), pa.int64()),
        ],
    ),
    "int8": (column(int, pa.int8()), [pa.bool8()]),
    "instant": (
        NUMBERS.cast(pa.timestamp("us", "UTC")),
        [pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "+01:30")],
    ),
    "decimal": (
        column(Decimal, pa.decimal128(9, 2)),
        [pa.decimal32(9, 2), pa.decimal64(9, 2), pa.decimal256(9, 2)],
    ),
}
EACH = [
    pytest.param(values, type, id=f"{name} as {type}".replace(" ", "_"))
    for name, (values, types) in STORED.items()
    for type in types
]
each_type = pytest.mark.parametrize("values, type", EACH)

LISTS = pa.array([None if i % 5 == 0 else [f"a{i}", None] for i in range(ROWS)])
STRUCTS = pa.array([None if i % 5 == 0 else {"a": f"a{i % 7}", "b": i} for i in range(ROWS)])
MAPS = pa.array(
    [None if i % 5 == 0 else [(f"k{i % 3}", f"v{i % 4}")] for i in range(ROWS)],
    pa.map_(pa.string(), pa.string()),
)
NESTED = [
    (LISTS, pa.list_(pa.string_view())),
    (LISTS, pa.large_list(pa.large_string())),
    (LISTS, pa.list_(pa.string(), 2)),
    (LISTS, pa.list_(pa.string_view(), 2)),
    (LISTS, pa.list_view(pa.string_view())),
    (LISTS, pa.large_list_view(pa.string())),
    (LISTS, pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    (STRUCTS, pa.struct([("a", pa.string_view()), ("b", pa.int64())])),
    (STRUCTS, pa.struct([("a", pa.dictionary(pa.int32(), pa.string())), ("b", pa.int64())])),
    (MAPS, pa.map_(pa.string_view(), pa.string_view())),
    (MAPS, pa.map_(pa.dictionary(pa.int32(), pa.string()), pa.large_string())),
]
each_nested = pytest.mark.parametrize(
    "values, type", NESTED, ids=[str(type).replace(" ", "_") for _, type in NESTED]
)


def table(root: Path, values: pa.Array, *types: pa.DataType) -> Table:
    """A file for each of ``types``, which its stored schema names."""
    root.mkdir()
    for number, type in enumerate(types):
        ids = pa.array(range(number * len(values), (number + 1) * len(values)))
        content = pa.table({"id": ids, "c": values})
        named = pa.schema([("id", pa.int64()), ("c", type)])
        with pq.ParquetWriter(
            root / f"{number}.parquet", content.schema, store_schema=False, write_page_index=True
        ) as writer:
            writer.write_table(content, row_group_size=60)
            stored = base64.b64encode(named.serialize().to_pybytes()).decode()
            writer.add_key_value_metadata({"ARROW:schema": stored})
    return Table(str(root))


def plain(found: pa.Table, values: pa.Array) -> list[Any]:
    """The ids and values of rows, in the plain type."""
    chunks = []
    for chunk in found.column("c").chunks:
        while isinstance(chunk, pa.ExtensionArray):
            chunk = chunk.storage
        duration = pa.types.is_duration(chunk.type)
        chunks.append(chunk.view(pa.int64()) if duration else chunk.cast(values.type))
    return [found.column("id").to_pylist(), pa.chunked_array(chunks, values.type).to_pylist()]


WHERES = (None, "c IS NOT NULL AND id > 7", "id IN (3, 9, 249)")
ORDERS = ("c asc nulls last", "c desc nulls first", "c desc nulls last")
WAYS = [(None, None), *itertools.product(ORDERS, (5, None))]


@cache
def of_plain_type(type: pa.DataType) -> list[list[Any]]:
    """The rows of two files of a plain type for each of ``WHERES``: all of them, and each way."""
    (values,) = [values for values, _ in STORED.values() if values.type == type]
    with tempfile.TemporaryDirectory() as home:
        theirs = table(Path(home) / "t", values, type, type)
        return [
            [
                plain(theirs.query(where, order_by=order, limit=limit), values)
                for order, limit in WAYS
            ]
            for where in WHERES
        ]


@each_type
@pytest.mark.parametrize("mixed", [False, True])
def test_rows_and_order_are_those_of_the_plain_type(
    tmp_path: Path, values: pa.Array, type: pa.DataType, mixed: bool
) -> None:
    ours = table(tmp_path / "t", values, type, values.type if mixed else type)
    if mixed:
        ours.build(indexes=["c:minmax"])
        ours = Table(ours.path)
    for where, every in zip(WHERES, of_plain_type(values.type), strict=True):
        assert ours.count(where) == len(every[0][0])
        for (order, limit), expected in zip(WAYS, every, strict=True):
            found = ours.query(where, order_by=order, limit=limit)
            found.validate(full=True)
            assert plain(found, values) == expected


@each_type
def test_the_least_and_the_greatest_value_are_those_of_the_plain_type(
    tmp_path: Path, values: pa.Array, type: pa.DataType
) -> None:
    ours, theirs = table(tmp_path / "t", values, type), table(tmp_path / "p", values, values.type)
    for where in (None, "id > 7"):
        least, most = ours.min("c", where), ours.max("c", where)
        if pa.types.is_duration(type):
            least, most = (pa.scalar(each, type).cast(pa.int64()).as_py() for each in (least, most))
        assert (least, most) == (theirs.min("c", where), theirs.max("c", where))


CONDITIONS = {
    "list": ("array_contains(c, 'a7')", "size(c) = 2", "CASE WHEN id > 9 THEN size(c) > 1 END"),
    "map": ("map_contains_key(c, 'k1')", "c['k1'] = 'v2'", "array_contains(map_values(c), 'v1')"),
    "struct": ("c.a = 'a1'", "upper(c.a) LIKE 'A1%'", "c IS NULL"),
}


@each_nested
def test_conditions_on_nested_columns_see_the_rows_that_others_leave(
    tmp_path: Path, values: pa.Array, type: pa.DataType
) -> None:
    ours, theirs = table(tmp_path / "t", values, type), table(tmp_path / "p", values, values.type)
    (conditions,) = [found for kind, found in CONDITIONS.items() if kind in str(values.type)[:6]]
    for condition in conditions:
        for where in (condition, f"id < 200 AND {condition}", f"id = 3 OR NOT ({condition})"):
            assert ours.query(where)["id"].to_pylist() == theirs.query(where)["id"].to_pylist()


ENGINES: dict[str, Callable[[Any], pa.Table]] = {
    "DuckDB": lambda scan: scan.to_duckdb().to_arrow_table(),
    "polars": lambda scan: scan.to_polars().collect().to_arrow(),
    "pyarrow": lambda scan: scan.to_pyarrow().to_table(),
}
#: further columns: types that Parquet stores, and that engines lack
ODD = [
    pytest.param(values, type, id=str(type).replace(" ", "_"))
    for values, type in (
        (column(lambda i: Decimal(i) * 10**30, pa.decimal256(45, 2)), pa.decimal256(45, 2)),
        (column(float, pa.float32()).cast(pa.float16()), pa.float16()),
        (NUMBERS.cast(pa.timestamp("ms", "UTC")), pa.timestamp("ms", "-08:00")),
        (NUMBERS.cast(pa.timestamp("ns")), pa.timestamp("ns")),
        (column(int, pa.int32()).cast(pa.date32()), pa.date64()),
        (column(int, pa.int64()).cast(pa.time64("ns")), pa.time64("ns")),
        (column(int, pa.uint64()), pa.uint64()),
        (STRUCTS, pa.struct([("a", pa.string()), ("b", pa.duration("ms"))])),
        *NESTED,
    )
]
#: what has no equal type in an engine: it is refused in words
LACKED = {
    "DuckDB": ("duration", "decimal256(45", "halffloat"),
    "polars": ("tz=+01:30", "list_view", "decimal256(45", "run_end_encoded"),
    "pyarrow": (),
}
#: what polars cannot cast to the type that the table has by another file
UNCAST = ("duration", "extension", "map<dictionary")


def comparable(found: pa.Table, type: pa.DataType) -> list[str]:
    """The values by their ids, in one type."""
    made = []
    for chunk in found.column("c").chunks:
        while isinstance(chunk, pa.ExtensionArray):
            chunk = chunk.storage
        if pa.types.is_fixed_size_binary(type) and pa.types.is_string(chunk.type):  # a UUID as text
            texts = [None if text is None else uuid.UUID(text).bytes for text in chunk.to_pylist()]
            chunk = pa.array(texts, type)
        made += chunk.to_pylist() if pa.types.is_nested(type) else chunk.cast(type).to_pylist()
    ids = found.column("id").to_pylist()
    return [repr(value) for _, value in sorted(zip(ids, made, strict=True), key=lambda row: row[0])]


@pytest.mark.parametrize("values, type", EACH + ODD)
@pytest.mark.parametrize("mixed", [False, True])
def test_engines_read_equal_values_or_the_column_is_refused(
    tmp_path: Path, values: pa.Array, type: pa.DataType, mixed: bool
) -> None:
    ours = table(tmp_path / "t", values, type, *([values.type] if mixed else []))
    try:
        expected = ours.query()
    except UnsupportedError:  # the types do not merge
        assert mixed
        return
    merged = wanted = expected.schema.field("c").type
    while isinstance(wanted, pa.BaseExtensionType):
        wanted = wanted.storage_type
    for engine, read in ENGINES.items():
        lacked = any(text in str(type) for text in LACKED[engine])
        if engine == "polars" and mixed and any(text in str(type) for text in UNCAST):
            lacked = lacked or type != merged
        if lacked:
            with pytest.raises(
                UnsupportedError, match=f"{engine} cannot read column 'c', which"
            ) as e:
                read(ours.scan())
            assert "to_pyarrow() or to_arrow()" in e.value.hint, engine
        else:
            assert comparable(read(ours.scan()), wanted) == comparable(expected, wanted), engine


@pytest.mark.parametrize("key", [pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_keys_of_maps_are_found(tmp_path: Path, key: pa.DataType) -> None:
    ours = table(tmp_path / "t", MAPS, pa.map_(key, pa.string_view()), MAPS.type)
    whole = MAPS.to_pylist() * 2
    count = sum(("k1", "v3") in each for each in whole if each is not None)
    assert ours.count("c['k1'] = 'v3'") == count
    assert ours.query("c['k1'] LIKE 'v_'").num_rows == sum(
        dict(each).get("k1") is not None for each in whole if each is not None
    )
    built = ours.build(indexes=["c['k1']:bitmap", "c['k1']:minmax"])
    assert not built.files_failed
    assert Table(ours.path).count("c['k1'] = 'v3'") == count


@each_nested
def test_rows_of_nested_types_are_ordered_and_scattered(
    tmp_path: Path, values: pa.Array, type: pa.DataType
) -> None:
    ours = table(tmp_path / "t", values, type, values.type)
    whole = ours.query().column("c").to_pylist()
    assert whole == values.to_pylist() * 2
    found = ours.query(order_by="id desc")
    assert found.column("c").to_pylist() == whole[::-1]
    at = list(range(3, ROWS, 4))
    scattered = ours.query(f"id IN ({', '.join(map(str, at))})", order_by="id desc", limit=50)
    assert scattered.column("c").to_pylist() == [whole[i] for i in at[::-1][:50]]


@pytest.mark.parametrize("indexes", [(), ("c:minmax",)])
def test_all_digits_of_the_least_and_the_greatest_decimal_are_kept(
    tmp_path: Path, indexes: tuple[str, ...]
) -> None:
    texts = ["-1234567890123456789012345678.9012345679", "1234567890123456789012345678.9012345678"]
    values = pa.array([Decimal(text) for text in texts], pa.decimal128(38, 10))
    ours = table(tmp_path / "t", values, values.type)
    if indexes:
        ours.build(indexes=indexes)
    assert [str(ours.min("c")), str(ours.max("c"))] == texts


@pytest.mark.parametrize("indexes", [(), ("c:minmax",)])
def test_a_value_that_python_lacks_is_named(tmp_path: Path, indexes: tuple[str, ...]) -> None:
    bytes_ = pa.array([b"a", b"\xff"], pa.binary())
    for number, (values, shown) in enumerate(
        [
            (pa.StringArray.from_buffers(2, *bytes_.buffers()[1:], bytes_.buffers()[0]), "X'FF'"),
            (pa.array([0, 2_932_897], pa.int32()).cast(pa.date32()), "2932897"),
            (pa.array([0, 1 << 62]).cast(pa.timestamp("us")), str(1 << 62)),
        ]
    ):
        ours = table(tmp_path / f"t{number}", values, values.type)
        if indexes:
            ours.build(indexes=indexes)
        assert ours.min("c") == values[0].as_py()
        with pytest.raises(UnsupportedError, match=shown):
            ours.max("c")
        assert ours.query(order_by="c desc", limit=1).column("c")[0].equals(values[1])
