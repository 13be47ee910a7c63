"""Many values of one column as an array, which a leaf holds for a long list of keys.

``ValueArray`` has the values of an ``IN`` as sorted keys (``literals.py``), without an object per
value. It is also a sequence of the stored domain's values, so whatever iterates over the values of
a leaf takes it, one value at a time.

``values_in`` binds an array of any type to a column, with the meaning of a list of literals of the
array's type: the values are cast to the common type (``operands.py``), and carried back through the
column's casts (``preimage.py``). Nulls, and values that no value of the column equals, are left
out. Common casts are done on arrays, the others value by value with the functions for literals.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, arrow_bytes, distinct, numbers

from .literals import Keys, from_key, order_key, order_keys, stored, unscaled_values, wide
from .members import ascending_distinct, from_keys
from .operands import Unusable, cast_constant, decimal_for
from .preimage import exact_cast, extent
from .types import Kind, ManyValues, display, kind_of, spark_name, spark_type
from .zones import DAY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from .types import Value
    from .zones import Zone


#: up to this many values of a leaf are a tuple
FEW = 100
# The most values that may become ranges of the column's values: each is a leaf.
_MOST_RANGES = 10_000
_MOST = (1 << 63) - 1
# Up to here, each double is one integer, and each decimal with so many digits is one double.
_EXACT, _EXACT_DIGITS = 1 << 53, 15


class ValueArray(ManyValues):
    """The distinct values of a column of ``type``, ascending, in its stored domain; see the module.

    ``keys`` has no nulls. Equal arrays are equal and have one hash, as tuples.
    """

    __slots__ = ("_hash", "type")
    keys: Keys

    def __init__(self, keys: Keys, type: pa.DataType) -> None:
        self.keys, self.type, self.cache = keys, type, {}
        self._hash: int | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, at: int) -> Value: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Value, ...]: ...
    def __getitem__(self, at: int | slice) -> Value | tuple[Value, ...]:
        if not isinstance(at, slice):
            return self[at : at + 1 or None][0]
        data: Any = self.keys.data[at]
        raw = data.tolist() if isinstance(data, np.ndarray) else data.to_pylist()
        return tuple([from_key(key, self.type) for key in raw])

    def __iter__(self) -> Iterator[Value]:
        for start in range(0, len(self), 4_096):
            yield from self[start : start + 4_096]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, ValueArray) or len(self) != len(other) or self.type != other.type:
            return False
        mine, theirs = self.keys.data, other.keys.data
        if isinstance(mine, np.ndarray) or isinstance(theirs, np.ndarray):
            return bool(np.array_equal(mine, theirs))
        return bool(mine.equals(theirs))

    def __hash__(self) -> int:
        if self._hash is None:
            # A few values distinguish most lists.
            step = max(1, len(self) // 64)
            self._hash = hash((len(self), self[::step]))
        return self._hash

    def __repr__(self) -> str:
        return f"<{len(self):,} values of {self.type}>"

    def __reduce__(self) -> tuple[type[ValueArray], tuple[Keys, pa.DataType]]:
        return ValueArray, (self.keys, self.type)

    @property
    def array(self) -> pa.Array:
        """The values as an Arrow array of ``type``."""
        return from_keys(self.keys, self.type)


# -- binding ---------------------------------------------------------------------------------------


def literal_type(array: pa.Array, column: pa.DataType) -> pa.DataType | None:
    """The type that the values have as literals compared with a column; ``None`` for a type that
    has no order.

    Unsigned 64-bit integers are decimals in Spark. Compared with an integer they are bigint: those
    beyond it equal no value of the column.
    """
    if pa.types.is_null(array.type):
        return array.type
    if pa.types.is_uint64(array.type) and kind_of(column) is Kind.INTEGER:
        return pa.int64()
    type = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    return spark_type(type)


def plain(array: pa.Array) -> pa.Array:
    """``array`` without a dictionary, views or an extension type; its nulls are in its bitmap.

    ``null_count`` of a dictionary array does not count nulls of the dictionary.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if pa.types.is_binary_view(array.type) else array


def values_in(
    array: pa.Array,
    type: pa.DataType,
    common: pa.DataType,
    chain: Sequence[pa.DataType],
    session: Zone | None,
) -> ValueArray | list[Value]:
    """The values of a column that equal one of ``array``, whose values are literals of ``type``. If
    each equals a range of the column's values, and they are few: a list of values of ``common``.

    ``chain`` are the types of the column and of its casts, the last one ``common``. ``Unusable``
    where a cast is not certain.
    """
    if array.null_count:
        array = pc.drop_null(array)
    found = cast = cast_values(_literals(array, type), type, common, session)
    for source, target in reversed(list(pairwise(chain))):
        back = before_cast(found, source, target, session)
        if back is None:
            keys = ascending_distinct(order_keys(cast, common))
            if len(keys) > _MOST_RANGES:
                text = f"{len(keys):,} keys, each of which equals a range of the column's values"
                raise Unusable(text)
            return list(ValueArray(keys, common))
        found = back
    return ValueArray(ascending_distinct(order_keys(found, chain[0])), chain[0])


