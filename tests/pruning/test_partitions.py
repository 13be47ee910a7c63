"""Types and values of partition columns against Spark's own listing of generated folders.

One folder of Spark's partition discovery holds many columns: no job runs.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from skipstone.predicate.types import spark_name
from skipstone.pruning.partitions import NULL_VALUE, PartitionColumns

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def typed(values: list[str]) -> tuple[str, list[Any]]:
    paths = [f"/t/p={value}/a.parquet" for value in values]
    column = PartitionColumns.of_paths("/t", paths).values["p"]
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
        return "date", column.to_pylist()
    if pa.types.is_null(column.type):
        return "void", column.to_pylist()
    return spark_name(column.type), column.to_pylist()


@pytest.mark.parametrize(
    "values, type, found",
    [
        (["1", "2.5"], "double", [1.0, 2.5]),
        (["1", "2.5", "1e3"], "string", ["1", "2.5", "1e3"]),
        (["1", "3000000000"], "bigint", [1, 3_000_000_000]),
        (["2.5", "3000000000"], "string", ["2.5", "3000000000"]),
        (["1e3", "2"], "decimal(10,0)", [1000, 2]),
        (["1e3"], "decimal(4,0)", [1000]),
        (["9" * 39], "double", [1e39]),
        (["%31", "2"], "string", ["1", "2"]),
        ([" 1", "1d", "0x1p3", "-Infinity"], "double", [1.0, 1.0, 8.0, float("-inf")]),
        (["\u0663"], "int", [3]),
        (["2024-1-1"], "string", ["2024-1-1"]),
        (["2024-02-29"], "date", [19_782]),
        (["2023-02-29"], "string", ["2023-02-29"]),
        (["2024-01-01", "1"], "string", ["2024-01-01", "1"]),
        (["2024-01-01 00%3A00%3A00"], "void", [None]),
        (["2024-01-01 00%3A00%3A00.12"], "string", ["2024-01-01 00:00:00.12"]),
        (["-0", "2.5", NULL_VALUE], "double", [-0.0, 2.5, None]),
    ],
)
def test_types_are_those_of_spark(values: list[str], type: str, found: list[Any]) -> None:
    name, column = typed(values)
    assert (name, list(map(repr, column))) == (
        type,
        [
            repr(pa.scalar(each, pa.decimal128(10, 0)).as_py() if "decimal" in type else each)
            for each in found
        ],
    )


SHAPES = [
    *["1", "-7", "+5", "00", "-0", "2147483647", "2147483648", "9223372036854775807"],
    *["9223372036854775808", "9" * 38, "9" * 39, "1e3", "1E+3", "1.5e1", "1.50e1", "1.", "1e37"],
    *["0e37", "1e38", "2.5", ".5", "1e-3", "1d", "1.5f", " 1", "1 ", "0x1.8p-1", "NaN"],
    *["-Infinity", "nan", "inf", "1L", "1_0", "2024-01-01", "2024-12-31", "2024-13-01"],
    *["-0044-03-15", "+12024-01-01", "12024-01-01", "2024-1-1", "2024-01", "2024-01-01 x"],
    *["2024-01-01 00%3A00%3A00", "2024-01-01 23%3A59%3A59.9", "2024-01-01 00%3A00%3A00.12"],
    *["2024-01-01T00%3A00%3A00", "12%3A30%3A00", "12%3A30", "true", "x", "a%2Fb", "%31"],
    *["%C3%A9", "\u00e9", "a=b", "%", "%zz", NULL_VALUE, "1%20", "\U0001d7d9"],
]
# Java reads these digits as an integer but not as a double, so Spark fails on a mixture.
DEVANAGARI = "\u0967\u0968"
ALIKE = [SHAPES[:8], SHAPES[:14], SHAPES[:2] + SHAPES[19:24], SHAPES[33:35], SHAPES[33:46], SHAPES]


def generated(rng: random.Random) -> list[str]:
    some = rng.choice(ALIKE)
    values = [rng.choice(some) for _ in range(rng.choice([1, 1, 2, 3]))]
    if rng.random() < 0.3:
        digits = str(rng.randrange(10 ** rng.choice([1, 5, 10, 20, 39])))
        at = rng.randrange(len(digits) + 1)
        values.append(rng.choice([digits, digits[:at] + "." + digits[at:], f"{digits[:3]}e{at}"]))
    return values


@pytest.mark.spark
def test_generated_folders_are_typed_as_spark_types_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(4)
    columns = [[value] for value in [*SHAPES, DEVANAGARI]] + [generated(rng) for _ in range(240)]
    width = 10
    wrong: list[object] = []
    for first in range(0, len(columns), width):
        block = columns[first : first + width]
        root = tmp_path / str(first)
        for at in range(max(map(len, block))):
            levels = [f"c{n}={values[min(at, len(values) - 1)]}" for n, values in enumerate(block)]
            folder = root / f"row={at}" / "/".join(levels)
            folder.mkdir(parents=True)
            (folder / "a.parquet").write_bytes(b"x")
        rows = max(map(len, block))
        theirs = of_spark(spark, root, rows)
        paths = [str(path) for path in sorted(root.rglob("*.parquet"))]
        mine = PartitionColumns.of_paths(str(root), paths).values
        for n, values in enumerate(block):
            type, expected = theirs[f"c{n}"]
            column = mine[f"c{n}"]
            found: list[str | None]
            if type.startswith(("timestamp", "time(")):
                # Their values depend on the session's zone, and on its version.
                if not pa.types.is_null(column.type):
                    wrong.append((values, type, str(column.type)))
                continue
            if type == "void":
                type = "string"
            if pa.types.is_null(column.type):
                wrong.append((values, type, "null"))
                continue
            if pa.types.is_date(column.type):
                found = [repr(each) for each in column.cast(pa.int32()).to_pylist()]
            elif pa.types.is_decimal(column.type):
                found = [None if x is None else f"{x:f}" for x in column.to_pylist()]
            else:
                found = [None if x is None else repr(x) for x in column.to_pylist()]
            found = [None if x == "None" else x for x in found]
            if (spark_name(column.type), found) != (type, expected):
                wrong.append((values, (type, expected), (spark_name(column.type), found)))
    assert not wrong, f"{len(wrong)}: {wrong[:10]}"


def of_spark(spark: SparkSession, root: Path, rows: int) -> dict[str, tuple[str, list[str | None]]]:
    """Type and values (their text, by ``row``) of each partition column."""
    frame = spark.read.schema("v int").parquet(str(root))
    spec = frame._jdf.queryExecution().analyzed().relation().location().partitionSpec()
    fields = [spec.partitionColumns().apply(at) for at in range(spec.partitionColumns().size())]
    values: dict[str, list[str | None]] = {field.name(): [None] * rows for field in fields}
    for at in range(spec.partitions().size()):
        row = spec.partitions().apply(at).values()
        for number, field in enumerate(fields):
            value = row.get(number, field.dataType())
            text = None
            if value is not None:
                name = field.dataType().simpleString()
                plain = name == "string" or name.startswith("decimal")
                text = str(value.toString()) if plain else repr(value)
                text = repr(text) if name == "string" else text
            values[field.name()][row.getInt(0)] = text
    return {
        field.name(): (field.dataType().simpleString(), values[field.name()]) for field in fields
    }
