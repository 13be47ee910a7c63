"""`make demo`: a real table, indexed by the command line, and queried with and without the index.

1. TPC-H `lineitem`, in 200 files that are not sorted by the columns of the queries (`lineitem.py`);
2. `skipstone advise`, `build` and `describe`, as a user would type them;
3. five queries through Spark, each plain and through `skipstone.skip`: the rows must be equal, and
   Spark itself counts the files and bytes that it was given.

Exit code 1 when any rows differ, or when a query skips nothing.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from skipstone.human import aligned, of_total, size
from tools.lineitem import FILES, prepare
from tools.scanned import Scanned, scanned

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

INDEXES = (
    "l_orderkey:bloom",
    "l_shipdate:minmax",
    "l_extendedprice:minmax",
    "l_returnflag:valuelist",
    "l_linestatus:valuelist",
)
HEADINGS = ("query", "rows", "files read", "bytes read", "plain", "skipping", "faster")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a query: the rows in order, the files and bytes that Spark read, and the
    seconds."""

    rows: pa.Table
    read: Scanned
    seconds: float


def queries(scale: float) -> list[tuple[str, str]]:
    """The queries for a table of this scale: a title, and the condition as SQL text."""

    def order(share: float) -> int:
        # Only the first 8 of every 32 order keys exist.
        number = int(share * 1_500_000 * scale)
        return number // 8 * 32 + number % 8

    several = ", ".join(str(order(share)) for share in (0.2, 0.4, 0.6, 0.8))
    return [
        ("needle: one order of all", f"l_orderkey = {order(0.5)}"),
        ("absent key, between existing ones", f"l_orderkey = {order(0.5) + 16}"),
        ("range on an unsorted number", "l_extendedprice > 104500"),
        ("rare pair of two common flags", "l_returnflag = 'N' AND l_linestatus = 'F'"),
        ("IN list of four orders", f"l_orderkey IN ({several})"),
    ]


def command_line(*arguments: str) -> None:
    """Show and run one `skipstone` command; its failure ends the demo with its own message."""
    print(f"\n$ skipstone {shlex.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "skipstone", *arguments], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def session() -> SparkSession:
    """A session on two cores of this machine."""
    # The workers must run this Python; otherwise Spark runs the "python3" of the PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("skipstone demo")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def ask(spark: SparkSession, table: Path, where: str, *, skipping: bool) -> Run:
    """Plan a query and fetch its rows, three times; the fastest counts, planning included."""
    import skipstone

    taken = []
    for _ in range(3):
        start = time.perf_counter()
        df = spark.read.parquet(str(table))
        df = (skipstone.skip(df) if skipping else df).where(where)
        rows = df.toArrow()
        taken.append(time.perf_counter() - start)
    key = [("l_orderkey", "ascending"), ("l_linenumber", "ascending")]
    return Run(rows.sort_by(key), scanned(df), min(taken))


def compare(spark: SparkSession, table: Path, scale: float) -> tuple[list[list[str]], list[str]]:
    """Run every query both ways: a row of the printed table for each, and the errors."""
    lines, wrong = [], []
    for title, where in queries(scale):
        plain = ask(spark, table, where, skipping=False)
        fewer = ask(spark, table, where, skipping=True)
        if not fewer.rows.equals(plain.rows):
            counts = f"{fewer.rows.num_rows:,} with the index, {plain.rows.num_rows:,} without"
            wrong.append(f"the rows differ for {where}: {counts}")
        if fewer.read.files >= plain.read.files:
            wrong.append(f"nothing was skipped for {where}")
        lines.append(
            [
                title,
                f"{fewer.rows.num_rows:,}",
                of_total(fewer.read.files, plain.read.files, "files"),
                f"{size(fewer.read.bytes)} of {size(plain.read.bytes)}",
                f"{plain.seconds:.2f} s",
                f"{fewer.seconds:.2f} s",
                f"{plain.seconds / fewer.seconds:.1f} ×",
            ]
        )
    return lines, wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.demo", description="Show Skipstone on a table.")
    parser.add_argument(
        "--home", type=Path, default=Path("demo-data"), help="the directory of the table"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-H scale factor")
    parser.add_argument("--files", type=int, default=FILES, help="number of data files")
    options = parser.parse_args()
    began = time.perf_counter()
    print(f"lineitem at scale factor {options.scale:g}, {options.files} files", flush=True)
    table = prepare(options.home, scale=options.scale, files=options.files)
    shutil.rmtree(options.home / "_lineitem.skipstone", ignore_errors=True)

    command_line("advise", str(table))
    columns = [argument for index in INDEXES for argument in ("-c", index)]
    command_line("build", str(table), *columns)
    command_line("describe", str(table))

    import skipstone

    print("\nEach query plain, and through skipstone.skip(df): the same rows, from fewer files.")
    spark = session()
    try:
        lines, wrong = compare(spark, table, options.scale)
        print(f"\n{aligned([HEADINGS, *lines], range(1, len(HEADINGS)))}")
        print(f"\n>>> skipstone.last_scan(spark)\n{skipstone.last_scan(spark)}")
    finally:
        spark.stop()
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    if not wrong:
        print(f"\nAll rows are the same. {time.perf_counter() - began:.0f} s in all.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
