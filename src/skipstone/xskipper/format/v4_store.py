"""Converts facts to a version 4 store.

The real Xskipper's interpretation of a column decides which values are allowed in it:

* It takes a **null** in ``minmax`` or ``valuelist`` for "no value at all in this file" and skips
  the file. So a null is written only where that is known; a missing fact is an error here.
  A Bloom filter that was not built is written as one that may contain everything.
* It uses one part's schema for all parts. So all parts are slices of one table with one schema.
* It compares value lists of floats as sets, where -0.0 and 0.0 differ, unlike Spark's ``=``. A list
  with either zero gets both.
* It supports one column per index, of the types that it can build itself (``_TYPES``).

One error cannot be avoided by the written values: Xskipper skips files wrongly for ``<>`` on a
``minmax`` column.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._dataclasses import dataclass
from skipstone.errors import UnsupportedError

from ..._arrays import distinct
from .java_bloom import BloomFilterMetaData
from .naming import column_name, virtual_name
from .rows import nulls
from .schema import (
    BLOOM_UDT,
    PARAMS,
    IndexColumn,
    StoreSchema,
    VirtualColumn,
    arrow_type,
    spark_type,
)
from .sketch import SketchFilter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


Mask: TypeAlias = npt.NDArray[np.bool_]

_INTEGERS = ("byte", "short", "integer", "long")
_PLAIN = (*_INTEGERS, "float", "double", "string", "boolean", "date", "timestamp", "decimal")
_TYPES = {
    "minmax": _PLAIN,
    "valuelist": (*_PLAIN, "binary"),
    "bloomfilter": (*_INTEGERS, "string"),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MinMaxFacts:
    """Bounds of ``column`` per row; ``empty`` is True where the file has no value in it at all."""

    column: str
    minimum: pa.Array
    maximum: pa.Array
    empty: Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValueListFacts:
    """All distinct non-null values of ``column`` per row, as a list."""

    column: str
    values: pa.Array
    empty: Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BloomFacts:
    """Serialised filters of ``column`` per row (``BloomFilterMetaData.of(...).to_bytes()``), null
    where none was built. ``type``: the column's Arrow type; ``fpp``, ``ndv``: the parameters."""

    column: str
    blobs: pa.Array
    type: pa.DataType
    fpp: float
    ndv: int


Facts: TypeAlias = MinMaxFacts | ValueListFacts | BloomFacts


def supports(kind: str, arrow: pa.DataType) -> str | None:
    """Why the real Xskipper could not use ``kind`` over this type; ``None`` if it can."""
    if kind not in _TYPES:
        return f"Xskipper has no index kind {kind!r}"
    try:
        name = spark_type(arrow).partition("(")[0]
    except UnsupportedError as error:
        return error.message
    return None if name in _TYPES[kind] else f"Xskipper cannot build {kind} over {name}"


