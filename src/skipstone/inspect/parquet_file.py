"""Inspects a Parquet file: ``inspect_parquet`` collects the parts of a ``FileInspection``.

It reads the footer and the requested parts, a window at a time, and never holds the whole file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skipstone.errors import KeyUnavailableError, SkipstoneError, in_words
from skipstone.human import plain
from skipstone.identity import canonical_path
from skipstone.parquet.arrow.metadata_tables import readable
from skipstone.parquet.encryption.decryption import Decryption, decryption_from_file
from skipstone.parquet.encryption.open_footer import describe_encrypted_footer, describe_encryption
from skipstone.parquet.format.footer import MAGIC, MAGIC_ENCRYPTED, TAIL_LENGTH, Tail
from skipstone.parquet.format.page_index import ColumnIndex
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.reading.index_pages import index_page_root
from skipstone.parquet.reading.page_metadata import (
    bloom_filter_header,
    read_column_index,
    read_offset_index,
)
from skipstone.parquet.reading.verify import verify_file
from skipstone.storage import Storage, open_storage

from .file_description import CHUNK_PARTS, ChunkInspection, FileInspection
from .inspection import InspectOptions, is_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.reading.chunk_pages import ChunkKey


_READERS = dict(
    zip(
        CHUNK_PARTS,
        (read_offset_index, read_column_index, bloom_filter_header, index_page_root),
        strict=True,
    )
)


def inspect_parquet(
    path: str, options: InspectOptions, decryption: Decryption | None = None
) -> FileInspection:
    """Inspect the Parquet file at ``path``.

    ``columns`` selects columns (dotted paths; a group stands for all below it); ``pages``
    also reads page headers, page indexes and the headers of Bloom filters; ``verify`` reads and
    checks everything (``ParquetFile.verify``); ``rows`` first rows are decoded. ``decryption`` has
    the keys, by default those of the file ``keys``.
    Raises ``FormatError`` for a file that is not Parquet or has a damaged footer. With ``verify``,
    raises ``KeyUnavailableError`` if the footer is encrypted and cannot be read.
    """
    if options.keys is not None:
        decryption = decryption_from_file(options.keys)
    try:
        file = ParquetFile(path, storage_options=options.storage_options, decryption=decryption)
    except KeyUnavailableError as error:
        if options.verify:
            raise KeyUnavailableError(
                error.message, hint="give the keys with --keys FILE"
            ) from error
        return _encrypted_footer(canonical_path(path), options, error)
    leaves = _leaves(file, options.columns)
    notes = [
        f"{file.footer.schema.leaves[leaf].name}: {in_words(error, file.path)}"
        for leaf, error in sorted(file.unavailable.items())
        if any(each.ordinal == leaf for each in leaves)
    ]
    decryptor = file.indexed.decryptor
    encryption = None
    if decryptor is not None:
        encryption = describe_encryption(
            decryptor,
            file.footer,
            unavailable=file.unavailable,
            signature_verified=file.signature_verified,
        )
    shown = _rows(file, leaves, options.rows, notes)
    return FileInspection(
        path=file.path,
        size=file.size,
        tail=file.tail,
        arrays=file.footer,
        leaves=leaves,
        encryption=encryption,
        chunks=tuple(_chunks(file, leaves)) if options.pages else None,
        verification=verify_file(file, [leaf.name for leaf in leaves]) if options.verify else None,
        rows=shown,
        notes=tuple(notes),
    )


def _encrypted_footer(
    path: str, options: InspectOptions, error: KeyUnavailableError
) -> FileInspection:
    """The inspection of a file whose encrypted footer cannot be read."""
    storage = open_storage(path, options.storage_options)
    version, end = storage.read_tail(path, 64 * 1024)
    size = version.size or 0
    tail = Tail.from_bytes(end[-TAIL_LENGTH:], size)
    held = len(end) - TAIL_LENGTH
    start = max(held - tail.length, 0)
    description = describe_encrypted_footer(
        bytes(end[start:held]), base=tail.offset + max(tail.length - held, 0), file=path
    )
    return FileInspection(
        path=path,
        size=size,
        tail=tail,
        arrays=None,
        encryption=description,
        notes=(f"the footer cannot be read: {in_words(error, path)}",),
    )


def _leaves(file: ParquetFile, columns: Sequence[str]) -> tuple[ColumnDescriptor, ...]:
    every = file.footer.schema.leaves
    if not columns:
        return every
    wanted = {leaf for each in file.selection.fields(list(columns)) for leaf in each.shape.leaves}
    return tuple(leaf for leaf in every if leaf.ordinal in wanted)


def _rows(
    file: ParquetFile, leaves: Sequence[ColumnDescriptor], rows: int, notes: list[str]
) -> tuple[Mapping[str, Any], ...]:
    names = [leaf.name for leaf in leaves if leaf.ordinal not in file.unavailable]
    rows = min(rows, file.num_rows)
    if not rows or not names:
        return ()
    try:
        table = file.read_rows(names, [(0, rows)])
    except (SkipstoneError, OSError) as error:
        notes.append(f"rows cannot be read: {in_words(error, file.path)}")
        return ()
    columns = [
        [plain(value) for value in _values(table.column(at))] for at in range(table.num_columns)
    ]
    return tuple(
        dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)
    )


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Python values; dates and times as text."""
    import pyarrow as pa

    from skipstone.predicate.literals import text_of_times

    return python_values(text_of_times(column) if pa.types.is_temporal(column.type) else column)


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """The values; a text for each that Python does not have, such as a date after the year 9999."""
    try:
        return list(column.to_pylist(maps_as_pydicts="lossy"))
    except (OverflowError, ValueError, KeyError):  # KeyError: an unknown time zone
        return [_python_value(value) for value in column]


