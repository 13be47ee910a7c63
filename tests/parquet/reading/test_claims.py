"""Files of a few bytes that claim to hold many rows: bounded memory, and no error but ours."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.parquet.format.footer import read_metadata
from tests.processes import environment

if TYPE_CHECKING:
    from pathlib import Path


ROWS = 1 << 31

SCRIPT = """
import resource, sys
import skipstone
from skipstone.errors import FormatError
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
folder, columns = sys.argv[1:]
file, table = skipstone.ParquetFile(f"{folder}/f.parquet"), skipstone.Table(folder)
for where in ("a = 7", "a is null", "a > 3 or b > 'x'"):
    for call in (file.count, file.query, table.count, table.query):
        no_column = columns == "0" and call in (file.count, file.query)
        if no_column or (call == table.query and "null" in where):
            continue
        try:
            found = call(where)
        except FormatError:
            assert columns == "1"
        else:
            assert columns == "0"
            assert call != table.count or found == ("null" in where) * (1 << 31)
"""


@pytest.mark.parametrize("columns", [0, 1])
def test_two_billion_rows(tmp_path: Path, columns: int) -> None:
    """With a page of one value, and without any column (another file of the table has them)."""
    table = pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]})
    out = io.BytesIO()
    pq.write_table(table, out, store_schema=False)
    data = out.getvalue()
    metadata = read_metadata(data)
    (group,) = metadata.row_groups
    if columns:
        chunks = [
            replace(each, meta_data=replace(each.meta_data, num_values=ROWS, statistics=None))
            for each in group.columns
            if each.meta_data is not None
        ]
        group = replace(group, num_rows=ROWS, columns=tuple(chunks))
        schema = metadata.schema
    else:
        group = replace(group, num_rows=ROWS, columns=())
        schema = (replace(metadata.schema[0], num_children=0),)
        pq.write_table(table, tmp_path / "other.parquet")
    claimed = replace(
        metadata, schema=schema, num_rows=ROWS, row_groups=(group,), column_orders=None
    ).to_bytes()
    pages = data[: -len(claimed)] if columns else b"PAR1"
    (tmp_path / "f.parquet").write_bytes(
        pages + claimed + len(claimed).to_bytes(4, "little") + b"PAR1"
    )
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), str(columns)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
