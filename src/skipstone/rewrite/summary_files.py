"""Writes ``_metadata`` and ``_common_metadata`` of a table: the merged footers of its files.

The footers are read in parallel. Their row groups are copied byte for byte; each chunk gets the
``file_path`` of its file below the table's directory, as parquet-java writes it: raw, with ``/``
between folders. The footers of files that have not changed since an earlier summary of Skipstone
are taken from that summary. Unknown fields stay. ``merged_top`` merges the fields that describe
whole files, by the table below.

Each write is atomic. ``_metadata`` is written last and names the versions of the files that it
describes (``parquet/format/summary_file.py``).

| field of the files | parquet-java | here |
|---|---|---|
| schemas | united; conflicts are refused | must be equal, else refused |
| key-values | united; conflicting values are refused | equal ones; the others are listed |
| created_by | the set of them as one text | the same |
| column_orders | by the schema | kept if all are equal, else left out: then no bounds |

If columns were added to a table, parquet-java writes row groups with fewer columns than the schema.
Readers that find columns by position confuse such columns. The name of the schema's root
has no meaning and may differ.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from skipstone._dataclasses import dataclass
from skipstone.build.footers import settled
from skipstone.errors import FormatError, SkipstoneError, StaleError, UnsupportedError
from skipstone.execution.open_files import load_summary
from skipstone.human import Report, duration, of_total, plural, size, some_of
from skipstone.identity import ObjectId, TimeUnit
from skipstone.parquet.format.footer import TAIL_GUESS, Tail, file_of
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.footer_scan import LONGEST
from skipstone.parquet.format.metadata import KeyValue, SchemaElement
from skipstone.parquet.format.summary_file import (
    KEY,
    FileVersion,
    Summary,
    Versions,
    place_of,
    row_groups_crc32,
)
from skipstone.parquet.writing.footer_editor import FooterEditor, row_group_bytes, row_group_in_file
from skipstone.storage import ByteRange, Listing, Storage, remove_left_overs
from skipstone.storage.listing import SUMMARY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


COMMON: Final = "_common_metadata"
# Concurrent requests to an object store.
_REMOTE: Final = 32


@dataclass(frozen=True, slots=True)
class _Gathered:
    """The footer of one file, read from the file or taken from the earlier summary."""

    id: ObjectId
    footer_length: int
    head: bytes
    row_groups: tuple[bytes, ...]
    rows: int
    read: bool


def write_summary(
    listing: Listing,
    storage: Storage,
    *,
    dry_run: bool = False,
    settle: float = 2.0,
    progress: Callable[[int, int], None] | None = None,
) -> SummaryReport:
    """Write both files for the data files of ``listing`` into its root; see the module.

    Waits until the youngest file is ``settle`` seconds old: a summary has no file that may still
    change. ``progress`` is called with the files done and the total. Raises ``UnsupportedError``
    for files of different schemas, encrypted files, and files whose columns are in other files;
    ``FormatError`` for a file that is not Parquet; ``StaleError`` for one that changed meanwhile.
    """
    started = time.perf_counter()
    root, total = listing.root, len(listing)
    _check_table(listing)
    if not dry_run:
        remove_left_overs(storage, root)
    path = f"{root}/{SUMMARY}"
    report = partial(SummaryReport, table=root, path=path, dry_run=dry_run, files=total)
    ids = [listing.object_id(at) for at in range(total)]
    old = _old(storage, root)
    if old is not None and _is_of(old, root, ids):
        current = storage.summary(root)
        return report(
            outcome="fresh",
            row_groups=old.footer.num_row_groups,
            rows=int(old.footer.row_starts[-1]),
            bytes=0 if current is None else current.size or 0,
            seconds=time.perf_counter() - started,
        )

    gathered = _gathered(storage, root, ids, old, settle, progress)
    heads: dict[bytes, str] = {}
    for each in gathered:
        heads.setdefault(each.head, each.id.path)
    top, dropped, notes = merged_top(heads)
    files = _versions(gathered, root, list(heads))
    row_groups = [group for each in gathered for group in each.row_groups]
    rows = sum(each.rows for each in gathered)
    data = _summary(top, listing.unit, files, list(heads), row_groups, rows)
    if not dry_run:
        storage.put(f"{root}/{COMMON}", file_of(top), listing.paths)
        storage.put(path, data, listing.paths)
    return report(
        outcome="written",
        footers_read=sum(each.read for each in gathered),
        row_groups=len(row_groups),
        rows=rows,
        bytes=len(data),
        dropped_keys=dropped,
        notes=notes,
        seconds=time.perf_counter() - started,
    )


def _summary(
    top: bytes,
    unit: TimeUnit,
    files: Sequence[FileVersion],
    heads: Sequence[bytes],
    row_groups: Sequence[bytes],
    num_rows: int,
) -> bytes:
    """The whole file. ``top`` is a footer without row groups, for all files together.

    ``row_groups`` are those of the files, in their order; their chunks name the files.
    """
    editor = FooterEditor.of(top).with_row_groups([num_rows], row_groups)
    versions = Versions(
        unit=unit,
        files=tuple(files),
        heads=tuple(heads),
        row_groups_crc32=row_groups_crc32(FooterArrays.scan(editor.to_bytes())),
    ).to_bytes()
    footer = editor.with_key_values({KEY: place_of(versions)}).to_bytes()
    if len(footer) > LONGEST:
        raise UnsupportedError(
            f"a summary of {len(footer):,} bytes, more than 2 GiB",
            hint="write summaries of parts of the table",
        )
    return file_of(footer, versions)


def _check_table(listing: Listing) -> None:
    if not len(listing):
        raise UnsupportedError(f"{listing.root} has no data files", hint="a summary needs one")
    if listing.paths == [listing.root]:
        raise UnsupportedError(f"{listing.root} is one file", hint="name the directory of a table")


def _gathered(
    storage: Storage,
    root: str,
    ids: Sequence[ObjectId],
    old: Summary | None,
    settle: float,
    progress: Callable[[int, int], None] | None,
) -> list[_Gathered]:
    """What the summary takes from each file: from the ``old`` one where it has this version."""
    known = {} if old is None else {each.path: at for at, each in enumerate(old.versions.files)}

    def one(id: ObjectId) -> _Gathered:
        name = id.path[len(root) + 1 :]
        at = known.get(name)
        if old is not None and at is not None and _is_version(old, at, id):
            return _known(old, at, id)
        return _read(storage, id, name, settle)

    gathered: list[_Gathered] = []
    workers = _REMOTE if storage.remote else min(os.cpu_count() or 1, 16)
    with ThreadPoolExecutor(min(workers, len(ids))) as pool:
        for each in pool.map(one, ids):
            gathered.append(each)
            if progress is not None:
                progress(len(gathered), len(ids))
    return gathered


def _versions(
    gathered: Sequence[_Gathered], root: str, heads: Sequence[bytes]
) -> list[FileVersion]:
    """The versions of the files, each with the number of its head among ``heads``."""
    numbers = {head: at for at, head in enumerate(heads)}
    return [
        FileVersion(
            path=each.id.path[len(root) + 1 :],
            size=each.id.size or 0,
            mtime=each.id.mtime,
            etag=each.id.etag,
            footer_length=each.footer_length,
            row_groups=len(each.row_groups),
            head=numbers[each.head],
        )
        for each in gathered
    ]


def _old(storage: Storage, root: str) -> Summary | None:
    """The existing summary, if it names the versions of its files."""
    current = storage.summary(root)
    if current is None:
        return None
    try:
        return load_summary(storage, current)
    except (SkipstoneError, OSError, ValueError):
        return None


def _is_version(old: Summary, at: int, id: ObjectId) -> bool:
    held = old.versions.files[at]
    version = ObjectId(
        path=id.path, size=held.size, mtime=held.mtime, unit=old.versions.unit, etag=held.etag
    )
    return version.same_version(id) and old.is_sound(at)


def _is_of(old: Summary, root: str, ids: Sequence[ObjectId]) -> bool:
    files = old.versions.files
    return [f"{root}/{each.path}" for each in files] == [id.path for id in ids] and all(
        _is_version(old, at, id) for at, id in enumerate(ids)
    )


def _known(old: Summary, at: int, id: ObjectId) -> _Gathered:
    held = old.versions.files[at]
    first, stop = old.first_group[at : at + 2]
    return _Gathered(
        id=id,
        footer_length=held.footer_length,
        head=old.versions.heads[held.head],
        row_groups=tuple([row_group_bytes(old.footer, r) for r in range(first, stop)]),
        rows=int(old.footer.row_starts[stop] - old.footer.row_starts[first]),
        read=False,
    )


def _read(storage: Storage, id: ObjectId, name: str, settle: float) -> _Gathered:
    if not settled(id, storage, settle):
        raise _changed(id)
    try:
        found, data = storage.read_tail(id.path, TAIL_GUESS)
        if not found.same_version(id):
            raise _changed(id)
        tail = Tail.from_bytes(data, found.size or 0)
        if tail.encrypted:
            raise UnsupportedError("it is encrypted, and a summary would show its footer")
        held = tail.footer_in(data)
        if held is None:
            wanted = ByteRange(id.path, tail.offset, tail.length)
            held = storage.read_ranges([wanted], {id.path: id}).get(wanted) or memoryview(b"")
            if len(held) != tail.length:
                raise _changed(id)
        footer = FooterArrays.scan(held, tail.offset)
        footer.check_extent(tail.offset)
        return _Gathered(
            id=id,
            footer_length=tail.length,
            head=_head(footer),
            row_groups=tuple(
                [row_group_in_file(footer, r, name) for r in range(footer.num_row_groups)]
            ),
            rows=int(footer.row_starts[-1]),
            read=True,
        )
    except FormatError as error:
        raise error.in_file(id.path) from error
    except FileNotFoundError:
        raise _changed(id) from None
    except UnsupportedError as error:
        raise UnsupportedError(f"{id.path}: {error.message}", hint=error.hint) from error


def _head(footer: FooterArrays) -> bytes:
    """A footer without its row groups. ``UnsupportedError`` for a file with encrypted columns,
    because their statistics must not leak."""
    if footer.encryption_algorithm is not None:
        raise UnsupportedError("its columns are encrypted, and a summary would show them")
    return FooterEditor.of(footer).with_row_groups((), ()).to_bytes()


def _changed(id: ObjectId) -> StaleError:
    return StaleError(
        f"{id.path} changed while the summary was made",
        hint="write the summary again while no other process writes to the table",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryReport(Report):
    """``_metadata`` of a table: ``written``, or ``fresh`` if it was up to date already.

    ``bytes`` is its size. ``footers_read`` footers were read from ``files``; the others were taken
    from the earlier summary. ``dropped_keys`` are keys that some file lacks, or has with another
    value.
    """

    table: str
    path: str
    outcome: Literal["written", "fresh"]
    dry_run: bool = False
    files: int = 0
    footers_read: int = 0
    row_groups: int = 0
    rows: int = 0
    bytes: int = 0
    dropped_keys: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        what = (
            f"{plural(self.row_groups, 'row group')} of {plural(self.files, 'file')}, "
            f"{plural(self.rows, 'row')}, {size(self.bytes)}"
        )
        if self.outcome == "fresh":
            return f"{self.path}: is up to date ({what})"
        verb = "would write" if self.dry_run else "wrote"
        lines = [f"{verb} {self.path}: {what}"]
        count = of_total(self.footers_read, self.files, "footers")
        lines.append(f"  {count} read, {duration(1000 * self.seconds)}")
        if self.dropped_keys:
            names = some_of(self.dropped_keys)
            lines.append(f"  left out keys that differ between the files: {names}")
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)


_SCHEMA, _COLUMN_ORDERS = 2, 7


def merged_top(heads: Mapping[bytes, str]) -> tuple[bytes, tuple[str, ...], tuple[str, ...]]:
    """A footer without row groups for all files, the keys that are left out, and notes.

    ``heads`` maps the head of a footer (``summary_file.py``) to the path of a file that has it.
    Raises ``UnsupportedError`` if the schemas differ.
    """
    footers = {path: FooterArrays.scan(head) for head, path in heads.items()}
    first, *others = footers
    for path in others:
        _same_schema(first, footers[first], path, footers[path])
    every = [footer.key_value_metadata or () for footer in footers.values()]
    agreed, dropped = _agreed(every)
    notes = []
    pairs = tuple([KeyValue(key=key, value=value) for key, value in agreed])
    fields: dict[str, object] = {"key_value_metadata": pairs or None}
    writers = sorted({footer.created_by or "" for footer in footers.values()})
    if len(writers) > 1:
        fields["created_by"] = f"[{', '.join(writers)}]"
    if len({_field(footer, _COLUMN_ORDERS) for footer in footers.values()}) > 1:
        fields["column_orders"] = None
        notes.append("the files differ in column_orders: other readers will use no bounds")
    top = FooterEditor.of(next(iter(heads))).with_fields(fields).to_bytes()
    return top, dropped, tuple(notes)


def _field(footer: FooterArrays, id: int) -> bytes | None:
    place = footer.scanned.fields.get(id)
    return None if place is None else footer.data[place[1] : place[2]]


def _same_schema(path: str, one: FooterArrays, other_path: str, other: FooterArrays) -> None:
    if _field(one, _SCHEMA) == _field(other, _SCHEMA):
        return
    mine, theirs = _unnamed(one.schema_elements), _unnamed(other.schema_elements)
    if mine == theirs:
        return
    pairs = [(a, b) for a, b in zip(mine[1:], theirs[1:], strict=False) if a != b]
    if pairs:
        a, b = pairs[0]
        differ = f"column {a.name!r}" + (f" and {b.name!r}" if a.name != b.name else "")
    else:
        differ = f"{len(mine) - 1} and {len(theirs) - 1} columns"
    raise UnsupportedError(
        f"{path} and {other_path} have different schemas ({differ}): no summary is possible",
        hint="give the files one schema, or make separate tables of files with equal schemas",
    )


def _unnamed(elements: Sequence[SchemaElement]) -> list[SchemaElement]:
    root = replace(elements[0], name="", repetition_type=None)
    return [root, *elements[1:]]


def _agreed(
    every: Sequence[Sequence[KeyValue]],
) -> tuple[list[tuple[str, str | None]], tuple[str, ...]]:
    """The pairs that all files have, in the order of the first file; the keys of all others."""
    maps = [{each.key: each.value for each in pairs if each.key != KEY} for pairs in every]
    names = dict.fromkeys(name for each in maps for name in each)
    agreed = [
        (name, maps[0][name])
        for name in maps[0]
        if all(name in each and each[name] == maps[0][name] for each in maps)
    ]
    kept = {name for name, _ in agreed}
    return agreed, tuple([name for name in names if name not in kept])
