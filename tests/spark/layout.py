"""Tables for the tests of transparent reading, and ways to look at what Spark did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tools.scanned import scanned

if TYPE_CHECKING:
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
