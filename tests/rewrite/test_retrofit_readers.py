"""What other readers find in retrofitted files: the same rows, whatever they skip by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import datafusion
import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile, Table
from skipstone.rewrite import retrofit

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NAN = float("nan")
#: selected by each reader's own meaning of NaN, before and after
CONDITIONS = (
    "f > 100000",
    "f >= 3800",
    "g > 100000",
    "NOT (f <= 700)",
    "f <> 3",
    "z < 0",
    "z = 0",
    "z >= 0",
    "id = 2345",
    "id BETWEEN 1990 AND 2010",
    "s = 'v77'",
    "s > 'w'",
    "s IS NULL",
    "n IS NOT NULL",
    "u > 3000000000",
    "d < -10.50",
    "b = false",
)


def mixed(rows: int = 4_000) -> pa.Table:
    """f has NaN in some pages of every row group, g in all pages of one; z both zeros."""
    n = range(rows)
    return pa.table(
        {
            "id": n,
            "f": [NAN if i // 50 % 8 == 3 and i % 10 == 7 else float(i) for i in n],
            "g": [NAN if 1_000 <= i < 2_000 else float(i) for i in n],
            "z": [-0.0 if i % 2 else 0.0 for i in n],
            "s": [None if i % 9 == 0 else f"v{i % 101}" * (1 + i % 40) for i in n],
            "n": pa.nulls(rows, pa.int32()),
            "u": pa.array([i * 1_048_573 % 2**32 for i in n], pa.uint32()),
            "d": pa.array([f"{i % 37 - 18}.25" for i in n]).cast(pa.decimal128(9, 2)),
            "b": [i < 100 for i in n],
            "t": pa.array([i * 1_000_003 for i in n], pa.timestamp("us")),
            "l": [[f"é{j}" for j in range(i % 4)] if i % 6 else None for i in n],
            "m": [{"x": {"y": i if i % 5 else None}} if i % 7 else None for i in n],
        }
    )


def by_duckdb(path: str, condition: str) -> Any:
    found = duckdb.sql(f"SELECT count(*), sum(id) FROM '{path}' WHERE {condition}")
    assert found is not None
    return found.fetchall()


def by_datafusion(path: str, condition: str) -> Any:
    context = datafusion.SessionContext(
        datafusion.SessionConfig().set("datafusion.execution.parquet.pushdown_filters", "true")
    )
    context.register_parquet("t", path)
    found = context.sql(f"SELECT count(*) AS c, sum(id) AS s FROM t WHERE {condition}")
    return found.to_pydict()


def by_polars(path: str, condition: str) -> Any:
    context = polars.SQLContext(t=polars.scan_parquet(path))
    found = context.execute(f"SELECT count(*) AS c, sum(id) AS s FROM t WHERE {condition}")
    return found.collect().rows()


def lay(path: Path, *, statistics: bool, version: str = "1.0") -> str:
    pq.write_table(
        mixed(),
        path,
        row_group_size=1_000,
        max_rows_per_page=50,
        use_dictionary=["s"],
        write_statistics=statistics,
        data_page_version=version,
    )
    return str(path)


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("page_rows", [None, 20])
def test_no_reader_finds_other_rows_than_before(
    tmp_path: Path, page_rows: int | None, statistics: bool
) -> None:
    """NaN above all: bounds that leave them out make readers skip what they would select.

    DuckDB heeds NaN that are counted: it finds those that it lost before.
    """
    path, out = lay(tmp_path / "a é.parquet", statistics=statistics), str(tmp_path / "b é.parquet")
    report = retrofit(path, bloom={"id": 0.01, "s": 0.01}, page_rows=page_rows, output=out)
    assert report.added["offset index"] == report.chunks == 48
    assert any("f holds NaN" in note for note in report.notes)
    pq.write_table(mixed(), tmp_path / "plain.parquet", write_statistics=False)
    plain = str(tmp_path / "plain.parquet")
    for find, like in ((by_duckdb, plain), (by_datafusion, path), (by_polars, path)):
        for condition in CONDITIONS:
            assert find(out, condition) == find(like, condition), (find, condition)
    again = retrofit(out, bloom={"id": 0.01, "s": 0.01}, page_rows=page_rows)
    assert again.outcome == "complete", str(again)
    assert ParquetFile(out).verify().ok


def test_nan_are_counted_though_there_are_no_bounds(tmp_path: Path) -> None:
    """Chunk 1 of g is nothing but NaN, f has some in each; z has none, and so all its bounds."""
    path = lay(tmp_path / "a.parquet", statistics=False)
    nans = np.isnan(mixed()["f"].to_numpy()).reshape(4, 1_000).sum(axis=1)
    retrofit(path)
    file = ParquetFile(path)
    for r, group in enumerate(file.metadata.row_groups):
        f, g, z = (group.columns[at] for at in (1, 2, 3))
        for chunk, count in ((f, int(nans[r])), (g, 1_000 if r == 1 else 0)):
            assert chunk.meta_data is not None
            found = chunk.meta_data.statistics
            assert found is not None
            assert found.nan_count == count
            assert found.min_value is None
            assert bool(chunk.column_index_offset) is not bool(count)
        assert z.meta_data is not None
        assert z.meta_data.statistics is not None
        assert z.meta_data.statistics.min_value == np.float64(-0.0).tobytes()
        assert z.meta_data.statistics.max_value == np.float64(0.0).tobytes()
    assert file.query("f > 100000").num_rows == nans.sum()


def test_spark_reads_what_was_retrofitted(tmp_path: Path, spark: SparkSession) -> None:
    """All rows, and those of conditions that it skips by, are what they were."""
    path = lay(tmp_path / "a.parquet", statistics=True)
    out, split = str(tmp_path / "b.parquet"), str(tmp_path / "c.parquet")
    retrofit(path, bloom={"id": 0.01, "s": 0.01}, output=out)
    retrofit(
        lay(tmp_path / "v2.parquet", statistics=True, version="2.0"), page_rows=20, output=split
    )
    frames = [spark.read.parquet(each) for each in (path, out, split)]
    whole = [[repr(row) for row in frame.orderBy("id").collect()] for frame in frames]
    assert len(whole[0]) == 4_000
    assert whole[1] == whole[0]
    assert whole[2] == whole[0]
    for condition in CONDITIONS[:4] + CONDITIONS[8:12]:
        counts = [frame.where(condition).count() for frame in frames]
        assert counts[1:] == counts[:1] * 2, condition


def test_a_job_of_spark_resumes_a_table(tmp_path: Path, spark: SparkSession) -> None:
    """One of three files is done before, one is damaged: the job does the rest, and says so."""
    root = tmp_path / "events é"
    root.mkdir()
    for part in range(3):
        lay(root / f"part {part}.parquet", statistics=True)
    retrofit(root / "part 1.parquet", bloom={"id": 0.01})
    rows = sorted(map(repr, spark.read.parquet(str(root)).collect()))
    (root / "part 9.parquet").write_bytes(b"PAR1 nothing PAR1")
    seen: list[tuple[int, int]] = []
    report = Table(str(root)).retrofit(
        spark, bloom={"id": 0.01}, progress=lambda done, total: seen.append((done, total))
    )
    fates = {each.path.rpartition("/")[2]: each.outcome for each in report.files}
    assert fates == {
        "part 0.parquet": "rewritten",
        "part 1.parquet": "complete",
        "part 2.parquet": "rewritten",
        "part 9.parquet": "failed",
    }
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == ((0, 4), (4, 4))
    (root / "part 9.parquet").unlink()
    spark.catalog.clearCache()
    assert sorted(map(repr, spark.read.parquet(str(root)).collect())) == rows
    assert len(Table(str(root)).retrofit(spark, bloom={"id": 0.01}).of("complete")) == 3
