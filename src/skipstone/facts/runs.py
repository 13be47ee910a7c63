"""Runs of fact rows: a store piece by piece, where its columns outgrow the memory of one process.

A run is a row group of a part: at most 131,072 rows, and at most about 256 MiB, since no part is
written larger. ``runs`` cuts a snapshot into them, ``open_run`` reads the columns of one, anywhere:
what it takes is the run and the location. Its rows are numbered from 0, each like a file of
its own; which file of a listing a row is about, only who cut the runs knows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.storage import Listing

from .match import Matched
from .part_columns import ROWS
from .parts import Part, open_part
from .snapshot import Identities, Snapshot, cause_of, integers

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from skipstone.pruning import Reason
    from skipstone.storage import Storage

    from .location import Location
    from .part_columns import FactField

__all__ = ["FactRun", "column_bytes", "open_run", "runs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRun:
    """Row group ``group`` of the part ``name``: ``rows`` fact rows from ``first`` on.

    ``first`` counts through all rows of the snapshot that it was cut from; ``size`` and ``mtime``
    (ns) are the part's, ``nbytes`` those of the columns that are wanted of the run. ``alive`` are
    the rows that are about some file as it is now, as bits (``numpy.packbits``).
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
        """Positions of the ``alive`` rows in the run."""
        bits = np.frombuffer(self.alive, np.uint8)
        return np.flatnonzero(np.unpackbits(bits, count=self.rows))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Piece(Part):
    """A part of which there is one row group only."""

    group: int

    @property
    def rows(self) -> int:
        return int(self.metadata.row_group(self.group).num_rows)

    def load(self, reader: pq.ParquetFile, names: Sequence[str]) -> pa.Table:
        return reader.read_row_group(self.group, columns=list(names))


def wanted(snapshot: Snapshot, columns: Collection[str]) -> list[FactField]:
    """The fact columns that evidence over ``columns`` is made of."""
    return [
        field
        for field in snapshot.fields
        if field.nulls in columns
        or (field.definition and not set(field.definition.columns).isdisjoint(columns))
    ]


def column_bytes(snapshot: Snapshot, columns: Collection[str]) -> int:
    """Bytes, decompressed, of the fact columns that evidence over ``columns`` is made of.

    0 for a store that can only be evaluated whole.
    """
    if not snapshot.in_runs or snapshot.sealed:
        return 0  # held whole: the keys stay in this process
    keys = [field.key for field in wanted(snapshot, columns)]
    return sum(
        sizes.get(part.by_key[key].arrow.name, 0)
        for part in snapshot.parts
        for key in keys
        if key in part.by_key
        for sizes in part.decoded_bytes
    )


def runs(matched: Matched, columns: Collection[str]) -> list[FactRun]:
    """The runs that hold anything about ``columns`` of files as they are now."""
    snapshot = matched.snapshot
    starts = snapshot.identities.starts
    found = []
    for run in _cut(snapshot.identities.parts, wanted(snapshot, columns), starts):
        alive = matched.file_of_row[run.first : run.first + run.rows] >= 0
        if run.nbytes and alive.any():
            found.append(replace(run, alive=np.packbits(alive).tobytes()))
    return found


def _cut(
    parts: Sequence[Part], fields: Sequence[FactField], starts: dict[str, int]
) -> list[FactRun]:
    found = []
    for part in parts:
        first = starts[part.name]
        names = {part.by_key[field.key].arrow.name for field in fields if field.key in part.by_key}
        for group, sizes in enumerate(part.decoded_bytes):
            rows = part.metadata.row_group(group).num_rows
            found.append(
                FactRun(
                    name=part.name,
                    size=part.size,
                    mtime=part.mtime,
                    group=group,
                    first=first,
                    rows=rows,
                    nbytes=sum(sizes.get(name, 0) for name in names),
                )
            )
            first += rows
    return found


def open_run(run: FactRun, location: Location, storage: Storage) -> Matched | Reason:
    """The run as if its rows were the files of a listing; a ``Reason`` when it cannot be read."""
    try:
        part = open_part(location.part(run.name), run.size, run.mtime, storage)
        piece = _Piece(
            name=part.name,
            path=part.path,
            size=part.size,
            mtime=part.mtime,
            metadata=part.metadata,
            schema=part.schema,
            fields=part.fields,
            group=run.group,
        )
        counts = integers(piece.read(storage, [ROWS]).column(0), -1)
    except Exception as error:  # whatever is wrong with a part, the query goes on
        return cause_of(f"fact part {run.name}", error)
    n = len(counts)
    every = np.arange(n, dtype=np.int64)
    zeros, none = np.zeros(n, np.int64), pa.chunked_array([pa.nulls(n, pa.large_string())])
    snapshot = Snapshot(location, storage, [piece])
    counts = np.maximum(counts, -1)
    # What the rows are about was matched by whoever cut the runs, and is not read here.
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
    return Matched(
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
