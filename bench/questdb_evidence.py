"""Pruning row groups by a `_pm`, against pyarrow reading the footer that says the same.

Measured is the whole way from the bytes: open, pick the snapshot, find one column by its name among
10,000, and decide `c5000 < 4.5` for all 10 row groups, of which 4 are left. Beside it: the same
with the CRC (the peer is one CRC pass over the bytes), the same of a `_pm` that is kept open, and a
whole plan of 1,000 files.
"""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.parquet.format.footer import Tail
from skipstone.predicate.tree import Leaf, Op
from skipstone.pruning import Level, Units
from skipstone.questdb.evidence.opened_pm import OpenedPm, open_pm
from skipstone.questdb.evidence.row_groups import PmSource, chunk_bounds
from skipstone.questdb.format.pm import Pm

from .figure import Figure, Peer, interleaved, median
from .questdb_formats import ROW_GROUPS, VERSION, lay, repeat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from skipstone.pruning import BoolArray

    from .workbench import Workbench

__all__ = ["figures"]

REPEATED = 100


def figures(bench: Workbench) -> Iterator[Figure]:
    """Open and prune, with and without the CRC; many files."""
    toy = bench.sizes.runs == 1
    columns = 50 if toy else 10_000
    files = 3 if toy else 1_000
    runs, repeated = bench.sizes.runs, 2 if toy else REPEATED
    folder = bench.generated(
        "questdb",
        lambda to: lay(to, columns),
        columns=columns,
        row_groups=ROW_GROUPS,
        version=VERSION,
    )
    parquet = (folder / "data.parquet").read_bytes()
    wide, narrow = (folder / "_pm").read_bytes(), (folder / "narrow_pm").read_bytes()
    schema = pa.schema([(f"c{columns // 2}", pa.float64())])
    few = pa.schema([("c5", pa.float64())])
    size = len(parquet)

    taken = interleaved(runs, {"footer": lambda: pq.read_metadata(io.BytesIO(parquet))})
    footer_seconds = median(taken["footer"])
    seconds = median([repeat(lambda: prune(wide, size, schema), repeated) for _ in range(2 * runs)])
    of_few = median([repeat(lambda: prune(narrow, None, few), repeated) for _ in range(2 * runs)])
    ratio = footer_seconds / seconds
    yield Figure(
        name="questdb_evidence.prune",
        value=1e3 * seconds,
        unit="ms",
        peer=Peer(what="pyarrow.parquet.read_metadata, ms", value=1e3 * footer_seconds),
        ratio=ratio,
        target="<= 0.1 ms, peer / value >= 300",
        met=seconds <= 1e-4 and ratio >= 300,
        details={
            "columns": columns,
            "row_groups": ROW_GROUPS,
            "pm_bytes": len(wide),
            "footer_bytes": Tail.from_bytes(parquet[-8:], size).length,
            "of_10_columns_ms": 1e3 * of_few,
        },
    )
    pairs = interleaved(
        2 * runs,
        {
            "checked": lambda: prune(wide, size, schema, verify=True),
            "crc": lambda: zlib.crc32(wide),
        },
        warm=2,
    )
    checked, crc = median(pairs["checked"]), median(pairs["crc"])
    yield Figure(
        name="questdb_evidence.prune_checked",
        value=1e3 * checked,
        unit="ms",
        peer=Peer(what="zlib.crc32 over the same bytes, ms", value=1e3 * crc),
        ratio=checked / crc,
        target="value / peer <= 2",
        met=checked <= 2 * crc,
        details={"pm_bytes": len(wide)},
    )
    snapshot = open_pm(wide, parquet_size=size)
    many = {at: OpenedPm.of(snapshot, path=f"{at}.parquet", schema=schema) for at in range(files)}
    together = median([repeat(lambda: decide(many, schema), 1) for _ in range(2 * runs)])
    yield Figure(
        name="questdb_evidence.prune_files",
        value=1e3 * together,
        unit="ms",
        details={"files": files, "row_groups": files * ROW_GROUPS, "columns": columns},
    )


def prune(
    data: bytes, parquet_size: int | None, schema: pa.Schema, *, verify: bool = False
) -> BoolArray:
    """The row groups of one file that may have a value below 4.5."""
    snapshot = Pm(data).snapshot(parquet_size)
    if verify:
        snapshot.verify()
    (name,) = schema.names
    file = OpenedPm.of(snapshot, path="data.parquet", schema=schema)
    known = file.stored(name)
    assert known is not None
    place, stored = known
    bounds = chunk_bounds(stored, [snapshot.stats([place])], file.rows).bounds_of(_leaf(name))
    if bounds is None or np.count_nonzero(bounds.may) != 4:
        raise AssertionError("other row groups than there are")
    return bounds.may


def decide(files: Mapping[int, OpenedPm], schema: pa.Schema) -> BoolArray:
    """The same of any number, as a plan asks."""
    (name,) = schema.names
    source = PmSource(files)
    ordinals = np.arange(len(files))
    units, _ = source.split(Units.objects(ordinals, np.full(len(files), -1)), frozenset((name,)))
    if units.level is not Level.ROW_GROUP or len(units) != ROW_GROUPS * len(files):
        raise AssertionError("row groups are missing")
    (evidence,) = source.evidence(units, frozenset((name,)))
    (answer,) = evidence.answer((_leaf(name),), units, {})
    may: BoolArray = np.zeros(0, np.bool_) if answer.bounds is None else answer.bounds.may
    if np.count_nonzero(may) != 4 * len(files):
        raise AssertionError("other row groups than there are")
    return may


def _leaf(name: str) -> Leaf:
    return Leaf(name, pa.float64(), Op.LT, (4.5,))
