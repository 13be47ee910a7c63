"""A needle in tables of Delta Lake, Apache Iceberg and Apache Paimon of many small files, as a
stream of appends leaves them, beside engines that have the same log or the same metadata.

Each file has 2,000 rows. In Delta's table each is a commit; in the others, whose peers read every
manifest at each query, twenty are. Users are scattered over all files, so the bounds of the formats
exclude none; ids ascend, so they exclude all but one.

| figure | |
|---|---|
| needle | one user, by Bloom filters: at least 10 x the fastest peer |
| absent | a user of no file: at least 10 x |
| id | by the statistics of the format, which all have: not behind |

The peers keep the log or the metadata that they have read; DuckDB reads it in each ``delta_scan``
and ``iceberg_scan``. Skipstone asks at each query for a newer version. `make httpfs` gets DuckDB's
extensions, which its Python package does not have.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import skipstone

from .lake_queries import Query, compared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .figure import Figure
    from .workbench import Workbench

__all__ = ["figures"]

VERSION, ROWS = 2, 2_000
_COMMIT = 20
_AHEAD, _EQUAL = 10.0, 1.0
_DUCKDB = Path(".venv-httpfs/bin/python")
_DATAFUSION, _DATASET = "deltalake with DataFusion", "DuckDB over deltalake's dataset"
_DELTA_SCAN, _ICEBERG_SCAN = "DuckDB's delta_scan", "DuckDB's iceberg_scan"
_PYICEBERG, _PYPAIMON = "pyiceberg's scan", "pypaimon's scan"


def _users(number: int) -> list[str]:
    drawn = np.random.default_rng((7, number)).integers(0, 2**40, ROWS)
    return [f"u-{each:013d}" for each in drawn.tolist()]


def _file(number: int) -> pa.Table:
    rng = np.random.default_rng((8, number))
    columns = {
        "id": np.arange(number * ROWS, (number + 1) * ROWS),
        "user_id": _users(number),
        "amount": rng.random(ROWS),
        "country": [f"c-{each:02d}" for each in rng.integers(0, 40, ROWS).tolist()],
    }
    return pa.table(columns)


def lay_delta(folder: Path, files: int) -> None:
    """Write the table, one commit a file, with a checkpoint now and then."""
    from deltalake import DeltaTable, write_deltalake

    for number in range(files):
        write_deltalake(str(folder), _file(number), mode="append")
        if number % 200 == 199:
            DeltaTable(str(folder)).create_checkpoint()


def lay_iceberg(folder: Path, files: int) -> None:
    """Write the table below ``folder``, with a manifest of each commit of twenty files."""
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir(parents=True)
    uri, lake = f"sqlite:///{folder}/catalog.db", f"file://{folder}/lake"
    catalog = SqlCatalog("bench", uri=uri, warehouse=lake)
    catalog.create_namespace("db")
    first = _file(0)
    # The library cuts a table by its bytes in memory.
    target = {"write.target-file-size-bytes": str(first.nbytes + ROWS)}
    table = catalog.create_table("db.t", first.schema, properties=target)
    for start in range(0, files, _COMMIT):
        numbers = range(start, min(start + _COMMIT, files))
        table.append(pa.concat_tables([_file(number) for number in numbers]))
    catalog.close()


def lay_paimon(folder: Path, files: int) -> None:
    """Write the table below ``folder``, with twenty files a commit and the bounds of each."""
    from pypaimon import CatalogFactory, Schema

    catalog = CatalogFactory.create({"warehouse": str(folder)})
    catalog.create_database("db", True)
    options = {"file.format": "parquet", "metadata.stats-mode": "full"}
    schema = Schema.from_pyarrow_schema(_file(0).schema, options=options)
    catalog.create_table("db.t", schema, False)
    table = catalog.get_table("db.t")
    for start in range(0, files, _COMMIT):
        builder, messages = table.new_batch_write_builder(), []
        for number in range(start, min(start + _COMMIT, files)):
            write = builder.new_write()
            write.write_arrow(_file(number))
            messages += write.prepare_commit()
            write.close()
        commit = builder.new_commit()
        commit.commit(messages)
        commit.close()


_DUCKDB_LOOP = """
import importlib, json, sys, duckdb
from pathlib import Path
con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for name in json.loads(sys.stdin.readline()):
    package = importlib.import_module(f"duckdb_extension_{name}")
    (extension,) = Path(package.__file__).parent.rglob(f"{name}.duckdb_extension")
    con.execute(f"LOAD '{extension}'")
con.execute("set enable_progress_bar = false")
con.execute(f"CREATE VIEW t AS SELECT * FROM {json.loads(sys.stdin.readline())}")
for line in sys.stdin:
    found = con.execute(json.loads(line))
    names = [each[0] for each in found.description]
    rows = found.fetchall()
    print(json.dumps([row[names.index("id")] for row in rows]), flush=True)
