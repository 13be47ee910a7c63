"""Files that go, change or come between a listing, a plan and the reading of it; and over S3.

Rows are those of the files as they are read, or there is a clear error; never rows of two versions.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import skipstone
from skipstone.cli import cli
from skipstone.errors import SkipstoneError, StaleError
from tests.s3 import S3, s3, s3_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["s3", "s3_server"]  # fixtures

ROWS = 30_000


def rows(start: int) -> pa.Table:
    """``id`` from ``start``, ``text`` of 40 characters: 1.5 MB in 3 row groups of 10 pages each."""
    ids = range(start, start + ROWS)
    return pa.table({"id": pa.array(ids, pa.int64()), "text": [f"{n:040d}" for n in ids]})


def write(path: Path | io.BytesIO, table: pa.Table) -> None:
    pq.write_table(
        table, path, row_group_size=10_000, max_rows_per_page=1_000, write_batch_size=1_000,
        use_dictionary=False, compression="none", write_page_index=True,
    )  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> skipstone.Table:
    """Three files: ids 0 to 29,999, then 30,000 to 59,999, then 60,000 to 89,999."""
    root = tmp_path / "t"
    root.mkdir()
    for part in range(3):
        write(root / f"{part} é%.parquet", rows(part * ROWS))
        os.utime(root / f"{part} é%.parquet", (1_700_000_000, 1_700_000_000))
    skipstone.Table(str(root)).build(indexes=["id:minmax"])
    return skipstone.Table(str(root))  # it has opened no file


def part(table: skipstone.Table, number: int) -> Path:
    from pathlib import Path

    return Path(table.path) / f"{number} é%.parquet"


def test_a_file_that_is_gone_before_it_is_read(table: skipstone.Table) -> None:
    scan = table.scan("id = 35000", inside=False)
    part(table, 1).unlink()
    with pytest.raises(StaleError, match=r"1 é%\.parquet is gone since it was listed"):
        scan.to_arrow()
    assert table.query("id = 35000").num_rows == 0


def test_a_file_that_is_replaced_before_it_is_opened(table: skipstone.Table) -> None:
    """The plan keeps file 1 for id 35,000; the version that is read has it in another place."""
    scan = table.scan("id = 35000", inside=False)
    assert scan.plan.files_kept == 1
    write(part(table, 1), rows(10_000 + 4))
    assert scan.to_arrow()["id"].to_pylist() == [35000]
    # What the plan has opened is a version; that of another is not taken for it.
    write(part(table, 1), rows(200_000))
    with pytest.raises(StaleError, match="changed while it was read"):
        scan.to_arrow()
    assert table.query("id = 35000").num_rows == 0


def test_a_file_that_is_replaced_after_it_was_opened(table: skipstone.Table) -> None:
    """Its pages are known by the footer of the old version: none of the new one is taken for it."""
    scan = table.scan("id = 35000")
    assert [len(each.rows or ()) for each in scan.plan.details.values()] == [1_000]
    write(part(table, 1), rows(34_500))
    with pytest.raises(StaleError, match="query again"):
        scan.to_arrow()
    assert table.query("id = 35000")["text"].to_pylist() == [f"{35000:040d}"]


def test_equal_size_and_a_new_time(table: skipstone.Table) -> None:
    """Files 0 and 2 change places: their sizes are equal, and the facts are of other contents."""
    size = part(table, 0).stat().st_size
    write(part(table, 0), rows(2 * ROWS))
    assert part(table, 0).stat().st_size == size
    found = table.query("id = 60001 OR id = 1")
    assert found["id"].to_pylist() == [60001, 60001]
    assert table.plan("id = 1").facts_stale == 1


def test_a_new_file_is_read_without_a_fact(table: skipstone.Table) -> None:
    write(part(table, 1).with_name("new.parquet"), rows(500_000))
    assert table.query("id = 500001")["text"].to_pylist() == [f"{500001:040d}"]
    assert table.count("id >= 500000") == ROWS


def test_a_refresh_goes_on_where_a_column_was_replaced(tmp_path: Path) -> None:
    """The other indexes get the new files, and the report says what no column can have."""
    path = tmp_path / "t" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "a": [1, 2], "b": ["x", "y"]}), path)
    table = skipstone.Table(str(path.parent))
    table.build(indexes=["id:minmax", "a:bsi", "b:ngram", "lower(b):valuelist"])
    pq.write_table(pa.table({"id": [7, 8], "a": [{"f": 1}, None]}), path)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    report = table.refresh()
    assert report.files_built == 1
    left = {each.subject: each.text for each in report.left_out}
    assert "type struct<f: int64>" in left["bsi(a)"]
    assert left["ngram(b, n=3)"].startswith("there is no column 'b'")
    assert len(left) == 3
    assert table.plan("id = 5").files_kept == 0
    assert table.count("id = 8") == 1
    with pytest.raises(SkipstoneError, match="bsi cannot index column 'a'"):
        table.build(indexes=["a:bsi"])


def test_a_file_that_is_no_parquet_is_named(table: skipstone.Table) -> None:
    part(table, 1).write_bytes(b"PAR1 and nothing more")
    with pytest.raises(SkipstoneError, match=r"1 é%\.parquet"):
        table.query("id = 35000")
    # Nobody needs the file for this one: its facts are stale, but folders and others decide.
    with pytest.raises(SkipstoneError):
        table.count()


def test_over_s3_few_requests_one_after_another(s3: S3) -> None:
    """Ten files of three row groups; the needle is in one of them, the facts are in memory."""
    for number in range(10):
        out = io.BytesIO()
        write(out, rows(number * ROWS))
        s3.fill(f"t/{number} é.parquet", data=out.getvalue())
    table = skipstone.Table(f"{s3.base}/t", storage_options=s3.options)
    table.build(indexes=["id:minmax"])
    table.query("id = 7")  # facts and the schema are read once
    before = len(s3.requests())
    found = table.query("id = 123456", columns=["text"])
    assert found["text"].to_pylist() == [f"{123456:040d}"]
    lines = [line for line in s3.requests()[before:] if "parquet" in line]
    # The tail of one file, its page index, a page of ids, a page of texts.
    assert len(lines) <= 6
    assert {line for line in lines if "4%20" not in line and "4 " not in line} == set()


def test_a_store_that_has_lost_all_its_facts_gives_no_bounds(tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    for life in (3, 5):
        for number in range(2):
            values = [life * 100 + i for i in range(life * 10)]
            content = pa.table({"c": values, "s": [str(each) for each in values]})
            pq.write_table(content, root / f"{number}.parquet")
        table = skipstone.Table(str(root))
        if life == 3:
            table.build(indexes=["c:minmax", "s:minmax"])
    table.compact()
    table = skipstone.Table(str(root))
    assert (table.min("c"), table.max("c"), table.max("s")) == (500, 549, "549")
    for column in ("c", "s"):
        found = table.query(order_by=f"{column} desc", limit=3)
        assert found.column("c").to_pylist() == [549, 549, 548]


def changing(table: skipstone.Table, monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Replaces a file of the table right after each of the next listings; the result counts."""
    listing, done = table.listing, [0]

    def listed() -> object:
        found = listing()
        if done[0] < times:
            done[0] += 1
            made = part(table, 1).with_suffix(".new")
            write(made, rows(ROWS + done[0]))
            made.rename(part(table, 1))
        return found

    monkeypatch.setattr(table, "listing", listed)
    return done


