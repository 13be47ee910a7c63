"""`inspect` shows any store of any version, and says why where it shows nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.table import Table
from tests.parquet.encryption.arrow_kms import write_encrypted

if TYPE_CHECKING:
    from tests.cli.conftest import Run

KEY = "org.apache.spark.sql.parquet.row.metadata"


def field(name: str, type: Any, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": type, "nullable": True, "metadata": metadata}


def part(path: Path, version: int | None, *fields: dict[str, Any], **columns: pa.Array) -> Path:
    """A part of an Xskipper store, as its writer leaves it."""
    master = {"tableIdentifier": "/data/t"} | ({} if version is None else {"version": version})
    document = {"type": "struct", "fields": [field("obj_name", "string", **master), *fields]}
    table = pa.table({"obj_name": ["/data/t/a#1", "/data/t/b#2"], **columns})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata({KEY: json.dumps(document)}), path)
    return path


def inspected(run: Run, *arguments: object) -> list[dict[str, Any]]:
    """What was found, from the JSON; the text must say the same paths."""
    done = run("inspect", *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    found: list[dict[str, Any]] = json.loads(done.stdout)["found"]
    text = run("inspect", *arguments).stdout
    assert all(each["path"] in text for each in found)
    return found


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_golden_stores_of_each_version(run: Run, golden: Path, version: int) -> None:
    """Test case 23: minmax on temp of three CSV files."""
    home = golden / "xskipper" / "testID=23" / "metadata" / f"version={version}"
    (found,) = inspected(run, home)
    assert found["format"] == "Xskipper store"
    assert found["version"] == version
    assert found["table_identifier"].endswith("/sample1/initial/csv")
    assert (found["rows"], found["parts"], found["key_labels"]) == (3, 1, [])
    (column,) = found["columns"]
    assert column == {
        "name": "temp_minmax" if version == 1 else "temp_minmax_4",
        "kind": "minmax",
        "columns": ["temp"],
        "type": "double",
        "params": {},
        "key_label": None,
    }
    assert len(found["rows_shown"]) == 3
    assert found["rows_shown"][0][column["name"]].keys() == {"min", "max"}


def test_every_golden_store_at_once(run: Run, golden: Path) -> None:
    found = inspected(run, golden / "xskipper", "--rows", 1)
    assert len(found) > 100
    assert {each["version"] for each in found} == {1, 2, 3, 4, None}
    assert all(each["columns"] for each in found if each["version"] is not None)


def test_golden_partition_columns_and_blooms(run: Run, golden: Path) -> None:
    (found,) = inspected(run, golden / "xskipper/generated_spark400/partitioned", "--rows", 1)
    kinds = {column["name"]: column["kind"] for column in found["columns"]}
    assert kinds["virtual_dt"] == "partition column"
    assert kinds["s_bloomfilter_1"] == "bloomfilter"
    (row,) = found["rows_shown"]
    assert row["virtual_dt"] == "2024-01-01"
    assert row["s_bloomfilter_1"]["bits"] == 320


def test_golden_encrypted_footer_shows_the_label(run: Run, golden: Path) -> None:
    (found,) = inspected(run, golden / "xskipper" / "encrypted_spark400" / "md_encrypted_footer")
    assert (found["version"], found["rows"], found["key_labels"]) == (None, None, ["k1"])
    assert "1 of 1 parts have an encrypted footer" in found["notes"][0]


def test_version_0_is_shown_and_its_values_are_not(run: Run, tmp_path: Path) -> None:
    index = {"name": "minmax", "cols": ["a", "b"], "tableIdentifier": "/data/t"}
    column = field("a:b_minmax", "binary", index=index)
    blobs = {"a:b_minmax": pa.array([b"\xac\xed\x00\x05" + b"x" * 90, None])}
    part(tmp_path / "md" / "part-0.snappy.parquet", None, column, **blobs)
    (found,) = inspected(run, tmp_path / "md")
    assert (found["version"], found["table_identifier"]) == (0, "/data/t")
    assert found["columns"][0]["columns"] == ["a", "b"]
    assert found["rows_shown"][0]["a:b_minmax"] == "94 bytes"
    assert any("version 0" in note for note in found["notes"])


def test_a_newer_version_is_refused_with_a_hint(run: Run, tmp_path: Path) -> None:
    index = {"name": "minmax", "cols": ["a"]}
    values = {"a_minmax_1": pa.array([1, 2])}
    part(tmp_path / "p.parquet", 5, field("a_minmax_1", "long", index=index), **values)
    done = run("inspect", tmp_path)
    assert done.exit_code == 1
    assert "version 5" in done.stderr.splitlines()[0]


def test_parts_of_two_schemas_are_told(run: Run, tmp_path: Path) -> None:
    for name, column in (("0", "a"), ("1", "b")):
        index = field(
            f"{column}_valuelist_1", "long", index={"name": "valuelist", "cols": [column]}
        )
        part(tmp_path / f"{name}.parquet", 4, index, **{index["name"]: pa.array([1, 2])})
    (found,) = inspected(run, tmp_path, "--rows", 4)
    assert (found["parts"], found["rows"], len(found["rows_shown"])) == (2, 4, 4)
    assert found["columns"][0]["type"] == "not understood"
    assert "another schema" in found["notes"][0]


def test_encrypted_columns_under_a_clear_footer(run: Run, tmp_path: Path) -> None:
    keys = {
        "encryption.column.keys": "k1:id_minmax_2",
        "encryption.footer.key": "f",
        "encryption.plaintext.footer": "true",
    }
    index = {"name": "minmax", "cols": ["id"], "key_metadata": "k1"}
    document = {
        "type": "struct",
        "fields": [
            field("obj_name", "string", version=4, tableIdentifier="/t", encryption=keys),
            field("id_minmax_2", "long", index=index),
        ],
    }
    table = pa.table({"obj_name": ["a#1"], "id_minmax_2": [7]})
    table = table.replace_schema_metadata({KEY: json.dumps(document)})
    path = tmp_path / "part.parquet"
    write_encrypted(path, table, {"k1": ["id_minmax_2"]}, plaintext_footer=True)
    (found,) = inspected(run, path)
    assert found["key_labels"] == ["f", "k1"]
    assert found["columns"][0]["key_label"] == "k1"
    assert found["rows_shown"] == []
    assert any("rows cannot be read" in note for note in found["notes"])


# -- our own --------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three files, indexed, in a directory with an odd name."""
    root = tmp_path / "a b%20é=ü"
    root.mkdir()
    for i in range(3):
        path = root / f"{i}.parquet"
        pq.write_table(pa.table({"id": [i, i + 10], "s": [f"s{i}", None]}), path)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    Table(str(root)).build(None, indexes=["id:minmax", "id:bloom", "s:valuelist"])
    return root


