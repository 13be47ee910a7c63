"""What a caller may pass, what is said of the rest, and what a notebook shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.errors import SkipstoneError
from skipstone.pruning import RowSet

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two row groups of 50 rows in pages of 10: ``id`` ascends, ``tags`` are lists of one."""
    table = pa.table({"id": range(100), "tags": pa.array([[f"t{n % 3}"] for n in range(100)])})
    made = tmp_path / "a b é.parquet"
    pq.write_table(
        table, made, row_group_size=50, max_rows_per_page=10, write_batch_size=10,
        write_page_index=True,
    )  # fmt: skip
    return made


def test_paths_of_pathlib(path: Path) -> None:
    assert skipstone.ParquetFile(path).path == str(path)


@pytest.mark.parametrize(
    "ranges",
    [
        [(3, 5), (98, 1000), (4, 4)],
        [[98, 100], [3, 5]],
        np.array([[3, 5], [98, 100]]),
        np.array([[3, 5], [98, 100]], np.uint32),
        RowSet([3, 98], [5, 100]),
    ],
)
def test_ranges_of_rows(path: Path, ranges: Any) -> None:
    file = skipstone.ParquetFile(path)
    assert file.read_rows(["id"], ranges).column(0).to_pylist() == [3, 4, 98, 99]
    batches = list(file.iter_rows(["id"], ranges))
    assert pa.Table.from_batches(batches).column(0).to_pylist() == [3, 4, 98, 99]


@pytest.mark.parametrize("ranges", [[], (), np.empty((0, 2), np.int64)])
def test_no_ranges_are_no_rows(path: Path, ranges: Any) -> None:
    file = skipstone.ParquetFile(path)
    assert file.read_rows(["id"], ranges).num_rows == 0
    assert list(file.iter_rows(["id"], ranges)) == []


@pytest.mark.parametrize(
    "ranges", [(0, 2), [0, 2], range(5), [(0.0, 2.0)], [(0, 1, 2)], [(0, 1), (2,)], slice(0, 2)]
)
def test_what_is_no_range_is_said_at_once(path: Path, ranges: Any) -> None:
    file = skipstone.ParquetFile(path)
    with pytest.raises(TypeError, match=r"row_ranges are pairs .*\(start, stop\)"):
        file.read_rows(["id"], ranges)
    with pytest.raises(TypeError, match=r"row_ranges are pairs .*\(start, stop\)"):
        file.iter_rows(["id"], ranges)


def test_one_name_is_no_list_of_names(path: Path) -> None:
    file = skipstone.ParquetFile(path)
    for call in (file.read_rows, file.iter_rows, file.pages, file.verify):
        with pytest.raises(TypeError, match=r"\['id'\], not 'id'"):
            call("id")
    with pytest.raises(TypeError, match=r"\['id'\], not 'id'"):
        file.query("id = 3", "id")


@pytest.mark.parametrize(
    "name, hint",
    [
        ("ID", "did you mean 'id'?"),
        ("tags.element", "did you mean 'tags.list.element'?"),
        ("nothing like it", "the columns are id, tags"),
    ],
)
def test_a_wrong_name_is_told_the_right_ones(path: Path, name: str, hint: str) -> None:
    file = skipstone.ParquetFile(path)
    for call in (file.read_rows, file.iter_rows, file.pages):
        with pytest.raises(SkipstoneError, match="no column") as caught:
            call([name])
        assert caught.value.hint == hint


def test_many_columns_are_not_all_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({f"c{at}": [at] for at in range(30)}), tmp_path / "wide")
    with pytest.raises(SkipstoneError) as caught:
        skipstone.ParquetFile(tmp_path / "wide").query(columns=["zzzzzz"])
    assert caught.value.hint.endswith("c18, c19 and 10 more")


def test_keys_are_a_decryption(path: Path) -> None:
    wrong: Any = b"0123456789012345"
    with pytest.raises(TypeError, match=r"a skipstone\.Decryption, not bytes"):
        skipstone.ParquetFile(path, decryption=wrong)


def test_what_completion_offers_is_documented(path: Path) -> None:
    file = skipstone.ParquetFile(path)
    offered = [name for name in dir(file) if not name.startswith("_")]
    assert {"query", "read_rows", "chunks", "verify", "path", "unavailable"} <= set(offered)
    assert all(hasattr(file, name) for name in offered)
    of_class = [getattr(type(file), name) for name in offered if hasattr(type(file), name)]
    assert all(each.__doc__ for each in of_class)
    assert repr(file) == f"ParquetFile({str(path)!r}, 100 rows in 2 row groups)"
    assert "read_rows" in str(skipstone.ParquetFile.__doc__)
