"""Files whose footer is lost: what can be saved is saved, and nothing else is given."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from skipstone.cli import cli
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


@point("rewrite: with its keys an encrypted file is saved although its footer is torn")
def sealed(bench: Workbench) -> None:
    rows, key = (
        pa.table({"id": range(3000), "city": ["Oslo", "Bergen", None] * 1000}),
        bench.home / "k",
    )
    whole, path = bench.home / "sealed.parquet", bench.home / "torn.bin"
    pq.write_table(rows, whole, row_group_size=1000)
    like = bench.home / "like.parquet"
    pq.write_table(rows.slice(0, 0), like)
    key.write_text("text:0123456789012345")
    assert (
        CliRunner().invoke(cli, ["encrypt", str(whole), "--footer-key", f"file:{key}"]).exit_code
        == 0
    )
    data = whole.read_bytes()
    # A stretch of pages is lost, and the end of the footer.
    path.write_bytes(data[: len(data) * 2 // 3] + data[len(data) * 3 // 4 : -36])
    arguments = ["salvage", str(path), "--schema", str(like), "--output", str(bench.home / "out")]
    refused = CliRunner().invoke(cli, arguments)
    assert refused.exit_code == 1
    assert "encrypted" in refused.stderr
    done = CliRunner().invoke(cli, [*arguments, "--footer-key", f"file:{key}", "--json"])
    assert done.exit_code == 3, done.output
    report = json.loads(done.stdout)
    found = pq.read_table(bench.home / "out")
    assert 0 < found.num_rows == report["rows_saved"] < 3000
    assert found.equals(rows.slice(0, found.num_rows))
    assert b"0123456789012345" not in done.stdout_bytes


@point(
    "rewrite: columns that look alike are not guessed; the report says what may be, and how to tell"
)
def ambiguous(bench: Workbench) -> None:
    rows = pa.table({"a": [float(at) for at in range(400)], "b": [-float(at) for at in range(400)]})
    whole, path = bench.home / "whole.parquet", bench.home / "torn.bin"
    pq.write_table(rows, whole, row_group_size=100, use_dictionary=False)
    last = pq.read_metadata(whole).row_group(3).column(1)
    end = last.data_page_offset + last.total_compressed_size
    path.write_bytes(whole.read_bytes()[:end])
    arguments = ["salvage", str(path), "--schema", str(whole), "--output", str(bench.home / "out")]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 3
    assert "nothing was written" in done.stdout
    assert "--row-group-rows decides, and may be 100, 200" in done.stdout
    done = CliRunner().invoke(cli, [*arguments, "--row-group-rows", "100"])
    assert done.exit_code == 0, done.output
    assert pq.read_table(bench.home / "out").equals(rows)


@point("rewrite: a damaged page within structs and lists becomes nulls where they may be null")
def nested(bench: Workbench) -> None:
    rows = pa.table({"who": [{"name": f"n{at}", "age": at} for at in range(600)]})
    path, out = bench.home / "nested.parquet", bench.home / "out.parquet"
    pq.write_table(rows, path, write_page_checksum=True, use_dictionary=False)
    data = bytearray(path.read_bytes())
    age = pq.read_metadata(path).row_group(0).column(1)
    data[age.data_page_offset + age.total_compressed_size - 9] ^= 0xFF
    path.write_bytes(data)
    done = CliRunner().invoke(cli, ["salvage", str(path), "--output", str(out), "--skip-bad-pages"])
    assert done.exit_code == 3, done.output
    found = pq.read_table(out)["who"].to_pylist()
    assert found == [{"name": f"n{at}", "age": None} for at in range(600)]
