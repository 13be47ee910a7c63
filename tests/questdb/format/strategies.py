"""Random `_pm` files: schemas, row groups, and updates of them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from skipstone.questdb.format.types import ColumnType, Tag
from skipstone.questdb.format.values import PmColumn, PmHead
from skipstone.questdb.format.writer import PmFooter
from tests.questdb.format.row_groups import PmChunk, PmRowGroup

NATURAL = st.integers(0, (1 << 64) - 1)
NAMES = st.sampled_from(["a", "", "a b", "é", "100%", "k=v", "x" * 300, "日本", "a"])
BOUNDS = st.none() | st.binary(min_size=1, max_size=20) | st.just(b"\xff" * 65_535)
BITSETS = st.integers(1, 3).flatmap(lambda n: st.binary(min_size=32 * n, max_size=32 * n))


def column_types() -> st.SearchStrategy[ColumnType]:
    """Every type that there is."""
    plain = [tag for tag in Tag if tag < Tag.GEOBYTE or Tag.BINARY <= tag <= Tag.VARCHAR]
    bits = {Tag.GEOBYTE: (1, 7), Tag.GEOSHORT: (8, 15), Tag.GEOINT: (16, 31), Tag.GEOLONG: (32, 60)}
    decimals = st.integers(1, 76).flatmap(lambda p: st.integers(0, p).map(lambda s: _decimal(p, s)))
    return st.one_of(
        st.sampled_from([ColumnType(tag=tag) for tag in plain]),
        st.builds(
            ColumnType,
            tag=st.just(Tag.TIMESTAMP),
            designated=st.booleans(),
            nanos=st.booleans(),
            descending=st.booleans(),
        ),
        st.sampled_from(sorted(bits)).flatmap(
            lambda tag: st.integers(*bits[tag]).map(lambda n: ColumnType(tag=tag, geo_bits=n))
        ),
        decimals,
        st.builds(
            ColumnType,
            tag=st.just(Tag.ARRAY),
            element=st.just(int(Tag.DOUBLE)),
            dimensions=st.integers(1, 32),
            weak_dimensions=st.booleans(),
        ),
    )


def _decimal(precision: int, scale: int) -> ColumnType:
    found = ColumnType.decimal(precision, scale)
    assert found is not None
    return found


@st.composite
def heads(draw: st.DrawFn, columns: int | None = None) -> PmHead:
    """Headers of up to 6 columns, of all flags."""
    count = draw(st.integers(0, 6)) if columns is None else columns
    places = list(range(count))
    sorting = draw(st.lists(st.sampled_from(places), unique=True, max_size=3)) if places else []
    ts = draw(st.sampled_from([-1, *places]))
    described = []
    for place in places:
        form = draw(st.just(Tag.TIMESTAMP) if place == ts else st.sampled_from(list(Tag)))
        described.append(
            PmColumn(
                name=draw(NAMES),
                type=8 if place == ts else draw(st.just(-1) | st.just(int(form))),
                physical_type=draw(st.integers(0, 7)),
                id=draw(st.integers(-1, 5)),
                # A designated timestamp is required: bits 2 and 3 are zero.
                flags=draw(st.sampled_from([0, 16] if place == ts else [0, 1, 4, 5, 6, 8, 16, 20])),
                fixed_byte_len=draw(st.integers(0, 64)),
                max_rep_level=draw(st.integers(0, 3)),
                max_def_level=0 if place == ts else draw(st.integers(0, 5)),
            )
        )
    blooms = draw(st.lists(st.sampled_from(places), unique=True)) if places else []
    return PmHead(
        columns=tuple(described),
        designated_timestamp=ts,
        sorting_columns=tuple(sorting),
        bloom_columns=tuple(sorted(blooms)),
        bloom_external=bool(blooms) and draw(st.booleans()),
        squash_tracker=draw(st.none() | st.integers(-(1 << 63), (1 << 63) - 1)),
    )


def chunks(head: PmHead, column: int) -> st.SearchStrategy[PmChunk]:
    """Chunks of one column, with a filter where the header allows one."""
    bloom: st.SearchStrategy[bytes | tuple[int, int] | None] = st.none()
    if column in head.bloom_columns:
        if head.bloom_external:
            places = st.tuples(st.integers(0, 500), st.integers(1, 9).map(lambda n: 32 * n))
            bloom |= places
        else:
            bloom |= BITSETS
    minimum, maximum = BOUNDS, BOUNDS
    return st.builds(
        PmChunk,
        num_values=NATURAL,
        byte_range_start=NATURAL,
        total_compressed=NATURAL,
        codec=st.integers(0, 7),
        encodings=st.integers(0, 63),
        null_count=st.none() | NATURAL,
        distinct_count=st.none() | NATURAL,
        min=minimum,
        max=maximum,
        min_exact=st.booleans(),
        max_exact=st.booleans(),
        bloom=bloom,
    ).map(_unbounded_is_exact)


def _unbounded_is_exact(chunk: PmChunk) -> PmChunk:
    """Whether a bound is exact is not stored for one that is not there."""
    return replace(
        chunk,
        min_exact=chunk.min_exact or chunk.min is None,
        max_exact=chunk.max_exact or chunk.max is None,
    )


def row_groups(head: PmHead) -> st.SearchStrategy[PmRowGroup]:
    """Row groups under this header."""
    each = [chunks(head, column) for column in range(len(head.columns))]
    return st.builds(PmRowGroup, num_rows=NATURAL, chunks=st.tuples(*each))


def footers(offset: int) -> st.SearchStrategy[PmFooter]:
    """Footers of a Parquet file whose own begins at ``offset``."""
    pads = st.lists(
        st.tuples(st.integers(0, (1 << 32) - 1), st.binary(max_size=9)), max_size=3
    ).map(tuple)
    return st.builds(
        PmFooter,
        parquet_footer_offset=st.just(offset),
        parquet_footer_length=st.integers(1, 500),
        unused_bytes=NATURAL,
        seq_txn=st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        scratchpad=pads,
    )
