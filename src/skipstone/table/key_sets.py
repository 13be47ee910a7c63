"""``keys=``: values that columns are looked up among, from arrays, tables and files.

``{"user_id": array}`` finds the rows whose ``user_id`` is one of the array's values, with the
meaning of ``user_id IN (…)``; several columns must all be found, each among its own values. An
array is pyarrow's, NumPy's, a list, or any object with the Arrow PyCapsule protocol (a series of
polars or pandas). In place of a mapping a table or a DataFrame in memory gives a set for each of
its columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from skipstone.errors import PredicateError
from skipstone.predicate.tree import And, ColumnRef, Const, Expr, Membership
from skipstone.predicate.types import column_path

if TYPE_CHECKING:
    KeySets: TypeAlias = "Mapping[str, object] | object"


def keyed(expr: Expr, keys: KeySets | None) -> Expr:
    """``expr`` and the membership of columns in ``keys``."""
    if keys is None:
        return expr
    sets = [
        Membership(ColumnRef(column_path(name)), key_array(values, name))
        for name, values in _by_column(keys).items()
    ]
    if not sets:
        raise PredicateError("keys names no column", hint='keys={"user_id": array}')
    parts = (*sets,) if expr == Const(True) else (expr, *sets)
    return parts[0] if len(parts) == 1 else And(parts)


def _by_column(keys: KeySets) -> Mapping[str, object]:
    if isinstance(keys, Mapping):
        return keys
    if not isinstance(keys, pa.Table | pa.RecordBatch):
        if not hasattr(keys, "__arrow_c_stream__"):
            raise TypeError(
                f"keys is a mapping from columns to arrays, or a table, not {_name(keys)}"
            )
        try:
            keys = pa.table(keys)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"keys is one series, without the name of a column ({error}): "
                'write keys={"user_id": series}'
            ) from None
    return dict(zip(keys.schema.names, keys.columns, strict=True))


def key_array(values: Any, column: str) -> pa.Array:
    """``values`` as one Arrow array; ``PredicateError`` where they are not values of one type."""
    try:
        found = _array(values)
        if isinstance(found, pa.ChunkedArray):
            type = found.type
            if found.num_chunks > 1 and (pa.types.is_string(type) or pa.types.is_binary(type)):
                # One array of 32-bit offsets holds no more than 2 GiB.
                wide = pa.large_string() if pa.types.is_string(type) else pa.large_binary()
                found = found.cast(wide)
            found = found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)
    except (pa.ArrowException, OverflowError) as error:
        raise PredicateError(
            f"keys of {column} are not values of one type: {str(error).splitlines()[0]}",
            hint="give an array of one type: pyarrow.array(keys, type)",
        ) from None
    return found


def _array(values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"keys of a column are an array or a list, not {_name(values)}")
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "__array__"):
        return pa.array(values)
    return pa.array(list(values))


def _name(value: object) -> str:
    return type(value).__name__
