"""Tables by Paimon's own writer: rows of every snapshot, deletion vectors, merge trees, indexes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import skipstone
from skipstone.errors import UnsupportedError
from skipstone.table_formats import SnapshotListing
from tests.interop.java_systems import JavaProgram, jar, spark_jar
from tests.table_formats.paimon_java import PREDICATES, TABLES, commands, rows

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop

SEED, STEPS = 7, 14


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> JavaProgram:
    jars = [
        jar("paimon-bundle"),
        *map(spark_jar, ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api")),
    ]
    return JavaProgram("PaimonTables", jars, tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("paimon")


@pytest.fixture(scope="module")
def written(program: JavaProgram, warehouse: Path) -> dict[str, dict[str, Any]]:
    """The rows of the tables by snapshot, as Paimon reads them."""
    return done(
        program,
        warehouse,
        [each for at, name in enumerate(TABLES) for each in commands(name, SEED + at, STEPS)],
    )


def done(program: JavaProgram, warehouse: Path, given: list[dict[str, Any]]) -> dict[str, Any]:
    lines = program.run(map(json.dumps, given), warehouse).splitlines()
    answers = zip(given, map(json.loads, lines), strict=True)
    return {each["table"]: answer for each, answer in answers if each["op"] == "rows"}


@pytest.mark.parametrize("name", TABLES)
def test_every_snapshot_has_the_rows_of_paimon(
    written: dict[str, dict[str, Any]], warehouse: Path, name: str
) -> None:
    """With and without an index; what has to be merged is refused in words."""
    path, refused = str(warehouse / "db.db" / name), 0
    for indexed in (False, True):
        if indexed:
            skipstone.Table(path).build(indexes=["id:bloom", "x:minmax", "s.t:bloom"])
        for snapshot, wanted in written[name].items():
            at = None if snapshot == "newest" else snapshot
            try:
                assert rows(path, version=at) == sorted(wanted), snapshot
            except UnsupportedError:
                refused += 1
                with pytest.raises(UnsupportedError, match="merged by the primary key"):
                    skipstone.Table(path, version=at).count()
    assert (refused > 0) is (name == "merged")
    assert refused < 2 * len(written[name])


@pytest.mark.parametrize("name", TABLES)
def test_indexes_of_paimon_lose_no_row(
    written: dict[str, dict[str, Any]], warehouse: Path, name: str
) -> None:
    """Those in manifests and those next to files, with deletion vectors over them."""
    path = str(warehouse / "db.db" / name)
    table, without = skipstone.Table(path), skipstone.Table(path, sidecars=False)
    for where in PREDICATES:
        found = table.query(where, order_by="id")
        assert str(found.to_pylist()) == str(without.query(where, order_by="id").to_pylist()), where
        assert table.count(where) == found.num_rows
    files = len(table.listing())
    indexed = table.plan("id = 3 AND small = 30").sidecars
    assert indexed == (0 if name in ("merged", "keyed") else files)
    listing = table.listing()
    assert isinstance(listing, SnapshotListing)
    assert len(listing.snapshot.containers) == (files if name == "vectors" else 0)
    assert len(listing.sidecars) == (files if name in ("plain", "parted") else 0)


def test_an_index_in_the_manifest_finds_rows(program: JavaProgram, warehouse: Path) -> None:
    """Paimon's Bloom filter drops the files, its bitmap finds the rows; explain names both."""
    table: dict[str, Any] = {"table": "found"}
    options = {
        "file.format": "parquet",
        "file-index.bloom-filter.columns": "k",
        "file-index.bitmap.columns": "small",
        "file-index.in-manifest-threshold": "1 mb",
    }
    appends = [{"op": "append", **table, "from": at * 50, "to": at * 50 + 50} for at in range(4)]
    done(program, warehouse, [{"op": "create", **table, "options": options}, *appends])
    found = skipstone.Table(warehouse / "db.db" / "found")
    plan = found.plan("small = 730")
    assert (plan.files_kept, plan.files_total) == (1, 4)
    assert [(each.index, each.kept) for each in plan.steps if each.index == "bitmap"] == [
        ("bitmap", 1)
    ]
    assert found.query("small = 730")["id"].to_pylist() == [73]
    assert found.plan("k = 'k 7'", inside=False).files_kept == 0
    assert "Apache Paimon" in (text := str(found.explain("small = 730")))
    assert "bitmap" in text


def test_an_index_of_a_renamed_column_is_not_that_of_another(
    program: JavaProgram, warehouse: Path
) -> None:
    """The bitmap of a file is of ``small``, which is ``old`` now, and ``small`` another column."""
    table: dict[str, Any] = {"table": "renamed"}
    options = {"file.format": "parquet", "file-index.bitmap.columns": "small"}
    given = [
        {"op": "create", **table, "options": options},
        {"op": "append", **table, "from": 0, "to": 50},
        {"op": "rename", **table, "column": "small", "to": "old"},
        {"op": "add", **table, "column": "small"},
        {"op": "append", **table, "from": 50, "to": 100},
    ]
    done(program, warehouse, given)
    found = skipstone.Table(warehouse / "db.db" / "renamed")
    assert found.query("old = 30")["id"].to_pylist() == [3]
    assert found.query("old = 730")["id"].to_pylist() == [73]
    assert found.count("small = 30") == 0
    assert found.query("small = -73")["id"].to_pylist() == [73]
    assert found.count("small IS NULL") == 50
    first = skipstone.Table(warehouse / "db.db" / "renamed", version=1)
    assert first.query("small = 30")["id"].to_pylist() == [3]
    assert first.plan("small = 30").sidecars == 1


def test_snapshots_that_expired(program: JavaProgram, warehouse: Path) -> None:
    """The newest is read, one that expired is named, and what was rolled back is gone."""
    table: dict[str, Any] = {"table": "expired"}
    options = {"file.format": "parquet", "compaction.min.file-num": "2"}
    start = [
        {"op": "create", **table, "options": options},
        *({"op": "append", **table, "from": at * 10, "to": at * 10 + 10} for at in range(3)),
    ]
    done(program, warehouse, start)
    path = str(warehouse / "db.db" / "expired")
    opened = skipstone.Table(path)
    opened.build(indexes=["id:bloom"])
    scan = opened.scan("id >= 0", inside=False)
    ended = [
        {"op": "compact", **table},
        {"op": "expire", **table, "keep": 1},
        {"op": "rows", **table},
    ]
    answer = done(program, warehouse, ended)["expired"]
    assert list(answer) == ["4", "newest"]
    assert rows(path) == sorted(answer["newest"])
    assert opened.count("id = 13") == 1
    with pytest.raises((skipstone.errors.SkipstoneError, FileNotFoundError)):
        scan.to_arrow()
    with pytest.raises(skipstone.errors.SkipstoneError, match="has no snapshot 2"):
        skipstone.Table(path, version=2).count()
    rolled = [
        {"op": "append", **table, "from": 100, "to": 110},
        {"op": "rollback", **table, "to": 4},
        {"op": "append", **table, "from": 200, "to": 203},
        {"op": "rows", **table},
    ]
    assert opened.count() == 30
    answer = done(program, warehouse, rolled)["expired"]
    assert opened.count() == 33
    assert rows(path) == sorted(answer["newest"])
