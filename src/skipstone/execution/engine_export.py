"""Exports a plan to DuckDB, polars or pyarrow: the rows to read, without a filter.

The engine gets the files of the plan and no others. For each file it gets the rows that may match
(DuckDB by ``file_row_number``, polars by slices, pyarrow by whole row groups), and all columns of
the table in its order; partition columns have Spark's values. A column that a file lacks is null.
Predicate, order and limit are **not** applied: the result is a superset of the matching rows, and
the caller filters it. The engine's rules for NaN, -0.0 and the comparison of texts may differ from
Spark's. Where everything is skipped the result has the same columns and no rows.

The engine reads later, on its own. The export checks every file: one that has changed since it was
planned is a ``StaleError``. A file that is replaced after the export is not detected: the engine
then reads the old positions in the new file. The export opens every file for its footer, which has
the file's spelling of the columns. A file that had changed when it was first opened is exported
completely.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import StaleError, UnsupportedError
from skipstone.parquet.format.enums import Type
from skipstone.parquet.format.summary_file import is_summary
from skipstone.parquet.reading.row_ranges import group_rows
from skipstone.predicate.types import column_name
from skipstone.storage.base import is_current

from .engine_types import (
    duckdb_column,
    duckdb_lacks,
    other_name,
    plain_type,
    polars_keeps,
    polars_lacks,
    quoted,
    refused,
    types_in,
    without_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow.dataset as ds

    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.pruning import RowSet
    from skipstone.pruning.plan import Plan

    from .table_files import Footers


# At most this many row ranges per file; the closest ranges are joined.
_MOST_RANGES = {"duckdb": 64, "polars": 16}
# At most this many files are read in part. Each needs its own scan, which an engine plans in some
# milliseconds. The others are read whole, many by one scan.
_MOST_CUT = 64
_ROW_NUMBER = "file_row_number"
_HINT = "read the plan with to_arrow()"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExportFile:
    """A file of ``num_rows`` rows, and the ``rows`` and ``row_groups`` to read (``None``: all).

    ``names`` maps the table's column names to the file's, for columns that the file has. ``given``
    holds the partition values of its path. ``schema`` is the file's own. ``int96`` are the columns
    of the file with INT96, which engines read as times without zone. ``noted`` are the types that
    the file's ``ARROW:schema`` names.
    """

    path: str
    num_rows: int
    rows: RowSet | None
    row_groups: tuple[int, ...] | None
    schema: pa.Schema
    int96: frozenset[str]
    noted: Mapping[str, pa.DataType]
    names: Mapping[str, str]
    given: Mapping[str, pa.Scalar]

    def ranges(self, most: int) -> list[tuple[int, int]] | None:
        """``(first row, last row + 1)`` of at most ``most`` ranges; ``None`` for all rows."""
        if self.rows is None:
            return None
        starts, stops = self.rows.ranges()
        gaps = starts[1:] - stops[:-1]
        if len(gaps) >= most:
            kept = np.sort(np.argsort(-gaps, kind="stable")[: most - 1])
            starts, stops = starts[np.append(0, kept + 1)], stops[np.append(kept, len(stops) - 1)]
        return list(zip(starts.tolist(), stops.tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EngineExport:
    """The files of a plan, and the columns of the table, partition columns last."""

    schema: pa.Schema
    files: tuple[ExportFile, ...]
    storage_options: Mapping[str, str]
    verify_checksums: bool = True

    @property
    def plain_schema(self) -> pa.Schema:
        """The columns with plain types in place of Arrow's other encodings of the same values."""
        return pa.schema([(field.name, plain_type(field.type)) for field in self.schema])

    def require(self, engine: str, lacks: Callable[[pa.DataType], bool]) -> None:
        """``UnsupportedError`` for a column of a type that the engine ``lacks``, at any depth.

        For such types engines end the process, fail, or give other values.
        """
        schemas = {str(file.schema): file.schema for file in self.files}
        for schema in (self.schema, *schemas.values()):
            for field in schema:
                if any(lacks(type) for type in types_in(field.type)):
                    raise refused(engine, field.name, str(field.type))

    def bounded(self) -> EngineExport:
        """This export with only the ``_MOST_CUT`` files in part that leave out most rows."""
        cut = [file for file in self.files if file.rows is not None]
        if len(cut) <= _MOST_CUT:
            return self
        cut.sort(key=lambda file: len(file.rows or ()) - file.num_rows)
        whole = {file.path for file in cut[_MOST_CUT:]}
        files = [replace(file, rows=None) if file.path in whole else file for file in self.files]
        return replace(self, files=tuple(files))

    def alike(self) -> Iterator[list[ExportFile]]:
        """Groups of files that one scan can read: whole files with the same columns and types.

        A file that is read in part is a group of its own.
        """

        def kind(file: ExportFile) -> object:
            if file.rows is not None:
                return file.path
            given = tuple(value.as_py() for value in file.given.values())
            columns = tuple(map(str, file.schema.remove_metadata()))
            noted = tuple(map(str, file.noted.values()))
            return given, columns, tuple(file.names.items()), file.int96, noted

        found: dict[object, list[ExportFile]] = {}
        for file in self.files:
            found.setdefault(kind(file), []).append(file)
        return iter(found.values())


