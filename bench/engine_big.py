"""One file of 50 million rows through `Table.query`, with an index of its rows, and sorted.

| figure | |
|---|---|
| key | `SELECT * … WHERE key = X`, X random and present; a bitmap of `key`, its head in memory |
| sorted | the same by `id`, which the file is sorted by |
| top | `SELECT … ORDER BY key DESC LIMIT 10`: by page maxima alone; upwards too, and by `val`, a
double: the facts of `val` say that there is no NaN, which would be the largest |

The index is built once and kept; the time and the size are shown with the figure. Warm is a
process that has asked for long: by then compiled code decodes dictionaries. The engines that read
everything run a few times.
"""

from __future__ import annotations

import json
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import skipstone

from .engine_peers import asked, least, milliseconds, read_so_far, same_rows
from .figure import Figure, Peer, interleaved, median
from .parquet_big import ROW_GROUPS, VERSION, keys_of, lay_big, rows_per_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from .workbench import Workbench

__all__ = ["figures"]

_RUNS = 60
_FEW_RUNS = 3
_KEY_MS, _KEY_BYTES, _TOP, _SORTED = 1.5, 1_000_000, 5.0, 1.0
# Lookups before any that counts; the peers need none.
_BEFORE = 600
# What a task may hold: the dictionary of all keys is written from memory.
_MEMORY = 12 << 30


def figures(bench: Workbench) -> Iterator[Figure]:
    """All of them, over one file."""
    factor = bench.sizes.parquet_factor
    folder = bench.generated(
        "parquet-big", partial(lay_big, factor=factor), factor=factor, version=VERSION
    )
    table, built = _indexed(bench, folder)
    peers = asked(str(folder))
    with (folder / "big.parquet").open("rb") as file:
        while file.read(1 << 24):  # into the page cache
            pass
    source, total = random.Random(19), ROW_GROUPS * rows_per_group(factor)
    for _ in range(bench.sizes.repeated(_BEFORE)):
        table.query(f"id = {source.randrange(total)}")
    yield _key(table, peers, factor, built)
    yield _sorted(table, peers, factor)
    for order in ("key desc", "key", "val desc", "val"):
        yield _top(table, peers, order)


def _indexed(bench: Workbench, folder: Path) -> tuple[skipstone.Table, dict[str, Any]]:
    """The table with a bitmap of ``key`` and bounds of ``val``, and what building it took."""

    def make(to: Path) -> None:
        started, busy = time.perf_counter(), time.process_time()
        table = skipstone.Table(str(folder), index_location=str(to / "index"))
        report = table.build(indexes=["key:bitmap", "val:minmax"], memory=_MEMORY)
        built = {
            "build_seconds": time.perf_counter() - started,
            "build_processor_seconds": time.process_time() - busy,
            "index_bytes": sum(each.stat().st_size for each in to.rglob("*") if each.is_file()),
            "report": str(report),
        }
        (to / "built.json").write_text(json.dumps(built))

    stamp = (folder / "big.parquet").stat().st_mtime_ns
    home = bench.generated("engine-big", make, of=stamp, version=2)
    table = skipstone.Table(str(folder), index_location=str(home / "index"))
    return table, json.loads((home / "built.json").read_text())


def _ours(table: skipstone.Table) -> Callable[[str], pa.Table]:
    return lambda text: table.query(text.partition(" WHERE ")[2])


def _asked_in_turn(
    table: skipstone.Table, peers: dict[str, Callable[[str], pa.Table]], questions: list[str]
) -> tuple[dict[str, list[float]], list[int]]:
    """Seconds by engine, and the bytes of each of our questions; the rows must be equal."""
    ours = _ours(table)
    tables = {name: way(questions[0]) for name, way in {"skipstone": ours, **peers}.items()}
    same_rows(tables, "id")
    for question in questions[:10]:
        ours(question)
    turn = iter(questions * 20)
    taken = interleaved(_FEW_RUNS, {name: partial(_ask, way, turn) for name, way in peers.items()})
    taken["skipstone"], read = [], []
    for question in questions[10:]:
        before, started = read_so_far(), time.perf_counter()
        found = ours(question)
        taken["skipstone"].append(time.perf_counter() - started)
        read.append(read_so_far() - before)
        if found.num_rows != 1:
            raise AssertionError(f"{found.num_rows} rows for {question}")
    return taken, read