def test_a_fact_store(run: Run, table: Path) -> None:
    (found,) = inspected(run, Table(str(table)).location.root, "--rows", 5)
    assert found["format"] == "fact store"
    assert found["rows"] == 3
    kinds = {(column["column"], column["kind"]) for column in found["columns"]}
    assert {("id", "minmax"), ("id", "bloomfilter"), ("s", "valuelist")} <= kinds
    rows = sorted(found["rows_shown"], key=lambda row: str(row["skipstone_path"]))
    assert [row["id_minmax_2"] for row in rows] == [{"min": i, "max": i + 10} for i in range(3)]
    assert rows[0]["id_bloomfilter_2"]["hashes"] == 7
    assert rows[2]["s_valuelist_1"] == ["s2"]


def test_a_fact_part(run: Run, table: Path) -> None:
    facts = Table(str(table)).location.facts
    (found,) = inspected(run, min(Path(facts).iterdir()), "--rows", 0)
    assert found["format"] == "fact part"
    assert found["rows_shown"] == []
    assert "skipstone_path" in found["own_columns"]


def test_a_store_with_dates_that_python_does_not_have(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    days = pa.array([0, 10_000_000], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"d": days}), root / "a.parquet")
    Table(str(root)).build(indexes=["d:minmax"])
    for place in (tmp_path / "_t.skipstone", tmp_path / "x"):
        found = run("inspect", place, "--rows", "1")
        assert found.exit_code == 0, found.output
        assert "a value that Python cannot represent" in found.stdout
        if place.name != "x":
            Table(str(root)).export(str(tmp_path / "x"))


def test_a_damaged_part_says_nothing_and_is_named(run: Run, table: Path) -> None:
    location = Table(str(table)).location
    part = min(Path(location.facts).iterdir())
    with part.open("r+b") as file:
        file.truncate(100)
    (found,) = inspected(run, location.root)
    assert any(part.name in note for note in found["notes"])
    done = run("inspect", part)
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")


# -- neither --------------------------------------------------------------------------------------


def test_a_table_is_no_store(run: Run, table: Path) -> None:
    done = run("inspect", table)
    assert done.exit_code == 1
    assert "describe" in done.stderr.splitlines()[1]


def test_a_data_file_is_shown_as_parquet(run: Run, table: Path) -> None:
    done = run("inspect", table / "0.parquet")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("parquet   ")


def test_options_of_parquet_files_mean_nothing_to_a_store(run: Run, table: Path) -> None:
    done = run("inspect", table, "--pages")
    assert done.exit_code == 2
    assert "--pages is for Parquet files" in done.stderr


@pytest.mark.parametrize("content", [b"", b"x", b"PAR1PAR1", b"PAR1" + b"\xff" * 40 + b"PAR1"])
def test_what_is_nothing_known(run: Run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "thing"
    path.write_bytes(content)
    done = run("inspect", path)
    assert (done.exit_code, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 2
    assert "internal" not in done.stderr


def test_an_empty_directory(run: Run, tmp_path: Path) -> None:
    done = run("inspect", tmp_path)
    assert done.exit_code == 1
    assert "empty" in done.stderr
