"""Builds the facts of one Parquet file in one pass, without Spark.

The build reads row group by row group, only the leaves of indexed columns. Strings with
dictionary-encoded pages are read as dictionaries, so each distinct value is processed once. A row
group that does not fit into the memory is read in batches. A file is read on one thread, a large
one on one per group of columns (``BuildSettings.threads``): building takes longer than decoding,
and columns are built without each other.

A file gets a fact only if it is the listed version, both when it is opened and after its last byte
was read. Nothing may have changed it for ``settle`` seconds by the store's clock; the build waits
that long for the youngest files. An error in a file becomes ``FileFacts.error``, and the build
continues.

The footer also gives the file's row group metadata (``questdb/pm_of_data_file``).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import (
    FormatError,
    KeyUnavailableError,
    StaleError,
    UnsupportedError,
)
from skipstone.facts.encode import FileFacts
from skipstone.facts.part_columns import PM, UNREADABLE
from skipstone.parquet.format.enums import Type
from skipstone.parquet.format.footer import TAIL_LENGTH, bytes_of_pairs
from skipstone.parquet.format.page_index import place_of_index
from skipstone.parquet.reading.arrow_footer import ArrowColumns
from skipstone.parquet.reading.selection import Selection
from skipstone.predicate.types import column_name
from skipstone.pruning.column_types import ancient, overflown, proleptic
from skipstone.pruning.kind import Index, column_fields
from skipstone.questdb.pm_of_data_file import make_pm

from .column_indexes import BuildSettings, Columns, ColumnsBuilder
from .decoded_columns import (
    DecodedLeaf,
    decoded,
    decoded_here,
    is_atomic,
    leaf_of,
    leaf_values,
    nodes_of,
)
from .footers import (
    EncryptedError,
    Footer,
    page_rows,
    read_checked,
    schema_of,
    settled,
    short_chunks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skipstone.identity import ObjectId
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.reading.file_reader import FileReader
    from skipstone.pruning import Fetched
    from skipstone.storage import ByteRange, Storage


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


#: the error of a file that was deleted after it was listed
GONE: Final = "the file is gone since it was listed"
_MEMORY: Final = (
    "not enough memory in this task (raise spark.executor.pyspark.memory, or build with less:"
    " memory=…, --memory)"
)


def _failed(object: ObjectId, error: Exception, definitions: Sequence[Index]) -> FileFacts:
    """No facts, and the reason to store for this version of the file.

    Where the file itself is damaged, the reason is that of each index, so that the next build does
    not try these again. Other errors may pass with other keys or more memory.
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
        return GONE
    if isinstance(error, MemoryError) or "launch worker thread" in text:
        return f"{_MEMORY}: {text}"
    if isinstance(error, FormatError):
        return f"{_DAMAGED}: {error.about}"
    # Errors of a disk or a store have an errno; Arrow's own OSErrors do not.
    if isinstance(error, pa.ArrowException) or (isinstance(error, OSError) and not error.errno):
        return f"{_DAMAGED}: {text}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {text}"


