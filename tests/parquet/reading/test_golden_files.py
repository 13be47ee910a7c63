"""Files that many writers wrote: page fetch gives what pyarrow gives for the whole file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.errors import FormatError, SkipstoneError
from skipstone.parquet.reading.file import ParquetFile
from tests.folders import GOLDEN
from tests.parquet.whole_file import with_instants

if TYPE_CHECKING:
    from pathlib import Path

# 2 GB of strings in one map: Arrow itself cannot hold it in one piece.
_TOO_LARGE = {"large_string_map.brotli.parquet"}


def _files(*folders: str) -> list[str]:
    return sorted(
        str(path.relative_to(GOLDEN))
        for folder in folders
        for path in (GOLDEN / folder).rglob("*.parquet")
        if path.name not in _TOO_LARGE
    )


def _whole(path: Path) -> pa.Table | None:
    try:
        file = pq.ParquetFile(
            path, page_checksum_verification=True, coerce_int96_timestamp_unit="us"
        )
        return with_instants(file.read(), file.schema)
    except (OSError, pa.ArrowException, NotImplementedError):
        return None


def same_values(found: pa.Table, expected: pa.Table) -> None:
    try:
        assert repr(found.to_pydict()) == repr(expected.to_pydict())
    except OverflowError:  # an instant beyond Python's
        assert found.equals(expected)


@pytest.mark.parametrize(
    "name", _files("parquet-testing/data", "parquet-testing/shredded_variant", "hyparquet")
)
def test_rows_are_those_of_pyarrow(golden: Path, name: str) -> None:
    path = golden / name
    whole = _whole(path)
    if whole is None:
        try:
            ParquetFile(str(path)).read_rows(row_ranges=[(0, 3)])
        except SkipstoneError:
            return
        return
    file = ParquetFile(str(path))
    assert file.num_rows == len(whole)
    found = file.read_rows()
    assert found.schema.equals(whole.schema)
    same_values(found, whole)
    count = len(whole)
    for ranges in ([(0, 1)], [(count // 2, count // 2 + 3)], [(1, 2), (count - 2, count)]):
        rows = sorted({n for a, b in ranges for n in range(max(a, 0), min(b, count))})
        part = file.read_rows(row_ranges=[(max(a, 0), b) for a, b in ranges])
        same_values(part, whole.take(pa.array(rows, pa.int64())))


def test_wrong_checksums(golden: Path) -> None:
    path = golden / "parquet-testing/data/datapage_v1-corrupt-checksum.parquet"
    with pytest.raises(FormatError, match="checksum"):
        ParquetFile(path).read_rows()
    same_values(ParquetFile(path, verify_checksums=False).read_rows(), pq.read_table(path))


def test_what_pyarrow_refuses_is_read(golden: Path) -> None:
    """A map without its values, alone: pyarrow has no type for it."""
    path = str(golden / "parquet-testing/data/nested_maps.snappy.parquet")
    file = ParquetFile(path)
    leaf = next(each for each in file.footer.schema.leaves if "value" in each.path)
    assert file.read_rows([leaf.name]).num_rows == file.num_rows
