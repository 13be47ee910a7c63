"""A `_pm` of a footer has the bytes that its values, written one by one, have."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import UnsupportedError
from skipstone.questdb.format.pm import Pm
from tests.questdb.format.converting import Converted, footer_of, pm_of
from tests.questdb.format.writing import rewrite

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.questdb.format.footer_to_pm import BloomMode


MODES: list[BloomMode] = ["inlined", "external"]


def written(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def check(data: bytes, **options: Any) -> bytes:
    """The `_pm` in either mode. Its bytes are those of its values, and these of the footer."""
    for mode in MODES:
        made = pm_of(data, on_stale="ignore", bloom_mode=mode, **options)
        snapshot = Pm(made).snapshot(len(data))
        snapshot.verify()
        assert rewrite(snapshot, by_column=True) == made
        if not options.get("silent"):
            agrees(Converted(made), data)
    return made


def agrees(made: Converted, data: bytes) -> None:
    """Every value is that of the footer's objects."""
    metadata, _ = footer_of(data)
    assert len(made.row_groups) == len(metadata.row_groups)
    for group, ours in zip(metadata.row_groups, made.row_groups, strict=True):
        assert ours.num_rows == group.num_rows
        for column, chunk in zip(group.columns, ours.chunks, strict=True):
            data_ = column.meta_data
            assert data_ is not None
            assert (chunk.num_values, chunk.total_compressed, chunk.codec) == (
                data_.num_values,
                data_.total_compressed_size,
                int(data_.codec),
            )
            assert chunk.byte_range_start == (
                data_.dictionary_page_offset or data_.data_page_offset
            )
            known = data_.statistics
            for bound, value, exact, claimed in (
                (
                    chunk.min,
                    known and known.min_value,
                    chunk.min_exact,
                    known and known.is_min_value_exact,
                ),
                (
                    chunk.max,
                    known and known.max_value,
                    chunk.max_exact,
                    known and known.is_max_value_exact,
                ),
            ):
                assert bound == (value if value and len(value) <= 65_535 else None)
                assert bound is None or exact == (claimed is not False)
            assert chunk.null_count == (known.null_count if known else None)
            assert chunk.distinct_count == (known.distinct_count if known else None)
            assert (chunk.bloom is not None) == (data_.bloom_filter_offset is not None)


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
    check(written(AWKWARD, row_group_size=rows, write_statistics=statistics))


def test_no_rows_and_no_columns() -> None:
    for table in (AWKWARD.slice(0, 0), pa.table({})):
        check(written(table))


def test_filters_between_long_bounds() -> None:
    """Bounds of 9 bytes and more lie out of line, before and after the filters."""
    texts = [
        f"{letter}{'x' * length}" for letter, length in zip("abcd" * 10, range(40), strict=True)
    ]
    table = pa.table({"t": pa.array(range(40), pa.timestamp("us")), "k": texts, "z": texts[::-1]})
    schema = pa.schema([pa.field("t", pa.timestamp("us"), nullable=False), *list(table.schema)[1:]])
    filters = {"k": {"ndv": 10, "fpp": 0.01}, "z": {"ndv": 100, "fpp": 0.1}}
    for chosen in (filters, {"k": filters["k"]}, {"z": filters["z"]}):
        data = written(
            table.cast(schema),
            row_group_size=10,
            sorting_columns=[pq.SortingColumn(0)],
            bloom_filter_options=chosen,
        )
        whole = check(data)
        assert len(check(data, silent=(1, 2))) < len(whole)


def test_recorded_files(golden: Path) -> None:
    seen = 0
    for path in sorted((golden / "questdb").glob("*.parquet")):
        check(path.read_bytes())
        seen += 1
    assert seen


def test_chunks_in_another_file_are_refused() -> None:
    data = written(pa.table({"a": [1]}))
    out = io.BytesIO()
    metadata = pq.read_metadata(io.BytesIO(data))
    metadata.set_file_path("part-0.parquet")
    metadata.write_metadata_file(out)
    with pytest.raises(UnsupportedError, match="another file"):
        pm_of(out.getvalue(), blooms=False)


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
        check(each)
