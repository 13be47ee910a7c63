"""The scan of a footer: compiled and plain alike, and equal to the frozen values field by field."""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.parquet.encryption.open_footer import adopt
from skipstone.parquet.format.enums import Encoding, PageType, Type
from skipstone.parquet.format.footer import TAIL_LENGTH, Tail
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.footer_layout import BYTES, GROUPS, NARROW, PARTS, WIDE
from skipstone.parquet.format.footer_scan import COMPILED, PLAIN
from skipstone.parquet.format.metadata import (
    TYPE_ORDER,
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    PageEncodingStats,
    RowGroup,
    SchemaElement,
    SizeStatistics,
    Statistics,
)
from skipstone.parquet.thrift.compact import I32, LIST, Field, ListOf, read_struct, write_struct
from tests.fuzz.mutate import mutated
from tests.parquet.format.files import golden_files
from tests.parquet.format.wire import footer_of, structs

if TYPE_CHECKING:
    from pathlib import Path

_META = (
    "codec",
    "num_values",
    "total_uncompressed_size",
    "total_compressed_size",
    "data_page_offset",
    "index_page_offset",
    "dictionary_page_offset",
    "bloom_filter_offset",
    "bloom_filter_length",
)
_CHUNK = (
    "offset_index_offset",
    "offset_index_length",
    "column_index_offset",
    "column_index_length",
)
_COUNTS = ("null_count", "distinct_count", "nan_count")
_BOUNDS = ("min", "max", "min_value", "max_value")


def same(one: FooterArrays, other: FooterArrays) -> bool:
    return (
        np.array_equal(one.scanned.wide, other.scanned.wide)
        and np.array_equal(one.scanned.narrow, other.scanned.narrow)
        and np.array_equal(one.scanned.groups, other.scanned.groups)
        and np.array_equal(one.scanned.types, other.scanned.types)
        and one.scanned.fields == other.scanned.fields
        and one.end == other.end
    )


def number(value: Any) -> int:
    return -1 if value is None else int(value)


def dictionary_only(meta: ColumnMetaData) -> int:
    """The claim in words: what proves that every data page is dictionary-encoded."""
    if meta.encoding_stats is not None:
        data = [
            each
            for each in meta.encoding_stats
            if each.page_type not in (PageType.INDEX_PAGE, PageType.DICTIONARY_PAGE) and each.count
        ]
        good = [
            each.page_type in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)
            and each.encoding in (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY)
            and each.count > 0
            for each in data
        ]
        return int(all(good)) if data else -1
    levels = {Encoding.PLAIN_DICTIONARY, Encoding.RLE, Encoding.BIT_PACKED}
    proved = Encoding.PLAIN_DICTIONARY in meta.encodings and set(meta.encodings) <= levels
    return 1 if proved and meta.type is not Type.BOOLEAN else -1


def check(footer: FooterArrays, metadata: FileMetaData) -> None:
    """Every field of every chunk and row group is what the frozen values say."""
    groups = metadata.row_groups
    assert footer.num_row_groups == len(groups)
    first = 0
    for r, group in enumerate(groups):
        assert footer.group("first_row")[r] == first
        first += group.num_rows
        assert footer.group("num_rows")[r] == group.num_rows
        assert footer.group("total_byte_size")[r] == group.total_byte_size
        for name in ("total_compressed_size", "file_offset", "ordinal"):
            assert footer.group(name)[r] == max(number(getattr(group, name)), -1)
        assert footer.row_group(r) == group
        assert footer.sorting_columns(r) == group.sorting_columns
        for c, chunk in enumerate(group.columns):
            check_chunk(footer, r, c, chunk)
    assert footer.row_starts[-1] == first


