"""Builds the facts of one Parquet file in one pass, without Spark.

The build reads row group by row group, only the leaves of indexed columns, on one thread. Strings
with dictionary-encoded pages are read as dictionaries, so each distinct value is processed once. A
row group that does not fit into the memory is read in batches.

A file gets a fact only if it is the listed version, both when it is opened and after its last byte
was read, and if nothing has changed it for ``settle`` seconds by the store's clock. The build waits
that long for the youngest files. An error in a file becomes ``FileFacts.error``, and the build
continues.

The footer also gives the file's row group metadata (``questdb/pm_of_data_file``).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skipstone.errors import (
    FormatError,
    KeyUnavailableError,
    SkipstoneError,
    StaleError,
    UnsupportedError,
)
from skipstone.facts.encode import FileFacts
from skipstone.identity import UNITS_PER_SECOND
from skipstone.parquet.format.column_files import KEY as COLUMN_FILES
from skipstone.parquet.format.enums import Type
from skipstone.parquet.format.footer import MAGIC, read_footer
from skipstone.predicate.types import TIMESTAMP, MapKey, column_name
from skipstone.pruning.column_types import ancient, overflown, proleptic, values_of_key
from skipstone.pruning.kind import column_fields
from skipstone.questdb.pm_of_data_file import PM, make_pm

from .column_indexes import BuildSettings, Columns, ColumnsBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from skipstone.identity import ObjectId
    from skipstone.parquet.reading.file_reader import FileReader
    from skipstone.pruning import Fetched
    from skipstone.pruning.kind import Index
    from skipstone.pruning.table_schema import FileSchema
    from skipstone.storage import ByteRange, Storage


_SECOND = 1_000_000_000
# Seconds. For a file older than this, the store's clock is not read.
_SURELY_OLD = 86_400 * _SECOND
# Bytes of a decoded value of a type without a fixed width.
_WIDTH = 16
_NOT_IN_CLEAR = (
    "its file encrypts the column, and the index would be in the clear: encrypt the index, or say "
    "plaintext_index=True"
)


def build_file(
    object: ObjectId,
    storage: Storage,
    definitions: Sequence[Index],
    schema: pa.Schema,
    settings: BuildSettings | None = None,
) -> FileFacts:
    """The facts of one Parquet file; ``schema`` is the table's, in canonical types.

    ``UnsupportedError`` where a definition does not fit the schema; errors of the file itself are
    in ``error``.
    """
    settings = settings or BuildSettings()
    column_fields(definitions, schema)
    try:
        if not settled(object, storage, settings.settle):
            text = f"too fresh: changed less than {settings.settle:g} s ago"
            return FileFacts(id=object, error=text, too_fresh=True)
        with storage.open(object.path, object) as source:
            facts = _read(object, source, definitions, schema, settings, storage)
        if not storage.stat(object.path).same_version(object):
            raise StaleError(f"{object.path} changed while it was read")
    except StaleError as error:
        return FileFacts(id=object, error=error.message)
    except Exception as error:  # an error in one file must not end the build of the others
        return FileFacts(id=object, error=_why(error))
    return facts


def settled(object: ObjectId, storage: Storage, seconds: float) -> bool:
    """Waits until the file is ``seconds`` old; False if it is still too young after that."""
    tick = _SECOND // UNITS_PER_SECOND[object.unit]
    # A coarse mtime is rounded down: the true time may be up to a tick later.
    ripe = object.mtime * tick + (tick if tick > 1 else 0) + round(seconds * _SECOND)
    if ripe + _SURELY_OLD < time.time_ns():
        return True
    wait = ripe - storage.now()
    if wait <= 0:
        return True
    longest = ripe - object.mtime * tick
    if wait > longest:
        return _settled_in_future(object, storage, longest)
    time.sleep(wait / _SECOND)
    return storage.now() >= ripe


def _settled_in_future(object: ObjectId, storage: Storage, wait: int) -> bool:
    """Whether a file whose time is in the future stays as it is for ``wait`` nanoseconds.

    A clock was wrong, or somebody set the time. The next change gives the file another time
    whatever the clock says, if it comes later than a tick after the last one.
    """
    try:
        # The time of the last change of any kind, which nobody can set.
        changed = 0 if storage.remote else Path(object.path).stat().st_ctime_ns
        if storage.remote or time.time_ns() - changed <= wait:
            time.sleep(wait / _SECOND)
        return storage.stat(object.path).same_version(object)
    except OSError:
        return False


def _why(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, KeyUnavailableError):
        return f"encrypted, and no key was given: {text}"
    if isinstance(error, FileNotFoundError):
        return "gone"
    # Errors of a disk or a store have an errno; Arrow's own OSErrors do not.
    if isinstance(error, pa.ArrowException) or (isinstance(error, OSError) and not error.errno):
        return f"not readable as Parquet: {text}"
    return f"{type(error).__name__}: {text}"


# -- Parquet --------------------------------------------------------------------------------------


def build_parquet(
    source: BinaryIO,
    definitions: Sequence[Index],
    schema: pa.Schema,
    settings: BuildSettings | None = None,
) -> Columns:
    """The facts of an open Parquet file; raises Arrow's error where it cannot be read."""
    settings = settings or BuildSettings()
    return _columns(source, _footer(source).metadata, definitions, schema, settings)


