"""Retrofit of a large file without indexes, compared with writing it again with pyarrow.

| figure | |
|---|---|
| rewrite | page index on all columns, checksums, a Bloom filter on ``key``; the peer does it too |
| memory | the most that the process of a retrofit held, Python and its libraries included |
| lookup | `select * where id = X` and `key = K` before and after: DataFusion, Spark |

Each retrofit and each rewrite is a process of its own, one after the other in turn, imports left
out of its time; the quickest run of each counts, for a machine that does other things meanwhile,
and CPU seconds of all threads, the system's included, stand beside it. Only the retrofit waits
until its file is on the disk. Of lookups bytes are those of read calls, rows those that the scan
handed on.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .figure import Figure, Peer, interleaved, median
from .parquet_big import ROW_GROUPS, VERSION, keys_of, lay_big, rows_per_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .workbench import Workbench

__all__ = ["figures"]

_TARGET, _MEMORY = 2.5, 256
_RUNS = 5
_LOOKUPS = 15
_SPARK_LOOKUPS = 5

_MEASURE = """
import json, os, sys, time
path, out, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
def most():  # not ru_maxrss, which begins with what the parent held
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
{imports}
loaded, used, started = most(), os.times(), time.perf_counter()
{work}
seconds, now = time.perf_counter() - started, os.times()
print(json.dumps({{
    "seconds": seconds,
    "user": now.user - used.user,
    "system": now.system - used.system,
    "mib": most(),
    "mib_loaded": loaded,
}}))
"""
_OURS = _MEASURE.format(
    imports="from skipstone.rewrite.retrofit_file import retrofit",
    work="retrofit(path, bloom={'key': 0.01}, output=out)",
)
_THEIRS = _MEASURE.format(
    imports="import pyarrow.parquet as pq",
    work="""\
file = pq.ParquetFile(path)
with pq.ParquetWriter(out, file.schema_arrow, compression="snappy", use_dictionary=["s"],
        write_page_index=True, write_page_checksum=True,
        bloom_filter_options={"key": {"ndv": rows, "fpp": 0.01}}) as writer:
    for group in range(file.num_row_groups):
        writer.write_table(file.read_row_group(group), row_group_size=rows)