def check_chunk(footer: FooterArrays, r: int, c: int, chunk: ColumnChunk) -> None:
    def of(name: str) -> int:
        return int(footer.chunk(name)[r, c])

    assert footer.column_chunk(r, c) == chunk
    for name in _CHUNK:
        assert of(name) == number(getattr(chunk, name)), name
    path = footer.value_bytes("file_path", r, c)
    assert path == (None if chunk.file_path is None else chunk.file_path.encode())
    assert of("encrypted") == (chunk.crypto_metadata is not None)
    sealed = footer.value_bytes("encrypted_column_metadata", r, c)
    assert sealed == chunk.encrypted_column_metadata
    meta = chunk.meta_data
    assert footer.column_meta_data(r, c) == meta
    assert of("has_meta_data") == (meta is not None)
    if meta is None:
        assert of("type") == of("start") == of("stop") == of("num_values") == -1
        return
    assert of("type") == meta.type
    for name in _META:
        value = number(getattr(meta, name))
        assert of(name) == (-1 if name == "dictionary_page_offset" and not value else value), name
    assert of("encodings") == sum(1 << each for each in set(meta.encodings))
    assert of("dict_only") == dictionary_only(meta)
    start, dictionary = meta.data_page_offset, meta.dictionary_page_offset or 0
    if dictionary > 0 and (dictionary < start or start < 4):
        start = dictionary
    assert (of("start"), of("stop")) == (start, start + meta.total_compressed_size)
    statistics = meta.statistics or Statistics()
    for name in _COUNTS:
        assert of(name) == max(number(getattr(statistics, name)), -1), name
    for name in ("is_min_value_exact", "is_max_value_exact"):
        assert of(name) == number(getattr(statistics, name)), name
    for name in _BOUNDS:
        expected = getattr(statistics, name)
        assert footer.value_bytes(name, r, c) == expected
        starts, lengths = footer.bytes_of(name, [r], c)
        at = int(starts[0])
        found = None if at < 0 else footer.buffer[at : at + int(lengths[0])].tobytes()
        assert found == expected
    sizes = meta.size_statistics or SizeStatistics()
    expected = number(sizes.unencoded_byte_array_data_bytes)
    assert of("unencoded_byte_array_data_bytes") == max(expected, -1)
    for name in ("statistics", "size_statistics", "geospatial_statistics", "key_value_metadata"):
        assert (footer.parts(name)[r, c] >= 0) == (getattr(meta, name) is not None)


def test_golden_files_compiled_and_plain_and_frozen_say_the_same(golden: Path) -> None:
    compared = 0
    for path in golden_files(golden):
        data, offset = footer_of(path)
        plain = FooterArrays.scan(data, offset, kernels=PLAIN)
        assert same(plain, FooterArrays.scan(data, offset, kernels=COMPILED.load())), path.name
        check(plain, FileMetaData.from_bytes(data))
        plain.check_extent(offset)
        assert plain.num_leaves == len(plain.schema.leaves)
        compared += 1
    assert compared > 95


def test_footers_of_every_other_golden_writer_scan(golden: Path) -> None:
    scanned = 0
    for folder in ("xskipper", "questdb", "paimon"):
        for path in (golden / folder).rglob("*.parquet"):
            if path.read_bytes()[-4:] == b"PARE":
                continue
            data, offset = footer_of(path)
            footer = FooterArrays.scan(data, offset)
            footer.check_extent(offset)
            assert footer.metadata == FileMetaData.from_bytes(data)
            scanned += 1
    assert scanned > 100


def test_damaged_golden_files_lie_in_their_pages_but_for_two(golden: Path) -> None:
    refused = set()
    for path in (golden / "parquet-testing" / "bad_data").glob("*.parquet"):
        data, offset = footer_of(path)
        try:
            FooterArrays.scan(data, offset).check_extent(offset)
        except FormatError:
            refused.add(path.name)
    # Of the one the row groups are no structs, of the other a chunk ends beyond the footer.
    assert refused == {"ARROW-GH-41317.parquet", "ARROW-RS-GH-6229-DICTHEADER.parquet"}


def test_rows_are_those_of_the_row_groups_where_the_footer_says_none(golden: Path) -> None:
    path = golden / "parquet-testing" / "data" / "repeated_no_annotation.parquet"
    footer = FooterArrays.scan(*footer_of(path))
    assert footer.num_rows == 0
    assert footer.row_starts.tolist() == [0, 6]


def test_a_dictionary_at_offset_0_is_no_dictionary() -> None:
    meta = dataclasses.replace(META, dictionary_page_offset=0)
    footer = FooterArrays.scan(a_footer(dataclasses.replace(CHUNK, meta_data=meta)))
    assert footer.chunk("dictionary_page_offset").tolist() == [[-1]]
    assert footer.chunk("start").tolist() == [[4]]


# -- random footers --------------------------------------------------------------------------------

META = ColumnMetaData(
    type=Type.INT32,
    encodings=(Encoding.PLAIN,),
    codec=0,
    num_values=3,
    total_uncompressed_size=20,
    total_compressed_size=20,
    data_page_offset=4,
)
CHUNK = ColumnChunk(file_offset=0, meta_data=META)


