"""`Table.query` in this process against the engines that read the same files without Spark.

| figure | |
|---|---|
| needle | one of all keys; ranges of keys exclude no file, a Bloom filter per file does |
| absent | a key that no file has |
| bytes | what a needle reads, against the pages that hold its row |
| rare pair | two columns of few values with AND, whose values rarely occur together: every page has
both |
| scan | all rows, and nine in ten of them, where there is nothing to skip |

All run the same query in turns, every time with another value; if the rows differ, there is no
figure. Warm is the same for all: process, page cache, footers.
"""

from __future__ import annotations

import gc
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import skipstone
from skipstone import ParquetFile

from .engine_peers import asked, least, milliseconds, read_so_far, same_rows
from .events import absent_keys, present_keys
from .figure import Figure, Peer, interleaved
from .needle import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .workbench import Workbench

__all__ = ["figures"]

_NEEDLE, _ABSENT, _BYTES, _PAIR, _SCAN = 20.0, 50.0, 2.0, 10.0, 1.3
_FINEST, _BEFORE, _IN_A_ROW = 0.0001, 300, 4
_SCANNED = 0.1  # of the files of events
_PAIR_FILES, _PAIR_VALUES, _PAIR_VERSION = 10, 100, 1


def figures(bench: Workbench) -> Iterator[Figure]:
    """All of them."""
    yield from _needle(bench)
    yield _pair(bench)
    yield from _scan(bench)


