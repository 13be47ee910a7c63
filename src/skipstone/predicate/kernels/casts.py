"""Casts as Spark does them under ANSI rules: a value that the target cannot hold fails, or is NULL
under TRY_CAST.

Fractions are cut to integers, decimals rounded half up, text is trimmed as Java trims. A text is
parsed as a whole array where it is of the usual form, and each distinct other one by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import in_ascii_case, numbers, validity
from skipstone.errors import UnsupportedError

from ..literals import unscaled_values
from ..preimage import extent
from ..typed import scalar
from ..types import Kind, kind_of, spark_name
from ..zones import DAY, SPACE, parse_date, parse_local, parse_timestamp
from .numbers import Failure
from .times import array_of, day_starts, ticks, to_instant, to_local

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..typed import Typed
    from ..zones import Zone

Cast: TypeAlias = "Callable[[pa.Array, pa.DataType, Zone | None], pa.Array]"


def cast(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    """``value``: whether the cast is TRY_CAST."""
    (array,) = values
    target, tolerant = node.type, bool(node.value)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    source, to = kind_of(array.type), kind_of(target)
    if source is to and source in (Kind.INTEGER, Kind.DECIMAL, Kind.FLOATING):
        found = _number(array, target)
    elif source is Kind.STRING:
        found = _TEXTS[to](array, target, session)
    elif to is Kind.STRING:
        found = _text(array, source, session)
    elif source in _TIMES and to in _TIMES:
        found = _time(array, source, to, session)
    else:
        found = _number(array, target)
    if not tolerant and found.null_count > array.null_count:
        bad = array.filter(pc.and_(pc.is_null(found), pc.is_valid(array)))[0].as_py()
        text = f"{bad!r} cannot be cast to {spark_name(target)}"
        raise Failure(text, "write TRY_CAST, which gives NULL for it")
    return found


_TIMES = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)


# -- numbers: null for what does not fit -----------------------------------------------------------


def _number(array: pa.Array, target: pa.DataType) -> pa.Array:
    source, to = kind_of(array.type), kind_of(target)
    if source is Kind.BOOLEAN:
        return array.cast(pa.int8()).cast(target)
    if to is Kind.BOOLEAN:
        return pc.not_equal(array, scalar(0, array.type))
    if source is Kind.DECIMAL:
        if to is Kind.FLOATING:
            return _double_of(array)
        scale = target.scale if to is Kind.DECIMAL else 0
        wide = array.cast(pa.decimal256(76, array.type.scale))
        if array.type.scale > scale:
            mode = "half_towards_infinity" if to is Kind.DECIMAL else "towards_zero"
            wide = pc.round(wide, scale, round_mode=mode)
            wide = wide.cast(pa.decimal256(76, scale))
        return _fitting(wide, target)
    if source is Kind.INTEGER:
        if to is Kind.INTEGER:
            return (
                _fitting(array, target)
                if target.bit_width < array.type.bit_width
                else array.cast(target)
            )
        if to is Kind.FLOATING:
            return pa.array(numbers(array).astype(target.to_pandas_dtype()), mask=~validity(array))
        return _fitting(array.cast(pa.decimal256(20, 0)), target)
    if to is Kind.FLOATING:
        with np.errstate(over="ignore"):
            return pa.array(numbers(array).astype(target.to_pandas_dtype()), mask=~validity(array))
    # From a float to an integer: cut towards zero, and out of range as Spark sees it.
    values = np.trunc(numbers(array).astype(np.float64))
    low, high = extent(target)
    with np.errstate(invalid="ignore"):
        fits = validity(array) & (values >= float(low)) & (values < float(high + 1))
        return pa.array(np.where(fits, values, 0).astype(target.to_pandas_dtype()), mask=~fits)


def _fitting(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Whole numbers, or decimals of the target's scale or below, as ``target``; null where one does
    not fit."""
    if pa.types.is_decimal(target):
        most = 10 ** (target.precision - target.scale + array.type.scale) - 1
        if len(str(most)) <= array.type.precision:
            limit = scalar(most, pa.decimal256(len(str(most)), array.type.scale))
            fits = pc.less_equal(pc.abs(array), limit)
            array = pc.if_else(fits, array, pa.scalar(None, array.type))
        return array.cast(target)
    type = pa.decimal256(20, 0) if pa.types.is_decimal(array.type) else array.type
    low, high = (scalar(end, type) for end in extent(target))
    fits = pc.and_(pc.greater_equal(array, low), pc.less_equal(array, high))
    return pc.if_else(fits, array, pa.scalar(None, array.type)).cast(target)


def _double_of(array: pa.Array) -> pa.Array:
    """The nearest doubles, rounded once: by division if doubles hold both parts, else as text."""
    precision, scale = array.type.precision, array.type.scale
    if precision <= 15:
        return pa.array(unscaled_values(array) / 10.0**scale, mask=~validity(array))
    return array.cast(pa.string()).cast(pa.float64())


# -- dates and timestamps --------------------------------------------------------------------------


def _time(array: pa.Array, source: Kind, to: Kind, session: Zone | None) -> pa.Array:
    found, valid = ticks(array)
    if Kind.TIMESTAMP in (source, to) and valid.any():
        assert session is not None
        if source is Kind.DATE:
            found = day_starts(session, found)
        elif source is Kind.TIMESTAMP:
            found = to_local(session, found)
        else:
            found = to_instant(session, found)
        source = to if to is not Kind.DATE else Kind.TIMESTAMP_NTZ
    if source is Kind.DATE and to is not Kind.DATE:
        found = found * DAY
    elif source is not Kind.DATE and to is Kind.DATE:
        found = found // DAY
    return array_of(found, valid, _TYPES[to])


