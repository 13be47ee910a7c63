"""Everyday queries over the lake (``lake.py``), whether an index helps or not, beside engines that
need none.

| figure | an index |
|---|---|
| one user, absent user, id | decides: at least 20, 100 and 10 x faster than the fastest peer |
| user or id | decides: at least 5 x faster |
| time, 100 users | decides, for peers too in part: not behind |
| rare pair, half, top amount, null, count, sum, like, like inside | excludes no file: not behind |
| ten | bounds in the facts, then pages |
| keys of a few files, a million users | keys in a Parquet file, which peers join with: not behind |
| planning keys | a million keys against the filters of all files: at most 2 s |
| index size | two Bloom filters, two ranges and two lists of values: at most 4 % of the data |
| an expression | decides: the upper case of a user, which has an index of its own |
| the same with row indexes | bitmaps and a range bitmap decide the rows |

All run the same query in turns, several times in a row each; if the rows differ, there is no
figure. The first run of a row counts apart, as ``paused_ms``: while the others run, which takes up
to ten seconds, the caches of the processor and of the machine around it forget what it needs.
"""

from __future__ import annotations

import datetime
import gc
import time
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import skipstone

from .engine_peers import engines, least, milliseconds, read_so_far
from .figure import Figure, Peer
from .lake import INDEXES, USERS, VERSION, ids_of, lay_lake, users_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .workbench import Workbench

__all__ = ["Query", "compared", "figures"]

ROW_INDEXES = ("country:bitmap", "kind:bitmap", "referrer:bitmap", "amount:rangebitmap")
_USER, _ABSENT, _ID, _AHEAD, _EQUAL = 20.0, 100.0, 10.0, 5.0, 1.0
# How often a query is asked after a first time, before the next engine is asked.
_IN_A_ROW = 3
# Of the data, all facts included.
_LARGEST = 0.04
_FIRST_MICROSECOND = 1_767_225_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """``sql`` for the peers, ``ask`` for a table; ``target`` is how far ahead of the best peer."""

    name: str
    sql: str
    ask: Callable[[skipstone.Table], Any]
    target: float


def figures(bench: Workbench) -> Iterator[Figure]:
    """All of them, then those that row indexes decide."""
    files, rows = bench.sizes.files, bench.sizes.rows_per_file
    folder = bench.generated(
        "lake",
        lambda to: lay_lake(to / "table", files, rows),
        files=files,
        rows=rows,
        version=VERSION,
    )
    path = str(folder / "table")
    table = skipstone.Table(path, index_location=str(folder / "index"))
    table.build(indexes=list(INDEXES))
    queries = [*_queries(files, rows), *_key_queries(folder, files, rows)]
    peers = engines(path)
    for query in queries:
        if bench.wants(f"lake_queries.{query.name}"):
            yield compared(bench, query, table, peers, "lake_queries")
    if bench.wants("lake_queries.planning a million keys"):
        yield from _planning_keys(table, files, rows)
    told = table.describe()
    share = told.bytes_index / told.bytes_data
    yield Figure(
        name="lake_queries.index size",
        value=share,
        unit="of the data",
        target=f"<= {_LARGEST:g} of the data",
        met=share <= _LARGEST,
        details={"bytes": {f"{each.column} {each.name}": each.bytes for each in told.indexes}},
    )
    capitals = _of_expression(files, rows)
    if bench.wants(f"lake_queries.{capitals.name}"):
        expressions = skipstone.Table(path, index_location=str(folder / "expressions"))
        expressions.build(indexes=["upper(user_id):bloom"], memory=4 << 30)
        yield compared(bench, capitals, expressions, peers, "lake_queries")
    prefix = "lake_queries.row indexes"
    if not bench.wants(prefix):
        return
    of_rows = skipstone.Table(path, index_location=str(folder / "rows"))
    of_rows.build(indexes=[*INDEXES, *ROW_INDEXES], memory=4 << 30)
    for query in queries:
        decided = query.name in ("rare pair", "half", "top amount", "null", "count", "ten")
        if decided and bench.wants(f"{prefix}.{query.name}"):
            yield compared(bench, query, of_rows, peers, prefix)


def _of_expression(files: int, rows: int) -> Query:
    where = f"upper(user_id) = 'U-{int(users_of(files // 2, rows)[rows // 2]):07d}'"
    return Query(
        name="one user in capitals",
        sql=f"SELECT * FROM t WHERE {where}",
        ask=lambda table: table.query(where),
        target=_AHEAD,
    )


