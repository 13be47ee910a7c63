"""Scans many footers at once: the kernel of one footer, over lanes (``thrift/kernel_lanes``).

The files of one writer have footers of one structure: the same fields in the same order, the same
schema byte for byte; values and lengths differ. So the functions of ``footer_kernel`` run once for
all of them, after the first footer was scanned alone. Damaged or unusual footers are left out; the
others have the result of ``FooterArrays.scan``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.parquet.thrift import kernel_wire
from skipstone.parquet.thrift.compact import I32, I64, LIST
from skipstone.parquet.thrift.kernel_lanes import (
    FEW,
    Lanes,
    OutError,
    Round,
    field,
    items,
    over_lanes,
    values_of,
    zigzag,
)
from skipstone.parquet.thrift.structs import field_ids

from . import footer_kernel
from .footer_arrays import FooterArrays, FooterPart
from .footer_layout import (
    FILE_ROW_GROUPS,
    FILE_SCHEMA,
    GROUP_SLOTS,
    NARROW_SLOTS,
    WIDE_SLOTS,
)
from .footer_scan import FooterKernels, Scanned
from .metadata import FileMetaData

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FunctionType

    from numpy.typing import NDArray

    from skipstone._numba import CompiledKernels

    I64Array = NDArray[np.int64]


# A longer footer is scanned alone: it takes as long as many short ones.
_LONGEST: Final = 64 << 10
# Lanes take 6.5 ms per 1,000 bytes of one footer, however many there are, as long as plain Python
# for this many footers. A footer of the compiled kernels takes 20 µs, and so lanes take less time
# only from one lane per this many bytes on.
_AS_PLAIN: Final = 40
_BYTES_PER_LANE: Final = 3
# The most bytes of footers that are scanned together.
_BYTES: Final = 8 << 20
# The first lane of a round, as a quantile of the lengths; the next one after a round that no other
# footer passed.
_FIRST: Final = (0.5, 0.25, 0.75, 0.1, 0.9)

_IDS = field_ids(FileMetaData)
_VERSION, _NUM_ROWS = _IDS["version"], _IDS["num_rows"]
_ENCRYPTION = _IDS["encryption_algorithm"]
_row_groups = over_lanes(
    *cast("tuple[FunctionType, ...]", (*footer_kernel.HELPERS, footer_kernel.row_groups))
)
_skip = over_lanes(cast("FunctionType", kernel_wire.skip))


def scan_many(
    footers: Sequence[bytes],
    bases: Sequence[int],
    alone: CompiledKernels[FooterKernels] | None = None,
) -> list[FooterArrays | None]:
    """``FooterArrays.scan`` of each footer, which lies at its base; ``None`` for those that must be
    scanned alone: unusual, long or damaged ones, and all that ``alone`` scans in less time."""
    found: list[FooterArrays | None] = [None] * len(footers)
    for batch in _batches(footers):
        # Footers of one structure have about the same length.
        rest = sorted(batch, key=lambda at: len(footers[at]))
        places = list(_FIRST)
        while len(rest) >= FEW and places:
            first = rest.pop(int(places[0] * len(rest)))
            size = len(footers[first])
            few = len(rest) * _BYTES_PER_LANE < size
            if few and alone is not None and alone.for_work(_AS_PLAIN * size) is not None:
                break
            lanes = [first, *rest]
            made = _scan_alike([footers[at] for at in lanes], [bases[at] for at in lanes])
            for at, each in zip(lanes, made, strict=True):
                found[at] = each
            left = [at for at in rest if found[at] is None]
            if len(left) == len(rest):
                places.pop(0)
            rest = left
    return found


def _batches(footers: Sequence[bytes]) -> Iterator[list[int]]:
    held: list[int] = []
    size = 0
    for at, footer in enumerate(footers):
        if not footer or len(footer) > _LONGEST:
            continue
        if size + len(footer) > _BYTES:
            yield held
            held, size = [], 0
        held.append(at)
        size += len(footer)
    yield held


@dataclass(frozen=True, slots=True, eq=False)
class _Fields:
    """What one pass over all lanes has found; ``fields`` as in ``Scanned``, with arrays."""

    fields: dict[int, tuple[int, I64Array, I64Array]]
    end: I64Array
    groups: list[Any]
    wide: list[Any]
    narrow: list[Any]


def _scan_alike(footers: Sequence[bytes], bases: Sequence[int]) -> list[FooterArrays | None]:
    """The footers that have the structure of the first, and ``None`` for the others."""
    made: list[FooterArrays | None] = [None] * len(footers)
    try:
        first = made[0] = FooterArrays.scan(footers[0], bases[0])
    except FormatError:
        return made
    if _ENCRYPTION in first.scanned.fields:
        return made
    lengths = np.fromiter(map(len, footers), np.int64, len(footers))
    starts = np.cumsum(lengths) - lengths
    run = Round(np.frombuffer(b"".join(footers), np.uint8), starts)
    try:
        found = _walk(run, Lanes(run, lengths), first, footers)
    except OutError:
        return made
    keep = np.flatnonzero(run.alive)
    whole = _together(found, keep, first)
    count = first.num_row_groups
    rows = whole.group("num_rows").reshape(len(keep), count)
    row_starts = np.zeros((len(keep), count + 1), np.int64)
    np.cumsum(rows, axis=1, out=row_starts[:, 1:])
    possible = (rows.astype(np.float64).sum(axis=1) < 2.0**61).tolist()
    ends = found.end[keep].tolist()
    places = {
        id: (kind, a[keep].tolist(), b[keep].tolist()) for id, (kind, a, b) in found.fields.items()
    }
    cells, schema = count * first.num_leaves, first.schema
    for lane, at in enumerate(keep.tolist()):
        if not possible[lane]:
            continue
        scanned = Scanned(
            end=ends[lane],
            leaves=first.num_leaves,
            fields={id: (kind, a[lane], b[lane]) for id, (kind, a, b) in places.items()},
            groups=whole.scanned.groups[lane * count : (lane + 1) * count],
            wide=whole.scanned.wide[:, lane * cells : (lane + 1) * cells],
            narrow=whole.scanned.narrow[:, lane * cells : (lane + 1) * cells],
            types=first.scanned.types,
        )
        one = made[at] = FooterArrays(
            data=footers[at], base=bases[at], scanned=scanned, part=FooterPart(whole, lane * count)
        )
        one.__dict__.update(schema=schema, row_starts=row_starts[lane])
    return made


def _walk(run: Round, end: Lanes, first: FooterArrays, footers: Sequence[bytes]) -> _Fields:
    """Scans ``FileMetaData`` of all lanes, field by field; a lane that fails a check drops out."""
    count, leaves = first.num_row_groups, first.num_leaves
    chunks = count * leaves
    stack = [0] * kernel_wire.STACK
    fields: dict[int, tuple[int, I64Array, I64Array]] = {}
    groups = [0] * (count * GROUP_SLOTS)
    wide, narrow = [0] * (chunks * WIDE_SLOTS), [0] * (chunks * NARROW_SLOTS)
    at, previous = Lanes(run, np.zeros(len(footers), np.int64)), 0
    while True:
        kind, previous, at = field(run, at, end, previous)
        if not kind:
            break
        start = at.values
        if kind == LIST and previous == FILE_SCHEMA:
            schema = first.schema_bytes
            places = zip(footers, start.tolist(), strict=True)
            run.keep(np.array([data.startswith(schema, at) for data, at in places], np.bool_))
            at = at + len(schema)
        elif kind == LIST and previous == FILE_ROW_GROUPS:
            _, size, at = items(run, at, end)
            if FILE_SCHEMA not in fields or size != count:
                raise OutError
            types = first.scanned.types.tolist()
            at = _row_groups(run, at, end, (count, leaves), types, groups, wide, narrow, stack)
        elif (kind, previous) in ((I32, _VERSION), (I64, _NUM_ROWS)):
            value, at = zigzag(run, at, end)
            known = np.broadcast_to(values_of(value), len(footers))
            run.keep((known >= 0) & ((previous == _NUM_ROWS) | (known < 1 << 31)))
        else:
            at = _skip(run, at, end, kind, stack)
        if at < 0:
            raise OutError
        fields[previous] = kind, start, at.values
    return _Fields(fields, at.values, groups, wide, narrow)


def _together(found: _Fields, keep: I64Array, first: FooterArrays) -> FooterArrays:
    """The row groups of the lanes ``keep``, one footer after another, as one footer without
    bytes."""
    count, leaves = first.num_row_groups, first.num_leaves

    def filled(values: list[Any], dtype: Any) -> NDArray[Any]:
        out = np.zeros((len(values), len(keep)), dtype)
        for row, value in zip(out, values, strict=True):
            if isinstance(value, Lanes):
                row[:] = value.values[keep]
            elif value:
                row[:] = value
        return out

    cells = (len(keep), count * leaves)
    groups = filled(found.groups, np.int64).reshape(count, GROUP_SLOTS, len(keep))
    wide = filled(found.wide, np.int64).reshape(WIDE_SLOTS, -1, len(keep))
    narrow = filled(found.narrow, np.int32).reshape(NARROW_SLOTS, -1, len(keep))
    made = FooterArrays(
        data=b"",
        base=0,
        scanned=Scanned(
            end=0,
            leaves=leaves,
            fields={},
            groups=groups.transpose(2, 0, 1).reshape(-1, GROUP_SLOTS),
            wide=wide.transpose(0, 2, 1).reshape(WIDE_SLOTS, cells[0] * cells[1]),
            narrow=narrow.transpose(0, 2, 1).reshape(NARROW_SLOTS, cells[0] * cells[1]),
            types=first.scanned.types,
        ),
    )
    made.__dict__["schema"] = first.schema
    return made
