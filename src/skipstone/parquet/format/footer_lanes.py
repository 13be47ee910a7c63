"""Scans many footers at once: the kernel of one footer, over arrays with a lane for each footer.

The files of one writer have footers of one structure: the same fields in the same order, the same
schema byte for byte; values and lengths differ. So the functions of ``footer_kernel`` run once for
all of them. A place and a value are arrays (``_Lanes``), and the four functions that read them have
twins here. Where the code branches, all lanes go the way of the first, which was scanned by itself
before. A lane that would go another way is out from there on: its footer is scanned again with
another first lane, or alone. So a footer that is damaged or unusual never gets here, and the result
is the same as that of ``FooterArrays.scan``.

Time and memory are linear in the bytes of all footers: a round ends where few lanes are left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import add, and_, eq, ge, gt, le, lshift, lt, mul, ne, or_, rshift, sub
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone.errors import FormatError
from skipstone.parquet.thrift import kernel_wire
from skipstone.parquet.thrift.compact import I32, I64, LIST
from skipstone.parquet.thrift.structs import field_ids

from . import footer_kernel
from .footer_arrays import FooterArrays, Part
from .footer_layout import (
    FILE_ROW_GROUPS,
    FILE_SCHEMA,
    GROUP_SLOTS,
    NARROW_SLOTS,
    WIDE_SLOTS,
)
from .footer_scan import Scanned
from .metadata import FileMetaData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    I64Array = NDArray[np.int64]


#: fewer footers of one structure are faster one by one
FEW: Final = 12
# A longer footer takes as long as many short ones, and is scanned alone.
_LONGEST: Final = 64 << 10
# Footers of so many bytes are scanned together.
_BYTES: Final = 8 << 20
# Lanes that must be left of those that began.
_LEFT: Final = 1 / 16
# Which footer by its length is the first lane, after rounds without a second one.
_FIRST: Final = (0.5, 0.25, 0.75, 0.1, 0.9)

_IDS = field_ids(FileMetaData)
_VERSION, _NUM_ROWS = _IDS["version"], _IDS["num_rows"]
_ENCRYPTION = _IDS["encryption_algorithm"]


class _OutError(Exception):
    """Too few lanes are left."""


@dataclass(slots=True, eq=False)
class _Round:
    """The bytes of all lanes, and which lanes are still in; the first is scanned already."""

    buffer: NDArray[np.uint8]
    starts: I64Array
    alive: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.alive = np.ones(len(self.starts), np.bool_)

    def keep(self, flags: NDArray[np.bool_]) -> None:
        self.alive &= flags
        if np.count_nonzero(self.alive) < max(FEW, _LEFT * len(self.alive)):
            raise _OutError

    def bytes_at(self, place: I64Array) -> NDArray[np.uint8]:
        # Places of lanes that are out may lie anywhere.
        return self.buffer.take(self.starts + place, mode="clip")

    def common(self, values: NDArray[Any]) -> int:
        """The value of the first lane; the others are out."""
        first = values[0]
        same = values == first
        if not same.all():
            self.keep(same)
        return int(first)

    def __getitem__(self, at: _Lanes) -> int:
        return self.common(self.bytes_at(at.values))


class _Lanes:
    """An integer of each lane. A comparison is that of the first lane; the others are out."""

    __slots__ = ("run", "values")

    def __init__(self, run: _Round, values: I64Array) -> None:
        self.run, self.values = run, values

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self.run.common(self.values != 0))


def _values(other: Any) -> Any:
    return other.values if isinstance(other, _Lanes) else other


def _arithmetic(operator: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    def forward(self: _Lanes, other: Any) -> _Lanes:
        return _Lanes(self.run, operator(self.values, _values(other)))

    def reflected(self: _Lanes, other: Any) -> _Lanes:
        return _Lanes(self.run, operator(other, self.values))

    return forward, reflected


def _comparison(operator: Callable[[Any, Any], Any]) -> Any:
    def compare(self: _Lanes, other: Any) -> bool:
        return bool(self.run.common(operator(self.values, _values(other))))

    return compare


for _name, _operator in {
    "add": add, "sub": sub, "mul": mul, "and": and_, "or": or_, "lshift": lshift, "rshift": rshift,
}.items():  # fmt: skip
    _forward, _reflected = _arithmetic(_operator)
    setattr(_Lanes, f"__{_name}__", _forward)
    setattr(_Lanes, f"__r{_name}__", _reflected)
for _operator in (eq, ne, lt, le, gt, ge):
    setattr(_Lanes, f"__{_operator.__name__}__", _comparison(_operator))


# -- the twins of kernel_wire ----------------------------------------------------------------------


def _varint(data: _Round, at: _Lanes, end: _Lanes, longest: int) -> tuple[Any, I64Array]:
    """Unsigned values of at most ``longest`` bytes, uint64, and the places after them."""
    place = at.values
    byte = data.bytes_at(place)
    value = (byte & 0x7F).astype(np.uint64)
    more = byte >= 0x80
    after = place + 1
    for shift in range(7, 7 * longest, 7):
        if not more.any():
            break
        byte = np.where(more, data.bytes_at(after), 0)
        value |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after = after + more
        if shift == 63:
            data.keep(byte <= 1)
        more = byte >= 0x80
    sound = (after <= end.values) & ~more
    if not sound.all():
        data.keep(sound)
    return value, after


def _uniform(data: _Round, values: I64Array) -> Any:
    """A plain integer where all lanes have it: the code that follows is faster then."""
    first = values[0]
    same = values == first
    if same.all() or (same | ~data.alive).all():
        return int(first)
    return _Lanes(data, values)


def zigzag(data: _Round, at: _Lanes, end: _Lanes) -> Any:
    raw, after = _varint(data, at, end, 10)
    values = (raw >> np.uint64(1)).astype(np.int64) ^ -((raw & np.uint64(1)).astype(np.int64))
    return _uniform(data, values), _Lanes(data, after)


def count(data: _Round, at: _Lanes, end: _Lanes) -> Any:
    # A length is less than that of a footer, so longer forms of it are left to the other way.
    raw, after = _varint(data, at, end, 5)
    values = raw.astype(np.int64)
    sound = values <= end.values - after
    if not sound.all():
        data.keep(sound)
        values[~sound] = 0
    return _uniform(data, values), _Lanes(data, after)


def field_(data: _Round, at: Any, end: _Lanes, previous: int) -> Any:
    sound = at.values < end.values
    if not sound.all():
        data.keep(sound)
    head = data[at]
    at = at + 1
    kind, delta = head & 0x0F, head >> 4
    if kind == 0:
        if head:
            raise _OutError
        return 0, 0, at
    if delta:
        return kind, previous + delta, at
    id, at = zigzag(data, at, end)
    return kind, id if isinstance(id, int) else data.common(id.values), at


def items(data: _Round, at: Any, end: _Lanes) -> Any:
    sound = at.values < end.values
    if not sound.all():
        data.keep(sound)
    head = data[at]
    at = at + 1
    size: Any = head >> 4
    if size == 15:
        size, at = count(data, at, end)
        size = size if isinstance(size, int) else data.common(size.values)
    return head & 0x0F, size, at


# The functions of the kernel, which call the twins.
_SPACE: dict[str, Any] = {**vars(kernel_wire), **vars(footer_kernel)}
for _each in (kernel_wire.flat, *footer_kernel.HELPERS):
    _SPACE[_each.__name__] = FunctionType(_each.__code__, _SPACE, _each.__name__)
_SPACE.update(zigzag=zigzag, count=count, field=field_, items=items)


# -- footers ---------------------------------------------------------------------------------------


def scan_many(footers: Sequence[bytes], bases: Sequence[int]) -> list[FooterArrays | None]:
    """As ``FooterArrays.scan`` of each, which lies at its base; ``None`` for those that it must be
    asked for: what is unusual, long, or wrong."""
    found: list[FooterArrays | None] = [None] * len(footers)
    for batch in _batches(footers):
        # Footers of one structure have about the same length.
        rest = sorted(batch, key=lambda at: len(footers[at]))
        places = list(_FIRST)
        while len(rest) >= FEW and places:
            first = rest.pop(int(places[0] * len(rest)))
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
    run = _Round(np.frombuffer(b"".join(footers), np.uint8), starts)
    try:
        found = _walk(run, _Lanes(run, lengths), first, footers)
    except _OutError:
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
            data=footers[at], base=bases[at], scanned=scanned, part=Part(whole, lane * count)
        )
        one.__dict__.update(schema=schema, row_starts=row_starts[lane])
    return made


def _walk(run: _Round, end: _Lanes, first: FooterArrays, footers: Sequence[bytes]) -> _Fields:
    """``FileMetaData`` of all lanes, field by field; lanes in which a check fails are out."""
    count, leaves = first.num_row_groups, first.num_leaves
    chunks = count * leaves
    stack = [0] * kernel_wire.STACK
    fields: dict[int, tuple[int, I64Array, I64Array]] = {}
    groups = [0] * (count * GROUP_SLOTS)
    wide, narrow = [0] * (chunks * WIDE_SLOTS), [0] * (chunks * NARROW_SLOTS)
    at, previous = _Lanes(run, np.zeros(len(footers), np.int64)), 0
    while True:
        kind, previous, at = field_(run, at, end, previous)
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
                raise _OutError
            types = first.scanned.types.tolist()
            at = _SPACE["row_groups"](
                run, at, end, (count, leaves), types, groups, wide, narrow, stack
            )
        elif (kind, previous) in ((I32, _VERSION), (I64, _NUM_ROWS)):
            value, at = zigzag(run, at, end)
            known = np.broadcast_to(_values(value), len(footers))
            run.keep((known >= 0) & ((previous == _NUM_ROWS) | (known < 1 << 31)))
        else:
            at = _SPACE["skip"](run, at, end, kind, stack)
        if at < 0:
            raise _OutError
        fields[previous] = kind, start, at.values
    return _Fields(fields, at.values, groups, wide, narrow)


def _together(found: _Fields, keep: I64Array, first: FooterArrays) -> FooterArrays:
    """The row groups of the lanes ``keep``, one footer after another, as one footer without
    bytes."""
    count, leaves = first.num_row_groups, first.num_leaves

    def filled(values: list[Any], dtype: Any) -> NDArray[Any]:
        out = np.zeros((len(values), len(keep)), dtype)
        for row, value in zip(out, values, strict=True):
            if isinstance(value, _Lanes):
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
