"""Merges many parts into one without losing a fact about an existing file.

Rows with equal identities become one row. Each of its values is the newest that is not null; values
that belong together (the place of a sidecar, and the places of indexes in it) come from one row.
Where the newest sidecar lacks an index that an older one has (two concurrent builds of different
indexes), the older row stays a separate row, before the newest. Rows whose identities only match
stay separate too: without a listing it is not known whether they describe the same version. Known
and unknown columns are copied unchanged. The rows of the new part are sorted by path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError

from .._arrays import distinct
from .part_columns import (
    IDENTITY,
    OWN,
    PATH,
    REASONS,
    SCHEMA,
    SIDECARS,
    integers,
    nonnull,
    place_columns,
)
from .part_writer import encode_part

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.storage import Storage

    from .index_encryption import WriteEncryption
    from .part_columns import FactField
    from .parts import Part


Key = tuple[str, str, str]


@dataclass(frozen=True, eq=False, kw_only=True)
class Merged:
    """The new part (``name`` and ``data``, ``None`` when nothing is left) and what it replaces."""

    replaced: tuple[Part, ...]
    name: str | None = None
    data: memoryview | None = None
    rows: int = 0


@dataclass(frozen=True, eq=False)
class _Input:
    """One part as read: the columns of ``OWN``, and its other columns by key."""

    part: Part
    own: pa.Table
    values: Mapping[Key, pa.ChunkedArray]
    keep: NDArray[np.int64]


def merge(
    parts: Sequence[Part],
    fields: Sequence[FactField],
    keep: Mapping[str, NDArray[np.bool_]],
    dropped: Collection[Key],
    storage: Storage,
    encryption: WriteEncryption | None = None,
) -> Merged:
    """The union of ``parts`` (oldest first) without rows outside ``keep`` and columns ``dropped``.

    ``keep`` is a mask per part name. A part whose identities are damaged, or that is gone, is not
    replaced; ``OSError`` where the store does not give one.
    A damaged index column is left out, which counts as not built. The merge of encrypted parts is
    encrypted by ``encryption``; ``KeyUnavailableError`` where a column's key is not available.
    """
    inputs = [found for part in parts if (found := _read(part, keep, storage)) is not None]
    replaced = tuple(each.part for each in inputs)
    held = {key for each in inputs for key in each.values}
    chosen = [field for field in fields if field.key in held and field.key not in dropped]
    if not inputs or (dropped and not chosen and not any(map(_has_sidecars, inputs))):
        return Merged(replaced=replaced)
    group, count, useless = _apart(inputs, chosen, *_groups(inputs))
    order = np.arange(count)
    columns: dict[str, pa.Array] = {}
    row_of: dict[str, NDArray[np.int64]] = {}
    for names in _together():
        stacked = [_stack([each.own[name] for each in inputs], inputs) for name in names]
        if names[0] in IDENTITY:
            newest = _newest(group, count, np.ones(len(group), np.bool_))
        else:
            usable = np.any([nonnull(each) for each in stacked], axis=0)
            if names[0] in useless:
                usable &= ~useless[names[0]]
            newest = _newest(group, count, usable)
        row_of[names[0]] = newest
        for name, values in zip(names, stacked, strict=True):
            columns[name] = _pick(values, newest)
        if names[0] == PATH:
            order = pc.sort_indices(columns[PATH]).to_numpy()
        if names == (REASONS,):
            columns[REASONS] = _united(columns[REASONS], stacked[0], group)
    arrays = [columns[name].take(pa.array(order)) for name in OWN]
    for field in chosen:
        values = _values_of(field, inputs)
        if field.sidecar is None:
            newest = _newest(group, count, nonnull(values))
        else:
            newest = row_of[place_columns(field.sidecar)[0]]
        arrays.append(_pick(values, newest[order]))
    table = pa.Table.from_arrays(arrays, names=[*OWN, *map(str, range(len(chosen)))])
    limits = [each.part.inline_limit for each in inputs if each.part.inline_limit is not None]
    limit = limits[-1] if limits else None
    used = set(table[SCHEMA].unique().to_pylist())
    schemas = {
        name: text for each in inputs for name, text in each.part.schemas.items() if name in used
    }
    name, data = encode_part(table, chosen, limit, encryption, schemas=schemas)
    return Merged(replaced=replaced, name=name, data=data, rows=count)


def _values_of(field: FactField, inputs: Sequence[_Input]) -> pa.Array:
    """The values of a column over all rows; null for parts that lack it."""
    type = field.arrow.type
    per_part = ((each.part.rows, each.values.get(field.key)) for each in inputs)
    return _stack(
        [
            pa.chunked_array([pa.nulls(rows, type)]) if values is None else values
            for rows, values in per_part
        ],
        inputs,
    )


def _has_sidecars(each: _Input) -> bool:
    columns = [name for sidecar in SIDECARS for name in place_columns(sidecar)]
    return any(each.own[name].null_count < each.part.rows for name in columns)


def _together() -> list[tuple[str, ...]]:
    """The columns of ``OWN``, in groups whose values must come from one row."""
    places = [place_columns(sidecar) for sidecar in SIDECARS]
    taken = {*IDENTITY, *(name for names in places for name in names)}
    return [IDENTITY, *places, *((name,) for name in OWN if name not in taken)]


def _read(part: Part, keep: Mapping[str, NDArray[np.bool_]], storage: Storage) -> _Input | None:
    mask = keep.get(part.name)
    if mask is None:
        return None
    names = [field.arrow.name for field in part.fields]
    try:
        own = part.read(storage, list(OWN))
        try:
            table = part.read(storage, names)
            values = dict(zip(part.by_key, table.columns, strict=True))
        except FormatError:
            values = {}
            for key, field in part.by_key.items():
                try:
                    values[key] = part.read(storage, [field.arrow.name]).column(0)
                except FormatError:
                    values[key] = pa.chunked_array([pa.nulls(part.rows, field.arrow.type)])
    except (FileNotFoundError, FormatError):
        return None
    return _Input(part, own, values, np.flatnonzero(mask))


def _stack(columns: Sequence[pa.ChunkedArray], inputs: Sequence[_Input]) -> pa.Array:
    """The kept rows of one column of every part, oldest first, as one array."""
    chunks = []
    for column, each in zip(columns, inputs, strict=True):
        if len(each.keep) < each.part.rows:
            column = column.take(pa.array(each.keep))
        chunks += column.chunks
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.nulls(0, columns[0].type)


def _groups(inputs: Sequence[_Input]) -> tuple[NDArray[np.int64], int]:
    """For each kept row the number of its identity, and how many identities there are."""
    stacked = {name: _stack([each.own[name] for each in inputs], inputs) for name in IDENTITY}
    rows = len(stacked[PATH])
    codes = [integers(stacked[name].dictionary_encode().indices, -1) for name in IDENTITY]
    if rows == 0 or len(distinct(codes[0])) == rows:
        return np.arange(rows), rows
    order = np.lexsort(codes)
    changes = np.zeros(rows, np.bool_)
    changes[0] = True
    for code in codes:
        changes[1:] |= code[order][1:] != code[order][:-1]
    group = np.empty(rows, np.int64)
    group[order] = np.cumsum(changes) - 1
    return group, int(changes.sum())


def _apart(
    inputs: Sequence[_Input], fields: Sequence[FactField], group: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], int, dict[str, NDArray[np.bool_]]]:
    """Splits groups where several sidecars are needed. A row whose sidecar has the newest value of
    an index gets a group of its own, unless it is the newest such row of its identity.

    Returns the group of each row, the number of groups, and, by the first column of a place, the
    rows whose sidecar has no newest value. The new groups come first, so that rows of a path stay
    in the order of their age.
    """
    extra = np.zeros(len(group), np.bool_)
    useless = {}
    for sidecar in SIDECARS:
        names = place_columns(sidecar)
        pack, _, _, inline = (_stack([each.own[n] for each in inputs], inputs) for n in names)
        placed = nonnull(pack) | nonnull(inline)
        if not (np.bincount(group[placed], minlength=count) > 1).any():
            continue
        having: dict[object, NDArray[np.bool_]] = {}
        for field in fields:
            if field.sidecar == sidecar:
                of = field.definition
                # If an index was rebuilt with other parameters, only its newest value counts.
                name = field.key if of is None else (of.kind, of.columns)
                have = np.concatenate([_filled(each, field) for each in inputs]) & placed
                having[name] = having[name] | have if name in having else have
        useful = np.zeros(len(group) + 1, np.bool_)  # the last one for -1
        for have in having.values():
            useful[_newest(group, count, have)] = True
        useful = useful[:-1]
        newest = _newest(group, count, useful)
        useless[names[0]] = placed & ~useful & (newest >= 0)[group]
        useful[newest[newest >= 0]] = False
        extra |= useful
    apart = int(extra.sum())
    found = group + apart
    found[extra] = np.arange(apart)
    return found, count + apart, useless


def _filled(each: _Input, field: FactField) -> NDArray[np.bool_]:
    """Which kept rows of a part have a value in a column."""
    values = each.values.get(field.key)
    if values is None:
        return np.zeros(len(each.keep), np.bool_)
    return nonnull(values)[each.keep]


def _newest(group: NDArray[np.int64], count: int, usable: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each identity its last row that is usable, -1 for none."""
    found = np.full(count, -1, np.int64)
    at = np.flatnonzero(usable)
    found[group[at]] = at  # of equal indexes NumPy keeps the last
    return found


def _pick(values: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
    if len(rows) == len(values) and np.array_equal(rows, np.arange(len(rows))):
        return values
    if not len(values):
        return pa.nulls(len(rows), values.type)
    return values.take(pa.array(rows, mask=rows < 0))


def _united(chosen: pa.Array, reasons: pa.Array, group: NDArray[np.int64]) -> pa.Array:
    """The reasons of several rows of one identity together; for one index the newest."""
    at = np.flatnonzero(nonnull(reasons))
    several = at[np.bincount(group[at], minlength=1)[group[at]] > 1]
    if not len(several):
        return chosen
    found = chosen.to_pylist()
    together: dict[int, dict[str, str]] = {}
    for row, entries in zip(
        several.tolist(), reasons.take(pa.array(several)).to_pylist(), strict=True
    ):
        together.setdefault(int(group[row]), {}).update(entries)
    for each, entries in together.items():
        found[each] = list(entries.items())
    return pa.array(found, chosen.type)
