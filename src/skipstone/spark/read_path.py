"""How ``Table.read`` reads: by Spark's own reader over the remaining files, or by planned pages.

Spark's reader accepts a list of files, and finds row groups and pages itself; it does not accept
rows that an index selects. ``format("skipstone")`` fetches the pages of those rows in Python
workers. So pages are for the first rows of an order, and for large files of which row indexes leave
few rows; the choice is by cost, with the constants of ``pruning/costs.py``. Spark's reader is used
wherever the two could differ in rows or types: settings that change the meaning of a text or a
value, types that differ, parts of a predicate that only Spark decides.

**Under Spark Connect** a client cannot change the plan, but every file relation has a hidden column
``_metadata``, and Spark applies filters on its fields while it lists files. So the filter is

    NOT (startswith(_metadata.file_path, <common prefix>)
         AND concat(<rest of file_path>, '|', <file_size>, '|', <modification time>) IN (…))

over the files to skip. It is sound for all changes between the client's listing and Spark's: a new
file is not in the list, a replaced file has another key, and a path that Spark spells differently
is read. A list of the files to keep would lose the first and the third. The list is text. If there
are more than ``LIMIT`` files, only the largest are skipped.

**Nulls that are not counted.** Arrow's C++ writer counts too few nulls of dictionary-encoded
strings and bytes in structs (``parquet/evidence/value_bounds.py``). Spark's reader believes the
count: it skips row groups for ``s.x IS NULL``, and for ``NOT (s.x <=> 'a')`` where ``'a'`` is the
only value. A condition that is never TRUE for a null loses no row by it. So Spark's reader gets
``UNFILTERED`` where a condition may be TRUE for a null of such a column. Spark rewrites
expressions: ``if(s.x IS NULL, true, false)`` becomes ``s.x IS NULL``. Therefore an expression that
is not understood counts as soon as its text contains the name of the column.
"""

from __future__ import annotations

import logging
import os.path
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone.errors import PredicateError, SkipstoneError, UnsupportedError
from skipstone.execution.plan_rows import plan_of
from skipstone.execution.table_scan import io_forecast
from skipstone.human import duration, of_total, size
from skipstone.identity import UNITS_PER_SECOND, encode_uri
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import (
    And,
    Cast,
    ColumnRef,
    Comparison,
    Const,
    Literal,
    Membership,
    Not,
    NullTest,
    Opaque,
    Or,
    PatternMatch,
    Truth,
)
from skipstone.predicate.types import schema_from_spark, spark_type
from skipstone.pruning.costs import SPARK
from skipstone.pruning.residual import require_decidable

from .relation import HARMLESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from skipstone.execution import TableScan
    from skipstone.execution.plan_rows import TableReader
    from skipstone.predicate.tree import Expr, Operand
    from skipstone.pruning.plan import Plan


# Most files whose pages are counted for a choice; more are sampled evenly.
_COUNTED = 64