# -- Parquet --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """A version of a file, open, and its footer if it is known."""

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
    columns = partial(_columns, source, footer, object.path, definitions, schema, settings)
    try:
        found = columns(reopen=lambda: storage.open(object.path, object))
    except (pa.ArrowException, OSError) as error:
        # Arrow refuses some sound pages. Our own reader names the place of a real fault.
        if isinstance(error, MemoryError) or getattr(error, "errno", None):
            raise
        found = columns(file=_own_reader(object, storage))
    pm, why = _pm(object, footer, settings, storage)
    return FileFacts(
        id=object,
        row_count=found.row_count,
        null_counts=found.null_counts,
        values=found.values,
        reasons={**found.reasons, **({} if why is None else {PM: why})},
        container=found.container,
        filters=found.filters,
        filter_places=found.filter_places,
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
    *,
    reopen: Callable[[], BinaryIO] | None = None,
    file: FileReader | None = None,
) -> Columns:
    """The facts of the indexed columns, decoded by Arrow, or by ``file``. ``reopen`` opens the same
    version again, for other threads."""
    selection = Selection(footer.arrays, path)
    rows = int(footer.arrays.row_starts[-1])
    groups = np.diff(footer.arrays.row_starts).tolist()
    builder = ColumnsBuilder(definitions, schema, settings, rows, groups)
    there: dict[str, tuple[str, ...]] = {}
    for column in builder.wanted:
        found = builder.locate(selection.schema, column, rows)
        if found is not None:
            there[column] = found
    for column in [each for each, found in there.items() if not is_atomic(selection, found)]:
        builder.drop(column, "not of an atomic type in this file")
        del there[column]
    for column, found in there.items():
        if builder.asks_pages(column):
            leaf = selection.node(nodes_of(found)).first_leaf
            builder.paged(column, page_rows(source, footer, leaf))
    shares = [list(there)]
    if reopen is not None and settings.threads > 1:
        shares = _shares(footer.arrays, selection, builder.apart(there), there, settings.threads)
    memory = settings.memory // 4 // len(shares)
    decoding = _Decoding(builder, footer, path, there, rows, memory, file)
    if len(shares) == 1:
        decoding.add(source, shares[0])
        return builder.finish(rows)

    def add_apart(some: Sequence[str]) -> None:
        assert reopen is not None
        with reopen() as own:
            decoding.add(own, some)

    with ThreadPoolExecutor(len(shares)) as pool:
        try:
            for each in [pool.submit(add_apart, some) for some in shares]:
                each.result()
        except BaseException:
            decoding.failed.set()
            raise
    return builder.finish(rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Decoding:
    """Decodes columns, ``memory`` bytes at a time, and gives the values to ``builder``. ``there``
    has their paths in the file. Threads stop when ``failed`` is set."""

    builder: ColumnsBuilder
    footer: Footer
    path: str
    there: dict[str, tuple[str, ...]]
    rows: int
    memory: int
    file: FileReader | None
    failed: Event = field(default_factory=Event)

    def add(self, source: BinaryIO, some: Sequence[str]) -> None:
        """Decodes the columns ``some``."""
        nodes = {column: nodes_of(self.there[column]) for column in some}
        arrays = self.footer.arrays
        columns = ArrowColumns(arrays, tuple(nodes.values()), self.path, self.footer.size)
        leaves = {column: leaf_of(columns, self.there[column]) for column in some}
        read = dict.fromkeys(leaves, 0)
        if self.file is None:
            chunks = decoded(source, columns, leaves, self.memory)
        else:
            # ``decoded_here`` gives batches of one column.
            leaves = {
                column: replace(each, position=(0,) * len(each.position))
                for column, each in leaves.items()
            }
            chunks = decoded_here(self.file, nodes)
        pairs = bytes_of_pairs(arrays.key_value_metadata)
        trusted = {int96: proleptic(pairs, int96=int96) for int96 in (False, True)}
        for column, chunk in chunks:
            if self.failed.is_set():
                return
            read[column] += len(chunk)
            values = leaf_values(chunk, leaves[column])
            int96 = leaves[column].type is Type.INT96
            doubt = None if trusted[int96] else ancient(values)
            if doubt is None and int96:
                doubt = overflown(values)
            if doubt is None:
                self.builder.add(column, values)
            else:
                self.builder.drop(column, doubt)
        for column, count in read.items():
            # Arrow's writer and reader disagree on nested columns of only nulls in pages of a byte.
            if count != self.rows:
                by = "Arrow reads" if self.file is None else "there are"
                self.builder.drop(column, f"{by} {count:,} of {self.rows:,} rows")


def _shares(
    footer: FooterArrays,
    selection: Selection,
    groups: Sequence[list[str]],
    there: dict[str, tuple[str, ...]],
    threads: int,
) -> list[list[str]]:
    """Columns for each thread, of about equal bytes: the largest groups first."""

    def size(group: Sequence[str]) -> int:
        leaves = [selection.node(nodes_of(there[column])).first_leaf for column in group]
        return int(footer.chunk("total_uncompressed_size")[:, leaves].sum())

    shares: list[tuple[int, list[str]]] = [(0, []) for _ in range(min(threads, len(groups)))]
    for group in sorted(groups, key=size, reverse=True):
        least = min(range(len(shares)), key=lambda at: shares[at][0])
        held, columns = shares[least]
        shares[least] = (held + size(group), [*columns, *group])
    return [columns for _, columns in shares] or [list(there)]


def _own_reader(
    object: ObjectId, storage: Storage, decryption: Decryption | None = None
) -> FileReader:
    from skipstone.parquet.reading.file_reader import FileReader
    from skipstone.parquet.reading.pinned_file import PinnedReader, load_footer

    reader = PinnedReader(storage)
    reader.pin(object)
    return FileReader(object, reader, load_footer(reader, object.path, decryption))


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
        filters=found.filters,
        filter_places=found.filter_places,
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
    groups = np.diff(footer.row_starts).tolist()
    builder = ColumnsBuilder(definitions, schema, settings, file.num_rows, groups)
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
            place = DecodedLeaf((0,) * len(path), leaf.ordinal, leaf.type)
            if builder.asks_pages(column):
                pages = (file.chunk_pages.walk((g, leaf.ordinal)) for g in range(len(groups)))
                first = [next((p.num_values for p in each if p.ordinal >= 0), 0) for each in pages]
                builder.paged(column, first)
            for group in range(file.num_row_groups):
                for chunk in file.read_row_group(group, [column_name(path)]).column(0).chunks:
                    values = leaf_values(chunk, place)
                    doubt = None if trusted else ancient(values)
                    if doubt is None:
                        builder.add(column, values)
                    else:
                        builder.drop(column, doubt)
    return builder.finish(file.num_rows), frozenset(passing)
