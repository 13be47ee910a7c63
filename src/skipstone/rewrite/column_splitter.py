"""The columns of one file, each in a file of its own: ``split_columns``.

    events.parquet  ->  out.parquet                  the footer alone
                        _out.parquet.<token>.<name>  chunks, Bloom filters, page indexes, a footer

Chunks are copied byte for byte. Only Skipstone reads the whole by the first file; each of the
others is a Parquet file of its columns to everyone. They are written before the file that names
them, under names that nobody has used, so that a writer that is killed leaves what there was whole;
when the new file stands in its place, those of the old one are removed. The reading side, and how
it knows the files: ``formats/parquet/column_files.py``.
"""

from __future__ import annotations

import re
import time
import uuid
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.human import duration, plural, size
from skipstone.parquet.format.column_files import (
    KEY,
    MOST_TAIL,
    TOKEN_KEY,
    ColumnFile,
    column_files,
    note_of,
)
from skipstone.parquet.format.footer import MAGIC, Tail
from skipstone.parquet.format.summary import is_summary
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.reading.opened_footer import read_footer
from skipstone.parquet.reading.page_tables import chunk_place
from skipstone.parquet.reading.pinned_reader import PinnedReader
from skipstone.parquet.writing.chunk_modules import bloom_modules, index_ranges
from skipstone.parquet.writing.footer_editor import FooterEditor, RowGroupEdit, moved_offset_index
from skipstone.storage.atomic_replace import Written, local_path, replacing

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from skipstone.parquet.format.footer_arrays import FooterArrays

__all__ = ["SplitReport", "split_columns"]

