"""Every golden store, asked as a user asks: Xskipper's skips are made, and no match is lost."""

from __future__ import annotations

import csv
import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.errors import UnsupportedError
from skipstone.facts.find import find_store
from skipstone.facts.location import XskipperLocation
from skipstone.planning.explain import Explanation
from skipstone.planning.table_facts import ObjectPlanRequest, plan_objects
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.pruning.partitions import PartitionColumns
from skipstone.storage import Listing
from skipstone.xskipper.format.part import read_part
from skipstone.xskipper.format.rows import decode
from skipstone.xskipper.upgrade import upgrade_store
from tests.oracle import matching_rows
from tests.xskipper.foreign import copied, relocated
from tests.xskipper.format.test_encrypted import decryption
from tools.scanned import scanned

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from skipstone.pruning.plan import Plan
    from skipstone.xskipper.format.schema import StoreSchema

CASES = 29
# The rule that it encodes is unsound: bounds that do not equal v on both ends exclude nothing.
UNSOUND = 2
# What Spark makes of it before any file is listed: a function of a literal is a literal.
FOLDED = re.compile(r"to_timestamp\(('[^']*')\)")


def cases(golden: Path) -> list[tuple[Path, dict[str, Any]]]:
    found = sorted((golden / "xskipper").glob("testID=*/case.json"))
    assert len(found) == CASES
    return [(path.parent, json.loads(path.read_text())) for path in found]


def rows_of(base: Path) -> tuple[StoreSchema, list[str], list[int]]:
    """The schema of the store below ``base``, and the files that it is about."""
    [file] = base.rglob("part-*.parquet")
    part = read_part(file.read_bytes())
    rows = decode(part)
    return part.footer.schema, rows.path.to_pylist(), rows.mtime_ms.to_pylist()


def types_of(schema: StoreSchema) -> dict[str, pa.DataType]:
    """The type of each indexed column; Bloom filters do not say theirs."""
    filtered = {"num": pa.int32(), "address": pa.string()}
    return {
        index.columns[0]: filtered[index.columns[0]]
        if index.kind == "bloomfilter"
        else index.value_type()
        for index in schema.indexes
    }


def plan(
    location: XskipperLocation,
    table: str,
    where: str,
    paths: list[str],
    mtimes: list[int],
    types: dict[str, pa.DataType],
    fingerprint: str | None = None,
) -> Plan:
    """The plan of a query over a listing of files that exist nowhere any more."""
    order = np.argsort(np.array(paths))
    listing = Listing(
        root=table,
        paths=[paths[at] for at in order],
        sizes=np.ones(len(paths), np.int64),
        mtimes=np.array(mtimes, np.int64)[order],
        unit="ms",
    )
    matched = find_store(table, location).snapshot().match(listing, fingerprint)
    partitions = PartitionColumns.of_paths(table, listing.paths)
    fields = {**types, **{name: values.type for name, values in partitions.values.items()}}
    tree = bind(parse_sql(where), pa.schema(list(fields.items())), session_zone="UTC")
    return plan_objects(
        ObjectPlanRequest(
            tree=tree,
            listing=listing,
            matches=[matched],
            partitions=partitions,
            table=table,
            predicate=where,
        )
    )


def where_of(query: str) -> str:
    where = query.partition(" WHERE ")[2] or query.partition(" where ")[2]
    return FOLDED.sub(r"timestamp \1", where)


def csv_table(path: Path, types: dict[str, pa.DataType]) -> pa.Table:
    """A golden CSV file as Spark reads it: an empty field is NULL, whatever its quotes."""
    with path.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    day = re.search(r"/date=([^/]*)/", str(path))
    columns = {}
    for name, type_ in types.items():
        texts = pa.array([row[name].strip() or None for row in rows], pa.string())
        if pa.types.is_timestamp(type_):
            clock = pc.utf8_slice_codeunits(texts, 0, 19)
            local = pc.strptime(clock, format="%Y-%m-%dT%H:%M:%S", unit="us")
            # Every instant in these files is written in +02:00.
            hours = pa.scalar(7_200_000_000, pa.duration("us"))
            columns[name] = pc.subtract(local, hours).cast(type_)
        else:
            columns[name] = texts.cast(type_)
    if day:
        columns["date"] = pc.strptime(
            pa.array([day[1]] * len(rows)), format="%Y-%m-%d", unit="s"
        ).cast(pa.date32())
    return pa.table(columns)


