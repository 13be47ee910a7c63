"""Random histories of tables of Apache Paimon, for ``tests/interop/java/PaimonTables.java``."""

from __future__ import annotations

import datetime as dt
import math
import random
from typing import TYPE_CHECKING, Any

import skipstone

if TYPE_CHECKING:
    from collections.abc import Iterator

#: by name: whether it has a primary key, and its options
TABLES: dict[str, tuple[bool, dict[str, str]]] = {
    "plain": (False, {"file-index.bloom-filter.columns": "id,k"}),
    "vectors": (
        False,
        {
            "deletion-vectors.enabled": "true",
            "file-index.bitmap.columns": "small,day",
            "file-index.in-manifest-threshold": "1 mb",
        },
    ),
    "parted": (
        False,
        {
            "deletion-vectors.enabled": "true",
            "file-index.range-bitmap.columns": "id,at",
            "file-index.in-manifest-threshold": "1 b",
        },
    ),
    "merged": (True, {"bucket": "2", "write-only": "true"}),
    "keyed": (True, {"bucket": "2", "deletion-vectors.enabled": "true"}),
}
PREDICATES = (
    "id = 13",
    "id BETWEEN 15 AND 34",
    "small IN (100, 110, 330)",
    "small IS NULL",
    "at = '1969-12-31 23:59:56.996123'",
    "at > '1970-01-01 00:00:10'",
    "day = DATE '2024-11-05'",
    "money <= 90071992547420.93",
    "x > 1000",
    "x = 'NaN' AND id < 30",
    "k = 'k 2' OR id = 9",
    "k IS NULL",
    "s.t = 'a long text with the number 21'",
    "NOT (small > 50)",
)


def commands(name: str, seed: int, steps: int) -> Iterator[dict[str, Any]]:
    """The history of a table; the last command asks for the rows of its snapshots."""
    keyed, options = TABLES[name]
    own = {"file.format": "parquet", "num-sorted-run.compaction-trigger": "3", **options}
    folder = {"partitions": ["k"]} if name == "parted" else {}
    key = {"key": ["id"]} if keyed else {}
    yield {"op": "create", "table": name, "options": own, **folder, **key}
    chosen, end, columns = random.Random(seed), 0, 0
    kinds = ["append", "append", "delete", "compact", "add", "tag"]
    for step in range(steps):
        kind = "append" if step == 0 else chosen.choice(kinds)
        low = chosen.randrange(max(end, 1))
        if kind == "append":
            # Rows of a table with a key are replaced, too.
            first = low if keyed else end
            yield {"op": kind, "table": name, "from": first, "to": max(end, first) + 25}
            end = max(end, first) + 25
        elif kind == "delete" and name != "plain":
            yield {"op": kind, "table": name, "from": low, "to": low + chosen.randrange(1, 9)}
        elif kind == "add" and columns < 3:
            columns += 1
            yield {"op": kind, "table": name, "column": f"c{columns}"}
        elif kind == "tag":
            yield {"op": kind, "table": name, "tag": f"tag-{step}"}
        elif kind == "compact":
            yield {"op": kind, "table": name}
    yield {"op": "compact", "table": name}
    yield {"op": "rows", "table": name}


def rows(path: str, where: str | None = None, **at: Any) -> list[list[Any]]:
    """The rows of a table as the program has them, in the order of ``id``."""
    found = []
    for row in skipstone.Table(path, **at).query(where).to_pylist():
        inner = row.pop("s") or {"n": None, "t": None}
        moment = row["at"].replace(tzinfo=None)
        found.append(
            [
                row["id"],
                row["k"],
                row["small"],
                (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1),
                (row["day"] - dt.date(1970, 1, 1)).days,
                str(row["money"]),
                _text(row["x"]),
                None if inner["n"] is None else _text(inner["n"]),
                inner["t"],
                *list(row.values())[7:],
            ]
        )
    return sorted(found)


def _text(number: float) -> str:
    return "NaN" if math.isnan(number) else str(number)
