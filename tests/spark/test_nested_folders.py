"""Which files are part of a table, by their folders: as Spark has it, on each way to read it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import skipstone
from skipstone import Table
from skipstone.errors import SkipstoneError
from skipstone.spark.session import is_connect
from tests.table.test_nested_folders import REFUSED, TREES, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# Names that Spark takes for partition folders, for other folders, or refuses.
NAMES = [
    "p=1",
    "p=2",
    "P=3",
    "q=1",
    "q=b",
    "r=__HIVE_DEFAULT_PARTITION__",
    "_p=1",
    "%70=4",
    "p=1=2",
]
NAMES += ["x", "X", "y", "_h", ".h", "p=", "=1", "=", "_temporary", "z._COPYING_"]
NOTHING = "UNABLE_TO_INFER_SCHEMA"
WHERE = ("id = 1", "p >= 101", "p < 3")
REFUSALS = ("CONFLICTING_", "EMPTY_PARTITION_", "COLUMN_ALREADY_EXISTS")

folders = st.lists(st.sampled_from(NAMES), max_size=3).map(lambda names: "/".join([*names, ""]))
# Trees of a kind have a table more often than random ones.
regular = st.lists(
    st.tuples(st.sampled_from(["p=1/", "p=2/", "P=3/"]), st.sampled_from(["", "x/", "q=1/"])).map(
        "".join
    ),
    max_size=3,
)
trees = st.one_of(
    st.lists(folders.map(lambda name: name.lstrip("/")), min_size=1, max_size=4, unique=True),
    st.tuples(regular, st.sampled_from([[], [""], ["x/"]])).map(lambda both: [*both[0], *both[1]]),
)


def by_spark(spark: SparkSession, root: Path, *, recursive: bool) -> list[Any] | str:
    """The rows of plain Spark, or the class of its error."""
    reader = spark.read
    if recursive:
        reader = reader.option("recursiveFileLookup", "true")
    try:
        return rows(reader.parquet(str(root)))
    except Exception as error:
        return next(name for name in (NOTHING, *REFUSALS) if name in str(error))


def rows(frame: DataFrame) -> list[Any]:
    """The rows by the names of their columns in lower case: Spark takes the spelling of any."""
    found = ({name.lower(): v for name, v in row.asDict().items()} for row in frame.collect())
    return sorted(found, key=lambda row: int(row["id"]))


def by_us(root: Path, *, recursive: bool) -> list[Any] | None:
    """The rows of ``Table.query``; ``None`` for an error of the folders."""
    try:
        found = Table(str(root), recursive_file_lookup=recursive).query().to_pylist()
    except SkipstoneError:
        return None
    lower = ({name.lower(): value for name, value in row.items()} for row in found)
    return sorted(lower, key=lambda row: int(row["id"]))


@settings(suppress_health_check=list(HealthCheck))
@given(trees, st.booleans())
@example(["", "p=1/"], False)
@example(["x/p=1/", "X/p=2/"], False)
@example(["p=1/x/q=1/", "p=1/x/q=2/"], False)
def test_the_files_are_those_of_spark(
    spark: SparkSession, tree: list[str], recursive: bool
) -> None:
    with tempfile.TemporaryDirectory() as home:
        root = Path(home) / "t"
        root.mkdir()
        write(root, list(dict.fromkeys(tree)))
        theirs = by_spark(spark, root, recursive=recursive)
        ours = by_us(root, recursive=recursive)
        if isinstance(theirs, str):
            assert not ours, (theirs, ours)  # a table without files has no rows for us
            assert ours is None or theirs == NOTHING
        else:
            assert ours == theirs


def routes(
    spark: SparkSession, root: Path, plain: DataFrame, *, recursive: bool
) -> dict[tuple[str, str], DataFrame]:
    """The rows that match each of ``WHERE``, by each way to read the table with a session: all ways
    for the first, one of each planner for the others."""
    path, (first, *_, last) = str(root), WHERE
    table = Table(path, recursive_file_lookup=recursive)
    own: dict[str, Any] = {"recursiveFileLookup": "true"} if recursive else {}
    found = {
        (first, "all"): table.read(spark).where(first),
        (first, "limit"): table.read(spark, first, order_by="id", limit=1_000),
    }
    if recursive:  # other ways to say so
        found[first, "option"] = Table(path).read(spark, first, **own)
        found[first, "function"] = skipstone.read(spark, path, first, recursive_file_lookup=True)
    skipping = None if is_connect(spark) else skipstone.skip(plain)
    for where in WHERE:
        found[where, "read"] = table.read(spark, where)
        if skipping is not None:
            found[where, "skip"] = skipping.where(where)
        # A worker plans it, whatever the session is.
        if where == first or (where == last and skipping is not None):
            pages = spark.read.format("skipstone").options(where=where, **own)
            found[where, "pages"] = pages.load(path)
    return found


# Each tree as Spark reads it; of those without meaning to folders, and of Connect, where the same
# planners work, such as differ most.
ROUTES = [("classic", tree, False) for tree in TREES]
ROUTES += [
    ("classic", tree, True) for tree in ("nested", "partitions", "a folder between", "hidden")
]
ROUTES += [
    ("connect", tree, False)
    for tree in ("nested", "beside partitions", "below partitions", "a folder above", "capitals")
]
ROUTES += [("connect", tree, True) for tree in ("nested", "partitions")]


@pytest.mark.parametrize("session, tree, recursive", ROUTES, indirect=["session"])
def test_each_route_reads_the_same_files(
    session: SparkSession, tmp_path: Path, tree: str, recursive: bool
) -> None:
    root = tmp_path / "t"
    write(root, TREES[tree][0])
    Table(str(root), recursive_file_lookup=True).build(indexes=["id:minmax", "p:minmax"])
    reader = session.read.option("recursiveFileLookup", str(recursive).lower())
    plain = reader.parquet(str(root))
    every = rows(plain.selectExpr("*", *(f"({each}) AS `{each}`" for each in WHERE)))
    for (where, name), frame in routes(session, root, plain, recursive=recursive).items():
        expected = [{k: v for k, v in row.items() if k not in WHERE} for row in every if row[where]]
        assert rows(frame) == expected, (name, where)


def test_the_data_source_in_sql(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    write(root, ["", "p=1/", "x/"])
    spark.sql(
        f"CREATE TEMPORARY VIEW nested_folders USING skipstone "
        f"OPTIONS (path '{root}', recursiveFileLookup 'TRUE')"
    )
    try:
        found = spark.sql("SELECT id, p FROM nested_folders ORDER BY id").collect()
        assert [tuple(row) for row in found] == [(0, 100), (1, 101), (2, 102)]
    finally:
        spark.catalog.dropTempView("nested_folders")


@pytest.mark.parametrize(
    "session, tree",
    [
        *(("classic", tree) for tree in REFUSED),
        *(("connect", tree) for tree in ("beside a folder", "other depths", "no name")),
    ],
    indirect=["session"],
)
def test_what_spark_refuses_is_an_error_of_ours(
    session: SparkSession, tmp_path: Path, tree: str
) -> None:
    root = tmp_path / "t"
    folders, named = REFUSED[tree]
    write(root, folders)
    for read in (
        lambda: Table(str(root)).read(session),
        lambda: Table(str(root)).read(session, "id = 1", limit=1),
        lambda: session.read.format("skipstone").load(str(root)).collect(),
    ):
        with pytest.raises(Exception, match="recursive_file_lookup") as caught:
            read()
        assert all(text in str(caught.value) for text in named), caught.value
    every = Table(str(root), recursive_file_lookup=True).read(session).collect()
    assert len(every) == len(folders)


def test_files_beside_partition_folders_are_not_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark lists them, and reads none of them; nor do they silence the folders."""
    root = tmp_path / "t"
    write(root, ["", "p=1/", "p=2/", "p=3/x/"])
    Table(str(root)).build(indexes=["id:minmax"])
    frame = skipstone.skip(spark.read.parquet(str(root))).where("id = 2")
    assert [row.id for row in frame.collect()] == [2]
    (scan,) = skipstone.last_scan(spark).scans
    assert (scan.files_kept, scan.files_total, scan.files_listed) == (1, 3, 3)


