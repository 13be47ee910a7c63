"""Bounds as places: exact examples, and what holds of any."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from skipstone import ParquetFile
from skipstone.report.file_page import PLACES, bands

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.parquet.format.schema import ColumnDescriptor


def leaf_of(path: Path, type_: pa.DataType) -> ColumnDescriptor:
    pq.write_table(pa.table({"a": pa.array([], type_)}), path)
    return ParquetFile(path).footer.schema.leaves[0]


def test_numbers_lie_where_they_are(tmp_path: Path) -> None:
    leaf = leaf_of(tmp_path / "a.parquet", pa.int64())
    low, high = ([struct.pack("<q", n) for n in part] for part in ((0, 25), (10, 100)))
    found = bands([*low, None], [*high, b"short"], leaf)
    assert found.scale == "linear"
    assert found.low.tolist() == [0, 25_000, -1]
    assert found.high.tolist() == [10_000, 100_000, -1]
    assert found.order == "ascending"


def test_text_lies_by_its_order(tmp_path: Path) -> None:
    leaf = leaf_of(tmp_path / "a.parquet", pa.string())
    found = bands([b"a", b"c"], [b"zz", b"\xff"], leaf)
    assert found.scale == "order"
    assert found.low.tolist() == [0, 33_333]
    assert found.high.tolist() == [66_667, 100_000]
    assert found.order == "unsorted"


def test_descending_and_alone(tmp_path: Path) -> None:
    leaf = leaf_of(tmp_path / "a.parquet", pa.float64())
    low, high = ([struct.pack("<d", n) for n in part] for part in ((5, 3, 0), (9, 5, 1)))
    assert bands(low, high, leaf).order == "descending"
    assert bands(low[:1], high[:1], leaf).order is None
    nan = struct.pack("<d", float("nan"))
    assert bands([nan], [nan], leaf).low.tolist() == [-1]


@given(st.lists(st.tuples(*[st.none() | st.binary(max_size=9)] * 2), max_size=8), st.data())
def test_places_keep_the_order(
    pairs: list[tuple[bytes | None, bytes | None]], data: st.DataObject
) -> None:
    leaf = _LEAVES[data.draw(st.sampled_from(sorted(_LEAVES)))]
    low, high = [a for a, _ in pairs], [b for _, b in pairs]
    found = bands(low, high, leaf)
    placed = np.concatenate((found.low, found.high))
    assert placed.min(initial=0) >= -1
    assert placed.max(initial=0) <= PLACES
    assert all(
        place == -1 for place, each in zip(placed, [*low, *high], strict=True) if each is None
    )
    if leaf.name == "bytes":
        known = sorted(
            (each, int(p))
            for each, p in zip([*low, *high], placed, strict=True)
            if each is not None
        )
        assert [p for _, p in known] == sorted(p for _, p in known)


def _leaves() -> dict[str, ColumnDescriptor]:
    import io
    import tempfile
    from pathlib import Path

    types = {
        "bytes": pa.binary(),
        "float16": pa.float16(),
        "double": pa.float64(),
        "decimal": pa.decimal128(38, 2),
        "flag": pa.bool_(),
    }
    buffer = io.BytesIO()
    pq.write_table(pa.table({name: pa.array([], each) for name, each in types.items()}), buffer)
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "a.parquet"
        path.write_bytes(buffer.getvalue())
        leaves = ParquetFile(path).footer.schema.leaves
    return {leaf.name: leaf for leaf in leaves}


_LEAVES = _leaves()
