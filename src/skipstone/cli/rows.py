"""Rows as text: a table with aligned columns, comma-separated values, or JSON."""

from __future__ import annotations

import base64
import csv
import datetime
import io
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from skipstone.execution import TableScan


# The widths of these first rows serve for all: results are printed while they are read.
_FIRST = 1000
_WIDEST = 60


@dataclass(frozen=True, slots=True)
class Count:
    """The number of matching rows."""

    rows: int

    def __str__(self) -> str:
        return str(self.rows)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {"rows": self.rows}


def columns_of(text: str | None) -> list[str] | None:
    """``"a, b"`` as names; ``None`` for no text."""
    from skipstone.predicate.types import split_names

    return None if text is None else [n.strip() for n in split_names(text) if n.strip()]


class Rows:
    """The rows of a scan, once; ``way`` is ``"table"`` or ``"csv"``."""

    def __init__(self, scan: TableScan, way: str) -> None:
        self.scan, self.way = scan, way

    @property
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as they are read."""
        return self.scan.to_batches()

    def to_dict(self) -> dict[str, Any]:
        """Columns and rows, as JSON-ready values."""
        columns = self.scan.schema.names
        rows: list[list[Any]] = []
        for batch in self.batches:
            rows += ([_json(value) for value in row] for row in _rows(batch))
        return {"columns": columns, "rows": rows, "count": len(rows)}

    def lines(self) -> Iterator[str]:
        """Lines of text without their ends."""
        return self._csv() if self.way == "csv" else self._table()

    def _csv(self) -> Iterator[str]:
        head = io.StringIO()
        csv.writer(head, lineterminator="").writerow(self.scan.schema.names)
        yield head.getvalue()
        for batch in self.batches:
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerows([["" if v is None else _text(v) for v in row] for row in _rows(batch)])
            yield text.getvalue().removesuffix("\n")

    def _table(self) -> Iterator[str]:
        widths: list[int] = []
        right: list[bool] = []
        total = 0
        for batch in self.batches:
            names = batch.schema.names
            rows = [[_cell(value) for value in row] for row in _rows(batch)]
            if not widths:
                head = rows[:_FIRST]
                sizes = [[len(row[i]) for row in head] for i in range(len(names))]
                widths = [
                    min(_WIDEST, max([len(name), *size]))
                    for name, size in zip(names, sizes, strict=True)
                ]
                right = [_is_number(field.type) for field in batch.schema]
                yield _line(names, widths, right)
                yield "  ".join("-" * width for width in widths)
            for row in rows:
                yield _line(row, widths, right)
            total += len(rows)
        yield f"({total:,} {'row' if total == 1 else 'rows'})"


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    columns = [_values(column) for column in batch.columns]
    return zip(*columns, strict=True) if columns else iter([()] * batch.num_rows)


def _values(column: pa.Array) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        # Python has no nanoseconds, nor years beyond 9999.
        return list(column.cast(pa.string()).to_pylist())
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return list(column.cast(pa.string()).to_pylist())


def _line(cells: list[str], widths: list[int], right: list[bool]) -> str:
    made = [
        cell.rjust(width) if number else cell.ljust(width)
        for cell, width, number in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(made).rstrip()


def _is_number(type: pa.DataType) -> bool:
    import pyarrow as pa

    t = pa.types
    return bool(t.is_integer(type) or t.is_floating(type) or t.is_decimal(type))


def _cell(value: Any) -> str:
    text = "NULL" if value is None else _text(value)
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, list | dict | tuple):
        return json.dumps(_json(value), ensure_ascii=False)
    return str(value)


def _json(value: Any) -> Any:
    """JSON has no NaN, no exact decimals, no bytes and no times: those are texts."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value).replace("nan", "NaN")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): _json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    if isinstance(value, Decimal | datetime.date | datetime.time | datetime.timedelta):
        return str(value)
    return str(value)
