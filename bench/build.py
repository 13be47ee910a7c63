"""How long the facts of one file take to build, compared with decoding its columns.

One file of 1,500,000 rows, snappy, dictionaries as pyarrow writes them by default, five columns:

- ``key``: random 62-bit integers, all distinct;
- ``price``: doubles with two decimals, some 300,000 distinct;
- ``code``: 200 distinct ints;
- ``name``: 20,000 distinct strings of 15 bytes;
- ``at``: ascending timestamps in microseconds, nearly all distinct.

The peer is ``pyarrow`` reading the same columns, row group by row group, without threads. Both run
in one process and in turns, with compiled code already loaded, as in a task of many files.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.figure import Figure, Peer, interleaved, median
from skipstone import ParquetFile
from skipstone.build.column_indexes import BuildSettings
from skipstone.build.data_file import build_file
from skipstone.indexes.registry import parse_indexes
from skipstone.storage import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench.workbench import Workbench
    from skipstone.facts.encode import FileFacts

__all__ = ["figures"]

COLUMNS = ("key", "price", "code", "name", "at")
KINDS = ("minmax", "valuelist", "bloomfilter")
ROW_GROUPS = 6
#: what `advise` proposes here: bounds where they differ between files, filters on columns for
#: lookups
ADVISED = ("key:bloomfilter", "price:minmax", "code:valuelist", "name:bloomfilter", "at:minmax")
MEMORY = 128 * 2**20

_CHILD = """
import json, pathlib, sys
from bench.build import build
from skipstone import ParquetFile
from skipstone.indexes.bloom_jit import compiled
import pyarrow as pa, pyarrow.parquet as pq
def peak():  # of this program; getrusage begins with that of the process that started it
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])
path, memory, *specs = sys.argv[1:]
schema = ParquetFile(path).file_schema.spark
compiled()
with pq.ParquetFile(path) as file:
    few = pa.Table.from_batches([next(file.iter_batches(batch_size=2_000))])
small = str(pathlib.Path(path).with_name("small.parquet"))
pq.write_table(few, small)
build(small, specs, schema, int(memory))  # loads all that any build does
pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
before = peak()
found = build(path, specs, schema, int(memory))
grown = max(0, peak() - before)  # Linux counts pages by thread: a peak may be some pages below
print(json.dumps([grown * 1024, len(found.reasons)]))
"""


def build(
    path: str, specs: Sequence[str], schema: pa.Schema, memory: int | None = None
) -> FileFacts:
    """The facts of the file, without row group metadata."""
    settings = BuildSettings(compiled=True, pm="none", settle=0)
    if memory is not None:
        settings = replace(settings, memory=memory)
    storage = LocalStorage()
    found = build_file(storage.stat(path), storage, parse_indexes(specs), schema, settings)
    if found.error is not None:
        raise ValueError(found.error)
    return found


def make(folder: Path, rows: int) -> None:
    """The file, in ``ROW_GROUPS`` row groups, and once more in a single one."""
    rng = np.random.default_rng(7)
    names = pa.array([f"customer-{number:06d}" for number in range(20_000)])
    table = pa.table(
        {
            "key": rng.integers(0, 2**62, rows),
            "price": np.round(rng.gamma(2, 500, rows), 2),
            "code": rng.integers(0, 200, rows).astype(np.int32),
            "name": names.take(pa.array(rng.integers(0, 20_000, rows))),
            "at": pa.array(
                np.sort(rng.integers(0, 30 * 86_400 * 10**6, rows)) + 1_700_000_000_000_000,
                pa.timestamp("us", "UTC"),
            ),
        }
    )
    pq.write_table(table, folder / "groups.parquet", row_group_size=-(-rows // ROW_GROUPS))
    pq.write_table(table, folder / "single.parquet", row_group_size=rows)


def decode(path: Path) -> None:
    """The peer: every column, and nothing done with it."""
    with pq.ParquetFile(path) as parquet:
        for group in range(parquet.num_row_groups):
            parquet.read_row_group(group, columns=list(COLUMNS), use_threads=False)


def figures(bench: Workbench) -> Iterator[Figure]:
    """Time of each kind, of all three and of an advised set, and the memory that it takes."""
    rows = max(1_000, min(1_500_000, bench.sizes.files * bench.sizes.rows_per_file))
    folder = bench.generated("build", lambda home: make(home, rows), rows=rows, version=1)
    path = folder / "groups.parquet"
    schema = ParquetFile(path).file_schema.spark
    sets: dict[str, Sequence[str]] = {
        "all three kinds": [f"{column}:{kind}" for column in COLUMNS for kind in KINDS],
        "advised": ADVISED,
        **{kind: [f"{column}:{kind}" for column in COLUMNS] for kind in KINDS},
    }

    works = {
        name: (lambda specs=specs: build(str(path), specs, schema)) for name, specs in sets.items()
    }
    taken = interleaved(bench.sizes.runs, {"decode": lambda: decode(path), **works})
    peer = median(taken.pop("decode"))
    limits = {"all three kinds": 3.5, "advised": 2.0}
    for name, seconds in taken.items():
        ratio, limit = median(seconds) / peer, limits.get(name)
        yield Figure(
            name=f"build of five columns, {name}",
            value=median(seconds),
            unit="s",
            peer=Peer(what="pyarrow decoding the five columns", value=peer),
            ratio=ratio,
            target=None if limit is None else f"at most {limit:g} x decoding",
            met=None if limit is None else ratio <= limit,
            details={"rows": rows, "cores": 1},
        )
    yield memory_figure(folder / "single.parquet", sets["all three kinds"], rows)


def memory_figure(path: Path, specs: Sequence[str], rows: int) -> Figure:
    """The memory that a process needs to build all kinds from one large row group."""
    command = [sys.executable, "-c", _CHILD, str(path), str(MEMORY), *specs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the build ended with {done.returncode}: {done.stderr[-2_000:]}")
    grown, left_out = json.loads(done.stdout)
    return Figure(
        name="memory of a build, one row group",
        value=grown / 2**20,
        unit="MiB",
        peer=Peer(what="the setting", value=MEMORY / 2**20),
        ratio=grown / MEMORY,
        target="at most the setting",
        met=grown <= MEMORY,
        details={"rows": rows, "left out": left_out},
    )
