"""Which files of a listing have an index already: what a build or a refresh need not do again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from .columns import REASONS
from .parts import Part
from .snapshot import nonnull

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from skipstone.index.kind import Index

    from .columns import FactField
    from .matching import Matched

__all__ = ["READ_BYTES", "by_lacking", "covered", "left_out", "valued", "with_value"]

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
    having = [part for part in snapshot.identities.parts if field.key in part.by_key]
    names = [part.by_key[field.key].arrow.name for part in having]
    size = sum(part.column_bytes.get(n, 0) for part, n in zip(having, names, strict=True))
    if size > READ_BYTES and all(type(part) is Part for part in having):
        told = [part.filled(name) for part, name in zip(having, names, strict=True)]
        if not any(each is None for each in told):
            for part, rows in zip(having, told, strict=True):
                assert rows is not None
                at = np.flatnonzero(rows) + snapshot.identities.starts[part.name]
                file = matched.file_of_row[at]
                found[file[file >= 0]] = True
            return found
    for piece in snapshot.values(field):
        file = matched.file_of_row[piece.at]
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


def by_lacking(
    matched: Matched, wanted: Sequence[Index]
) -> Iterator[tuple[tuple[Index, ...], NDArray[np.bool_]]]:
    """Groups of files that lack the same of ``wanted``: those indexes, and a mask over the
    listing."""
    lacks = np.array([~covered(matched, index) for index in wanted]).T
    kinds, group = np.unique(lacks, axis=0, return_inverse=True)
    for number, kind in enumerate(kinds):
        if kind.any():
            indexes = tuple(index for index, lacking in zip(wanted, kind, strict=True) if lacking)
            yield indexes, group.reshape(-1) == number