# Settings under which Spark reads other rows than ``format("skipstone")``, each with its harmless
# value; and those under which a predicate's text means something else.
_VALUES = {
    **HARMLESS,
    "spark.sql.caseSensitive": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "corrected",
    "spark.sql.parquet.int96RebaseModeInRead": "corrected",
}
_TEXT = {
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.timestampType": "timestamp_ltz",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether pages are fetched, and why."""

    pages: bool
    why: str

    def __str__(self) -> str:
        way = "planned pages" if self.pages else "Spark's own reader"
        return f"{way}: {self.why}"


def against_pages(spark: SparkSession, where: str | None) -> str | None:
    """The setting of the session that excludes pages; ``None`` if there is none."""
    if where is None:
        return _harmful(spark, _VALUES)
    return _harmful(spark, {**_VALUES, **_TEXT, "spark.sql.ansi.enabled": "true"})


def _harmful(spark: SparkSession, settings: Mapping[str, str]) -> str | None:
    """The first of ``settings`` with another value than the harmless one, in words."""
    for key, harmless in settings.items():
        value = spark.conf.get(key, None)
        if value is not None and value.lower() != harmless:
            return f"{key} is {value}"
    return None


def undecidable(scan: TableScan) -> str | None:
    """Why only Spark can decide the rows of a scan; ``None`` where it is not needed."""
    if scan.query is None:
        return "the table is not of Parquet files"
    try:
        require_decidable(scan.query.tree)
    except UnsupportedError as error:
        return error.message
    return None


def by_cost(scan: TableScan) -> Choice:
    """The quicker way to the rows of a scan that was planned without opening files.

    It opens the files that it counts: their footers and page indexes.
    """
    plan, query = scan.plan, scan.query
    assert query is not None
    narrowed = [
        at
        for at, detail in plan.details.items()
        if plan.keep[at] and detail.rows is not None and len(detail.rows) < plan.row_counts[at]
    ]
    if not narrowed:
        return Choice(False, "no index selects rows, and both ways skip the files")
    kept = np.flatnonzero(plan.keep)
    whole = int(plan.listing.sizes[kept].sum())
    if SPARK.native_seconds(whole) <= SPARK.start:
        return Choice(
            False,
            f"{size(whole)} of files take less than it takes to start ({_seconds(SPARK.start)})",
        )
    spread = np.unique(np.linspace(0, len(kept) - 1, min(len(kept), _COUNTED)).astype(np.int64))
    counted = kept[spread]
    table = query.reader()
    table.footers.open(counted.tolist())
    some = plan_of(plan, counted)
    try:
        pages = io_forecast(table, some, look=True, at_most=False).total.bytes
        chunks = sum(_chunks(table, some, at) for at in counted.tolist())
    except SkipstoneError as error:
        return Choice(False, f"a file could not be opened: {error.message}")
    share = whole / max(int(plan.listing.sizes[counted].sum()), 1)
    native = SPARK.native_seconds(round(chunks * share))
    paged = SPARK.pages_seconds(round(pages * share))
    text = (
        f"about {size(pages * share)} of pages ({_seconds(paged)}) against {size(chunks * share)} "
        f"of row groups ({_seconds(native)}) in {of_total(len(kept), plan.files_total, 'files')}"
    )
    return Choice(paged < native, text)


def _chunks(table: TableReader, plan: Plan, at: int) -> int:
    """Stored bytes of the chunks that Spark's reader would read of a file."""
    if not table.footers.fresh(at):
        return int(plan.listing.sizes[at])
    file = table.footers.opened[at]
    leaves = table.leaves_of(file, [*table.asked, *table.columns])
    stored = file.opened.footer.chunk("total_compressed_size")[:, leaves].sum(axis=1)
    detail = plan.details.get(at)
    if detail is not None and detail.row_groups is not None:
        stored = stored[list(detail.row_groups)]
    return int(stored.sum())


def _seconds(seconds: float) -> str:
    return duration(seconds * 1e3)


#: options under which Spark's reader skips no row groups and pages
UNFILTERED = {
    f"parquet.filter.{each}.enabled": "false" for each in ("stats", "columnindex", "dictionary")
}


def wanted_nulls(spark: SparkSession, where: str) -> set[str]:
    """Names of columns, and texts with names in them, of whose nulls ``where`` may be TRUE; in
    lower case, without backquotes."""
    if _harmful(spark, _TEXT) is not None:
        return {_plain_text(where)}
    try:
        stack: list[Expr] = [parse_sql(where)]
    except PredicateError:
        return {_plain_text(where)}
    found: set[str] = set()
    while stack:
        node = stack.pop()
        match node:
            case And() | Or():
                stack.extend(node.children)  # type: ignore[arg-type]
            case Not():
                stack.append(node.child)
            case NullTest():
                found |= _texts(node.operand, nulls=True)
            case Comparison():
                for operand in (node.left, node.right):
                    found |= _texts(operand, nulls=node.op == "<=>")
            case Membership() | PatternMatch() | Truth():
                found |= _texts(node.operand, nulls=False)
            case Opaque():
                found |= _texts(node, nulls=True)
            case Const():
                pass
    return found


def _texts(operand: Operand, *, nulls: bool) -> set[str]:
    """The name of a column, where ``nulls`` of it count; the text of what is not understood."""
    while isinstance(operand, Cast):
        operand = operand.operand
    match operand:
        case ColumnRef() if nulls:
            return {_plain_text(operand.path[-1])}
        case Opaque():
            return {_plain_text(operand.sql)}
        case ColumnRef() | Literal():
            return set()


def _plain_text(text: str) -> str:
    return text.lower().replace("`", "")


def miscounted(texts: Iterable[str], schema: pa.Schema) -> list[str]:
    """The strings and bytes in structs of ``schema`` whose names occur in ``texts``."""
    texts = list(texts)
    found = []
    todo = [(field, field.name) for field in schema if pa.types.is_struct(field.type)]
    while todo:
        struct, path = todo.pop()
        for field in struct.type:
            column = f"{path}.{field.name}"
            if pa.types.is_struct(field.type):
                todo.append((field, column))
            elif spark_type(field.type) in (pa.string(), pa.binary()):
                name = _plain_text(field.name)
                if any(name in text for text in texts):
                    found.append(column)
    return found


_LOG = logging.getLogger("skipstone")

#: most files that one filter names, in about 60 bytes each
LIMIT = 50_000


def read_connect(
    spark: SparkSession,
    path: str,
    plan: Callable[..., Plan],
    where: str | None,
    options: Mapping[str, str],
    *,
    paths: Sequence[str] | None = None,
    schema: StructType | None = None,
) -> DataFrame:
    """The rows of the table at ``path`` that match ``where``, from the files that may have some.

    ``plan`` is ``Table.plan``. Pruning happens now; a file that changes later is read. Without
    ``where``, or when planning fails, every file is read, and a warning has the reason. ``paths``
    are the files of a table that does not consist of all files in its directory; ``schema`` is that
    of all files, where Spark would not find it.
    """
    # Hadoop reads these characters as patterns.
    files = [re.sub(r"([\\*?\[\]{}])", r"\\\1", each) for each in paths or ()] or [path]
    reader = spark.read.options(**options)
    frame: DataFrame = (reader if schema is None else reader.schema(schema)).parquet(*files)
    if where is None:
        return frame
    try:
        text = _filter(spark, path, plan, where, frame)
    except SkipstoneError as error:
        _LOG.warning("%s is read in full: %s", path, error)
        text = None
    if text is not None:
        frame = frame.where(text)
    return frame.where(where)


def _filter(
    spark: SparkSession, path: str, plan: Callable[..., Plan], where: str, frame: DataFrame
) -> str | None:
    why = _harmful(spark, {**HARMLESS, **_TEXT})
    if why is not None:
        _LOG.warning("%s is read in full: %s", path, why)
        return None
    if any(name.lower() == "_metadata" for name in frame.columns):
        _LOG.warning("%s is read in full: it has its own column _metadata", path)
        return None
    zone = spark.conf.get("spark.sql.session.timeZone", "UTC") or "UTC"
    ansi = str(spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"  # 3.5: off by default
    schema = schema_from_spark(frame.schema.json())
    return skip_filter(plan(where, time_zone=zone, schema=schema, ansi=ansi))


def skip_filter(plan: Plan, *, limit: int = LIMIT) -> str | None:
    """The SQL condition that excludes the files that ``plan`` skips; ``None`` if it skips none."""
    listing = plan.listing
    skipped = np.flatnonzero(~plan.keep)
    if len(skipped) == 0:
        return None
    if len(skipped) > limit:
        largest = np.argsort(listing.sizes[skipped], kind="stable")[-limit:]
        skipped = skipped[np.sort(largest)]
    scale = UNITS_PER_SECOND[listing.unit]
    if scale >= 1000:
        clock, times = "unix_millis", listing.mtimes[skipped] // (scale // 1000)
    else:
        clock, times = "unix_seconds", listing.mtimes[skipped]
    uris = [encode_uri(listing.paths[i]) for i in skipped.tolist()]
    prefix = os.path.commonprefix(uris)  # noqa: RUF071, characters are what counts
    triples = zip(uris, listing.sizes[skipped].tolist(), times.tolist(), strict=True)
    keys = ",".join(_quoted(f"{uri[len(prefix) :]}|{size}|{time}") for uri, size, time in triples)
    key = (
        f"concat(substring(_metadata.file_path, {len(prefix) + 1}), '|', "
        f"CAST(_metadata.file_size AS STRING), '|', "
        f"CAST({clock}(_metadata.file_modification_time) AS STRING))"
    )
    return f"NOT (startswith(_metadata.file_path, {_quoted(prefix)}) AND {key} IN ({keys}))"


def _quoted(text: str) -> str:
    """A SQL string literal. URIs have no control characters and no backslash."""
    return "'" + text.replace("'", "\\'") + "'"
