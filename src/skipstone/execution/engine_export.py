"""A plan handed over to DuckDB, polars or pyarrow: what they are to read, and nothing decided.

Each gets the files of the plan and no others, of each file the rows that may match (DuckDB by
``file_row_number``, polars by slices, pyarrow by whole row groups), all columns of the table in its
order, and those of the paths with Spark's values. A column that a file lacks is null. The predicate
is **not** applied, nor an order or a limit: what comes is a superset of the rows that match, and
the caller filters it by the rules of that engine, which may mean something else by NaN, -0.0, or a
comparison of texts. Where everything is skipped there are no rows, and the same columns.

The engines read by themselves, later. Files are looked at when they are handed over: one that has
changed since it was planned is a ``StaleError``. One that is replaced after that nobody notices,
and it is read at the places of the old one.

DuckDB and polars are imported when they are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow.dataset as ds

    from skipstone.pruning import RowSet

__all__ = ["Handed", "HandedFile", "duckdb_relation", "polars_frame", "pyarrow_dataset"]

# Ranges of rows that a file is read in; nearer ones are joined until there are no more.
_MOST_RANGES = {"duckdb": 64, "polars": 16}
# Files that are read in part, each by a scan of its own, which takes an engine some milliseconds to
# plan; of more the others are read whole, many by one scan.
_MOST_CUT = 64
_ROW_NUMBER = "file_row_number"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HandedFile:
    """A file of ``num_rows`` rows, of which ``rows`` and ``row_groups`` are wanted (``None``: all).

    ``names`` are the names in the file by the table's, for the columns that it has; ``given`` the
    values of its path. ``schema`` is the file's own.
    """

    path: str
    num_rows: int
    rows: RowSet | None
    row_groups: tuple[int, ...] | None
    schema: pa.Schema
    names: Mapping[str, str]
    given: Mapping[str, pa.Scalar]

    def ranges(self, most: int) -> list[tuple[int, int]] | None:
        """First row and row behind the last of at most so many ranges; ``None`` for all rows."""
        if self.rows is None:
            return None
        starts, stops = self.rows.ranges()
        gaps = starts[1:] - stops[:-1]
        if len(gaps) >= most:
            kept = np.sort(np.argsort(-gaps, kind="stable")[: most - 1])
            starts, stops = starts[np.append(0, kept + 1)], stops[np.append(kept, len(stops) - 1)]
        return list(zip(starts.tolist(), stops.tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Handed:
    """The files of a plan, and the columns of the table: those of the paths come last."""

    schema: pa.Schema
    files: tuple[HandedFile, ...]
    storage_options: Mapping[str, str]

    @property
    def plain_schema(self) -> pa.Schema:
        """The columns without dictionaries: how values are stored is no part of their type."""
        return pa.schema([(field.name, _plain(field.type)) for field in self.schema])

    def bounded(self) -> Handed:
        """The same with no more than ``_MOST_CUT`` files in part, which are those of which most is
        left out."""
        cut = [file for file in self.files if file.rows is not None]
        if len(cut) <= _MOST_CUT:
            return self
        cut.sort(key=lambda file: len(file.rows or ()) - file.num_rows)
        whole = {file.path for file in cut[_MOST_CUT:]}
        files = [replace(file, rows=None) if file.path in whole else file for file in self.files]
        return replace(self, files=tuple(files))

    def alike(self) -> Iterator[list[HandedFile]]:
        """The files that one scan can read: all of them whole, and of one kind.

        A file of which only some rows are wanted is alone.
        """

        def kind(file: HandedFile) -> object:
            if file.rows is not None:
                return file.path
            given = tuple(value.as_py() for value in file.given.values())
            return given, tuple(map(str, file.schema.remove_metadata())), tuple(file.names)

        found: dict[object, list[HandedFile]] = {}
        for file in self.files:
            found.setdefault(kind(file), []).append(file)
        return iter(found.values())


def _plain(type: pa.DataType) -> pa.DataType:
    return type.value_type if pa.types.is_dictionary(type) else type


def _late(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UnsupportedError(
            f"{name} is not installed", hint=f"pip install {name}, or read with to_arrow()"
        ) from error


# -- DuckDB ----------------------------------------------------------------------------------------


def duckdb_relation(handed: Handed, connection: Any = None) -> Any:
    """A ``DuckDBPyRelation`` on ``connection`` (by default one of its own, in memory)."""
    duckdb, handed = _late("duckdb"), handed.bounded()
    connection = duckdb.connect() if connection is None else connection
    try:
        empty = connection.from_arrow(handed.plain_schema.empty_table())
    except duckdb.Error as error:
        raise UnsupportedError(
            f"DuckDB has no type for a column of this table: {error}",
            hint="read the plan with to_arrow()",
        ) from error
    types = dict(zip(handed.schema.names, map(str, empty.types), strict=True))
    return connection.sql(_sql(handed, types))


def _sql(handed: Handed, types: Mapping[str, str]) -> str:
    columns = ", ".join(f"NULL::{type} AS {_quoted(name)}" for name, type in types.items())
    # The types and the order of the columns, where the files lack some, or there are none.
    parts = [f"SELECT {columns} WHERE false"]
    parts += [_scan(files, types) for files in handed.alike()]
    return "\nUNION ALL BY NAME\n".join(parts)


def _scan(files: Sequence[HandedFile], types: Mapping[str, str]) -> str:
    first = files[0]
    columns = [f"{_quoted(own)} AS {_quoted(name)}" for name, own in first.names.items()]
    for name, value in first.given.items():
        text = "NULL" if not value.is_valid else _text(str(value.cast(pa.string()).as_py()))
        columns.append(f"{text}::{types[name]} AS {_quoted(name)}")
    paths = ", ".join(_text(_globbed(file.path)) for file in files)
    ranges = first.ranges(_MOST_RANGES["duckdb"])
    taken = {name.lower() for name in first.schema.names}
    if ranges is None or _ROW_NUMBER in taken:
        where = numbered = ""
    else:
        numbered = f", {_ROW_NUMBER}=true"
        parts = [f"{_ROW_NUMBER} BETWEEN {start} AND {stop - 1}" for start, stop in ranges]
        where = f" WHERE {' OR '.join(parts) or 'false'}"
    shown = ", ".join(columns) or "1"
    return f"SELECT {shown} FROM read_parquet([{paths}], hive_partitioning=false{numbered}){where}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _globbed(path: str) -> str:
    """A pattern that only this path fits."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)