""",
)


def figures(bench: Workbench) -> Iterator[Figure]:
    """All of them, over one file."""
    factor = bench.sizes.parquet_factor
    rows = rows_per_group(factor)
    big = bench.generated(
        "parquet-big", partial(lay_big, factor=factor), factor=factor, version=VERSION
    )
    folder = bench.generated(
        "parquet-bare", lambda to: _lay_bare(big / "big.parquet", to, rows), factor=factor
    )
    bare, made = folder / "bare.parquet", folder / "retrofitted.parquet"
    taken: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
    for _ in range(min(_RUNS, bench.sizes.runs)):
        taken["ours"].append(_process(_OURS, bare, made, rows))
        taken["theirs"].append(_process(_THEIRS, bare, folder / "rewritten.parquet", rows))
    (folder / "rewritten.parquet").unlink()
    best = {who: min(runs, key=lambda each: each["seconds"]) for who, runs in taken.items()}
    ours, theirs = (best[who]["seconds"] for who in taken)
    cpu = {who: min(each["user"] + each["system"] for each in runs) for who, runs in taken.items()}
    yield Figure(
        name="retrofit.rewrite",
        value=ours,
        unit="s",
        peer=Peer(what="pyarrow, row group by row group, the same options", value=theirs),
        ratio=theirs / ours,
        target=f"pyarrow / ours >= {_TARGET}",
        met=theirs / ours >= _TARGET,
        details={
            "bytes": bare.stat().st_size,
            "all": [each["seconds"] for each in taken["ours"]],
            "peer_all": [each["seconds"] for each in taken["theirs"]],
            "cpu_seconds": cpu["ours"],
            "peer_cpu_seconds": cpu["theirs"],
            "cpu_ratio": cpu["theirs"] / cpu["ours"],
        },
    )
    most = max(each["mib"] for each in taken["ours"])
    yield Figure(
        name="retrofit.memory",
        value=most,
        unit="MiB",
        peer=Peer(what="pyarrow", value=max(each["mib"] for each in taken["theirs"])),
        target=f"at most {_MEMORY} MiB",
        met=most <= _MEMORY,
        details={"loaded_before": max(each["mib_loaded"] for each in taken["ours"])},
    )
    yield from _datafusion(bench, bare, made, rows)
    yield from _spark(bench, bare, made, rows)


def _lay_bare(big: Path, folder: Path, rows: int) -> None:
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    file = pq.ParquetFile(big)
    with pq.ParquetWriter(
        folder / "bare.parquet", file.schema_arrow, compression="snappy", use_dictionary=["s"]
    ) as writer:
        for group in range(file.num_row_groups):
            writer.write_table(file.read_row_group(group), row_group_size=rows)


def _process(code: str, path: Path, out: Path, rows: int) -> dict[str, float]:
    out.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(out), str(rows)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _sought(rows: int) -> dict[str, Iterator[str]]:
    """Conditions that one row meets: of the column that is sorted, and of the one that is not."""
    total = ROW_GROUPS * rows
    ids = itertools.cycle([(number * 7_919_017) % total for number in range(1, 1_000)])
    keys = itertools.cycle(keys_of(ROW_GROUPS // 2, rows)[:100].tolist())
    return {"id": (f"id = {each}" for each in ids), "key": (f"key = {each}" for each in keys)}


def _datafusion(bench: Workbench, bare: Path, made: Path, rows: int) -> Iterator[Figure]:
    import datafusion

    runs = bench.sizes.repeated(_LOOKUPS)

    for column, sought in _sought(rows).items():

        def works(path: Path, sought: Iterator[str] = sought) -> Callable[[], int]:
            context: Any = datafusion.SessionContext()
            context.register_parquet("t", str(path))

            def one() -> int:
                before = _read_by("self")
                found = context.sql(f"SELECT * FROM t WHERE {next(sought)}").collect()
                _one_row(sum(each.num_rows for each in found))
                return _read_by("self") - before

            return one

        before, after = works(bare), works(made)
        taken = interleaved(runs, {"before": before, "after": after})
        yield _gain("datafusion", column, taken, {"bytes": after(), "bytes_before": before()})


def _spark(bench: Workbench, bare: Path, made: Path, rows: int) -> Iterator[Figure]:
    spark, runs = bench.spark, bench.sizes.repeated(_SPARK_LOOKUPS)
    assert spark._jvm is not None
    process = spark._jvm.java.lang.ProcessHandle.current().pid()
    for column, sought in _sought(rows).items():

        def works(path: Path, sought: Iterator[str] = sought) -> Callable[[], tuple[int, int]]:
            def one() -> tuple[int, int]:
                before = _read_by(process)
                frame: Any = spark.read.parquet(str(path)).where(next(sought))
                _one_row(len(frame.collect()))
                plan = frame._jdf.queryExecution().executedPlan()
                scan = plan.collectLeaves().head()
                handed = scan.metrics().apply("numOutputRows").value()
                return _read_by(process) - before, handed

            return one

        before, after = works(bare), works(made)
        taken = interleaved(runs, {"before": before, "after": after})
        (read, handed), (read_before, handed_before) = after(), before()
        details = {
            "bytes": read,
            "bytes_before": read_before,
            "rows": handed,
            "rows_before": handed_before,
        }
        yield _gain("spark", column, taken, details)


def _read_by(process: int | str) -> int:
    """Bytes that a process has read, by its calls."""
    text = Path(f"/proc/{process}/io").read_text(encoding="ascii")
    return int(text.partition("rchar: ")[2].split()[0])


def _one_row(count: int) -> None:
    if count != 1:
        raise AssertionError(f"a lookup that found {count} rows")


def _gain(
    reader: str, column: str, taken: Mapping[str, list[float]], details: Mapping[str, int]
) -> Figure:
    before, after = (1000 * median(taken[name]) for name in ("before", "after"))
    return Figure(
        name=f"retrofit.lookup {reader} {column}",
        value=after,
        unit="ms",
        peer=Peer(what=f"{reader} on the file as it was", value=before),
        ratio=before / after,
        details=details,
    )