ChunkEdit: TypeAlias = dict[str, Any]
_PIECE: Final = 8 << 20
_UNSAFE: Final = re.compile(r"[^\w.-]+")
_OFFSETS: Final = ("data_page_offset", "dictionary_page_offset", "index_page_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReport:
    """What was written: ``path`` is the file to open, ``files`` the bytes of each other by name."""

    path: str
    files: Mapping[str, int]
    columns: Mapping[str, tuple[str, ...]]
    rows: int
    row_groups: int
    bytes: int
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "path": self.path,
            "files": dict(self.files),
            "columns": {name: list(each) for name, each in self.columns.items()},
            "rows": self.rows,
            "row_groups": self.row_groups,
            "bytes": self.bytes,
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        lines = [
            f"wrote {self.path}: {plural(self.rows, 'row')} in "
            f"{plural(self.row_groups, 'row group')}, {size(self.bytes)} beside "
            f"{plural(len(self.files), 'file')}, {duration(1000 * self.seconds)}"
        ]
        for name, length in self.files.items():
            lines.append(f"  {name}: {', '.join(self.columns[name])}, {size(length)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one of the files is to hold: fields of the root, and the leaves below them."""

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

    ``files`` names columns of the root by the file that they are to lie in; those that it does not
    name, and without it all, get one each. ``options`` are those of ``pyarrow.parquet.write_table``
    for a table, which is written with a page index. Local files only. ``UnsupportedError`` for an
    encrypted file, and one whose columns lie in others already; ``ValueError`` for a column that
    there is not, or that is named twice.
    """
    started = time.perf_counter()
    target = local_path(str(path))
    if not isinstance(source, str | Path) and hasattr(source, "schema"):
        import pyarrow.parquet as pq

        made = target.with_name(f"_tmp-{uuid.uuid4().hex}")
        try:
            pq.write_table(source, made, **{"write_page_index": True, **options})
            return _split(ParquetFile(made), target, files, started)
        finally:
            made.unlink(missing_ok=True)
    if options:
        raise ValueError(f"a file is split as it is: {', '.join(options)}")
    return _split(ParquetFile(source), target, files, started)


def _split(
    file: ParquetFile, target: Path, files: Mapping[str, Sequence[str]] | None, started: float
) -> SplitReport:
    footer = file.footer
    if file.encrypted_footer or footer.encryption_algorithm is not None:
        raise UnsupportedError(f"{file.path} is encrypted", hint="decrypt it first")
    if is_summary(footer):
        raise UnsupportedError(f"the columns of {file.path} lie in other files already")
    footer.check_extent(file.tail.offset)
    token = uuid.uuid4().hex[:12]
    parts = _parts(footer, files)
    edits = [[ChunkEdit() for _ in range(footer.num_leaves)] for _ in range(footer.num_row_groups)]
    copies = [_Copy(file, part, edits) for part in parts]
    old, written = _named_by(target), dict[str, ColumnFile]()
    names: list[Path] = []
    try:
        for part, copy in zip(parts, copies, strict=True):
            name = f"_{target.name}.{token}.{part.name}".replace("=", "-")
            place = target.with_name(name)
            names.append(place)
            with replacing(place) as out:
                written[name] = copy.write(out, name, f"{token}.{part.name}")
        with replacing(target) as out:
            noted = _edited(footer, edits).with_key_values({KEY: note_of(written)})
            data = noted.to_bytes()
            out.write(MAGIC)
            out.write(data)
            out.write(Tail(0, len(data), False).to_bytes())
            total = out.at
    except BaseException:
        for each in names:
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
    left = set(range(len(children)))
    for name, columns in (files or {}).items():
        safe = _UNSAFE.sub("-", name) or "-"
        if safe in chosen or not columns:
            raise ValueError(f"the file {name!r} is named twice, or of no columns")
        chosen[safe] = []
        for column in columns:
            found = next((each for each in places.get(column, ()) if each in left), None)
            if found is None:
                raise ValueError(f"there is no column {column!r}, or it is named twice")
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


class _Copy:
    """The chunks of one part on their way into its file; ``edits`` are those of all chunks."""

    def __init__(
        self, file: ParquetFile, part: _Part, edits: Sequence[Sequence[ChunkEdit]]
    ) -> None:
        self.file, self.part, self.edits, self.footer = file, part, edits, file.footer
        self.moved: dict[tuple[int, int], int] = {}
        self.starts: list[int] = []

    def write(self, out: Written, name: str, token: str) -> ColumnFile:
        """The whole file; what it is."""
        out.write(MAGIC)
        cells = [(r, c) for r in range(self.footer.num_row_groups) for c in self.part.leaves]
        for r in range(self.footer.num_row_groups):
            self.starts.append(out.at)
            for c in self.part.leaves:
                self._pages(out, (r, c), name)
        for cell in cells:
            self._bloom(out, cell)
        for kind in ("column_index", "offset_index"):
            for cell in cells:
                self._index(out, cell, kind)
        part = _edited(self.footer, self.edits).with_columns(
            self.part.fields, self.part.leaves, self.starts
        )
        data = part.with_key_values({TOKEN_KEY: token}).to_bytes()
        end = data + Tail(0, len(data), False).to_bytes()
        out.write(end)
        tail = end[-min(len(end), MOST_TAIL) :]
        return ColumnFile(size=out.at, tail=len(tail), crc32=zlib.crc32(tail))

    def _pages(self, out: Written, cell: tuple[int, int], name: str) -> None:
        # As readers look for it: some old writers state a chunk too short.
        place = chunk_place(self.footer, *cell, path=self.file.path, size=self.file.size)
        start, stop = place.start, place.stop
        delta = self.moved[cell] = out.at - start
        edit = self.edits[cell[0]][cell[1]]
        for field in _OFFSETS:
            old = int(self.footer.chunk(field)[cell])
            # One that lies outside of the chunk stays behind.
            inside = start <= old < max(stop, start + 1)
            edit[field] = old + delta if inside else None
        edit["data_page_offset"] = edit["data_page_offset"] or out.at
        edit.update(file_path=name, file_offset=out.at)
        while start < stop:
            length = min(_PIECE, stop - start)
            out.write(self.file.reader.one(self.file.path, start, length))
            start += length

    def _bloom(self, out: Written, cell: tuple[int, int]) -> None:
        edit = self.edits[cell[0]][cell[1]]
        meta = self.footer.column_meta_data(*cell)
        assert meta is not None  # nothing is encrypted
        found = bloom_modules(self.file.reader, self.file.path, meta, None, {})
        if found is None:
            edit.update(bloom_filter_offset=None, bloom_filter_length=None)
            return
        start = out.at
        out.write(found.header)
        out.write(found.bitset)
        edit.update(bloom_filter_offset=start, bloom_filter_length=out.at - start)

    def _index(self, out: Written, cell: tuple[int, int], kind: str) -> None:
        edit = self.edits[cell[0]][cell[1]]
        where = getattr(index_ranges(self.footer.column_chunk(*cell), self.file.path), kind)
        if where is None:
            edit.update({f"{kind}_offset": None, f"{kind}_length": None})
            return
        data: bytes | memoryview = self.file.reader.one(*where)
        if kind == "offset_index":
            data = moved_offset_index(data, self.moved[cell])
        edit.update({f"{kind}_offset": out.at, f"{kind}_length": len(data)})
        out.write(data)


def _edited(footer: FooterArrays, edits: Sequence[Sequence[ChunkEdit]]) -> FooterEditor:
    groups = [RowGroupEdit(chunks=each, fields={"file_offset": None}) for each in edits]
    return FooterEditor.of(footer).edited(groups)


def _named_by(target: Path) -> list[Path]:
    """The files that the file which is there has its columns in, and which are its alone."""
    if not target.exists():
        return []
    from skipstone.storage import LocalStorage

    reader = PinnedReader(LocalStorage())
    try:
        reader.pin(reader.storage.stat(str(target)))
        noted = column_files(read_footer(reader, str(target), None).footer)
    except (SkipstoneError, OSError, ValueError):
        return []
    own = re.compile(
        rf"_{re.escape(target.name.replace('=', '-'))}\.[0-9a-f]{{12}}\.[^/]+", re.DOTALL
    )
    return [target.with_name(name) for name in noted if own.fullmatch(name)]
