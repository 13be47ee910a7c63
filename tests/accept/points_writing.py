"""Arrow tables and streams written as files that readers can skip in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import skipstone
from skipstone import Encryption
from skipstone.salvage import salvage
from tests.accept.registry import point

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.accept.workbench import Workbench

NAN = float("nan")


def batches(count: int = 8) -> Iterator[pa.Table]:
    """Batches of 700 rows: id ascending, f with NaN, s of 50 values and nulls, l lists."""
    for number in range(count):
        n = range(700 * number, 700 * (number + 1))
        yield pa.table(
            {
                "id": n,
                "f": [NAN if i % 7 == 0 else i / 3 for i in n],
                "s": [None if i % 3 == 0 else f"é{i % 50}" for i in n],
                "l": [[f"v{j}" for j in range(i % 4)] if i % 6 else None for i in n],
            }
        )


ROWS = pa.concat_tables(batches())


@point("rewrite: write_table takes a stream; rows, pages and filters are as asked")
def written(bench: Workbench) -> None:
    path = bench.home / "a é.parquet"
    report = skipstone.write_table(
        batches(),
        path,
        row_group_rows=2_000,
        page_rows=150,
        bloom={"s": 0.01},
        index_pages=["id"],
        sorting=["id"],
        checkpoint_every=1,
    )
    assert (report.rows, report.row_groups, report.sorted_groups) == (5_600, 3, 3)
    assert repr(pq.read_table(path, page_checksum_verification=True).to_pydict()) == repr(
        ROWS.to_pydict()
    )
    file = skipstone.ParquetFile(path)
    assert file.verify().ok
    for name in ("id", "f", "s", "l.list.element"):
        index = file.offset_index(0, name)
        assert index is not None
        assert index.first_row_index.tolist() == list(range(0, 2_000, 150))
    # Row 4,321 is in row group 2, in its page of rows 4,300 to 4,450.
    (planned,) = file.plan("id = 4321").files
    assert planned.detail.rows is not None
    assert [each.tolist() for each in planned.detail.rows.ranges()] == [[4_300], [4_450]]
    assert file.count("s = 'é77'") == 0
    assert file.count("f > 1866") == sum(i % 7 == 0 or i / 3 > 1866 for i in range(5_600))


@point("rewrite: write_table encrypts indexes and filters too, and Arrow reads the file")
def sealed(bench: Workbench) -> None:
    import pyarrow.parquet.encryption as pe

    path, key = bench.home / "a.parquet", b"0123456789012345"
    skipstone.write_table(
        ROWS,
        path,
        page_rows=150,
        bloom={"s": 0.01},
        encryption=Encryption(footer_key=key, aad_prefix=b"events"),
    )
    assert "é49".encode() not in path.read_bytes()
    keys = skipstone.Decryption(footer_key=key, aad_prefix=b"events")
    file = skipstone.ParquetFile(path, decryption=keys)
    assert file.query("id = 4321").num_rows == 1
    assert file.bloom_filter(0, "s") is not None
    properties = pe.create_decryption_properties(footer_key=key)
    theirs = pq.read_table(path, decryption_properties=properties)
    assert repr(theirs.to_pydict()) == repr(ROWS.to_pydict())


_KILLED = """
import os, signal, sys
from skipstone import write_table
from tests.accept.points_writing import batches
def torn():
    yield from batches(5)
    os.kill(os.getpid(), signal.SIGKILL)
write_table(torn(), sys.argv[1], row_group_rows=700, checkpoint_every=2)
"""


@point("rewrite: a write that is killed loses the row groups since its last checkpoint, no more")
def killed(bench: Workbench) -> None:
    path, left = bench.home / "a.parquet", bench.home / "_unfinished-a.parquet"
    path.write_bytes(b"what was there")
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(path)],
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"what was there"
    report = salvage(str(left), output=str(bench.home / "saved.parquet"))
    assert report.footer in ("checkpoint", "whole")
    saved = pq.read_table(bench.home / "saved.parquet")
    assert saved.num_rows >= 2_800
    assert repr(saved.to_pydict()) == repr(ROWS.slice(0, saved.num_rows).to_pydict())