# Bytes read from the end of a file first; most footers are shorter.
_GUESS = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Footer:
    """Arrow's metadata, and the footer's bytes in a file of ``size`` bytes."""

    metadata: pq.FileMetaData
    data: bytes
    size: int


class _EncryptedError(OSError):
    """The footer, or columns under it, are encrypted."""


def _footer(source: BinaryIO) -> _Footer:
    """The footer; ``_EncryptedError`` also where columns are encrypted under a footer in clear.

    Arrow aborts the process when it reads an encrypted column chunk without the key. Such a footer
    is recognised by its signature, which follows the metadata.
    """
    try:
        tail, footer = read_footer(source, guess=_GUESS)
    except FormatError:
        metadata = pq.read_metadata(source)  # raises Arrow's error
        raise OSError(f"no footer in clear: {metadata.serialized_size} bytes") from None
    if tail.encrypted:
        raise _EncryptedError("the footer is encrypted")
    data = bytes(footer)
    metadata = pq.read_metadata(pa.BufferReader(MAGIC + data + tail.to_bytes()))
    if tail.length != metadata.serialized_size:
        raise _EncryptedError("columns are encrypted under a signed footer")
    # Arrow ignores the file that a chunk names, and reads its offsets in this file.
    if COLUMN_FILES.encode() in data or (
        metadata.num_row_groups
        and metadata.num_columns
        and metadata.row_group(0).column(0).file_path
    ):
        raise UnsupportedError("its columns lie in other files")
    return _Footer(metadata, data, tail.size)


def _read(
    object: ObjectId,
    source: BinaryIO,
    definitions: Sequence[Index],
    schema: pa.Schema,
    settings: BuildSettings,
    storage: Storage,
) -> FileFacts:
    try:
        footer = _footer(source)
    except _EncryptedError:
        return _read_encrypted(object, definitions, schema, settings, storage)
    if settings.decryption is not None and not settings.decryption.allow_plaintext_files:
        raise UnsupportedError(
            f"{object.path} is in the clear, and keys were given",
            hint="if that is as it should be, pass allow_plaintext_files=True with the keys",
        )
    found = _columns(source, footer.metadata, definitions, schema, settings)
    pm, why = _pm(object, footer, settings, storage)
    return FileFacts(
        id=object,
        row_count=found.row_count,
        null_counts=found.null_counts,
        values=found.values,
        reasons={**found.reasons, **({} if why is None else {PM: why})},
        container=found.container,
        pm=pm,
        footer_length=len(footer.data),
        row_groups=footer.metadata.num_row_groups,
        schema=_schema(object, footer.data),
    )


def _schema(object: ObjectId, footer: bytes) -> FileSchema | None:
    """The columns of a file with this footer; ``None`` where they cannot be told: readers of the
    table open the file then."""
    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.reading.selection import Selection

    try:
        return Selection(FooterArrays.scan(footer), object.path).file_schema
    except SkipstoneError:
        return None


def _pm(
    object: ObjectId, footer: _Footer, settings: BuildSettings, storage: Storage
) -> tuple[bytes | None, str | None]:
    """The file's row group metadata, or why it has none."""
    if settings.pm == "none":
        return None, None

    def fetch(ranges: Sequence[ByteRange]) -> Fetched:
        return storage.read_ranges(ranges, {object.path: object})

    try:
        made = make_pm(footer.data, footer.size, mode=settings.pm, path=object.path, fetch=fetch)
    except Exception as error:  # an error here must not cost the other facts
        return None, getattr(error, "message", "") or f"{type(error).__name__}: {error}"
    return made, None


