"""Finds the files of a listing that have an index already, which a build or a refresh skips.

Indexes in one sidecar of a file are built together. Where one of them is lacking, the existing ones
are rebuilt, and the sidecar of the newest row has them all. A value whose sidecar is gone does not
count.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, arrow_bytes, numbers
from skipstone.errors import SkipstoneError, UnsupportedError, command
from skipstone.human import of_total, size
from skipstone.predicate.tree import is_expression
from skipstone.predicate.types import column_path, spark_name
from skipstone.pruning.kind import column_fields

from .part_columns import PM, REASONS, SIDECARS, UNREADABLE, nonnull
from .parts import Part
from .renamed import under
from .reports import Description, IndexInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.naming import Namings
    from skipstone.pruning.kind import Index
    from skipstone.storage import Listing

    from .part_columns import Definition, FactField
    from .snapshot import MatchedFacts, Snapshot


#: A fact column of up to this many bytes is read to see which files have a value in it.
READ_BYTES = 8 * 1024 * 1024


def named_indexes(found: Description, text: str) -> tuple[IndexInfo, ...]:
    """The indexes that ``text`` names (``user_id:bloom``, with or without parameters);
    ``SkipstoneError`` where there is none."""
    from difflib import get_close_matches

    from skipstone.indexes.registry import kind as registered
    from skipstone.predicate.indexed import names_it

    column, _, kind = text.rpartition(":")
    kind = kind.partition("(")[0]
    known = registered(kind)
    kind = kind if known is None else known.name
    chosen = tuple(i for i in found.indexes if i.kind == kind and names_it(column, i.column))
    if not chosen:
        # Indexes of the same column come first: `id:bloom` does not mean that of another one.
        own = [each.name for each in found.indexes if each.column in (column, text)]
        close = get_close_matches(column or text, [each.column for each in found.indexes], 1)
        near = own or [each.name for each in found.indexes if each.column in close]
        hint = f"it has {', '.join(each.name for each in found.indexes) or 'none'}"
        if near:
            hint = f"did you mean {' or '.join(map(repr, near))}?"
        raise SkipstoneError(f"{found.table} has no index {text!r}", hint=hint)
    return chosen


def covered(matched: MatchedFacts, index: Index, memory: int = 0) -> NDArray[np.bool_]:
    """Files that have ``index``: a value, or a reason why it was left out, in a current fact.

    A file counts as lacking if the index was left out for want of memory, and ``memory`` is more.
    """
    return valued(matched, index) | left_out(matched, repr(index), memory)


def valued(matched: MatchedFacts, index: Index) -> NDArray[np.bool_]:
    """Files with a stored value of ``index``, of the same parameters, in a current fact."""
    params = tuple(sorted(index.params.items()))
    wanted = (index.name, (index.column,), params)
    found = np.zeros(len(matched.listing), np.bool_)
    for field in matched.snapshot.fields:
        have = field.definition
        if have is None or field.of_row_groups:
            continue
        if (have.kind, have.columns, have.params) == wanted:
            found |= with_value(matched, field)
    return found


def with_value(matched: MatchedFacts, field: FactField) -> NDArray[np.bool_]:
    """Files with a value in the fact column ``field``, in a current fact.

    A large column is not read if all footers have null counts. A column of moderate size is read:
    that also finds damaged values, which are then rebuilt.
    """
    found = np.zeros(len(matched.listing), np.bool_)
    snapshot = matched.snapshot
    file_of_row = matched.file_of_row
    if field.sidecar is not None:
        file_of_row = np.where(matched.has_sidecar(field.sidecar), file_of_row, -1)
    having = [part for part in snapshot.identities.parts if field.key in part.by_key]
    names = [part.by_key[field.key].arrow.name for part in having]
    nbytes = sum(part.column_bytes.get(n, 0) for part, n in zip(having, names, strict=True))
    if nbytes > READ_BYTES and all(type(part) is Part for part in having):
        filled = [part.filled(name) for part, name in zip(having, names, strict=True)]
        if not any(each is None for each in filled):
            for part, rows in zip(having, filled, strict=True):
                assert rows is not None
                at = np.flatnonzero(rows) + snapshot.identities.starts[part.name]
                file = file_of_row[at]
                found[file[file >= 0]] = True
            return found
    for piece in snapshot.values(field):
        file = file_of_row[piece.at]
        found[file[(file >= 0) & nonnull(piece.values)]] = True
    return found


def superseded(matched: MatchedFacts) -> set[tuple[str, str, str]]:
    """Keys of the fact columns of indexes that were built again with other parameters, if every
    file with a value of the old index has one of the new index.

    Empty where there are facts about files that this listing does not show.
    """
    snapshot = matched.snapshot
    if np.any((matched.file_of_row < 0) & ~matched.dead_rows):
        return set()
    newest = {(each.kind, each.columns): each for each in snapshot.definitions}
    found = set()
    for field in snapshot.fields:
        old = field.definition
        if old is None or old.index is None or field.sidecar == "container":
            continue  # a kind that is unknown here stays as it is
        new = newest[old.kind, old.columns]
        if not new.same_index(old):
            lacking = with_value(matched, field)
            for other in snapshot.fields:
                if new.same_index(other.definition) and lacking.any():
                    lacking &= ~with_value(matched, other)
            if not lacking.any():
                found.add(field.key)
    return found


_SHARE = r"its share of memory \((?P<bytes>\d{1,3}(?:,\d{3}){0,5}) bytes\)"


def left_out(matched: MatchedFacts, index: str, memory: int = 0) -> NDArray[np.bool_]:
    """Files for which ``index`` (its ``repr``) was tried and left out, with a reason; see
    ``covered``."""
    found = np.zeros(len(matched.listing), np.bool_)
    column = matched.snapshot.own(REASONS)
    if column.null_count == len(column):
        return found
    row = 0
    for chunk in column.chunks:
        row_of_entry = np.repeat(np.arange(row, row + len(chunk)), np.diff(numbers(chunk.offsets)))
        mine = _equal(chunk.keys, index)
        if memory and mine.any():
            mine[mine] = numbers(_share_of(chunk.items.filter(arrow(mine))), memory) >= memory
        entries = row_of_entry[mine]
        file = matched.file_of_row[entries]
        found[file[file >= 0]] = True
        row += len(chunk)
    return found


def _share_of(reasons: pa.StringArray) -> pa.Int64Array:
    """The bytes that were too little, by the reasons; null for other reasons."""
    shares = pc.struct_field(pc.extract_regex(reasons, _SHARE), ["bytes"])
    return pc.cast(pc.replace_substring(shares, ",", ""), pa.int64())


def _equal(keys: pa.StringArray, text: str) -> NDArray[np.bool_]:
    # A Python string as a scalar would import pandas, as ``pa.array`` does.
    wanted = pc.cast(arrow_bytes([text.encode()]), keys.type)[0]
    return numbers(pc.equal(keys, wanted))


def unreadable(matched: MatchedFacts) -> dict[int, str]:
    """The files that a build could not read, and why, by their position in the listing."""
    found: dict[int, str] = {}
    column = matched.snapshot.own(REASONS)
    row = 0
    for chunk in column.chunks:
        at = np.flatnonzero(_equal(chunk.keys, UNREADABLE))
        rows = np.searchsorted(numbers(chunk.offsets), at, "right") - 1 + row
        for file, text in zip(
            matched.file_of_row[rows], pc.take(chunk.items, arrow(at)), strict=True
        ):
            if file >= 0 and matched.rows[file] < 0:  # a later build may have read it
                found[int(file)] = text.as_py()
        row += len(chunk)
    return dict(sorted(found.items()))


def without_pm(matched: MatchedFacts) -> NDArray[np.bool_]:
    """Files without an existing ``_pm``, except those whose facts say why there is none."""
    found = left_out(matched, PM)
    found[matched.file_of_row[(matched.file_of_row >= 0) & matched.has_sidecar("pm")]] = True
    return ~found


def by_lacking(
    matched: MatchedFacts,
    wanted: Sequence[Index],
    schema: pa.Schema | None = None,
    memory: int = 0,
) -> Iterator[tuple[tuple[Index, ...], NDArray[np.bool_]]]:
    """Groups of files that lack the same indexes of ``wanted``: those indexes, and a mask over the
    listing.

    With the table's ``schema`` the groups include other indexes in a sidecar that is rewritten.
    ``memory`` is that of a builder, as of ``covered``.
    """
    every = [*wanted, *(_companions(matched, wanted, schema) if schema is not None else ())]
    lacks = [~covered(matched, index, memory) for index in wanted]
    lacks += [np.zeros(len(matched.listing), np.bool_)] * (len(every) - len(wanted))
    for sidecar in {index.sidecar for index in wanted} - {None}:
        within = [at for at, index in enumerate(every) if index.sidecar == sidecar]
        due = np.any([lacks[at] for at in within], axis=0)
        if due.any():
            for at in within:
                lacks[at] = lacks[at] | (due & valued(matched, every[at]))
    table = np.array(lacks).reshape(len(lacks), len(matched.listing))
    some = np.flatnonzero(table.any(axis=0))  # of a table that has grown, most files lack none
    if not len(some):
        return
    kinds, group = np.unique(table[:, some].T, axis=0, return_inverse=True)
    for number, kind in enumerate(kinds):
        indexes = tuple(index for index, lacking in zip(every, kind, strict=True) if lacking)
        files = np.zeros(len(matched.listing), np.bool_)
        files[some[group.reshape(-1) == number]] = True
        yield indexes, files


def _companions(matched: MatchedFacts, wanted: Sequence[Index], schema: pa.Schema) -> list[Index]:
    """Other indexes of the table in the same sidecars as wanted ones."""
    sidecars = {index.sidecar for index in wanted} - {None}
    named = {(index.name, index.column) for index in wanted}
    found = []
    for definition in matched.snapshot.definitions if sidecars else ():
        index = definition.index
        if index is None or index.sidecar not in sidecars or (index.name, index.column) in named:
            continue
        try:
            column_fields([index], schema)
        except UnsupportedError:  # the column is gone, or of another type
            continue
        found.append(index)
    return found


def describe(table: str, matched: MatchedFacts, names: Namings | None = None) -> Description:
    """The indexes of the snapshot behind ``matched``, over the files of its listing, which have
    other ``names`` for columns."""
    snapshot, listing = matched.snapshot, matched.listing
    total = len(listing)
    slices = snapshot.slices.values()
    lost = unreadable(matched)
    packs = _packs(snapshot)
    stored = snapshot.size + packs.total_bytes
    fresh = int(matched.has_fact.sum()) - len(lost)
    stale = int((matched.stale & ~matched.has_fact).sum())
    return Description(
        table=table,
        location=snapshot.location.root,
        files_total=total,
        fresh=fresh,
        stale=stale,
        missing=total - fresh - stale - len(lost),
        unreadable=tuple((listing.paths[at], text) for at, text in lost.items()),
        orphaned=matched.orphaned,
        bytes_data=listing.total_bytes,
        bytes_index=stored,
        parts=len(snapshot.parts),
        indexes=tuple(_indexes(under(matched, names))),
        pm_files=int(np.count_nonzero(matched.sidecar_rows("pm") >= 0)),
        pm_bytes=_bytes_of_pms(matched),
        sliced=sum(column.files for each in slices for column in each.directory.columns),
        sliced_bytes=sum(each.size for each in slices),
        notes=(
            *map(str, matched.reasons),
            *outgrown(table, snapshot, total),
            *_former(table, snapshot),
            *_unused(table, matched, packs, stored),
        ),
    )


def unrelated(matched: MatchedFacts) -> Iterator[str]:
    """A note, if some files look like those of another table."""
    schemas = matched.schemas
    apart = np.flatnonzero([] if schemas is None else schemas.unrelated())
    if len(apart):
        total = len(matched.listing)
        yield (
            f"{of_total(len(apart), total, 'files')} share no column with the others, such as"
            f" {matched.listing.paths[apart[0]]}: if they are another table, move them to a folder"
            " of their own"
        )


def outgrown(table: str, snapshot: Snapshot, files: int) -> Iterator[str]:
    """Notes on indexes whose parameters a build chose for a table of fewer files, with the command
    that chooses again."""
    for definition in snapshot.definitions:
        index = definition.index
        found = None if index is None else index.outgrown(files)
        if found is not None:
            why, spec = found
            mending = command("build", table, "-c", spec)
            yield f"{definition.column}:{definition.kind}: {why}; mend it with {mending}"


def _former(table: str, snapshot: Snapshot) -> Iterator[str]:
    """Notes on indexes that were built again with other parameters and are still stored."""
    sizes = _bytes_by_field(snapshot)
    for field in snapshot.fields:
        old = field.definition
        if old is not None and not any(map(old.same_index, snapshot.definitions)):
            yield (
                f"{old} was built again with other parameters: its {size(sizes[field.key])} are "
                f"used until {command('compact', table)} removes them, once all files have"
                " the new one"
            )


_MUCH = 0.1  # of the index


def _unused(table: str, matched: MatchedFacts, packs: Listing, stored: int) -> Iterator[str]:
    """A note on the bytes of ``packs`` that no query reads: their sidecars were replaced, their
    files are gone, or a merge has dropped their rows."""
    used: set[str] = set()
    for sidecar in SIDECARS:
        rows, places = ~_replaced_rows(matched, sidecar), matched.places(sidecar)
        named = np.unique(places.pack[rows & (places.pack >= 0)])
        used.update(places.packs[at] for at in named.tolist())
    unused = np.array([path not in used for path in packs.paths], np.bool_)
    free = int(packs.sizes[unused].sum())
    if free > _MUCH * stored:
        yield (
            f"{size(free)} of {size(stored)} are of former indexes or files, and no query reads"
            f" them: run {command('compact', table)}, and a day later {command('vacuum', table)}"
        )


def stored_bytes(snapshot: Snapshot) -> int:
    """Bytes of all parts, bit slices and packs."""
    return snapshot.size + _packs(snapshot).total_bytes


def _packs(snapshot: Snapshot) -> Listing:
    return snapshot.storage.list_all(snapshot.location.packs)


def _bytes_of_pms(matched: MatchedFacts) -> int:
    """Bytes of the row group metadata that plans would read."""
    rows, places = matched.sidecar_rows("pm"), matched.places("pm")
    rows = rows[rows >= 0]
    inline = pc.sum(pc.binary_length(places.inline.take(arrow(rows)))).as_py() or 0
    return int(inline) + int(np.maximum(places.length[rows], 0).sum())


def _indexes(views: Sequence[MatchedFacts]) -> list[IndexInfo]:
    snapshot = views[0].snapshot
    bytes_of = _bytes_by_field(snapshot)
    infos: list[tuple[IndexInfo, set[tuple[str, str, str]]]] = []
    newest: dict[tuple[str, tuple[str, ...]], Definition] = {}
    for each in (definition for view in views for definition in view.snapshot.definitions):
        known = newest.setdefault((each.kind, each.columns), each)
        if each.built > known.built:
            newest[each.kind, each.columns] = each
    for definition in newest.values():
        fields: dict[tuple[str, str, str], FactField] = {}
        files, lacking = np.zeros((2, len(views[0].listing)), np.bool_)
        for view in views:
            same = [e for e in view.snapshot.fields if definition.same_index(e.definition)]
            fields |= {each.key: each for each in same}
            for field in same:
                if not field.of_row_groups:
                    files |= with_value(view, field)
            lacking |= _left_out_of(view, definition)
        lacking &= ~files
        index = definition.index
        info = IndexInfo(
            column=definition.column,
            kind=definition.kind,
            params=definition.params,
            type=spark_name(definition.type),
            files=int(files.sum()),
            bytes=sum(bytes_of[k] + _in_sidecars(views[0], e) for k, e in fields.items()),
            left_out=int(lacking.sum()),
            known=index is not None,
            shown="" if index is None else index.shown_params,
            key_metadata=definition.key_metadata,
        )
        infos.append((info, set(fields)))
    # Several columns may have had one name in turn: their facts count for the columns that use
    # them.
    held = [keys for each, keys in infos if each.files and len(views) > 1]
    counted: set[tuple[str, str, str]] = set().union(*held)
    return [each for each, keys in infos if each.files or not keys <= counted]


def _left_out_of(view: MatchedFacts, definition: Definition) -> NDArray[np.bool_]:
    """Files for which the index was left out, found by the column names of the files."""
    stored = [view.snapshot.naming.to_file(each) for each in definition.columns]
    if None in stored:
        return np.zeros(len(view.listing), np.bool_)
    return left_out(view, str(replace(definition, columns=tuple(map(str, stored)))))


def _in_sidecars(matched: MatchedFacts, field: FactField) -> int:
    """Bytes of an index in sidecars, by the lengths in its values, without replaced ones."""
    if field.sidecar is None or not pa.types.is_struct(field.arrow.type):
        return 0
    if field.arrow.type.get_field_index("length") < 0:
        return 0
    used = ~_replaced_rows(matched, field.sidecar)
    total = 0
    for piece in matched.snapshot.values(field):
        lengths = pc.struct_field(piece.values, "length").filter(arrow(used[piece.at]))
        total += pc.sum(lengths).as_py() or 0
    return total


def _replaced_rows(matched: MatchedFacts, sidecar: str) -> NDArray[np.bool_]:
    """Fact rows of files that are gone, have changed, or have a newer row with their sidecar."""
    newest = matched.sidecar_rows(sidecar)
    replaced = matched.dead_rows | (matched.file_of_row >= 0)
    replaced[newest[newest >= 0]] = False
    return replaced


def _bytes_by_field(snapshot: Snapshot) -> Counter[tuple[str, str, str]]:
    """Stored bytes of every index column, over all parts."""
    total: Counter[tuple[str, str, str]] = Counter()
    for part in snapshot.parts:
        for field in part.fields:
            total[field.key] += part.column_bytes.get(field.arrow.name, 0)
    return total


def indexed_names(definitions: Iterable[Definition]) -> tuple[str, ...]:
    """The top-level columns that have an index, as the facts spell them; columns that facts spell
    in two ways are left out."""
    named = (name for each in definitions for name in each.columns if not is_expression(name))
    names = {str(column_path(name)[0]) for name in named}
    lower = Counter(name.lower() for name in names)
    return tuple(sorted(name for name in names if lower[name.lower()] == 1))
