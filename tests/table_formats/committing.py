"""A process that commits to a table, for tests: three commits for each line of its input.

    python -m tests.table_formats.committing FORMAT HOME COMMITS

``contents`` says which ids the table has after each commit; some commits change none.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

#: rows that a commit appends
ROWS = 5


def contents(commits: int) -> list[list[int]]:
    """The ids after each commit, from the first one."""
    found: list[list[int]] = []
    ids: list[int] = []
    for at in range(commits):
        if at % 4 == 2:
            ids = [each for each in ids if each % 7 != at % 7]
        elif at % 6 != 5:
            ids = [*ids, *range(at * ROWS, at * ROWS + ROWS)]
        found.append(sorted(ids))
    return found


def batch(at: int) -> pa.Table:
    ids = range(at * ROWS, at * ROWS + ROWS)
    return pa.table({"id": pa.array(ids, pa.int64()), "u": [f"u{each % 3}" for each in ids]})


def delta(home: Path) -> Any:
    """Appends, deletes, and compactions with a vacuum."""
    from deltalake import DeltaTable, write_deltalake

    path = str(home / "t")

    def commit(at: int) -> None:
        if at % 4 == 2:
            DeltaTable(path).delete(f"id % 7 = {at % 7}")
        elif at % 6 != 5:
            write_deltalake(path, batch(at), mode="append")
        else:
            DeltaTable(path).optimize.compact()
            DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)

    return commit


def iceberg(home: Path) -> Any:
    """Appends, deletes, and all rows into one file, through a catalog."""
    from pyiceberg.catalog.sql import SqlCatalog

    place = {"uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}"}
    catalog = SqlCatalog("local", **place)
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table_if_not_exists("db.t", batch(0).schema, location=f"file://{home}/t")

    def commit(at: int) -> None:
        if at % 4 == 2:
            gone = [str(each) for each in range(at * ROWS) if each % 7 == at % 7]
            table.delete(f"id in ({', '.join(gone)})")
        elif at % 6 != 5:
            table.append(batch(at))
        else:
            table.overwrite(table.scan().to_arrow())

    return commit


def main(format: str, home: Path, commits: int) -> None:
    """Commits, and says when all is done."""
    commit = {"delta": delta, "iceberg": iceberg}[format](home)
    for at in range(commits):
        if at % 3 == 1:
            sys.stdin.readline()
        commit(at)
        if at == 0:
            print("made", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
