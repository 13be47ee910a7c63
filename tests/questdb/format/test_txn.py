"""`_txn`: as QuestDB wrote and read it, our own commits, and readers that come in between."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.questdb.format.txn import Partition, Txn, commit, created, read

if TYPE_CHECKING:
    from pathlib import Path


def files(golden: Path) -> list[Path]:
    return sorted((golden / "questdb" / "txn").glob("*._txn"))


def as_recorded(txn: Txn) -> str:
    """What QuestDB's reader printed of it."""
    partitions = []
    for partition, rows in zip(txn.partitions, txn.row_counts, strict=True):
        text = f"{{ts: '{partition.timestamp}', rowCount: {rows}, nameTxn: {partition.name_txn}"
        if partition.parquet_format:
            text += f", parquetSize: {partition.parquet_file_size}"
        partitions.append(text + (", readOnly=true}" if partition.read_only else "}"))
    ordered = "true" if txn.lag_txn_count >= 0 else "false"
    return (
        f"{{txn: {txn.txn}, attachedPartitions: [ {', '.join(partitions)}"
        f"{' ' if partitions else ''}], "
        f"transientRowCount: {txn.transient_row_count}, fixedRowCount: {txn.fixed_row_count}, "
        f"minTimestamp: '{txn.min_timestamp}', maxTimestamp: '{txn.max_timestamp}', "
        f"dataVersion: {txn.data_version}, structureVersion: {txn.structure_version}, "
        f"partitionTableVersion: {txn.partition_table_version}, "
        f"columnVersion: {txn.column_version}, truncateVersion: {txn.truncate_version}, "
        f"seqTxn: {txn.seq_txn}, symbolColumnCount: {len(txn.symbols)}, "
        f"lagRowCount: {txn.lag_row_count}, lagMinTimestamp: '{txn.lag_min_timestamp}', "
        f"lagMaxTimestamp: '{txn.lag_max_timestamp}', lagTxnCount: {txn.lag_txn_count}, "
        f"lagOrdered: {ordered}}}"
    )


def test_files_read_as_recorded(golden: Path) -> None:
    assert len(files(golden)) == 4
    for path in files(golden):
        data = path.read_bytes()
        txn = read(data)
        assert txn is not None
        recorded = path.with_name(path.name.replace("._txn", ".txreader.txt")).read_text()
        text, _, place = recorded.strip().rpartition("} ")
        assert as_recorded(txn) == text + "}"
        version, base, size = (int(part.partition("=")[2]) for part in place.split())
        assert txn.txn == version
        assert data[base : base + size] == txn.to_bytes()


def test_the_older_record_is_whole_too_and_is_written_alike(golden: Path) -> None:
    # Bytes 116 to 127 of a record are whatever lay there before.
    for path in files(golden)[1:]:
        data = path.read_bytes()
        current = read(data)
        assert current is not None
        older = read(struct.pack("<q", current.txn - 1) + data[8:])
        assert older is not None
        assert older.txn == current.txn - 1
        offset = struct.unpack_from("<i", data, 32 if older.txn & 1 else 8)[0]
        written = older.to_bytes()
        there = data[offset : offset + len(written)]
        assert (there[:116], there[128:]) == (written[:116], written[128:])


def applied(data: bytes, txn: Txn, steps: int = 3) -> bytes:
    out = bytearray(data)
    for offset, piece in commit(data, txn)[:steps]:
        out += bytes(max(0, offset + len(piece) - len(out)))
        out[offset : offset + len(piece)] = piece
    return bytes(out)


def test_commits_lie_where_those_of_questdb_do(golden: Path) -> None:
    created_file, first, *_ = (path.read_bytes() for path in files(golden))
    zero, one = read(created_file), read(first)
    assert zero is not None
    assert one is not None
    assert created(zero) == created_file
    assert applied(created_file, one) == first


I64 = st.integers(-(1 << 63), (1 << 63) - 1)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
NATURAL = st.integers(0, (1 << 63) - 1)
PARTITIONS = st.builds(
    Partition,
    timestamp=I64,
    row_count=st.integers(0, (1 << 44) - 1),
    name_txn=st.integers(-1, 1 << 40),
    parquet_file_size=st.integers(-1, 1 << 50),
    parquet_format=st.booleans(),
    parquet_generated=st.booleans(),
    read_only=st.booleans(),
    squash_count=st.integers(0, (1 << 16) - 1),
    reserved=st.booleans(),
)


def txns(number: int) -> st.SearchStrategy[Txn]:
    return st.builds(
        Txn,
        txn=st.just(number),
        transient_row_count=NATURAL,
        fixed_row_count=NATURAL,
        min_timestamp=I64,
        max_timestamp=I64,
        structure_version=I64,
        data_version=I64,
        partition_table_version=I64,
        column_version=I64,
        truncate_version=I64,
        seq_txn=I64,
        lag_txn_count=I32,
        lag_row_count=I32,
        lag_min_timestamp=I64,
        lag_max_timestamp=I64,
        symbols=st.lists(st.tuples(I32, I32), max_size=4).map(tuple),
        partitions=st.lists(PARTITIONS, max_size=6).map(tuple),
    )


@given(st.data())
def test_commits_one_after_the_other_each_step_is_the_old_or_the_new(data: st.DataObject) -> None:
    current = data.draw(txns(data.draw(st.integers(0, 1))))
    file = created(current)
    assert read(file) == current
    for number in range(current.txn + 1, current.txn + 1 + data.draw(st.integers(1, 6))):
        following = data.draw(txns(number))
        for steps in (1, 2):
            # A reader that maps the file, and one whose map is as short as the file was.
            between = applied(file, following, steps)
            assert read(between) == current
            assert read(between[: len(file)]) == current
        after = applied(file, following)
        assert read(after) == following
        assert len(after) >= len(file)
        assert read(after[: len(file)]) in (following, None)
        file, current = after, following


def test_a_commit_of_another_number_is_refused() -> None:
    file = created(Txn(txn=4))
    for number in (3, 4, 6):
        with pytest.raises(ValueError, match="does not follow 4"):
            commit(file, Txn(txn=number))


def test_a_version_that_changes_while_reading_means_once_more() -> None:
    file = bytearray(applied(created(Txn(txn=0)), Txn(txn=1, seq_txn=7)))
    # The version says 2 already, and its record is still that of 0.
    file[:8] = struct.pack("<q", 2)
    assert read(file) is None
    short = bytearray(applied(bytes(created(Txn(txn=0))), Txn(txn=1)))[:100]
    assert read(short) is None


@pytest.mark.fuzz
@given(st.data())
def test_damage_gives_a_txn_or_none_or_a_format_error(data: st.DataObject) -> None:
    file = bytearray(applied(created(Txn(txn=0)), data.draw(txns(1))))
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, min(len(file), 240) - 1))
        file[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    cut = bytes(file[: data.draw(st.sampled_from([len(file), 63, 64, 100]))])
    try:
        txn = read(cut, file="x/_txn")
    except FormatError:
        return
    assert txn is None or isinstance(txn.to_bytes(), bytes)