@pytest.mark.parametrize("recursive", [False, True])
def test_a_table_of_csv(spark: SparkSession, tmp_path: Path, recursive: bool) -> None:
    root = tmp_path / "csv"
    for at, folder in enumerate(["", "p=1", "p=2/x"]):
        (root / folder).mkdir(parents=True, exist_ok=True)
        path = root / folder / "f.csv"
        path.write_text(f"id\n{at}\n")
        os.utime(path, (1_600_000_000, 1_600_000_000))
    csv = Table(
        str(root),
        format="csv",
        options={"header": "true", "inferSchema": "true"},
        recursive_file_lookup=recursive,
    )
    report = csv.build(spark, indexes=["id:minmax"])
    assert (report.files_built, report.files_total) == ((3, 3) if recursive else (2, 2))
    found = csv.read(spark, "id >= 1").collect()
    assert sorted(row.id for row in found) == [1, 2]
    assert ("p" in csv.read(spark).columns) == (not recursive)


def test_a_build_by_spark_of_all_files(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    write(root, ["", "x/", "x/y/"])
    assert Table(str(root)).build(spark, indexes=["id:minmax"]).files_built == 1
    every = Table(str(root), recursive_file_lookup=True)
    assert every.refresh(spark).files_built == 2
    assert [row.id for row in every.read(spark, "id = 2").collect()] == [2]
    assert skipstone.last_scan(spark).scans[0].files_kept == 1
