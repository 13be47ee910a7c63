"""Writes Arrow tables and streams to one Parquet file that readers can skip in: ``write_table``.

    PAR1 | row group, Bloom filters | … | column indexes, offset indexes | footer
         | row group, Bloom filters | … | column indexes, offset indexes | footer | …

The second line shows a file with ``checkpoint_every``: after every n row groups follow their
indexes and a footer of everything so far. Arrow encodes the columns, and this module writes their
pages. Bounds, counts, filters and the order of rows are computed from the values of every page.

Threads encode some columns while others are written. Memory holds at most two row groups of a
stream: the one being written, and the next one, which is read and encoded meanwhile.
"""

from __future__ import annotations

import os
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.human import SHOWN, Report, duration, plural, size
from skipstone.parquet.encryption.encryption import Encryption, FileEncryptor
from skipstone.parquet.encryption.key_material import key_material_path
from skipstone.parquet.evidence.stored_values import Form, StoredColumn
from skipstone.parquet.format.metadata import FileMetaData, SortingColumn
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.reading.row_ranges import are_sorted
from skipstone.parquet.reading.selection import Selection
from skipstone.storage.atomic_replace import (
    BufferedFile,
    local_path,
    put_atomically,
    remove_temporary,
    replace_atomically,
)

from .arrow_encoder import ArrowBlocks, encode_rows, holds_nan, row_groups, schema_and_batches
from .file_writer import CheckpointWriter, FileWriter
from .footer_editor import FooterEditor
from .retrofit_needs import IndexOptions, leaves_of
from .row_group_writer import RowGroupWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from skipstone.parquet.format.footer_arrays import FooterArrays

    from .arrow_encoder import EncodedChunk, Rows


#: Rows of a row group by default; Arrow has the same default.
ROW_GROUP_ROWS: Final = 1 << 20
# Arrow's largest row group.
_MOST_ROWS: Final = 1 << 26
_WORKERS: Final = 2
# Blocks encoded, or being encoded, ahead of the one being written.
_AHEAD: Final = 3
_ARROW_OPTIONS: Final = frozenset(
    {
        "allow_truncated_timestamps",
        "coerce_timestamps",
        "column_encoding",
        "compression_level",
        "data_page_size",
        "data_page_version",
        "dictionary_pagesize_limit",
        "store_decimal_as_integer",
        "store_schema",
        "use_byte_stream_split",
        "use_compliant_nested_type",
        "use_dictionary",
        "version",
        "write_batch_size",
    }
)


