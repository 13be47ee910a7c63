"""The schema of an Xskipper store: Spark's schema JSON in the Parquet footer.

Key ``org.apache.spark.sql.parquet.row.metadata`` of each part holds a Spark ``StructType``; the
description of the store is in the ``metadata`` of its fields::

    {"type": "struct", "fields": [
      {"name": "obj_name", "type": "string", "nullable": true, "metadata": {
          "tableIdentifier": "/data/t", "version": 4,
          "encryption": ...}},             if an index is encrypted: see ``encryption.py``
      {"name": "virtual_dt", "type": "date", "nullable": true, "metadata": {}},   version 4, per
                                                                              partition column
      {"name": "temp_minmax_4", "nullable": true,
       "type": {"type": "struct", "fields": [min, max]},                    minmax
                {"type": "array", "elementType": T, "containsNull": true}   valuelist
                {"type": "udt", "class": "...", "sqlType": "binary"}        bloomfilter
       "metadata": {"index": {"name": "minmax", "cols": ["temp"],
                              "params": ..., "key_metadata": "k1"}}}]}

``version``: absent is 0. Version 0 keeps ``tableIdentifier`` in each index. ``params`` is a list of
``"key:value"`` up to version 2 (split at the first ``:``) and a map from version 3 on; its keys
began with ``spark.ibm.metaindex.`` before they began with ``io.xskipper.``. ``obj_name`` is not
nullable by the specification and nullable in real files. The order of keys differs between releases
and has no meaning. Unknown fields and keys are kept as they are.

Spark's type JSON, and the Arrow types that a store uses for it::

    Spark JSON                Arrow                    Parquet in a store
    "byte" "short"            int8, int16              INT32 (INT_8, INT_16)
    "integer" "long"          int32, int64             INT32, INT64
    "float" "double"          float32, float64         FLOAT, DOUBLE
    "boolean"                 bool                     BOOLEAN
    "string" "binary"         string, binary           BYTE_ARRAY (UTF8, none)
    "date"                    date32                   INT32 (DATE)
    "timestamp"               timestamp(us, UTC)       INT96
    "decimal(p,s)"            decimal128(p, s)         INT32 p <= 9, INT64 p <= 18, else FIXED

Other types cannot be stored: Xskipper refuses ``timestamp_ntz``, intervals, variants, arrays, maps
and structs as columns to index. A collated string (``"string collate UTF8_LCASE"``) is refused
because its order is not that of its bytes.

Source: the published specification, versions 0 to 4, Spark's ``DataType.json``, and files written
by releases of Xskipper.
"""

from __future__ import annotations

import json
import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.identity import canonical_json

from .encryption import StoreEncryption
from .naming import CURRENT_VERSION, OBJ_NAME, VIRTUAL_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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
    ``FormatError`` for what is not a type at all.
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


