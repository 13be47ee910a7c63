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

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skipstone.errors import (
    FormatError,
    KeyUnavailableError,
    StaleError,
    UnsupportedError,
)
from skipstone.facts.encode import FileFacts
from skipstone.facts.part_columns import UNREADABLE
from skipstone.parquet.format.enums import Type
from skipstone.parquet.format.footer import TAIL_LENGTH
from skipstone.parquet.format.metadata import bytes_of_pairs
from skipstone.parquet.format.page_index import place_of_index
from skipstone.parquet.reading.arrow_footer import ArrowColumns
from skipstone.parquet.reading.selection import Selection
from skipstone.predicate.types import TIMESTAMP, MapKey, column_name, is_list
from skipstone.pruning.column_types import ancient, overflown, proleptic, values_of_key
from skipstone.pruning.kind import Index, column_fields
from skipstone.questdb.pm_of_data_file import PM, make_pm

from .column_indexes import BuildSettings, Columns, ColumnsBuilder
from .footers import EncryptedError, Footer, read_checked, schema_of, settled, short_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skipstone.identity import ObjectId
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.reading.file_reader import FileReader
    from skipstone.pruning import Fetched
    from skipstone.storage import ByteRange, Storage


# Writers whose dictionaries have no entry twice. Where one has, Arrow (as of 26) reads other values
# by ``read_dictionary``. DuckDB writes the unused values of an ENUM as empty texts, but then its
# greatest index lies outside of what Arrow keeps, which is an error.
_DISTINCT_DICTIONARIES = (
    *("parquet-mr", "parquet-cpp", "parquet-rs", "datafusion", "Polars", "skipstone", "DuckDB"),
)
# Bytes of a decoded value of a type without a fixed width.
_WIDTH = 16
_DAMAGED = "not readable as Parquet"
_NOT_IN_CLEAR = (
    "its file encrypts the column, and the index would be in the clear: encrypt the index, or pass "
    "plaintext_index=True"
)


def build_file(
    object: ObjectId,
    storage: Storage,
    definitions: Sequence[Index],
    schema: pa.Schema,
    settings: BuildSettings | None = None,
    footer: Footer | None = None,
) -> FileFacts:
    """The facts of one Parquet file; ``schema`` is the table's, in canonical types, ``footer`` that
    of the file, where ``known_footers`` has it.

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
            opened = Opened(object, source, footer)
            facts = _read(opened, definitions, schema, settings, storage)
        if not storage.stat(object.path).same_version(object):
            raise StaleError(f"{object.path} changed while it was read")
    except StaleError as error:
        gone = isinstance(error.__cause__, FileNotFoundError)
        return FileFacts(id=object, error=error.message, gone=gone)
    except Exception as error:  # an error in one file must not end the build of the others
        return _failed(object, error, definitions)
    return facts


_MEMORY: Final = (
    "not enough memory in this task (raise spark.executor.pyspark.memory, or build with less:"
    " memory=…, --memory)"
)


def _failed(object: ObjectId, error: Exception, definitions: Sequence[Index]) -> FileFacts:
    """No facts, and the reason to store for this version of the file.

    Where the file itself is damaged, the reason is that of each index, so that the next build does
    not try these again. Other keys or more memory may mend other errors.
    """
    text = _why(error)
    passing = (UnsupportedError, KeyUnavailableError, FileNotFoundError, MemoryError)
    if isinstance(error, passing):
        return FileFacts(id=object, error=text, gone=isinstance(error, FileNotFoundError))
    lost = [PM, *map(repr, definitions)] if text.startswith(_DAMAGED) else []
    return FileFacts(id=object, error=text, reasons=dict.fromkeys([UNREADABLE, *lost], text))


def _why(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, KeyUnavailableError):
        return f"encrypted, and no key was given: {text}"
    if isinstance(error, FileNotFoundError):
        return "gone"
    if isinstance(error, MemoryError) or "launch worker thread" in text:
        return f"{_MEMORY}: {text}"
    if isinstance(error, FormatError):
        return f"{_DAMAGED}: {error.about}"
    # Errors of a disk or a store have an errno; Arrow's own OSErrors do not.
    if isinstance(error, pa.ArrowException) or (isinstance(error, OSError) and not error.errno):
        return f"{_DAMAGED}: {text}"
    return f"{type(error).__name__}: {text}"


# -- Parquet --------------------------------------------------------------------------------------


def build_parquet(
    source: BinaryIO,
    definitions: Sequence[Index],
    schema: pa.Schema,
    settings: BuildSettings | None = None,
) -> Columns:
    """The facts of an open Parquet file; ``FormatError`` where it cannot be read."""
    settings = settings or BuildSettings()
    return _columns(source, read_checked(source), "", definitions, schema, settings)


@dataclass(frozen=True, slots=True)
class Opened:
    """This version of a file, open, and its footer if it is known."""

    id: ObjectId
    source: BinaryIO
    footer: Footer | None


def _read(
    opened: Opened,
    definitions: Sequence[Index],
    schema: pa.Schema,
    settings: BuildSettings,
    storage: Storage,
) -> FileFacts:
    object, source = opened.id, opened.source
    try:
        footer = opened.footer or read_checked(source)
    except EncryptedError:
        return _read_encrypted(object, definitions, schema, settings, storage)
    if settings.decryption is not None and not settings.decryption.allow_plaintext_files:
        raise UnsupportedError(
            f"{object.path} is in the clear, and keys were given",
            hint="if this is intended, pass allow_plaintext_files=True with the keys",
        )
    try:
        found = _columns(source, footer, object.path, definitions, schema, settings)
    except (pa.ArrowException, OSError) as error:
        # Arrow refuses pages that are sound. What is read anew names the place of a real fault.
        if isinstance(error, MemoryError) or getattr(error, "errno", None):
            raise
        file = _own_reader(object, storage)
        found = _columns(source, footer, object.path, definitions, schema, settings, file)
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
        page_index=place_of_index(footer.arrays, footer.size - TAIL_LENGTH - len(footer.data)),
        row_groups=footer.arrays.num_row_groups,
        chunks=short_chunks(footer.arrays, definitions),
        schema=schema_of(object, footer),
    )


def _pm(
    object: ObjectId, footer: Footer, settings: BuildSettings, storage: Storage
) -> tuple[bytes | None, str | None]:
    """The file's row group metadata, or why it has none."""
    if settings.pm == "none":
        return None, None

    def fetch(ranges: Sequence[ByteRange]) -> Fetched:
        return storage.read_ranges(ranges, {object.path: object})

    try:
        made = make_pm(footer.arrays, footer.size, mode=settings.pm, path=object.path, fetch=fetch)
    except Exception as error:  # an error here must not cost the other facts
        return None, getattr(error, "message", "") or f"{type(error).__name__}: {error}"
    return made, None