ASKED: dict[str, Callable[[Any], Any]] = {
    "query": lambda table: table.query("id >= 35000 and id < 35010").num_rows,
    "count": lambda table: table.count("id >= 35000 and id < 35010"),
    "min": lambda table: table.min("id", "id >= 35000") - 34_990,
    "max": lambda table: table.max("id", "id < 35010") - 34_999,
    "order": lambda table: table.query("id < 35010", order_by="id desc", limit=10).num_rows,
    "retried": lambda table: table.retried(
        lambda scan: scan.to_arrow().num_rows, "id >= 35000 and id < 35010"
    ),
}


@pytest.mark.parametrize("verb", ASKED)
def test_a_query_is_planned_again_where_a_file_changes(
    table: skipstone.Table, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    done = changing(table, monkeypatch, 2)
    assert ASKED[verb](table) == 10
    assert done == [2]


@pytest.mark.parametrize("verb", ASKED)
def test_files_that_keep_changing_are_a_stale_error(
    table: skipstone.Table, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    done = changing(table, monkeypatch, 1_000)
    with pytest.raises(StaleError):
        ASKED[verb](table)
    assert done[0] < 50


@pytest.mark.parametrize("verb", ASKED)
def test_files_that_go_while_they_are_asked(
    table: skipstone.Table, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    listing = table.listing

    def listed() -> object:
        found = listing()
        part(table, 0).unlink(missing_ok=True)
        return found

    monkeypatch.setattr(table, "listing", listed)
    assert ASKED[verb](table) == 10


def test_a_file_that_was_cut_to_0_bytes_is_reported(tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"c": [number]}), root / f"{number}.parquet")
    assert "0 bytes" not in str(skipstone.Table(str(root)).explain("c >= 0"))
    (root / "1.parquet").write_bytes(b"")
    (root / "_SUCCESS").write_bytes(b"")
    table = skipstone.Table(str(root))
    assert table.count("c >= 0") == 2
    assert "1 file of 0 bytes left out" in str(table.explain("c >= 0"))


def test_first_rows_are_planned_again_where_a_file_changes(
    table: skipstone.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.drop()
    done = changing(table, monkeypatch, 2)
    found = table.top("id desc", 7, where="text > '1'")
    assert not found.rows
    assert done == [2]


@pytest.mark.parametrize("option", [[], ["--json"], ["--csv"]])
def test_the_command_line_plans_again_before_it_prints(
    table: skipstone.Table, monkeypatch: pytest.MonkeyPatch, option: list[str]
) -> None:
    listing, done = type(table).listing, [0]

    def listed(self: skipstone.Table) -> object:
        found = listing(self)
        if done[0] < 2:
            done[0] += 1
            made = part(table, 1).with_suffix(".new")
            write(made, rows(ROWS + done[0]))
            made.rename(part(table, 1))
        return found

    monkeypatch.setattr(type(table), "listing", listed)
    found = CliRunner().invoke(cli, ["query", table.path, "id = 35000", *option])
    assert found.exit_code == 0, found.output
    assert f"{35000:040d}" in found.stdout
    assert done == [2]


def test_a_single_file_that_goes_or_changes_is_stale(table: skipstone.Table) -> None:
    gone = skipstone.ParquetFile(part(table, 0))
    part(table, 0).unlink()
    with pytest.raises(StaleError, match="gone since it was opened"):
        gone.query("id = 7")
    with pytest.raises(StaleError, match="gone since it was opened"):
        gone.read_row_group(1)
    changed = skipstone.ParquetFile(part(table, 1))
    with part(table, 1).open("r+b") as file:  # the same inode
        file.write(b"x" * 100_000)
    with pytest.raises(StaleError, match="changed since it was opened"):
        changed.query("id = 35000")


def test_a_file_that_is_written_over_while_it_is_read(
    table: skipstone.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the bytes would be those of other pages: without checksums, wrong values."""
    file = skipstone.ParquetFile(part(table, 1))
    pread, done = os.pread, [0]

    def read(descriptor: int, length: int, offset: int) -> bytes:
        data = pread(descriptor, length, offset)
        if not done[0]:
            done[0] = 1
            content = part(table, 1).read_bytes()
            with part(table, 1).open("r+b") as opened:
                opened.write(content.replace(b"35000", b"35001"))
        return data

    monkeypatch.setattr(os, "pread", read)
    with pytest.raises(StaleError, match="changed since it was opened"):
        file.read_row_group(1)
    assert done == [1]


def test_rows_of_a_scan_whose_file_is_half_written_are_stale(table: skipstone.Table) -> None:
    scan = table.scan("text >= '0'", inside=False)
    whole = part(table, 1).read_bytes()
    part(table, 1).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StaleError, match="changed while it was read"):
        scan.to_arrow()


def test_a_plan_for_another_engine_whose_file_is_gone_is_stale(table: skipstone.Table) -> None:
    scan = table.scan("id = 35000")
    part(table, 1).unlink()
    with pytest.raises(StaleError, match=r"1 é%\.parquet"):
        scan.to_pyarrow()
