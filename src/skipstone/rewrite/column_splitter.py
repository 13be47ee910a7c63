"""Splits one Parquet file into a footer file and files of its columns: ``split_columns``.

    events.parquet  ->  out.parquet                  the footer alone
                        _out.parquet.<token>.<name>  chunks, Bloom filters, page indexes, a footer

Chunks are copied byte for byte. Only Skipstone reads all columns through the first file; every
reader reads each of the others as a Parquet file of its columns. The column files are written
first, under unused names, so a killed writer leaves the old file and its column files intact. Its
own finished column files stay, too: a file that was moved might name them. When the new file has
replaced the old one, the column files of the old one are removed.
``parquet/format/column_files.py`` describes how readers find the files.
"""

from __future__ import annotations

import os
import re
import time
import uuid
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.human import Report, duration, plural, size
from skipstone.parquet.format.column_files import (
    KEY,
    MOST_TAIL,
    TOKEN_KEY,
    ColumnFile,
    column_files,
    note_of,
)
from skipstone.parquet.format.summary_file import is_summary
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.reading.page_metadata import bloom_to_copy
from skipstone.parquet.reading.page_tables import chunk_place
from skipstone.parquet.reading.pinned_file import PinnedReader, load_footer
from skipstone.parquet.writing.chunk_modules import index_ranges
from skipstone.parquet.writing.file_writer import ChunkWriter, FileWriter
from skipstone.parquet.writing.footer_editor import (
    FieldValues,
    FooterEditor,
    RowGroupEdit,
    moved_offset_index,
)
from skipstone.storage.atomic_replace import (
    PREFIX,
    ByteSink,
    left_overs,
    local_path,
    replace_atomically,
    temporary_beside,
)
from skipstone.storage.base import naming

if TYPE_CHECKING:
    import pyarrow as pa

    from skipstone.parquet.format.footer_arrays import FooterArrays


