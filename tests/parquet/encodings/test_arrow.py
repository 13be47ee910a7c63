"""Both directions against Arrow: its pages through our decoders, and our pages through its own."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from skipstone.parquet.encodings import ByteArrays, Values, decode_values, encode_values
from skipstone.parquet.format.enums import Encoding, Type
from tests.parquet.encodings.drawing import BOTH, arrays, decoded, factorise, same
from tests.parquet.encodings.files import column_file, pages_of

if TYPE_CHECKING:
    import numpy.typing as npt


Drawn = tuple[Type, int | None, Values]
NUMBERS = {Type.INT32, Type.INT64, Type.FLOAT, Type.DOUBLE}
ENCODINGS = {
    Encoding.PLAIN: set(Type),
    Encoding.RLE: {Type.BOOLEAN},
    Encoding.RLE_DICTIONARY: set(Type) - {Type.BOOLEAN},
    Encoding.DELTA_BINARY_PACKED: {Type.INT32, Type.INT64},
    Encoding.DELTA_LENGTH_BYTE_ARRAY: {Type.BYTE_ARRAY},
    Encoding.DELTA_BYTE_ARRAY: {Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY},
    Encoding.BYTE_STREAM_SPLIT: NUMBERS | {Type.FIXED_LEN_BYTE_ARRAY},
}
encodings = pytest.mark.parametrize("encoding", ENCODINGS)


def to_arrow(type_: Type, values: Values) -> pa.Array:
    if isinstance(values, ByteArrays):
        return values.to_arrow(pa.binary())
    if values.ndim == 2:
        rows = [each.tobytes() for each in values]
        return pa.array(rows, pa.binary(values.shape[1]))
    return pa.array(values)


def from_arrow(type_: Type, column: pa.ChunkedArray) -> Values:
    array = column.combine_chunks()
    if type_ is Type.BYTE_ARRAY:
        return ByteArrays.from_arrow(array)
    if type_ is Type.FIXED_LEN_BYTE_ARRAY:
        raw = b"".join(array.to_pylist())
        made: npt.NDArray[np.uint8] = np.frombuffer(raw, np.uint8).reshape(
            len(array), array.type.byte_width
        )
        return made
    numbers: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numbers


def written(array: pa.Array, encoding: Encoding, **options: Any) -> bytes:
    """Arrow's file of one required column, in small pages."""
    schema = pa.schema([pa.field("x", array.type, nullable=False)])
    coded = encoding is Encoding.RLE_DICTIONARY
    sink = io.BytesIO()
    pq.write_table(
        pa.table([array], schema=schema),
        sink,
        compression="none",
        use_dictionary=coded,
        column_encoding=None if coded else {"x": encoding.name},
        data_page_size=300,
        write_batch_size=50,
        data_page_version="1.0",
        **options,
    )
    return sink.getvalue()


def read_back(data: bytes, type_: Type, width: int | None) -> list[Values]:
    """The values of all data pages, by our decoders."""
    parts: list[Values] = []
    distinct: Values | None = None
    for is_dictionary, encoding, count, body in pages_of(data):
        if is_dictionary:
            distinct = decode_values(Encoding.PLAIN, body, count, type_, width)
        else:
            parts.append(decoded(encoding, body, count, type_, width, distinct))
    return parts


def joined(parts: list[Values], like: Values) -> Values:
    if isinstance(like, ByteArrays):
        return ByteArrays.concat([part for part in parts if isinstance(part, ByteArrays)])
    return np.concatenate([like[:0], *(part for part in parts if isinstance(part, np.ndarray))])


@BOTH
@encodings
@given(drawn=arrays().filter(lambda drawn: drawn[0] is not Type.INT96))
def test_pages_of_arrow(encoding: Encoding, drawn: Drawn) -> None:
    type_, width, values = drawn
    if type_ not in ENCODINGS[encoding]:
        return
    data = written(to_arrow(type_, values), encoding)
    assert encoding in {each for _, each, _, _ in pages_of(data)} or not len(values)
    assert same(joined(read_back(data, type_, width), values), values)


@encodings
@given(drawn=arrays().filter(lambda drawn: drawn[0] is not Type.INT96))
def test_pages_for_arrow(encoding: Encoding, drawn: Drawn) -> None:
    type_, width, values = drawn
    if type_ not in ENCODINGS[encoding] or not len(values):
        return
    first_page: tuple[int, bytes] | None = None
    coded = values
    if encoding is Encoding.RLE_DICTIONARY:
        distinct, coded = factorise(values)
        first_page = (len(distinct), encode_values(Encoding.PLAIN, distinct, type_, width))
    half = len(values) // 2
    pages = [
        (len(part), encode_values(encoding, part, type_, width))
        for part in (coded[:half], coded[half:])
        if len(part)  # Arrow takes a page of no values for the end
    ]
    data = column_file(type_, width, encoding, pages, first_page)
    table = pq.read_table(io.BytesIO(data))
    assert same(from_arrow(type_, table.column("x")), values)


@BOTH
@pytest.mark.parametrize("encoding", [Encoding.PLAIN, Encoding.RLE_DICTIONARY])
def test_int96_of_arrow(encoding: Encoding) -> None:
    times = pa.array(np.arange(300) * 977_777_777_777, pa.timestamp("ns"))
    data = written(times, encoding, use_deprecated_int96_timestamps=True)
    rows = joined(read_back(data, Type.INT96, None), np.zeros((0, 12), np.uint8))
    assert isinstance(rows, np.ndarray)
    nanos = np.ascontiguousarray(rows[:, :8]).view("<i8")[:, 0]
    days = np.ascontiguousarray(rows[:, 8:]).view("<i4")[:, 0].astype(np.int64) - 2_440_588
    assert (days * 86_400_000_000_000 + nanos).tolist() == times.cast(pa.int64()).to_pylist()
    pages = [(len(rows), encode_values(Encoding.PLAIN, rows, Type.INT96))]
    table = pq.read_table(io.BytesIO(column_file(Type.INT96, None, Encoding.PLAIN, pages)))
    assert table.column("x").to_pylist() == times.to_pylist()


@BOTH
@pytest.mark.parametrize("rows", [20_000])
def test_large_pages(rows: int) -> None:
    rng = np.random.default_rng(3)
    words = ByteArrays.from_list([b"stone %d" % each for each in rng.integers(0, 900, rows)])
    numbers = rng.integers(-(1 << 62), 1 << 62, rows)
    cases: list[Drawn] = [
        (Type.BYTE_ARRAY, None, words),
        (Type.INT64, None, numbers),
        (Type.INT32, None, (numbers >> 40).astype(np.int32)),
        (Type.DOUBLE, None, numbers.astype(float)),
        (Type.BOOLEAN, None, numbers > 0),
    ]
    for encoding, types in ENCODINGS.items():
        for type_, width, values in cases:
            if type_ in types:
                data = written(to_arrow(type_, values), encoding)
                assert same(joined(read_back(data, type_, width), values), values)
