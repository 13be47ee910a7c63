"""Which files of a listing have an index already: what a build or a refresh need not do again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .columns import REASONS
from .snapshot import nonnull

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from skipstone.index.kind import Index

    from .matching import Matched

__all__ = ["by_lacking", "covered", "left_out", "valued"]


def covered(matched: Matched, index: Index) -> NDArray[np.bool_]:
    """Files that have ``index``: a value, or a reason why it was left out, in a current fact."""
    return valued(matched, index) | left_out(matched, index)


def valued(matched: Matched, index: Index) -> NDArray[np.bool_]:
    """Files with a stored value of ``index``, of the same parameters, in a current fact."""
    found = np.zeros(len(matched.listing), np.bool_)
    params = tuple(sorted(index.params.items()))
    for field in matched.snapshot.fields:
        have = field.definition
        if have is None or (have.kind, have.columns, have.params) != (
            index.name,
            (index.column,),
            params,
        ):
            continue
        for piece in matched.snapshot.values(field):
            file = matched.file_of_row[piece.at]
            found[file[(file >= 0) & nonnull(piece.values)]] = True
    return found


def left_out(matched: Matched, index: Index) -> NDArray[np.bool_]:
    """Files for which ``index`` was tried and left out, with a reason, in a current fact."""
    found = np.zeros(len(matched.listing), np.bool_)
    base = 0
    for chunk in matched.snapshot.own(REASONS).chunks:
        if chunk.null_count < len(chunk):
            told = np.asarray(pc.equal(chunk.keys, repr(index)).to_numpy(zero_copy_only=False))
            row_of_entry = np.asarray(pc.list_parent_indices(_as_list(chunk)))
            file = matched.file_of_row[base + row_of_entry[told.astype(np.bool_)]]
            found[file[file >= 0]] = True
        base += len(chunk)
    return found


def _as_list(chunk: pa.MapArray) -> pa.ListArray:
    entries = pa.list_(pa.struct([("key", chunk.type.key_type), ("value", chunk.type.item_type)]))
    return chunk.cast(entries)


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