def as_literals(array: pa.Array) -> pa.Array:
    """The values in the canonical type that they have as literals, or unchanged if they have
    none."""
    type = literal_type(array, pa.string())
    return array if type is None or pa.types.is_null(type) else _literals(array, type)


def _literals(array: pa.Array, type: pa.DataType) -> pa.Array:
    """The values in the canonical ``type``, without those that it cannot have: they equal
    nothing."""
    array = plain(array)
    if pa.types.is_uint64(array.type) and pa.types.is_int64(type):
        values = numbers(array)
        return arrow(values[values < 1 << 63].astype(np.int64))
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        ticks = numbers(array.view(pa.int64()))
        array = array.filter(arrow(ticks % 1_000 == 0))
    if pa.types.is_decimal256(array.type):
        array = array.cast(type)
    return stored(array, type)


def cast_values(
    array: pa.Array, source: pa.DataType, target: pa.DataType, session: Zone | None
) -> pa.Array:
    """``cast_constant`` of each value of an array without nulls."""
    if source == target or not len(array):
        return array.cast(target) if source != target else array
    a, b = kind_of(source), kind_of(target)
    if a is Kind.INTEGER:
        if b is Kind.INTEGER and source.bit_width < target.bit_width:
            return array.cast(target)
        if b is Kind.FLOATING and target.bit_width == 64:
            return arrow(numbers(array).astype(np.float64))
        if b is Kind.DECIMAL:
            try:
                # Arrow refuses a decimal type with fewer digits than the integer type may have.
                wide_enough = pa.decimal128(min(19 + target.scale, 38), target.scale)
                return array.cast(wide_enough).cast(target)
            except pa.ArrowInvalid:
                pass
    if a is b is Kind.FLOATING and target.bit_width == 64:
        return arrow(numbers(array).astype(np.float64))
    if a is b is Kind.DECIMAL and exact_cast(source, target):
        return array.cast(target)
    if a is Kind.DECIMAL and b is Kind.FLOATING and source.precision <= _EXACT_DIGITS:
        # Both numbers are exact, so the division rounds once.
        unscaled = unscaled_values(array).astype(np.float64)
        return arrow(unscaled / np.float64(10**source.scale))
    if a is Kind.DATE and (b is Kind.TIMESTAMP_NTZ or (b is Kind.TIMESTAMP and _is_utc(session))):
        days = numbers(array.view(pa.int32())).astype(np.int64)
        return arrow(days * DAY).view(target)
    if {a, b} == {Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ} and _is_utc(session):
        return array.view(target)
    if a is Kind.STRING and b is Kind.BINARY:
        return array.cast(target)
    if a is Kind.STRING:
        return _from_text(array, target, session)
    return _one_by_one(array, source, target, session)


