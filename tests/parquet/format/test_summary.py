"""``_metadata`` summaries: which row groups lie in which file, and paths that lead elsewhere."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.metadata import FileMetaData, RowGroup, SchemaElement
from skipstone.parquet.format.summary_file import is_summary
from skipstone.parquet.writing.footer_editor import row_group_bytes
from tests.parquet.format.files import same_table
from tests.parquet.format.test_footer_arrays import CHUNK, META
from tests.parquet.format.wire import footer_of
from tests.parquet.writing.footers import in_file, with_more

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["a b/part %25 é.parquet", "b=1/c.parquet"]


def test_a_summary_of_arrow_is_split_into_the_footers_of_its_files(tmp_path: Path) -> None:
    table = pa.table({"i": range(10), "s": [str(at) for at in range(10)]})
    collected: list[pq.FileMetaData] = []
    for name in NAMES:
        (tmp_path / name).parent.mkdir()
        pq.write_table(table, tmp_path / name, row_group_size=4, metadata_collector=collected)
        collected[-1].set_file_path(name)
    pq.write_metadata(table.schema, tmp_path / "_metadata", metadata_collector=collected)
    footer = FooterArrays.scan(*footer_of(tmp_path / "_metadata"))
    assert is_summary(footer)
    files = [group.columns[0].file_path for group in footer.metadata.row_groups]
    assert files == [NAMES[0]] * 3 + [NAMES[1]] * 3
    for path, rows in zip(NAMES, ([0, 1, 2], [3, 4, 5]), strict=True):
        part = footer.select(rows)
        own = FooterArrays.scan(*footer_of(tmp_path / path))
        assert part.num_rows == own.num_rows == 10
        assert part.chunk("data_page_offset").tolist() == own.chunk("data_page_offset").tolist()
        for r in range(own.num_row_groups):
            ours, theirs = part.row_group(r), own.row_group(r)
            unnamed = [dataclasses.replace(each, file_path=None) for each in ours.columns]
            assert [each.meta_data for each in unnamed] == [
                each.meta_data for each in theirs.columns
            ]


def test_arrow_reads_a_summary_that_was_spliced(tmp_path: Path) -> None:
    tables = [pa.table({"i": range(at, at + 5)}) for at in (0, 5)]
    footers = []
    for name, table in zip(("one.parquet", "two.parquet"), tables, strict=True):
        pq.write_table(table, tmp_path / name, row_group_size=3)
        footers.append(FooterArrays.scan(*footer_of(tmp_path / name)))
    first = dataclasses.replace(footers[0].metadata, num_rows=0, row_groups=())
    named = [
        in_file(row_group_bytes(footer, r), name)
        for footer, name in zip(footers, ("one.parquet", "two.parquet"), strict=True)
        for r in range(footer.num_row_groups)
    ]
    summary = with_more(FooterArrays.scan(first.to_bytes()), named)
    file = b"PAR1" + summary + len(summary).to_bytes(4, "little") + b"PAR1"
    (tmp_path / "_metadata").write_bytes(file)
    theirs = ds.parquet_dataset(tmp_path / "_metadata").to_table()
    assert same_table(theirs.combine_chunks(), pa.concat_tables(tables).combine_chunks())
    assert pq.read_metadata(io.BytesIO(file)).num_rows == 10


def test_a_plain_file_is_no_summary() -> None:
    assert not is_summary(FooterArrays.scan(_footer([[None], [None]])))


def _footer(paths: list[list[str | None]]) -> bytes:
    width = len(paths[0]) if paths else 1
    leaves = [SchemaElement(name=f"c{at}", type=META.type) for at in range(width)]
    groups = [
        RowGroup(
            columns=tuple([dataclasses.replace(CHUNK, file_path=path) for path in row]),
            total_byte_size=1,
            num_rows=3,
        )
        for row in paths
    ]
    return FileMetaData(
        version=1,
        schema=(SchemaElement(name="r", num_children=width), *leaves),
        num_rows=0,
        row_groups=tuple(groups),
    ).to_bytes()
