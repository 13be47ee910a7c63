"""Statistics of many pages at once, by compiled code: the file is that of one page after the other,
and so are the errors."""

from __future__ import annotations

import io
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from skipstone.errors import SkipstoneError
from skipstone.parquet.format.footer import Tail
from skipstone.parquet.format.metadata import ColumnOrder, FileMetaData
from skipstone.parquet.pages.column_values import LeafColumn, decode_data_page
from skipstone.parquet.thrift.structs import Empty
from skipstone.parquet.writing import chunk_copier, many_pages
from skipstone.rewrite import retrofit

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.pages.page import Page


MANY = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
CODECS = ("none", "snappy", "zstd", "gzip", "lz4", "brotli")
TYPES: dict[str, pa.DataType] = {
    "i32": pa.int32(),
    "i64": pa.int64(),
    "i8": pa.int8(),
    "u32": pa.uint32(),
    "u64": pa.uint64(),
    "f16": pa.float16(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "date": pa.date32(),
    "time": pa.timestamp("us"),
    "d9": pa.decimal128(9, 2),
    "d38": pa.decimal128(38, 4),
    "text": pa.string(),
    "bool": pa.bool_(),
    "fixed": pa.binary(5),
}


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """The kernels, whatever work they have."""
    many_pages.KERNELS.load()


def column(seed: int, type: pa.DataType, rows: int, kind: str, distinct: int) -> pa.Array:
    """Values of a ``type``: any bits, few values, NaN, zeros, and runs of nulls."""
    random = np.random.default_rng(seed)
    picked = random.integers(0, distinct, rows)
    if pa.types.is_floating(type):
        width = type.bit_width // 8
        pool = np.frombuffer(random.bytes(distinct * width), f"<f{width}").copy()
        some = random.integers(0, distinct, 4)
        pool[some] = [0.0, -0.0, np.inf, -np.inf]
        if kind == "nan":
            pool[random.random(distinct) < 0.5] = np.nan
        elif kind == "zeros":
            pool[:] = 0.0
            pool[random.random(distinct) < 0.3] = -0.0
        else:
            pool[np.isnan(pool)] = 1.5
        values = pa.array(pool[picked], type, from_pandas=False)
    elif pa.types.is_decimal(type):
        some = random.integers(-(10**8), 10**8, distinct)
        values = pa.array([Decimal(int(some[k])).scaleb(-2) for k in picked], type)
    elif pa.types.is_string(type):
        values = pa.array([f"{'é' * (k % 40)}{k}" for k in picked.tolist()])
    elif pa.types.is_boolean(type):
        values = pa.array(picked % 2 == 0)
    elif pa.types.is_fixed_size_binary(type):
        values = pa.array([b"%05d" % k for k in picked % 5_000], type)
    else:
        width = type.bit_width // 8
        pool = np.frombuffer(random.bytes(distinct * width), f"<i{width}")
        held = pool[picked]
        values = pa.Array.from_buffers(type, rows, [None, pa.py_buffer(held)])
    if kind in ("nulls", "nan"):
        missing = random.random(rows) < 0.3
        missing[rows // 3 : rows // 2] = True
        values = pa.compute.if_else(pa.array(missing), pa.scalar(None, values.type), values)
    if kind == "nothing":
        values = pa.nulls(rows, type)
    return values


class File:
    """A file, its columns that may have a Bloom filter, and how it was written."""

    def __init__(self, content: bytes, bloom: list[str], options: dict[str, Any]) -> None:
        self.content, self.bloom, self.options = content, bloom, options

    def __repr__(self) -> str:
        return f"File({len(self.content)} bytes, {self.bloom}, {self.options})"


@st.composite
def files(draw: st.DrawFn) -> File:
    rows = draw(st.sampled_from([1, 7, 300, 3_000, 20_000]))
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4, unique=True))
    kinds = st.sampled_from(["values", "nulls", "nan", "zeros", "nothing"])
    made: dict[str, pa.Array] = {}
    for name in names:
        distinct = draw(st.sampled_from([1, 3, 50, 5_000]))
        made[name] = column(draw(st.integers(0, 99)), TYPES[name], rows, draw(kinds), distinct)
    if draw(st.booleans()):
        first = made[names[0]]
        holes = pa.array([k % 5 == 0 for k in range(rows)])
        made["deep"] = pa.StructArray.from_arrays([first], names=["x"], mask=holes)
        made["list"] = pa.ListArray.from_arrays(
            pa.array(np.arange(rows + 1) // 2, pa.int32()), first
        )
    data = pa.table(made)
    if draw(st.booleans()):
        fields = [f if data[f.name].null_count else f.with_nullable(False) for f in data.schema]
        data = data.cast(pa.schema(fields))
    options: dict[str, Any] = {
        "compression": draw(st.sampled_from(CODECS)),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "use_dictionary": draw(st.sampled_from([True, False, names])),
        "dictionary_pagesize_limit": draw(st.sampled_from([40, 2_000, 1 << 20])),
        "max_rows_per_page": draw(
            st.sampled_from([3, 100, 2_000] if rows < 9_000 else [500, 20_000])
        ),
        "row_group_size": draw(st.sampled_from([rows, (rows + 1) // 2])),
        "store_decimal_as_integer": draw(st.booleans()),
        "write_page_checksum": draw(st.booleans()),
        "write_statistics": draw(st.booleans()),
    }
    out = io.BytesIO()
    pq.write_table(data, out, **options)
    written = out.getvalue()
    if draw(st.booleans()):
        written = with_total_order(written)
    return File(written, [name for name in names if name != "bool"], options)


def with_total_order(file: bytes) -> bytes:
    """The file with IEEE_754_TOTAL_ORDER for columns of floating point numbers."""
    tail = Tail.from_bytes(file, len(file))
    metadata = FileMetaData.from_bytes(file[tail.offset :])
    floats = [
        each.type in (4, 5) or (each.name == "f16")
        for each in metadata.schema
        if each.type is not None
    ]
    orders = [
        ColumnOrder(IEEE_754_TOTAL_ORDER=Empty()) if is_float else ColumnOrder(TYPE_ORDER=Empty())
        for is_float in floats
    ]
    footer = replace(metadata, column_orders=tuple(orders)).to_bytes()
    behind = Tail.behind(footer, tail.offset, encrypted=False)
    return file[: tail.offset] + footer + behind.to_bytes()


def both(
    path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[bytes | str, bytes | str]:
    """The files, or the errors, with the kernels and without them."""
    found: list[bytes | str] = []
    for disabled in (False, True):
        monkeypatch.setattr(many_pages.KERNELS, "disabled", disabled)
        out = path.with_name(f"{disabled}.parquet")
        try:
            retrofit(path, output=out, **options)
            found.append(out.read_bytes())
        except SkipstoneError as error:
            found.append(f"{type(error)} {error}")
    return found[0], found[1]


@MANY
@given(
    file=files(), fpp=st.sampled_from([None, 0.01]), window=st.sampled_from([60, 3_000, 1 << 20])
)
def test_many_pages_at_once_give_the_same_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: File,
    fpp: float | None,
    window: int,
) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(file.content)
    monkeypatch.setattr(chunk_copier, "_WINDOW", window)
    bloom = {} if fpp is None else dict.fromkeys(file.bloom, fpp)
    many, single = both(path, monkeypatch, bloom=bloom)
    assert many == single
    assert isinstance(many, bytes), many
    assert many != file.content


@MANY
@given(file=files(), data=st.data())
def test_damaged_pages_give_the_same_file_or_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: File,
    data: st.DataObject,
) -> None:
    whole = bytearray(file.content)
    end = Tail.from_bytes(file.content, len(whole)).offset
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, min(end, data.draw(st.sampled_from([200, end]))) - 1))
        whole[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0xFF, whole[at] ^ 1, whole[at] ^ 0x80]))
    path = tmp_path / "a.parquet"
    path.write_bytes(whole)
    many, single = both(path, monkeypatch, bloom=dict.fromkeys(file.bloom, 0.1))
    note(f"{single!s:.200}")
    assert many == single


def test_no_page_of_usual_columns_is_decoded_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four row groups of 25 pages for each column: numbers, and text in a dictionary."""
    n = np.arange(20_000)
    data = pa.table(
        {
            "id": n,
            "half": pa.array(n / 2, mask=n % 9 == 0),
            "name": [f"name {i % 700}" for i in n.tolist()],
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(data, path, row_group_size=5_000, max_rows_per_page=200, use_dictionary=["name"])
    alone: list[str] = []

    def noted(page: Page, leaf: ColumnDescriptor, *arguments: Any) -> LeafColumn:
        alone.append(leaf.name)
        return decode_data_page(page, leaf, *arguments)

    monkeypatch.setattr(f"{chunk_copier.__name__}.decode_data_page", noted)
    many, single = both(path, monkeypatch, bloom={"id": 0.01, "name": 0.01})
    assert many == single
    assert {name: alone.count(name) for name in data.column_names} == dict.fromkeys(
        data.column_names, 4 * 25
    )