def a_footer(*chunks: ColumnChunk, rows: int = 3, **others: Any) -> bytes:
    """A footer of one row group with these chunks."""
    names = [
        SchemaElement(
            name=f"c{at}",
            type=chunk.meta_data.type if chunk.meta_data else Type.INT32,
            type_length=4,
        )
        for at, chunk in enumerate(chunks)
    ]
    return FileMetaData(
        version=2,
        schema=(SchemaElement(name="root", num_children=len(chunks)), *names),
        num_rows=rows,
        row_groups=(RowGroup(columns=chunks, total_byte_size=1, num_rows=rows, **others),),
    ).to_bytes()


_sizes = st.one_of(st.integers(0, 300), st.integers(0, 1 << 60))
_lengths = st.one_of(st.integers(0, 300), st.integers(0, (1 << 31) - 2))
_tallies = st.one_of(st.none(), st.integers(0, 1 << 60))
_bounds = st.one_of(st.none(), st.binary(max_size=9))
_flags = st.one_of(st.none(), st.booleans())
_unknown = structs(1).map(
    lambda found: tuple(sorted({each.id: each for each in found if each.id > 30}.values()))
)
_statistics = st.builds(
    Statistics,
    min=_bounds,
    max=_bounds,
    min_value=_bounds,
    max_value=_bounds,
    null_count=_tallies,
    distinct_count=_tallies,
    nan_count=_tallies,
    is_max_value_exact=_flags,
    is_min_value_exact=_flags,
    unknown=_unknown,
)
_encoding_stats = st.lists(
    st.builds(
        PageEncodingStats,
        page_type=st.sampled_from([*PageType, 9]),
        encoding=st.sampled_from([Encoding.PLAIN, Encoding.PLAIN_DICTIONARY, 8, 99]),
        count=st.integers(-1, 3),
    ),
    max_size=4,
).map(tuple)


def _optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


_meta_data = st.builds(
    ColumnMetaData,
    type=st.sampled_from(Type),
    encodings=st.lists(st.sampled_from(Encoding), max_size=4).map(tuple),
    path_in_schema=_optional(st.lists(st.text(max_size=4), max_size=3).map(tuple)),
    codec=st.integers(0, 9),
    num_values=_sizes,
    total_uncompressed_size=_sizes,
    total_compressed_size=_sizes,
    data_page_offset=_sizes,
    index_page_offset=_optional(_sizes),
    dictionary_page_offset=_optional(_sizes),
    statistics=_optional(_statistics),
    encoding_stats=_optional(_encoding_stats),
    bloom_filter_offset=_optional(_sizes),
    bloom_filter_length=_optional(_lengths),
    size_statistics=_optional(
        st.builds(
            SizeStatistics,
            unencoded_byte_array_data_bytes=_tallies,
            definition_level_histogram=_optional(st.lists(_sizes, max_size=3).map(tuple)),
        )
    ),
    unknown=_unknown,
)
_chunks = st.builds(
    ColumnChunk,
    file_path=_optional(st.text(max_size=5)),
    file_offset=_optional(st.integers(-(1 << 63), (1 << 63) - 1)),
    meta_data=_meta_data,
    offset_index_offset=_optional(_sizes),
    offset_index_length=_optional(_lengths),
    column_index_offset=_optional(_sizes),
    column_index_length=_optional(_lengths),
    unknown=_unknown,
)


@given(st.lists(_chunks, min_size=1, max_size=3), st.integers(0, 1 << 60), _unknown)
def test_random_footers_compiled_and_plain_and_frozen_say_the_same(
    chunks: list[ColumnChunk], rows: int, unknown: tuple[Field, ...]
) -> None:
    data = a_footer(*chunks, rows=rows, unknown=unknown, ordinal=7)
    plain = FooterArrays.scan(data, kernels=PLAIN)
    assert same(plain, FooterArrays.scan(data, kernels=COMPILED.load()))
    metadata = FileMetaData.from_bytes(data)
    check(plain, metadata)
    assert plain.metadata == metadata


def test_fields_before_the_schema_and_after_the_row_groups_are_found() -> None:
    data = a_footer(CHUNK)
    value, _ = read_struct(data)
    by_id = {each.id: each for each in value}
    turned = write_struct(
        dataclasses.replace(value, fields=tuple(by_id[each] for each in (4, 3, 2, 1)))
    )
    for kernels in (PLAIN, COMPILED.load()):
        footer = FooterArrays.scan(turned, kernels=kernels)
        check(footer, FileMetaData.from_bytes(turned))
        assert (footer.version, footer.num_rows) == (2, 3)


