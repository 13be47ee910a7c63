"""Summaries that we write: others read them, nothing is lost in them, what cannot be is said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from skipstone import ParquetFile, Table
from skipstone.cli import cli
from skipstone.errors import FormatError, SkipstoneError, StaleError, UnsupportedError
from skipstone.parquet.format.footer import TAIL_LENGTH, Tail
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.summary_file import KEY, Summary
from skipstone.parquet.thrift.compact import (
    BINARY,
    I32,
    LIST,
    STRUCT,
    Field,
    ListOf,
    Struct,
    read_struct,
    write_struct,
)
from skipstone.rewrite.summary_files import write_summary
from skipstone.storage import LocalStorage
from tests.processes import environment
from tests.rewrite.lakes import NAMES, age, lake, put, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def own_footer(path: Path) -> FooterArrays:
    data = path.read_bytes()
    tail = Tail.from_bytes(data[-TAIL_LENGTH:], len(data))
    return FooterArrays.scan(data[tail.offset : -TAIL_LENGTH], tail.offset)


def summary_of(root: Path) -> Summary:
    return Summary.from_bytes((root / "_metadata").read_bytes())


def with_footer(path: Path, change: Any) -> None:
    """The same file under a changed footer."""
    data = path.read_bytes()
    tail = Tail.from_bytes(data[-TAIL_LENGTH:], len(data))
    footer = write_struct(change(read_struct(data[tail.offset : -TAIL_LENGTH])[0]))
    end = Tail(tail.offset + len(footer) + TAIL_LENGTH, len(footer), False).to_bytes()
    path.write_bytes(data[: tail.offset] + footer + end)
    age(path)


def same_parts(root: Path) -> None:
    """Each file's footer is in the summary as it is in the file, to the last field."""
    found = summary_of(root)
    for at, version in enumerate(found.versions.files):
        part, own = found.part(at), own_footer(root / version.path)
        assert (part.num_row_groups, part.num_leaves) == (own.num_row_groups, own.num_leaves)
        assert part.row_starts.tolist() == own.row_starts.tolist()
        for name in ("version", "created_by", "key_value_metadata", "column_orders"):
            assert getattr(part, name) == getattr(own, name)
        assert part.schema_elements == own.schema_elements
        for r in range(own.num_row_groups):
            ours, theirs = part.row_group(r), own.row_group(r)
            assert {each.file_path for each in ours.columns} <= {version.path}
            unnamed = tuple([replace(each, file_path=None) for each in ours.columns])
            assert replace(ours, columns=unnamed) == theirs
            for c in range(own.num_leaves):
                for field in ("max", "min", "max_value", "min_value", "file_path"):
                    assert part.value_bytes(field, r, c) == own.value_bytes(field, r, c)
        for field in ("null_count", "nan_count", "data_page_offset", "column_index_offset"):
            assert part.chunk(field).tolist() == own.chunk(field).tolist()
        assert version.footer_length == own.end


def test_others_read_it(tmp_path: Path) -> None:
    table = lake(tmp_path / "t", write_page_index=True)
    report = table.write_metadata()
    assert (report.outcome, report.files, report.footers_read, report.rows) == (
        "written",
        5,
        5,
        1_500,
    )
    assert report.row_groups == 15
    assert report.bytes == (tmp_path / "t/_metadata").stat().st_size
    theirs = ds.parquet_dataset(tmp_path / "t/_metadata", partitioning="hive")
    assert sorted(theirs.to_table()["id"].to_pylist()) == list(range(1_500))
    assert theirs.to_table(filter=ds.field("id") == 777)["id"].to_pylist() == [777]
    left = [each.subset(filter=ds.field("id") == 777) for each in theirs.get_fragments()]
    assert sorted(len(each.row_groups) for each in left) == [0, 0, 0, 0, 1]
    own = pq.read_metadata(tmp_path / "t/_metadata")
    assert (own.num_rows, own.num_row_groups) == (1_500, 15)
    assert {own.row_group(r).column(0).file_path for r in range(15)} == set(NAMES)
    common = pq.read_metadata(tmp_path / "t/_common_metadata")
    assert (common.num_rows, common.num_row_groups) == (0, 0)
    assert pq.read_schema(tmp_path / "t/_common_metadata").equals(rows(0).schema)
    # Those that know nothing of summaries pass over them.
    pattern = f"{tmp_path}/t/**/*.parquet"
    found = duckdb.sql(f"SELECT count(*), sum(id) FROM read_parquet('{pattern}')")
    assert found is not None
    assert found.fetchall() == [(1_500, sum(range(1_500)))]
    assert polars.scan_parquet(pattern).select("id").collect().height == 1_500
    assert pq.ParquetDataset(tmp_path / "t").read().num_rows == 1_500
    # Read as one file, it is all of them.
    assert ParquetFile(tmp_path / "t/_metadata").count("id >= 1400") == 100


