"""Hive-style partition values as evidence: ``…/dt=2024-01-01/p=a%2Fb/part-0.parquet``.

The values come from the path alone, so they hold for files without facts too, and they are exact:
every row of the file has the value. Names and values are unescaped as Spark does (``%XX`` is the
character of that number, not a byte of UTF-8), and ``__HIVE_DEFAULT_PARTITION__`` is NULL. Types
are inferred over all values of a column, as Spark's ``PartitioningUtils`` does by default: integer,
long, decimal, double, date, timestamp, else string. A timestamp's value depends on the session's
zone, so such a column says nothing here. A column with a text that only Java parses as a number or
a time (``1d``, ``0x1p3``, ``2024-1-1``) says nothing either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.predicate.literals import order_keys

from . import Answer, BaseEvidence, Cause, Fetched, Level, Units
from .interval import Intervals, interval_bounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.predicate.tree import Leaf
    from skipstone.storage import ByteRange


NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
_SEGMENT = re.compile(r"([^=]+)=(.*)", re.DOTALL)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# A superset of the texts that Java parses as a number, a date or a time.
_DOUBTFUL = re.compile(
    r"[+-]?(?:nan|infinity|0x[0-9a-f.]*(?:p[+-]?\d+)?|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)[fd]?"
    r"|[+-]?\d+-\d{1,2}-\d{1,2}(?:[ t].*)?"
    r"|t?\d{1,2}:\d{1,2}.*",
    re.IGNORECASE | re.DOTALL,
)
_BLANK = "".join(map(chr, range(0x21)))


@dataclass(frozen=True, slots=True, eq=False)
class PartitionColumns:
    """The partition columns of a listing: ``values`` is one Arrow array ``(files,)`` per column."""

    values: Mapping[str, pa.Array]

    @classmethod
    def of_paths(
        cls, root: str, paths: Sequence[str], types: Mapping[str, pa.DataType] | None = None
    ) -> PartitionColumns:
        """Parses the directories between ``root`` and each file.

        ``types`` are the known types of partition columns (Spark's partition schema); others are
        inferred. If the paths have different columns, there are no partition columns.
        """
        cut = len(root.rstrip("/")) + 1
        if "=" not in "".join(paths):  # without folders no path has one
            return cls({})
        folders = [path[cut : path.rfind("/") + 1] for path in paths]
        distinct = {folder: i for i, folder in enumerate(dict.fromkeys(folders))}
        parsed = [_pairs(folder) for folder in distinct]
        names = list(parsed[0]) if parsed else []
        if not names or any(list(keys) != names for keys in parsed):
            return cls({})
        at = np.fromiter((distinct[folder] for folder in folders), np.int64, len(folders))
        columns = {}
        for name in names:
            texts = [
                None if keys[name] == NULL_VALUE else _unescaped(keys[name]) for keys in parsed
            ]
            plain = _unescaped(name)
            array = _typed(texts, (types or {}).get(plain))
            columns[plain] = array.take(at)
        return cls(columns)

    def evidence(self, columns: frozenset[str]) -> list[PartitionValues]:
        """Evidence for those of ``columns`` that are partition columns."""
        return [
            PartitionValues(name, values) for name, values in self.values.items() if name in columns
        ]


def _pairs(folder: str) -> dict[str, str]:
    """Name and value of each level of ``folder``, from the top.

    As in Spark, the search starts at the bottom and ends at a folder without ``=``: folders above
    that are not partition columns.
    """
    found: dict[str, str] = {}
    for segment in reversed(folder.strip("/").split("/")):
        level = _SEGMENT.fullmatch(segment)
        if level is not None:
            found.setdefault(level[1], level[2])
        elif found:
            break
    return dict(reversed(found.items()))


def _typed(texts: Sequence[str | None], wanted: pa.DataType | None) -> pa.Array:
    """The values as ``wanted``, else as the type that Spark infers; all null if they do not
    convert."""
    strings = pa.array(texts, pa.string())
    type_ = wanted or _infer([text for text in texts if text is not None])
    if pa.types.is_string(type_):
        return strings
    try:
        return pc.cast(pc.utf8_trim_whitespace(strings), type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(texts), pa.null())


def _unescaped(text: str) -> str:
    return unquote(text, encoding="latin-1")


def _infer(texts: Sequence[str]) -> pa.DataType:
    """The type of a column with these values; ``null`` where it is ambiguous."""
    if texts and all(_INTEGER.fullmatch(text) for text in texts):
        widest = max(abs(int(text)) for text in texts)
        if widest < 2**31:
            return pa.int32()
        return pa.int64() if widest < 2**63 else pa.decimal128(38, 0)
    if texts and all(_DATE.fullmatch(text) for text in texts):
        return pa.date32()
    if texts and all(_NUMBER.fullmatch(text) for text in texts):
        return pa.float64()
    # One value that can only be text makes all of them text.
    if texts and all(_DOUBTFUL.fullmatch(text.strip(_BLANK)) for text in texts):
        return pa.null()
    return pa.string()


class PartitionValues(BaseEvidence):
    """Evidence for one partition column over the files of a listing; see the module."""

    name: ClassVar[str] = "partition"
    level: ClassVar[Level] = Level.OBJECT
    cost: ClassVar[float] = 0.1

    def __init__(self, column: str, values: pa.Array) -> None:
        self.column, self.values = column, values

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """Nothing: the values come from the paths."""
        return ()

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """Exact bounds per leaf; silent answers where the type depends on the session."""
        type_ = self.values.type
        if pa.types.is_null(type_) or pa.types.is_timestamp(type_):
            text = f"values of type {type_} depend on how the session reads them"
            silent = Answer.silent(Cause.NOT_APPLICABLE, f"partition({self.column})", text)
            return [silent] * len(leaves)
        values = self.values.take(pa.array(units.file))
        null = np.asarray(values.is_null().to_numpy(zero_copy_only=False), np.bool_)
        rows = np.where(units.rows < 0, 1, units.rows)
        found = []
        for leaf in leaves:
            if not leaf.type.equals(type_):
                text = f"the path gives {type_}, the table says {leaf.type}"
                subject = f"partition({self.column})"
                found.append(Answer.silent(Cause.UNSUPPORTED, subject, text))
                continue
            keys = order_keys(values, leaf.type)
            # Any positive row count tells "all rows are null" from "none is"; -1 tells nothing.
            nulls = np.where(null, rows, 0)
            intervals = Intervals(type=leaf.type, lo=keys, hi=keys, rows=rows, nulls=nulls)
            found.append(Answer(bounds=interval_bounds(leaf, intervals)))
        return found