_UNSAFE: Final = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReport(Report):
    """The result of a split: ``path`` is the file to open, ``files`` are column files' sizes."""

    path: str
    files: Mapping[str, int]
    columns: Mapping[str, tuple[str, ...]]
    rows: int
    row_groups: int
    bytes: int
    seconds: float = 0.0

    def __str__(self) -> str:
        lines = [
            f"wrote {self.path}: {plural(self.rows, 'row')} in "
            f"{plural(self.row_groups, 'row group')}, {size(self.bytes)}, and "
            f"{plural(len(self.files), 'file')}, {duration(1000 * self.seconds)}"
        ]
        for name, length in self.files.items():
            lines.append(f"  {name}: {', '.join(self.columns[name])}, {size(length)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Part:
    """The contents of one column file: fields of the root, and the leaves below them."""

    name: str
    fields: tuple[int, ...]
    leaves: tuple[int, ...]
    columns: tuple[str, ...]


def split_columns(
    source: str | os.PathLike[str] | pa.Table,
    path: str | os.PathLike[str],
    files: Mapping[str, Sequence[str]] | None = None,
    **options: Any,
) -> SplitReport:
    """Write ``source`` (a Parquet file, or a table) as ``path``, with its columns in other files.

    ``files`` maps the name of a file to its columns of the root. Each column that it does not name
    gets its own file. ``options`` are those of ``pyarrow.parquet.write_table`` for a table, which
    is written with a page index. Local files only. Raises ``UnsupportedError`` for an encrypted
    file and for one whose columns are in other files already; ``ValueError`` for a column that
    does not exist or is named twice.
    """
    started = time.perf_counter()
    target = local_path(os.fspath(path))
    if not isinstance(source, str | Path) and hasattr(source, "schema"):
        import pyarrow.parquet as pq

        with temporary_beside(target.with_name(f"{target.name}.whole")) as made:
            with naming(target):
                pq.write_table(source, made, **{"write_page_index": True, **options})
            return _split(ParquetFile(made), target, files, started)
    if options:
        raise ValueError(f"options apply to tables, not to files: {', '.join(options)}")
    return _split(ParquetFile(source), target, files, started)


def _split(
    file: ParquetFile, target: Path, files: Mapping[str, Sequence[str]] | None, started: float
) -> SplitReport:
    footer = file.footer
    if file.encrypted_footer or footer.encryption_algorithm is not None:
        raise UnsupportedError(f"{file.path} is encrypted", hint="decrypt it first")
    if is_summary(footer):
        raise UnsupportedError(f"the columns of {file.path} are in other files already")
    footer.check_extent(file.tail.offset)
    token = uuid.uuid4().hex[:12]
    for each, error in left_overs(target.parent).items():
        # The names of column files are new each time.
        if error is None and each.name.startswith(f"{PREFIX}_{target.name}.".replace("=", "-")):
            each.unlink(missing_ok=True)
    parts = _parts(footer, files)
    chunks = [list[FieldValues]([{}] * footer.num_leaves) for _ in range(footer.num_row_groups)]
    old, written = _named_by(target), dict[str, ColumnFile]()
    names: list[Path] = []
    try:
        for part in parts:
            name = f"_{target.name}.{token}.{part.name}".replace("=", "-")
            place = target.with_name(name)
            names.append(place)
            with replace_atomically(place, sources=[file.path]) as out:
                written[name], groups = _write_part(file, part, f"{token}.{part.name}", out)
            for chunk in chain.from_iterable(groups):
                r, c = chunk.key
                chunks[r][c] = {**chunk.fields, "file_path": name}
        with replace_atomically(target, sources=[file.path]) as out:
            edits = [RowGroupEdit(chunks=row, fields={"file_offset": None}) for row in chunks]
            editor = FooterEditor.of(footer).edited(edits)
            noted = editor.with_key_values({KEY: note_of(written)})
            FileWriter(out).write_footer(noted.to_bytes())
            total = out.at
    except BaseException:
        # The new file may be in its place: what fails last is the sync of the directory.
        named = set(_named_by(target))
        for each in names:
            if each not in named:
                each.unlink(missing_ok=True)
        raise
    for each in old:
        with suppress(OSError):
            each.unlink()
    return SplitReport(
        path=str(target),
        files={name: each.size for name, each in written.items()},
        columns={name: part.columns for name, part in zip(written, parts, strict=True)},
        rows=file.num_rows,
        row_groups=file.num_row_groups,
        bytes=total,
        seconds=time.perf_counter() - started,
    )


def _parts(footer: FooterArrays, files: Mapping[str, Sequence[str]] | None) -> list[_Part]:
    children = footer.schema.root.children
    places: dict[str, list[int]] = {}
    for at, child in enumerate(children):
        places.setdefault(child.name, []).append(at)
    chosen: dict[str, list[int]] = {}
    if files and not isinstance(files, Mapping):
        raise TypeError(f"files maps names of files to columns, as {{'a': ['x', 'y']}}: {files!r}")
    left = set(range(len(children)))
    for name, columns in (files or {}).items():
        safe = _UNSAFE.sub("-", name) or "-"
        if safe in chosen or not columns:
            raise ValueError(f"the file {name!r} is named twice, or has no columns")
        if isinstance(columns, str) or not isinstance(columns, Sequence):
            raise TypeError(f"the columns of the file {name!r} are a sequence, not {columns!r}")
        chosen[safe] = []
        for column in columns:
            found = next((each for each in places.get(column, ()) if each in left), None)
            if found is None:
                raise ValueError(f"column {column!r} does not exist, or is named twice")
            left.discard(found)
            chosen[safe].append(found)
    for at in sorted(left):
        safe = _UNSAFE.sub("-", children[at].name)[:40] or "-"
        while safe in chosen:
            safe = f"{safe}.{at}"
        chosen[safe] = [at]
    return [
        _Part(
            name=name,
            fields=tuple(sorted(fields)),
            leaves=tuple(
                leaf
                for at in sorted(fields)
                for leaf in range(children[at].first_leaf, children[at].stop_leaf)
            ),
            columns=tuple(children[at].name for at in sorted(fields)),
        )
        for name, fields in chosen.items()
    ]


def _write_part(
    file: ParquetFile, part: _Part, token: str, out: ByteSink
) -> tuple[ColumnFile, list[list[ChunkWriter]]]:
    """Write the file of one part; return its chunks, row group by row group."""
    footer, reader, writer = file.footer, file.reader, FileWriter(out)
    groups = []
    for r in range(footer.num_row_groups):
        for c in part.leaves:
            # The range that readers use: some old writers state too small a size.
            place = chunk_place(footer, r, c, path=file.path, size=file.size)
            old = footer.column_chunk(r, c)
            placed = writer.chunk((r, c), footer.schema.leaves[c].path)
            moved = placed.copy(reader, place, old)
            placed.fields["file_offset"] = placed.start
            placed.bloom = bloom_to_copy(file, (r, c))
            where = index_ranges(old, file.path)
            if where.column_index is not None:
                placed.column_index = bytes(reader.one(*where.column_index))
            if where.offset_index is not None:
                placed.offset_index = moved_offset_index(reader.one(*where.offset_index), moved)
        groups.append(writer.end_row_group())
    writer.write_indexes()
    starts = [chunks[0].start for chunks in groups]
    editor = FooterEditor.of(footer).with_columns(part.fields, part.leaves, starts)
    edits = [RowGroupEdit(chunks=[each.fields for each in chunks]) for chunks in groups]
    data = editor.with_key_values({TOKEN_KEY: token}).edited(edits).to_bytes()
    end = writer.write_footer(data)[-MOST_TAIL:]
    return ColumnFile(size=out.at, tail=len(end), crc32=zlib.crc32(end)), groups


def _named_by(target: Path) -> list[Path]:
    """The column files of the file at ``target`` that belong to no other file."""
    if not target.exists():
        return []
    from skipstone.storage import LocalStorage

    reader = PinnedReader(LocalStorage())
    try:
        reader.pin(reader.storage.stat(str(target)))
        noted = column_files(load_footer(reader, str(target), None).footer)
    except (SkipstoneError, OSError, ValueError):
        return []
    own = re.compile(
        rf"_{re.escape(target.name.replace('=', '-'))}\.[0-9a-f]{{12}}\.[^/]+", re.DOTALL
    )
    return [target.with_name(name) for name in noted if own.fullmatch(name)]
