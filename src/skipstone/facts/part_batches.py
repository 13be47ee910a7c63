"""Fact rows in batches: a store piece by piece, where its columns outgrow one process's memory.

A batch is a row group of a part: at most 131,072 rows, and at most about 256 MiB, since no part is
written larger. ``batches_over`` cuts a snapshot into batches; ``open_batch`` reads the columns of
one, in any process: it takes the batch and the location. Its rows are numbered from 0, each like a
file of its own; only the process that cut the batches knows which file of a listing a row is about.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone.pruning import Reason
from skipstone.storage import Listing

from .match import Identities
from .part_columns import ROWS, integers
from .parts import open_part
from .snapshot import MatchedFacts, Snapshot

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from skipstone.storage import Storage

    from .location import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBatch:
    """Row group ``group`` of the part ``name``: ``rows`` fact rows from ``first`` on.

    ``first`` counts through all rows of the snapshot; ``size`` and ``mtime`` (ns) are the part's,
    ``nbytes`` those of the wanted columns of the batch. ``alive`` are the rows that are about some
    file as it is now, as bits (``numpy.packbits``).
    """

    name: str
    size: int
    mtime: int
    group: int
    first: int
    rows: int
    nbytes: int
    alive: bytes = b""

    @property
    def about(self) -> NDArray[np.int64]:
        """Positions of the ``alive`` rows in the batch."""
        bits = np.frombuffer(self.alive, np.uint8)
        return np.flatnonzero(np.unpackbits(bits, count=self.rows))


def column_bytes(snapshot: Snapshot, columns: Collection[str]) -> int:
    """Bytes, decompressed, of the fact columns that evidence over ``columns`` is made of.

    0 for a store that can only be evaluated whole.
    """
    if not snapshot.in_batches or snapshot.encryption is not None:
        return 0  # evaluated whole: the keys stay in this process
    keys = [field.key for field in snapshot.fields_over(columns)]
    return sum(
        sizes.get(part.by_key[key].arrow.name, 0)
        for part in snapshot.parts
        for key in keys
        if key in part.by_key
        for sizes in part.decoded_bytes
    )


def batches_over(matched: MatchedFacts, columns: Collection[str]) -> list[PartBatch]:
    """The batches that hold anything about ``columns`` of files as they are now."""
    identities = matched.snapshot.identities
    keys = [field.key for field in matched.snapshot.fields_over(columns)]
    found = []
    for part in identities.parts:
        first = identities.starts[part.name]
        names = {part.by_key[key].arrow.name for key in keys if key in part.by_key}
        for group, sizes in enumerate(part.decoded_bytes):
            rows = part.metadata.row_group(group).num_rows
            alive = matched.file_of_row[first : first + rows] >= 0
            nbytes = sum(sizes.get(name, 0) for name in names)
            if nbytes and alive.any():
                batch = PartBatch(
                    name=part.name,
                    size=part.size,
                    mtime=part.mtime,
                    group=group,
                    first=first,
                    rows=rows,
                    nbytes=nbytes,
                    alive=np.packbits(alive).tobytes(),
                )
                found.append(batch)
            first += rows
    return found


def open_batch(batch: PartBatch, location: Location, storage: Storage) -> MatchedFacts | Reason:
    """The batch as if its rows were the files of a listing; a ``Reason`` when it is unreadable."""
    try:
        part = open_part(location.part(batch.name), batch.size, batch.mtime, storage)
        piece = replace(part, group=batch.group)
        counts = integers(piece.read(storage, [ROWS]).column(0), -1)
    except Exception as error:  # whatever is wrong with a part, the query goes on
        return Reason.of_error(f"fact part {batch.name}", error)
    n = len(counts)
    every = np.arange(n, dtype=np.int64)
    zeros, none = np.zeros(n, np.int64), pa.chunked_array([pa.nulls(n, pa.large_string())])
    snapshot = Snapshot(location, storage, [piece])
    counts = np.maximum(counts, -1)
    # The process that cut the batches matched the rows; their identities are not read here.
    snapshot.identities = Identities(
        parts=(piece,),
        starts={piece.name: 0},
        paths=none,
        sizes=zeros,
        mtimes=zeros,
        units=zeros,
        etags=none,
        fingerprints=none,
        rows=counts,
        valid=np.ones(n, np.bool_),
    )
    flags = np.zeros(n, np.bool_)
    return MatchedFacts(
        snapshot=snapshot,
        listing=Listing(root=location.root, paths=[""] * n, sizes=zeros, mtimes=zeros),
        fingerprint=None,
        has_fact=~flags,
        stale=flags,
        rows=counts,
        orphaned=0,
        file_of_row=every,
        path_of_row=every,
        dead_rows=flags,
    )
