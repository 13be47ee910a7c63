"""Tables for the tests of transparent reading, and ways to look at what Spark did."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

import skipstone
from skipstone.spark.session import set_to
from tools.scanned import scanned

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

# One blank, percent signs, accents, equals signs, line feeds, what Hadoop prints, quotes, a comma.
NAMES = [
    "plain",
    "a b",
    "100%25",
    "é=ü",
    "p=1; q",
    "new\nline",
    "x; isDirectory=false; length=3",
    "it's",
    "c,d",
    "😀",
]


def ten_files(root: Path) -> Path:
    """Ten files of ten rows: file i has ids 10 i to 10 i + 9, s = "s<id>", parity = id % 2."""
    root.mkdir(parents=True)
    for i, name in enumerate(NAMES):
        write(root / f"{name}.parquet", range(i * 10, i * 10 + 10))
    return root


def write(path: Path, ids: range) -> None:
    """One file with these ids."""
    table = pa.table(
        {
            "id": pa.array(list(ids), pa.int64()),
            "s": pa.array([f"s{i}" for i in ids]),
            "parity": pa.array([i % 2 for i in ids], pa.int32()),
        }
    )
    pq.write_table(table, path)


def rows(df: DataFrame) -> list[str]:
    """The rows, in an order that does not depend on the files'."""
    return sorted(map(repr, df.collect()))


def rows_of_each(
    df: DataFrame, conditions: Sequence[str], columns: Sequence[str] = ("*",)
) -> list[list[str]]:
    """The ``rows`` for which each condition is true, by one query, which filters nothing.

    Older versions of Spark lose rows of NaN in filters: those are filters of their own here.
    """
    from pyspark.sql import Row

    together = [each for each in conditions if "NaN" not in each]
    # Otherwise what two conditions share would be computed for rows that an AND keeps from it.
    with set_to(df.sparkSession, {"spark.sql.subexpressionElimination.enabled": "false"}):
        frame = df.selectExpr(*columns, *(f"({each})" for each in together))
        decided = frame.collect()
    width = len(frame.columns) - len(together)
    shown = Row(*frame.columns[:width])
    every = [(repr(shown(*row[:width])), row[width:]) for row in decided]
    found = {
        each: sorted(text for text, true in every if true[at]) for at, each in enumerate(together)
    }
    return [
        found[each] if each in found else rows(df.where(each).selectExpr(*columns))
        for each in conditions
    ]


def planned(df: DataFrame) -> set[str]:
    """The names of the files that Spark would read through the index, by its planning: no job runs.

    Spark itself may find that no row can match.
    """
    found = set()
    for scan in skipstone.explain(df).scans:
        assert scan.report is not None, scan
        names = {path.rpartition("/")[2] for path in scan.report.paths}
        assert len(names) == scan.files_kept
        found |= names
    return found


def within(file_names: Sequence[str], kept: set[str]) -> bool:
    """Whether rows of ``_metadata.file_name`` are of these files; Spark encodes names."""
    return {unquote(each) for each in file_names} <= {f"Row(file_name={name!r})" for name in kept}


def check_each(
    plain: DataFrame, skipping: DataFrame, asked: Sequence[tuple[str, int]], every: int = 5
) -> None:
    """Each condition keeps every file in which plain Spark finds a row, and at most so many files.

    Spark filters the rows of a kept file as ever, so that rows are lost with files alone. Of every
    ``every``-th condition the rows are read as well, from as many files as were planned.
    """
    texts = [where for where, _ in asked]
    expected = rows_of_each(plain, texts[::every])
    matching = rows_of_each(plain, texts, ["_metadata.file_name"])
    for at, ((where, most), found) in enumerate(zip(asked, matching, strict=True)):
        kept = planned(skipping.where(where))
        assert within(found, kept), where
        assert len(kept) <= most, where
        if at % every == 0:
            told = expected[at // every], len(kept)
            assert read_by_spark(skipping.where(where)) == told, where


def read_remotely(df: DataFrame) -> tuple[list[str], int]:
    """``read_by_spark`` under Spark Connect: what the server says of its scans."""
    found = rows(df)
    info = df.executionInfo
    assert info is not None
    assert info.metrics is not None
    _, nodes = info.metrics.extract_graph()
    told = [each for node in nodes.values() for each in node.metrics if each.name == "numFiles"]
    return found, sum(int(each.value) for each in told)


def read_by_spark(df: DataFrame) -> tuple[list[str], int]:
    """The rows, and how many files Spark itself says it read for them."""
    found = rows(df)
    return found, scanned(df).files
