"""Retrofit of a large file that has nothing to skip by, against writing it anew with pyarrow.

| figure | |
|---|---|
| rewrite | page index on all columns, checksums, a Bloom filter on ``key``; the peer does it too |
| memory | the most that the process of a retrofit held |
| lookup | DataFusion's `select * where id = X` before and after |

Each retrofit and each rewrite is a process of its own, imports left out of its time. CPU seconds
stand beside it, for a machine that does other things meanwhile.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from .figure import Figure, Peer, interleaved, median
from .parquet_big import ROW_GROUPS, VERSION, lay_big, rows_per_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .workbench import Workbench

__all__ = ["figures"]

_TARGET, _MEMORY = 2.5, 256
_RUNS = 3
_LOOKUPS = 15

_MEASURE = """
import json, resource, sys, time
path, out, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
{imports}
started, before = time.perf_counter(), time.process_time()
{work}
print(json.dumps({{
    "seconds": time.perf_counter() - started,
    "cpu": time.process_time() - before,
    "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
}}))
"""
_OURS = _MEASURE.format(
    imports="from skipstone.rewrite.retrofitting import retrofit",
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
    ours, theirs = (median([each["seconds"] for each in taken[who]]) for who in taken)
    cpu = {who: median([each["cpu"] for each in taken[who]]) for who in taken}
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
            "cpu_seconds": cpu["ours"],
            "peer_cpu_seconds": cpu["theirs"],
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
    )
    yield from _lookup(bare, made, ROW_GROUPS * rows)


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


def _lookup(bare: Path, made: Path, total: int) -> Iterator[Figure]:
    import datafusion

    ids = itertools.cycle([(number * 7_919_017) % total for number in range(1, 1_000)])

    def works(path: Path) -> Callable[[], object]:
        context: Any = datafusion.SessionContext()
        context.register_parquet("t", str(path))

        def one() -> None:
            found = context.sql(f"SELECT * FROM t WHERE id = {next(ids)}").collect()
            if sum(each.num_rows for each in found) != 1:
                raise AssertionError("a lookup that found another number of rows")

        return one

    taken = interleaved(_LOOKUPS, {"before": works(bare), "after": works(made)}, warm=1)
    before, after = (1000 * median(taken[name]) for name in ("before", "after"))
    yield Figure(
        name="retrofit.lookup datafusion",
        value=after,
        unit="ms",
        peer=Peer(what="DataFusion on the file as it was", value=before),
        ratio=before / after,
    )
