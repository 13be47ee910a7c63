"""``describe``: which indexes a store has, the files that they cover, and their bytes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.predicate.types import spark_name

from .coverage import left_out, with_value
from .reports import Description, IndexInfo

if TYPE_CHECKING:
    from .match import Matched
    from .part_columns import FactField
    from .snapshot import Snapshot

__all__ = ["describe", "stored_bytes"]


def describe(table: str, matched: Matched) -> Description:
    """What the snapshot behind ``matched`` has, over the files of its listing."""
    snapshot, listing = matched.snapshot, matched.listing
    total = len(listing)
    fresh = int(matched.has_fact.sum())
    stale = int((matched.stale & ~matched.has_fact).sum())
    return Description(
        table=table,
        location=snapshot.location.root,
        files_total=total,
        fresh=fresh,
        stale=stale,
        missing=total - fresh - stale,
        orphaned=matched.orphaned,
        bytes_data=listing.total_bytes,
        bytes_index=stored_bytes(snapshot),
        parts=len(snapshot.parts),
        indexes=tuple(_indexes(matched)),
        pm_files=int(np.count_nonzero(matched.sidecar_rows("pm") >= 0)),
        pm_bytes=_bytes_of_pms(matched),
        notes=tuple(str(reason) for reason in matched.reasons),
    )


def stored_bytes(snapshot: Snapshot) -> int:
    """Bytes of all parts and of the packs beside them."""
    packs = snapshot.storage.list_all(snapshot.location.packs)
    return snapshot.size + packs.total_bytes


def _bytes_of_pms(matched: Matched) -> int:
    """Bytes of the row group metadata that plans would read."""
    rows, places = matched.sidecar_rows("pm"), matched.places("pm")
    rows = rows[rows >= 0]
    inline = pc.sum(pc.binary_length(places.inline.take(pa.array(rows)))).as_py() or 0
    return int(inline) + int(np.maximum(places.length[rows], 0).sum())


def _indexes(matched: Matched) -> list[IndexInfo]:
    snapshot = matched.snapshot
    bytes_of = _bytes_by_field(snapshot)
    infos = []
    for definition in snapshot.definitions:
        same = [
            field
            for field in snapshot.fields
            if field.definition is not None
            and (field.definition.kind, field.definition.columns, field.definition.params)
            == (definition.kind, definition.columns, definition.params)
        ]
        files = np.zeros(len(matched.listing), np.bool_)
        for field in same:
            files |= with_value(matched, field)
        lacking = left_out(matched, str(definition)) & ~files
        infos.append(
            IndexInfo(
                column=definition.column,
                kind=definition.kind,
                params=definition.params,
                type=spark_name(definition.type),
                files=int(files.sum()),
                bytes=sum(bytes_of[field.key] + _in_sidecars(snapshot, field) for field in same),
                left_out=int(lacking.sum()),
                known=definition.index is not None,
                key_metadata=definition.key_metadata,
            )
        )
    return infos


def _in_sidecars(snapshot: Snapshot, field: FactField) -> int:
    """Bytes of the blobs that the values of an index say they have in sidecars."""
    if field.sidecar is None or not pa.types.is_struct(field.arrow.type):
        return 0
    if field.arrow.type.get_field_index("length") < 0:
        return 0
    lengths = [pc.struct_field(piece.values, "length") for piece in snapshot.values(field)]
    return sum(pc.sum(each).as_py() or 0 for each in lengths)


def _bytes_by_field(snapshot: Snapshot) -> Counter[tuple[str, str, str]]:
    """Stored bytes of every index column, over all parts."""
    total: Counter[tuple[str, str, str]] = Counter()
    for part in snapshot.parts:
        for field in part.fields:
            total[field.key] += part.column_bytes.get(field.arrow.name, 0)
    return total
