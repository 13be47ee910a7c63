"""`query` and `count`: rows of a table, read in this process without Spark.

Rows are printed as a table with aligned columns, as comma-separated values, or as JSON.
"""

from __future__ import annotations

import csv
import json
import math
import re
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from skipstone import _compute as pc
from skipstone._dataclasses import dataclass
from skipstone.human import cut, of_total, plain, plural

from .completion import column_list
from .key_files import asked_keys
from .keys import data_keys_and_sets
from .options import (
    columns_of,
    decoding_memory,
    index_options,
    reporting,
    source_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from skipstone.execution import TableScan
    from skipstone.table import Table

    from .options import TableArguments
    from .output import Output

T = TypeVar("T")


@click.command()
@index_options
@source_options
@decoding_memory
@click.argument("where", required=False)
@click.option(
    "--columns",
    shell_complete=column_list,
    metavar="A,B",
    callback=columns_of,
    help="Columns of the result; all by default.",
)
@click.option(
    "--order-by",
    metavar="KEYS",
    shell_complete=column_list,
    help='Sort keys: "ts desc, id", or "amount desc nulls last".',
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Maximum number of rows: all by default, but the first 100 on a terminal.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, names first.")
@click.option(
    "--skip-unreadable",
    is_flag=True,
    help="Leave out files that cannot be read, and name them: exit code 3 where there are any.",
)
@data_keys_and_sets
@reporting
def query(
    table: TableArguments,
    where: str | None,
    columns: list[str] | None,
    order_by: str | None,
    limit: int | None,
    as_csv: bool,
    skip_unreadable: bool,
    out: Output,
) -> None:
    """Print the rows of TABLE that match WHERE (all, without it).

    query reads only the pages that may hold a match, and decides every row exactly, with Spark's
    meaning of NaN, nulls and zeros. --order-by KEYS with --limit N gives the first N rows (Top-N):
    files, row groups and pages whose bounds cannot come first are not read.

    A pipe or a file, --csv and --json get all rows. On a terminal, 100 rows are shown, and how many
    there are; --limit N shows more.

    \b
      skipstone query data/events "user_id = 'u-8814'" --columns ts,amount
      skipstone query data/events --order-by "amount desc" --limit 10
      skipstone query data/events "age > 40" --keys users.parquet:user_id
      skipstone query data/events "id = 7" --footer-key env:FOOTER_KEY
    """
    if as_csv and out.as_json:
        raise click.UsageError("either --csv or --json")
    target = table.open()
    read = _spooled if skip_unreadable else _whole if out.as_json else _begun
    ask = target.query_readable if skip_unreadable else target.retried
    keys = asked_keys(target)
    first = limit is None and not (as_csv or out.as_json) and out.on_terminal()
    most = _SHOWN + 1 if first else limit
    schema, batches = ask(read, where, columns=columns, order_by=order_by, limit=most, keys=keys)
    skipped = tuple(target.skipped.items()) if skip_unreadable else ()
    found = _Counted(batches)
    batches = iter(found)
    if out.as_json:
        out.result(_FoundRows(schema.names, batches, skipped))
    elif as_csv:
        out.lines(_csv(schema.names, batches))
    elif first:
        count = None if skip_unreadable else partial(target.count, where, keys=keys)
        out.lines(_first_rows(schema, list(batches), count))
    else:
        out.lines(table_lines(schema, batches))
    if not found.rows:
        _note_uuids(target, where, out)
    if skipped:
        files = of_total(len(skipped), len(skipped) + len(target.listing()), "files")
        out.missing(f"the result lacks the rows of {files}:", [text for _, text in skipped])


class _Counted:
    """Batches, and how many ``rows`` they had so far."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.batches, self.rows = batches, 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.batches:
            self.rows += batch.num_rows
            yield batch


def begun(pieces: Iterator[T]) -> Iterator[T]:
    """The pieces of a scan; the first is read, so that the scan can be planned again until then."""
    return chain(list(islice(pieces, 1)), pieces)


def _begun(scan: TableScan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    return scan.schema, begun(scan.to_batches())


def _whole(scan: TableScan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    return scan.schema, iter(list(scan.to_batches()))


def _spooled(scan: TableScan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Schema and rows; all rows are read before the first is shown, into a file."""
    import tempfile

    import pyarrow as pa

    with ExitStack() as stack:
        spool = stack.enter_context(tempfile.TemporaryFile())
        with pa.ipc.new_stream(spool, scan.schema) as writer:
            for batch in scan.to_batches():
                writer.write_batch(batch)
        spool.seek(0)
        held = stack.pop_all()

    def rows() -> Iterator[pa.RecordBatch]:
        with held:
            yield from pa.ipc.open_stream(spool)

    return scan.schema, rows()


@click.command()
@index_options
@source_options
@decoding_memory
@click.argument("where", required=False)
@data_keys_and_sets
@reporting
def count(
    table: TableArguments,
    where: str | None,
    out: Output,
) -> None:
    """Print how many rows of TABLE match WHERE.

    count uses the indexes alone where they are exact. From the other files it reads the pages that
    may hold a match.
    """
    target = table.open()
    rows = target.count(where, keys=asked_keys(target))
    out.result(_Count(rows))
    if not rows:
        _note_uuids(target, where, out)


_UUID = re.compile(r"'([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})'", re.IGNORECASE)


def _note_uuids(target: Table, where: str | None, out: Output) -> None:
    """Says how a UUID is written, where a query without rows has one as a text: a column of UUIDs
    is one of 16 bytes in SQL, which no text equals."""
    text = _UUID.search(where or "")
    if text is None:
        return
    of_16_bytes = [
        field.name
        for field in target.scan(limit=0).schema
        if str(field.type) == "extension<arrow.uuid>" and field.name in str(where)
    ]
    if of_16_bytes:
        literal = f"X'{text[1].replace('-', '').upper()}'"
        out.note(f"{of_16_bytes[0]} holds UUIDs as 16 bytes, which no text equals: write {literal}")


# Rows are aligned together in pages of this many: results are printed while they are read.
_PAGE = 1000
# Rows that a terminal gets.
_SHOWN = 100
# Longer values are cut, except in the last column.
_WIDEST = 60


@dataclass(frozen=True, slots=True)
class _Count:
    """The number of matching rows."""

    rows: int

    def __str__(self) -> str:
        return str(self.rows)

    def to_dict(self) -> dict[str, Any]:
        return {"rows": self.rows}


@dataclass(frozen=True, slots=True)
class _FoundRows:
    """The rows for ``--json``."""

    columns: list[str]
    batches: Iterator[pa.RecordBatch]
    skipped: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Columns and rows, as JSON-ready values."""
        rows: list[list[Any]] = []
        for batch in self.batches:
            rows += ([plain(value, whole=True) for value in row] for row in _rows(batch))
        found = {"columns": self.columns, "rows": rows, "count": len(rows)}
        return found | {"unreadable": [*map(list, self.skipped)]}


def _csv(names: list[str], batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
    """Comma-separated values, lines without their ends."""
    lines = _Lines()
    # It quotes values with a character of the line end.
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow(names)
    yield lines.taken()
    for batch in batches:
        writer.writerows([["" if v is None else _text(v) for v in row] for row in _rows(batch)])
        if batch.num_rows:
            yield lines.taken()


class _Lines(list[str]):
    """The lines of a writer of CSV, which writes one at a time."""

    write = list.append

    def taken(self) -> str:
        """The lines that were written since the last call."""
        text = "\n".join(line.removesuffix("\r\n") for line in self)
        self.clear()
        return text


def _first_rows(
    schema: pa.Schema, batches: list[pa.RecordBatch], count: Callable[[], int] | None
) -> Iterator[str]:
    """The first ``_SHOWN`` rows for a terminal; if there are more, also how many, by ``count``."""
    if sum(batch.num_rows for batch in batches) <= _SHOWN:
        yield from table_lines(schema, iter(batches))
        return
    import pyarrow as pa

    shown = pa.Table.from_batches(batches).slice(0, _SHOWN)
    *lines, _ = table_lines(schema, iter(shown.to_batches()))
    yield from lines
    of_all = "" if count is None else f" of {count():,}"
    yield f"(the first {_SHOWN}{of_all} rows: --limit N shows more, a pipe gets all)"


def table_lines(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
    """Aligned columns, line by line, with the names again where a page needs wider columns."""
    right = [_is_number(field.type) for field in schema]
    last = len(schema) - 1
    widths: list[int] = []
    total = 0
    for page in _pages(batches):
        cells = [
            [
                cell(value) if at == last else cut(cell(value), _WIDEST)
                for at, value in enumerate(row)
            ]
            for row in page
        ]
        rows = [list(map(cell, schema.names)), *cells]
        needed = [min(_WIDEST, max(map(len, column))) for column in zip(*rows, strict=True)]
        grown = [max(each) for each in zip(needed, widths or needed, strict=True)]
        if grown != widths:
            widths = grown
            yield _line(rows[0], widths, right)
            yield "  ".join("-" * width for width in widths)
        for row in cells:
            yield _line(row, widths, right)
        total += len(cells)
    yield f"({plural(total, 'row')})"


def _pages(batches: Iterator[pa.RecordBatch]) -> Iterator[list[tuple[Any, ...]]]:
    """The rows in pages; one empty page where there are none."""
    rows = chain.from_iterable(map(_rows, batches))
    page = list(islice(rows, _PAGE))
    yield page
    while len(page) == _PAGE:
        page = list(islice(rows, _PAGE))
        if page:
            yield page


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    columns = [values_of(column) for column in batch.columns]
    return zip(*columns, strict=True) if columns else iter([()] * batch.num_rows)


def values_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python has them, or as text; U+FFFD for what is not UTF-8."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        return _texts_of_times(column)
    if column.type == pa.time64("ns"):  # Python would cut off the last three digits
        texts = pc.cast(column, pa.string()).to_pylist()
        return [text and text.removesuffix("000").removesuffix(".000000") for text in texts]
    if pa.types.is_float32(column.type):  # of few digits, which are not those of the double
        texts = pc.cast(column, pa.string()).to_pylist()
        return [None if text is None else float(text) for text in texts]
    if _OWN_TEXT.search(str(column.type)):
        return _unusual_values(column)
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError, KeyError):  # KeyError: an unknown time zone
        return _unusual_values(column)


# Types whose values have a text of their own, in the name of a type that has them inside.
_OWN_TEXT = re.compile(r"timestamp\[|time64\[ns|duration\[|\bfloat\b")


def _unusual_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column of which Python lacks one."""
    import pyarrow as pa

    from skipstone.predicate.types import is_list, spark_type

    type = column.type
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in values_of(chunk)]
    if isinstance(type, pa.BaseExtensionType):
        return values_of(column.storage)
    if pa.types.is_dictionary(type):
        return values_of(column.dictionary_decode())
    valid = column.is_valid().to_pylist()
    if pa.types.is_struct(type):
        fields = [values_of(pc.struct_field(column, [at])) for at in range(type.num_fields)]
        names = [field.name for field in type]
        rows = zip(*fields, strict=True)
        return [
            dict(zip(names, row, strict=True)) if there else None
            for row, there in zip(rows, valid, strict=True)
        ]
    if pa.types.is_map(type):
        entry = pa.struct([("key", type.key_type), ("value", type.item_type)])
        entries = values_of(column.cast(pa.list_(entry)))
        return [row and [tuple(each.values()) for each in row] for row in entries]
    if is_list(type):
        flat = iter(values_of(pc.list_flatten(column)))
        lengths = pc.list_value_length(column).to_pylist()
        return [
            list(islice(flat, length)) if there else None
            for length, there in zip(lengths, valid, strict=True)
        ]
    if spark_type(type) == pa.string():
        coded = column.cast(pa.large_string()).view(pa.large_binary()).to_pylist()
        return [None if each is None else each.decode("utf-8", "replace") for each in coded]
    return _texts_of_times(column)


def _texts_of_times(column: pa.Array | pa.ChunkedArray) -> list[str | None]:
    from skipstone.predicate.literals import text_of_times

    return list(text_of_times(column).to_pylist())


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


def cell(value: Any) -> str:
    """A value as it is printed, without control characters."""
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
        return json.dumps(plain(value, whole=True), ensure_ascii=False)
    return str(value)