def skipped_of(found: Plan, table: str) -> set[str]:
    skipped = set(found.listing.paths) - set(found.paths)
    return {path.removeprefix(f"{table}/") for path in skipped}


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_what_the_original_skips_is_skipped(golden: Path, version: int) -> None:
    decided = 0
    for folder, case in cases(golden):
        base = folder / "metadata" / f"version={version}"
        schema, paths, mtimes = rows_of(base)
        table, types = case["table_identifier"], types_of(schema)
        location = XskipperLocation(str(base), same_reader=True)
        for expected in case["expectations"]:
            if not expected["minVersion"] <= version <= expected["maxVersion"]:
                continue
            where = where_of(expected["query"])
            found = plan(location, table, where, paths, mtimes, types, fingerprint="csv")
            assert found.facts_fresh == len(paths)
            skipped = skipped_of(found, table)
            wanted = set(expected["skippable_per_original_project"])
            if "date !=" in where:
                # Spark had dropped the only partition before Xskipper was asked.
                wanted = {path.removeprefix(f"{table}/") for path in paths}
            if case["testID"] == UNSOUND:
                wanted = set()
            assert skipped == wanted, (case["testID"], version)
            for path in (folder / "data").rglob("*.csv"):
                name = str(path.relative_to(folder / "data"))
                if matching_rows(csv_table(path, types), where):
                    assert name not in skipped, (case["testID"], version, name)
            decided += 1
    assert decided == CASES


def test_a_store_of_a_csv_table_is_silent_unless_its_reader_is_vouched_for(golden: Path) -> None:
    folder, case = cases(golden)[0]
    base = folder / "metadata" / "version=4"
    schema, paths, mtimes = rows_of(base)
    where = where_of(case["expectations"][0]["query"])
    asked = (case["table_identifier"], where, paths, mtimes, types_of(schema))
    found = plan(XskipperLocation(str(base)), *asked, fingerprint="csv, header")
    assert len(found.paths) == len(paths)
    assert any("reader options" in reason.text for reason in found.reasons)
    assert len(plan(XskipperLocation(str(base)), *asked).paths) < len(paths)


def test_rows_of_a_foreign_store_are_believed_with_a_caveat(golden: Path) -> None:
    folder, case = cases(golden)[0]
    base = folder / "metadata" / "version=4"
    schema, paths, mtimes = rows_of(base)
    where = where_of(case["expectations"][0]["query"])
    asked = (case["table_identifier"], where, paths)
    found = plan(XskipperLocation(str(base)), *asked, mtimes, types_of(schema))
    assert "path and time of a file, and neither size nor bucket" in str(Explanation(found))
    # Rewritten since: read in full.
    later = [time + 1 for time in mtimes]
    changed = plan(XskipperLocation(str(base)), *asked, later, types_of(schema))
    assert len(changed.paths) == len(paths)
    assert changed.facts_stale == len(paths)


# -- real output over Parquet, from the files to the plan ------------------------------------------