def write_table(
    data: Rows,
    path: str | os.PathLike[str],
    *,
    schema: pa.Schema | None = None,
    row_group_rows: int = ROW_GROUP_ROWS,
    page_rows: int | None = None,
    page_index: bool = True,
    bloom: Mapping[str, float] | None = None,
    index_pages: Sequence[str] | None = None,
    interleave: bool = False,
    sorting: Sequence[str] | None = None,
    compression: str | Mapping[str, str] = "snappy",
    encryption: Encryption | None = None,
    checkpoint_every: int = 0,
    arrow_options: Mapping[str, Any] | None = None,
) -> WriteReport:
    """Write Arrow rows to a local Parquet file, completely or not at all.

    >>> skipstone.write_table(table, "events.parquet", page_rows=20_000, sorting=["ts"])

    ``data`` is a table, a record batch, a reader or iterable of them, or an object that exports an
    Arrow stream. An iterable without items needs ``schema``. Row groups have exactly
    ``row_group_rows`` rows and pages exactly ``page_rows``, except the last ones.

    ``page_index``: column and offset indexes. ``bloom``: columns with the probability of a false
    positive; the size of a filter follows from the distinct values of its row group.
    ``index_pages``: index pages of 2013, with keys for the named columns and ordinals for the
    others; with ``interleave`` they lie between the data pages. ``sorting``: keys (``"ts"``,
    ``"ts:desc:nulls_first"``). A row group claims this order if its rows have it; no row is moved.
    ``compression`` is one codec, or one by column. ``encryption``: see ``Encryption``.
    ``arrow_options``: those of ``pyarrow.parquet.write_table`` that concern encoding.

    The file is ``_tmp-NAME-…`` in the same directory until it is complete. With
    ``checkpoint_every`` = n it is ``_unfinished-NAME``, has a footer after every n row groups, and
    stays after a crash or an error: ``salvage`` saves all but the last n row groups at most.

    Raises ``SkipstoneError`` for unknown column names and batches of another schema,
    ``UnsupportedError`` for data that Parquet or Arrow cannot write, ``ValueError`` for numbers out
    of range, ``OSError`` if the path cannot be written.
    """
    started = time.perf_counter()
    _check_requests(row_group_rows, checkpoint_every, encryption, index_pages)
    options = _options(compression, arrow_options or {})
    target = local_path(os.fspath(path))
    found, batches = schema_and_batches(data, schema)
    template = encode_rows(found.empty_table(), **options).footer
    selection = Selection(template, str(target))
    index_options = IndexOptions.of(template, selection, bloom or {}, page_rows, sorting)
    encryptor = _encryptor(encryption, template, target, checkpoint_every)
    indexed = (leaf for name in index_pages or () for leaf in leaves_of(selection, name))
    blocks = ArrowBlocks(
        schema=template.schema,
        index_options=index_options,
        options=options,
        keys=frozenset(each.column_idx for each in index_options.sorting or ()),
        indexed=frozenset(indexed),
    )
    irrevocable, unbounded = _unreliable_bounds(data, found, template, encryptor)
    between = "between" if interleave else "behind"
    work = _TableWriting(
        blocks=blocks,
        template=template,
        encryptor=encryptor,
        every=checkpoint_every,
        page_index=page_index,
        index_pages=None if index_pages is None else between,
        irrevocable=irrevocable,
        unbounded=unbounded,
    )
    made, size = work.write_to(target, row_groups(found, batches, row_group_rows))
    return work.report(str(target), made, size, time.perf_counter() - started)


def _check_requests(
    row_group_rows: int,
    checkpoint_every: int,
    encryption: Encryption | None,
    index_pages: Sequence[str] | None,
) -> None:
    if not 0 < row_group_rows <= _MOST_ROWS:
        raise ValueError(
            f"row_group_rows is {row_group_rows}, but must be between 1 and {_MOST_ROWS:,}"
        )
    if checkpoint_every < 0:
        raise ValueError(
            f"checkpoint_every is {checkpoint_every}, but must be a number of row groups"
        )
    if index_pages is not None and encryption is not None:
        raise UnsupportedError(
            "index pages cannot be encrypted: the specification has no module for them",
            hint="leave out index_pages; the page index is encrypted",
        )


def _options(compression: str | Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(given) - _ARROW_OPTIONS)
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}: not an option for Arrow,"
            f" which are {', '.join(sorted(_ARROW_OPTIONS))}"
        )
    codec = compression if isinstance(compression, str) else dict(compression)
    return {**given, "compression": codec}


def _encryptor(
    encryption: Encryption | None, template: FooterArrays, target: Any, every: int
) -> FileEncryptor | None:
    if encryption is None:
        return None
    leaves = tuple(leaf.path for leaf in template.schema.leaves)
    made = FileEncryptor(encryption, leaves, str(target))
    if made.key_material_file is not None:
        if every:
            raise UnsupportedError(
                "an unfinished file would have no key material file",
                hint="with checkpoints, keep the wrapped keys in the file",
            )
        refuse_keys_in_use(str(target))
    return made


def refuse_keys_in_use(target: str) -> None:
    """``UnsupportedError`` if a new file of wrapped keys for ``target`` would replace keys that may
    be needed. They are not if ``target`` is in the clear, or absent because a writer was killed."""
    path = Path(key_material_path(target))
    if not path.exists() or not Path(target).exists():
        return
    with suppress(SkipstoneError, OSError):
        file = ParquetFile(target)
        if not file.encrypted_footer and file.footer.encryption_algorithm is None:
            return
    raise UnsupportedError(
        f"{path} exists already, and the keys in it may be needed",
        hint="give another path, or keep the wrapped keys in the file",
    )


