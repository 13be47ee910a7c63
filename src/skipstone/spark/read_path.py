"""What ``Table.read`` adds to Spark's own reader: the filter on files under Spark Connect, and the
nulls that Spark's reader would lose.

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
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone.errors import PredicateError, SkipstoneError
from skipstone.identity import UNITS_PER_SECOND, encode_uri
from skipstone.predicate.render import operand_sql
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

from .read_choice import TEXT, harmful_of
from .relation import HARMLESS
from .session import ZONE, literal_path, settings_of
from .versions import ansi_by_default

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from skipstone.predicate.tree import Expr, Operand
    from skipstone.pruning.plan import Plan

    from .catalog.table import CatalogTable


#: options under which Spark's reader skips no row groups and pages
UNFILTERED = {
    f"parquet.filter.{each}.enabled": "false" for each in ("stats", "columnindex", "dictionary")
}


def wanted_nulls(settings: Mapping[str, str], where: str) -> set[str]:
    """Names of columns for whose nulls ``where`` may be TRUE, and texts that contain such names; in
    lower case, without backquotes."""
    if harmful_of(settings, TEXT) is not None:
        return {_plain_text(where)}
    try:
        stack: list[Expr] = [parse_sql(where, any_function=True)]
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
            case Membership():
                listed = node.values if isinstance(node.values, tuple) else ()
                for operand in (node.operand, *listed):
                    found |= _texts(operand, nulls=False)
            case PatternMatch() | Truth():
                found |= _texts(node.operand, nulls=False)
            case Opaque():
                found |= _texts(node, nulls=True)
            case Const():
                pass
    return found


def _texts(operand: Operand, *, nulls: bool) -> set[str]:
    """The name of a column, if its ``nulls`` count; the text of an expression that is not
    understood."""
    while isinstance(operand, Cast):
        operand = operand.operand
    match operand:
        case ColumnRef() if nulls:
            return {_plain_text(operand.path[-1])}
        case ColumnRef() | Literal():
            return set()
        case _:  # a function may give a value for null
            return {_plain_text(operand_sql(operand))}


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
    keyed: bool = False,
    catalog: CatalogTable | None = None,
) -> DataFrame:
    """The rows of the table at ``path`` that match ``where``, from the files that may have some.

    ``plan`` is ``Table.plan``, with keys where the read is ``keyed``. Pruning happens now; a file
    that changes later is read. Without ``where`` and keys, or when planning fails, every file is
    read, and a warning has the reason. ``paths`` are the files of a table that does not consist of
    all files in its directory; ``schema`` is that of all files, where Spark would not find it. A
    table of the ``catalog`` is read by its name.
    """
    if catalog is not None:
        frame = catalog.frame(options)
    else:
        files = [literal_path(each) for each in paths or [path]]
        reader = spark.read.options(**options)
        frame = (reader if schema is None else reader.schema(schema)).parquet(*files)
    if where is None and not keyed:
        return frame
    if catalog is not None and catalog.described is not None:
        why = catalog.described.read_in_full(where, keyed=keyed)
        if why:
            _LOG.warning("%s is read in full: %s", path, why)
            return frame if where is None else frame.where(where)
    try:
        text = _filter(spark, path, plan, where, frame)
    except SkipstoneError as error:
        _LOG.warning("%s is read in full: %s", path, error)
        text = None
    if text is not None:
        frame = frame.where(text)
    return frame if where is None else frame.where(where)


def is_ansi(spark: SparkSession, settings: Mapping[str, str]) -> bool:
    """Whether the session casts by ANSI rules."""
    return (settings.get("spark.sql.ansi.enabled") or ansi_by_default(spark)).lower() == "true"


def _filter(
    spark: SparkSession, path: str, plan: Callable[..., Plan], where: str | None, frame: DataFrame
) -> str | None:
    settings = settings_of(spark)
    why = harmful_of(settings, {**HARMLESS, **TEXT})
    if why is not None:
        _LOG.warning("%s is read in full: %s", path, why)
        return None
    if any(name.lower() == "_metadata" for name in frame.columns):
        _LOG.warning("%s is read in full: it has its own column _metadata", path)
        return None
    ansi = is_ansi(spark, settings)
    schema = schema_from_spark(frame.schema.json())
    return skip_filter(plan(where, time_zone=settings[ZONE], schema=schema, ansi=ansi))


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