def java_double(value: float) -> str:
    """``value`` as Java's ``Double.toString`` prints it: ``0.01``, ``1.0E-4``, ``1.0E7``."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    mantissa, _, exponent = f"{value!r}".partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    point = len(whole) + int(exponent or 0)
    digits = whole + fraction
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    if not digits:
        return sign + "0.0"
    if -3 < point <= 7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def bloom_params(fpp: float, ndv: int) -> tuple[tuple[str, str], ...]:
    """The parameters of a ``bloomfilter`` index as version 4 writes them."""
    prefix = f"{PARAMS}index.bloom."
    return ((f"{prefix}fpp", java_double(fpp)), (f"{prefix}ndv", str(ndv)))


def published(
    *,
    table_identifier: str,
    obj_names: pa.Array,
    facts: Sequence[Facts],
    virtual: Mapping[str, pa.Array] | None = None,
) -> tuple[pa.Table, StoreSchema]:
    """The table and the schema of a whole version 4 store, for ``part.slices`` and ``to_bytes``.

    ``obj_names``: ``naming.obj_name`` per data file, unique, no nulls; every other array has the
    same length. ``virtual``: partition column -> values. ``UnsupportedError`` for values that the
    original cannot store, or would skip wrongly: see the module.
    """
    if obj_names.null_count or pc.count_distinct(obj_names).as_py() != len(obj_names):
        raise ValueError("obj_names must be unique and not null")
    partitions: list[VirtualColumn] = []
    indexes: list[IndexColumn] = []
    columns: list[pa.Array] = [obj_names.cast(pa.string())]
    for name, values in (virtual or {}).items():
        spark = spark_type(values.type)
        partitions.append(VirtualColumn(name=virtual_name(name), type=json.dumps(spark)))
        columns.append(values.cast(arrow_type(spark)))
    for fact in facts:
        index, column = _column(fact)
        indexes.append(index)
        columns.append(column)
    names = [column.name for column in partitions] + [index.name for index in indexes]
    if len(set(names)) != len(names):
        raise UnsupportedError(
            f"two columns of the store would have one name, among {', '.join(sorted(names))}",
            hint="Xskipper's names ignore case: leave one of the indexes out",
        )
    schema = StoreSchema.build(
        table_identifier=table_identifier, virtual_columns=partitions, indexes=indexes
    )
    names = [entry.name for entry in schema.fields]
    for name, column in zip(names, columns, strict=True):
        if len(column) != len(obj_names):
            raise ValueError(f"{name} has {len(column)} rows, obj_name {len(obj_names)}")
    return pa.table(columns, names=names), schema


def _column(fact: Facts) -> tuple[IndexColumn, pa.Array]:
    params: tuple[tuple[str, str], ...] = ()
    if isinstance(fact, MinMaxFacts):
        kind, value = "minmax", fact.minimum.type
    elif isinstance(fact, ValueListFacts):
        kind, value = "valuelist", fact.values.type.value_type
    else:
        kind, value, params = "bloomfilter", fact.type, bloom_params(fact.fpp, fact.ndv)
    reason = supports(kind, value)
    if reason is not None:
        raise UnsupportedError(f"column {fact.column}: {reason}")
    spark = spark_type(value)
    shape: object
    if isinstance(fact, MinMaxFacts):
        column, shape = (
            _minmax(fact, arrow_type(spark)),
            {
                "type": "struct",
                "fields": [
                    {"name": end, "type": spark, "nullable": True, "metadata": {}}
                    for end in ("min", "max")
                ],
            },
        )
    elif isinstance(fact, ValueListFacts):
        column, shape = (
            _valuelist(fact, arrow_type(spark)),
            {
                "type": "array",
                "elementType": spark,
                "containsNull": True,
            },
        )
    else:
        nothing_known = BloomFilterMetaData.of(SketchFilter.saturated()).to_bytes()
        column = pc.fill_null(fact.blobs.cast(pa.large_binary()), nothing_known)
        shape = {"type": "udt", "class": BLOOM_UDT, "pyClass": None, "sqlType": "binary"}
    lower = fact.column.lower()
    index = IndexColumn(
        name=column_name(kind, [lower]),
        kind=kind,
        columns=(lower,),
        params=params,
        type=json.dumps(shape, separators=(",", ":")),
    )
    return index, column


def _refuse_unknown(column: str, missing: Mask) -> None:
    if missing.any():
        raise UnsupportedError(
            f"column {column}: {int(missing.sum())} of {len(missing)} files have no fact, and "
            "Xskipper would skip them",
            hint="publish without these files or this index",
        )


def _minmax(fact: MinMaxFacts, value: pa.DataType) -> pa.Array:
    low, high = fact.minimum.cast(value), fact.maximum.cast(value)
    _refuse_unknown(fact.column, (nulls(low) | nulls(high)) & ~fact.empty)
    # The bounds of an empty file are null whatever the caller gave; the struct itself is not.
    hide = pa.array(fact.empty)
    ends = [pc.if_else(hide, pa.scalar(None, value), end) for end in (low, high)]
    return pa.StructArray.from_arrays(ends, fields=[pa.field("min", value), pa.field("max", value)])


def _valuelist(fact: ValueListFacts, value: pa.DataType) -> pa.Array:
    _refuse_unknown(fact.column, nulls(fact.values) & ~fact.empty)
    lists = fact.values
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    owner = np.repeat(np.arange(len(lists)), lengths)
    flat = pc.list_flatten(lists).cast(value)
    if flat.null_count:
        keep = flat.is_valid()
        owner = owner[keep.to_numpy(zero_copy_only=False)]
        flat = flat.filter(keep)
    if pa.types.is_floating(value):
        owner, flat = _both_zeros(owner, flat)
    offsets = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=len(lists)), out=offsets[1:])
    if offsets[-1] >= 1 << 31:
        raise UnsupportedError(f"column {fact.column}: value lists of 2^31 values or more in all")
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), flat, type=pa.list_(pa.field("element", value))
    )


def _both_zeros(
    owner: npt.NDArray[np.int64], flat: pa.Array
) -> tuple[npt.NDArray[np.int64], pa.Array]:
    values = flat.to_numpy(zero_copy_only=False)
    zero = values == 0.0
    rows = distinct(owner[zero])
    pair = np.tile(np.array([-0.0, 0.0], dtype=values.dtype), len(rows))
    owner = np.concatenate([owner[~zero], np.repeat(rows, 2)])
    order = np.argsort(owner, kind="stable")
    return owner[order], pa.array(np.concatenate([values[~zero], pair])[order], flat.type)