def test_orders_of_equal_bytes_are_shared_and_errors_lie_in_their_own_file() -> None:
    metadata = FileMetaData.from_bytes(a_footer(CHUNK))
    data = dataclasses.replace(metadata, column_orders=(TYPE_ORDER,)).to_bytes()
    one, other = FooterArrays.scan(data), FooterArrays.scan(data, 100)
    assert one.column_orders == (TYPE_ORDER,)
    assert other.column_orders is one.column_orders
    value, _ = read_struct(a_footer(CHUNK))
    numbers = Field(7, LIST, ListOf(I32, (1,)))
    damaged = write_struct(dataclasses.replace(value, fields=(*value.fields, numbers)))
    places = []
    for base in (0, 100):
        with pytest.raises(FormatError) as caught:
            _ = FooterArrays.scan(damaged, base).column_orders
        places.append(caught.value.offset)
    assert places[0] is not None
    assert places[1] == places[0] + 100


def test_a_struct_twice_counts_as_its_last() -> None:
    """As the frozen values have it: nothing of the first may shine through."""
    first = dataclasses.replace(
        META, bloom_filter_offset=9, statistics=Statistics(min=b"a", null_count=1, nan_count=2)
    )
    value, _ = read_struct(dataclasses.replace(CHUNK, meta_data=first).to_bytes())
    second, _ = read_struct(dataclasses.replace(META, statistics=Statistics(max=b"b")).to_bytes())
    twice = dataclasses.replace(value, fields=(*value.fields, Field(3, 12, second)))
    row_group = RowGroup(columns=(CHUNK,), total_byte_size=1, num_rows=3).to_bytes()
    whole = a_footer(CHUNK).replace(
        row_group, row_group.replace(CHUNK.to_bytes(), write_struct(twice))
    )
    for kernels in (PLAIN, COMPILED.load()):
        check(FooterArrays.scan(whole, kernels=kernels), FileMetaData.from_bytes(whole))


