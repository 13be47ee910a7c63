"""Queries over an object store that takes 20 ms longer for every request, beside polars and DuckDB.

What counts is how often the next request had to wait for the answer to the one before: the round
trips, by the proxy's clock. Listing the files and the facts is told apart. The first query is that
of a new table object, which knows nothing; a warm one has the facts in memory and asks for another
file. Peers ask the same server for the same rows, in turns.

DuckDB reads object stores by an extension, which its Python package does not have. `make httpfs`
puts a DuckDB with it into an environment of its own; without that, there is no figure of DuckDB.
It keeps in memory what it has read: its later queries ask for little.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import skipstone

from .engine import pages_of
from .events import absent_keys, keys_of
from .figure import Figure, Peer, median
from .s3_server import Server, depth, serving, upload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .workbench import Workbench

__all__ = ["figures"]

_DELAY_MS = 20.0
# Files are smaller here than in other figures: peers read all of them, and the server has to bear
# it.
_ROWS = 12
_PAGE = 500
_VERSION = 1
_DUCKDB = Path(".venv-httpfs/bin/python")
#: Beside the listing.
_FIRST_TRIPS, _WARM_TRIPS = 4, 2


def figures(bench: Workbench) -> Iterator[Figure]:
    """A needle, an absent key, a unique text, a range of time, a prefix and a count."""
    files, rows = bench.sizes.files, max(40, bench.sizes.rows_per_file // _ROWS)
    folder = bench.generated(
        "s3-queries", lambda to: _lay(to, files, rows), files=files, rows=rows, version=_VERSION
    )
    runs = max(1, bench.sizes.runs // 4)
    with serving(_DELAY_MS) as server, _duckdb(server) as duckdb:
        upload(sorted(folder.iterdir()), "bench", "s3/table", server)
        table = _open(server)
        filters = ["key:bloom(fpp=0.001)", "id:bloom(fpp=0.001)"]
        table.build(indexes=[*filters, "ts:minmax", "label:minmax"])
        query = _Queries(folder, files, rows)
        for name in ("needle", "absent", "id", "range", "prefix", "count"):
            asked = [query(name, number) for number in query.numbers(runs + 1)]
            yield from _figures(name, asked, server, duckdb)


class _Queries:
    """Conditions, and the rows that match: their file and positions."""

    def __init__(self, folder: Path, files: int, rows: int) -> None:
        self.folder, self.files, self.rows = folder, files, rows

    def numbers(self, count: int) -> list[int]:
        """Different files."""
        return [self.files * (2 * at + 1) // (2 * count) for at in range(count)]

    def __call__(self, name: str, number: int) -> tuple[str, Path, list[int]]:
        path, middle = self.folder / f"part-{number:05d}.parquet", self.rows // 2
        if name in ("needle", "count"):
            return f"key = {int(keys_of(number, self.rows)[middle])}", path, [middle]
        if name == "absent":
            return f"key = {absent_keys(number + 1)[number]}", path, []
        if name == "id":
            return f"id = '{_id(int(keys_of(number, self.rows)[middle]))}'", path, [middle]
        wide = max(10, _PAGE // 2)
        first = self.rows // 4
        held = list(range(first, min(first + wide, self.rows)))
        if name == "range":
            start = number * self.rows + first
            return f"ts >= {start} and ts < {start + len(held)}", path, held
        # Labels are numbered by tens.
        held = [row for row in range(self.rows) if row // 10 == first // 10]
        return f"label like 'run-{number:05d}-{first // 10:05d}%'", path, held


def _id(key: int) -> str:
    return f"{key:024x}"


def _lay(folder: Path, files: int, rows: int) -> None:
    """``key`` and ``id`` are spread over everything; ``ts`` and ``label`` follow from file to
    file."""
    folder.mkdir(parents=True, exist_ok=True)
    names = pa.array([f"customer-{number:06d}" for number in range(20_000)])
    for number in range(files):
        rng = np.random.default_rng((31, number))
        keys = keys_of(number, rows)
        table = pa.table(
            {
                "key": keys,
                "id": [_id(int(key)) for key in keys],
                "ts": np.arange(rows, dtype=np.int64) + number * rows,
                "label": [f"run-{number:05d}-{row // 10:05d}-{row % 10}" for row in range(rows)],
                "amount": rng.integers(0, 10**6, rows) / 100,
                "code": rng.integers(0, 200, rows).astype(np.int32),
                "name": names.take(pa.array(rng.integers(0, len(names), rows))),
            }
        )
        pq.write_table(
            table,
            folder / f"part-{number:05d}.parquet",
            use_dictionary=["code", "name"],
            max_rows_per_page=_PAGE,
            write_batch_size=_PAGE,
            write_page_index=True,
        )


def _open(server: Server) -> skipstone.Table:
    return skipstone.Table("s3://bench/s3/table", storage_options=server.options)


class _Run:
    """Seconds and requests of one query by one engine."""

    def __init__(
        self, server: Server, expected: int, ask: Callable[..., int], *arguments: Any
    ) -> None:
        server.seen()
        started = time.perf_counter()
        found = ask(*arguments)
        self.seconds = time.perf_counter() - started
        self.seen = server.seen()
        if found != expected:
            raise AssertionError(f"{found} rows instead of {expected}")

    @property
    def trips(self) -> int:
        return depth([each for each in self.seen if not each.lists])

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.seen if not each.lists)

    def told(self) -> dict[str, Any]:
        """For the details."""
        return {
            "seconds": self.seconds,
            "round_trips": depth(self.seen),
            "requests": dict(Counter(each.kind for each in self.seen)),
            "bytes": self.bytes,
        }


def _figures(
    name: str,
    asked: Sequence[tuple[str, Path, list[int]]],
    server: Server,
    duckdb: Callable[[str, bool], int] | None,
) -> Iterator[Figure]:
    count = name == "count"
    first: list[_Run] = []
    warm: list[_Run] = []
    peers: dict[str, list[_Run]] = {"polars": [], "duckdb httpfs": []}
    for where, _, held in asked[1:]:
        table = _open(server)
        first.append(_Run(server, len(asked[0][2]), _ours, table, asked[0][0], count))
        warm.append(_Run(server, len(held), _ours, table, where, count))
        peers["polars"].append(_Run(server, len(held), _polars, server, where, count))
        if duckdb is not None:
            peers["duckdb httpfs"].append(_Run(server, len(held), duckdb, where, count))
    for state, runs, most in (("first", first, _FIRST_TRIPS), ("warm", warm, _WARM_TRIPS)):
        _, path, held = asked[0 if state == "first" else -1]
        value = median([each.seconds for each in runs])
        polars = median([each.seconds for each in peers["polars"]])
        trips = min(each.trips for each in runs)
        # The predicate alone, for a count.
        pages = 0 if count else pages_of(str(path), held)
        yield Figure(
            name=f"s3_queries.{name}.{state}",
            value=value,
            unit="s",
            peer=Peer(what="polars on the same server", value=polars),
            ratio=polars / value,
            target=f"<= {most} round trips beside the listing",
            met=trips <= most,
            details={
                "round_trips_beside_listing": trips,
                **runs[-1].told(),
                **_bytes_of(runs[-1], path.parent),
                "bytes_of_pages_with_hits": pages,
                **{
                    engine: each[-1].told() if each else "not installed: make httpfs"
                    for engine, each in peers.items()
                },
            },
        )


def _bytes_of(run: _Run, folder: Path) -> dict[str, int]:
    """Bytes of facts, of the ends of files, and of pages."""
    found = dict.fromkeys(("bytes_of_facts", "bytes_of_ends", "bytes_of_pages"), 0)
    for each in run.seen:
        name = each.target.partition("?")[0].rpartition("/")[2]
        if each.lists:
            continue
        if not (folder / name).exists():
            found["bytes_of_facts"] += each.bytes
        elif each.range.endswith(f"-{(folder / name).stat().st_size - 1}"):
            found["bytes_of_ends"] += each.bytes
        else:
            found["bytes_of_pages"] += each.bytes
    return found


def _ours(table: skipstone.Table, where: str, count: bool) -> int:
    return int(table.count(where)) if count else int(table.query(where).num_rows)


def _polars(server: Server, where: str, count: bool) -> int:
    import polars

    options = server.options
    frame = polars.scan_parquet(
        "s3://bench/s3/table/*.parquet",
        storage_options={
            "aws_endpoint_url": options["endpoint"],
            "aws_access_key_id": options["access_key_id"],
            "aws_secret_access_key": options["secret_access_key"],
            "aws_region": options["region"],
            "aws_allow_http": "true",
        },
    )
    # Its SQL has no pattern that it pushes down; the same by a function.
    column, _, pattern = where.partition(" like ")
    if pattern:
        frame = frame.filter(polars.col(column).str.starts_with(pattern[1:-2]))
    else:
        frame = frame.filter(polars.sql_expr(where))
    return int(frame.select(polars.len()).collect().item()) if count else frame.collect().height


_DUCKDB_LOOP = """
import json, sys, duckdb
import duckdb_extension_httpfs as package
from pathlib import Path
con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
(extension,) = Path(package.__file__).parent.rglob("httpfs.duckdb_extension")
con.execute(f"LOAD '{extension}'")
con.execute("set enable_progress_bar = false")
options = json.loads(sys.stdin.readline())
con.execute(f'''create secret (type s3, key_id '{options["access_key_id"]}',
    secret '{options["secret_access_key"]}', region 'us-east-1', url_style 'path', use_ssl false,
    endpoint '{options["endpoint"].removeprefix("http://")}')''')
print("ready", flush=True)
for line in sys.stdin:
    where, count = json.loads(line)
    rows = con.execute(
        f"select {'count(*)' if count else '*'} "
        f"from read_parquet('s3://bench/s3/table/*.parquet') where {where}"
    ).fetchall()
    print(rows[0][0] if count else len(rows), flush=True)
"""


@contextmanager
def _duckdb(server: Server) -> Iterator[Callable[[str, bool], int] | None]:
    """Asks a DuckDB with its extension, in a process of its own; ``None`` where there is none."""
    if not _DUCKDB.exists():
        yield None
        return
    process = subprocess.Popen(
        [_DUCKDB, "-c", _DUCKDB_LOOP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def said(line: str) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    try:
        if said(json.dumps(server.options)) != "ready":
            raise AssertionError("DuckDB does not run with its extension")
        yield lambda where, count: int(said(json.dumps([where, count])))
    finally:
        process.communicate()
