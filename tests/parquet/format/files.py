"""Parquet files for tests: random nested tables as pyarrow writes them, and equality to the bit."""

from __future__ import annotations

import io
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


LEAF_TYPES: tuple[pa.DataType, ...] = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(4, 2),
    pa.decimal128(9, 0),
    pa.decimal128(18, 6),
    pa.decimal128(38, 10),
    pa.decimal256(50, 5),
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    pa.timestamp("s"),
    pa.timestamp("ms"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns", "Europe/Berlin"),
    pa.duration("s"),
    pa.duration("ns"),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.binary(5),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int16(), pa.binary()),
    pa.null(),
    pa.uuid(),
    pa.json_(),
)


# -- golden files ----------------------------------------------------------------------------------

LARGE = "large_string_map.brotli.parquet"


def golden_files(golden: Path, *, smallest: int = 0, largest: int = 1 << 40) -> Iterator[Path]:
    """The plain (not encrypted) Parquet files of both collections, without the damaged ones.

    ``LARGE`` is left out: its few kilobytes are two gigabytes of one repeated string.
    """
    testing = golden / "parquet-testing" / "data"
    for path in [*testing.rglob("*.parquet"), *(golden / "hyparquet").rglob("*.parquet")]:
        if smallest <= path.stat().st_size <= largest and path.name != LARGE:
            yield path


# -- equality --------------------------------------------------------------------------------------


def same_table(a: pa.Table, b: pa.Table) -> bool:
    """Equal schemas and values; floats to the bit, so NaN equals NaN and 0.0 is not -0.0."""
    return (
        a.schema.equals(b.schema)
        and a.num_rows == b.num_rows
        and all(same(_whole(x), _whole(y)) for x, y in zip(a.columns, b.columns, strict=True))
    )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    made = column.combine_chunks()
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


def same(a: pa.Array, b: pa.Array) -> bool:
    """Equal types and values, see ``same_table``."""
    kind = a.type
    if kind != b.type or len(a) != len(b) or not a.is_valid().equals(b.is_valid()):
        return False
    if isinstance(kind, pa.BaseExtensionType):
        return same(a.storage, b.storage)
    if pa.types.is_struct(kind):
        return all(same(x, y) for x, y in zip(a.flatten(), b.flatten(), strict=True))
    if pa.types.is_dictionary(kind):
        return same(a.dictionary_decode(), b.dictionary_decode())
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        plain = pa.large_list(kind.value_field)
        return same(a.cast(plain), b.cast(plain))
    if pa.types.is_nested(kind):
        if _sizes(a) != _sizes(b):
            return False
        return all(same(x, y) for x, y in zip(_elements(a), _elements(b), strict=True))
    if pa.types.is_floating(kind):
        bits = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[kind.bit_width]
        return bool(a.view(bits).equals(b.view(bits)))
    return bool(a.equals(b))


def _sizes(lists: pa.Array) -> list[int]:
    if pa.types.is_fixed_size_list(lists.type):
        return []
    sizes = np.diff(lists.offsets.to_numpy())
    return [int(size) for size in sizes[lists.is_valid().to_numpy(zero_copy_only=False)]]


def _elements(lists: pa.Array) -> list[pa.Array]:
    # Arrow's own `flatten` lacks kernels for maps and extension types.
    if pa.types.is_fixed_size_list(lists.type):
        return [lists.flatten()]
    start, stop = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    children = [lists.keys, lists.items] if pa.types.is_map(lists.type) else [lists.values]
    return [child.slice(start, stop - start) for child in children]


# -- random tables ---------------------------------------------------------------------------------


