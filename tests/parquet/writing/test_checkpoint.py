"""Footers within a file: plain Parquet for everyone, and after a crash all up to the last one."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.parquet.format.footer import Tail
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.writing.file_writer import CheckpointWriter, FileWriter
from skipstone.parquet.writing.footer_editor import FooterEditor, moved_row_group
from skipstone.salvage import salvage

if TYPE_CHECKING:
    from pathlib import Path

ROWS, GROUPS = 500, 7


class Sink:
    """Bytes in memory."""

    def __init__(self) -> None:
        self.out, self.at, self.flushed = bytearray(), 0, 0

    def write(self, piece: bytes | memoryview) -> None:
        self.out += piece
        self.at += len(piece)

    def flush(self) -> None:
        self.flushed = self.at


def group(number: int) -> pa.Table:
    """Two columns of one type without dictionaries: no border is to be seen among their pages."""
    n = np.arange(ROWS, dtype=np.float64) + ROWS * number
    return pa.table({"a": n, "b": -n})


def written(every: int) -> tuple[bytes, list[int]]:
    """A file of seven row groups, and the flushes: where checkpoints end."""
    sink, ends = Sink(), []
    writer: CheckpointWriter | None = None
    for number in range(GROUPS):
        made = io.BytesIO()
        options: Any = {"use_dictionary": False, "compression": "none", "data_page_size": 800}
        pq.write_table(group(number), made, write_batch_size=100, **options)
        data = made.getvalue()
        tail = Tail.from_bytes(data[-8:], len(data))
        footer = FooterArrays.scan(data[tail.offset : -8], tail.offset)
        if writer is None:
            template = FooterEditor.of(footer)
            writer = CheckpointWriter(
                writer=FileWriter(sink), template=template, every=every, sync=sink.flush
            )
        delta = sink.at - 4
        sink.write(data[4 : tail.offset])
        editor = FooterEditor.of(footer)
        for struct, rows in zip(editor.row_groups, editor.rows, strict=True):
            writer.add(moved_row_group(struct, delta, ordinal=number), rows)
        ends.append(sink.flushed)
    assert writer is not None
    writer.finish()
    return bytes(sink.out), ends


@pytest.mark.parametrize("every", [0, 1, 3, 7, 100])
def test_every_reader_reads_all_of_it(tmp_path: Path, every: int) -> None:
    data, _ = written(every)
    path = tmp_path / "x.parquet"
    path.write_bytes(data)
    rows = pa.concat_tables([group(number) for number in range(GROUPS)])
    assert pq.read_table(path).equals(rows)
    assert pl.read_parquet(path)["b"].to_list() == rows["b"].to_pylist()
    assert duckdb.read_parquet(str(path)).to_arrow_table().equals(rows)
    assert data.count(b"PAR1") == 2 + (0 if not every else GROUPS // every - (GROUPS % every == 0))


@pytest.mark.parametrize("lost", [1, 9, 300, 2_000])
def test_a_crash_loses_what_follows_the_last_checkpoint(tmp_path: Path, lost: int) -> None:
    data, ends = written(3)
    # Cut this many bytes behind the checkpoint of six row groups.
    cut = max(ends) + lost
    (tmp_path / "x").write_bytes(data[: min(cut, len(data) - 1)])
    report = salvage(str(tmp_path / "x"), output=str(tmp_path / "out.parquet"))
    assert report.footer == "checkpoint"
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.equals(pa.concat_tables([group(number) for number in range(6)]))


def test_the_part_up_to_a_checkpoint_is_a_file(tmp_path: Path) -> None:
    data, ends = written(2)
    for number, end in enumerate(ends):
        if end:
            found = pq.ParquetFile(pa.BufferReader(data[:end])).read(use_threads=False)
            assert found.num_rows == ROWS * ((number + 1) // 2 * 2)
