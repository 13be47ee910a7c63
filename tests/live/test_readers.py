"""Four processes that read while one writes: every snapshot is whole, and nobody waits or fails."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from skipstone import ParquetFile
from skipstone.live import LiveTable
from tests.live.tables import SCHEMA, cut, rows, snapshot
from tests.processes import environment

if TYPE_CHECKING:
    from pathlib import Path

READER = """
import json, sys
from tests.live.test_readers import read_until
print("ready", flush=True)
print(json.dumps(read_until(sys.argv[1], int(sys.argv[2]))))
"""
PER_APPEND = 3


def read_until(root: str, last: int) -> dict[str, Any]:
    """Snapshot after snapshot until the last batch, each read through the ``_pm`` and by Arrow.

    Batch n brings the keys 3 n to 3 n + 2, so the batch in ``_txn`` says which keys there must be.
    """
    snapshots, reads, batch = set[int](), 0, -1
    while batch < last:
        found = snapshot(root)
        batch = found.txn.seq_txn
        expected = list(range(PER_APPEND * (batch + 1)))
        by_footer: list[int] = []
        by_arrow: list[int] = []
        for file in found.files:
            parquet = ParquetFile(file.path, size=file.size)
            by_footer += parquet.query(columns=["key"])["key"].to_pylist()
            table = cut(file)
            assert len(table) == file.rows
            by_arrow += table["key"].to_pylist()
        assert sorted(by_footer) == expected, f"batch {batch} by our reader"
        assert sorted(by_arrow) == expected, f"batch {batch} by Arrow"
        snapshots.add(batch)
        reads += 1
    return {"snapshots": len(snapshots), "reads": reads}


@pytest.mark.parametrize("kind", ["compacted", "late"])
def test_readers_during_appends(tmp_path: Path, kind: str) -> None:
    """40 appends: each behind the last, with a compaction after every tenth; or each before it, so
    that row groups are replaced."""
    root, last = str(tmp_path / "live"), 39
    with LiveTable.create(root, SCHEMA, timestamp="ts", row_group_rows=50, durable=False) as table:
        table.append(rows(0, 1, 2), batch_id=0)
        readers = [
            subprocess.Popen(
                [sys.executable, "-c", READER, root, str(last)],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(4)
        ]
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
        for batch in range(1, last + 1):
            first = PER_APPEND * batch
            start = -first * 1000 if kind == "late" else first * 1000
            table.append(rows(start, start + 1, start + 2, first=first), batch_id=batch)
            if kind == "compacted" and batch % 10 == 0:
                assert table.compact("1970-01-01") == ("1970-01-01",)
    ended = [(reader, *reader.communicate()) for reader in readers]
    for reader, told, errors in ended:
        assert reader.returncode == 0, errors
        assert json.loads(told)["reads"] >= 1