def nested_types(max_leaves: int = 5) -> st.SearchStrategy[pa.DataType]:
    """Leaf types, and structs, lists and maps of them to any depth."""

    def deeper(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        fields = st.lists(st.tuples(inner, st.booleans()), min_size=1, max_size=3)
        element = st.tuples(inner, st.booleans()).map(lambda e: _field("element", *e))
        keys = st.sampled_from([pa.string(), pa.int32(), pa.decimal128(9, 2)])
        return st.one_of(
            fields.map(lambda of: pa.struct([_field(f"f{i}", *f) for i, f in enumerate(of)])),
            element.map(pa.list_),
            element.map(pa.large_list),
            st.tuples(keys, inner).map(lambda kv: pa.map_(*kv)),
        )

    return st.recursive(st.sampled_from(LEAF_TYPES), deeper, max_leaves=max_leaves)


def _field(name: str, type_: pa.DataType, nullable: bool) -> pa.Field:
    return pa.field(name, type_, nullable or pa.types.is_null(type_))


def random_array(
    rng: np.random.Generator, type_: pa.DataType, size: int, *, nullable: bool = True
) -> pa.Array:
    """Any values of a type: edges, runs, few and many distinct ones, nulls of all densities."""
    density = rng.choice([0.0, 0.0, 0.1, 0.6, 1.0]) if nullable else 0.0
    null = rng.random(size) < density
    mask = pa.array(null)
    if pa.types.is_null(type_):
        return pa.nulls(size)
    if pa.types.is_struct(type_):
        children = [random_array(rng, field.type, size, nullable=field.nullable) for field in type_]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    if pa.types.is_map(type_):
        offsets = _offsets(rng, size, null)
        keys = random_array(rng, type_.key_type, offsets[-1].as_py(), nullable=False)
        items = random_array(rng, type_.item_type, len(keys))
        return pa.MapArray.from_arrays(offsets, keys, items, type_, mask=mask)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        offsets = _offsets(rng, size, null)
        field = type_.value_field
        values = random_array(rng, field.type, offsets[-1].as_py(), nullable=field.nullable)
        if pa.types.is_large_list(type_):
            offsets = offsets.cast(pa.int64())
            return pa.LargeListArray.from_arrays(offsets, values, type=type_, mask=mask)
        return pa.ListArray.from_arrays(offsets, values, type=type_, mask=mask)
    if isinstance(type_, pa.BaseExtensionType):
        storage = random_array(rng, type_.storage_type, size, nullable=nullable)
        return pa.ExtensionArray.from_storage(type_, storage)
    if type_ in (pa.string_view(), pa.binary_view()):
        return random_array(rng, pa.binary(), size, nullable=nullable).cast(type_)
    if pa.types.is_dictionary(type_):
        return _masked(_pool(rng, type_.value_type), rng, null).dictionary_encode().cast(type_)
    return _masked(_pool(rng, type_), rng, null)


def _offsets(rng: np.random.Generator, size: int, null: Any) -> pa.Array:
    most = int(rng.choice([1, 3, 9]))
    lengths = np.where(null, 0, rng.integers(0, most + 1, size))
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def _masked(pool: pa.Array, rng: np.random.Generator, null: Any) -> pa.Array:
    size = len(null)
    indices = rng.integers(0, rng.integers(1, len(pool) + 1), size)
    if rng.random() < 0.3:
        indices = np.sort(indices)
    return pool.take(pa.array(indices, mask=null))


def _pool(rng: np.random.Generator, type_: pa.DataType) -> pa.Array:
    """Values to draw from, the edges of the type first."""
    count = int(rng.choice([3, 40, 400]))
    if pa.types.is_boolean(type_):
        return pa.array([True, False])
    if pa.types.is_floating(type_):
        edges = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.5]
        kind = {16: np.float16, 32: np.float32, 64: np.float64}[type_.bit_width]
        return pa.array(np.concatenate([edges, rng.normal(size=count)]).astype(kind), type_)
    if pa.types.is_decimal(type_):
        top = 10**type_.precision - 1
        drawn = [int.from_bytes(rng.bytes(32), "little") % (2 * top + 1) - top for _ in range(40)]
        exact = [_decimal(value, type_.scale) for value in [0, top, -top, -1, *drawn]]
        return pa.array(exact, type_)
    if pa.types.is_fixed_size_binary(type_):
        width = type_.byte_width
        return pa.array([rng.bytes(width) for _ in range(count)], type_)
    if pa.types.is_primitive(type_):
        return _integers(rng, type_, count)
    texts = ["", "a", "é", "😀", "\0", "b" * 300]
    texts += ["".join(map(chr, rng.integers(97, 123, rng.integers(0, 20)))) for _ in range(count)]
    return pa.array([text.encode() for text in texts], pa.binary()).cast(type_)


def _integers(rng: np.random.Generator, type_: pa.DataType, count: int) -> pa.Array:
    signed = not pa.types.is_unsigned_integer(type_)
    bits = type_.bit_width
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if pa.types.is_time(type_):
        low, high = 0, 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[type_.unit] - 1
    elif pa.types.is_date64(type_):
        return pa.array(rng.integers(-10_000, 10_000, count) * 86_400_000, pa.int64()).cast(type_)
    elif pa.types.is_timestamp(type_) and type_.unit == "s":
        low, high = -(high // 1000), high // 1000  # written as milliseconds
    near = np.clip(rng.integers(-20, 20, count), low, high)
    dtype = np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    wide = rng.integers(low, high, count, dtype=dtype, endpoint=True)
    values = np.concatenate([np.array([low, high], dtype), near.astype(dtype), wide])
    return pa.array(values).view(type_)


def _decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


# -- files -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """A file in memory and how it was written."""

    data: bytes
    options: dict[str, Any]


@st.composite
def written(
    draw: st.DrawFn, types: st.SearchStrategy[pa.DataType], *, max_rows: int = 300
) -> Written:
    """A file of one or two random columns in any layout that pyarrow can write."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.integers(0, max_rows))
    chosen = draw(st.lists(st.tuples(types, st.booleans()), min_size=1, max_size=2))
    fields = [_field(f"c{i}", *each) for i, each in enumerate(chosen)]
    arrays = [random_array(rng, f.type, size, nullable=f.nullable) for f in fields]
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    options: dict[str, Any] = {
        "compression": draw(st.sampled_from(["none", "snappy", "gzip", "brotli", "zstd", "lz4"])),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "data_page_size": draw(st.sampled_from([16, 200, 1 << 20])),
        "write_batch_size": draw(st.sampled_from([1, 7, 1024])),
        "row_group_size": draw(st.sampled_from([50, 1000])),
        "use_dictionary": draw(st.booleans()),
        "dictionary_pagesize_limit": draw(st.sampled_from([20, 1 << 20])),
        "store_schema": draw(st.booleans()),
        "write_page_checksum": draw(st.booleans()),
        "use_compliant_nested_type": draw(st.booleans()),
    }
    out = io.BytesIO()
    try:
        pq.write_table(table, out, **options)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        options["refused"] = str(error)
        return Written(b"", options)
    return Written(out.getvalue(), options)