def _late(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UnsupportedError(
            f"{name} is not installed", hint=f"pip install {name}, or read with to_arrow()"
        ) from error


# -- DuckDB ----------------------------------------------------------------------------------------


def duckdb_relation(export: EngineExport, connection: Any = None) -> Any:
    """A ``DuckDBPyRelation`` on ``connection`` (by default a new one, in memory)."""
    duckdb, export = _late("duckdb"), export.bounded()
    export.require("DuckDB", duckdb_lacks)
    connection = duckdb.connect() if connection is None else connection
    fields = [(each.name, without_json(each.type)) for each in export.plain_schema]
    empty = connection.from_arrow(pa.schema(fields).empty_table())
    types = dict(zip(export.schema.names, map(str, empty.types), strict=True))
    return connection.sql(_sql(export, types))


def _sql(export: EngineExport, types: Mapping[str, str]) -> str:
    columns = ", ".join(f"NULL::{type} AS {quoted(name)}" for name, type in types.items())
    # Fixes the types and the order of the columns where files lack some, or without files.
    parts = [f"SELECT {columns} WHERE false"]
    parts += [_scan(files, export.schema, types) for files in export.alike()]
    return "\nUNION ALL BY NAME\n".join(parts)


def _scan(files: Sequence[ExportFile], schema: pa.Schema, types: Mapping[str, str]) -> str:
    first, columns = files[0], []
    for name, own in first.names.items():
        stored, wanted = first.schema.field(own), schema.field(name).type
        found = duckdb_column(stored, wanted, own in first.int96, first.path)
        columns.append(f"{found} AS {quoted(name)}")
    for name, value in first.given.items():
        text = "NULL" if not value.is_valid else _text(str(value.cast(pa.string()).as_py()))
        columns.append(f"{text}::{types[name]} AS {quoted(name)}")
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


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _globbed(path: str) -> str:
    """A glob pattern that matches only this path."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)


# -- polars ----------------------------------------------------------------------------------------


def polars_frame(export: EngineExport) -> Any:
    """A ``polars.LazyFrame``."""
    pl, export = _late("polars"), export.bounded()
    export.require("polars", polars_lacks)
    for file in export.files:
        for name, own in file.names.items():
            noted, wanted = file.noted.get(own), export.schema.field(name).type
            if noted is None:
                continue
            inside = list(types_in(noted))
            if any(map(polars_lacks, inside)):
                raise refused("polars", name, f"{noted} in {file.path}")
            if noted != wanted and any(map(polars_keeps, inside)):
                raise refused("polars", name, f"{noted} in {file.path} and {wanted} in the table")
    empty = pl.from_arrow(export.plain_schema.empty_table())
    target = dict(empty.schema)
    groups = (_slices(pl, files, target, export) for files in export.alike())
    frames = [frame for group in groups for frame in group]
    return pl.concat(frames) if frames else empty.lazy()


def _slices(
    pl: Any, files: Sequence[ExportFile], target: Mapping[str, Any], export: EngineExport
) -> Iterator[Any]:
    first = files[0]

    def scanned(schema: Any = None) -> Any:
        # An Arrow schema in the file may name another unit or zone.
        instants = ["nanosecond-downcast", "millisecond-upcast", "convert-timezone"]
        casts = None if schema is None else pl.ScanCastOptions(datetime_cast=instants)
        return pl.scan_parquet(
            [file.path for file in files],
            glob=False,
            schema=schema,
            cast_options=casts,
            hive_partitioning=False,
            storage_options=dict(export.storage_options) or None,
        )

    scan = scanned()
    stored = scan.collect_schema()
    if first.int96:
        # By itself polars reads INT96 as nanoseconds without zone.
        known = [field for field in first.schema if field.name in first.int96]
        schema = pa.schema([(field.name, plain_type(field.type)) for field in known])
        plain = pl.from_arrow(schema.empty_table()).schema
        named = {name: _as_categories(pl, stored[name], type) for name, type in plain.items()}
        stored = {**stored, **named}
        scan = scanned(stored)
    columns = []
    for name, type in target.items():
        own = first.names.get(name)
        if own is None:
            value = first.given.get(name)
            given = None if value is None else value.as_py()
            columns.append(pl.lit(given, dtype=type).alias(name))
        else:
            column = pl.col(own)
            columns.append(_polars_cast(pl, column, stored[own], type).alias(name))
    ranges = first.ranges(_MOST_RANGES["polars"])
    for start, stop in [(0, None)] if ranges is None else ranges:
        piece = scan if stop is None else scan.slice(start, stop - start)
        yield piece.with_columns(columns).select(list(target))


def _as_categories(pl: Any, stored: Any, plain: Any) -> Any:
    """``plain`` with the categories of ``stored``: polars does not read them as texts."""
    if isinstance(stored, pl.Categorical | pl.Enum):
        return stored
    if isinstance(stored, pl.Struct) and isinstance(plain, pl.Struct):
        own = {each.name: each.dtype for each in stored.fields}
        types = {each.name: each.dtype for each in plain.fields}
        return pl.Struct({n: _as_categories(pl, own[n], t) for n, t in types.items()})
    if isinstance(stored, pl.List) and isinstance(plain, pl.List):
        return pl.List(_as_categories(pl, stored.inner, plain.inner))
    return plain


def _polars_cast(pl: Any, column: Any, stored: Any, wanted: Any) -> Any:
    """``column`` as ``wanted``, with the fields of structs matched by name, without case."""
    if stored == wanted:
        return column
    if isinstance(stored, pl.Struct) and isinstance(wanted, pl.Struct):
        own = {each.name.lower(): each for each in stored.fields}
        fields = []
        for each in wanted.fields:
            mine = own.get(each.name.lower())
            if mine is None:
                fields.append(pl.lit(None, dtype=each.dtype).alias(each.name))
            else:
                below = column.struct.field(mine.name)
                fields.append(_polars_cast(pl, below, mine.dtype, each.dtype).alias(each.name))
        return pl.when(column.is_not_null()).then(pl.struct(fields))
    if isinstance(stored, pl.List) and isinstance(wanted, pl.List):
        return column.list.eval(_polars_cast(pl, pl.element(), stored.inner, wanted.inner))
    return column.cast(wanted)


# -- pyarrow ---------------------------------------------------------------------------------------


def pyarrow_dataset(export: EngineExport) -> ds.Dataset:
    """A ``pyarrow.dataset.FileSystemDataset`` of fragments with the row groups of the plan."""
    import pyarrow.dataset as ds

    verified = ds.ParquetFragmentScanOptions(page_checksum_verification=export.verify_checksums)
    format = ds.ParquetFileFormat(
        read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"),
        default_fragment_scan_options=verified,
    )
    system = _filesystem(export)
    fragments, hint = [], "read the plan with to_arrow(), to_duckdb() or to_polars()"
    for file in export.files:
        for name, own in file.names.items():
            wanted = export.schema.field(name)
            other = other_name(file.schema.field(own), wanted)
            if other is not None:
                raise UnsupportedError(
                    f"{file.path} calls the column {other[1]!r} {other[0]!r}, which pyarrow reads "
                    "as another column",
                    hint=hint,
                )
            have = file.schema.field(own).type
            if pa.types.is_timestamp(have) and have.unit == "ns" != wanted.type.unit:
                why = f"{name!r} of {file.path} has nanoseconds, which pyarrow does not cut"
                raise UnsupportedError(why, hint=hint)
        path = file.path.partition("://")[2] or file.path
        fragments.append(
            format.make_fragment(
                path,
                filesystem=system,
                partition_expression=_is(ds, file.given),
                row_groups=None if file.row_groups is None else list(file.row_groups),
            )
        )
    return ds.FileSystemDataset(fragments, export.schema, format, filesystem=system)


def _is(ds: Any, given: Mapping[str, pa.Scalar]) -> Any:
    found = ds.scalar(True)
    for name, value in given.items():
        field = ds.field(name)
        found = found & (field == value if value.is_valid else field.is_null())
    return found


def _filesystem(export: EngineExport) -> Any:
    from pyarrow import fs

    path = export.files[0].path if export.files else ""
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
        given = {name.removeprefix("aws_"): text for name, text in export.storage_options.items()}
        return fs.S3FileSystem(**{known[name]: given[name] for name in known if name in given})
    return fs.FileSystem.from_uri(path)[0]


# -- the files of a plan -------------------------------------------------------------------------


def export_plan(footers: Footers, plan: Plan) -> EngineExport:
    """The files of ``plan`` for another engine.

    ``UnsupportedError`` for files that an engine would not read as the plan's version does;
    ``StaleError`` for a file that has changed since it was planned.
    """
    kept = np.flatnonzero(plan.keep).tolist()
    footers.open(kept)
    for error in footers.files.map(lambda at: _changed(footers, at), kept):
        if error is not None:
            raise error
    schema = footers.table.schema
    _require_own_names(schema)
    return EngineExport(
        schema=schema,
        files=tuple(_file(footers, plan, at) for at in kept),
        storage_options=footers.files.options,
        verify_checksums=footers.files.verify_checksums,
    )


def _changed(footers: Footers, at: int) -> Exception | None:
    """The error of a file that is no longer the version that was opened."""
    if at in footers.failed:
        return footers.failed[at]
    opened = footers.opened[at].opened
    growing = "size" in footers.files.opening(opened.id)
    if growing or is_current(footers.files.storage, opened.id):
        return None
    footers.files.forget(opened.path)
    return StaleError(f"{opened.path} changed since it was planned", hint="make the plan again")


def _require_own_names(schema: pa.Schema) -> None:
    lower = [name.lower() for name in schema.names]
    if len(set(lower)) < len(lower):
        raise UnsupportedError(
            "columns that differ only in case are one column to some engines",
            hint=_HINT,
        )


def _file(footers: Footers, plan: Plan, at: int) -> ExportFile:
    if "size" in footers.files.opening(footers.listing.object_id(at)):
        raise UnsupportedError(
            f"{plan.listing.paths[at]} may grow: other engines would read past the snapshot",
            hint=_HINT,
        )
    if gone := plan.deleted.get(at):
        text = f"{gone:,} rows of {plan.listing.paths[at]} are deleted"
        raise UnsupportedError(text, hint=_HINT)
    view = footers.opened[at]
    file = view.opened
    if is_summary(file.footer):
        raise UnsupportedError(
            f"the columns of {file.path} lie in other files, which other engines do not read",
            hint=_HINT,
        )
    if file.chunk_pages.decryptor is not None:
        raise UnsupportedError(
            f"{file.path} is encrypted: its keys are not passed to other engines",
            hint="read the plan with to_arrow(), or leave files in the clear for them",
        )
    if (name := view.only_by_ids) is not None:
        text = f"{name!r} or a field of it has another name in {file.path}"
        raise UnsupportedError(text, hint=_HINT)
    names: dict[str, str] = {}
    given: dict[str, pa.Scalar] = {}
    for name in footers.table.schema.names:
        value, path = view.given(name), view.path(column_name((name,)))
        if value is not None:
            given[name] = value
        elif path is not None:
            names[name] = path[0]
    detail = plan.details.get(at)
    rows = detail.rows if detail is not None and footers.fresh(at) else None
    groups = [group.row_group for group in group_rows(rows, file.row_starts)]
    return ExportFile(
        path=file.path,
        num_rows=file.num_rows,
        rows=None if rows is None or len(rows) == file.num_rows else rows,
        row_groups=None if len(groups) == file.num_row_groups else tuple(groups),
        schema=file.schema,
        int96=frozenset(
            leaf.path[0] for leaf in file.footer.schema.leaves if leaf.type is Type.INT96
        ),
        noted=_noted(file),
        names=names,
        given=given,
    )


def _noted(file: ParquetFile) -> Mapping[str, pa.DataType]:
    for pair in file.footer.key_value_metadata or ():
        if pair.key == "ARROW:schema" and pair.value is not None:
            with suppress(ValueError, OSError, pa.ArrowException):  # damaged: engines ignore it
                found = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(pair.value)))
                return {each.name: each.type for each in found}
    return {}
