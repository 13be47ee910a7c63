"""A build of an encrypted index, killed where it is: what is there is sealed, whole, and true."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import Table
from tests.processes import environment

KEYS = {"kf": b"F" * 16, "k1": b"1" * 16}

# Builds, adds a file, refreshes and compacts without end; says a word at every turn.
LOOP = """
import os, sys
import pyarrow as pa, pyarrow.parquet as pq
from skipstone import Table
from skipstone.facts.index_encryption import IndexEncryption
from tests.facts.test_encrypted_kill import KEYS, write
path = sys.argv[1]
how = IndexEncryption(footer_key="kf", key_metadata={"s:bitmap": "k1"})
print("ready", flush=True)
for turn in range(4, 10_000):
    table = Table(path, index_keys=KEYS)
    table.build(indexes=["id:minmax", "s:bitmap"], encryption=how)
    write(path, turn % 12)
    table.compact()
    print(turn, flush=True)
"""


def write(path: str, at: int) -> None:
    """File ``at``, with ids and texts of its own; a new version of it where there is one."""
    file = f"{path}/f{at}.parquet"
    ids = range(at * 1000, at * 1000 + 60)
    made = f"{path}/_f{at}"
    pq.write_table(pa.table({"id": ids, "s": [f"secret-{i}" for i in ids]}), made)
    os.utime(made, (1_600_000_000, 1_600_000_000))
    Path(made).replace(file)


def test_a_killed_build_leaves_sealed_facts_or_none(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.mkdir()
    for at in range(4):
        write(str(path), at)
    for turns in (1, 2, 3, 5):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(path)],
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        for _ in range(turns):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        table = Table(str(path), index_keys=KEYS)
        files = [file for file in path.iterdir() if not file.name.startswith("_")]
        for file in files:
            first = int(file.stem[1:]) * 1000
            assert table.query(f"s = 'secret-{first + 7}'").num_rows == 1
            assert table.query(f"id = {first + 7}").num_rows == 1
        index = Path(table.location.root)
        data = b"".join(p.read_bytes() for p in index.rglob("*") if p.is_file())
        assert b"secret-" not in data
        assert not [each for each in table.check().corrupt if "authenticate" in each]
        table.refresh() if table.store.exists() else None
        assert not table.check().corrupt