def _queries(files: int, rows: int) -> Iterator[Query]:
    user = f"u-{int(users_of(files // 2, rows)[rows // 2]):07d}"
    known = int(ids_of(files // 2, rows)[rows // 3])
    rng = np.random.default_rng(9)
    many = ", ".join(f"'u-{number:07d}'" for number in rng.integers(0, USERS, 100))
    start = _FIRST_MICROSECOND + (files // 3) * rows * 1_000
    begin, end = (_text(start + at * rows * 1_000 // 10) for at in (1, 3))

    def whole(name: str, where: str, target: float) -> Query:
        return Query(
            name=name,
            sql=f"SELECT * FROM t WHERE {where}",
            ask=lambda table: table.query(where),
            target=target,
        )

    def some(name: str, where: str, columns: list[str], target: float) -> Query:
        return Query(
            name=name,
            sql=f"SELECT {', '.join(columns)} FROM t WHERE {where}",
            ask=lambda table: table.query(where, columns),
            target=target,
        )

    yield whole("one user", f"user_id = '{user}'", _USER)
    yield whole("absent user", "user_id = 'u-2345678x'", _ABSENT)
    yield whole("id", f"id = {known}", _ID)
    yield whole("user or id", f"user_id = '{user}' OR id = {known}", _AHEAD)
    yield Query(
        name="time",
        sql=f"SELECT id, amount FROM t WHERE ts >= '{begin}' AND ts < '{end}'",
        ask=lambda table: table.query(
            f"ts >= timestamp '{begin}' AND ts < timestamp '{end}'", ["id", "amount"]
        ),
        target=_EQUAL,
    )
    yield whole("100 users", f"user_id IN ({many})", _EQUAL)
    yield whole("rare pair", "country = 'c-07' AND kind = 'k-123'", _EQUAL)
    yield some("half", "country >= 'c-20'", ["id", "amount"], _EQUAL)
    yield some("top amount", "amount > 999.99", ["id", "amount"], _EQUAL)
    yield some("null", "referrer IS NULL AND country = 'c-07'", ["id", "user_id"], _EQUAL)
    yield Query(
        name="ten",
        sql="SELECT id, amount FROM t ORDER BY amount DESC LIMIT 10",
        ask=lambda table: table.query(columns=["id", "amount"], order_by="amount desc", limit=10),
        target=_EQUAL,
    )
    yield Query(
        name="count",
        sql="SELECT count(*) AS rows FROM t WHERE country = 'c-07'",
        ask=lambda table: table.count("country = 'c-07'"),
        target=_EQUAL,
    )
    yield Query(name="sum", sql="SELECT sum(amount) FROM t", ask=_sum, target=_EQUAL)
    yield some("like", "user_id LIKE 'u-0001234%'", ["id"], _EQUAL)
    yield some("like inside", "note LIKE '%abcde%'", ["id"], _EQUAL)
    yield some("product", "quantity * 2 > 198", ["id"], _EQUAL)
    yield some("two columns", "quantity * 2 > amount + 197", ["id"], _EQUAL)


def _having(keys: dict[str, pa.Array], table: skipstone.Table) -> pa.Table:
    return table.query(columns=["id"], keys=keys)


def _key_queries(folder: Path, files: int, rows: int) -> Iterator[Query]:
    """Keys of a Parquet file: peers join with it."""
    rng = np.random.default_rng(10)
    near = np.concatenate([ids_of(files // 2 + at, rows)[: 1_000 // 3] for at in range(3)])
    users = [f"u-{number:07d}" for number in rng.integers(0, USERS, 1_000_000)]

    def keyed(name: str, column: str, keys: pa.Array) -> Query:
        file = folder / f"{name.replace(' ', '-')}.parquet"
        pq.write_table(pa.table({column: keys}), file)
        return Query(
            name=name,
            sql=f"SELECT id FROM t WHERE {column} IN (SELECT {column} FROM read_parquet('{file}'))",
            ask=partial(_having, {column: keys}),
            target=_EQUAL,
        )

    yield keyed("keys of a few files", "id", pa.array(near))
    yield keyed("a million users", "user_id", pa.array(users))


def _planning_keys(table: skipstone.Table, files: int, rows: int) -> Iterator[Figure]:
    """A plan for a million keys by the facts alone, mostly absent and mostly present ones."""
    rng = np.random.default_rng(11)
    each = 1_000_000 // files
    present = np.concatenate([ids_of(number, rows)[:each] for number in range(files)])
    for name, keys in (("absent", rng.integers(0, 2**63 - 1, 1_000_000)), ("present", present)):
        took = []
        for _ in range(3):
            before = time.perf_counter()
            plan = table.plan(keys={"id": keys}, inside=False)
            took.append(time.perf_counter() - before)
        yield Figure(
            name=f"lake_queries.planning a million keys, {name}",
            value=min(took) * 1e3,
            unit="ms",
            target="<= 2 s",
            met=min(took) <= 2.0,
            details={"files_kept": plan.files_kept, "files": plan.files_total},
        )


def _text(microseconds: int) -> str:
    at = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=microseconds)
    return f"{at:%Y-%m-%d %H:%M:%S.%f}+00:00"


def _sum(table: skipstone.Table) -> float:
    batches = table.scan(columns=["amount"]).to_batches()
    return sum(float(batch.column(0).to_numpy().sum()) for batch in batches)


def _plain(answer: Any) -> Any:
    """An answer as something to compare: a number, or the sorted rows."""
    if not hasattr(answer, "to_pylist"):
        return round(float(answer), 3)
    table: pa.Table = answer
    if table.num_columns == 1 and table.num_rows == 1 and "id" not in table.column_names:
        return round(float(table.column(0)[0].as_py()), 3)
    return sorted(table.column("id").to_pylist())


def compared(
    bench: Workbench,
    query: Query,
    table: skipstone.Table,
    peers: dict[str, Callable[[str], pa.Table]],
    prefix: str,
    clocks: Mapping[str, Callable[[], float]] | None = None,
) -> Figure:
    """The figure of a query: all ask it in turns. ``clocks`` have the processor time of peers in
    other processes."""
    ways: dict[str, Callable[[], Any]] = {"skipstone": lambda: query.ask(table)}
    ways |= {name: (lambda run=run: run(query.sql)) for name, run in peers.items()}  # type: ignore[misc]  # a default keeps each
    wall: dict[str, list[float]] = {name: [] for name in ways}
    busy: dict[str, list[float]] = {name: [] for name in ways}
    paused: dict[str, list[float]] = {name: [] for name in ways}
    read: dict[str, int] = {}
    refused: dict[str, str] = {}
    answers: dict[str, Any] = {}
    row = min(_IN_A_ROW, bench.sizes.runs)
    turns = -(-bench.sizes.runs // row)
    for turn, (name, way), again in product(range(turns), ways.items(), range(1 + row)):
        if name in refused:
            continue
        if not again:
            gc.collect()
        clock = (clocks or {}).get(name, time.process_time)
        before, used, bytes_ = time.perf_counter(), clock(), read_so_far()
        try:
            answer = way()
        except Exception as error:
            if name == "skipstone":
                raise
            refused[name] = repr(error)[:200]
            continue
        took = time.perf_counter() - before
        if again:
            wall[name].append(took)
            busy[name].append(clock() - used)
            read[name] = read_so_far() - bytes_
        elif turn:
            paused[name].append(took)
        else:
            answers[name] = _plain(answer)
    for name, answer in answers.items():
        if answer != answers["skipstone"]:
            raise AssertionError(f"{query.name}: {name} has other rows")
    taken = milliseconds({name: seconds for name, seconds in wall.items() if seconds})
    mine = taken.pop("skipstone")
    peer, theirs = least(taken)
    return Figure(
        name=f"{prefix}.{query.name}",
        value=mine,
        unit="ms",
        peer=Peer(what=f"{peer}, the fastest of {len(taken)}", value=theirs),
        ratio=theirs / mine,
        target=f">= {query.target:g} x faster",
        met=theirs / mine >= query.target,
        details={
            "peers_ms": taken,
            "paused_ms": milliseconds({name: each for name, each in paused.items() if each}),
            "processor_ms": milliseconds({name: used for name, used in busy.items() if used}),
            "bytes": read,
            "refused": refused,
            "index_bytes": sum(
                each.stat().st_size
                for each in Path(table.location.root).rglob("*")
                if each.is_file()
            ),
        },
    )
