"""Every golden store of versions 1 to 4: names, columns, parameters, rows; and upgrades."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from skipstone.xskipper.format.bloom_probe import BlobColumn
from skipstone.xskipper.format.naming import column_name, directory_name
from skipstone.xskipper.format.part import (
    Calendar,
    PartContents,
    PartFooter,
    read_footer,
    read_part,
    to_bytes,
)
from skipstone.xskipper.format.rows import BloomRows, MinMaxRows, StoreRows, ValueListRows, decode
from skipstone.xskipper.upgrade import upgrade
from tests.xskipper.format.golden import golden_parts
from tests.xskipper.format.parsed_names import parse_column_name
from tests.xskipper.format.reference_bloom import each_in

if TYPE_CHECKING:
    from pathlib import Path


def parts(folder: Path) -> list[PartContents]:
    found = [read_part(path.read_bytes()) for path in sorted(folder.rglob("part-*.parquet"))]
    assert found
    return found


def rows_by_file(rows: StoreRows) -> dict[str, int]:
    return {path.rpartition("/")[2]: at for at, path in enumerate(rows.path.to_pylist())}


def said(index: object, row: int) -> Any:
    """What an index says of a row, in plain values."""
    if isinstance(index, MinMaxRows):
        return index.minimum[row].as_py(), index.maximum[row].as_py(), bool(index.empty[row])
    if isinstance(index, ValueListRows):
        values = index.values[row].as_py()
        return values and sorted(values), bool(index.empty[row])
    assert isinstance(index, BloomRows)
    return index.blobs[row].as_py()[-600:]


def cases(golden: Path) -> list[tuple[Path, dict[str, Any]]]:
    found = sorted((golden / "xskipper").glob("testID=*/case.json"))
    assert len(found) == 29
    return [(path.parent, json.loads(path.read_text())) for path in found]


def test_every_fixture_says_what_its_case_says(golden: Path) -> None:
    for folder, case in cases(golden):
        assert case["versions"] == [1, 2, 3, 4]
        for version in case["versions"]:
            [directory] = (folder / "metadata" / f"version={version}").iterdir()
            [part] = parts(directory)
            schema = part.footer.schema
            assert schema.version == version
            assert schema.table_identifier == case["table_identifier"]
            assert directory_name(case["table_identifier"]) == case["expected_md_dir"]
            assert directory.name == case["expected_md_dir"]
            kinds = sorted(f"{index.kind} {index.columns[0]}" for index in schema.indexes)
            assert kinds == sorted(case["index_types"])
            for index in schema.indexes:
                assert index.name == column_name(index.kind, index.columns, version)
                if version > 1:
                    assert parse_column_name(index.name, version) == (index.kind, index.columns)
                if index.kind == "bloomfilter":
                    params = {key.partition(".index.")[2]: text for key, text in index.params}
                    assert params == {"bloom.fpp": "0.01", "bloom.ndv": "100000"}
            assert json.loads(schema.to_json()) == raw_schema(directory)
            rows = decode(part)
            files = {path.name for path in (folder / "data").rglob("*.csv")}
            if case["dataset_in_repo"] == "input_datasets/empty/initial/csv":
                # The second file was not listed when these were made: it had no bytes.
                files.remove("c001.csv")
            assert set(rows_by_file(rows)) == files
            assert len(rows) == part.footer.rows == len(files)
            assert rows.mtime_ms.null_count == 0
            for path in rows.path.to_pylist():
                assert path.startswith(case["table_identifier"] + "/")
            partitioned = any("=" in path.name for path in (folder / "data").iterdir())
            of_folders = [each.column for each in schema.virtual_columns]
            assert of_folders == (["date"] if partitioned and version == 4 else [])


def spark_version(footer: PartFooter) -> str | None:
    return dict(footer.keys).get("org.apache.spark.version")


def raw_schema(directory: Path) -> Any:
    [path] = directory.glob("part-*.parquet")
    keys = pq.read_metadata(path).metadata
    return json.loads(keys[b"org.apache.spark.sql.parquet.row.metadata"])


def test_all_four_versions_of_a_store_say_the_same(golden: Path) -> None:
    for folder, case in cases(golden):
        answers = []
        for version in case["versions"]:
            [part] = parts(folder / "metadata" / f"version={version}")
            rows = decode(part)
            by_file = rows_by_file(rows)
            indexes = sorted(rows.indexes, key=lambda i: (i.index.kind, i.index.columns))
            answers.append([[said(i, by_file[file]) for file in sorted(by_file)] for i in indexes])
        assert answers[1:] == answers[:-1], case["testID"]


def column_of(path: Path, name: str) -> list[str]:
    with path.open(newline="") as lines:
        return [row[name] for row in csv.DictReader(lines) if row.get(name)]


def test_what_is_said_is_true_of_the_data(golden: Path) -> None:
    checked = 0
    for folder, case in cases(golden):
        if "sample1" not in case["dataset_in_repo"] and "vallist1" not in case["dataset_in_repo"]:
            continue
        [part] = parts(folder / "metadata" / "version=4")
        rows = decode(part)
        by_file = rows_by_file(rows)
        for path in (folder / "data").rglob("*.csv"):
            row = by_file[path.name]
            for index in rows.indexes:
                texts = column_of(path, index.index.columns[0])
                if isinstance(index, MinMaxRows):
                    numbers = [float(text) for text in texts]
                    expected = (min(numbers), max(numbers)) if numbers else (None, None)
                    assert said(index, row) == (*expected, not numbers)
                elif isinstance(index, ValueListRows):
                    floats = pa.types.is_floating(index.values.type.value_type)
                    values = {float(text) if floats else text for text in texts}
                    assert said(index, row) == (sorted(values), not values)
                else:
                    assert isinstance(index, BloomRows)
                    column = BlobColumn(index.blobs)
                    items = [text.encode() for text in texts]
                    if index.index.columns == ("num",):
                        items = np.array(list(map(int, texts)), dtype=np.int64)  # type: ignore[assignment]
                    assert column.ok.all()
                    assert each_in(column, items)[:, row].all()
                    assert not column.might_contain_any([b"not there"])[row]
                checked += 1
    assert checked == 84


def test_real_output_of_spark_4_over_all_types(golden: Path) -> None:
    folder = golden / "xskipper" / "generated_spark400" / "alltypes_minmax"
    [part] = parts(folder / "md")
    rows = decode(part)
    by_file = rows_by_file(rows)
    types = {i.index.columns[0]: i.index.value_type() for i in rows.indexes}
    assert types["bigdecimaltype"] == pa.decimal128(30, 5)
    assert types["timestamptype"] == pa.timestamp("us", "UTC")
    assert len(types) == 14
    empty = 0
    for path in (folder / "data").glob("*.parquet"):
        table = pq.read_table(path)
        for index in rows.indexes:
            assert isinstance(index, MinMaxRows)
            column = nested(table, index.index.columns[0]).drop_null()
            row = by_file[path.name]
            if not len(column):
                assert said(index, row) == (None, None, True)
                empty += 1
                continue
            ends = pc.min_max(column.cast(index.minimum.type))
            assert said(index, row) == (ends["min"].as_py(), ends["max"].as_py(), False)
    assert empty == 14


def nested(table: pa.Table, path: str) -> pa.ChunkedArray:
    names = {name.lower(): name for name in table.column_names}
    first, *rest = path.split(".")
    column = table.column(names[first])
    for step in rest:
        column = pc.struct_field(column, step)
    return column


def test_real_filters_of_spark_4_hold_their_values(golden: Path) -> None:
    folder = golden / "xskipper" / "generated_spark400" / "bloom_types"
    [part] = parts(folder / "md")
    rows = decode(part)
    by_file = rows_by_file(rows)
    for index in rows.indexes:
        assert isinstance(index, BloomRows)
        assert ("io.xskipper.index.bloom.ndv", "1000") in index.index.params
        column = BlobColumn(index.blobs)
        assert column.ok.all()
        for path in (folder / "data").glob("*.parquet"):
            values = nested(pq.read_table(path), index.index.columns[0]).drop_null()
            items: Any = [str(v).encode() for v in values.to_pylist()]
            if pa.types.is_integer(values.type):
                items = values.to_numpy().astype(np.int64)
            assert each_in(column, items)[:, by_file[path.name]].all()


def test_real_partitioned_output_of_spark_4(golden: Path) -> None:
    folder = golden / "xskipper" / "generated_spark400" / "partitioned"
    case = json.loads((folder / "case.json").read_text())
    [part] = parts(folder / "md")
    rows = decode(part)
    mtimes = {entry["path"]: entry["mtime_ms"] for entry in case["data"] if entry["size"]}
    assert dict(zip(rows.path.to_pylist(), rows.mtime_ms.to_pylist(), strict=True)) == mtimes
    assert part.table["virtual_dt"].type == pa.date32()
    assert part.table["virtual_p"].type == pa.int32()
    for path, day, number in zip(
        rows.path.to_pylist(),
        part.table["virtual_dt"].to_pylist(),
        part.table["virtual_p"].to_pylist(),
        strict=True,
    ):
        assert f"/dt={day}/p={number}/" in path


def test_refresh_by_the_original_leaves_stores_that_are_read(golden: Path) -> None:
    folder = golden / "xskipper" / "refresh_and_upgrade_spark400" / "refresh"
    names = []
    for state in ("md_0_after_build", "md_1_after_noop_refresh", "md_2_after_delete_modify_add"):
        [part] = parts(folder / state)
        rows = decode(part)
        names.append(set(zip(rows.path.to_pylist(), rows.mtime_ms.to_pylist(), strict=True)))
    assert names[0] == names[1] != names[2]
    listing = json.loads((folder / "data_listing_final.json").read_text())
    assert {(entry["path"], entry["mtime_ms"]) for entry in listing} <= names[2]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_upgrades_equal_those_of_the_original(golden: Path, version: int) -> None:
    base = golden / "xskipper" / "refresh_and_upgrade_spark400"
    folder = base / f"upgrade_testID=01_from_v{version}"
    [before], [after] = parts(folder / "md_before"), parts(folder / "md_after")
    # The original takes partition values from the listing.
    names = before.table.column("obj_name")
    days = pc.extract_regex(names, r"/date=(?P<day>[0-9-]+)/")
    table, schema = upgrade(
        before.table,
        before.footer.schema,
        virtual={"date": pc.struct_field(days, "day").cast(pa.date32())},
    )
    assert schema == after.footer.schema
    # The golden data moved between the two, and with it the modification times.
    wanted = {
        path: (day, sorted(values))
        for path, day, values in zip(
            decode(after).path.to_pylist(),
            after.table.column("virtual_date").to_pylist(),
            after.table.column("address_valuelist_7").to_pylist(),
            strict=True,
        )
    }
    again = read_part(to_bytes(table, schema, like=before.footer))
    rows = decode(again)
    values = rows.indexes[0]
    assert isinstance(values, ValueListRows)
    got = {
        path: (day, sorted(found))
        for path, day, found in zip(
            rows.path.to_pylist(),
            again.table["virtual_date"].to_pylist(),
            values.values.to_pylist(),
            strict=True,
        )
    }
    assert got == wanted
    assert not again.footer.own
    assert spark_version(again.footer) == spark_version(before.footer) == "3.0.1"


def test_every_older_store_upgrades_to_what_version_4_says(golden: Path) -> None:
    for folder, case in cases(golden):
        [newest] = parts(folder / "metadata" / "version=4")
        for version in (1, 2, 3):
            [part] = parts(folder / "metadata" / f"version={version}")
            table, schema = upgrade(part.table, part.footer.schema)
            named = {(i.name, i.kind, i.columns, i.type) for i in newest.footer.schema.indexes}
            assert {(i.name, i.kind, i.columns, i.type) for i in schema.indexes} == named
            for index in schema.indexes:
                twin = next(i for i in newest.footer.schema.indexes if i.name == index.name)
                assert sorted(index.params) == sorted(twin.params)
            rows = decode(read_part(to_bytes(table, schema, like=part.footer)))
            old, new = rows_by_file(rows), rows_by_file(decode(newest))
            for mine in rows.indexes:
                theirs = next(i for i in decode(newest).indexes if i.index.name == mine.index.name)
                for file in old:
                    assert said(mine, old[file]) == said(theirs, new[file]), case["testID"]
                if isinstance(mine, BloomRows):
                    # Class names are those of version 4, so the blobs are equal in every byte.
                    assert isinstance(theirs, BloomRows)
                    assert sorted(filter(None, mine.blobs.to_pylist())) == sorted(
                        filter(None, theirs.blobs.to_pylist())
                    )


def test_version_4_is_not_upgraded(golden: Path) -> None:
    [path, *_] = golden_parts(golden, version=4)
    part = read_part(path.read_bytes())
    table, schema = upgrade(part.table, part.footer.schema)
    assert schema is part.footer.schema
    assert table.equals(part.table)


def test_columns_can_be_chosen(golden: Path) -> None:
    [path] = (golden / "xskipper" / "testID=15" / "metadata" / "version=4").rglob("part-*.parquet")
    part = read_part(path.read_bytes(), columns=["temp_minmax_4"])
    assert part.table.column_names == ["obj_name", "temp_minmax_4"]
    bloom, temp = decode(part).indexes
    assert (bloom.index.name, bloom.reason) == (  # type: ignore[union-attr]
        "address_bloomfilter_7",
        "the column was not read",
    )
    assert isinstance(temp, MinMaxRows)


def test_footers_name_their_author(golden: Path) -> None:
    for path in golden_parts(golden):
        footer = read_footer(path.read_bytes())
        assert not footer.own
        assert spark_version(footer) in {"3.0.1", "4.0.0"}
        legacy = spark_version(footer) == "3.0.1"
        assert footer.calendar == Calendar(legacy_timestamps=legacy)
