"""Which files are part of a table, by their folders: the same for each verb, and as for Spark."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Encryption, Table
from skipstone.errors import SkipstoneError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# The folders with files, and which of them are part of the table.
TREES: dict[str, tuple[list[str], list[str]]] = {
    "flat": ([""], [""]),
    "nested": (["", "x/", "x/y/"], [""]),
    "partitions": (["p=1/", "p=2/"], ["p=1/", "p=2/"]),
    "beside partitions": (["", "p=1/"], ["p=1/"]),
    "below partitions": (["p=1/", "p=1/b-0/", "p=2/x/y/"], ["p=1/", "p=1/b-0/", "p=2/x/y/"]),
    "a folder above": (["x/p=1/", "x/p=2/"], ["x/p=1/", "x/p=2/"]),
    "a folder between": (["p=1/x/q=2/"], ["p=1/x/q=2/"]),
    "capitals": (["p=1/", "P=2/"], ["p=1/", "P=2/"]),
    "hidden": (["", "_x/", ".x/", "_x/p=1/"], [""]),
}
# Folders that Spark refuses, and what the error names.
REFUSED = {
    "no file of its own": (["x/", "y/"], ["2 files"]),
    "beside a folder": (["p=1/", "x/"], ["t/p=1/", "t/x/", "begin"]),
    "in two folders": (["x/p=1/", "y/p=1/"], ["t/x/p=1/", "t/y/p=1/", "begin"]),
    "below a folder": (["", "x/p=1/"], ["t/x/p=1/", "begin"]),
    "other depths": (["p=1/", "p=1/q=2/"], ["t/p=1/ ", "t/p=1/q=2/", "p, q"]),
    "other columns": (["p=1/", "q=1/"], ["t/p=1/", "t/q=1/", "p and q"]),
    "another order": (["p=1/q=1/", "q=1/p=1/"], ["t/p=1/q=1/", "t/q=1/p=1/", "q, p"]),
    "one column twice": (["p=1/P=2/"], ["t/p=1/P=2/", "same column"]),
    "no value": (["p=/"], ["t/p=/", "no value"]),
    "no name": (["", "=1/"], ["t/=1/", "no name"]),
}


def write(root: Path, folders: Sequence[str]) -> None:
    """One file per folder; ``id`` is the place of the folder, and ``p`` is never its value."""
    for at, folder in enumerate(folders):
        (root / folder).mkdir(parents=True, exist_ok=True)
        path = root / folder / "f.parquet"
        pq.write_table(pa.table({"id": [at], "p": [100 + at]}), path)
        os.utime(path, (1_600_000_000, 1_600_000_000))


def ids(found: pa.Table) -> list[int]:
    return sorted(found.column("id").to_pylist())


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("tree", TREES)
def test_each_verb_sees_the_files_of_the_table(tmp_path: Path, tree: str, indexed: bool) -> None:
    folders, part = TREES[tree]
    write(tmp_path / "t", folders)
    expected = [folders.index(each) for each in part]
    if indexed:  # facts about files that are not part of the table change nothing
        Table(str(tmp_path / "t"), recursive_file_lookup=True).build(indexes=["id:minmax"])
    table = Table(str(tmp_path / "t"))
    where = "id >= 0"
    assert ids(table.query()) == ids(table.query(where)) == expected
    assert table.count(where) == len(expected)
    assert (table.min("id"), table.max("id")) == (min(expected), max(expected))
    assert ids(table.query(order_by="id desc", limit=1)) == [max(expected)]
    scan = table.scan(where)
    assert sorted(each["id"] for batch in scan.to_batches() for each in batch.to_pylist()) == (
        expected
    )
    assert sorted(row[0] for row in scan.to_duckdb().select("id").fetchall()) == expected
    assert ids(scan.to_pyarrow().to_table()) == expected
    assert table.plan(where).files_total == len(expected)
    assert table.check().files_total == len(expected)
    assert table.refresh().files_total == len(expected) if indexed else True
    left = len([each for each in folders if each[:1] not in (".", "_")]) - len(expected)
    for text in (str(table.explain(where)), str(table.describe())):
        assert ("recursive_file_lookup" in text) == bool(left), text
        assert not left or f"{left} of {left + len(expected)} files below it" in text


@pytest.mark.parametrize("tree", REFUSED)
def test_folders_that_contradict_each_other_are_an_error(tmp_path: Path, tree: str) -> None:
    folders, named = REFUSED[tree]
    write(tmp_path / "t", folders)
    table = Table(str(tmp_path / "t"))
    for verb in (table.query, table.count, table.explain, table.describe, table.check):
        with pytest.raises(SkipstoneError) as caught:
            verb()
        assert all(text in str(caught.value) for text in named), caught.value
        assert "recursive_file_lookup=True" in str(caught.value)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("tree", [*TREES, *REFUSED])
def test_recursive_file_lookup_reads_all_files_and_no_folder(
    tmp_path: Path, tree: str, indexed: bool
) -> None:
    """``p`` is the column of the files, also where folders are called ``p=1``."""
    folders = (TREES.get(tree) or REFUSED[tree])[0]
    write(tmp_path / "t", folders)
    table = Table(str(tmp_path / "t"), recursive_file_lookup=True)
    if indexed:
        assert table.build(indexes=["p:minmax", "id:bitmap"]).ok
    expected = [at for at, each in enumerate(folders) if each[:1] not in (".", "_")]
    assert table.query().column_names == ["id", "p"]
    for at in expected:
        assert table.query(f"p = {100 + at}").to_pylist() == [{"id": at, "p": 100 + at}]
    assert table.count("p = 1") == 0
    assert table.max("p") == 100 + max(expected)
    assert ids(table.query(order_by="p", limit=1)) == [0]
    assert table.check(deep=indexed).files_total == len(expected)
    again = Table(str(tmp_path / "t"), options={"recursiveFileLookup": "true"})
    assert ids(again.query()) == expected


def test_verbs_that_rewrite_leave_other_files_alone(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write(root, ["", "x/"])
    before = (root / "x" / "f.parquet").read_bytes()
    table = Table(str(root))
    table.build(indexes=["id:minmax"])
    assert table.retrofit().to_dict()["files_total"] == 1
    table.write_metadata()
    assert [each["id"] for each in table.query().to_pylist()] == [0]
    assert table.compact().facts_after == 1
    table.vacuum(timedelta(0))
    assert table.advise().files_total == 1
    assert table.export(str(tmp_path / "out")).files_total == 1
    assert table.drop().files == 1
    assert (root / "x" / "f.parquet").read_bytes() == before
    assert Table(str(root), recursive_file_lookup=True).retrofit().to_dict()["files_total"] == 2


def test_facts_serve_either_lookup(tmp_path: Path) -> None:
    """An index is about files: another set of files uses those of its own."""
    root = tmp_path / "t"
    write(root, ["", "x/", "y/"])
    Table(str(root)).build(indexes=["id:minmax"])
    every = Table(str(root), recursive_file_lookup=True)
    assert (every.describe().fresh, every.describe().files_total) == (1, 3)
    assert every.refresh().files_built == 2
    assert every.plan("id = 2").keep.sum() == 1
    assert Table(str(root)).describe().fresh == 1


def test_files_that_arrive_in_a_folder_change_what_the_table_is(tmp_path: Path) -> None:
    """One opened table, whose tree changes below it."""
    root = tmp_path / "t"
    write(root, [""])
    table = Table(str(root))
    assert ids(table.query()) == [0]
    (root / "x").mkdir()
    pq.write_table(pa.table({"id": [7], "p": [1]}), root / "x" / "f.parquet")
    assert ids(table.query()) == [0]
    assert "1 of 2 files" in str(table.explain())
    (root / "x").rename(root / "p=1")
    assert table.query().to_pylist() == [{"id": 7, "p": 1}]


def test_a_column_that_is_null_in_all_folders(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write(root, ["d=__HIVE_DEFAULT_PARTITION__/"])
    assert Table(str(root)).query(columns=["id", "d"]).to_pylist() == [{"id": 0, "d": None}]
    assert Table(str(root)).count("d IS NULL") == 1


def test_encryption_says_which_files_it_left_alone(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write(root, ["", "p=1/"])
    seals = Encryption(footer_key=b"0123456789012345")
    report = Table(str(root)).encrypt(encryption=seals)
    assert report.ok
    assert len(report.files) == 1
    assert "1 of 2 files below it are not in its folders" in str(report)
    assert pq.read_table(root / "f.parquet").num_rows == 1
    assert "files below" not in str(
        Table(str(root), recursive_file_lookup=True).encrypt(encryption=seals)
    )


def test_partition_columns_of_folders_above_the_table_are_refused(tmp_path: Path) -> None:
    """With basePath Spark takes p from the folder, and a plan would take it from the files."""
    write(tmp_path / "t", ["p=1/"])
    table = Table(str(tmp_path / "t" / "p=1"))
    with pytest.raises(SkipstoneError, match=f"basePath is {tmp_path}/t, and the table is"):
        table.read(None, "p = 1", basePath=str(tmp_path / "t"))  # type: ignore[arg-type]