def turns(
    ways: dict[str, Callable[[str], pa.Table]], questions: Sequence[str], order: str, warm: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds by the wall and of this process's processors, per way, for all questions in turns.

    A turn is a few questions in a row: the first finds the processor's caches full of what the
    others have read. pyarrow, which decodes every row of the column, is asked the first few alone.
    """
    wall: dict[str, list[float]] = {name: [] for name in ways}
    busy: dict[str, list[float]] = {name: [] for name in ways}
    for first in range(0, len(questions), _IN_A_ROW):
        gc.collect()
        row = questions[first : first + _IN_A_ROW]
        tables: list[dict[str, pa.Table]] = [{} for _ in row]
        for name, way in ways.items():
            for turn, question in enumerate(row, first):
                if name == "pyarrow" and turn > warm:
                    continue
                started, before = time.perf_counter(), time.process_time()
                tables[turn - first][name] = way(question)
                if turn >= warm:
                    wall[name].append(time.perf_counter() - started)
                    busy[name].append(time.process_time() - before)
        for each in tables:
            same_rows(each, order)
    return wall, busy


def _ours(table: skipstone.Table) -> Callable[[str], pa.Table]:
    return lambda text: table.query(text.partition(" WHERE ")[2] or None)


# -- needle ----------------------------------------------------------------------------------------


def _needle(bench: Workbench) -> Iterator[Figure]:
    default, _ = events(bench)
    finest = skipstone.Table(default.path, index_location=str(Path(default.path).parent / "finest"))
    finest.build(indexes=[f"key:bloom(fpp={_FINEST})"])
    for table, suffix in ((finest, ""), (default, ".default filters")):
        yield from _keys(bench, table, suffix)
    files, rows, runs = bench.sizes.files, bench.sizes.rows_per_file, bench.sizes.runs
    yield _bytes(finest, present_keys(files, rows, 4 * (2 + runs))[2 * (2 + runs) :], rows)


def _keys(bench: Workbench, table: skipstone.Table, suffix: str) -> Iterator[Figure]:
    """A key of one row, and one of none, by this index."""
    files, rows = bench.sizes.files, bench.sizes.rows_per_file
    warm, runs = min(2, bench.sizes.runs), bench.sizes.runs
    ways = {"skipstone": _ours(table), **asked(table.path)}
    # A process that asks for long: by then files are looked at and decoded by compiled code.
    for key in present_keys(files, rows, _BEFORE):
        table.query(f"key = {key}")
    for name, keys, target in (
        ("needle", present_keys(files, rows, warm + runs), _NEEDLE),
        ("absent", absent_keys(warm + runs), _ABSENT),
    ):
        questions = [f"SELECT * FROM t WHERE key = {key}" for key in keys]
        for question in questions:
            ways["skipstone"](question)  # footers that the peers have at hand, too
        wall, busy = turns(ways, questions, "ts", warm)
        taken = milliseconds(wall)
        mine = taken.pop("skipstone")
        peer, theirs = least(taken)
        yield Figure(
            name=f"engine.{name}{suffix}",
            value=mine,
            unit="ms",
            peer=Peer(what=f"{peer}, the fastest of four", value=theirs),
            ratio=theirs / mine,
            target=f">= {target:g} x faster than each",
            met=theirs / mine >= target,
            details={
                "files": files,
                "rows": files * rows,
                "index_bytes": table.describe().bytes_index,
                "peers_ms": taken,
                "fastest_ms": min(wall["skipstone"]) * 1e3,
                "processor_ms": milliseconds(busy),
                "planning_ms": dict(table.plan(questions[-1].partition(" WHERE ")[2]).milliseconds),
                "asked_before": _BEFORE,
            },
        )


def _bytes(table: skipstone.Table, keys: Sequence[int], rows: int) -> Figure:
    """The bytes that a warm needle reads, by the system calls of this process."""
    read, held = [], []
    for key in keys:
        table.query(f"key = {key}")
        before = read_so_far()
        (row,) = table.query(f"key = {key}").to_pylist()
        read.append(read_so_far() - before)
        (path,) = _files_of(table, key)
        held.append(pages_of(path, [row["ts"] % rows]))
    mine, pages = float(np.median(read)), float(np.median(held))
    return Figure(
        name="engine.bytes",
        value=mine,
        unit="bytes",
        peer=Peer(what="the pages that hold the row, all columns", value=pages),
        ratio=mine / pages,
        target=f"<= {_BYTES:g} x",
        met=mine <= _BYTES * pages,
        details={"keys": len(keys), "most": max(read), "least": min(read)},
    )


def _files_of(table: skipstone.Table, key: int) -> list[str]:
    plan = table.plan(f"key = {key}")
    kept = [plan.listing.paths[at] for at in np.flatnonzero(plan.keep).tolist()]
    return [path for path in kept if ParquetFile(path).query(f"key = {key}").num_rows]


def pages_of(path: str, rows: Iterable[int]) -> int:
    """Stored bytes of the pages that hold ``rows`` of a file, over all columns, with the
    dictionaries that they need."""
    file = ParquetFile(path)
    starts = np.asarray(file.row_starts)
    pages = file.pages()
    group, leaf = (pages.column(name).to_numpy() for name in ("row_group", "leaf"))
    size = pages.column("compressed_size").to_numpy()
    first = np.nan_to_num(pages.column("first_row_index").to_numpy(), nan=-1)
    held = np.nan_to_num(pages.column("num_rows").to_numpy(), nan=-1)
    begin = first + starts[group]
    wanted = np.zeros(len(pages), np.bool_)
    for row in rows:
        wanted |= (first >= 0) & (begin <= row) & (row < begin + held)
    touched = set(zip(group[wanted].tolist(), leaf[wanted].tolist(), strict=True))
    places = zip(group.tolist(), leaf.tolist(), strict=True)
    wanted |= (first < 0) & np.array([each in touched for each in places])
    return int(size[wanted].sum())


# -- rare pair -------------------------------------------------------------------------------------


def _lay_pairs(folder: Path, files: int, rows: int) -> None:
    """``a`` and ``b`` have each of their values in every page, and 7 meets 7 three times in all."""
    (folder / "table").mkdir(parents=True)
    for number in range(files):
        rng = np.random.default_rng((1_117, number))
        a, b = (rng.integers(0, _PAIR_VALUES, rows).astype(np.int32) for _ in range(2))
        b[(a == b)] = (b[a == b] + 1) % _PAIR_VALUES
        if number in (1, files // 2, files - 1):
            a[rows // 3] = b[rows // 3] = 7
        table = pa.table(
            {
                "id": np.arange(rows, dtype=np.int64) + number * rows,
                "a": a,
                "b": b,
                "amount": rng.random(rows),
            }
        )
        to = folder / "table" / f"part-{number:03d}.parquet"
        pq.write_table(table, to, use_dictionary=["a", "b"], write_page_index=True)


def _pair(bench: Workbench) -> Figure:
    rows = 20 * bench.sizes.rows_per_file
    folder = bench.generated(
        "engine-pairs",
        lambda to: _lay_pairs(to, _PAIR_FILES, rows),
        files=_PAIR_FILES,
        rows=rows,
        version=_PAIR_VERSION,
    )
    table = skipstone.Table(str(folder / "table"))
    table.build(indexes=["a:bitmap", "b:bitmap"])
    ways = {"skipstone": _ours(table), **asked(table.path)}
    question = "SELECT * FROM t WHERE a = 7 AND b = 7"
    warm, runs = min(2, bench.sizes.runs), bench.sizes.runs
    wall, _ = turns(ways, [question] * (warm + runs), "id", warm)
    read: dict[str, float] = {}
    for name, way in ways.items():
        before = read_so_far()
        found = way(question)
        read[name] = read_so_far() - before
    mine = read.pop("skipstone")
    ids = found.column("id").to_pylist()
    pages = sum(
        pages_of(path, [one % rows for one in ids if one // rows == number])
        for number, path in enumerate(table.listing().paths)
    )
    mapped = {name: value for name, value in read.items() if value < pages / 10}
    peer, theirs = least({name: value for name, value in read.items() if name not in mapped})
    taken = milliseconds(wall)
    return Figure(
        name="engine.rare pair",
        value=mine,
        unit="bytes",
        peer=Peer(what=f"{peer}, which reads least", value=theirs),
        ratio=theirs / mine,
        target=f"pages with hits only, >= {_PAIR:g} x fewer bytes",
        met=theirs / mine >= _PAIR and mine <= _BYTES * pages,
        details={
            "rows": _PAIR_FILES * rows,
            "hits": len(ids),
            "pages_with_hits": pages,
            "peers_bytes": read,
            "not_counted_as_mapped": sorted(mapped),
            "ms": taken,
            "index_bytes": _below(Path(table.location.root)),
        },
    )


def _below(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


# -- scan ------------------------------------------------------------------------------------------


def _scan(bench: Workbench) -> Iterator[Figure]:
    """A tenth of the files; batches are counted and let go."""
    _, whole = events(bench)
    files = max(2, int(_SCANNED * bench.sizes.files))
    folder = bench.generated(
        "engine-scan", lambda to: _link(Path(whole.path), to / "table", files), files=files
    )
    table = skipstone.Table(str(folder / "table"))
    table.build(indexes=["key:bloom(fpp=0.01)", "ts:minmax"])
    dataset = ds.dataset(table.path, format="parquet")
    runs = max(1, bench.sizes.runs // 2)
    below = ds.field("amount") < 9_000.0
    for name, where, tests in (("whole", None, None), ("nine in ten", "amount < 9000.0", below)):
        if not table.query(where).equals(dataset.to_table(filter=tests)):
            raise AssertionError(f"the rows differ: {where}")
        works: dict[str, Callable[[], object]] = {
            "query": partial(table.query, where),
            "batches": partial(_batches, table, where),
            "pyarrow table": partial(dataset.to_table, filter=tests),
            "pyarrow batches": partial(_counted, dataset, tests),
        }
        wall = interleaved(runs, works)
        taken = milliseconds(wall)
        for ours, theirs in (("query", "pyarrow table"), ("batches", "pyarrow batches")):
            ratio = taken[ours] / taken[theirs]
            yield Figure(
                name=f"engine.scan {name}, {ours}",
                value=taken[ours],
                unit="ms",
                peer=Peer(what=f"{theirs} of its dataset", value=taken[theirs]),
                ratio=ratio,
                target=f"<= {_SCAN:g} x",
                met=ratio <= _SCAN,
                details={
                    "files": files,
                    "rows": files * bench.sizes.rows_per_file,
                    "fastest_ms": {each: min(wall[each]) * 1e3 for each in (ours, theirs)},
                },
            )


def _link(source: Path, to: Path, files: int) -> None:
    to.mkdir(parents=True)
    for each in sorted(source.glob("*.parquet"))[:files]:
        os.link(each, to / each.name)


def _batches(table: skipstone.Table, where: str | None) -> int:
    return sum(batch.num_rows for batch in table.scan(where).to_batches())


def _counted(dataset: ds.Dataset, tests: ds.Expression | None) -> int:
    return sum(batch.num_rows for batch in dataset.to_batches(filter=tests))
