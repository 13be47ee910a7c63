"""Index pages of 2013: trees of keys and ordinals, written into files and searched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import datafusion
import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import ParquetFile
from skipstone.rewrite import add_index_pages
from tests.accept.registry import point

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench


def plain(home: Path, name: str = "plain.parquet", *, page_index: bool = True) -> Path:
    """9,000 rows in row groups of 4,000, pages of 200: k ascending by 3, t text, l lists."""
    path = home / name
    n = range(9_000)
    pq.write_table(
        pa.table(
            {
                "k": pa.array([3 * i for i in n], pa.int64()),
                "t": [None if i % 5 == 0 else f"t{i}" for i in n],
                "l": [[i] * (i % 3) for i in n],
            }
        ),
        path,
        row_group_size=4_000,
        max_rows_per_page=200,
        write_page_index=page_index,
        use_dictionary=False,
    )
    return path


@point("rewrite: index pages behind the data pages are read by every reader, rows as before")
def behind(bench: Workbench) -> None:
    path = plain(bench.home)
    rows = pq.read_table(path).to_pydict()
    report = add_index_pages(path, ["k"])
    assert (report.keyed, report.ordinal) == (3, 6)
    assert pq.read_table(path, page_checksum_verification=True).to_pydict() == rows
    assert duckdb.read_parquet(str(path)).arrow().read_all().to_pydict() == rows
    assert polars.read_parquet(path).to_arrow().to_pydict() == rows
    found = datafusion.SessionContext().read_parquet(str(path)).to_arrow_table()
    assert found.to_pydict() == rows
    assert ParquetFile(path).verify().ok


@point("rewrite: keys and ranges are found by descent, other columns by ordinals, in few bytes")
def descended(bench: Workbench) -> None:
    path = plain(bench.home)
    add_index_pages(path, ["k"], roll_over=100)
    file = ParquetFile(path)
    index = file.index_pages("k")
    assert len(index.find(13_002)) == 1
    assert index.query(13_000, 13_010)["t"].to_pylist() == ["t4334", None, "t4336"]
    assert index.bytes_read < 5_000 < path.stat().st_size / 20
    ordinals = file.index_pages("t").ordinals(4_199, 4_201)
    assert ordinals.first_row.tolist() == [4_000, 4_200]
    assert index.find(13_003).length.sum() < 2_000
    assert index.query(13_003, 13_004).num_rows == 0


@point("rewrite: index pages between the data pages follow the specification's order")
def interleaved(bench: Workbench) -> None:
    path = plain(bench.home)
    rows = pq.read_table(path).to_pydict()
    add_index_pages(path, ["k"], interleave=True, roll_over=80)
    file = ParquetFile(path)
    kinds = "".join(str(int(each.type)) for each in file.page_headers(2, "k"))
    # Five data pages; the index page of four and that of one follow theirs, then the root.
    assert kinds == "000010"
    assert pq.read_table(path).to_pydict() == rows
    found = datafusion.SessionContext().read_parquet(str(path)).to_arrow_table()
    assert found.to_pydict() == rows
    assert file.index_pages("k").query(26_700, 26_710, ["k"])["k"].to_pylist() == [
        26_700, 26_703, 26_706, 26_709,
    ]  # fmt: skip


@point("command line: retrofit --index-pages writes the trees, and inspect shows them")
def commanded(bench: Workbench) -> None:
    path = plain(bench.home, "a b é.parquet", page_index=False)
    done = bench.skipstone("retrofit", path, "--index-pages", "k", "--json")
    assert json.loads(done.out)["index_pages"]["keyed"] == 3
    shown = bench.skipstone("inspect", path, "--pages", "--column", "k")
    assert "root of index pages: 20 keys" in shown.out
    assert "9 of 9 chunks" in shown.out