def _divided(array: pa.Array, by: int) -> NDArray[np.int64]:
    """The unscaled values that ``by`` divides, divided by it, if they fit 64 bits."""
    words = np.frombuffer(array.buffers()[1] or b"", np.int64).reshape(-1, 2)
    words = words[array.offset : array.offset + len(array)]
    short = words[:, 1] == words[:, 0] >> 63
    whole, rest = np.divmod(words[short, 0], min(by, _MOST))
    found = whole[rest == 0] if by <= _MOST else whole[words[short, 0] == 0]
    # Few are longer, and only a division shortens them.
    longer = [] if by == 1 else [(int(b) << 64) + (int(a) % 2**64) for a, b in words[~short]]
    whole_ones = [each // by for each in longer if each % by == 0]
    kept = [each for each in whole_ones if ~_MOST <= each <= _MOST]
    return np.append(found, np.array(kept, np.int64))


def _is_utc(session: Zone | None) -> bool:
    return session is not None and session.fixed == 0


_TEXTS = {Kind.INTEGER: r"^-?[0-9]{1,18}$", Kind.DATE: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}


def _from_text(array: pa.Array, target: pa.DataType, session: Zone | None) -> pa.Array:
    """Texts as another type; simple texts are cast together."""
    pattern = _TEXTS.get(kind_of(target))
    if pattern is None:
        return _one_by_one(array, pa.string(), target, session)
    plain = numbers(pc.match_substring_regex(array, pattern))
    try:
        found = array.filter(arrow(plain)).cast(target)
    except pa.ArrowInvalid:  # a date that no calendar has, or a number of another type
        return _one_by_one(array, pa.string(), target, session)
    if plain.all():
        return found
    rest = _one_by_one(array.filter(arrow(~plain)), pa.string(), target, session)
    return pa.concat_arrays([found, rest])


def _one_by_one(
    array: pa.Array, source: pa.DataType, target: pa.DataType, session: Zone | None
) -> pa.Array:
    values = ValueArray(ascending_distinct(order_keys(array, source)), source)
    cast = []
    for value in values:
        try:
            cast.append(cast_constant(value, source, target, session))
        except Unusable:
            shown = repr(value) if isinstance(value, str) else display(value, source)
            name = spark_name(target)
            raise Unusable(f"key {shown[:40]} cannot be read as {name} with certainty") from None
    return _of_domain(cast, target)


def _of_domain(values: list[Value], type: pa.DataType) -> pa.Array:
    """Values of the stored domain as an array."""
    keys: Any = [order_key(value, type) for value in values]
    valid = np.ones(len(keys), np.bool_)
    if wide(type) or kind_of(type) in (Kind.STRING, Kind.BINARY):
        return from_keys(Keys(arrow_bytes(keys), valid), type)
    return from_keys(Keys(np.array(keys, np.int64), valid), type)


def before_cast(
    array: pa.Array, source: pa.DataType, target: pa.DataType, session: Zone | None
) -> pa.Array | None:
    """The values of ``source`` whose cast to ``target`` is in an array without nulls; ``None``
    where these may be ranges, or the cast is not one of those done on arrays."""
    if source == target:
        return array
    a, b = kind_of(source), kind_of(target)
    if a is b is Kind.INTEGER:
        return _integers(numbers(array).astype(np.int64), source)
    if a is Kind.BOOLEAN and b is Kind.INTEGER:
        values = numbers(array)
        return arrow(values[(values == 0) | (values == 1)] == 1)
    if b is Kind.DECIMAL and a in (Kind.INTEGER, Kind.DECIMAL):
        digits = decimal_for(source) if a is Kind.INTEGER else source
        if (a is Kind.DECIMAL and wide(source)) or not exact_cast(digits, target):
            return None
        return _integers(_divided(array, 10 ** (target.scale - digits.scale)), source)
    if b is Kind.FLOATING and target.bit_width == 64:
        values = numbers(array)
        if a is Kind.FLOATING:
            with np.errstate(over="ignore"):
                narrow = values.astype(np.float32)
            return arrow(narrow[(narrow == values) | np.isnan(values)])
        if a is Kind.INTEGER:
            return _whole(values, source)
        if a is Kind.DECIMAL and source.precision <= _EXACT_DIGITS:
            return _near(values, source)
    if a is Kind.DATE and (b is Kind.TIMESTAMP_NTZ or (b is Kind.TIMESTAMP and _is_utc(session))):
        days, rest = np.divmod(numbers(array.view(pa.int64())), DAY)
        return _integers(days[rest == 0], pa.int32()).view(source)
    if {a, b} == {Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ} and _is_utc(session):
        return array.view(source)
    return None


def restated(values: ManyValues, local: pa.DataType) -> ValueArray | None:
    """The values of a narrower type that equal one of ``values``; ``None`` where that is not
    done on arrays, or would be ranges."""
    assert isinstance(values, ValueArray)
    found = before_cast(values.array, local, values.type, None)
    if found is None:
        return None
    return ValueArray(ascending_distinct(order_keys(found, local)), local)


def _integers(values: NDArray[np.int64], type: pa.DataType) -> pa.Array:
    """The numbers that fit an integer type, or a decimal's unscaled values."""
    low, high = extent(type)
    kept = values[(values >= low) & (values <= high)]
    return from_keys(Keys(kept, np.ones(len(kept), np.bool_)), type)


def _whole(values: NDArray[np.float64], type: pa.DataType) -> pa.Array | None:
    """The integers that equal one of some doubles."""
    inside = np.abs(values) < _EXACT
    if type.bit_width == 64 and (np.abs(values[~inside]) <= 2.0**63).any():
        return None  # a double is several integers
    kept = values[inside]
    return _integers(kept[kept == np.trunc(kept)].astype(np.int64), type)


def _near(values: NDArray[np.float64], type: pa.DataType) -> pa.Array:
    """The decimals of up to 15 digits whose double is one of ``values``: at most one for each."""
    scale = np.float64(10**type.scale)
    kept = values[np.abs(values) * scale < 10.0**_EXACT_DIGITS]
    about = np.rint(kept * scale)
    near = np.concatenate([about - 1, about, about + 1])
    found = near[near / scale == np.concatenate([kept] * 3)]
    return _integers(distinct(found.astype(np.int64)), type)


def as_leaf_values(values: ValueArray) -> ValueArray | tuple[Value, ...]:
    """The values of a leaf: a tuple where they are few."""
    return values if len(values) > FEW else tuple(values)