def _ask(way: Callable[[str], pa.Table], questions: Iterator[str]) -> None:
    way(next(questions))


def _key(
    table: skipstone.Table,
    peers: dict[str, Callable[[str], pa.Table]],
    factor: float,
    built: dict[str, Any],
) -> Figure:
    source, rows = random.Random(23), rows_per_group(factor)
    groups = [keys_of(source.randrange(ROW_GROUPS), rows) for _ in range(_RUNS // 6)]
    keys = [int(source.choice(groups)[source.randrange(rows)]) for _ in range(_RUNS)]
    questions = [f"SELECT * FROM t WHERE key = {key}" for key in dict.fromkeys(keys)]
    wall, read = _asked_in_turn(table, peers, questions)
    taken = milliseconds(wall)
    mine = taken.pop("skipstone")
    peer, theirs = least(taken)
    most = int(median([float(each) for each in read]))
    plan = table.plan(questions[-1].partition(" WHERE ")[2])
    return Figure(
        name="engine_big.key",
        value=mine,
        unit="ms",
        peer=Peer(what=f"{peer}, the fastest of four", value=theirs),
        ratio=theirs / mine,
        target=f"<= {_KEY_MS:g} ms and <= 1 MB",
        met=mine <= _KEY_MS and most <= _KEY_BYTES,
        details={
            "bytes": most,
            "peers_ms": taken,
            "fastest_ms": min(wall["skipstone"]) * 1e3,
            "planning_ms": dict(plan.milliseconds),
            "reasons": [str(reason) for reason in plan.reasons],
            "asked_before": _BEFORE,
            **built,
        },
    )


def _sorted(
    table: skipstone.Table, peers: dict[str, Callable[[str], pa.Table]], factor: float
) -> Figure:
    """Against the same lookup of ``ParquetFile``, which needs no listing and no facts."""
    source, total = random.Random(29), ROW_GROUPS * rows_per_group(factor)
    questions = [f"SELECT * FROM t WHERE id = {source.randrange(total)}" for _ in range(_RUNS)]
    wall, read = _asked_in_turn(table, {"datafusion": peers["datafusion"]}, questions)
    taken = milliseconds(wall)
    return Figure(
        name="engine_big.sorted",
        value=taken["skipstone"],
        unit="ms",
        peer=Peer(what="datafusion", value=taken["datafusion"]),
        ratio=taken["skipstone"] / taken["datafusion"],
        target=f"ours / DataFusion <= {_SORTED:g}",
        met=taken["skipstone"] <= _SORTED * taken["datafusion"],
        details={
            "bytes": median([float(each) for each in read]),
            "fastest_ms": min(wall["skipstone"]) * 1e3,
            "fastest_peer_ms": min(wall["datafusion"]) * 1e3,
        },
    )


def _top(table: skipstone.Table, peers: dict[str, Callable[[str], pa.Table]], order: str) -> Figure:
    text = f"SELECT * FROM t ORDER BY {order} LIMIT 10"

    def ours() -> pa.Table:
        return table.query(order_by=order, limit=10)

    def theirs() -> pa.Table:
        return peers["duckdb"](text)

    same_rows({"skipstone": ours(), "duckdb": theirs()}, "id")
    before = read_so_far()
    ours()
    read = read_so_far() - before
    wall = interleaved(3 * _FEW_RUNS, {"skipstone": ours, "duckdb": theirs})
    taken = milliseconds(wall)
    ratio = taken["duckdb"] / taken["skipstone"]
    return Figure(
        name=f"engine_big.top {order}",
        value=taken["skipstone"],
        unit="ms",
        peer=Peer(what="duckdb", value=taken["duckdb"]),
        ratio=ratio,
        target=f">= {_TOP:g} x faster",
        met=ratio >= _TOP,
        details={"bytes": read, "fastest_ms": {who: min(each) * 1e3 for who, each in wall.items()}},
    )