ROW_METADATA_KEY = "org.apache.spark.sql.parquet.row.metadata"
_UDT = "metadatastore.parquet.ParquetBaseClauseTranslator$BloomFilterMetaDataTypeUDT"
BLOOM_UDT = f"io.xskipper.{_UDT}"
LEGACY_BLOOM_UDT = f"com.ibm.metaindex.metadata.{_UDT}"
PARAMS, _LEGACY_PARAMS = "io.xskipper.", "spark.ibm.metaindex."
_COLLATIONS = "__COLLATIONS"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaField:
    """One field of the file; ``type``, ``metadata`` and ``extra`` are canonical JSON texts."""

    name: str
    type: str
    nullable: bool = True
    metadata: str = "{}"
    extra: str = "{}"

    def __post_init__(self) -> None:
        for name in ("type", "metadata", "extra"):
            object.__setattr__(self, name, canonical_json(json.loads(getattr(self, name))))

    def to_json(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "type": json.loads(self.type),
            "nullable": self.nullable,
            "metadata": json.loads(self.metadata),
            **json.loads(self.extra),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualColumn:
    """A partition column whose values a version 4 store carries, ``name`` as in the file."""

    name: str
    type: str

    @property
    def column(self) -> str:
        """The partition column's own name."""
        return self.name.removeprefix(VIRTUAL_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexColumn:
    """One index: the column ``name`` of the store, of ``kind`` over the table's ``columns``."""

    name: str
    kind: str
    columns: tuple[str, ...]
    params: tuple[tuple[str, str], ...] = ()
    key_metadata: str | None = None
    type: str = "null"
    collated: bool = False

    def current_params(self) -> tuple[tuple[str, str], ...]:
        """The parameters with the key prefix of versions 3 and 4."""
        return tuple(
            (PARAMS + key.removeprefix(_LEGACY_PARAMS), value)
            if key.startswith(_LEGACY_PARAMS)
            else (key, value)
            for key, value in self.params
        )

    def value_type(self) -> pa.DataType:
        """The Arrow type of the values of ``minmax`` and ``valuelist``; binary of ``bloomfilter``.

        ``UnsupportedError`` for other kinds, more than one column, foreign types and collations.
        """
        shape: Json = json.loads(self.type)
        if self.kind not in _SHAPES or len(self.columns) != 1:
            raise UnsupportedError(
                f"an index of kind {self.kind!r} over {len(self.columns)} columns"
            )
        if not isinstance(shape, dict) or self.collated:
            raise UnsupportedError(f"a {self.kind} column of type {self.type[:100]}, or collated")
        return arrow_type(_SHAPES[self.kind](shape))


def _minmax_value(shape: dict[str, Json]) -> Json:
    fields = shape.get("fields")
    if shape.get("type") == "struct" and isinstance(fields, list) and len(fields) == 2:
        ends = [entry for entry in fields if isinstance(entry, dict)]
        if [end.get("name") for end in ends] == ["min", "max"]:
            low, high = ends
            plain = not any(_COLLATIONS in str(end.get("metadata")) for end in ends)
            if low.get("type") == high.get("type") and plain:
                return low.get("type")
    raise UnsupportedError("a minmax column that is not struct<min, max> of one plain type")


def _valuelist_value(shape: dict[str, Json]) -> Json:
    if shape.get("type") == "array":
        return shape.get("elementType")
    raise UnsupportedError("a valuelist column that is not an array")


def _bloom_value(shape: dict[str, Json]) -> Json:
    known = shape.get("class") in (BLOOM_UDT, LEGACY_BLOOM_UDT)
    if shape.get("type") == "udt" and known and shape.get("sqlType") == "binary":
        return "binary"
    raise UnsupportedError("a bloomfilter column that is not Xskipper's BloomFilterMetaData")


_SHAPES = {"minmax": _minmax_value, "valuelist": _valuelist_value, "bloomfilter": _bloom_value}


@dataclass(frozen=True, slots=True)
class StoreSchema:
    """The schema of one store: its ``fields`` as in the file, and their values.

    ``from_json(text).to_json()`` is the same document, unknown keys included, keys perhaps in
    another order. ``virtual_columns`` and ``indexes`` are in the order of the file.
    """

    fields: tuple[SchemaField, ...]
    extra: str = "{}"
    version: int = field(init=False)
    table_identifier: str | None = field(init=False)
    encryption: StoreEncryption | None = field(init=False)
    virtual_columns: tuple[VirtualColumn, ...] = field(init=False)
    indexes: tuple[IndexColumn, ...] = field(init=False)

    def __post_init__(self) -> None:
        metadata = {entry.name: json.loads(entry.metadata) for entry in self.fields}
        if len(metadata) != len(self.fields):
            raise FormatError("the schema of a store names a column twice")
        if OBJ_NAME not in metadata:
            raise FormatError("not the schema of an Xskipper store: no column obj_name")
        master = metadata[OBJ_NAME]
        version = master.get("version", 0)
        if type(version) is not int or version < 0:
            raise FormatError("version of an Xskipper store", expected="0 to 4", got=version)
        if version > CURRENT_VERSION:
            raise UnsupportedError(
                f"this Xskipper store is of version {version}; the newest known is 4",
                hint="update Skipstone, or drop the store and build a new index",
            )
        identifier = master.get("tableIdentifier")
        indexes = []
        for entry in self.fields:
            if "index" in metadata[entry.name]:
                described = metadata[entry.name]["index"]
                indexes.append(_index_column(entry, described))
                identifier = identifier or described.get("tableIdentifier")
        if not isinstance(identifier, str | None):
            raise FormatError("tableIdentifier is not a text", got=repr(identifier)[:100])
        virtual = tuple(
            VirtualColumn(name=entry.name, type=entry.type)
            for entry in self.fields
            if version >= 4
            and entry.name.startswith(VIRTUAL_PREFIX)
            and "index" not in metadata[entry.name]
        )
        for name, value in (
            ("version", version),
            ("table_identifier", identifier),
            ("encryption", StoreEncryption.from_json(master.get("encryption"))),
            ("virtual_columns", virtual),
            ("indexes", tuple(indexes)),
        ):
            object.__setattr__(self, name, value)

    @property
    def usable(self) -> bool:
        """False for version 0: its columns are serialised objects that no reader supports."""
        return self.version >= 1

    def require_usable(self) -> None:
        """Raises ``UnsupportedError`` for version 0."""
        if not self.usable:
            raise UnsupportedError(
                "this Xskipper store is of version 0, whose columns cannot be read",
                hint="drop it and build a new index; `skipstone inspect` shows what it names",
            )

    @classmethod
    def from_json(cls, text: str | bytes, *, file: str | None = None) -> StoreSchema:
        """Parses the schema JSON of a footer.

        ``FormatError`` for what is not a schema of a store, ``UnsupportedError`` above version 4.
        """
        document = _parse(text, file)
        if document.get("type") != "struct" or not isinstance(document.get("fields"), list):
            raise FormatError("not a Spark schema", file=file, expected="a struct with fields")
        entries = document.pop("fields")
        assert isinstance(entries, list)
        fields = []
        for entry in entries:
            if not isinstance(entry, dict) or "type" not in entry:
                raise FormatError("not a field of a Spark schema", file=file, got=repr(entry)[:100])
            name, nullable = entry.pop("name", None), entry.pop("nullable", True)
            metadata = entry.pop("metadata", {})
            if (
                not isinstance(name, str)
                or not isinstance(nullable, bool)
                or not isinstance(metadata, dict)
            ):
                raise FormatError("not a field of a Spark schema", file=file, got=repr(name)[:100])
            fields.append(
                SchemaField(
                    name=name,
                    type=canonical_json(entry.pop("type")),
                    nullable=nullable,
                    metadata=canonical_json(metadata),
                    extra=canonical_json(entry),
                )
            )
        document.pop("type")
        return cls(fields=tuple(fields), extra=canonical_json(document))

    def to_json(self) -> str:
        """The schema JSON for a footer."""
        fields = [entry.to_json() for entry in self.fields]
        return canonical_json({"type": "struct", "fields": fields, **json.loads(self.extra)})

    def encrypted(
        self,
        leaves: Mapping[str, Iterable[str]],
        *,
        footer_key: str,
        key_metadata: Mapping[str, str | None],
        plaintext_footer: bool = False,
    ) -> StoreSchema:
        """The same store encrypted: ``leaves`` are the leaf columns of each column, by its name,
        ``key_metadata`` the labels of its indexes. An index without a label stays in the clear;
        other columns have the label of the footer."""
        named = {index.name for index in self.indexes}
        labels = {
            entry.name: key_metadata.get(entry.name) if entry.name in named else footer_key
            for entry in self.fields
        }
        column_keys: dict[str, list[str]] = {}
        for name, label in labels.items():
            if label is not None:
                column_keys.setdefault(label, []).extend(leaves[name])
        found = StoreEncryption.of(
            footer_key, column_keys, plaintext_footer=plaintext_footer
        ).to_json()
        fields = []
        for entry in self.fields:
            metadata, label = json.loads(entry.metadata), labels[entry.name]
            if entry.name in named:
                metadata["index"].pop("key_metadata", None)
                if label is not None:
                    metadata["index"]["key_metadata"] = label
            if entry.name == OBJ_NAME:
                metadata["encryption"] = found
            fields.append(replace(entry, metadata=canonical_json(metadata)))
        return type(self)(fields=tuple(fields), extra=self.extra)

    @classmethod
    def build(
        cls,
        *,
        table_identifier: str,
        virtual_columns: Iterable[VirtualColumn] = (),
        indexes: Iterable[IndexColumn] = (),
    ) -> StoreSchema:
        """The schema of a new version 4 store without encryption, every field nullable."""
        master: Json = {"tableIdentifier": table_identifier, "version": CURRENT_VERSION}
        fields = [SchemaField(name=OBJ_NAME, type='"string"', metadata=canonical_json(master))]
        fields += [SchemaField(name=column.name, type=column.type) for column in virtual_columns]
        for index in indexes:
            if index.key_metadata is not None:
                raise UnsupportedError(
                    f"index {index.name} is encrypted: it is never written in clear"
                )
            described: dict[str, Json] = {"name": index.kind, "cols": list(index.columns)}
            if index.params:
                described["params"] = dict(index.current_params())
            metadata = canonical_json({"index": described})
            fields.append(SchemaField(name=index.name, type=index.type, metadata=metadata))
        return cls(fields=tuple(fields))


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _parse(text: str | bytes, file: str | None) -> dict[str, Json]:
    try:
        document = json.loads(text, parse_constant=_no_constant)
        # Arrow gets the names and labels, and refuses lone surrogates; floats may overflow.
        canonical_json(document).encode()
        json.loads(canonical_json(document), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the schema is not JSON ({str(error)[:100]})", file=file) from None
    if not isinstance(document, dict):
        raise FormatError("the schema is not a JSON object", file=file, got=type(document).__name__)
    return document


def _index_column(entry: SchemaField, described: object) -> IndexColumn:
    if not isinstance(described, dict):
        raise FormatError(f"the index metadata of column {entry.name!r} is not a map")
    kind, columns, key = (described.get(name) for name in ("name", "cols", "key_metadata"))
    if (
        not isinstance(kind, str)
        or not isinstance(columns, list)
        or not all(isinstance(column, str) for column in columns)
        or not isinstance(key, str | None)
    ):
        raise FormatError(f"the index metadata of column {entry.name!r} lacks name or cols")
    return IndexColumn(
        name=entry.name,
        kind=kind,
        columns=tuple(columns),
        params=_params(entry.name, described.get("params")),
        key_metadata=key,
        type=entry.type,
        collated=_COLLATIONS in entry.metadata,
    )


def _params(column: str, params: object) -> tuple[tuple[str, str], ...]:
    # The shape distinguishes the two forms, so the version number need not be right.
    if params is None:
        return ()
    if isinstance(params, dict) and all(isinstance(value, str) for value in params.values()):
        return tuple(params.items())
    if isinstance(params, list) and all(isinstance(p, str) and ":" in p for p in params):
        return tuple((key, value) for key, _, value in (p.partition(":") for p in params))
    raise FormatError(f"the params of column {column!r} are neither a map nor texts key:value")
