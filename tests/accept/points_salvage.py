"""Files whose footer is lost: what can be saved is saved, and nothing else is given."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from skipstone.cli.verbs import cli
from tests.accept.registry import point

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench


def torn(home: Path) -> tuple[pa.Table, Path, int]:
    """Rows of a whole file, a part of it that ends within the third of four row groups."""
    rows = pa.table({"id": list(range(4000)), "city": ["Oslo", "Bergen"] * 2000})
    whole, path = home / "whole.parquet", home / "torn.bin"
    pq.write_table(rows, whole, row_group_size=1000, write_page_checksum=True)
    column = pq.read_metadata(whole).row_group(2).column(1)
    path.write_bytes(whole.read_bytes()[: column.dictionary_page_offset + 5])
    return rows, path, 2000


@point("rewrite: the whole row groups of a file that was cut off are saved, with counts of all")
def salvaged(bench: Workbench) -> None:
    rows, path, kept = torn(bench.home)
    before, out = path.read_bytes(), bench.home / "saved.parquet"
    like = str(bench.home / "whole.parquet")
    arguments = ["salvage", str(path), "--schema", like, "--output", str(out), "--json"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 3, done.output
    report = json.loads(done.stdout)
    assert (report["row_groups_saved"], report["rows_saved"]) == (2, kept)
    assert 0 < report["pages_saved"] < report["pages_found"]
    assert pq.read_table(out).equals(rows.slice(0, kept))
    assert path.read_bytes() == before


@point("rewrite: a page that is damaged is found, and its row group left out or its values null")
def damaged(bench: Workbench) -> None:
    torn(bench.home)
    rows = pq.read_table(bench.home / "whole.parquet")
    data = bytearray((bench.home / "whole.parquet").read_bytes())
    at = pq.read_metadata(bench.home / "whole.parquet").row_group(1).column(1).data_page_offset
    data[at + 60] ^= 0xFF
    path = bench.home / "damaged.parquet"
    path.write_bytes(data)
    left, null = bench.home / "left.parquet", bench.home / "null.parquet"
    for out, options in ((left, []), (null, ["--skip-bad-pages"])):
        done = CliRunner().invoke(cli, ["salvage", str(path), "--output", str(out), *options])
        assert done.exit_code == 3, done.output
    assert pq.read_table(left).equals(pa.concat_tables([rows.slice(0, 1000), rows.slice(2000)]))
    found = pq.read_table(null)
    assert found["id"].equals(rows["id"])
    assert found["city"].null_count == 1000
