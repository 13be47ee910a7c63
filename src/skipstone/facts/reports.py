"""The reports of the calls that build and maintain an index: plain values, each a ``dict`` and a
text.

``to_dict()`` is JSON-ready: paths and texts as they are, a ``Reason`` as its text, times in
seconds, sizes in bytes. ``str()`` is what the command line shows; every count in it has its
denominator and unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from skipstone._dataclasses import dataclass
from skipstone.human import (
    Report,
    aligned,
    duration,
    first_of,
    html_table,
    of_total,
    percent,
    plural,
    size,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.pruning import Reason


_HEADINGS = ("column", "type", "index", "parameters", "built for", "size", "left out")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport(Report):
    """What a build or a refresh did.

    ``files_total`` = built + already + failed + too fresh. ``files_failed`` are pairs of path and
    error; they have no facts and are read in full. A damaged file is not tried again until it
    changes. ``left_out`` names the indexes that were not
    built for some files, and why. ``bytes_data`` is the size of the files that were built,
    ``bytes_index`` what was written for them. ``merged`` parts were replaced by a merge. ``engine``
    says where the files were indexed. ``notes`` name indexes that the table has outgrown.
    """

    table: str
    location: str = ""
    files_total: int
    files_built: int
    files_already: int = 0
    files_failed: tuple[tuple[str, str], ...] = ()
    files_too_fresh: tuple[str, ...] = ()
    left_out: tuple[Reason, ...] = ()
    bytes_data: int = 0
    bytes_index: int = 0
    seconds: float = 0.0
    merged: int = 0
    engine: str = ""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True when every file has its facts now."""
        return not self.files_failed and not self.files_too_fresh

    def __str__(self) -> str:
        built = f"indexed {of_total(self.files_built, self.files_total, 'files')}"
        if self.files_already:
            built += f", {self.files_already:,} had their facts already"
        lines = [f"{built}, in {duration(1000 * self.seconds)}"]
        if self.files_built:
            share = percent(self.bytes_index, self.bytes_data)
            wrote = f"wrote {size(self.bytes_index)} of index ({share} of {size(self.bytes_data)})"
            lines.append(f"{wrote} to {self.location}" if self.location else wrote)
        if self.engine:
            lines.append(f"ran {self.engine}")
        if self.merged:
            lines.append(f"merged {plural(self.merged, 'part')}")
        lines += first_of(
            f"could not read {of_total(len(self.files_failed), self.files_total, 'files')}: "
            "no facts, so they are read in full",
            [f"{path}: {text}" for path, text in self.files_failed],
        )
        lines += first_of(
            f"still changing, {of_total(len(self.files_too_fresh), self.files_total, 'files')}: "
            "run `refresh` later",
            self.files_too_fresh,
        )
        lines += first_of("left out:", [str(reason) for reason in self.left_out])
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexInfo(Report):
    """One index of a table: its definition, the fresh ``files`` that have it, and its ``bytes``.

    ``type`` is Spark's name of the column's type. ``left_out`` counts fresh files for which it was
    not built (over a limit, a type that the kind does not support). ``known`` is False for a kind
    that this installation has no code for: it proves nothing, and is kept. ``key_metadata`` is the
    label of the key that it is encrypted with. ``shown`` are the parameters for people, where they
    need more words than names and values.
    """

    column: str
    kind: str
    params: tuple[tuple[str, str], ...] = ()
    type: str = ""
    files: int = 0
    bytes: int = 0
    left_out: int = 0
    known: bool = True
    key_metadata: str | None = None
    shown: str = ""

    computed = ("name",)

    @property
    def name(self) -> str:
        """``column:kind(param=value)``, as ``build`` takes it."""
        shown = ",".join(f"{key}={value}" for key, value in self.params)
        return f"{self.column}:{self.kind}" + (f"({shown})" if shown else "")

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values; ``params`` as an object."""
        return {**Report.to_dict(self), "params": dict(self.params)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Description(Report):
    """The index of a table, and how much of the table it covers now.

    ``files_total`` = fresh + stale + missing + unreadable: files whose facts match, whose facts are
    of another version, that have none, and that a build could not read (pairs of path and
    error). ``orphaned`` facts are of files that are gone, or not part of the
    table. ``pm_files`` have row group metadata, of ``pm_bytes``. ``sliced`` Bloom filters have bit
    slices, of ``sliced_bytes``. ``notes`` say what else a reader of the index should know.
    """

    table: str
    location: str
    files_total: int
    fresh: int
    stale: int = 0
    missing: int = 0
    unreadable: tuple[tuple[str, str], ...] = ()
    orphaned: int = 0
    bytes_data: int = 0
    bytes_index: int = 0
    parts: int = 0
    indexes: tuple[IndexInfo, ...] = ()
    pm_files: int = 0
    pm_bytes: int = 0
    sliced: int = 0
    sliced_bytes: int = 0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        rows = [aligned(self._rows(), {4, 5, 6})] if self.indexes else []
        return "\n".join([*self._head(), *rows, *self._rest()])

    def _repr_html_(self) -> str:
        from html import escape

        heads, *rows = self._rows()
        table = html_table(heads, rows) if rows else ""
        above, below = ("<br>".join(map(escape, lines)) for lines in (self._head(), self._rest()))
        return f"<div><p>{above}</p>{table}<p>{below}</p></div>"

    def _head(self) -> list[str]:
        share = percent(self.bytes_index, self.bytes_data)
        held = f"{plural(self.parts, 'part')}   {size(self.bytes_index)} ({share} of the data)"
        return [
            f"table {self.table}   {plural(self.files_total, 'file')}   {size(self.bytes_data)}",
            f"index {self.location}   {held}",
            f"covers {of_total(self.fresh, self.files_total, 'files')}{self._drift()}",
        ]

    def _rows(self) -> list[tuple[str, ...]]:
        rows = [_HEADINGS, *map(self._row, self.indexes)]
        if any(index.key_metadata is not None for index in self.indexes):
            labels = ["key", *(index.key_metadata or "none" for index in self.indexes)]
            rows = [(*row, label) for row, label in zip(rows, labels, strict=True)]
        return rows

    def _rest(self) -> list[str]:
        lines = []
        if self.pm_files:
            files = of_total(self.pm_files, self.files_total, "files")
            lines.append(f"row group statistics (_pm) of {files}, {size(self.pm_bytes)}")
        if self.sliced:
            filters = plural(self.sliced, "filter")
            lines.append(f"bit slices: of {filters}, {size(self.sliced_bytes)}")
        lines += _unreadable(self.unreadable, self.files_total)
        return lines + [f"note: {note}" for note in self.notes]

    def _drift(self) -> str:
        lacking = []
        if self.missing:
            lacking.append(f"{self.missing:,} new")
        if self.stale:
            lacking.append(f"{self.stale:,} changed since")
        verb = "refresh" if self.indexes else "build"
        text = "" if self.unreadable else " (fresh)"
        if lacking:
            text = f"; {' and '.join(lacking)}: read in full, run `{verb}`"
        if self.unreadable:
            text += f"; {len(self.unreadable):,} unreadable"
        if self.orphaned:
            facts = plural(self.orphaned, "fact")
            text += f"; {facts} of files that are gone, or not part of the table"
        return text

    def _row(self, index: IndexInfo) -> tuple[str, ...]:
        return (
            index.column,
            index.type,
            index.kind if index.known else f"{index.kind} (unknown here)",
            index.shown or ", ".join(f"{key}={value}" for key, value in index.params),
            of_total(index.files, self.files_total, "files"),
            size(index.bytes),
            f"{index.left_out:,}" if index.left_out else "",
        )


def _unreadable(files: Sequence[tuple[str, str]], total: int) -> list[str]:
    title = (
        f"unreadable, {of_total(len(files), total, 'files')}: a refresh reads them once they change"
    )
    return first_of(title, [f"{path}: {text}" for path, text in files])


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport(Report):
    """Whether the facts of an index are right and of this table.

    ``fresh``, ``missing`` and ``orphaned`` are counts. ``unreadable`` are files that a build could
    not read (pairs of path and error), ``stale`` the paths of files that changed since. ``corrupt``
    are parts, packs or files that could not be read, each with its error. A deep check rebuilt the
    facts of ``sampled`` files, compared ``compared`` queries with and without skipping, and
    ``filters`` Bloom filters with all values; ``untrue`` says what did not agree. ``encryption`` is
    that of encrypted files, where keys were given, ``repair`` what was done before. ``indexed`` is
    False where there are no facts; then none is missing. ``notes`` name outgrown indexes.
    """

    table: str
    location: str = ""
    files_total: int
    fresh: int
    stale: tuple[str, ...] = ()
    missing: int = 0
    unreadable: tuple[tuple[str, str], ...] = ()
    orphaned: int = 0
    corrupt: tuple[str, ...] = ()
    untrue: tuple[str, ...] = ()
    deep: bool = False
    sampled: int = 0
    compared: int = 0
    filters: int = 0
    encryption: EncryptionCheck | None = None
    repair: RepairReport | None = None
    indexed: bool = True
    notes: tuple[str, ...] = ()

    computed = ("ok",)

    @property
    def ok(self) -> bool:
        """True when nothing was found: exit code 0, else 3."""
        drift = self.stale or self.missing or self.orphaned
        authentic = self.encryption is None or self.encryption.ok
        return authentic and not (drift or self.unreadable or self.corrupt or self.untrue)

    def __str__(self) -> str:
        lines = [] if self.repair is None else [str(self.repair)]
        lines.append(f"table {self.table}   {plural(self.files_total, 'file')}")
        lines += self._of_facts() if self.indexed else ["no index"]
        if self.encryption is not None:
            lines.append(str(self.encryption))
        lines += [f"note: {note}" for note in self.notes]
        lines.append("all is well" if self.ok else f"not well: {self._remedy()}")
        return "\n".join(lines)

    def _of_facts(self) -> list[str]:
        lines = [
            f"fresh     {of_total(self.fresh, self.files_total, 'files')}",
            f"stale     {of_total(len(self.stale), self.files_total, 'files')} changed since",
            f"missing   {of_total(self.missing, self.files_total, 'files')} without facts",
            f"orphaned  {plural(self.orphaned, 'fact')} of files that are gone, "
            "or not part of the table",
            f"corrupt   {len(self.corrupt):,}",
        ]
        if self.deep:
            asked = f"{plural(self.compared, 'predicate')} with and without skipping"
            rebuilt = of_total(self.sampled, self.files_total, "files")
            filters = f"compared {plural(self.filters, 'Bloom filter')} with all values"
            text = f"rebuilt the facts of {rebuilt}, asked {asked}, {filters}"
            lines.append(f"untrue    {len(self.untrue):,}; {text}")
        lines += first_of("stale:", self.stale)
        lines += first_of("corrupt:", self.corrupt)
        lines += _unreadable(self.unreadable, self.files_total)
        return lines + first_of("untrue:", self.untrue)

    def _remedy(self) -> str:
        if self.encryption is not None and not self.encryption.ok:
            return "these files are not those that were encrypted: find out who changed them"
        if self.untrue:
            return "facts are wrong, run `drop` and `build`"
        if self.corrupt:
            return "what is corrupt counts as missing facts, run `check --repair`"
        if self.missing == self.files_total and not (self.orphaned or self.unreadable):
            return "the table has no index, run `build`"
        if self.stale or self.missing:
            return "these files are read in full, run `refresh`"
        if self.unreadable:
            return "write these files again, or save their rows with `salvage`"
        return "unused facts, run `compact`"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport(Report):
    """The parts, packs and bit slices that a repair ``removed``, and how facts were ``built``."""

    table: str
    removed: tuple[str, ...] = ()
    built: BuildReport | None = None

    def __str__(self) -> str:
        lines = first_of(f"removed what was corrupt, {len(self.removed):,}:", self.removed)
        built = [] if self.built is None else [str(self.built)]
        return "\n".join([*(lines or ["nothing was corrupt"]), *built])


@dataclass(frozen=True, slots=True, kw_only=True)
class DropReport(Report):
    """What a drop removed: ``dropped`` and ``remaining`` are names as in ``IndexInfo.name``.

    ``bytes_removed`` were removed from the store; ``files`` is the number of data files whose facts
    had any of the dropped indexes.
    """

    table: str
    location: str = ""
    dropped: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
    files: int = 0
    bytes_removed: int = 0

    def __str__(self) -> str:
        total = len(self.dropped) + len(self.remaining)
        head = f"dropped {of_total(len(self.dropped), total, 'indexes')} of {self.table}"
        lines = [f"{head}, {size(self.bytes_removed)}"]
        lines += [f"  {name}" for name in self.dropped]
        if self.remaining:
            lines.append(f"remaining: {', '.join(self.remaining)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport(Report):
    """The result of a merge of the parts; facts of changed and missing files were removed.

    ``sliced`` of ``filters`` Bloom filters, in columns that have many, have bit slices now, of
    ``sliced_bytes``. ``bytes_after`` includes them.
    """

    table: str
    location: str = ""
    parts_before: int = 0
    parts_after: int = 0
    facts_before: int = 0
    facts_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    sliced: int = 0
    filters: int = 0
    sliced_bytes: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        merged = (
            f"merged {plural(self.parts_before, 'part')} into {self.parts_after:,}, kept "
            f"{of_total(self.facts_after, self.facts_before, 'facts')}, "
            f"{size(self.bytes_before)} -> {size(self.bytes_after)}, "
            f"in {duration(1000 * self.seconds)}"
        )
        if not self.filters:
            return merged
        filters = of_total(self.sliced, self.filters, "Bloom filters")
        return f"{merged}\nbit slices of {filters}, {size(self.sliced_bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumReport(Report):
    """What a vacuum removed, or would remove: objects of the store that no part names.

    ``kept_young`` objects that no part names were left because they are younger than
    ``older_than_seconds`` by the store's clock: a build may be about to name them. ``notes`` say
    what was left because it could not be read.
    """

    table: str
    location: str = ""
    removed: tuple[str, ...] = ()
    bytes_removed: int = 0
    kept_young: int = 0
    older_than_seconds: float = 86_400.0
    dry_run: bool = False
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        total = len(self.removed) + self.kept_young
        verb = "would remove" if self.dry_run else "removed"
        age = duration(1000 * self.older_than_seconds)
        head = f"{verb} {of_total(len(self.removed), total, 'unnamed objects')}"
        lines = first_of(f"{head}, {size(self.bytes_removed)}:", self.removed)
        lines = lines or [f"{head}, {size(0)}"]
        if self.kept_young:
            lines.append(f"kept {self.kept_young:,} younger than {age}")
        lines += first_of("left, as it may be needed:", self.notes)
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport(Report):
    """What was published for other readers; ``kind`` is the format."""

    table: str
    destination: str
    kind: str
    files_total: int
    files: int
    indexes: tuple[str, ...] = ()
    bytes: int = 0
    left_out: tuple[Reason, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"published {of_total(self.files, self.files_total, 'files')} as {self.kind}, "
            f"{size(self.bytes)}, to {self.destination}",
            *(f"  {name}" for name in self.indexes),
        ]
        lines += first_of("left out:", [str(reason) for reason in self.left_out])
        return "\n".join(lines)


_KINDS: Final = {
    "misplaced": "do not belong in their place",
    "plaintext": "are not encrypted, though they were or others are",
    "absent": "are gone that were encrypted",
    "replaced": "are another version than the encrypted one",
    "unlisted": "are not on the list of encrypted files",
    "unfinished": "were to be encrypted, and it is not known whether they are",
    "unopened": "could not be opened",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionCheck(Report):
    """``encrypted`` of ``files_total`` files authenticate, each with the AAD prefix of its place.

    ``listed`` says whether the list of the encrypted files exists. Without the list, only the facts
    of an index show that a file is gone or was replaced by an older version. The tuples name the
    other files, each with what was found: ``misplaced`` (it has the AAD prefix of another place or
    table), ``plaintext``, ``absent``, ``replaced``, ``unopened``. ``unlisted`` and ``unfinished``
    are not faults: such a file was added, or a killed run did not finish it.
    """

    files_total: int
    encrypted: int
    aad_prefix: bytes | None = None
    listed: bool = False
    misplaced: tuple[str, ...] = ()
    plaintext: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    unopened: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    computed = ("ok",)

    @property
    def ok(self) -> bool:
        """True when every file is in its place and none is missing, as far as that is known."""
        faults = (self.misplaced, self.plaintext, self.absent, self.replaced, self.unopened)
        return not any(faults)

    def __str__(self) -> str:
        lines = [
            f"encrypted {of_total(self.encrypted, self.files_total, 'files')},"
            " each with the AAD prefix of its place"
        ]
        for name, text in _KINDS.items():
            found: tuple[str, ...] = getattr(self, name)
            files = of_total(len(found), self.files_total, "files")
            lines += first_of(f"{name:<9} {files} {text}:", found)
        return "\n".join([*lines, *self.notes])
