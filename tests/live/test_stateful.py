"""Any sequence of appends, replacements, compactions, failures and reopenings, against a list.

After each step the newest snapshot has exactly the rows of the list, every partition is in order,
and every earlier snapshot whose directory is still there reads as it was: by its size, through the
chain of the ``_pm``, and through the beginning of data.parquet.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from skipstone import ParquetFile
from skipstone.live import LiveTable
from skipstone.questdb.format.pm import Pm
from tests.live.tables import DAY, HOUR, SCHEMA, check_pm, cut, rows, snapshot

TIMES = st.one_of(
    st.integers(-2 * DAY, 2 * DAY),
    st.integers(-5, 5),
    st.sampled_from([0, 1, HOUR, DAY - 1, DAY, -DAY]),
)


@dataclass
class Seen:
    """A partition of an earlier snapshot, and its keys in their order."""

    path: str
    pm: str
    size: int
    keys: list[int]


class LiveTables(RuleBasedStateMachine):
    """``rows`` maps keys to times."""

    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.mkdtemp()
        self.root = f"{self.home}/a table é"
        self.rows: dict[int, int] = {}
        self.seen: list[Seen] = []
        self.next_key = 0
        self.batch = -1
        self.table: LiveTable

    @initialize(
        sort_by=st.sampled_from([None, ["ts", "key"], ["city é", "ts"]]),
        partition_by=st.sampled_from(["day", "hour", "none"]),
        filters=st.sampled_from([(), ("key", "city é")]),
    )
    def create(self, sort_by: Any, partition_by: str, filters: tuple[str, ...]) -> None:
        self.table = LiveTable.create(
            self.root,
            SCHEMA,
            timestamp="ts",
            sort_by=sort_by,
            partition_by=partition_by,
            bloom_filters=filters,
            row_group_rows=4,
            durable=False,
        )

    def fresh(self, times: list[int]) -> pa.Table:
        first, self.next_key = self.next_key, self.next_key + len(times)
        return rows(*times, first=first)

    def added(self, table: pa.Table) -> None:
        stamps = pc.cast(table["ts"], pa.int64()).to_pylist()
        self.rows |= dict(zip(table["key"].to_pylist(), stamps, strict=True))

    @rule(times=st.lists(TIMES, max_size=9), batched=st.booleans())
    def append(self, times: list[int], batched: bool) -> None:
        table = self.fresh(times)
        if batched:
            self.batch += 1
        done = self.table.append(table, batch_id=self.batch if batched else None)
        assert done.applied == (batched or bool(times))
        self.added(table)

    @precondition(lambda self: self.batch >= 0)
    @rule(times=st.lists(TIMES, min_size=1, max_size=3), back=st.integers(0, 2))
    def repeat(self, times: list[int], back: int) -> None:
        done = self.table.append(self.fresh(times), batch_id=max(0, self.batch - back))
        assert not done.applied

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        """Other rows with times between those that the row group has."""
        described = self.table.describe().partitions
        partition = data.draw(st.sampled_from(described))
        file = next(
            each for each in snapshot(self.root).files if each.directory == partition.directory
        )
        row_group = data.draw(st.integers(0, partition.row_groups - 1))
        counts = Pm(Path(file.pm).read_bytes()).snapshot(file.size).num_rows.tolist()
        there = cut(file).slice(sum(counts[:row_group]), counts[row_group])
        stamps = pc.cast(there["ts"], pa.int64()).to_pylist()
        times = data.draw(st.lists(st.integers(min(stamps), max(stamps)), min_size=1, max_size=9))
        table = self.fresh(times)
        self.table.replace(partition.name, row_group, table)
        for key in there["key"].to_pylist():
            del self.rows[key]
        self.added(table)

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        names = [each.name for each in self.table.describe().partitions]
        name = data.draw(st.sampled_from([None, *names]))
        done = self.table.compact(name)
        assert name is None or done == (name,)

    @rule()
    def vacuum(self) -> None:
        removed = self.table.vacuum(older_than=-1)
        self.seen = [each for each in self.seen if Path(each.path).parent.name not in removed]

    @rule()
    def reopen(self) -> None:
        self.table.close()
        self.table = LiveTable.open(self.root, durable=False)

    @rule(times=st.lists(TIMES, min_size=1, max_size=5), failing=st.integers(0, 9))
    def fail(self, times: list[int], failing: int) -> None:
        """The disk is full at one of the writes; where there are fewer, the append is done."""
        real, calls = os.pwrite, 0

        def full(descriptor: int, data: bytes, offset: int) -> int:
            nonlocal calls
            calls += 1
            if calls > failing:
                raise OSError(28, "No space left on device")
            return real(descriptor, data, offset)

        table = self.fresh(times)
        os.pwrite = full  # type: ignore[assignment]
        try:
            self.table.append(table)
        except OSError:
            return
        finally:
            os.pwrite = real
        self.added(table)

    @invariant()
    def every_snapshot_reads(self) -> None:
        if not hasattr(self, "table"):
            return
        for seen in self.seen:
            chained = Pm(Path(seen.pm).read_bytes()).snapshot(seen.size)
            chained.verify()
            assert int(chained.num_rows.sum()) == len(seen.keys)
            parquet = ParquetFile(seen.path, size=seen.size)
            assert parquet.query(columns=["key"])["key"].to_pylist() == seen.keys
        found: dict[int, int] = {}
        newest = snapshot(self.root)
        for file in newest.files:
            table = cut(file)
            check_pm(file, table)
            stamps = pc.cast(table["ts"], pa.int64()).to_numpy()
            if self.table.definition.ordered:
                assert (np.diff(stamps) >= 0).all()
            keys = table["key"].to_pylist()
            found |= dict(zip(keys, stamps.tolist(), strict=True))
            if all((each.path, each.size) != (file.path, file.size) for each in self.seen):
                self.seen.append(Seen(file.path, file.pm, file.size, keys))
        assert found == self.rows
        assert newest.rows == len(self.rows)
        if self.rows:
            edges = (newest.txn.min_timestamp, newest.txn.max_timestamp)
            assert edges == (min(self.rows.values()), max(self.rows.values()))

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self.table.close()
        shutil.rmtree(self.home)


TestLiveTables = LiveTables.TestCase
TestLiveTables.settings = settings(
    max_examples=20,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