_TYPES = {
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.TIMESTAMP_NTZ: pa.timestamp("us"),
}
_FIRST_DAY, _LAST_DAY = -719_528, 2_932_896  # of the years 0 to 9999


def _text(array: pa.Array, source: Kind, session: Zone | None) -> pa.Array:
    if source is Kind.BINARY:
        return array.view(pa.string())
    if source not in _TIMES:
        return array.cast(pa.string())
    found, valid = ticks(array)
    if source is Kind.TIMESTAMP and valid.any():
        assert session is not None
        found = to_local(session, found)
    days = found if source is Kind.DATE else found // DAY
    if np.any(valid & ((days < _FIRST_DAY + 366) | (days > _LAST_DAY))):
        raise UnsupportedError("a date of another year than 1 to 9999 is not written as text")
    if source is Kind.DATE:
        return array.cast(pa.string())
    # Arrow writes six digits of the second, Spark those that are needed.
    text = array_of(found, valid, pa.timestamp("us")).cast(pa.string())
    fraction = pc.utf8_rtrim(pc.utf8_slice_codeunits(text, 19), "0")
    fraction = pc.if_else(pc.equal(fraction, "."), "", fraction)
    return pc.binary_join_element_wise(pc.utf8_slice_codeunits(text, 0, 19), fraction, "")


# -- text: null for what is not of the type --------------------------------------------------------


def _trimmed(array: pa.Array) -> pa.Array:
    return pc.utf8_trim(array, SPACE)


def _matching(array: pa.Array, pattern: str) -> pa.Array:
    """Texts that match, null for others."""
    hit = pc.match_substring_regex(array, rf"\A(?:{pattern})\z")
    return pc.if_else(hit, array, pa.scalar(None, array.type))


def _integer(array: pa.Array, target: pa.DataType, session: Zone | None) -> pa.Array:
    text = _matching(_trimmed(array), r"[+-]?[0-9]+")
    text = pc.replace_substring_regex(text, r"^(-?)\+?0*([0-9])", r"\1\2")
    long = pc.utf8_length(text)
    text = pc.if_else(pc.less_equal(long, 20), text, pa.scalar(None, pa.string()))
    return _fitting(text.cast(pa.decimal128(20, 0)).cast(pa.decimal256(20, 0)), target)


def _double(array: pa.Array, target: pa.DataType, session: Zone | None) -> pa.Array:
    text = in_ascii_case(_trimmed(array))
    if pc.any(pc.match_substring_regex(text, r"^[+-]?0x")).as_py():
        raise UnsupportedError("hexadecimal numbers in text are not read")
    text = pc.replace_substring_regex(text, r"^\+", "")
    text = pc.replace_substring_regex(
        text, r"^(-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)[df]$", r"\1"
    )
    text = _matching(text, r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|-?inf(?:inity)?|nan")
    text = pc.replace_substring_regex(text, r"e\+", "e")
    return text.cast(pa.float64())


def _boolean(array: pa.Array, target: pa.DataType, session: Zone | None) -> pa.Array:
    text = in_ascii_case(_trimmed(array))
    yes = pc.is_in(text, pa.array(["t", "true", "y", "yes", "1"]))
    no = pc.is_in(text, pa.array(["f", "false", "n", "no", "0"]))
    return pc.if_else(pc.or_(yes, no), yes, pa.scalar(None, pa.bool_()))


def _by_word(array: pa.Array, target: pa.DataType, session: Zone | None) -> pa.Array:
    """Dates and timestamps: the usual form by Arrow, each distinct other text by ``zones.py``."""
    kind = kind_of(target)
    usual = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    if kind is not Kind.DATE:
        usual += r" [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
    plain = pc.match_substring_regex(array, rf"\A{usual}\z")
    try:
        found = pc.if_else(plain, array, pa.scalar(None, array.type)).cast(
            pa.date32() if kind is Kind.DATE else pa.timestamp("us")
        )
    except pa.ArrowInvalid:  # a day that there is not
        plain, found = (
            pc.and_(plain, False),
            pa.nulls(len(array), pa.date32() if kind is Kind.DATE else pa.timestamp("us")),
        )
    if kind is Kind.TIMESTAMP:
        found = _time(found, Kind.TIMESTAMP_NTZ, kind, session)
    other = pc.and_(pc.invert(plain), pc.is_valid(array))
    if not pc.any(other).as_py():
        return found
    coded = array.filter(other).dictionary_encode()
    words = coded.dictionary.to_pylist()
    if kind is Kind.TIMESTAMP:
        parsed = [parse_timestamp(word, session) for word in words]
    else:
        parsed = [(parse_date if kind is Kind.DATE else parse_local)(word) for word in words]
    number = pa.int32() if kind is Kind.DATE else pa.int64()
    some = pa.array(parsed, number).take(coded.indices).view(target)
    return pc.replace_with_mask(found, other, some)


def _bytes(array: pa.Array, target: pa.DataType, session: Zone | None) -> pa.Array:
    return array.view(pa.binary())


_TEXTS: dict[Kind, Cast] = {
    Kind.INTEGER: _integer,
    Kind.FLOATING: _double,
    Kind.BOOLEAN: _boolean,
    Kind.BINARY: _bytes,
    Kind.DATE: _by_word,
    Kind.TIMESTAMP: _by_word,
    Kind.TIMESTAMP_NTZ: _by_word,
}
