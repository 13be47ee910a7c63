"""Column and offset indexes as arrays: the golden files' own, random ones, and hostile bytes."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.parquet.format import page_index
from skipstone.parquet.format.enums import BoundaryOrder, Type
from skipstone.parquet.format.footer import read_metadata
from skipstone.parquet.format.page_index import (
    ColumnIndex,
    ColumnIndexArrays,
    OffsetIndex,
    OffsetIndexArrays,
    PageLocation,
)
from skipstone.parquet.thrift.compact import I32, Field

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from skipstone.parquet.format.metadata import ColumnChunk, FileMetaData, RowGroup

numbers = st.one_of(st.integers(0, 200), st.integers(-(2**63), 2**63 - 1))
counts = st.one_of(st.integers(-1, 200), st.integers(0, 2**63 - 1))


def chunks(data: bytes) -> Iterator[tuple[int, int, RowGroup, ColumnChunk]]:
    metadata: FileMetaData = read_metadata(data)
    for r, group in enumerate(metadata.row_groups):
        for c, chunk in enumerate(group.columns):
            yield r, c, group, chunk


def cut(data: bytes, offset: int | None, length: int | None) -> bytes | None:
    return None if offset is None or not length else data[offset : offset + length]


def listed(values: Any) -> Any:
    return None if values is None else tuple(values.ravel().tolist())


def same_bounds(arrays: ColumnIndexArrays, declared: ColumnIndex) -> None:
    assert listed(arrays.null_pages) == declared.null_pages
    assert tuple(arrays.min_values) == declared.min_values
    assert tuple(arrays.max_values) == declared.max_values
    assert arrays.boundary_order == declared.boundary_order
    for name in (
        "null_counts",
        "nan_counts",
        "repetition_level_histograms",
        "definition_level_histograms",
    ):
        assert listed(getattr(arrays, name)) == getattr(declared, name)


def same_places(arrays: OffsetIndexArrays, declared: OffsetIndex) -> None:
    found = zip(
        arrays.offset.tolist(),
        arrays.compressed_page_size.tolist(),
        arrays.first_row_index.tolist(),
        strict=True,
    )
    assert list(found) == [
        (each.offset, each.compressed_page_size, each.first_row_index)
        for each in declared.page_locations
    ]
    unencoded = arrays.unencoded_byte_array_data_bytes
    assert listed(unencoded) == declared.unencoded_byte_array_data_bytes


# -- what real writers left ------------------------------------------------------------------------


def test_every_golden_index_reads_as_the_declared_struct_does(golden: Path) -> None:
    seen = [0, 0]
    for path in sorted(golden.rglob("*.parquet")):
        data = path.read_bytes()
        if (
            "bad_data" in path.parts
            or data[-4:] != b"PAR1"
            or path.parent.parent.name == "xskipper"
        ):
            continue
        try:
            found = list(chunks(data))
        except FormatError:
            continue
        for _, _, group, chunk in found:
            part = cut(data, chunk.column_index_offset, chunk.column_index_length)
            if part is not None:
                arrays, declared = ColumnIndexArrays.from_bytes(part), ColumnIndex.from_bytes(part)
                same_bounds(arrays, declared)
                assert arrays.to_bytes() == declared.to_bytes()
                seen[0] += 1
            part = cut(data, chunk.offset_index_offset, chunk.offset_index_length)
            if part is not None:
                places = OffsetIndexArrays.from_bytes(part, size=len(data), num_rows=group.num_rows)
                same_places(places, OffsetIndex.from_bytes(part))
                assert places.to_bytes() == part
                assert places.rows(group.num_rows).sum() == group.num_rows
                seen[1] += 1
    assert seen[0] > 150
    assert seen[1] > seen[0]  # an offset index without a column index is usual


_UNPACK = {Type.INT32: "<i", Type.INT64: "<q", Type.FLOAT: "<f", Type.DOUBLE: "<d"}


def test_golden_indexes_equal_their_json(golden: Path) -> None:
    folder = golden / "hyparquet" / "test" / "files"
    compared = numbers_seen = 0
    for path in sorted(folder.glob("*.offset_indexes.json")):
        data = path.with_name(path.name.replace(".offset_indexes.json", ".parquet")).read_bytes()
        offsets = json.loads(path.read_text())
        bounds = json.loads(path.with_name(path.name.replace(".offset_", ".column_")).read_text())
        for r, c, group, chunk in chunks(data):
            part = cut(data, chunk.offset_index_offset, chunk.offset_index_length)
            if part is not None:
                places = OffsetIndexArrays.from_bytes(part, size=len(data), num_rows=group.num_rows)
                wanted = offsets[r][c]["page_locations"]
                assert places.offset.tolist() == [each["offset"] for each in wanted]
                assert places.compressed_page_size.tolist() == [
                    each["compressed_page_size"] for each in wanted
                ]
                assert places.first_row_index.tolist() == [
                    each["first_row_index"] for each in wanted
                ]
                compared += 1
            part = cut(data, chunk.column_index_offset, chunk.column_index_length)
            if part is None:
                continue
            index, expected = ColumnIndexArrays.from_bytes(part), bounds[r][c]
            assert index.null_pages.tolist() == expected["null_pages"]
            order = index.boundary_order
            assert isinstance(order, BoundaryOrder)
            assert order.name == expected["boundary_order"]
            assert listed(index.null_counts) == tuple(expected.get("null_counts") or ()) or (
                index.null_counts is None and "null_counts" not in expected
            )
            assert chunk.meta_data is not None
            unpack = _UNPACK.get(Type(chunk.meta_data.type))
            for values, ends in (
                (index.min_values, expected["min_values"]),
                (index.max_values, expected["max_values"]),
            ):
                assert len(values) == len(ends)
                for value, end in zip(values, ends, strict=True):
                    if unpack and value and type(end) is int:  # dates and decimals are rendered
                        assert struct.unpack(unpack, value)[0] == end
                        numbers_seen += 1
            compared += 1
    assert compared > 200
    assert numbers_seen > 50


def test_null_pages_as_their_description_says(golden: Path) -> None:
    data = (golden / "parquet-testing" / "data" / "int32_with_null_pages.parquet").read_bytes()
    (_, _, _, chunk), *_ = chunks(data)
    part = cut(data, chunk.column_index_offset, chunk.column_index_length)
    assert part is not None
    index = ColumnIndexArrays.from_bytes(part)
    assert index.null_pages.tolist() == [False, False, True, *[False] * 7]
    assert listed(index.null_counts) == (8, 55, 100, 52, 16, 12, 5, 7, 8, 12)
    lows = [struct.unpack("<i", low)[0] if low else None for low in index.min_values]
    assert lows[:4] == [-2135807632, -2104090659, None, -2116849709]
    assert index.boundary_order is BoundaryOrder.UNORDERED


# -- random ones -----------------------------------------------------------------------------------


@st.composite
def column_indexes(draw: st.DrawFn) -> ColumnIndex:
    pages = draw(st.integers(0, 9))
    nulls = draw(st.lists(st.booleans(), min_size=pages, max_size=pages))
    width = draw(st.sampled_from([None, 1, 4, 8, 12, 16, 127, 128, 300]))

    def strings() -> tuple[bytes, ...]:
        if width is None:
            each = st.one_of(st.binary(max_size=6), st.binary(min_size=126, max_size=130))
            return tuple(draw(st.lists(each, min_size=pages, max_size=pages)))
        return tuple(
            b"" if null else draw(st.binary(min_size=width, max_size=width)) for null in nulls
        )

    def counted(of: st.SearchStrategy[int], per: int = 1) -> tuple[int, ...] | None:
        size = pages * per
        return draw(st.none() | st.lists(of, min_size=size, max_size=size).map(tuple))

    return ColumnIndex(
        null_pages=tuple(nulls),
        min_values=strings(),
        max_values=strings(),
        boundary_order=draw(st.sampled_from([*BoundaryOrder, 7])),
        null_counts=counted(counts),
        repetition_level_histograms=counted(numbers, 2),
        definition_level_histograms=counted(numbers, 3),
        nan_counts=counted(counts),
        unknown=draw(st.sampled_from([(), (Field(77, I32, 5),)])),
    )


@given(column_indexes())
def test_column_indexes_both_ways(index: ColumnIndex) -> None:
    data = index.to_bytes()
    arrays = ColumnIndexArrays.from_bytes(data + b"whatever follows")
    same_bounds(arrays, index)
    assert arrays.to_bytes() == data
    assert len(arrays) == len(index.null_pages)


@given(
    st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.integers(0, 2**40))),
    st.sampled_from([(), (Field(3, I32, 5),)]),
    st.booleans(),
    st.data(),
)
def test_offset_indexes_both_ways(
    places: list[tuple[int, int, int]],
    unknown: tuple[Field, ...],
    odd: bool,
    data: st.DataObject,
) -> None:
    first, at = [], 0
    for _, _, step in places:
        first.append(at)
        at += step
    # A field that nobody knows within a location: that list is read value by value.
    inner = (Field(9, I32, 1),) if odd else ()
    index = OffsetIndex(
        page_locations=tuple(
            PageLocation(offset=o, compressed_page_size=s, first_row_index=row, unknown=inner)
            for (o, s, _), row in zip(places, first, strict=True)
        ),
        unencoded_byte_array_data_bytes=data.draw(
            st.none() | st.lists(numbers, min_size=len(places), max_size=len(places)).map(tuple)
        ),
        unknown=unknown,
    )
    written = index.to_bytes()
    arrays = OffsetIndexArrays.from_bytes(written + b"\x16")
    same_places(arrays, index)
    if not odd:
        assert arrays.to_bytes() == written


# -- hostile ones ----------------------------------------------------------------------------------


def location(offset: int, size: int, row: int) -> PageLocation:
    return PageLocation(offset=offset, compressed_page_size=size, first_row_index=row)


@pytest.mark.parametrize(
    "places, words",
    [
        ([location(-4, 10, 0)], "negative"),
        ([location(4, -10, 0)], "negative"),
        ([location(4, 10, 3)], "ascend"),
        ([location(4, 10, 0), location(14, 10, 8), location(24, 10, 7)], "ascend"),
        ([location(4, 10, 0), location(14, 10, 101)], "past the rows"),
        ([location(4, 10, 0), location(991, 10, 8)], "past the file"),
        ([location(2**63 - 1, 2**31 - 1, 0)], "past the file"),
        ([], "without pages"),
    ],
)
def test_impossible_places_are_refused(places: list[PageLocation], words: str) -> None:
    data = OffsetIndex(page_locations=tuple(places)).to_bytes()
    with pytest.raises(FormatError, match=words):
        OffsetIndexArrays.from_bytes(data, size=1000, num_rows=100)


def test_lists_of_unequal_lengths_are_refused() -> None:
    good = {
        "null_pages": (False, False),
        "min_values": (b"a", b"b"),
        "max_values": (b"a", b"b"),
        "null_counts": (0, 0),
        "nan_counts": (0, 0),
        "definition_level_histograms": (0, 1, 2, 3),
    }
    for name in good:
        for short in ((), good[name][:1], (*good[name], good[name][0])):
            if name == "definition_level_histograms" and not short:
                continue
            index = ColumnIndex(boundary_order=0, **{**good, name: short})  # type: ignore[arg-type]
            with pytest.raises(FormatError):
                ColumnIndexArrays.from_bytes(index.to_bytes())
    with pytest.raises(FormatError, match="negative"):
        ColumnIndexArrays.from_bytes(
            ColumnIndex(boundary_order=0, **{**good, "null_counts": (0, -2)}).to_bytes()  # type: ignore[arg-type]
        )


@given(column_indexes(), st.data())
def test_damaged_indexes_give_format_errors_only(index: ColumnIndex, data: st.DataObject) -> None:
    offsets = OffsetIndex(
        page_locations=tuple(location(4 + 10 * i, 10, 5 * i) for i in range(4)),
        unencoded_byte_array_data_bytes=(1, 2, 3, 4),
    )
    for kind, whole in (
        (ColumnIndexArrays, index.to_bytes()),
        (OffsetIndexArrays, offsets.to_bytes()),
    ):
        bytes_ = bytearray(whole)
        for _ in range(data.draw(st.integers(0, 3))):
            bytes_[data.draw(st.integers(0, len(bytes_) - 1))] = data.draw(st.integers(0, 255))
        cut_at = data.draw(st.integers(0, len(bytes_)))
        try:
            made = kind.from_bytes(bytes(bytes_[:cut_at]))
        except FormatError:
            continue
        else:
            assert len(made) <= cut_at


@given(
    st.lists(
        st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 2**31), st.integers(0, 2**62)),
        max_size=18,
    ),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=2),
    st.integers(0, 300),
)
def test_few_locations_are_read_as_many_are(
    places: list[tuple[int, int, int]], damage: list[tuple[int, int]], cut: int
) -> None:
    written = [location(o, min(s, 2**31 - 1), row) for o, s, row in places]
    data = bytearray(OffsetIndex(page_locations=tuple(written)).to_bytes())
    for at, byte in damage:
        data[at % len(data)] = byte
    data = data[: len(data) - cut % 20] + bytes(cut // 20)

    def read(few: int) -> list[list[int]] | str:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(page_index, "_FEW", few)
            try:
                found = OffsetIndexArrays.from_bytes(bytes(data))
            except FormatError as error:
                return str(error)
            columns = (found.offset, found.compressed_page_size, found.first_row_index)
            return [each.tolist() for each in columns]

    assert read(16) == read(0)


def test_many_pages_of_texts_and_numbers() -> None:
    pages = 5_000
    texts = tuple(b"k" * (i % 200) for i in range(pages))
    index = ColumnIndex(
        null_pages=(False,) * pages,
        min_values=texts,
        max_values=tuple(reversed(texts)),
        boundary_order=BoundaryOrder.UNORDERED,
        null_counts=tuple(i * i for i in range(pages)),
    )
    arrays = ColumnIndexArrays.from_bytes(index.to_bytes())
    same_bounds(arrays, index)
    assert np.array_equal(arrays.min_values.lengths, np.arange(pages) % 200)