def _unreliable_bounds(
    data: Rows, schema: pa.Schema, template: FooterArrays, encryptor: FileEncryptor | None
) -> tuple[frozenset[int], frozenset[int]]:
    """Floating point leaves whose metadata is encrypted chunk by chunk: those whose bounds a later
    NaN would make wrong, and those that get no bounds because ``data`` holds NaN."""
    if encryptor is None:
        return frozenset(), frozenset()
    separate = {
        leaf.ordinal: leaf.path[0]
        for leaf in template.schema.leaves
        if StoredColumn.of(leaf).form is Form.FLOATING and encryptor.separates_metadata(leaf.path)
    }
    if not isinstance(data, pa.Table | pa.RecordBatch):
        return frozenset(separate), frozenset()
    return frozenset(), frozenset(
        leaf
        for leaf, name in separate.items()
        if any(holds_nan(data.column(at)) for at in schema.get_all_field_indices(name))
    )


class _Ready(NamedTuple):
    """A block of row group ``number``, which has ``rows`` rows; ``last`` marks its last block."""

    number: int
    future: Future[tuple[list[EncodedChunk], pa.ChunkedArray | None]]
    rows: int
    last: bool


@dataclass(slots=True, kw_only=True)
class _TableWriting:
    blocks: ArrowBlocks
    template: FooterArrays
    encryptor: FileEncryptor | None
    every: int
    page_index: bool
    index_pages: Any
    irrevocable: frozenset[int] = frozenset()
    unbounded: frozenset[int] = frozenset()
    footers: CheckpointWriter | None = None
    sorted_groups: int = 0
    notes: list[str] = field(default_factory=list)
    _retracted: int = 0

    def has_checkpoint(self) -> bool:
        """Whether a checkpoint makes the rows written so far recoverable."""
        return self.footers is not None and self.footers.checkpoints > 0

    def write_to(self, target: Path, groups: Iterator[pa.Table]) -> tuple[RowGroupWriter, int]:
        """Write the whole file at ``target``; its row groups, and its size in bytes."""
        material_path: Path | None = None

        def keys_first() -> None:
            # A file without its keys is lost; keys without a file do no harm.
            nonlocal material_path
            if self.encryptor is not None and self.encryptor.key_material_file is not None:
                material_path = local_path(key_material_path(str(target)))
                remove_temporary(material_path)
                put_atomically(material_path, self.encryptor.key_material_file, ())

        keep = self.has_checkpoint if self.every else None
        try:
            with replace_atomically(target, still=keys_first, worth_keeping=keep) as out:
                return self.run(out, groups), out.at
        except BaseException:
            if material_path is not None and not target.exists():
                material_path.unlink(missing_ok=True)
            raise

    def report(self, path: str, made: RowGroupWriter, size: int, seconds: float) -> WriteReport:
        """The report on the file at ``path``, which ``write_to`` wrote."""
        assert self.footers is not None  # run() sets it
        notes = made.notes[:SHOWN] + self.notes[:SHOWN]
        left = len(made.notes) + len(self.notes) - len(notes)
        encryptor = self.encryptor
        material = None if encryptor is None else encryptor.key_material_file
        return WriteReport(
            path=path,
            rows=sum(self.footers.rows),
            row_groups=len(self.footers.rows),
            pages=made.pages,
            bytes=size,
            seconds=seconds,
            sorted_groups=self.sorted_groups,
            checkpoints=self.footers.checkpoints,
            algorithm=None if encryptor is None else encryptor.encryption.algorithm,
            key_material=None if material is None else key_material_path(path),
            notes=(*notes, *([f"and {left} more of that kind"] if left else [])),
        )

    def run(self, out: BufferedFile, groups: Iterator[pa.Table]) -> RowGroupWriter:
        """Write the whole file."""
        made = RowGroupWriter(
            writer=FileWriter(out, self.encryptor),
            page_index=self.page_index,
            index_pages=self.index_pages,
            irrevocable=self.irrevocable,
            unbounded=set(self.unbounded),
        )
        footers = self.footers = self._footers(out, made.writer)
        for rows, sorting in self._placed(groups, made):
            made.end_group(rows, sorting)
            if not made.writer.holds_indexes or footers.due(made.waiting):
                self._add(made, footers)
        self._add(made, footers, last=True)
        footers.finish()
        return made

    def _add(self, made: RowGroupWriter, footers: CheckpointWriter, *, last: bool = False) -> None:
        """Add the row groups that only wait for their indexes to the footers."""
        if len(made.misleading) > self._retracted:
            self._retracted = len(made.misleading)
            footers.row_groups[:] = [made.retracted(each) for each in footers.row_groups]
        for row_group, count in made.finished(last=last):
            footers.add(row_group, count)

    def _footers(self, out: BufferedFile, writer: FileWriter) -> CheckpointWriter:
        template: FooterArrays | bytes = self.template
        if self.encryptor is not None:
            metadata = FileMetaData.from_bytes(self.template.data[: self.template.end])
            template = self.encryptor.described(metadata).to_bytes()

        def sync() -> None:
            out.flush()
            out.sync()

        return CheckpointWriter(
            writer=writer, template=FooterEditor.of(template), every=self.every, sync=sync
        )

    def _placed(
        self, groups: Iterator[pa.Table], made: RowGroupWriter
    ) -> Iterator[tuple[int, tuple[SortingColumn, ...] | None]]:
        """Write the pages of row groups; yield their row counts and sorting columns."""
        values: dict[int, pa.ChunkedArray] = {}
        with ThreadPoolExecutor(_WORKERS) as pool:
            for each in self._ready(pool, groups):
                chunks, column = each.future.result()
                for chunk in chunks:
                    if column is not None and chunk.leaf.ordinal in self.blocks.keys:
                        values[chunk.leaf.ordinal] = column
                    made.put(chunk)
                if each.last:
                    yield each.rows, self._sorting(values)
                    values = {}

    def _ready(self, pool: ThreadPoolExecutor, groups: Iterator[pa.Table]) -> Iterator[_Ready]:
        waiting: deque[_Ready] = deque()
        try:
            for number, rows in enumerate(groups):
                blocks = list(self.blocks.blocks(rows))
                for block in blocks:
                    future = pool.submit(self.blocks.encode, rows, block)
                    waiting.append(_Ready(number, future, rows.num_rows, block is blocks[-1]))
                    # Blocks of two row groups at most; the next one is read when its turn comes.
                    while len(waiting) > _AHEAD or waiting[0].number < number:
                        yield waiting.popleft()
            while waiting:
                yield waiting.popleft()
        finally:
            for each in waiting:
                each.future.cancel()

    def _sorting(self, values: Mapping[int, pa.ChunkedArray]) -> tuple[SortingColumn, ...] | None:
        wanted = self.blocks.index_options.sorting
        if not wanted:
            return None
        leaves = self.template.schema.leaves
        holds = are_sorted(
            (
                each,
                leaves[each.column_idx],
                values[each.column_idx],
                StoredColumn.of(leaves[each.column_idx]).type,
            )
            for each in wanted
        )
        if holds:
            self.sorted_groups += 1
            return wanted
        names = ", ".join(leaves[each.column_idx].name for each in wanted)
        self.notes.append(f"a row group is not sorted by {names}: it claims no order")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport(Report):
    """The result for one file: ``sorted_groups`` of its row groups claim an order, ``checkpoints``
    footers precede the last one. ``algorithm`` is ``None`` in the clear; ``key_material`` is the
    file with the wrapped keys."""

    path: str
    rows: int
    row_groups: int
    pages: int
    bytes: int
    seconds: float
    sorted_groups: int = 0
    checkpoints: int = 0
    algorithm: str | None = None
    key_material: str | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {plural(self.rows, 'row')} in {plural(self.row_groups, 'row group')},"
            f" {plural(self.pages, 'page')}, {size(self.bytes)}"
            f" in {duration(1000 * self.seconds)}"
        ]
        if self.algorithm is not None:
            lines.append(f"encrypted with {self.algorithm}")
        if self.key_material is not None:
            lines.append(f"wrapped keys in {self.key_material}")
        if self.checkpoints:
            lines.append(f"{plural(self.checkpoints, 'checkpoint')} within it")
        if self.sorted_groups:
            lines.append(f"{self.sorted_groups:,} of {self.row_groups:,} row groups are sorted")
        return "\n".join((*lines, *self.notes))