def test_small_footers_need_no_compiler_until_they_are_many() -> None:
    script = (
        "import sys; from skipstone.parquet.format.footer_scan import COMPILED, LARGE;"
        "sizes = [LARGE // 2, LARGE // 2 - 1, 1_000, 10_000, 10];"
        "found = [(COMPILED.for_work(size), COMPILED._compiler is None)[1] for size in sizes];"
        "print(found)"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[True, True, False, False, False]"


# -- what is refused -------------------------------------------------------------------------------


def refused(data: bytes, match: str) -> None:
    for kernels in (PLAIN, COMPILED.load()):
        with pytest.raises(FormatError, match=match):
            FooterArrays.scan(data, 1_000, kernels=kernels)


def test_every_cut_is_refused() -> None:
    data = a_footer(CHUNK, dataclasses.replace(CHUNK, offset_index_offset=900))
    for stop in range(len(data)):
        with pytest.raises(FormatError):
            FooterArrays.scan(data[:stop])


@pytest.mark.parametrize(
    "name", ["num_values", "total_uncompressed_size", "total_compressed_size", "data_page_offset"]
)
@pytest.mark.parametrize("value", [-1, (1 << 60) + 1, -(1 << 63)])
def test_sizes_and_offsets_that_cannot_be(name: str, value: int) -> None:
    fields: dict[str, Any] = {name: value}
    meta = dataclasses.replace(META, **fields)
    refused(a_footer(dataclasses.replace(CHUNK, meta_data=meta)), "impossible")


@pytest.mark.parametrize("name", ["num_values", "codec", "encodings", "data_page_offset", "type"])
def test_required_fields_of_a_chunk(name: str) -> None:
    meta, _ = read_struct(META.to_bytes())
    id = {"type": 1, "encodings": 2, "codec": 4, "num_values": 5, "data_page_offset": 9}[name]
    chunk, _ = read_struct(CHUNK.to_bytes())
    without = write_struct(chunk.replace(3, 12, meta.without(id)))
    # Long enough, so that it is not the size that is refused.
    padded = write_struct(read_struct(without)[0].replace(99, 8, b"x" * (30 - len(without) % 30)))
    refused(a_footer(CHUNK).replace(CHUNK.to_bytes(), padded), "required field is missing")


def test_a_row_group_of_other_columns_than_the_schema() -> None:
    one = RowGroup(columns=(CHUNK,), total_byte_size=1, num_rows=3).to_bytes()
    three = RowGroup(columns=(CHUNK,) * 3, total_byte_size=1, num_rows=3).to_bytes()
    refused(a_footer(CHUNK).replace(one, three), "another number of columns")


def test_a_chunk_of_another_type_than_its_leaf() -> None:
    other = dataclasses.replace(CHUNK, meta_data=dataclasses.replace(META, type=Type.DOUBLE))
    refused(a_footer(CHUNK).replace(CHUNK.to_bytes(), other.to_bytes()), "another type")


def test_a_chunk_without_metadata() -> None:
    bare = ColumnChunk(file_offset=0, unknown=(Field(99, 8, b"x" * 20),)).to_bytes()
    refused(a_footer(CHUNK).replace(CHUNK.to_bytes(), bare), "without metadata")


def test_rows_that_add_up_to_more_than_any_file_has() -> None:
    group = RowGroup(columns=(), total_byte_size=0, num_rows=1 << 60)
    data = FileMetaData(
        version=1, schema=(SchemaElement(name="r"),), num_rows=0, row_groups=(group,) * 8
    ).to_bytes()
    refused(data, "more rows than possible")


def test_no_columns_and_no_row_groups_are_fine() -> None:
    root = SchemaElement(name="r", num_children=0)
    for groups in ((), (RowGroup(columns=(), total_byte_size=0, num_rows=5),)):
        data = FileMetaData(version=1, schema=(root,), num_rows=0, row_groups=groups).to_bytes()
        for kernels in (PLAIN, COMPILED.load()):
            footer = FooterArrays.scan(data, kernels=kernels)
            assert footer.chunk("codec").shape == (len(groups), 0)
            assert footer.row_starts.tolist() == [0, *[5 for _ in groups]]


def test_a_footer_that_promises_more_than_its_bytes_takes_no_memory() -> None:
    """50,000 leaves of 4 bytes, and a million row groups: R × C slots would be terabytes."""
    leaves = tuple([SchemaElement(name="", type=Type.INT32)] * 50_000)
    data = FileMetaData(
        version=1,
        schema=(SchemaElement(name="", num_children=50_000), *leaves),
        num_rows=0,
        row_groups=(),
    ).to_bytes()
    hostile = data[:-2] + b"\xfc\xc0\x84\x3d" + bytes(1_100_000)
    tracemalloc.start()
    try:
        refused(hostile, "row groups of 50000 columns")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * len(hostile)


def test_places_beyond_the_data_are_named() -> None:
    footer = FooterArrays.scan(a_footer(CHUNK), 100)
    footer.check_extent(24)
    with pytest.raises(FormatError, match="row group 0, column 0"):
        footer.check_extent(23)
    indexed = dataclasses.replace(CHUNK, column_index_offset=90, column_index_length=10)
    footer = FooterArrays.scan(a_footer(indexed), 100)
    footer.check_extent(100)
    with pytest.raises(FormatError, match="column_index"):
        footer.check_extent(99)
    elsewhere = dataclasses.replace(indexed, file_path="other.parquet")
    FooterArrays.scan(a_footer(elsewhere), 100).check_extent(0)


@pytest.mark.fuzz
@given(st.integers(0, 1 << 48), st.data())
def test_damaged_footers_are_refused_or_read_and_never_differently(
    seed: int, draw: st.DataObject
) -> None:
    data = mutated(draw.draw(st.sampled_from(FOOTERS)), seed)
    results: list[FooterArrays | None] = []
    for kernels in (PLAIN, COMPILED.load()):
        try:
            results.append(FooterArrays.scan(data, kernels=kernels))
        except (FormatError, UnsupportedError):
            results.append(None)
    plain, fast = results
    assert (plain is None) == (fast is None)
    if plain is None or fast is None:
        return
    assert same(plain, fast)
    try:
        metadata = plain.metadata
    except SkipstoneError:
        return
    assert metadata.num_rows == plain.num_rows
    for r in range(plain.num_row_groups):
        assert plain.row_group(r) == metadata.row_groups[r]


def _pyarrow_footer(**options: Any) -> bytes:
    table = pa.table(
        {
            "i": pa.array([1, None, 3, 4]),
            "s": ["a", "b", None, "d"],
            "l": [[1.5], [], None, [2.0]],
            "t": pa.array([0, 1, 2, 3], pa.timestamp("us", "UTC")),
        }
    )
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=2, **options)
    data = file.getvalue()
    return data[Tail.from_bytes(data[-TAIL_LENGTH:], len(data)).offset : -TAIL_LENGTH]


