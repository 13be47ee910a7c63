"""What is left of a write that was killed: the old file, and with checkpoints nearly all rows."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Decryption, Encryption, ParquetFile, write_table
from skipstone.errors import SkipstoneError
from skipstone.salvage import salvage
from tests.processes import FILE_CALLS, killed_before_step, runs_of
from tests.rewrite.encrypted_files import KEY, KEYS
from tests.rewrite.written import table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GROUP = 500

_KILLED = f"""{killed_before_step(*FILE_CALLS)}
from skipstone import write_table
from tests.rewrite.written import table
every = int(sys.argv[3])
import skipstone.storage.atomic_replace
skipstone.storage.atomic_replace._BUFFER = 50_000
rows = (table(500, 500 * number) for number in range(6))
write_table(rows, sys.argv[1], row_group_rows=500, page_rows=100, checkpoint_every=every)
"""


def test_a_kill_at_any_step_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    steps, kills = 0, 0
    with runs_of(_KILLED) as run:
        while True:
            path.write_bytes(b"what was there")
            code = run(path, steps, 0)
            left = {each.name for each in tmp_path.iterdir()} - {"a.parquet"}
            assert len(left) <= 1
            assert all(re.fullmatch("_tmp-a.parquet-[0-9a-f]{32}", name) for name in left)
            if code == 0:
                break
            assert code == -signal.SIGKILL
            assert path.read_bytes() == b"what was there" or pq.read_table(path).num_rows == 3_000
            kills, steps = kills + 1, steps + (1 if steps < 2 else 7)
    assert kills >= 3
    assert pq.read_table(path).num_rows == 3_000
    assert [each.name for each in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("every", [1, 2])
def test_a_kill_loses_the_row_groups_since_the_last_checkpoint(tmp_path: Path, every: int) -> None:
    """Whatever the step: what salvage saves are the first rows, a multiple of ``every`` row groups
    at least, and more the later the kill was."""
    saved: list[int] = []
    steps = 0
    with runs_of(_KILLED) as run:
        while True:
            home = tmp_path / f"{every} {steps}"
            home.mkdir()
            path, left = home / "a é.parquet", home / "_unfinished-a é.parquet"
            code = run(path, steps, every)
            if code == 0:
                break
            assert code == -signal.SIGKILL
            assert path.exists() != left.exists()
            if path.exists():  # killed behind the rename
                assert pq.read_table(path).num_rows == 6 * GROUP
                break
            held = left.read_bytes()
            checkpoints = held[4:].count(b"PAR1")
            if checkpoints:
                out = home / "saved.parquet"
                report = salvage(str(left), output=str(out))
                assert left.read_bytes() == held
                rows = pq.read_table(out, page_checksum_verification=True)
                assert rows.num_rows >= checkpoints * every * GROUP
                assert repr(rows.to_pydict()) == repr(table(rows.num_rows).to_pydict())
                assert report.footer in ("checkpoint", "whole")
                saved.append(rows.num_rows)
                # Nobody writes over what is worth something.
                if steps % 4 == 0:
                    with pytest.raises(SkipstoneError, match="the rest of a file"):
                        write_table(table(10), path, checkpoint_every=1)
                    assert left.read_bytes() == held
            steps += 4 if every == 1 else 2
    assert saved == sorted(saved)
    assert len(set(saved)) >= 3
    assert saved[-1] >= 4 * GROUP


def broken(groups: int) -> Iterator[pa.Table]:
    """This many row groups, and then an error."""
    for number in range(groups):
        yield table(GROUP, GROUP * number)
    raise RuntimeError("the network is gone")


def test_an_error_leaves_the_checkpoints(tmp_path: Path) -> None:
    path, left = tmp_path / "a.parquet", tmp_path / "_unfinished-a.parquet"
    path.write_bytes(b"what was there")
    with pytest.raises(RuntimeError):
        write_table(broken(1), path, row_group_rows=GROUP, checkpoint_every=2)
    assert not left.exists()  # no checkpoint, nothing to keep
    with pytest.raises(RuntimeError):
        write_table(broken(5), path, row_group_rows=GROUP, checkpoint_every=2)
    assert path.read_bytes() == b"what was there"
    salvage(str(left), output=str(tmp_path / "saved.parquet"))
    found = pq.read_table(tmp_path / "saved.parquet")
    assert repr(found.to_pydict()) == repr(table(4 * GROUP).to_pydict())
    with pytest.raises(SkipstoneError, match="salvage"):
        write_table(table(10), path, checkpoint_every=2)
    left.unlink()
    write_table(table(10), path, checkpoint_every=2)
    assert pq.read_table(path).num_rows == 10


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_the_checkpoints_of_an_encrypted_file(tmp_path: Path, plaintext_footer: bool) -> None:
    """Footers are sealed one like the other: the part up to one is a file, and salvage finds it."""
    path, left = tmp_path / "a.parquet", tmp_path / "_unfinished-a.parquet"
    encryption = Encryption(
        footer_key=KEY,
        column_keys={"s": KEYS["s"]},
        footer_key_metadata="footer",
        column_key_metadata={"s": "s"},
        plaintext_footer=plaintext_footer,
    )
    keys = Decryption(footer_key=KEY, column_keys={"s": KEYS["s"]})
    with pytest.raises(RuntimeError):
        write_table(
            broken(5), path, row_group_rows=GROUP, checkpoint_every=2, encryption=encryption
        )
    held = left.read_bytes()
    magic = b"PAR1" if plaintext_footer else b"PARE"
    part = tmp_path / "part.parquet"
    part.write_bytes(held[: held.rindex(magic) + 4])
    file = ParquetFile(part, decryption=keys)
    assert repr(file.query().to_pydict()) == repr(table(4 * GROUP).to_pydict())
    assert file.verify().ok
    salvage(str(left), output=str(tmp_path / "saved.parquet"), decryption=keys)
    found = pq.read_table(tmp_path / "saved.parquet")
    assert repr(found.slice(0, 4 * GROUP).to_pydict()) == repr(table(4 * GROUP).to_pydict())
