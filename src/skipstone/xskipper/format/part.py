"""One part file of an Xskipper store: Parquet bytes <-> its schema and its raw columns.

A directory holds plain Spark output, ``part-00000-<uuid>-c000.snappy.parquet``, one row per data
file and one schema for all parts. Keys of the footer::

    org.apache.spark.sql.parquet.row.metadata   the schema, see schema.py
    org.apache.spark.version                    whose conventions the values follow
    org.apache.spark.legacyINT96                timestamps counted in the hybrid calendar
    org.apache.spark.legacyDateTime             dates counted in the hybrid calendar
    skipstone.version                           Skipstone wrote this part

The third and fourth are also implied by Spark versions before 3.1 and 3.0. Between the calendars,
and between the clocks before standard time, days and instants differ: ``Calendar`` says whether old
values can be taken as they are.

Written: SNAPPY, nullable columns, timestamps as INT96, decimals as Spark stores them, lists as
``list.element``; no Arrow schema, which Spark does not use. INT96 is read as microseconds: the
nanoseconds that Arrow reads by default end in the year 2262 and wrap around silently.

Anybody may have written a part in the clear: our own reader decodes it (``plain_part``), because
damaged values of a footer end the process within Arrow. Encrypted parts (Parquet modular
encryption) are read by Arrow with the caller's decryption properties, which authenticates them
first; each column that cannot be decrypted is left out with a reason. Parts in the clear are
refused then.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import field
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone._dataclasses import dataclass
from skipstone.errors import (
    FormatError,
    KeyUnavailableError,
    SkipstoneError,
    UnsupportedError,
    first_line,
)
from skipstone.parquet.encryption.open_footer import open_footer
from skipstone.parquet.format.footer import bytes_of_pairs
from skipstone.parquet.format.footer import read_footer as find_footer
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.reading.file_reader import FileReader
from skipstone.parquet.reading.pinned_file import OpenedFooter, OpenFileReader
from skipstone.pruning.column_types import proleptic

from .naming import OBJ_NAME
from .schema import ROW_METADATA_KEY, StoreSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from skipstone.parquet.encryption.master_keys import LabelledKeys


# Bytes, an Arrow buffer, or anything seekable that Arrow reads from.
Source: TypeAlias = Any

_SPARK_VERSION = "org.apache.spark.version"
_OWN = "skipstone.version"
# Proleptic Gregorian for dates and INT96, in every Spark that reads this: true from 3.1 on.
_WRITTEN_AS = "4.0.0"
_MASTER_KEY = re.compile(rb'"masterKeyID"\s*:\s*("(?:[^"\\]|\\.){0,1000}")')
_MAX_TEXT = 1 << 26
# Xskipper's limits of one part.
_PART_ROWS, _PART_BYTES = 50_000, 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """True where values may be counted in the hybrid Julian calendar: of ``date``, of INT96."""

    legacy_dates: bool = False
    legacy_timestamps: bool = False

    @classmethod
    def of(cls, keys: Mapping[str, str]) -> Calendar:
        """From the keys of a footer, by Spark's own rules."""
        # Without a version Spark takes the values as they are.
        said = {_SPARK_VERSION: _WRITTEN_AS, **keys}
        known = {key.encode(): value.encode() for key, value in said.items()}
        return cls(
            legacy_dates=not proleptic(known, int96=False),
            legacy_timestamps=not proleptic(known, int96=True),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFooter:
    """The footer of a part. ``own``: written by Skipstone, so its bounds are Skipstone's.

    ``keys``: the other keys of the footer. ``arrays``: the footer itself, of a part in the clear;
    ``columns`` the columns that are stored.
    """

    schema: StoreSchema
    rows: int
    calendar: Calendar
    own: bool
    keys: tuple[tuple[str, str], ...]
    arrays: FooterArrays | None = field(default=None, compare=False, repr=False)
    columns: pa.Schema = field(default=pa.schema([]), compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartContents:
    """One part: ``table`` has the columns that could be read, timestamps in microseconds.

    ``unreadable``: (column of the store, reason) of those that could not.
    """

    footer: PartFooter
    table: pa.Table
    unreadable: tuple[tuple[str, str], ...] = ()


def _errors(decryption: object | None) -> tuple[type[Exception], ...]:
    """The exceptions that a read may raise. A key service is the caller's code: any exception."""
    plain = (SkipstoneError, pa.ArrowException, OSError, ValueError, MemoryError)
    return plain if decryption is None else (Exception,)


@dataclass(frozen=True, slots=True)
class _OpenPart:
    """An open part: the pairs of its footer, its rows, and how its columns are read."""

    pairs: Mapping[bytes, bytes]
    rows: int
    columns: pa.Schema
    read: Callable[[list[str]], pa.Table]
    arrays: FooterArrays | None = None


def plain_part(source: BinaryIO, file: str | None = None) -> FileReader:
    """The reader of a part in the clear, for errors called ``file``.

    ``KeyUnavailableError`` for an encrypted footer, ``FormatError`` for what is not Parquet.
    Columns that are encrypted under a footer in the clear cannot be read.
    """
    reader = OpenFileReader(source, file or "part")
    tail, data = find_footer(source)
    if tail.encrypted:
        raise _locked(data, file)
    found = open_footer(data, encrypted=False, base=tail.offset, file=file)
    opened = OpenedFooter(tail=tail, footer=found.footer, unavailable=found.unavailable)
    return FileReader(reader.id, reader, opened)


def _open(source: Source, file: str | None, decryption: object | None) -> _OpenPart:
    if isinstance(source, bytes | bytearray | memoryview):
        source = pa.py_buffer(source)
    reader = pa.BufferReader(source) if isinstance(source, pa.Buffer) else source
    try:
        return _plain(reader, file) if decryption is None else _encrypted(reader, file, decryption)
    except FormatError as error:
        raise (error if file is None else error.in_file(file)) from error
    except _errors(decryption) as error:
        if isinstance(error, KeyUnavailableError) and decryption is not None:
            text = f"{file or 'part'}: {error.message}"
            raise KeyUnavailableError(text, hint=error.hint) from None
        if isinstance(error, SkipstoneError):
            raise
        found = None if decryption is None else _encrypted_footer(reader)
        if found is not None:
            raise _locked(found, file) from None
        raise FormatError(f"not a Parquet file ({first_line(error, 200)})", file=file) from None


def _locked(footer: memoryview, file: str | None) -> KeyUnavailableError:
    label = footer_key_label(footer)
    named = f" with the key labelled {label!r}" if label else ""
    return KeyUnavailableError(f"{file or 'part'}: the footer is encrypted{named}")


def _plain(source: BinaryIO, file: str | None) -> _OpenPart:
    reader = plain_part(source, file)

    def read(names: list[str]) -> pa.Table:
        return reader.read_fields(reader.selection.of_paths([(name,) for name in names]))

    pairs = bytes_of_pairs(reader.footer.key_value_metadata)
    rows = int(reader.row_starts[-1])
    return _OpenPart(pairs, rows, reader.schema, read, reader.footer)


def _encrypted(reader: pa.NativeFile, file: str | None, decryption: object) -> _OpenPart:
    found = pq.ParquetFile(
        reader,
        metadata=_decrypted_footer(reader, file, decryption),
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
    )
    pairs = found.metadata.metadata or {}
    rows, columns = found.metadata.num_rows, found.schema_arrow
    return _OpenPart(
        pairs, rows, columns, lambda names: found.read(columns=names, use_threads=False)
    )


def _decrypted_footer(reader: pa.NativeFile, file: str | None, decryption: object) -> Any:
    """The footer of an encrypted part, with the decryptor of its columns.

    ``UnsupportedError`` for a plaintext part: an attacker without the keys could have put it there,
    and Arrow's key tools accept it. Arrow verifies the signature of a plaintext footer.
    """
    tail, footer = find_footer(reader)
    if not tail.encrypted and FooterArrays.scan(footer).encryption_algorithm is None:
        raise UnsupportedError(
            f"{file or 'the part'} is not encrypted, and keys for the store were given",
            hint="leave them out if the store is in the clear",
        )
    alone = pa.py_buffer(tail.magic + footer + tail.to_bytes())
    return pq.read_metadata(alone, decryption_properties=decryption)


def _encrypted_footer(reader: pa.NativeFile) -> memoryview | None:
    try:
        tail, footer = find_footer(reader)
    except (pa.ArrowException, OSError, ValueError, AttributeError):
        return None
    return footer if tail.encrypted else None


def footer_key_label(footer: bytes | memoryview) -> str | None:
    """The label of the key of an encrypted footer; ``None`` if unnamed.

    The file's plaintext crypto metadata precedes the encrypted part; the key material in it is
    JSON.
    """
    found = _MASTER_KEY.findall(footer)
    try:
        label = json.loads(found[0]) if found else None
    except ValueError:
        return None
    return label if isinstance(label, str) else None


def _footer(opened: _OpenPart, file: str | None) -> PartFooter:
    keys = {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for key, value in opened.pairs.items()
        if key.decode("utf-8", "replace") != ROW_METADATA_KEY
    }
    text = opened.pairs.get(ROW_METADATA_KEY.encode())
    if text is None or len(text) > _MAX_TEXT:
        raise FormatError(
            "not a part of an Xskipper store",
            file=file,
            expected=f"footer key {ROW_METADATA_KEY}",
            got="none" if text is None else f"{len(text)} bytes",
        )
    return PartFooter(
        schema=StoreSchema.from_json(text, file=file),
        rows=opened.rows,
        calendar=Calendar.of(keys),
        own=_OWN in keys,
        keys=tuple(sorted(keys.items())),
        arrays=opened.arrays,
        columns=opened.columns,
    )


def read_footer(
    source: Source, *, file: str | None = None, decryption: object | None = None
) -> PartFooter:
    """The footer of a part, of any version up to 4.

    ``decryption``: pyarrow's ``FileDecryptionProperties``. ``FormatError`` for what is not a part,
    ``UnsupportedError`` above version 4, ``KeyUnavailableError`` for an encrypted footer.
    """
    return _footer(_open(source, file, decryption), file)


def read_part(
    source: Source,
    *,
    columns: Collection[str] | None = None,
    file: str | None = None,
    decryption: object | None = None,
) -> PartContents:
    """The footer and the columns (all, or those named and ``obj_name``) of a part.

    Errors: those of ``read_footer``, ``UnsupportedError`` for version 0; and ``obj_name`` itself
    must be readable. Other columns fail by themselves, into ``unreadable``.
    """
    opened = _open(source, file, decryption)
    footer = _footer(opened, file)
    footer.schema.require_usable()
    present = list(footer.columns.names)
    wanted = [
        entry.name
        for entry in footer.schema.fields
        if columns is None or entry.name in columns or entry.name == OBJ_NAME
    ]
    readable = [name for name in wanted if present.count(name) == 1]
    lost = [(name, "the part has no such column") for name in wanted if name not in readable]
    if OBJ_NAME not in readable:
        raise FormatError("the part has no column obj_name", file=file)
    try:
        table = opened.read(readable)
    except _errors(decryption):
        table, more = _read_singly(opened, readable, footer, file, _errors(decryption))
        lost += more
    return PartContents(
        footer=footer, table=table.replace_schema_metadata(None), unreadable=tuple(lost)
    )


def _read_singly(
    opened: _OpenPart,
    names: list[str],
    footer: PartFooter,
    file: str | None,
    errors: tuple[type[Exception], ...],
) -> tuple[pa.Table, list[tuple[str, str]]]:
    """Read column by column, so that one that cannot be decrypted or decoded fails alone."""
    labels = {index.name: index.key_metadata for index in footer.schema.indexes}
    columns: dict[str, pa.ChunkedArray] = {}
    lost: list[tuple[str, str]] = []
    for name in names:
        try:
            column = opened.read([name]).column(name)
            if len(column) != footer.rows:
                raise ValueError(f"{len(column)} of {footer.rows} rows")
            columns[name] = column
        except errors as error:
            label = labels.get(name)
            if name == OBJ_NAME and footer.schema.encryption is not None:
                label = footer.schema.encryption.footer_key
                raise KeyUnavailableError(
                    f"{file or 'part'}: obj_name is encrypted with the key labelled {label!r}"
                ) from None
            if name == OBJ_NAME:
                raise FormatError(
                    f"unreadable obj_name ({first_line(error, 200)})", file=file
                ) from None
            lost.append(
                (name, f"needs the key labelled {label!r}" if label else first_line(error, 200))
            )
    return pa.table(columns), lost


def part_name(number: int = 0) -> str:
    """A file name like Spark's, unique by its uuid."""
    return f"part-{number:05d}-{uuid.uuid4()}-c000.snappy.parquet"


def slices(table: pa.Table) -> Iterator[pa.Table]:
    """``table`` cut into pieces of one part each, by Xskipper's limits; one if it is empty."""
    if table.num_rows == 0:
        yield table
    per_row = table.nbytes / table.num_rows if table.num_rows else 1.0
    step = max(1, min(_PART_ROWS, int(_PART_BYTES / max(per_row, 1.0))))
    for at in range(0, table.num_rows, step):
        yield table.slice(at, step)


def to_bytes(
    table: pa.Table,
    schema: StoreSchema,
    *,
    like: PartFooter | None = None,
    keys: LabelledKeys | None = None,
) -> pa.Buffer:
    """One part file of a version 4 store; ``table`` has exactly the schema's columns, in its order.

    ``like``: the footer of the part that the rows come from, where Skipstone did not make them: its
    calendar and its author stay. Without it the rows are Skipstone's own.

    ``keys``: those of the labels of an encrypted store. ``UnsupportedError`` for a schema of
    another version, and where an encrypted index would be written in the clear;
    ``KeyUnavailableError`` where a label has no key.
    """
    if schema.version != 4:
        raise UnsupportedError(
            f"parts of version {schema.version} are not written", hint="upgrade it"
        )
    names = [entry.name for entry in schema.fields]
    if table.column_names != names:
        raise ValueError(f"the table has columns {table.column_names}, the schema {names}")
    properties = _properties(table.schema, schema, keys)
    blobs = {index.name for index in schema.indexes if index.kind == "bloomfilter"}
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema.remove_metadata(),
        compression="snappy",
        use_deprecated_int96_timestamps=True,
        store_decimal_as_integer=True,
        store_schema=False,
        # Every filter is different, so a dictionary of them is useless.
        use_dictionary=[path for path in _leaves(table.schema) if path not in blobs],
        write_statistics=[OBJ_NAME],
        encryption_properties=properties,
    ) as writer:
        per_row = table.nbytes // max(1, table.num_rows) + 1
        writer.write_table(table, row_group_size=max(1, (64 << 20) // per_row))
        author = {_SPARK_VERSION: _WRITTEN_AS, _OWN: "1"} if like is None else dict(like.keys)
        writer.add_key_value_metadata({**author, ROW_METADATA_KEY: schema.to_json()})
    return sink.getvalue()


def _properties(table: pa.Schema, schema: StoreSchema, keys: LabelledKeys | None) -> Any:
    """Arrow's encryption properties for a part, ``None`` for a store in the clear."""
    encryption = schema.encryption
    if encryption is None and not any(index.key_metadata for index in schema.indexes):
        return None
    if encryption is None or keys is None:
        raise UnsupportedError(
            "an Xskipper store with encrypted indexes is not written without their keys",
            hint="pass the keys of its labels, or drop it and build a new index",
        )
    from skipstone.parquet.encryption.master_keys import arrow_encryption

    label_of = {path: label for label, paths in encryption.paths().items() for path in paths}
    known = leaves_of(table)
    indexes = {index.name: index.key_metadata for index in schema.indexes}
    for name, paths in known.items():
        wanted = indexes.get(name, encryption.footer_key)
        if any(label_of.get(path) != wanted for path in paths):
            raise UnsupportedError(
                f"the keys of the store do not agree on column {name}: it is not written",
                hint="an index is never written in the clear, or under another key",
            )
    return arrow_encryption(
        keys,
        encryption.footer_key,
        encryption.paths(),
        plaintext_footer=encryption.plaintext_footer,
    )


def leaves_of(schema: pa.Schema) -> dict[str, list[str]]:
    """The leaf columns of every column of a store, as Parquet names them."""
    found = {}
    for entry in schema:
        if pa.types.is_struct(entry.type):
            found[entry.name] = [f"{entry.name}.{child.name}" for child in entry.type]
        elif pa.types.is_list(entry.type):
            found[entry.name] = [f"{entry.name}.list.element"]
        else:
            found[entry.name] = [entry.name]
    return found


def _leaves(schema: pa.Schema) -> list[str]:
    return [path for paths in leaves_of(schema).values() for path in paths]
