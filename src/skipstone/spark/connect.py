"""Reading under Spark Connect: the client prunes, and filters the skipped files out.

A client cannot change the plan, but every file relation has a hidden column ``_metadata``, and
Spark applies filters on its fields while it lists files. So the filter is

    NOT (startswith(_metadata.file_path, <common prefix>)
         AND concat(<rest of file_path>, '|', <file_size>, '|', <modification time>) IN (…))

over the files to skip. It is sound whatever changes between the client's listing and Spark's: a new
file is in no list, a replaced file has another key, and a path that Spark spells otherwise is read.
A list of the files to keep would lose the first and the third.

The list is text. Of more than ``LIMIT`` files only the largest are skipped.
"""

from __future__ import annotations

import logging
import os.path
import re
from typing import TYPE_CHECKING, Protocol

import numpy as np

from skipstone.errors import SkipstoneError
from skipstone.identity import UNITS_PER_SECOND, encode_uri
from skipstone.predicate.types import schema_from_spark

from .facts import harmful

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from skipstone.pruning.plan import Plan


_LOG = logging.getLogger("skipstone")

#: most files that one filter names, in about 60 bytes each
LIMIT = 50_000

_CONFS = ("spark.sql.parquet.int96TimestampConversion", "spark.sql.parquet.fieldId.read.enabled")


# Settings that a predicate's text is parsed under here; under others it may mean something else.
_PARSING = {
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.timestampType": "timestamp_ltz",
}


class Planner(Protocol):
    """Plans a table's files for a predicate (``Table.plan``)."""

    def __call__(self, where: str, *, time_zone: str, schema: pa.Schema, ansi: bool) -> Plan:
        """The plan for SQL text over ``schema``."""


def read_connect(
    spark: SparkSession,
    path: str,
    plan: Planner,
    where: str | None,
    options: Mapping[str, str],
    *,
    paths: Sequence[str] | None = None,
) -> DataFrame:
    """The rows of the table at ``path`` that match ``where``, from the files that may have some.

    Pruning happens now; a file that changes later is read. Without ``where``, or when planning
    fails, every file is read, and a warning has the reason. ``paths`` are the files of a table
    that does not consist of all files in its directory.
    """
    # Hadoop reads these characters as patterns.
    files = [re.sub(r"([\\*?\[\]{}])", r"\\\1", each) for each in paths or ()] or [path]
    frame: DataFrame = spark.read.options(**options).parquet(*files)
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
    spark: SparkSession, path: str, plan: Planner, where: str, frame: DataFrame
) -> str | None:
    confs = {key: value for key in _CONFS if (value := spark.conf.get(key, None)) is not None}
    if found := harmful(confs):
        _LOG.warning("%s is read in full: %s", path, found[0])
        return None
    if any(name.lower() == "_metadata" for name in frame.columns):
        _LOG.warning("%s is read in full: it has a column _metadata of its own", path)
        return None
    for key, expected in _PARSING.items():
        value = (spark.conf.get(key, None) or expected).lower()
        if value != expected:
            _LOG.warning("%s is read in full: %s is %s", path, key, value)
            return None
    zone = spark.conf.get("spark.sql.session.timeZone", "UTC") or "UTC"
    ansi = (spark.conf.get("spark.sql.ansi.enabled", None) or "true").lower() == "true"
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
