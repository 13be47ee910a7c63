"""Which files of a listing have an index already: what a build or a refresh need not do again.

Indexes that lie in one sidecar of their file are built together: where one of them is lacking,
those that are there are built anew, and the sidecar of the newest row has them all. A value whose
sidecar is gone counts as none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from skipstone.errors import UnsupportedError
from skipstone.pruning.kind import column_fields
from skipstone.questdb.pm_of_data_file import PM

from .part_columns import REASONS
from .parts import Part
from .snapshot import nonnull

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.pruning.kind import Index

    from .match import Matched
    from .part_columns import FactField

__all__ = ["READ_BYTES", "by_lacking", "covered", "left_out", "valued", "with_value", "without_pm"]

#: A fact column of up to this many bytes is read to see which files have a value in it.
READ_BYTES = 8 * 1024 * 1024


def covered(matched: Matched, index: Index) -> NDArray[np.bool_]:
    """Files that have ``index``: a value, or a reason why it was left out, in a current fact."""
    return valued(matched, index) | left_out(matched, repr(index))


def valued(matched: Matched, index: Index) -> NDArray[np.bool_]:
    """Files with a stored value of ``index``, of the same parameters, in a current fact."""
    params = tuple(sorted(index.params.items()))
    wanted = (index.name, (index.column,), params)
    found = np.zeros(len(matched.listing), np.bool_)
    for field in matched.snapshot.fields:
        have = field.definition
        if have is not None and (have.kind, have.columns, have.params) == wanted:
            found |= with_value(matched, field)
    return found


def with_value(matched: Matched, field: FactField) -> NDArray[np.bool_]:
    """Files with a value in the fact column ``field``, in a current fact.

    Where the column is large and all footers tell, it is not read. A column of moderate size is:
    that finds damaged values too, which are then built anew.
    """
    found = np.zeros(len(matched.listing), np.bool_)
    snapshot = matched.snapshot
    file_of_row = matched.file_of_row
    if field.sidecar is not None:
        file_of_row = np.where(matched.has_sidecar(field.sidecar), file_of_row, -1)
    having = [part for part in snapshot.identities.parts if field.key in part.by_key]
    names = [part.by_key[field.key].arrow.name for part in having]
    size = sum(part.column_bytes.get(n, 0) for part, n in zip(having, names, strict=True))
    if size > READ_BYTES and all(type(part) is Part for part in having):
        told = [part.filled(name) for part, name in zip(having, names, strict=True)]
        if not any(each is None for each in told):
            for part, rows in zip(having, told, strict=True):
                assert rows is not None
                at = np.flatnonzero(rows) + snapshot.identities.starts[part.name]
                file = file_of_row[at]
                found[file[file >= 0]] = True
            return found
    for piece in snapshot.values(field):
        file = file_of_row[piece.at]
        found[file[(file >= 0) & nonnull(piece.values)]] = True
    return found


def left_out(matched: Matched, index: str) -> NDArray[np.bool_]:
    """Files for which ``index`` (its ``repr``) was tried and left out, with a reason."""
    found = np.zeros(len(matched.listing), np.bool_)
    column = matched.snapshot.own(REASONS)
    if column.null_count == len(column):
        return found
    row = 0
    for chunk in column.chunks:
        told = pc.fill_null(pc.equal(chunk.keys, index), False)
        lengths = np.diff(np.asarray(chunk.offsets))
        row_of_entry = np.repeat(np.arange(row, row + len(chunk)), lengths)
        entries = row_of_entry[np.asarray(told).astype(np.bool_)]
        file = matched.file_of_row[entries]
        found[file[file >= 0]] = True
        row += len(chunk)
    return found


def without_pm(matched: Matched) -> NDArray[np.bool_]:
    """Files whose facts have no ``_pm`` that is still there, and no reason why they have none."""
    found = left_out(matched, PM)
    found[matched.file_of_row[(matched.file_of_row >= 0) & matched.has_sidecar("pm")]] = True
    return ~found


def by_lacking(
    matched: Matched, wanted: Sequence[Index], schema: pa.Schema | None = None
) -> Iterator[tuple[tuple[Index, ...], NDArray[np.bool_]]]:
    """Groups of files that lack the same of ``wanted``: those indexes, and a mask over the
    listing.

    With the table's ``schema`` also indexes that are not wanted, where they lie in a sidecar that
    is written anew.
    """
    every = [*wanted, *(_companions(matched, wanted, schema) if schema is not None else ())]
    lacks = [~covered(matched, index) for index in wanted]
    lacks += [np.zeros(len(matched.listing), np.bool_)] * (len(every) - len(wanted))
    for sidecar in {index.sidecar for index in wanted} - {None}:
        within = [at for at, index in enumerate(every) if index.sidecar == sidecar]
        due = np.any([lacks[at] for at in within], axis=0)
        if due.any():
            for at in within:
                lacks[at] = lacks[at] | (due & valued(matched, every[at]))
    kinds, group = np.unique(np.array(lacks).T, axis=0, return_inverse=True)
    for number, kind in enumerate(kinds):
        if kind.any():
            indexes = tuple(index for index, lacking in zip(every, kind, strict=True) if lacking)
            yield indexes, group.reshape(-1) == number


def _companions(matched: Matched, wanted: Sequence[Index], schema: pa.Schema) -> list[Index]:
    """Indexes that the table has and that lie in the same sidecars as some that are wanted."""
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
