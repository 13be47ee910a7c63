"""``LiveTable``: a live table that one writer has open, and its commits.

    <root>/_live.json                              the definition of the table (``definition.py``)
    <root>/_lock                                   the writer (``disk.py``)
    <root>/_txn                                    the partitions, and the valid length of each file
    <root>/<partition>[.<txn>]/data.parquet, _pm   the rows (``partition.py``)

A commit writes the new row groups of all its partitions, makes them durable, and then writes
``_txn``: record, place, version. A reader of ``_txn`` before the version sees the old snapshot, a
later reader the new one. A writer that dies leaves bytes after the sizes in ``_txn``, and
directories that it does not name. The next writer removes both; readers never do. So between
commits every ``data.parquet`` ends with its footer, and any Parquet reader reads it; while rows are
being written, only readers that know the size do.

POSIX file systems only: an object store cannot append.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from skipstone.errors import FormatError, SkipstoneError
from skipstone.parquet.writing.arrow_encoder import EncodedRowGroups
from skipstone.questdb import TXN
from skipstone.questdb.format.txn import Partition, Txn, created, directory
from skipstone.questdb.txn_snapshot import read_txn
from skipstone.storage import open_storage

from .definition import MARKER, ROW_GROUP_ROWS, LiveDefinition, SortBy
from .directories import (
    KEPT_SECONDS,
    NO_BATCH,
    Commit,
    LiveDescription,
    already_committed,
    base_name,
    compacted,
    described,
    is_due,
    mark_superseded,
    named,
    next_record,
    publish,
    recover,
    remove_superseded,
    unnamed,
)
from .disk import LOCK, Disk, WriterLock, content, local_root, refuse_foreign, refuse_taken
from .partition import PartitionState, create, edit
from .rows import (
    Staged,
    by_partition,
    by_row_group,
    clear,
    conform,
    encode,
    merged,
    merged_size,
    placeable,
    read_row_groups,
    split,
    times,
    txn_time,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    import pyarrow as pa


class LiveTable:
    """A live table, from ``create`` or ``open``; a context manager that closes it.

    >>> with skipstone.LiveTable.open("lake/trades") as trades:
    ...     trades.append(rows, batch_id=7)

    Use it from one thread at a time. A failed write leaves the table unchanged.
    """

    def __init__(
        self, root: str, definition: LiveDefinition, lock: WriterLock | None, disk: Disk
    ) -> None:
        """Only ``create`` and ``open`` call it."""
        self.root, self.definition = root, definition
        self._lock, self._disk = lock, disk
        self._states: dict[str, PartitionState] = {}
        self._whole = False

    # -- opening ----------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        root: str,
        schema: pa.Schema,
        *,
        timestamp: str,
        partition_by: str = "day",
        sort_by: SortBy | str | None = None,
        row_group_rows: int = ROW_GROUP_ROWS,
        compression: str = "zstd",
        bloom_filters: tuple[str, ...] | list[str] = (),
        durable: bool = True,
    ) -> Self:
        """A new, empty table in a directory that is empty or does not exist, open for writing.

        ``timestamp`` names the designated timestamp. ``partition_by`` is "hour", "day", "month",
        "year" or "none", ``sort_by`` the order of rows (by default the timestamp).
        ``bloom_filters`` names columns that get a filter in every row group. ``durable=False``
        leaves it to the system when bytes reach the medium: what was committed then outlives the
        process, but not the machine. ``SkipstoneError`` where the directory has other content.
        """
        definition = LiveDefinition.of(
            schema,
            timestamp=timestamp,
            partition_by=partition_by,
            sort_by=sort_by,
            row_group_rows=row_group_rows,
            compression=compression,
            bloom_filters=bloom_filters,
        )
        encode(definition, definition.schema.empty_table())  # fails where Arrow cannot write a type
        root = local_root(root)
        refuse_foreign(root)
        refuse_taken(root)
        disk = Disk(durable)
        disk.make_directory(root)
        lock = WriterLock(root)
        try:
            refuse_taken(root)  # again: another writer may just have made it
            disk.put(f"{root}/{MARKER}", definition.to_json())
            disk.put(f"{root}/{TXN}", created(Txn(txn=0, seq_txn=NO_BATCH)))
        except BaseException:
            lock.release()
            raise
        table = cls(root, definition, lock, disk)
        table._whole = True
        return table

    @classmethod
    def open(cls, root: str, *, write: bool = True, durable: bool = True) -> Self:
        """The table at ``root``. For writing: never waits, and removes what dead writers left.

        ``SkipstoneError`` where another writer holds it or no live table is there, and
        ``UnsupportedError`` for a table of a QuestDB. ``write=False`` takes no lock and changes
        nothing.
        """
        root = local_root(root)
        path = Path(root, MARKER)
        if not path.exists():
            refuse_foreign(root)
            raise SkipstoneError(f"{root} is not a live table", hint="make one: LiveTable.create")
        definition = LiveDefinition.from_json(content(str(path)), file=str(path))
        table = cls(root, definition, WriterLock(root) if write else None, Disk(durable))
        try:
            if write:
                clear(root)
                table._recover()
        except BaseException:
            table.close()
            raise
        return table

    def close(self) -> None:
        """Release the lock: another writer can open the table. A second call does nothing."""
        if self._lock is not None:
            self._lock.release()
        self._states.clear()

    def remove_if_uncommitted(self) -> None:
        """Remove a table to which nothing was ever committed; any other stays.

        The lock file stays: another writer may have it open, and a new table uses it.
        """
        names = {each.name for each in Path(self.root).iterdir()}
        if self.txn.txn == 0 and names <= {MARKER, TXN, LOCK}:
            Path(self.root, MARKER).unlink()
            # A table that has the marker has its transactions.
            self._disk.sync_directory(self.root)
            Path(self.root, TXN).unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        held = self._lock is not None and self._lock.held
        return f"LiveTable({self.root!r}, {'writing' if held else 'reading'})"

    # -- content ----------------------------------------------------------------------------------

    @property
    def txn(self) -> Txn:
        """The current record of ``_txn``."""
        try:
            return read_txn(self.root, open_storage(self.root))
        except FileNotFoundError:
            raise FormatError("a live table with no _txn", file=f"{self.root}/{TXN}") from None

    @property
    def batch_id(self) -> int | None:
        """The last batch that was committed."""
        seq = self.txn.seq_txn
        return None if seq == NO_BATCH else seq

    def describe(self) -> LiveDescription:
        """Partitions, row groups, rows, live and dead bytes of the current snapshot."""
        return described(self.root, self.definition, self.txn)

    # -- writing ----------------------------------------------------------------------------------

    def append(self, rows: pa.Table | pa.RecordBatch, *, batch_id: int | None = None) -> Commit:
        """Add rows, each to the partition of its time, in one commit.

        Rows come in any order and are sorted. In an ordered table, rows that are older than the end
        of their partition go into the row groups of their time, which are rewritten.

        ``batch_id`` makes a call safe to repeat: it is committed with the rows, and a call with the
        same or a lower one does nothing, and the result says so.
        """
        txn = self._ready()
        if (done := already_committed(self.root, txn, batch_id)) is not None:
            return done
        table = conform(self.definition, rows)
        if not len(table) and batch_id is None:
            return Commit(txn=txn.txn, applied=False, reason="no rows")
        parts = split(self.definition, table)
        with self._writing():
            return self._append(txn, parts, batch_id)

    def append_staged(self, staged: Sequence[Staged], *, batch_id: int | None = None) -> Commit:
        """Add rows that tasks have encoded (``rows.stage``), as ``append`` does.

        Files that follow the partition and one another in time are appended unchanged. Others are
        read, and their rows are merged.
        """
        txn = self._ready()
        if (done := already_committed(self.root, txn, batch_id)) is not None:
            return done
        if not staged and batch_id is None:
            return Commit(txn=txn.txn, applied=False, reason="no rows")
        parts: list[tuple[int, pa.Table | list[EncodedRowGroups]]] = []
        for begin, files in by_partition(staged):
            state = self._state_at(txn, txn_time(self.definition, begin))
            parts.append((begin, placeable(self.definition, state, files)))
        with self._writing():
            return self._append(txn, parts, batch_id)

    def replace(self, partition: str, row_group: int, rows: pa.Table | pa.RecordBatch) -> Commit:
        """Put ``rows`` (one or more) in place of all rows of a row group.

        ``partition`` is a name as ``describe`` gives it, ``row_group`` a number from 0. All rows
        must be of the partition, and in an ordered table not reach beyond the row groups before and
        after it. Rows are sorted; more than a row group holds become several.
        """
        txn = self._ready()
        at, state = self._state_of(txn, partition)
        count = len(state.footer.rows)
        if not 0 <= row_group < count:
            raise SkipstoneError(
                f"row group {row_group} of partition {partition}",
                hint=f"it has {count}, numbered from 0",
            )
        parts = split(self.definition, conform(self.definition, rows))
        begins = [txn_time(self.definition, begin) for begin, _ in parts]
        if begins != [txn.partitions[at].timestamp]:
            raise SkipstoneError(
                f"rows of {len(parts)} partitions for one row group of {partition}",
                hint="at least one row, and all with times of this partition",
            )
        table = parts[0][1]
        if self.definition.ordered:
            stamps = times(self.definition, table)
            low = state.highs[row_group - 1] if row_group else None
            high = state.lows[row_group + 1] if row_group + 1 < count else None
            if (low is not None and stamps[0] < low) or (high is not None and stamps[-1] > high):
                raise SkipstoneError(
                    f"rows that do not fit between the neighbours of row group {row_group}",
                    hint="append puts late rows where they belong",
                )
        with self._writing():
            encoded = self._encoded(table)
            order: list[int | EncodedRowGroups] = list(range(count))
            order[row_group] = encoded
            state = edit(self._disk, state, order)
            return self._commit(
                txn,
                {txn.partitions[at].timestamp: state},
                rows=state.rows - txn.row_counts[at],
                row_groups=len(encoded.editor.rows),
            )

    def compact(self, partition: str | None = None) -> tuple[str, ...]:
        """Rewrite partitions without dead bytes, in full row groups; returns their names.

        By default those with more than half, or more than 1 GiB, of dead bytes; ``partition`` names
        one to compact in any case. Each gets a new directory and a commit of its own. The old
        directory stays for the readers of older snapshots until ``vacuum``.
        """
        txn = self._ready()
        if partition is None:
            wanted = [
                each.name
                for each in self.describe().partitions
                if is_due(each.bytes, each.dead_bytes)
            ]
        else:
            wanted = [base_name(named(txn, self.definition.partitioning)[self._at(txn, partition)])]
        for name in wanted:
            self._compact(name)
        return tuple(wanted)

    def vacuum(self, *, older_than: float = KEPT_SECONDS) -> tuple[str, ...]:
        """Remove directories that have been superseded for ``older_than`` seconds; their names.

        A day by default: no reader should take longer from reading ``_txn`` to opening its files.
        Files that are open already stay readable.
        """
        txn = self._ready()
        left = unnamed(self.root, txn, self.definition.partitioning).superseded
        return remove_superseded(self._disk, self.root, left, older_than=older_than)

    # -- parts of a commit ------------------------------------------------------------------------

    def _ready(self) -> Txn:
        if self._lock is None or not self._lock.held:
            raise SkipstoneError(
                f"{self.root} is not open for writing", hint="LiveTable.open(root)"
            )
        if not self._whole:
            self._recover()
        return self.txn

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Removes what a failed write left: at once, or if that fails before the next write."""
        self._whole = False
        try:
            yield
        except BaseException:
            # Readers that do not know the size find the footer at the end of the file.
            with suppress(OSError, SkipstoneError):
                self._recover()
            raise
        self._whole = True

    def _recover(self) -> None:
        self._states.clear()
        recover(self._disk, self.root, self.definition)
        self._whole = True

    def _at(self, txn: Txn, partition: str) -> int:
        """The position of a partition of this name."""
        names = named(txn, self.definition.partitioning)
        for at, name in enumerate(names):
            if partition in (name, base_name(name)):
                return at
        raise SkipstoneError(
            f"no partition {partition!r} in {self.root}",
            hint=f"it has {len(names)}"
            + (f", from {base_name(names[0])} to {base_name(names[-1])}" if names else ""),
        )

    def _state_of(self, txn: Txn, partition: str) -> tuple[int, PartitionState]:
        at = self._at(txn, partition)
        return at, self._state(txn.partitions[at])

    def _state(self, partition: Partition) -> PartitionState:
        path = f"{self.root}/{directory(partition, self.definition.partitioning)}"
        state = self._states.get(path)
        if state is None or state.size != partition.parquet_file_size:
            state = PartitionState.load(
                path, partition.parquet_file_size, self.definition.timestamp
            )
            self._states[path] = state
        return state

    def _encoded(self, rows: pa.Table) -> EncodedRowGroups:
        size = merged_size(self.definition, len(rows))
        return encode(self.definition, rows, row_group_rows=size)

    def _append(
        self,
        txn: Txn,
        parts: Sequence[tuple[int, pa.Table | list[EncodedRowGroups]]],
        batch_id: int | None,
    ) -> Commit:
        states, groups, rows = dict[int, PartitionState](), 0, 0
        for begin, part in parts:
            time = txn_time(self.definition, begin)
            states[time], count = self._added(txn, time, part)
            groups += count
            rows += sum(sum(e.editor.rows) for e in part) if isinstance(part, list) else len(part)
        return self._commit(txn, states, rows=rows, row_groups=groups, batch_id=batch_id)

    def _state_at(self, txn: Txn, time: int) -> PartitionState | None:
        partition = next((each for each in txn.partitions if each.timestamp == time), None)
        return None if partition is None else self._state(partition)

    def _added(
        self, txn: Txn, time: int, rows: pa.Table | list[EncodedRowGroups]
    ) -> tuple[PartitionState, int]:
        """The partition that begins at ``time`` with these rows; how many row groups are new."""
        state = self._state_at(txn, time)
        if state is None:
            entry = Partition(timestamp=time, row_count=0)
            path = f"{self.root}/{directory(entry, self.definition.partitioning)}"
            Path(path).mkdir()
            encoded = rows if isinstance(rows, list) else [encode(self.definition, rows)]
            state = create(self._disk, path, encoded, self.definition.timestamp)
            self._disk.sync_directory(self.root)
            return state, len(state.footer.rows)
        order: list[int | EncodedRowGroups] = list(range(len(state.footer.rows)))
        if isinstance(rows, list):
            order += rows
        else:
            if self.definition.ordered:
                rows = self._merged(state, order, rows)
            if len(rows):
                order.append(encode(self.definition, rows))
        fresh = sum(len(each.editor.rows) for each in order if isinstance(each, EncodedRowGroups))
        return edit(self._disk, state, order), fresh

    def _merged(
        self, state: PartitionState, order: list[int | EncodedRowGroups], rows: pa.Table
    ) -> pa.Table:
        """Merges late rows into the row groups of ``order``; returns the other rows."""
        late, rows = by_row_group(self.definition, state.highs, rows)
        if late:
            old = read_row_groups(self.definition, state.directory, state.size, list(late))
            for (group, new), there in zip(late.items(), old, strict=True):
                order[group] = self._encoded(merged(self.definition, [there, new]))
        return rows

    def _compact(self, name: str) -> None:
        txn = self._ready()
        at, state = self._state_of(txn, name)
        partition = replace(txn.partitions[at], name_txn=txn.txn + 1)
        with self._writing():
            path = f"{self.root}/{directory(partition, self.definition.partitioning)}"
            Path(path).mkdir()
            parts = compacted(self.definition, state)
            new = create(self._disk, path, parts, self.definition.timestamp)
            self._disk.sync_directory(self.root)
            if new.rows != state.rows:
                raise FormatError("rows were lost", file=path, expected=state.rows, got=new.rows)
            self._commit(txn, {partition.timestamp: new}, name_txn=partition.name_txn)
            self._states.pop(state.directory, None)
            mark_superseded(self._disk, state.directory, txn.txn + 1)

    def _commit(
        self,
        txn: Txn,
        states: Mapping[int, PartitionState],
        *,
        rows: int = 0,
        row_groups: int = 0,
        batch_id: int | None = None,
        name_txn: int | None = None,
    ) -> Commit:
        """Commit these partitions, by their timestamp, to ``_txn``."""
        after = next_record(self.definition, txn, states, batch_id=batch_id, name_txn=name_txn)
        publish(self._disk, self.root, after)
        self._states |= {state.directory: state for state in states.values()}
        before = {} if name_txn is not None else {each.timestamp: each for each in txn.partitions}
        written = 0
        for time, state in states.items():
            written += state.size
            written -= before[time].parquet_file_size if time in before else 0
        return Commit(
            txn=after.txn,
            applied=True,
            rows=rows,
            partitions=tuple(
                [base_name(Path(states[time].directory).name) for time in sorted(states)]
            ),
            row_groups=row_groups,
            bytes_written=written,
        )