def _python_value(value: pa.Scalar) -> Any:
    try:
        return value.as_py(maps_as_pydicts="lossy")
    except (OverflowError, ValueError, KeyError):
        return "a value that Python cannot represent"


def _chunks(file: ParquetFile, leaves: Sequence[ColumnDescriptor]) -> Iterator[ChunkInspection]:
    for row_group in range(file.num_row_groups):
        for leaf in leaves:
            yield _chunk(file, (row_group, leaf.ordinal), leaf)


def _chunk(file: ParquetFile, key: ChunkKey, leaf: ColumnDescriptor) -> ChunkInspection:
    trouble: list[str] = []
    headers: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    try:
        headers.extend(
            {"offset": each.offset, "header_length": each.header_length, **each.header.to_dict()}
            for each in file.chunk_pages.walk(key)
        )
    except (SkipstoneError, OSError) as error:
        trouble.append(f"pages: {in_words(error, file.path)}")
    for name, read in _READERS.items():
        try:
            value = read(file, key)
        except (SkipstoneError, OSError) as error:
            trouble.append(f"{name.replace('_', ' ')}: {in_words(error, file.path)}")
            continue
        if value is not None:
            found[name] = value.to_dict()
        if isinstance(value, ColumnIndex):
            found[name] |= _texts(value, leaf)
    return ChunkInspection(
        row_group=key[0],
        column=leaf.name,
        page_headers=tuple(headers),
        trouble=tuple(trouble),
        **found,
    )


def _texts(index: ColumnIndex, leaf: ColumnDescriptor) -> dict[str, Any]:
    """The bounds of each page as text."""
    import pyarrow as pa

    found = {}
    for side, values in (("min", index.min_values), ("max", index.max_values)):
        pairs = zip(index.null_pages, values, strict=False)
        given = pa.array([None if null else value for null, value in pairs], pa.binary())
        found[f"{side}_texts"] = readable(given, leaf).to_pylist()
    return found


def is_parquet(storage: Storage, path: str) -> bool:
    """True for a file with Parquet's magic bytes at either end: a torn file is inspected, too."""
    if not is_file(storage, path):
        return False
    with storage.open(path) as file:
        head = file.read(4)
    _, tail = storage.read_tail(path, 4)
    return not {head, bytes(tail)}.isdisjoint({MAGIC, MAGIC_ENCRYPTED})
