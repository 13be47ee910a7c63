"""``Table.read(keys=…)``: the keys of a DataFrame, or those of ``Table.query``.

The keys are collected once. Spark decides the rows by a left semi join with the collected keys. So
rows and files are chosen by the same keys, even if the DataFrame would return others a second time.
The columns of a DataFrame are one key: a row is in the result if all of them equal those of one row
of the keys. A file is left out if it cannot hold any value of one of the columns.

With more than ``MOST_KEYS`` rows, none is collected, and Spark joins as usual.
"""

from __future__ import annotations

import hashlib
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import PredicateError
from skipstone.human import some_of
from skipstone.predicate.types import backquoted, column_name, column_path
from skipstone.predicate.value_array import as_literals
from skipstone.spark.facts import FactsPruner
from skipstone.spark.read_path import is_ansi
from skipstone.spark.scan_log import KEYS
from skipstone.spark.schemas import local_frame
from skipstone.spark.session import settings_of
from skipstone.spark.versions import collected

from .key_sets import arrays_by_column, key_array, memberships

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from skipstone.predicate.tree import Expr
    from skipstone.spark.relation import Pruner

    from .key_sets import KeySets


#: the most rows of a DataFrame of keys that are collected
MOST_KEYS = 10_000_000


@dataclass(frozen=True, slots=True, eq=False)
class SparkKeys:
    """Keys for a read.

    ``joins`` are columns of the table and a DataFrame with as many columns, to be joined in turn;
    ``arrays`` are the values of each column, if known; with ``alone`` they also decide the rows.
    """

    joins: tuple[tuple[tuple[tuple[str, ...], ...], DataFrame], ...]
    arrays: Mapping[tuple[str, ...], pa.Array]
    alone: bool

    @property
    def expr(self) -> Expr | None:
        """The condition that chooses files."""
        return memberships(self.arrays) if self.arrays else None

    @property
    def against_pages(self) -> str | None:
        """Why this process does not read the rows."""
        return None if self.alone else "keys of several columns, which Spark joins"

    @property
    def option(self) -> dict[str, str]:
        """``KEYS``, with a checksum of the keys: Spark may replace a relation by an equal one, and
        relations with other keys have other files."""
        if not self.arrays:
            return {}
        digest = hashlib.blake2b(digest_size=16)
        for path, array in self.arrays.items():
            digest.update(f"{path} {array.type} {array.offset} {len(array)} ".encode())
            for buffer in array.buffers():
                if buffer is not None:
                    digest.update(buffer)
        return {KEYS: digest.hexdigest()}

    def prune(self, pruner: Pruner | None, spark: SparkSession) -> None:
        """Every scan that asks ``pruner`` lists the files that may hold a key."""
        if isinstance(pruner, FactsPruner):
            pruner.keys, pruner.ansi = self.expr, is_ansi(spark, settings_of(spark))

    def joined(self, frame: DataFrame) -> DataFrame:
        """The rows of ``frame`` that have the keys."""
        for paths, keys in self.joins:
            columns = [frame[_spelled(frame, path)] for path in paths]
            pairs = [a == keys[b] for a, b in zip(columns, keys.columns, strict=True)]
            # Without a filter Spark would list all files.
            present = frame.where(reduce(and_, [each.isNotNull() for each in columns]))
            frame = present.join(keys, reduce(and_, pairs), "left_semi")
        return frame


def spark_keys(spark: SparkSession, keys: KeySets) -> SparkKeys:
    """Collects the keys; ``PredicateError`` if they are not keys."""
    if hasattr(keys, "sparkSession"):
        return _of_frame(spark, keys)
    arrays = {
        column_path(name): as_literals(array) for name, array in arrays_by_column(keys).items()
    }
    joins = [
        ((path,), _frame(spark, pa.table({path[-1]: array}))) for path, array in arrays.items()
    ]
    return SparkKeys((*joins,), arrays, alone=True)


def _of_frame(spark: SparkSession, frame: Any) -> SparkKeys:
    names = [name.lower() for name in frame.columns]
    if not names or len(set(names)) < len(names):
        raise PredicateError(
            f"keys have the columns {', '.join(frame.columns) or '(none)'}",
            hint="name each after a column of the table, once: select(col('id').alias('user_id'))",
        )
    paths = tuple((name,) for name in frame.columns)
    found = collected(frame.limit(MOST_KEYS + 1))
    if len(found) > MOST_KEYS:
        return SparkKeys(((paths, frame),), {}, alone=False)
    arrays: dict[tuple[str, ...], pa.Array] = {
        (field.name,): key_array(found.column(field.name), field.name)
        for field in frame.schema
        if not _compares_otherwise(field.dataType.simpleString())
    }
    join = (paths, _frame(spark, found, frame.schema))
    return SparkKeys((join,), arrays, alone=len(names) == len(arrays) == 1)


def _compares_otherwise(type: str) -> bool:
    """Whether Spark compares values of a type otherwise than by their bytes or numbers."""
    return " collate " in type or type.startswith(("interval", "struct", "array", "map", "variant"))


def _frame(spark: SparkSession, table: pa.Table, schema: Any = None) -> DataFrame:
    try:
        return local_frame(spark, table, schema)
    except TypeError:  # before Spark 4
        names = table.schema.names if schema is None else schema
        return spark.createDataFrame(list(zip(*table.to_pydict().values(), strict=True)), names)


def _spelled(frame: DataFrame, path: tuple[str, ...]) -> str:
    if sum(each.lower() == path[0].lower() for each in frame.columns) == 1:
        return backquoted(*path)
    text, hint = f"no column {column_name(path)}", f"the columns are {some_of(frame.columns, 8)}"
    raise PredicateError.of_name(f"{text}, which the keys name", path[0], frame.columns, hint)