def _columns(
    source: BinaryIO,
    metadata: pq.FileMetaData,
    definitions: Sequence[Index],
    schema: pa.Schema,
    settings: BuildSettings,
) -> Columns:
    rows = metadata.num_rows
    builder = ColumnsBuilder(definitions, schema, settings, rows)
    leaves: dict[str, _Leaf] = {}
    arrow = metadata.schema.to_arrow_schema()
    columns = [metadata.schema.column(i) for i in range(len(metadata.schema))]
    physical = {c.path: (i, c.physical_type) for i, c in enumerate(columns)}
    for column in builder.wanted:
        found = builder.locate(arrow, column, rows)
        if found is None:
            continue
        if (place := _place(physical, found)) is None:
            builder.drop(column, "not of an atomic type in this file")
        else:
            leaves[column] = _Leaf(found, place[0], place[1])
    trusted = {int96: proleptic(metadata.metadata, int96=int96) for int96 in (False, True)}
    for column, values in _decoded(source, metadata, leaves, settings.memory // 4):
        int96 = leaves[column].physical == "INT96"
        doubt = None if trusted[int96] else ancient(values)
        if doubt is None and int96:
            doubt = overflown(values)
        if doubt is None:
            builder.add(column, values)
        else:
            builder.drop(column, doubt)
    return builder.finish(rows)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column in a file: its path, its ordinal, its physical type."""

    path: tuple[str, ...]
    ordinal: int
    physical: str

    @property
    def name(self) -> str:
        """The name that Arrow reads; for a key of a map, the whole map."""
        return ".".join(part for part in self.path if not isinstance(part, MapKey))

    @property
    def key(self) -> MapKey | None:
        """The key of the map, if the column is the value of one."""
        last = self.path[-1]
        return last if isinstance(last, MapKey) else None


def _place(
    physical: Mapping[str, tuple[int, str]], path: tuple[str, ...]
) -> tuple[int, str] | None:
    """Ordinal and physical type of a leaf column; of the map's values where the path ends in a
    key."""
    if not isinstance(path[-1], MapKey):
        return physical.get(".".join(path))
    below = ".".join(path[:-1]) + "."
    leaves = [place for name, place in physical.items() if name.startswith(below)]
    return max(leaves) if len(leaves) == 2 else None


def _decoded(
    source: BinaryIO, metadata: pq.FileMetaData, leaves: dict[str, _Leaf], room: int
) -> Iterator[tuple[str, pa.Array]]:
    """The values of the leaves, piece by piece in file order; about ``room`` bytes at a time."""
    if not leaves:
        return
    names = list(dict.fromkeys(leaf.name for leaf in leaves.values()))
    repetitive = [leaf.name for leaf in leaves.values() if _dictionary_pays(metadata, leaf)]
    sizes = [_decoded_size(metadata, leaves, group) for group in range(metadata.num_row_groups)]
    parquet = pq.ParquetFile(
        source,
        metadata=metadata,
        read_dictionary=repetitive,
        coerce_int96_timestamp_unit="us",
        # Whole column chunks where they fit, else a moving window.
        buffer_size=0 if max(sizes, default=0) <= room else 1 << 20,
    )
    for group, size in enumerate(sizes):
        rows = metadata.row_group(group).num_rows
        if size <= room:
            pieces = iter([parquet.read_row_group(group, columns=names, use_threads=False)])
        else:
            pieces = parquet.iter_batches(
                batch_size=max(1_024, rows * room // (size + 1)),
                row_groups=[group],
                columns=names,
                use_threads=False,
            )
        for piece in pieces:
            for column, leaf in leaves.items():
                values = piece.column(piece.schema.get_field_index(leaf.path[0]))
                chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
                for chunk in chunks:
                    yield column, _leaf_values(chunk, leaf)


def _leaf_values(chunk: pa.Array, leaf: _Leaf) -> pa.Array:
    # A value is null where any struct above it is null.
    inner = [part for part in leaf.path[1:] if not isinstance(part, MapKey)]
    values = pc.struct_field(chunk, inner) if inner else chunk
    if leaf.key is not None:
        values = values_of_key(values, leaf.key)
    # INT96: Arrow gives a time without zone, Spark an instant.
    return values.view(TIMESTAMP) if leaf.physical == "INT96" else values


def _dictionary_pays(metadata: pq.FileMetaData, leaf: _Leaf) -> bool:
    """True where most pages of a string column hold dictionary indices.

    A plain value takes at least the 4 bytes of its length; less than that on average cannot be
    plain.
    """
    if leaf.physical != "BYTE_ARRAY" or leaf.key is not None:
        return False
    size = values = 0
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(leaf.ordinal)
        if not chunk.has_dictionary_page:
            return False
        size += chunk.total_uncompressed_size
        values += chunk.num_values
    return 0 < size < 4 * values


def _decoded_size(metadata: pq.FileMetaData, leaves: dict[str, _Leaf], group: int) -> int:
    """Estimates the bytes of the leaves of a row group, decoded and during decoding."""
    chunks = metadata.row_group(group)
    columns = [chunks.column(i) for i in {leaf.ordinal for leaf in leaves.values()}]
    return sum(2 * c.total_uncompressed_size + _WIDTH * c.num_values for c in columns)


# -- encrypted files ------------------------------------------------------------------------------


def _read_encrypted(
    object: ObjectId,
    definitions: Sequence[Index],
    schema: pa.Schema,
    settings: BuildSettings,
    storage: Storage,
) -> FileFacts:
    """The facts of an encrypted file; all tags and checksums of the pages are checked.

    It gets no row group metadata: a ``_pm`` would combine what the file protects with several keys.
    """
    from skipstone.parquet.reading.file_reader import FileReader
    from skipstone.parquet.reading.pinned_file import PinnedReader, load_footer

    reader = PinnedReader(storage)
    reader.pin(object)
    file = FileReader(object, reader, load_footer(reader, object.path, settings.decryption))
    file.chunk_pages.verify_crc = True
    found, passing = _encrypted_columns(file, definitions, schema, settings)
    pm = {} if settings.pm == "none" else {PM: "its file is encrypted"}
    return FileFacts(
        id=object,
        row_count=found.row_count,
        null_counts=found.null_counts,
        values=found.values,
        reasons={**found.reasons, **pm},
        container=found.container,
        row_groups=file.num_row_groups,
        schema=file.file_schema if settings.plaintext_index or not file.encrypted_footer else None,
        passing=passing,
    )


def _encrypted_columns(
    file: FileReader, definitions: Sequence[Index], schema: pa.Schema, settings: BuildSettings
) -> tuple[Columns, frozenset[str]]:
    """The facts of the indexed columns; and the reasons that other keys or settings would remove.

    A column that its file encrypts is indexed only where the index is encrypted too, or with
    ``BuildSettings.plaintext_index``. A column that the file leaves in the clear is always indexed,
    as far as the footer can be read.
    """
    footer = file.footer
    builder = ColumnsBuilder(definitions, schema, settings, file.num_rows)
    passing: set[str] = set()
    leaves = {leaf.path: leaf for leaf in footer.schema.leaves}
    encrypted = np.asarray((footer.chunk("encrypted") > 0).any(axis=0))
    pairs = footer.key_value_metadata or ()
    trusted = proleptic({p.key.encode(): (p.value or "").encode() for p in pairs}, int96=False)

    def drop(column: str, text: str) -> None:
        """Drops a column for a reason that other keys or settings would remove."""
        before = set(builder.reasons)
        builder.drop(column, text)
        passing.update(set(builder.reasons) - before)

    for column in builder.wanted:
        path = builder.locate(file.schema, column, file.num_rows)
        if path is None:
            continue
        leaf = leaves.get(tuple(map(str, path)))
        if leaf is None or leaf.max_repetition_level:
            builder.drop(column, "not of an atomic type")
        elif encrypted[leaf.ordinal] and not settings.plaintext_index:
            drop(column, _NOT_IN_CLEAR)
        elif leaf.ordinal in file.unavailable:
            drop(column, f"encrypted in its file: {file.unavailable[leaf.ordinal].message}")
        elif leaf.type == Type.INT96:
            builder.drop(column, "INT96 in an encrypted file")
        else:
            place = _Leaf(path, leaf.ordinal, leaf.type.name)
            for group in range(file.num_row_groups):
                for chunk in file.read_row_group(group, [column_name(path)]).column(0).chunks:
                    values = _leaf_values(chunk, place)
                    doubt = None if trusted else ancient(values)
                    if doubt is None:
                        builder.add(column, values)
                    else:
                        builder.drop(column, doubt)
    return builder.finish(file.num_rows), frozenset(passing)