def _columns(
    source: BinaryIO,
    footer: Footer,
    path: str,
    definitions: Sequence[Index],
    schema: pa.Schema,
    settings: BuildSettings,
    file: FileReader | None = None,
) -> Columns:
    """The facts of the indexed columns, decoded by Arrow, or by ``file``."""
    selection = Selection(footer.arrays, path)
    rows = int(footer.arrays.row_starts[-1])
    builder = ColumnsBuilder(definitions, schema, settings, rows)
    there: dict[str, tuple[str, ...]] = {}
    for column in builder.wanted:
        found = builder.locate(selection.schema, column, rows)
        if found is not None:
            there[column] = found
    for column in [each for each, found in there.items() if not _is_atomic(selection, found)]:
        builder.drop(column, "not of an atomic type in this file")
        del there[column]
    columns = ArrowColumns(footer.arrays, tuple(map(_nodes, there.values())), path, footer.size)
    leaves = {column: _leaf(columns, found) for column, found in there.items()}
    said = bytes_of_pairs(footer.arrays.key_value_metadata)
    trusted = {int96: proleptic(said, int96=int96) for int96 in (False, True)}
    if file is None:
        decoded = _decoded(source, columns, leaves, settings.memory // 4)
    else:
        decoded = _decoded_here(file, leaves, there)
    for column, values in decoded:
        int96 = leaves[column].type is Type.INT96
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
    """A column: the position of its values in what Arrow reads, its ordinal, its physical type.
    The values of a list are its elements.

    ``key`` is the key of the map, if the column is the value of one: the values are then maps.
    """

    position: tuple[int, ...]
    ordinal: int
    type: Type
    key: MapKey | None = None

    @property
    def name(self) -> str:
        """The name that Arrow knows the values by."""
        return ".".join(map(str, self.position))


def _nodes(path: tuple[str, ...]) -> tuple[str, ...]:
    """The path without the key of a map."""
    return tuple([part for part in path if not isinstance(part, MapKey)])


def _is_atomic(selection: Selection, path: tuple[str, ...]) -> bool:
    """Whether the path names one leaf, a list of one, or ends in the key of a map with one leaf of
    values."""
    node = selection.node(_nodes(path))
    count = node.stop_leaf - node.first_leaf
    if isinstance(path[-1], MapKey):
        return count == 2
    if node.is_list:
        # Arrow gives INT96 in lists in other units.
        return count == 1 and selection.tree.leaves[node.first_leaf].type is not Type.INT96
    return bool(node.is_leaf)


def _leaf(columns: ArrowColumns, path: tuple[str, ...]) -> _Leaf:
    """The leaf of an atomic path."""
    last = path[-1]
    ordinal = columns.selection.node(_nodes(path)).stop_leaf - 1
    return _Leaf(
        position=columns.position(_nodes(path)),
        ordinal=ordinal,
        type=columns.footer.schema.leaves[ordinal].type,
        key=last if isinstance(last, MapKey) else None,
    )


def _decoded(
    source: BinaryIO, columns: ArrowColumns, leaves: dict[str, _Leaf], room: int
) -> Iterator[tuple[str, pa.Array]]:
    """The values of the leaves, piece by piece in file order; about ``room`` bytes at a time."""
    if not leaves:
        return
    footer = columns.footer
    paying = {leaf.name for leaf in leaves.values() if _dictionary_pays(footer, leaf)}
    schema = columns.metadata.schema
    named = [schema.column(at).path for at in range(len(schema)) if paying]
    # The values of a list are named within it.
    repetitive = [
        name for name in named if not paying.isdisjoint(accumulate(name.split("."), "{}.{}".format))
    ]
    sizes = _decoded_sizes(footer, leaves)
    parquet = pq.ParquetFile(
        source,
        metadata=columns.metadata,
        read_dictionary=repetitive,
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
        # Whole column chunks where they fit, else a moving window.
        buffer_size=0 if max(sizes, default=0) <= room else 1 << 20,
    )
    for group, (size, rows) in enumerate(
        zip(sizes, footer.group("num_rows").tolist(), strict=True)
    ):
        if size <= room:
            pieces = iter([parquet.read_row_group(group, use_threads=False)])
        else:
            pieces = parquet.iter_batches(
                batch_size=max(1_024, rows * room // (size + 1)),
                row_groups=[group],
                use_threads=False,
            )
        for piece in pieces:
            for column, leaf in leaves.items():
                values = piece.column(leaf.position[0])
                chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
                for chunk in chunks:
                    yield column, _leaf_values(chunk, leaf)


def _decoded_here(
    file: FileReader, leaves: dict[str, _Leaf], there: dict[str, tuple[str, ...]]
) -> Iterator[tuple[str, pa.Array]]:
    """The same values, decoded here, one column after the other."""
    for column, leaf in leaves.items():
        path = _nodes(there[column])
        place = replace(leaf, position=(0,) * len(path))
        for batch in file.iter_rows([column_name(path)]):
            yield column, _leaf_values(batch.column(0), place)


def _own_reader(
    object: ObjectId, storage: Storage, decryption: Decryption | None = None
) -> FileReader:
    from skipstone.parquet.reading.file_reader import FileReader
    from skipstone.parquet.reading.pinned_file import PinnedReader, load_footer

    reader = PinnedReader(storage)
    reader.pin(object)
    return FileReader(object, reader, load_footer(reader, object.path, decryption))


def _leaf_values(chunk: pa.Array, leaf: _Leaf) -> pa.Array:
    # A value is null where any struct above it is null.
    values = pc.struct_field(chunk, leaf.position[1:]) if leaf.position[1:] else chunk
    if leaf.key is not None:
        values = values_of_key(values, leaf.key)
    if is_list(values.type):
        values = pc.list_flatten(values)
    # INT96: Arrow gives a time without zone, Spark an instant.
    return values.view(TIMESTAMP) if leaf.type is Type.INT96 else values


def _dictionary_pays(footer: FooterArrays, leaf: _Leaf) -> bool:
    """True where most pages of a string column hold dictionary indices.

    The footer may say so of all pages; then no string is copied for each row that has it. Else: a
    plain value takes at least the 4 bytes of its length; less than that on average cannot be plain.
    """
    if leaf.type is not Type.BYTE_ARRAY or leaf.key is not None:
        return False
    if not (footer.created_by or "").startswith(_DISTINCT_DICTIONARIES):
        return False
    if (footer.chunk("dictionary_page_offset")[:, leaf.ordinal] <= 0).any():
        return False
    if (footer.chunk("dict_only")[:, leaf.ordinal] == 1).all():
        return True
    size: int = sum(footer.chunk("total_uncompressed_size")[:, leaf.ordinal].tolist())
    values: int = sum(footer.chunk("num_values")[:, leaf.ordinal].tolist())
    return 0 < size < 4 * values


def _decoded_sizes(footer: FooterArrays, leaves: dict[str, _Leaf]) -> list[int]:
    """Estimates the bytes of the leaves of each row group, decoded and during decoding."""
    at = sorted({leaf.ordinal for leaf in leaves.values()})
    plain, values = footer.chunk("total_uncompressed_size"), footer.chunk("num_values")
    return [
        sum(2 * size + _WIDTH * count for size, count in zip(sizes, counts, strict=True))
        for sizes, counts in zip(plain[:, at].tolist(), values[:, at].tolist(), strict=True)
    ]


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
    file = _own_reader(object, storage, settings.decryption)
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
    trusted = proleptic(bytes_of_pairs(footer.key_value_metadata), int96=False)

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
            # Only this leaf is read from the file, and the structs around it.
            place = _Leaf((0,) * len(path), leaf.ordinal, leaf.type)
            for group in range(file.num_row_groups):
                for chunk in file.read_row_group(group, [column_name(path)]).column(0).chunks:
                    values = _leaf_values(chunk, place)
                    doubt = None if trusted else ancient(values)
                    if doubt is None:
                        builder.add(column, values)
                    else:
                        builder.drop(column, doubt)
    return builder.finish(file.num_rows), frozenset(passing)
