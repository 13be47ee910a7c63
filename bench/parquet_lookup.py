"""Lookups in one large Parquet file, against the engines that can do them without Spark.

| figure | |
|---|---|
| point | `select * where id = X` on the sorted column; the peer is DataFusion, page index on |
| absent | a key that no row has, Bloom filters at hand; the peer is DuckDB |
| slice | 1,000 rows of a column by position; the peer is the fastest of pyarrow, polars, DuckDB |

Warm means the same on both sides: the process, the page cache and the parsed metadata, of all row
groups. Every lookup asks for another value, so no answer is remembered; a run is several in a row,
and counts with their mean. The lines `… anew` open the file for every
lookup. The bytes of engines are counted by the system calls of this process (`rchar`), ours by the
requested bytes, with the footer where the file is opened again.
"""

from __future__ import annotations

import itertools
import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipstone import ParquetFile
from skipstone.parquet.encodings import kernels
from skipstone.parquet.format import footer_scan

from .figure import Figure, Peer, interleaved, median
from .parquet_big import ROW_GROUPS, VERSION, absent_keys, lay_big, rows_per_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .workbench import Workbench

__all__ = ["figures"]

_SLICE = 1_000
_RUNS = 25
_IN_A_ROW = 20
_FEW_RUNS = 7
_POINT_TARGET, _POINT_BYTES = 1.3, 800_000
_ABSENT_MS, _ABSENT_BYTES = 0.5, 100_000


def figures(bench: Workbench) -> Iterator[Figure]:
    """All of them, over one file."""
    factor = bench.sizes.parquet_factor
    folder = bench.generated(
        "parquet-big", partial(lay_big, factor=factor), factor=factor, version=VERSION
    )
    path = str(folder / "big.parquet")
    _warm(path)
    total = ROW_GROUPS * rows_per_group(factor)
    runs = min(_RUNS, 3 * bench.sizes.runs)
    yield from _point(path, total, runs)
    yield from _absent(path, runs)
    yield from _slice(path, total, runs)