FOOTERS = [
    _pyarrow_footer(),
    _pyarrow_footer(write_page_index=True, use_dictionary=False, store_schema=False),
    a_footer(CHUNK, CHUNK),
]


# -- the value itself ------------------------------------------------------------------------------


def test_names_of_all_slots_are_fields() -> None:
    footer = FooterArrays.scan(FOOTERS[0])
    shape = footer.num_row_groups, footer.num_leaves
    for name in (*WIDE, *NARROW, "start", "stop", "type", "encrypted", "has_meta_data"):
        assert footer.chunk(name).shape == shape
        assert footer.chunk(name).dtype == np.int64
    for name in BYTES:
        assert [each.shape for each in footer.places(name)] == [shape, shape]
    for name in PARTS:
        assert footer.parts(name).shape == shape
    for name in (*GROUPS, "first_row"):
        assert footer.group(name).shape == shape[:1]
    for method in (footer.chunk, footer.group, footer.places, footer.parts):
        with pytest.raises(KeyError):
            method("nothing")
    for r, c in ((2, 0), (0, 9), (-1, 0), (0, -1)):
        with pytest.raises(IndexError):
            footer.column_chunk(r, c)
    with pytest.raises(IndexError):
        footer.row_group(2)


def test_a_footer_pickles() -> None:
    footer = FooterArrays.scan(FOOTERS[0], 500)
    copy = pickle.loads(pickle.dumps(footer))
    assert same(copy, footer)
    assert copy.metadata == footer.metadata
    assert "2 row groups" in repr(copy)


def test_decrypted_metadata_is_adopted_in_place_of_what_the_footer_says() -> None:
    sealed = ColumnChunk(file_offset=0, encrypted_column_metadata=b"\x07" * 40)
    partial = dataclasses.replace(
        CHUNK,
        meta_data=dataclasses.replace(META, statistics=Statistics(min_value=b"old")),
        encrypted_column_metadata=b"\x08" * 40,
    )
    data = a_footer(CHUNK, sealed, partial)
    footer = FooterArrays.scan(data)
    assert footer.chunk("has_meta_data").tolist() == [[1, 0, 1]]
    whole = dataclasses.replace(
        META,
        num_values=77,
        dictionary_page_offset=4,
        data_page_offset=50,
        statistics=Statistics(min_value=b"aaaa", max_value=b"zz", nan_count=4),
        encoding_stats=(PageEncodingStats(page_type=0, encoding=8, count=2),),
        bloom_filter_offset=800,
    )
    bare = dataclasses.replace(META, num_values=78)
    adopted = adopt(footer, {(0, 1): whole.to_bytes(), (0, 2): bare.to_bytes()})
    assert adopted.chunk("num_values").tolist() == [[3, 77, 78]]
    check_chunk(adopted, 0, 0, CHUNK)
    check_chunk(adopted, 0, 1, dataclasses.replace(sealed, meta_data=whole))
    check_chunk(adopted, 0, 2, dataclasses.replace(partial, meta_data=bare))
    assert adopted.row_group(0).columns[1].meta_data == whole
    assert adopted.metadata.row_groups[0].columns[2].meta_data == bare
    assert footer.chunk("has_meta_data").tolist() == [[1, 0, 1]]
    again = adopt(adopted, {(0, 1): bare.to_bytes()})
    check_chunk(again, 0, 1, dataclasses.replace(sealed, meta_data=bare))
    check_chunk(again, 0, 2, dataclasses.replace(partial, meta_data=bare))
    assert adopt(footer, {}) is footer
    for stop in range(len(whole.to_bytes())):
        with pytest.raises(FormatError, match="row group 0, column 1"):
            adopt(footer, {(0, 1): whole.to_bytes()[:stop]})


def test_a_selection_is_a_footer_of_its_own() -> None:
    footer = FooterArrays.scan(FOOTERS[0])
    metadata = footer.metadata
    picked = footer.select([1])
    check(picked, dataclasses.replace(metadata, row_groups=metadata.row_groups[1:]))
    assert picked.metadata.row_groups == metadata.row_groups[1:]
    assert picked.num_rows == 2
    turned = footer.select([1, 0]).select([1])
    check(turned, dataclasses.replace(metadata, row_groups=metadata.row_groups[:1]))
    assert turned.metadata.row_groups == metadata.row_groups[:1]
    assert footer.select([]).num_row_groups == 0
    with pytest.raises(IndexError):
        footer.select([2])
