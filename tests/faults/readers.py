"""Ways to read a table, each with what it must give for rows that are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.faults.cases import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from skipstone import Table

#: id, s, x
Row: TypeAlias = "tuple[int, str | None, float]"
WHERE = "(id >= 30 AND id < 110 AND s <> 'v2') OR (s = 'v3' AND (x > 1 OR id < 9))"


@dataclass(frozen=True)
class Reader:
    """``ask`` reads a table, in one query; ``truth`` says what it must give."""

    ask: Callable[[Table], Any]
    truth: Callable[[list[Row]], Any]


def rows_in(*numbers: int) -> list[Row]:
    """The rows of these files."""
    every = [rows_of(at) for at in numbers]
    return [row for each in every for row in zip(each["id"], each["s"], each["x"], strict=True)]


def matching(rows: Iterable[Row]) -> list[Row]:
    """The rows of ``WHERE``, by id."""
    return sorted(
        (id, s, x)
        for id, s, x in rows
        if (30 <= id < 110 and s not in (None, "v2")) or (s == "v3" and (x != x or x > 1 or id < 9))
    )


def ids(rows: Iterable[Row]) -> list[int]:
    return [id for id, _, _ in rows]


READERS: dict[str, Reader] = {
    "query": Reader(
        lambda table: sorted(table.query(WHERE, ["id"])["id"].to_pylist()),
        lambda rows: ids(matching(rows)),
    ),
    "query of all": Reader(
        lambda table: sorted(
            zip(*table.query(columns=["id", "s"]).to_pydict().values(), strict=True)
        ),
        lambda rows: sorted((id, s) for id, s, _ in rows),
    ),
    "count": Reader(lambda table: int(table.count(WHERE)), lambda rows: len(matching(rows))),
    "min": Reader(
        lambda table: table.min("id", "s = 'v3'"),
        lambda rows: min(id for id, s, _ in rows if s == "v3"),
    ),
    "max": Reader(lambda table: table.max("id"), lambda rows: max(ids(rows))),
    "order": Reader(
        lambda table: table.query(WHERE, ["id"], order_by="id desc", limit=7)["id"].to_pylist(),
        lambda rows: ids(matching(rows))[::-1][:7],
    ),
    "batches": Reader(
        lambda table: sorted(
            id
            for batch in table.scan(WHERE, columns=["id"]).to_batches()
            for id in batch["id"].to_pylist()
        ),
        lambda rows: ids(matching(rows)),
    ),
    "explain": Reader(lambda table: bool(str(table.explain(WHERE))), lambda rows: True),
    "top": Reader(lambda table: table.top("id desc", 7, where=WHERE).limit, lambda rows: 7),
}