# -- polars ----------------------------------------------------------------------------------------


def polars_frame(handed: Handed) -> Any:
    """A ``polars.LazyFrame``."""
    pl, handed = _late("polars"), handed.bounded()
    empty = pl.from_arrow(handed.plain_schema.empty_table())
    target = dict(empty.schema)
    frames = [
        frame for files in handed.alike() for frame in _slices(pl, files, target, handed)
    ]  # fmt: skip
    return pl.concat(frames) if frames else empty.lazy()


def _slices(
    pl: Any, files: Sequence[HandedFile], target: Mapping[str, Any], handed: Handed
) -> Iterator[Any]:
    first = files[0]
    scan = pl.scan_parquet(
        [file.path for file in files],
        glob=False,
        hive_partitioning=False,
        storage_options=dict(handed.storage_options) or None,
    )
    stored = scan.collect_schema()
    columns = []
    for name, type in target.items():
        own = first.names.get(name)
        if own is None:
            value = first.given.get(name)
            given = None if value is None else value.as_py()
            columns.append(pl.lit(given, dtype=type).alias(name))
        else:
            column = pl.col(own)
            columns.append((column if stored[own] == type else column.cast(type)).alias(name))
    ranges = first.ranges(_MOST_RANGES["polars"])
    for start, stop in [(0, None)] if ranges is None else ranges:
        piece = scan if stop is None else scan.slice(start, stop - start)
        yield piece.with_columns(columns).select(list(target))


# -- pyarrow ---------------------------------------------------------------------------------------


def pyarrow_dataset(handed: Handed) -> ds.Dataset:
    """A ``pyarrow.dataset.FileSystemDataset`` of fragments with the row groups of the plan."""
    import pyarrow.dataset as ds

    format = ds.ParquetFileFormat()
    system = _filesystem(handed)
    fragments = []
    for file in handed.files:
        for name, own in file.names.items():
            if name != own:
                raise UnsupportedError(
                    f"{file.path} calls the column {name!r} {own!r}, which pyarrow takes for "
                    "another",
                    hint="read the plan with to_arrow(), to_duckdb() or to_polars()",
                )
        path = file.path.partition("://")[2] or file.path
        fragments.append(
            format.make_fragment(
                path,
                filesystem=system,
                partition_expression=_is(ds, file.given),
                row_groups=None if file.row_groups is None else list(file.row_groups),
            )
        )
    return ds.FileSystemDataset(fragments, handed.schema, format, filesystem=system)


def _is(ds: Any, given: Mapping[str, pa.Scalar]) -> Any:
    found = ds.scalar(True)
    for name, value in given.items():
        field = ds.field(name)
        found = found & (field == value if value.is_valid else field.is_null())
    return found


def _filesystem(handed: Handed) -> Any:
    from pyarrow import fs

    path = handed.files[0].path if handed.files else ""
    scheme, _, _ = path.partition("://")
    if "://" not in path:
        return fs.LocalFileSystem()
    if scheme in ("s3", "s3a"):
        known = {
            "endpoint": "endpoint_override",
            "access_key_id": "access_key",
            "secret_access_key": "secret_key",
            "session_token": "session_token",
            "region": "region",
        }
        given = {name.removeprefix("aws_"): text for name, text in handed.storage_options.items()}
        return fs.S3FileSystem(**{known[name]: given[name] for name in known if name in given})
    return fs.FileSystem.from_uri(path)[0]