def test_spark_passes_over_it(tmp_path: Path, spark: SparkSession) -> None:
    table = lake(tmp_path / "t")
    before = sorted(map(repr, spark.read.parquet(str(tmp_path / "t")).collect()))
    table.write_metadata()
    after = spark.read.parquet(str(tmp_path / "t"))
    assert sorted(map(repr, after.collect())) == before
    assert after.where("id = 777").count() == 1
    assert table.read(spark, "id BETWEEN 295 AND 305").count() == 11


def test_row_groups_are_grouped_by_file(tmp_path: Path) -> None:
    lake(tmp_path / "t").write_metadata()
    groups = own_footer(tmp_path / "t/_metadata").metadata.row_groups
    assert Counter(group.columns[0].file_path for group in groups) == dict.fromkeys(NAMES, 3)
    same_parts(tmp_path / "t")


def test_fields_that_nobody_knows_survive(tmp_path: Path) -> None:
    table = lake(tmp_path / "t")
    strange = Field(32_767, BINARY, b"\x00new")

    def change(top: Struct) -> Struct:
        groups = top.get(4)
        assert isinstance(groups, ListOf)
        made = []
        for group in groups.values:
            columns = group.get(1)
            chunks = []
            for chunk in columns.values:
                meta = chunk.get(3)
                meta = Struct((*meta.fields, strange))
                chunk = chunk.replace(3, STRUCT, meta)
                chunks.append(Struct((*chunk.fields, Field(99, I32, 7))))
            group = group.replace(1, LIST, ListOf(STRUCT, tuple(chunks)))
            made.append(Struct((*group.fields, strange)))
        top = top.replace(4, LIST, ListOf(STRUCT, tuple(made)))
        return Struct((*top.fields, strange))

    with_footer(tmp_path / "t" / NAMES[1], change)
    table.write_metadata()
    whole = read_struct(own_footer(tmp_path / "t/_metadata").data)[0]
    groups = whole.get(4)
    assert isinstance(groups, ListOf)
    strangers = [group for group in groups.values if group.get(32_767) == b"\x00new"]
    assert len(strangers) == 3
    for group in strangers:
        for chunk in group.get(1).values:
            assert chunk.get(99) == 7
            assert chunk.get(3).get(32_767) == b"\x00new"
            assert chunk.get(1) == NAMES[1].encode()
    found = summary_of(tmp_path / "t")
    heads = [read_struct(each)[0].get(32_767) for each in found.versions.heads]
    assert sorted(heads, key=repr) == sorted([None, b"\x00new"], key=repr)
    same_parts(tmp_path / "t")


