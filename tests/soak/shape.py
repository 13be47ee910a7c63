"""What the tables, lives and predicates of a run may have: named features, and the known gaps.

A trial carries the features that its table, its life and its predicate really use. A gap names
features that fail together today, on all routes or on some: a trial that has all of them is left
out. Whoever closes a gap removes its line, and the fixed seeds cover it from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: name of a feature -> what it allows
FEATURES = {
    # how the files of one table differ
    "missing": "a column that some files lack",
    "reordered": "columns in another order",
    "case": "column names with other capitals",
    "widened_integers": "narrower and wider integers",
    "widened_floats": "float and double",
    "widened_decimals": "decimals of several precisions and scales",
    "integer_and_unsigned": "signed and unsigned integers",
    "integer_and_double": "int and double",
    "integer_and_decimal": "int and decimal",
    "date_and_timestamp": "date and timestamp without zone",
    "timestamp_units": "milliseconds and microseconds",
    "nanoseconds": "timestamps in nanoseconds, beside other units",
    "half_floats": "FLOAT16, beside wider ones",
    "unsigned_widths": "unsigned integers of several widths, beside signed ones and decimals",
    "text_layouts": "large and dictionary strings, binaries of fixed size",
    "no_row_groups": "files without any row group",
    "int96": "timestamps as INT96",
    "nested": "a struct with fields",
    "nested_added": "fields of a struct that some files lack",
    "nested_widened": "fields of a struct that are narrower in some files",
    "nested_case": "fields of a struct with other capitals",
    "lists": "a list column, which predicates do not name",
    "empty_files": "files without rows",
    "many_files": "up to sixty files instead of eight",
    "duckdb": "files written by DuckDB",
    "polars": "files written by polars",
    "spark": "files written by Spark, where there is a session",
    "encodings": "the DELTA encodings and BYTE_STREAM_SPLIT",
    # folders
    "partitions": "folders with integers",
    "partition_dates": "folders with dates",
    "partition_texts": "folders with texts, escapes among them",
    "partition_doubles": "folders with decimal points",
    "partition_longs": "folders with integers beyond int, or beyond bigint",
    "partition_mixed": "folders with integers and texts",
    "partition_nulls": "folders with __HIVE_DEFAULT_PARTITION__",
    "partition_overlap": "a folder's column that the files have too",
    "nested_folders": "folders that give no column, and hidden ones",
    "recursive": "all files below are the table's, and folders give no columns",
    # values
    "invalid_utf8": "bytes that are not UTF-8 in a column of strings",
    "unsigned": "unsigned integers",
    "long_strings": "strings longer than bounds are",
    "nan": "NaN",
    "zeros": "0.0 and -0.0",
    "dictionary": "dictionary arrays",
    "names": "column names with blanks, dots, quotes, keywords",
    # life
    "indexes": "indexes of any kind",
    "append": "files are added after the index was built",
    "replace": "files are replaced",
    "delete": "files are deleted",
    "refresh": "the index is refreshed",
    "compact": "the facts are compacted",
    "drop": "an index is dropped",
    "retrofit": "files get page indexes and Bloom filters",
    "summary": "a _metadata is written",
    "migrate": "row group metadata is written",
    "encrypt": "the files are encrypted in place",
    "decrypt": "encrypted files are decrypted in place",
    "vacuum": "what nobody names is removed",
    "kill": "a process is killed at a step of one of these",
    "kept_table": "one Table object through the table's life",
    "look_inside": "small files are looked into, as large ones are",
    "together": "columns of few small files are read together, as those of many large ones are",
    # predicates
    "casts": "casts of columns",
    "other_literals": "literals of other types",
    "functions": "functions, which no index answers",
    "zones": "other time zones than UTC",
}
EMBEDDED = (
    "query",
    "batches",
    "count",
    "extreme",
    "order",
    "top",
    "plan",
    "schema",
    "duckdb",
    "polars",
    "pyarrow",
    "file",
)
CLASSIC = ("skip", "data_source", "table_read")
CONNECT = ("connect_source", "connect_read")
SPARK = (*CLASSIC, *CONNECT)
ROUTES = (*EMBEDDED, *SPARK)


@dataclass(frozen=True)
class Gap:
    """Features that fail together today; ``routes`` where they do, by default all."""

    features: frozenset[str]
    reason: str
    routes: tuple[str, ...] = ROUTES

    def covers(self, used: Iterable[str], route: str) -> bool:
        return route in self.routes and self.features <= set(used)


def gap(features: str, reason: str, routes: str = "") -> Gap:
    """``features`` and ``routes`` are words."""
    return Gap(frozenset(features.split()), reason, tuple(routes.split()) or ROUTES)


_UNMERGED = "Spark's own mergeSchema does not widen these types"
_NO_TEXT = "these engines refuse strings that are not UTF-8, with an error of their own"
KNOWN_GAPS: tuple[Gap, ...] = (
    gap("invalid_utf8", _NO_TEXT, "duckdb polars"),
    gap("nanoseconds", "these engines cut no nanoseconds", "duckdb polars pyarrow"),
    gap("half_floats", "DuckDB has no such type", "duckdb polars"),
    *(
        gap(feature, "Spark reads no such type", " ".join(SPARK))
        for feature in ("nanoseconds", "half_floats")
    ),
    *(
        gap(feature, _UNMERGED, "skip")
        for feature in (
            "widened_integers",
            "widened_floats",
            "widened_decimals",
            "integer_and_unsigned",
            "integer_and_double",
            "integer_and_decimal",
            "date_and_timestamp",
        )
    ),
)


@dataclass(frozen=True)
class Shape:
    """The settings of a run; ``often`` are the features that it draws in nearly every table."""

    features: frozenset[str] = frozenset(FEATURES)
    often: frozenset[str] = frozenset()
    gaps: tuple[Gap, ...] = KNOWN_GAPS
    routes: tuple[str, ...] = EMBEDDED
    rows: int = 12
    predicates: int = 40

    def has(self, feature: str) -> bool:
        assert feature in FEATURES, feature
        return feature in self.features

    def left_out(self, used: Iterable[str], route: str) -> bool:
        """Whether a known gap covers such a trial."""
        return any(each.covers(used, route) for each in self.gaps)


def without_gaps(
    features: frozenset[str], gaps: tuple[Gap, ...] = KNOWN_GAPS, route: str = ""
) -> frozenset[str]:
    """Without the features that fail by themselves on all routes, or on ``route``."""
    alone = [
        each.features
        for each in gaps
        if len(each.features) == 1 and (each.routes == ROUTES or route in each.routes)
    ]
    return features.difference(*alone)


def chosen_features(text: str) -> frozenset[str]:
    """``all``, ``a,b`` for only these, ``-a,+b`` for all but some."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    relative = any(name[0] in "+-" or name == "all" for name in names)
    found = set(FEATURES) if relative else set()
    for name in names:
        plain = name.lstrip("+-")
        if plain == "all":
            continue
        if plain not in FEATURES:
            raise ValueError(f"no feature {plain!r}; there are {', '.join(FEATURES)}")
        found = found - {plain} if name[0] == "-" else found | {plain}
    return frozenset(found)
