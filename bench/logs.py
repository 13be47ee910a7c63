"""Text in web logs: what n-grams skip, beside engines that scan, and Spark.

Messages of about 200 characters: address, time, one of 2,000 paths, status, bytes, one of 60 user
agents, and a trace id of 32 hexadecimal digits. A rare path, a rare user agent and each trace id
are in one file; `Mozilla` is in every message.

| figure | |
|---|---|
| rare path, rare agent, trace id, any case, regex | in one file: at least 20 x the fastest peer |
| frequent | in all files: not behind |
| large files, trace id | the same lines in files of eight row groups: one row group is read |
| long row groups, trace id | the same lines in one row group: a few pages are read |
| index size | at most 10 % of the text |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import skipstone

from .engine_peers import engines
from .figure import Figure
from .lake_queries import Query, compared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .workbench import Workbench

__all__ = ["figures"]

SEED, VERSION = 20_261_126, 1
_AHEAD, _EQUAL, _LARGEST = 20.0, 0.95, 0.1
_GROUPS = 8
_RARE_PATH, _RARE_AGENT = "/admin/export/zebra-crossing.csv", "Vexatious-Crawler/7.31"
_WORDS = ("orders", "users", "items", "cart", "search", "login", "static", "images")


def _trace(number: int, rows: int) -> pa.Array:
    digits = np.random.default_rng((SEED, number, 1)).integers(0, 16, 32 * rows, dtype=np.uint8)
    letters = np.frombuffer(b"0123456789abcdef", np.uint8)[digits]
    ends = np.arange(0, 32 * rows + 1, 32, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(letters)]
    )


def lay_logs(folder: Path, files: int, rows: int, groups: int = 1) -> None:
    """Write the files into ``folder``, each of this many row groups."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [f"/api/v{at % 4}/{_WORDS[at % 8]}/{at * 7919 % 9973}" for at in range(2_000)]
    agents = [
        f"Mozilla/5.0 ({system}) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{version}.0.0.0"
        for system in ("X11; Linux x86_64", "Windows NT 10.0; Win64; x64", "Macintosh")
        for version in range(100, 120)
    ]
    for number in range(files):
        rng = np.random.default_rng((SEED, number))

        def drawn(values: list[str], rng: np.random.Generator = rng) -> pa.Array:
            return pa.array(values).take(pa.array(rng.integers(0, len(values), rows)))

        def numbers(least: int, most: int, rng: np.random.Generator = rng) -> pa.Array:
            return pa.array(rng.integers(least, most, rows)).cast(pa.string())

        path, agent = drawn(paths).to_pylist(), drawn(agents).to_pylist()
        if number == files // 2:
            path[rows // 3] = _RARE_PATH
        if number == files // 3:
            agent[rows // 2] = _RARE_AGENT
        message = pc.binary_join_element_wise(
            *(numbers(1, 256) for _ in range(4)),
            ".",
        )
        message = pc.binary_join_element_wise(
            message, ' "GET ', path, ' HTTP/1.1" ', drawn(["200"] * 9 + ["404", "500"]), " ",
            numbers(200, 90_000), ' "', agent, '" trace=', _trace(number, rows), " ms=",
            numbers(1, 900), "",
        )  # fmt: skip
        ids = pa.array(np.arange(number * rows, (number + 1) * rows))
        table = pa.table({"id": ids, "message": message})
        file = folder / f"part-{number:05d}.parquet"
        pq.write_table(table, file, compression="zstd", row_group_size=-(-rows // groups))


def figures(bench: Workbench) -> Iterator[Figure]:
    """All of them, over the files that the bench has."""
    files, rows = bench.sizes.files, bench.sizes.rows_per_file
    folder = bench.generated(
        "logs",
        lambda to: lay_logs(to / "table", files, rows),
        files=files,
        rows=rows,
        version=VERSION,
    )
    path = str(folder / "table")
    table = skipstone.Table(path, index_location=str(folder / "index"))
    table.build(indexes=["message:ngram"])
    trace = str(_trace(files // 4, rows)[rows // 5])

    def rows_of(name: str, where: str, target: float) -> Query:
        return Query(
            name=name,
            sql=f"SELECT id, message FROM t WHERE {where}",
            ask=lambda table: table.query(where, ["id", "message"]),
            target=target,
        )

    peers = engines(path)
    bench.spark.read.parquet(path).createOrReplaceTempView("t")
    peers["spark"] = lambda sql: bench.spark.sql(sql).toArrow()
    for query in (
        rows_of("rare path", f"message LIKE '%{_RARE_PATH[13:-4]}%'", _AHEAD),
        rows_of("rare agent", f"message LIKE '%{_RARE_AGENT}%'", _AHEAD),
        rows_of("trace id", f"message LIKE '%{trace}%'", _AHEAD),
        rows_of("any case", "lower(message) LIKE '%vexatious-crawler%'", _AHEAD),
        Query(
            name="frequent",
            sql="SELECT count(*) AS rows FROM t WHERE message LIKE '%Mozilla%'",
            ask=lambda table: table.count("message LIKE '%Mozilla%'"),
            target=_EQUAL,
        ),
    ):
        yield compared(bench, query, table, peers, "logs")
    yield from _skipped(bench, path, str(folder / "index"), trace)
    yield _size(table, path, "index size")
    yield from _large(bench, "large files", "large-logs", _GROUPS)
    yield from _large(bench, "long row groups", "long-logs", 1)


def _large(bench: Workbench, name: str, place: str, groups: int) -> Iterator[Figure]:
    """A trace id in large files: their long grams are in the filters of row groups, or of parts of
    large ones."""
    files, rows = max(bench.sizes.files // _GROUPS, 1), bench.sizes.rows_per_file * _GROUPS
    folder = bench.generated(
        place,
        lambda to: lay_logs(to / "table", files, rows, groups),
        files=files,
        rows=rows,
        version=VERSION,
    )
    path = str(folder / "table")
    table = skipstone.Table(path, index_location=str(folder / "index"))
    table.build(indexes=["message:ngram"])
    where = f"message LIKE '%{_trace(files // 4, rows)[rows // 5]}%'"
    query = Query(
        name=f"{name}, trace id",
        sql=f"SELECT id, message FROM t WHERE {where}",
        ask=lambda table: table.query(where, ["id", "message"]),
        target=_AHEAD,
    )
    yield compared(bench, query, table, engines(path), "logs")
    yield _size(table, path, f"{name}, index size")


def _skipped(bench: Workbench, path: str, index: str, trace: str) -> Iterator[Figure]:
    """The same in Spark: ``skip(df)`` beside plain Spark."""
    plain = bench.spark.read.parquet(path)
    skipping = skipstone.skip(plain, index)
    for name, where, target in (
        ("rare agent", f"message LIKE '%{_RARE_AGENT}%'", _AHEAD),
        ("trace id", f"message LIKE '%{trace}%'", _AHEAD),
        ("frequent", "message LIKE '%Mozilla%'", _EQUAL),
    ):
        ways: dict[str, Callable[[str], pa.Table]] = {
            "plain": lambda where: plain.where(where).selectExpr("count(*) AS rows").toArrow()
        }
        yield compared(
            bench,
            Query(
                name=f"skip {name}",
                sql=where,
                ask=lambda _, where=where: (  # type: ignore[misc]
                    skipping.where(where).selectExpr("count(*) AS rows").toArrow()
                ),
                target=target,
            ),
            skipstone.Table(path, index_location=index),
            ways,
            "logs",
        )


def _size(table: skipstone.Table, path: str, name: str) -> Figure:
    import duckdb

    asked = f"SELECT sum(strlen(message)) FROM read_parquet('{path}/*.parquet')"
    (text,) = duckdb.connect().execute(asked).fetchall()[0]
    told = table.describe()
    index = sum(each.bytes for each in told.indexes)
    share = index / text
    return Figure(
        name=f"logs.{name}",
        value=share,
        unit="of the text",
        target=f"<= {_LARGEST:g} of the text",
        met=share <= _LARGEST,
        details={"index": index, "text": int(text), "files": told.bytes_data},
    )