def test_every_golden_file_is_held_as_it_is(tmp_path: Path, golden: Path) -> None:
    done = 0
    for path in sorted((golden / "parquet-testing/data").glob("*.parquet")):
        if path.stat().st_size > 3_000_000:
            continue
        root = tmp_path / path.stem
        for name in ("a b.parquet", "k=1/é.parquet"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(path.read_bytes())
            age(root / name)
        storage = LocalStorage()
        try:
            write_summary(storage.list_files(str(root)), storage)
        except UnsupportedError as error:
            assert "encrypted" in error.message  # noqa: PT017
            continue
        except FormatError:
            with pytest.raises(SkipstoneError):
                ParquetFile(path).read_rows()
            continue
        same_parts(root)
        done += 1
    assert done > 40


def test_what_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = lake(root)
    table.write_metadata()
    written = (root / "_metadata").stat().st_mtime_ns
    again = table.write_metadata()
    assert (again.outcome, again.footers_read, again.rows) == ("fresh", 0, 1_500)
    assert (root / "_metadata").stat().st_mtime_ns == written
    put(root / "k=3/new.parquet", rows(1_500))
    put(root / NAMES[0], rows(0, 250))
    (root / NAMES[3]).unlink()
    third = Table(str(root)).write_metadata()
    assert (third.outcome, third.files, third.footers_read, third.rows) == ("written", 5, 2, 1_450)
    same_parts(root)
    theirs = ds.parquet_dataset(root / "_metadata", partitioning="hive").to_table()
    assert sorted(theirs["id"].to_pylist()) == [*range(250), *range(300, 900), *range(1_200, 1_800)]


def test_nothing_is_written_where_it_is_only_asked(tmp_path: Path) -> None:
    report = lake(tmp_path / "t").write_metadata(dry_run=True)
    assert report.dry_run
    assert report.bytes > 1_000
    assert str(report).startswith("would write")
    assert not list((tmp_path / "t").glob("_*"))


def test_keys_that_differ_are_left_out_and_said(tmp_path: Path) -> None:
    root = tmp_path / "t"
    for at, extra in enumerate([{"a": "1", "b": "x"}, {"a": "1", "b": "y"}, {"a": "1", "c": "z"}]):
        data = rows(300 * at).replace_schema_metadata({**extra, KEY: "of another table"})
        put(root / f"{at}.parquet", data)
    report = Table(str(root)).write_metadata()
    # ARROW:schema holds the key-values too, and so differs.
    assert set(report.dropped_keys) == {"b", "c", "ARROW:schema"}
    assert "left out keys that differ between the files: b, ARROW:schema, c" in str(report)
    held = pq.read_metadata(root / "_metadata").metadata
    assert {key for key in held if key != KEY.encode()} == {b"a"}
    assert json.loads(held[KEY.encode()])["version"] == 1
    assert pq.read_metadata(root / "_common_metadata").metadata == {b"a": b"1"}
    same_parts(root)


def test_writers_are_listed_and_orders_kept_where_all_agree(tmp_path: Path) -> None:
    root = tmp_path / "t"
    lake(root, ["a.parquet", "b.parquet"])
    with_footer(root / "b.parquet", lambda top: top.replace(6, BINARY, b"another").without(7))
    report = Table(str(root)).write_metadata()
    assert any("column_orders" in note for note in report.notes)
    footer = own_footer(root / "_metadata")
    assert footer.column_orders is None
    assert footer.created_by is not None
    assert footer.created_by.startswith("[another, parquet-cpp-arrow")
    same_parts(root)
    assert Table(str(root)).query("id = 450")["id"].to_pylist() == [450]


def test_schemas_that_differ_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "t"
    lake(root, ["a.parquet", "b.parquet"])
    for other in (
        rows(0).drop(["n"]),
        rows(0).rename_columns(["id", "f", "s", "l", "m"]),
        rows(0).set_column(0, "id", pa.array(range(300), pa.int32())),
    ):
        put(root / "c.parquet", other)
        with pytest.raises(UnsupportedError, match=r"a\.parquet and .*c\.parquet have different"):
            Table(str(root)).write_metadata()
    assert not list(root.glob("_*"))
    assert Table(str(root)).count("id < 10") == 20


def test_only_the_root_may_have_another_name(tmp_path: Path) -> None:
    root = tmp_path / "t"
    lake(root, ["a.parquet", "b.parquet"])

    def renamed(top: Struct) -> Struct:
        schema = top.get(2)
        assert isinstance(schema, ListOf)
        first = schema.values[0].replace(4, BINARY, b"spark_schema")
        return top.replace(2, LIST, ListOf(STRUCT, (first, *schema.values[1:])))

    with_footer(root / "b.parquet", renamed)
    assert Table(str(root)).write_metadata().files == 2
    same_parts(root)


def test_what_has_no_summary_says_why(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnsupportedError, match="no data files"):
        Table(str(tmp_path / "empty")).write_metadata()
    put(tmp_path / "one.parquet", rows(0))
    with pytest.raises(UnsupportedError, match="is one file"):
        Table(str(tmp_path / "one.parquet")).write_metadata()
    root = tmp_path / "t"
    lake(root, ["a.parquet"])
    (root / "b.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    age(root / "b.parquet")
    with pytest.raises(FormatError, match=r"b\.parquet"):
        Table(str(root)).write_metadata()
    pq.write_table(rows(0), root / "b.parquet")
    data = (root / "b.parquet").read_bytes()
    (root / "b.parquet").write_bytes(data[:-1] + b"E")
    age(root / "b.parquet")
    with pytest.raises(UnsupportedError, match=r"b\.parquet.*encrypted"):
        Table(str(root)).write_metadata()
    lake(tmp_path / "s", ["a.parquet", "b.parquet"]).write_metadata()
    whole = (tmp_path / "s/_metadata").read_bytes()
    (tmp_path / "s/c.parquet").write_bytes(whole)
    age(tmp_path / "s/c.parquet")
    with pytest.raises(UnsupportedError, match="are in other files already"):
        Table(str(tmp_path / "s")).write_metadata()


def test_files_of_no_rows_are_in_it(tmp_path: Path) -> None:
    root = tmp_path / "t"
    lake(root, ["a.parquet", "c.parquet"])
    pq.ParquetWriter(root / "b.parquet", rows(0).schema).close()
    age(root / "b.parquet")
    report = Table(str(root)).write_metadata()
    assert (report.files, report.row_groups) == (3, 6)
    same_parts(root)
    assert Table(str(root)).count("id >= 0") == 600


def test_a_young_file_is_waited_for(tmp_path: Path) -> None:
    root = tmp_path / "t"
    lake(root, ["a.parquet"])
    put(root / "b.parquet", rows(300), old=False)
    storage = LocalStorage()
    young = (root / "b.parquet").stat().st_mtime_ns
    write_summary(storage.list_files(str(root)), storage, settle=0.1)
    assert time.time_ns() - young >= 100_000_000
    ahead = time.time() + 1_000
    os.utime(root / "b.parquet", (ahead, ahead))
    # A time in the future says nothing; the file stays as it is.
    write_summary(storage.list_files(str(root)), storage, settle=0.1)
    same_parts(root)


def test_a_file_that_changes_after_it_was_listed_is_no_part_of_it(tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = lake(root)
    listing = table.listing()
    put(root / NAMES[2], rows(5))
    with pytest.raises(StaleError, match="changed while"):
        write_summary(listing, table.storage)
    (root / NAMES[2]).unlink()
    with pytest.raises(StaleError, match="changed while"):
        write_summary(listing, table.storage)
    assert not list(root.glob("_*"))


@given(data=st.data())
def test_summaries_of_any_tables(data: st.DataObject, tmp_path_factory: Any) -> None:
    from tests.strategies import tables

    table = data.draw(tables(max_rows=8))
    root = tmp_path_factory.mktemp("any")
    names = data.draw(
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True), label="names"
    )
    for name in names:
        put(
            root / name,
            table,
            row_group_size=data.draw(st.integers(1, 5)),
            write_statistics=data.draw(st.booleans()),
            write_page_index=data.draw(st.booleans()),
            store_schema=data.draw(st.booleans()),
        )
    storage = LocalStorage()
    report = write_summary(storage.list_files(str(root)), storage)
    assert report.rows == len(names) * table.num_rows
    same_parts(root)
    merged = pq.read_metadata(root / "_metadata")
    assert merged.num_rows == report.rows


_WRITER = """
import sys, os
from skipstone import Table
print("go", flush=True)
while True:
    for name in os.listdir(sys.argv[1]):
        if name.startswith("_m"):
            os.unlink(os.path.join(sys.argv[1], name))
    Table(sys.argv[1]).write_metadata()
"""


def test_a_writer_that_is_killed_leaves_a_whole_summary_or_none(tmp_path: Path) -> None:
    root = tmp_path / "t"
    lake(root, [f"{at}.parquet" for at in range(30)])
    for at in range(6):
        command = [sys.executable, "-c", _WRITER, str(root)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment())
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"go\n"
        deadline = time.monotonic() + 0.02 + 0.013 * at
        while time.monotonic() < deadline:
            pass
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        if (root / "_metadata").exists():
            assert summary_of(root).footer.num_rows == 9_000
        if (root / "_common_metadata").exists():
            assert pq.read_metadata(root / "_common_metadata").num_rows == 0
        assert len(Table(str(root)).listing()) == 30
        assert Table(str(root)).count("id >= 8000") == 1_000
    assert Table(str(root)).write_metadata().files == 30


def test_the_command_line(tmp_path: Path) -> None:
    lake(tmp_path / "t")
    run = CliRunner().invoke(cli, ["metadata", str(tmp_path / "t")])
    assert run.exit_code == 0, run.output
    assert run.stdout.startswith(f"wrote {tmp_path}/t/_metadata: 15 row groups of 5 files")
    run = CliRunner().invoke(cli, ["metadata", str(tmp_path / "t"), "--json"])
    assert json.loads(run.stdout)["outcome"] == "fresh"
    put(tmp_path / "t/k=3/other.parquet", rows(0).drop(["n"]))
    run = CliRunner().invoke(cli, ["metadata", str(tmp_path / "t")])
    assert run.exit_code == 1
    assert "different schemas" in run.stderr
    assert "hint:" in run.stderr
