"""Runs functions over ``kernel_wire`` for many inputs of one structure at once: a lane for each.

Places and values are arrays (``Lanes``), and the four functions that read them have counterparts
here. Where the code branches, all lanes follow the first. A lane that would take another branch, or
fails a check, drops out: it is read again with another first lane, or alone. The lanes that remain
at the end have the same results as if each were read alone.

Time and memory are linear in the bytes of all lanes: a round ends when few lanes are left.
"""

from __future__ import annotations

import dataclasses
from operator import add, and_, eq, ge, gt, le, lshift, lt, mul, ne, or_, rshift, sub
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from skipstone._dataclasses import dataclass

from . import kernel_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    I64Array = NDArray[np.int64]


#: fewer lanes are faster one by one
FEW: Final = 12
# The share of lanes that must remain.
_LEFT: Final = 1 / 16


class OutError(Exception):
    """Too few lanes are left."""


@dataclass(slots=True, eq=False)
class Round:
    """The bytes of all lanes, and which lanes remain. The first lane was scanned alone before."""

    buffer: NDArray[np.uint8]
    starts: I64Array
    alive: NDArray[np.bool_] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.alive = np.ones(len(self.starts), np.bool_)

    def keep(self, flags: NDArray[np.bool_]) -> None:
        self.alive &= flags
        if np.count_nonzero(self.alive) < max(FEW, _LEFT * len(self.alive)):
            raise OutError

    def bytes_at(self, place: I64Array) -> NDArray[np.uint8]:
        # Places of lanes that dropped out may lie outside the buffer.
        return self.buffer.take(self.starts + place, mode="clip")

    def common(self, values: NDArray[Any]) -> int:
        """The value of the first lane; lanes with another value drop out."""
        first = values[0]
        same = values == first
        if not same.all():
            self.keep(same)
        return int(first)

    def __getitem__(self, at: Lanes) -> int:
        return self.common(self.bytes_at(at.values))


class Lanes:
    """An integer of each lane. A comparison has the result of the first lane; lanes with another
    result drop out."""

    __slots__ = ("run", "values")

    def __init__(self, run: Round, values: I64Array) -> None:
        self.run, self.values = run, values

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self.run.common(self.values != 0))


def values_of(other: Any) -> Any:
    return other.values if isinstance(other, Lanes) else other


def _arithmetic(operator: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    def forward(self: Lanes, other: Any) -> Lanes:
        return Lanes(self.run, operator(self.values, values_of(other)))

    def reflected(self: Lanes, other: Any) -> Lanes:
        return Lanes(self.run, operator(other, self.values))

    return forward, reflected


def _comparison(operator: Callable[[Any, Any], Any]) -> Any:
    def compare(self: Lanes, other: Any) -> bool:
        return bool(self.run.common(operator(self.values, values_of(other))))

    return compare


for _name, _operator in {
    "add": add, "sub": sub, "mul": mul, "and": and_, "or": or_, "lshift": lshift, "rshift": rshift,
}.items():  # fmt: skip
    _forward, _reflected = _arithmetic(_operator)
    setattr(Lanes, f"__{_name}__", _forward)
    setattr(Lanes, f"__r{_name}__", _reflected)
for _operator in (eq, ne, lt, le, gt, ge):
    setattr(Lanes, f"__{_operator.__name__}__", _comparison(_operator))


# -- the twins of kernel_wire ----------------------------------------------------------------------


def _varint(data: Round, at: Lanes, end: Lanes, longest: int) -> tuple[Any, I64Array]:
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


def _uniform(data: Round, values: I64Array) -> Any:
    """A plain integer if all lanes have the same value, which makes further steps faster."""
    first = values[0]
    same = values == first
    if same.all() or (same | ~data.alive).all():
        return int(first)
    return Lanes(data, values)


def zigzag(data: Round, at: Lanes, end: Lanes) -> Any:
    raw, after = _varint(data, at, end, 10)
    values = (raw >> np.uint64(1)).astype(np.int64) ^ -((raw & np.uint64(1)).astype(np.int64))
    return _uniform(data, values), Lanes(data, after)


def count(data: Round, at: Lanes, end: Lanes) -> Any:
    # A length is less than that of a footer, so longer forms are left to the scan of one footer.
    raw, after = _varint(data, at, end, 5)
    values = raw.astype(np.int64)
    sound = values <= end.values - after
    if not sound.all():
        data.keep(sound)
        values[~sound] = 0
    return _uniform(data, values), Lanes(data, after)


def field(data: Round, at: Any, end: Lanes, previous: int) -> Any:
    sound = at.values < end.values
    if not sound.all():
        data.keep(sound)
    head = data[at]
    at = at + 1
    kind, delta = head & 0x0F, head >> 4
    if kind == 0:
        if head:
            raise OutError
        return 0, 0, at
    if delta:
        return kind, previous + delta, at
    id, at = zigzag(data, at, end)
    return kind, id if isinstance(id, int) else data.common(id.values), at


def items(data: Round, at: Any, end: Lanes) -> Any:
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


def over_lanes(*functions: FunctionType) -> Callable[..., Any]:
    """The last of ``functions``, which calls the other ones and the counterparts here."""
    space: dict[str, Any] = dict(vars(kernel_wire))
    for each in functions:
        space.update(each.__globals__)
    for each in (*_WALKS, *functions):
        space[each.__name__] = FunctionType(each.__code__, space, each.__name__)
    found = space[functions[-1].__name__]
    space.update(zigzag=zigzag, count=count, field=field, items=items)
    return cast("Callable[..., Any]", found)


_WALKS: Final = cast("tuple[FunctionType, ...]", (kernel_wire.flat, kernel_wire.skip))
