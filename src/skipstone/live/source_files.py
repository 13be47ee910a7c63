"""Rows of Parquet or CSV files that are ingested, read by Arrow.

The columns are those of all files and of folders such as ``day=1``. Types widen as Arrow promotes
them, but not to ones that round.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError
from skipstone.human import of_total
from skipstone.parquet.reading.file import ParquetFile

if TYPE_CHECKING:
    from collections.abc import Iterator


_ONE_TYPE = "ingest the files of one type by themselves"


def batches_of(source: str, source_format: str | None) -> Iterator[pa.RecordBatch]:
    """The rows of a file, or of all files of a directory. ``source_format`` is ``"parquet"`` or
    ``"csv"``; with ``None`` the names of the files say which. The first batch is empty, so that the
    schema is known without rows.

    ``SkipstoneError`` where types do not merge, or only some files are CSV; ``FormatError`` where
    Arrow cannot read a file, or a value does not fit into the type of all files.
    """
    path = Path(source)
    if not path.exists():
        raise SkipstoneError(f"no such file or directory: {source}", hint="check the path")
    if source_format is None:
        source_format = _format_of(path)
    found: ds.Dataset | None = None
    try:
        format: str | ds.FileFormat = source_format
        if source_format == "parquet":
            verified = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
            format = ds.ParquetFileFormat(default_fragment_scan_options=verified)
        found = _dataset(source, format)
        yield pa.RecordBatch.from_pylist([], schema=found.schema)
        yield from found.to_batches()
    except (pa.ArrowException, OSError) as error:
        if source_format == "parquet" and path.is_file():
            try:
                ParquetFile(source)  # says more: encrypted, cut off, of another kind
            except KeyUnavailableError as why:
                hint = "ingest takes files in the clear: `skipstone decrypt FILE -o OUT`"
                raise KeyUnavailableError(why.message, hint=hint) from error
        raise FormatError(
            f"Arrow cannot read it as {source_format}: {error}",
            file=source,
            hint=_ONE_TYPE if found is not None and _widens(found) else None,
        ) from error


def _format_of(path: Path) -> str:
    """The format by the names of the files; ``SkipstoneError`` where only some are CSV."""
    files = [path] if path.is_file() else sorted(filter(Path.is_file, path.rglob("*")))
    # Arrow reads no names that begin like these.
    names = [str(each.relative_to(path.parent)) for each in files]
    names = [each for each in names if not any(part[0] in "._" for part in Path(each).parts[1:])]
    csv = [each for each in names if each.endswith(".csv")]
    if csv and len(csv) < len(names):
        other = next(each for each in names if not each.endswith(".csv"))
        raise SkipstoneError(
            f"{path}: {of_total(len(csv), len(names), 'files')} are CSV, such as {csv[0]}, and not"
            f" {other}",
            hint="ingest files of one format from a directory of their own; with --format csv all"
            " are read as CSV",
        )
    return "csv" if csv else "parquet"


def _dataset(source: str, format: str | ds.FileFormat) -> ds.Dataset:
    """All columns of the files: some may lack one, and folders such as ``day=1`` give one."""
    folders = "hive" if Path(source).is_dir() else None
    try:
        found = ds.dataset(source, format=format, partitioning=folders)
        files = list(found.get_fragments())
        if not files:
            raise SkipstoneError(
                f"{source}: no file to ingest",
                hint="a directory has Parquet or CSV files, also in folders such as day=1",
            )
        schemas = [found.schema, *(each.physical_schema for each in files)]
        if any(not each.equals(schemas[0]) for each in schemas):
            schemas = [_without_dictionaries(each) for each in schemas]
        schema = pa.unify_schemas(schemas, promote_options="permissive")
        for each in schemas:
            _require_exact(pa.struct(list(each)), pa.struct(list(schema)))
    except pa.ArrowTypeError as error:
        raise SkipstoneError(
            f"{source}: a column has types that no column holds together: {error}",
            hint=_ONE_TYPE,
        ) from error
    return ds.FileSystemDataset(files, schema, found.format, found.filesystem)


def _without_dictionaries(schema: pa.Schema) -> pa.Schema:
    """Columns that one file stores as codes may be texts in another."""
    types = [
        each.type.value_type if pa.types.is_dictionary(each.type) else each.type for each in schema
    ]
    return pa.schema(list(zip(schema.names, types, strict=True)), metadata=schema.metadata)


def _widens(found: ds.Dataset) -> bool:
    """Whether a file has a column in another type."""
    files = [each.physical_schema for each in found.get_fragments()]
    return any(each.type != found.schema.field(each.name).type for file in files for each in file)


def _require_exact(type: pa.DataType, merged: pa.DataType) -> None:
    """``ArrowTypeError`` where Arrow rounds values: it casts decimals to floats. Other values that
    do not fit into the ``merged`` type are an error when they are read."""
    if pa.types.is_decimal(type) and pa.types.is_floating(merged):
        raise pa.ArrowTypeError(f"{merged} rounds {type}")
    for at in range(type.num_fields if type != merged else 0):
        name = type.field(at).name
        other = merged.field(merged.get_field_index(name) if pa.types.is_struct(type) else at)
        try:
            _require_exact(type.field(at).type, other.type)
        except pa.ArrowTypeError as error:
            raise pa.ArrowTypeError(f"{name}: {error}") from None