def _in_a_row(runs: int, works: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Seconds of one lookup, run by run: the mean of several that follow each other."""

    def several(work: Callable[[], object]) -> Callable[[], None]:
        def turn() -> None:
            for _ in range(_IN_A_ROW):
                work()

        return turn

    taken = interleaved(runs, {name: several(work) for name, work in works.items()})
    return {name: [each / _IN_A_ROW for each in times] for name, times in taken.items()}


def _warm(path: str) -> None:
    """The whole file into the page cache, and every compiled loop into the process."""
    with Path(path).open("rb") as file:
        while file.read(1 << 24):
            pass
    for compiled in (kernels.COMPILED, footer_scan.COMPILED):
        compiled.load()


# -- point -----------------------------------------------------------------------------------------


def _point(path: str, total: int, runs: int) -> Iterator[Figure]:
    file = ParquetFile(path)
    ids = _ids(total)
    works: dict[str, Callable[[], object]] = {
        "skipstone": lambda: _one(file.query(f"id = {next(ids)}").num_rows),
        "datafusion": _datafusion(path, ids, pushdown=False),
        "datafusion with pushdown": _datafusion(path, ids, pushdown=True),
    }
    for group in range(ROW_GROUPS):
        file.query(f"id = {group * (total // ROW_GROUPS)}")
    taken = _in_a_row(runs, works)
    slow = interleaved(
        _FEW_RUNS, {"duckdb": _duckdb(path, ids), "polars": _polars(path, ids)}, warm=1
    )
    ours = _ms(taken["skipstone"])
    theirs = min(_ms(taken["datafusion"]), _ms(taken["datafusion with pushdown"]))
    before = file.bytes_read
    file.query(f"id = {next(ids)}")
    read = file.bytes_read - before
    yield Figure(
        name="parquet_lookup.point",
        value=ours,
        unit="ms",
        peer=Peer(what="DataFusion, page index on (the faster of its two filters)", value=theirs),
        ratio=ours / theirs,
        target=f"ours / DataFusion <= {_POINT_TARGET}, at <= 0.8 MB read",
        met=ours / theirs <= _POINT_TARGET and read <= _POINT_BYTES,
        details={
            "bytes": read,
            "datafusion_bytes": _rchar(works["datafusion"]),
            **_all({**taken, **slow}),
        },
    )
    works = {
        "skipstone": lambda: _one(ParquetFile(path).query(f"id = {next(ids)}").num_rows),
        "datafusion": lambda: _datafusion(path, ids, pushdown=True)(),
    }
    taken = interleaved(runs, works, warm=2)
    anew = ParquetFile(path)
    anew.query(f"id = {next(ids)}")
    ours, theirs = _ms(taken["skipstone"]), _ms(taken["datafusion"])
    yield Figure(
        name="parquet_lookup.point anew",
        value=ours,
        unit="ms",
        peer=Peer(what="DataFusion, a new session", value=theirs),
        ratio=ours / theirs,
        target=None,
        details={"bytes": anew.bytes_read, **_all(taken)},
    )


def _ids(total: int) -> Iterator[int]:
    source = random.Random(7)
    while True:
        yield source.randrange(total)


def _one(rows: int) -> None:
    if rows != 1:
        raise ValueError(f"{rows} rows instead of 1")


def _datafusion(path: str, ids: Iterator[int], *, pushdown: bool) -> Callable[[], object]:
    import datafusion

    config = datafusion.SessionConfig()
    config = config.set("datafusion.execution.parquet.enable_page_index", "true")
    if pushdown:
        config = config.set("datafusion.execution.parquet.pushdown_filters", "true")
    session = datafusion.SessionContext(config)
    session.register_parquet("t", path)

    def look() -> None:
        batches = session.sql(f"select * from t where id = {next(ids)}").collect()
        _one(sum(batch.num_rows for batch in batches))

    return look


def _duckdb(path: str, ids: Iterator[int]) -> Callable[[], object]:
    import duckdb

    session = duckdb.connect()
    session.execute("SET parquet_metadata_cache = true")
    return lambda: _one(
        session.sql(f"select * from '{path}' where id = {next(ids)}").to_arrow_table().num_rows
    )


def _polars(path: str, ids: Iterator[int]) -> Callable[[], object]:
    import polars as pl

    return lambda: _one(pl.scan_parquet(path).filter(pl.col("id") == next(ids)).collect().height)


# -- absent ----------------------------------------------------------------------------------------


def _absent(path: str, runs: int) -> Iterator[Figure]:
    import duckdb

    file = ParquetFile(path)
    # Some keys have a false positive in one filter or another, and read a chunk more for it.
    keys = [key for key in absent_keys(40 * runs) if not file.plan(f"key = {key}").files_kept]
    turn = itertools.cycle(keys)
    session = duckdb.connect()
    session.execute("SET parquet_metadata_cache = true")

    def duck() -> None:
        found = session.execute(f"select count(*) from '{path}' where key = {next(turn)}")
        assert found.fetchall() == [(0,)]

    def ours() -> None:
        assert not file.query(f"key = {next(turn)}").num_rows

    taken = _in_a_row(runs, {"skipstone": ours})
    slow = interleaved(_FEW_RUNS, {"duckdb": duck})
    before = file.bytes_read
    ours()
    read = file.bytes_read - before
    mine, theirs = _ms(taken["skipstone"]), _ms(slow["duckdb"])
    yield Figure(
        name="parquet_lookup.absent",
        value=mine,
        unit="ms",
        peer=Peer(what="DuckDB", value=theirs),
        ratio=mine / theirs,
        target=f"<= {_ABSENT_MS} ms at <= 100 kB read",
        met=mine <= _ABSENT_MS and read <= _ABSENT_BYTES,
        details={
            "bytes": read,
            "duckdb_bytes": _rchar(duck),
            "keys_without_false_positive": len(keys) / (40 * runs),
            **_all({**taken, **slow}),
        },
    )
    taken = interleaved(
        runs, {"skipstone": lambda: ParquetFile(path).query(f"key = {next(turn)}")}, warm=2
    )
    anew = ParquetFile(path)
    anew.query(f"key = {next(turn)}")
    yield Figure(
        name="parquet_lookup.absent anew",
        value=_ms(taken["skipstone"]),
        unit="ms",
        details={"bytes": anew.bytes_read, **_all(taken)},
    )


# -- slice -----------------------------------------------------------------------------------------


def _slice(path: str, total: int, runs: int) -> Iterator[Figure]:
    import duckdb
    import polars as pl
    import pyarrow.parquet as pq

    rows = min(_SLICE, total // 10)
    source = random.Random(11)
    file = ParquetFile(path)
    session = duckdb.connect()
    session.execute("SET parquet_metadata_cache = true")
    whole = pq.ParquetFile(path)
    group_rows = total // ROW_GROUPS
    lazy = pl.scan_parquet(path).select("val")

    def start() -> int:
        return source.randrange(total - rows)

    def duck() -> None:
        at = start()
        found = session.sql(
            f"select val from read_parquet('{path}', file_row_number = true) "
            f"where file_row_number >= {at} and file_row_number < {at + rows}"
        )
        assert found.to_arrow_table().num_rows == rows

    def ours(of: Callable[[], ParquetFile]) -> None:
        at = start()
        assert of().read_rows(["val"], [(at, at + rows)]).num_rows == rows

    def polar() -> None:
        assert lazy.slice(start(), rows).collect().height == rows

    def arrow() -> None:
        at = start()
        first, last = at // group_rows, (at + rows - 1) // group_rows
        found = whole.read_row_groups(list(range(first, last + 1)), columns=["val"])
        assert found.slice(at - first * group_rows, rows).num_rows == rows

    taken = _in_a_row(
        runs,
        {
            "skipstone": lambda: ours(lambda: file),
            "skipstone anew": lambda: ours(lambda: ParquetFile(path)),
            "duckdb": duck,
            "polars": polar,
        },
    )
    slow = interleaved(3, {"pyarrow": arrow})
    every = {name: _ms(times) for name, times in {**taken, **slow}.items()}
    mine, again = every.pop("skipstone"), every.pop("skipstone anew")
    fastest = min(every, key=lambda name: every[name])
    before = file.bytes_read
    ours(lambda: file)
    details: dict[str, Any] = {"bytes": file.bytes_read - before, **_all({**taken, **slow})}
    yield Figure(
        name="parquet_lookup.slice",
        value=mine,
        unit="ms",
        peer=Peer(what=f"{fastest}, the fastest of three", value=every[fastest]),
        ratio=mine / every[fastest],
        target="ours / the fastest <= 1",
        met=mine <= every[fastest],
        details=details,
    )
    yield Figure(
        name="parquet_lookup.slice anew",
        value=again,
        unit="ms",
        peer=Peer(what=fastest, value=every[fastest]),
        ratio=again / every[fastest],
    )


# -- all -------------------------------------------------------------------------------------------


def _ms(seconds: list[float]) -> float:
    return median(seconds) * 1e3


def _all(taken: dict[str, list[float]]) -> dict[str, Any]:
    """Median and least of each, in milliseconds."""
    return {name: {"median": _ms(each), "min": min(each) * 1e3} for name, each in taken.items()}


def _rchar(work: Callable[[], object]) -> int:
    """Bytes that one call reads by system calls of this process."""
    before = _read_so_far()
    work()
    return _read_so_far() - before


def _read_so_far() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])
    return 0
