"""A process that reads last thing ends like any other, although threads of Arrow still run."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import skipstone
from skipstone.parquet.reading.fetch import Templates
from skipstone.parquet.reading.splice_pages import Pages, SplicedGroup
from tests.processes import environment

if TYPE_CHECKING:
    from pathlib import Path

_CHILD = """
import sys
import skipstone
table = skipstone.ParquetFile(sys.argv[1]).read_rows()
assert table.num_rows == 100_000
"""
_AT_ONCE, _ROUNDS = 4, 4


def wide(path: Path) -> Path:
    """A file whose columns are decoded by several threads."""
    random = np.random.default_rng(0)
    pq.write_table(pa.table({f"c{at}": random.random(100_000) for at in range(6)}), path)
    return path


def test_children_that_read_last_thing_end_well(tmp_path: Path) -> None:
    """More children than processors, so that threads of a child wait while it ends."""
    command = [sys.executable, "-c", _CHILD, str(wide(tmp_path / "a.parquet"))]
    for _ in range(_ROUNDS):
        running = [
            subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
            for _ in range(_AT_ONCE)
        ]
        for child in running:
            errors = child.communicate()[1]
            assert child.returncode == 0, errors


def test_arrow_owns_the_memory_that_its_threads_read(tmp_path: Path) -> None:
    file = skipstone.ParquetFile(wide(tmp_path / "a.parquet"))
    template = Templates(file.selection).of((0,), ())
    pages = Pages(codec=0, num_values=0, dictionary=b"", data=[b"x" * (1 << 20)])
    before = pa.total_allocated_bytes()
    held = template.file([SplicedGroup(rows=0, leaves=[pages])])
    assert held.parent is None
    assert pa.total_allocated_bytes() - before >= held.size > 1 << 20