"""


@contextmanager
def _extended(extensions: Sequence[str], scan: str) -> Iterator[subprocess.Popen[str] | None]:
    """A DuckDB with extensions in a process of its own, ``None`` where there is none."""
    if not _DUCKDB.exists():
        yield None
        return
    process = subprocess.Popen(
        [_DUCKDB, "-c", _DUCKDB_LOOP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdin is not None
        process.stdin.write(f"{json.dumps(list(extensions))}\n{json.dumps(scan)}\n")
        yield process
    finally:
        process.communicate()


def _asked(process: subprocess.Popen[str], text: str) -> pa.Table:
    """The ids of the rows."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{json.dumps(text)}\n")
    process.stdin.flush()
    return pa.table({"id": pa.array(json.loads(process.stdout.readline()), pa.int64())})


def _processor(process: subprocess.Popen[str]) -> float:
    """Processor time of another process, in seconds: the clock that Linux has of its number."""
    return time.clock_gettime((~process.pid << 3) | 2)


def _of_delta(path: str) -> dict[str, Callable[[str], pa.Table]]:
    import duckdb
    from deltalake import DeltaTable, QueryBuilder

    opened = DeltaTable(path)
    datafusion = QueryBuilder().register("t", opened)
    session = duckdb.connect()
    session.register("t", opened.to_pyarrow_dataset())
    return {
        _DATAFUSION: lambda text: pa.table(datafusion.execute(text).read_all()),
        _DATASET: lambda text: session.sql(text).to_arrow_table(),
    }


def _of_iceberg(metadata: str) -> dict[str, Callable[[str], pa.Table]]:
    from pyiceberg.table import StaticTable

    opened = StaticTable.from_metadata(metadata)
    # Its condition is that of the query, which here is SQL that both know.
    return {_PYICEBERG: lambda text: opened.scan(text.partition(" WHERE ")[2]).to_arrow()}


def _of_paimon(path: str) -> dict[str, Callable[[str], pa.Table]]:
    from pypaimon.table.file_store_table import FileStoreTable

    opened = FileStoreTable.from_path(path)

    def ask(text: str) -> pa.Table:
        column, _, value = text.partition(" WHERE ")[2].partition(" = ")
        builder = opened.new_read_builder()
        known = value.strip("'") if "'" in value else int(value)
        builder = builder.with_filter(builder.new_predicate_builder().equal(column, known))
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())

    return {_PYPAIMON: ask}


def _queries(files: int) -> Iterator[Query]:
    def query(name: str, where: str, target: float) -> Query:
        return Query(
            name=name,
            sql=f"SELECT * FROM t WHERE {where}",
            ask=lambda table: table.query(where),
            target=target,
        )

    user, known = _users(files // 2)[ROWS // 2], (files // 3) * ROWS + 17
    yield query("needle", f"user_id = '{user}'", _AHEAD)
    yield query("absent", f"user_id = 'u-{2**39:013d}x'", _AHEAD)
    yield query("id", f"id = {known}", _EQUAL)


def figures(bench: Workbench) -> Iterator[Figure]:
    """All of them, over the files that the bench has."""
    files = bench.sizes.files
    recipe = {"files": files, "version": VERSION}
    delta = bench.generated("delta", lambda to: lay_delta(to / "table", files), **recipe)
    iceberg = bench.generated("iceberg", lambda to: lay_iceberg(to / "home", files), **recipe)
    paimon = bench.generated("paimon", lambda to: lay_paimon(to / "home", files), **recipe)
    of_paimon = paimon / "home" / "db.db" / "t"
    of_iceberg = iceberg / "home" / "lake" / "db" / "t"
    newest = max((of_iceberg / "metadata").glob("*.metadata.json"))
    for format, folder, path, peers, extensions, scan in (
        ("delta", delta, delta / "table", _of_delta(str(delta / "table")), ["delta"], _DELTA_SCAN),
        (
            "iceberg",
            iceberg,
            of_iceberg,
            _of_iceberg(str(newest)),
            ["avro", "iceberg"],
            _ICEBERG_SCAN,
        ),
        ("paimon", paimon, of_paimon, _of_paimon(str(of_paimon)), [], ""),
    ):
        table = skipstone.Table(str(path), index_location=str(folder / "index"))
        table.build(indexes=["user_id:bloom"])
        table.compact()
        read = f"{format}_scan('{path if format == 'delta' else newest}')"
        with _extended(extensions, read) if scan else nullcontext() as process:
            clocks = {}
            if process is not None:
                peers[scan] = partial(_asked, process)
                clocks[scan] = partial(_processor, process)
            for query in _queries(files):
                yield compared(bench, query, table, peers, f"table_formats.{format}", clocks)
