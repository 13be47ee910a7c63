"""N-gram and token indexes in Spark: the rows of plain Spark, from fewer files.

The layout: file i has 20 lines of a log, of which line 3 has a text of that file alone, in letters
with awkward cases; file 8 has no such column, file 9 only nulls.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone import Table
from skipstone.indexes.text_keys import codes_of
from skipstone.predicate.kernels.text import unsettled
from tests.spark.layout import check_each, planned, rows_of_each

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

OWN = [
    "Connection Timeout",
    "ΑΣ ΟΔΟΣ Σ",
    "İSTANBUL büyük ŞEHİR",
    "\u212aelvin \u2126hm",
    "100% of a_b\\c",
    "emoji 😀😀 中文字",
    "GRÖSSE Größe",
    "trace=3f2a9c0d1e77b0c4",
]
FILES = 10
# What no gram answers leaves the files that have a text.
NOT_NULL = 8


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("text") / "logs"
    root.mkdir()
    for file, own in enumerate(OWN):
        lines: list[str | None] = [f"GET /item/{row} 200 ok" for row in range(20)]
        lines[3:6] = [f"before {own} after", own, None]
        pq.write_table(pa.table({"id": range(20), "m": lines}), root / f"{file}.parquet")
    pq.write_table(pa.table({"id": range(3)}), root / "8.parquet")
    empty = pa.table({"id": range(3), "m": pa.nulls(3, pa.string())})
    pq.write_table(empty, root / "9.parquet")
    return root


@pytest.fixture(scope="module")
def skipping(spark: SparkSession, table: Path) -> DataFrame:
    indexes = ["m:ngram(fpp=0.001)", "m:tokens(fpp=0.001)"]
    Table(str(table)).build(spark=spark, indexes=indexes)
    return skipstone.skip(spark.read.parquet(str(table)))


CONDITIONS = {
    "m LIKE '%Timeout%'": 1,
    "m LIKE '%Conn%out%'": 1,
    "m ILIKE '%TIMEOUT%'": 1,
    "contains(m, 'trace=3f2a')": 1,
    "startswith(m, 'before GR')": 1,
    "endswith(m, '中文字')": 1,
    "m = 'ΑΣ ΟΔΟΣ Σ'": 1,
    "m IN ('trace=3f2a9c0d1e77b0c4', 'emoji 😀😀 中文字', 'x y z')": 2,
    "m LIKE '%100\\\\%%'": 1,
    "m LIKE '%😀 中%'": 1,
    "m LIKE '% Größe %'": 1,
    "m RLIKE 'Time(out|r)'": 1,
    "m RLIKE '(?i)timeout'": 1,
    "m RLIKE '^trace=[0-9a-f]+77b0$'": 1,
    "lower(m) LIKE '%οδος%'": 1,
    "m ILIKE '%οδοσ%'": 1,
    "m ILIKE '%ΑΣ ΟΔ%'": 1,
    "m ILIKE '%istanbul%'": 1,  # matches with Turkish rules alone
    "m ILIKE '%i̇stanbul%'": 1,
    "m ILIKE '%şehi̇r%'": 1,
    "m ILIKE '%kelvin%'": 1,
    "m ILIKE '%ωhm%'": 1,
    "m ILIKE '%grösse%'": 1,
    "m LIKE '%absent text%'": 0,
    "m LIKE '%item/1%' AND m ILIKE '%timeout%'": 1,
    "m LIKE '%Timeout%' OR m LIKE '%emoji%'": 2,
    "m NOT LIKE '%item%'": NOT_NULL,
    "m LIKE '%ok%'": NOT_NULL,
}


def test_rows_and_files(spark: SparkSession, table: Path, skipping: DataFrame) -> None:
    plain = spark.read.parquet(str(table))
    check_each(plain, skipping, list(CONDITIONS.items()), every=4)
    assert skipstone.last_scan(spark).files_total == FILES
    every = rows_of_each(plain, list(CONDITIONS), ["_metadata.file_name", "id"])
    for (condition, files), expected in zip(CONDITIONS.items(), every, strict=True):
        assert len(planned(skipping.where(condition))) == files, condition
        assert Table(str(table)).query(condition).num_rows == len(expected), condition


def test_every_code_point_folds_as_sparks_lower_case_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    every = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]
    texts = [*every, "ΑΣ", "ΑΣΑ", "Σ", "aΣ.b", "İİ", "aİΣ", "ǅΣ"]
    pq.write_table(pa.table({"c": texts}), tmp_path / "c.parquet")
    frame = spark.read.parquet(str(tmp_path / "c.parquet"))
    frame = frame.selectExpr("c", "lower(c) AS low", "upper(c) AS up")
    frame.write.parquet(str(tmp_path / "low"))
    found = pq.read_table(tmp_path / "low")
    assert found.num_rows == len(texts)
    differ = [
        text
        for text, low, up in zip(*(found.column(at).to_pylist() for at in range(3)), strict=True)
        if (text.lower(), text.upper()) != (low, up)
    ]
    assert [text for text in differ if not unsettled(text)] == []
    folded = []
    for name in ("c", "low"):
        words = found.column(name).combine_chunks().cast(pa.large_string())
        data = np.frombuffer(words.buffers()[2], np.uint8)
        offsets = np.frombuffer(words.buffers()[1], np.int64)[: len(words) + 1]
        coded = codes_of(data, offsets, lower=True)
        assert coded is not None
        folded.append(coded)
    (a, a_at), (b, b_at) = folded
    assert np.array_equal(a_at, b_at)
    assert np.array_equal(a, b)
