"""Indexes, filters and checksums added to files and tables that lack them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import ParquetFile, Table
from skipstone.rewrite import retrofit
from tests.accept.registry import point

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench

NAN = float("nan")


def bare(home: Path, name: str = "bare.parquet", first: int = 0) -> Path:
    """6,000 rows in row groups of 2,500: id ascending, f with NaN and both zeros, s long text and
    nulls, l lists; nothing to skip by."""
    path = home / name
    n = range(first, first + 6_000)
    pq.write_table(
        pa.table(
            {
                "id": n,
                "f": [NAN if i % 7 == 0 else (-0.0 if i % 5 == 0 else i / 3) for i in n],
                "s": [None if i % 3 == 0 else "é" * (i % 90) for i in n],
                "l": [[f"v{j}" for j in range(i % 4)] if i % 6 else None for i in n],
            }
        ),
        path,
        row_group_size=2_500,
        max_rows_per_page=400,
    )
    return path


@point("rewrite: retrofit adds indexes, filters and checksums, and keeps rows and page bodies")
def retrofitted(bench: Workbench) -> None:
    path, out = bare(bench.home), bench.home / "out.parquet"
    rows = repr(pq.read_table(path).to_pydict())
    report = retrofit(path, bloom={"id": 0.01, "s": 0.01}, output=out)
    assert report.added["offset index"] == report.added["checksums"] == report.chunks == 12
    assert report.added["column index"] == 9  # not for f: see the docs about NaN
    assert repr(pq.read_table(out, page_checksum_verification=True).to_pydict()) == rows
    file = ParquetFile(out)
    assert file.verify().ok
    before = file.bytes_read
    assert file.query("id = 4321").num_rows == 1
    assert file.bytes_read - before < 60_000
    assert file.query("f > 1999").num_rows == sum(i % 7 == 0 for i in range(6_000)) + sum(
        i % 7 != 0 and i % 5 != 0 and i / 3 > 1999 for i in range(6_000)
    )


@point("rewrite: retrofit of a table passes over what is done, and --dry-run writes nothing")
def retrofitted_table(bench: Workbench) -> None:
    root = bench.home / "events"
    root.mkdir()
    paths = [bare(root, f"part {at}.parquet", 6_000 * at) for at in range(3)]
    before = [path.read_bytes() for path in paths]
    told = bench.skipstone("retrofit", root, "--bloom", "id:0.01", "--dry-run", "--json")
    assert told.code == 0, told.err
    assert json.loads(told.out)["rewritten"] == 3
    assert [path.read_bytes() for path in paths] == before
    retrofit(paths[1], bloom={"id": 0.01})
    report = Table(str(root)).retrofit(bloom={"id": 0.01})
    assert (len(report.of("rewritten")), len(report.of("complete"))) == (2, 1)
    assert bench.skipstone("retrofit", root, "--bloom", "id:0.01").code == 0


@point("rewrite: --page-rows splits pages where rows begin, lists too")
def split_pages(bench: Workbench) -> None:
    path = bare(bench.home)
    rows = repr(pq.read_table(path).to_pydict())
    assert bench.skipstone("retrofit", path, "--page-rows", "100").code == 0
    file = ParquetFile(path)
    for name in ("id", "f", "s", "l.list.element"):
        index = file.offset_index(0, name)
        assert index is not None
        starts = [*index.first_row_index.tolist(), 2_500]
        assert max(b - a for a, b in pairwise(starts)) == 100
    assert repr(pq.read_table(path, page_checksum_verification=True).to_pydict()) == rows
    assert file.verify().ok


@point("rewrite: retrofit takes no row from another reader, not those with NaN either")
def other_readers(bench: Workbench) -> None:
    import datafusion

    path, out = bare(bench.home), bench.home / "out.parquet"
    assert bench.skipstone("retrofit", path, "--bloom", "s", "--output", out).code == 0
    for condition in ("f >= 1999", "f > 100000", "id = 4321", "s = 'é'", "f = 0"):
        found = []
        for each in (path, out):
            context = datafusion.SessionContext()
            context.register_parquet("t", str(each))
            rows = context.sql(f"SELECT count(*) AS c, sum(id) AS s FROM t WHERE {condition}")
            found.append(rows.to_pydict())
        assert found[0] == found[1], condition


@point("rewrite: retrofit keeps links and permissions")
def kept_places(bench: Workbench) -> None:
    path = bare(bench.home)
    path.chmod(0o604)
    link = bench.home / "link.parquet"
    link.symlink_to(path)
    assert bench.skipstone("retrofit", link).code == 0
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o604
    assert ParquetFile(path).offset_index(0, "id") is not None