@pytest.mark.parametrize("name", ["alltypes_minmax", "bloom_types", "partitioned"])
def test_real_stores_over_parquet(golden: Path, tmp_path: Path, name: str) -> None:
    folder = golden / "xskipper" / "generated_spark400" / name
    case = json.loads((folder / "case.json").read_text())
    data = copied(folder / "data", tmp_path / "data")
    relocated(folder / "md", data, tmp_path / "md")
    table = skipstone.Table(str(data), index_location=str(tmp_path / "md"))
    equal = 0
    for query in case["queries"]:
        assert query["correct"]
        where = where_of(query["query"])
        found = table.plan(where)
        matching = {
            str(path): len(matching_rows(read(path, data), where))
            for path in data.rglob("*.parquet")
        }
        assert sum(matching.values()) == query["rows"]
        assert {path for path, count in matching.items() if count} <= set(found.paths)
        if query["stats"]["isSkippable"]:
            stats = query["stats"]
            assert len(found.paths) == stats["total_Objs"] - stats["skipped_Objs"], where
            equal += 1
    assert equal >= 4


def read(path: Path, root: Path) -> pa.Table:
    """A data file with the partition columns of its folders."""
    table = pq.ParquetFile(path).read()
    for name, values in PartitionColumns.of_paths(str(root), [str(path)]).values.items():
        column = pa.concat_arrays([values] * len(table)) if len(table) else values.slice(0, 0)
        table = table.append_column(name, column)
    return table


# -- through Spark ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 3, 5, 7, 10, 14, 18, 23, 25, 36])
def test_csv_cases_through_spark(
    golden: Path, tmp_path: Path, spark: SparkSession, number: int
) -> None:
    folder = golden / "xskipper" / f"testID={number:02d}"
    case = json.loads((folder / "case.json").read_text())
    data = copied(folder / "data", tmp_path / "csv")
    relocated(folder / "metadata" / "version=4", data, tmp_path / "md")
    [expected] = case["expectations"]
    frame = spark.read.options(**case["reader_options"]).csv(str(data))
    frame.createOrReplaceTempView("sample")
    query = spark.sql(expected["query"])
    location = XskipperLocation(str(tmp_path / "md"), same_reader=True)
    ours = skipstone.skip(query, location)
    assert sorted(map(str, ours.collect())) == sorted(map(str, query.collect()))
    total = len(list(data.rglob("*.csv")))
    assert scanned(ours).files == total - len(expected["skippable_per_original_project"])
    silent = skipstone.skip(query, str(tmp_path / "md"))
    silent.collect()
    assert scanned(silent).files == total


# -- encryption ------------------------------------------------------------------------------------


def encrypted(golden: Path) -> tuple[Path, dict[str, Any]]:
    folder = golden / "xskipper" / "encrypted_spark400"
    return folder / "md_encrypted_footer", json.loads((folder / "case.json").read_text())


def ask_encrypted(golden: Path, keys: dict[str, str] | None, where: str) -> Plan:
    base, case = encrypted(golden)
    [file] = base.rglob("part-*.parquet")
    part = read_part(file.read_bytes(), decryption=decryption(case["keys"]))
    rows, table = decode(part), part.footer.schema.table_identifier
    assert table is not None
    location = XskipperLocation(str(base), decryption=None if keys is None else decryption(keys))
    types = {"id": pa.int64(), "s": pa.string()}
    return plan(location, table, where, rows.path.to_pylist(), rows.mtime_ms.to_pylist(), types)


def test_an_encrypted_store_with_its_keys(golden: Path) -> None:
    keys = encrypted(golden)[1]["keys"]
    # Four files: even ids up to 10, odd ones up to 9, the same from 20 on; s is k<id>.
    found = ask_encrypted(golden, keys, "id = 25 AND s = 'k25'")
    assert len(found.paths) == 1
    used = {step.index for step in found.steps if step.used}
    assert {"minmax", "valuelist"} <= used


def test_a_missing_key_silences_its_index_alone(golden: Path) -> None:
    keys = {"k1": encrypted(golden)[1]["keys"]["k1"]}
    found = ask_encrypted(golden, keys, "id = 25")
    assert len(found.paths) == 2
    found = ask_encrypted(golden, keys, "s = 'nowhere'")
    reasons = [reason for reason in found.reasons if reason.cause == "undecryptable"]
    assert [reason.text for reason in reasons] == ["needs the key labelled 'k2'"]
    # The filter needs no key of its own.
    assert found.paths == []


