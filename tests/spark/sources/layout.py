"""Tables of CSV, JSON and ORC, indexed as Spark reads them, and compared with plain Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipstone.build.column_indexes import BuildSettings
from skipstone.build.job import BuildJob, Outcome
from skipstone.facts import Location
from skipstone.indexes.registry import parse_index
from skipstone.spark.facts import finder
from skipstone.spark.last_query import last_scan
from skipstone.spark.skip import skip
from skipstone.spark.text_sources import FileSource, build_source, open_source
from skipstone.storage import open_storage
from tests.spark.layout import planned, rows_of_each, within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from skipstone.spark.scans import Scan


CSV = FileSource(format="csv", options={"header": "true"}, schema="id int, name string, x double")


@dataclass
class Indexed:
    """A table of one of Spark's formats with an index, and what became of its files."""

    spark: SparkSession
    root: Path
    source: FileSource
    indexes: Sequence[str]
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def build(self, **settings: Any) -> Indexed:
        """Index all files, or index them again."""
        root = str(self.root)
        table = open_source(self.spark, root, self.source)
        job = BuildJob(
            table=root,
            location=Location.of_table(root).root,
            storage_options={},
            definitions=tuple(parse_index(text) for text in self.indexes),
            schema=table.schema,
            settings=BuildSettings(**{"settle": 0.0, **settings}),
            fingerprint=table.fingerprint,
        )
        listing = open_storage(root).list_files(root)
        for outcome in build_source(self.spark, job, table, listing):
            self.outcomes[Path(outcome.path).name] = outcome
        assert {Path(path).name for path in listing.paths} == set(self.outcomes)
        return self

    def plain(self, source: FileSource | None = None) -> DataFrame:
        return (source or self.source).read(self.spark, str(self.root))

    def read(self, where: str, source: FileSource | None = None) -> set[str]:
        """The files that ``where`` reads; its rows are those of plain Spark."""
        frame = self.plain(source).where(where)
        expected = rows(frame)
        assert rows(skip(frame, finder())) == expected, where
        last = last_scan(self.spark)
        if not last.scans:
            return set()  # Spark has found that no row can match
        scan = only_scan(self.spark)
        plan = scan.report
        assert plan is not None, scan
        return {Path(path).name for path in plan.paths}

    def plan_each(self, conditions: Sequence[str]) -> list[set[str]]:
        """The files that Spark plans to read for each: all in which plain Spark finds a row. Of
        every fifth condition they are read."""
        plain, found = self.plain(), list[set[str]]()
        skipping = skip(plain, finder())
        every = rows_of_each(plain, conditions, ["_metadata.file_name"])
        for at, (where, matching) in enumerate(zip(conditions, every, strict=True)):
            found.append(planned(skipping.where(where)))
            assert within(matching, found[-1]), where
            assert at % 5 or self.read(where) == found[-1], where
        return found

    def errors(self) -> dict[str, str]:
        return {name: o.error for name, o in self.outcomes.items() if o.error is not None}


def only_scan(spark: SparkSession) -> Scan:
    last = last_scan(spark)
    assert last is not None
    (scan,) = last.scans
    return scan


def rows(frame: DataFrame) -> list[str]:
    return sorted(repr(row) for row in frame.collect())


def write_csv(root: Path, files: Mapping[str, Sequence[str]], header: str = "id,name,x") -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")


KINDS = ["id:minmax", "id:bloom", "name:valuelist", "x:minmax", "x:valuelist"]


def small(spark: SparkSession, folder: Path) -> Indexed:
    """low: ids 0-9 named "low"; a high: ids 100-109 named "é high"; é=%: ids 0, 1000 without x; and
    a file of no rows."""
    root = folder / "t 1"
    write_csv(
        root,
        {
            "low.csv": [f"{i},low,{i}.5" for i in range(10)],
            "a high.csv": [f"{i},é high,NaN" for i in range(100, 110)],
            "é=%.csv": ["0,,", "1000,,"],
            "none.csv": [],
        },
    )
    return Indexed(spark, root, CSV, KINDS).build()
