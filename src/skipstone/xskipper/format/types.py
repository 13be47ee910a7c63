"""Spark's type JSON and the Arrow types that an Xskipper store uses for it.

    Spark JSON                Arrow                    Parquet in a store
    "byte" "short"            int8, int16              INT32 (INT_8, INT_16)
    "integer" "long"          int32, int64             INT32, INT64
    "float" "double"          float32, float64         FLOAT, DOUBLE
    "boolean"                 bool                     BOOLEAN
    "string" "binary"         string, binary           BYTE_ARRAY (UTF8, none)
    "date"                    date32                   INT32 (DATE)
    "timestamp"               timestamp(us, UTC)       INT96
    "decimal(p,s)"            decimal128(p, s)         INT32 p <= 9, INT64 p <= 18, else FIXED

Other types cannot be stored: Xskipper refuses ``timestamp_ntz``, intervals,
variants, arrays, maps and structs as columns to index. A collated string (``"string collate
UTF8_LCASE"``) is refused because its order is not that of its bytes.

Source: Spark's ``DataType.json``; types seen in files written by releases of Xskipper.
"""

from __future__ import annotations

import re
from typing import TypeAlias

import pyarrow as pa

from skipstone.errors import FormatError, UnsupportedError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_ATOMIC: dict[str, pa.DataType] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    # Spark's short form of decimal(10,0).
    "decimal": pa.decimal128(10, 0),
}
_SPARK = {arrow: spark for spark, arrow in _ATOMIC.items() if spark != "decimal"}
_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,3})\s*,\s*(-?[0-9]{1,3})\s*\)")
# char(n) and varchar(n) are strings: Spark pads and checks them on write, and stores plain UTF-8.
_CHARS = re.compile(r"(?:var)?char\([0-9]{1,10}\)")


def arrow_type(spark: Json) -> pa.DataType:
    """The Arrow type of an atomic Spark type, given as parsed JSON.

    ``UnsupportedError`` for types that a store cannot hold or whose order is not known,
    ``FormatError`` for what is no type at all.
    """
    if isinstance(spark, dict) and isinstance(spark.get("type"), str):
        raise UnsupportedError(f"a column of type {spark['type']} in an Xskipper store")
    if not isinstance(spark, str):
        raise FormatError("not a Spark type", expected="its JSON", got=repr(spark)[:100])
    known = _ATOMIC.get(spark)
    if known is not None:
        return known
    if _CHARS.fullmatch(spark):
        return pa.string()
    match = _DECIMAL.fullmatch(spark)
    if match is None:
        raise UnsupportedError(f"a column of type {spark[:100]} in an Xskipper store")
    precision, scale = int(match.group(1)), int(match.group(2))
    if not (1 <= precision <= 38 and 0 <= scale <= precision):
        raise FormatError("not a decimal of Spark", expected="1 <= p <= 38, 0 <= s <= p", got=spark)
    return pa.decimal128(precision, scale)


def spark_type(arrow: pa.DataType) -> str:
    """The Spark type (its JSON is the plain string) of an Arrow column that is to be published.

    Timestamps must carry a zone (an instant). ``UnsupportedError`` for unsigned integers, local
    timestamps, nested types and the like: cast to what Spark reads the data column as.
    """
    if pa.types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_timestamp(arrow) and arrow.tz is not None and arrow.unit != "ns":
        return "timestamp"
    if pa.types.is_large_string(arrow) or arrow == pa.string_view():
        return "string"
    if pa.types.is_large_binary(arrow) or arrow == pa.binary_view():
        return "binary"
    known = _SPARK.get(arrow)
    if known is None:
        raise UnsupportedError(
            f"an Xskipper store cannot hold a column of Arrow type {arrow}",
            hint="cast it to the type that Spark reads the column as, or leave this index out",
        )
    return known