def test_an_encrypted_store_without_keys_says_nothing(golden: Path) -> None:
    found = ask_encrypted(golden, None, "id = -1")
    assert len(found.paths) == 4
    [reason] = [reason for reason in found.reasons if reason.cause == "undecryptable"]
    assert "labelled 'k1'" in reason.text


def test_an_encrypted_store_is_neither_refreshed_nor_upgraded(golden: Path, tmp_path: Path) -> None:
    base, case = encrypted(golden)
    [directory] = (path for path in base.iterdir() if path.is_dir())
    home = tmp_path / directory.name
    shutil.copytree(directory, home)
    before = sorted((path.name, path.read_bytes()) for path in home.iterdir())
    (tmp_path / "t").mkdir()
    for keys in (None, decryption(case["keys"])):
        location = XskipperLocation(str(home), decryption=keys)
        table = skipstone.Table(str(tmp_path / "t"), index_location=location)
        with pytest.raises(UnsupportedError, match="encrypted") as caught:
            table.refresh()
        assert caught.value.hint
    with pytest.raises(UnsupportedError, match="encrypted") as caught:
        upgrade_store(str(home))
    assert caught.value.hint
    assert sorted((path.name, path.read_bytes()) for path in home.iterdir()) == before


# -- upgrades --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_upgrades_are_those_of_the_original(golden: Path, tmp_path: Path, version: int) -> None:
    folder = golden / "xskipper" / "refresh_and_upgrade_spark400"
    folder = folder / f"upgrade_testID=01_from_v{version}"
    [source] = (folder / "md_before").iterdir()
    home = tmp_path / source.name
    shutil.copytree(source, home)
    report = upgrade_store(str(home))
    assert report.versions == (version,)
    assert report.to_dict()["rows"] == 3
    [written] = home.iterdir()
    [after] = (folder / "md_after").rglob("part-*.parquet")
    got, wanted = read_part(written.read_bytes()), read_part(after.read_bytes())
    assert got.footer.schema == wanted.footer.schema
    assert said(got.table) == said(wanted.table)
    # The author stays, and with it what is to be distrusted.
    assert not got.footer.own
    again = upgrade_store(str(home))
    assert "of version 4 already" in str(again)
    assert [path.name for path in home.iterdir()] == [written.name]


def said(table: pa.Table) -> dict[str, tuple[str, list[str]]]:
    """What the rows say, by file; the golden data moved between the two, and with it its times."""
    return {
        row["obj_name"].rpartition("#")[0]: (
            str(row["virtual_date"]),
            sorted(row["address_valuelist_7"]),
        )
        for row in table.to_pylist()
    }


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_upgraded_store_decides_as_before(golden: Path, tmp_path: Path, version: int) -> None:
    for folder, case in cases(golden):
        [source] = (folder / "metadata" / f"version={version}").iterdir()
        base = tmp_path / f"{case['testID']}"
        upgrade_store(str(source), str(base / source.name))
        schema, paths, mtimes = rows_of(base)
        assert schema.version == 4
        table = case["table_identifier"]
        where = where_of(case["expectations"][0]["query"])
        answers = [
            plan(XskipperLocation(str(at)), table, where, paths, mtimes, types_of(schema)).paths
            for at in (source.parent, base)
        ]
        assert answers[0] == answers[1], case["testID"]


def test_stores_that_the_original_refreshed(golden: Path, tmp_path: Path) -> None:
    folder = golden / "xskipper" / "refresh_and_upgrade_spark400" / "refresh"
    data = copied(folder / "data", tmp_path / "data")
    relocated(folder / "md_2_after_delete_modify_add", data, tmp_path / "md")
    table = skipstone.Table(str(data), index_location=str(tmp_path / "md"))
    found = table.describe()
    assert (found.files_total, found.fresh) == (3, 3)
    assert table.check().ok
