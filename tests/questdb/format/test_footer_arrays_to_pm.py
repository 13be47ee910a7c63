"""A ``_pm`` of a footer as arrays has the bytes of one that was made object by object."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.parquet.format.footer import TAIL_LENGTH, Tail, read_metadata
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.questdb.format.footer_arrays_to_pm import bloom_places_of, convert_arrays, describe
from skipstone.questdb.format.footer_to_pm import bloom_places, convert, doubtful_leaves

if TYPE_CHECKING:
    from pathlib import Path


def both(data: bytes, silent: tuple[int, ...] = ()) -> tuple[bytes, bytes]:
    """By objects and by arrays, external filters and all."""
    metadata, tail = read_metadata(data), Tail.from_bytes(data[-TAIL_LENGTH:], len(data))
    footer = FooterArrays.scan(data[tail.offset : -TAIL_LENGTH], tail.offset)
    described = describe(footer)
    doubtful = (*doubtful_leaves(metadata), *silent)
    assert described.doubtful(footer.column_orders) == doubtful_leaves(metadata)
    places = bloom_places(metadata)
    assert bloom_places_of(footer) == places
    blooms = {p: data[p.offset : p.offset + p.length] for p in places}
    one = convert(
        metadata, tail, blooms=blooms, bloom_mode="external", silent=doubtful, on_stale="ignore"
    ).to_bytes()
    return one, convert_arrays(footer, tail, described, blooms=blooms, silent=doubtful)


def written(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


AWKWARD = pa.table(
    {
        "i": pa.array([1, None, -3, 4], pa.int32()),
        "u": pa.array([1, 2**32 - 1, None, 0], pa.uint32()),
        "d": pa.array([float("nan"), -0.0, 0.0, None]),
        "short": ["", "a", "bc", None],
        "long": ["x" * 9, "é" * 40, None, "z" * 3000],
        "huge": ["x" * 70_000, "y" * 70_000, None, ""],
        "none": pa.nulls(4, pa.string()),
        "b": [True, None, False, True],
        "t": pa.array([0, 1, None, 2**40], pa.timestamp("us")),
        "dec": pa.array([None, None, None, None], pa.decimal128(20, 3)),
        "list": [[1, 2], [], None, [3]],
        "struct": [{"a": 1, "b": "q"}, None, {"a": None, "b": "r"}, {"a": 2, "b": None}],
        "f12": pa.array([b"x" * 12, None, b"y" * 12, b"z" * 12], pa.binary(12)),
        "a b%é=": [1, 2, 3, 4],
    }
)


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("statistics", [True, False, ["i", "long"]])
def test_awkward_columns(rows: int, statistics: Any) -> None:
    one, other = both(written(AWKWARD, row_group_size=rows, write_statistics=statistics))
    assert one == other


def test_no_rows_and_no_columns() -> None:
    for table in (AWKWARD.slice(0, 0), pa.table({})):
        one, other = both(written(table))
        assert one == other


def test_filters_and_an_order() -> None:
    table = pa.table({"t": pa.array(range(40), pa.timestamp("us")), "k": list("abcd" * 10)})
    schema = pa.schema([pa.field("t", pa.timestamp("us"), nullable=False), table.field("k")])
    data = written(
        table.cast(schema),
        row_group_size=10,
        sorting_columns=[pq.SortingColumn(0)],
        bloom_filter_options={"k": {"ndv": 10, "fpp": 0.01}},
    )
    one, other = both(data)
    assert one == other
    one, hidden = both(data, silent=(1,))
    assert one == hidden
    assert len(hidden) < len(other)


def test_recorded_files(golden: Path) -> None:
    seen = 0
    for path in sorted((golden / "questdb").glob("*.parquet")):
        try:
            one, other = both(path.read_bytes())
        except SkipstoneError as error:
            pytest.fail(f"{path.name}: {error}")
        assert one == other, path.name
        seen += 1
    assert seen


def test_chunks_in_another_file_are_refused() -> None:
    data = written(pa.table({"a": [1]}))
    out = io.BytesIO()
    metadata = pq.read_metadata(io.BytesIO(data))
    metadata.set_file_path("part-0.parquet")
    metadata.write_metadata_file(out)
    with pytest.raises(UnsupportedError, match="another file"):
        both_arrays_only(out.getvalue())


def both_arrays_only(data: bytes) -> bytes:
    tail = Tail.from_bytes(data[-TAIL_LENGTH:], len(data))
    footer = FooterArrays.scan(data[tail.offset : -TAIL_LENGTH], tail.offset)
    return convert_arrays(footer, tail, describe(footer))


@given(
    columns=st.integers(1, 6),
    texts=st.lists(st.text(max_size=12) | st.none(), min_size=1, max_size=30),
    size=st.integers(1, 9),
)
def test_any_texts(columns: int, texts: list[str | None], size: int) -> None:
    try:
        table = pa.table({f"c{i}": texts[i:] + texts[:i] for i in range(columns)})
        data = written(table, row_group_size=size)
    except UnicodeEncodeError:
        return
    numbers = pa.table({"n": np.arange(len(texts)), "t": texts})
    for each in (data, written(numbers, row_group_size=size)):
        one, other = both(each)
        assert one == other
