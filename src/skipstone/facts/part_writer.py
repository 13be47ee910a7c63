"""Writes fact parts: an Arrow table and its field descriptions -> name and bytes of a part.

In an encrypted part (Parquet modular encryption, as Xskipper encrypts its store) the labels are::

    column                              label of its key
    an index                            its own (``key_metadata``), or the footer's
    the null counts of a column         that of an index over it, or the footer's
    obj_name and all of ``OWN``         the footer's

Labels are master keys: each part has random data keys, wrapped under them as the key tools of
parquet-java do it, so no two parts share a data key. The metadata of ``obj_name`` in Spark's schema
say how the part is encrypted, as in a store of Xskipper; our own document repeats it under
``encryption``.
"""

from __future__ import annotations

import io
import json
import uuid
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone._version import __version__
from skipstone.errors import UnsupportedError
from skipstone.parquet.format.footer import find_footer
from skipstone.xskipper.format.encryption import StoreEncryption
from skipstone.xskipper.format.schema import ROW_METADATA_KEY, spark_type

from .filter_pieces import pieces_of
from .part_columns import OWN, PATH, unique_names
from .parts import DOCUMENT_KEY, PIECES, VERSION, name_of_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .index_encryption import WriteEncryption
    from .part_columns import FactField


ROW_GROUP = 128 * 1024
_CREATED_BY = f"skipstone {__version__}"


def encode_part(
    table: pa.Table,
    fields: Sequence[FactField],
    inline_limit: int | None = None,
    encryption: WriteEncryption | None = None,
    schemas: Mapping[str, str] | None = None,
    job: str | None = None,
) -> tuple[str, memoryview]:
    """Name and bytes of the part that holds ``table``, encrypted by ``encryption``.

    ``table`` has columns of ``OWN`` first, then one per entry of ``fields``, in order; those get
    their names here. ``schemas`` are the texts of the schemas that the rows name.
    ``job`` is that of ``Part``. ``UnsupportedError`` for a field with a key label without
    ``encryption``.
    """
    own = [name for name in OWN if name in table.column_names]
    named = unique_names(fields)
    if table.num_columns != len(own) + len(named):
        raise ValueError(f"{table.num_columns} columns, {len(own)} own, {len(named)} fields")
    schema = pa.schema(
        [pa.field(name, OWN[name]) for name in own] + [field.arrow for field in named]
    )
    stated = {"inline_limit": inline_limit, "job": job, "schemas": dict(schemas or {}) or None}
    document: dict[str, object] = {
        "version": VERSION,
        "nonce": uuid.uuid4().hex,
        "created_by": _CREATED_BY,
        "fields": [entry for field in named if (entry := field.to_json()) is not None],
        **{name: value for name, value in stated.items() if value is not None},
    }
    table = pa.Table.from_arrays(table.columns, schema=schema)
    if encryption is None:
        table = _with_pieces(table, named)
    encodings = _encodings(table.schema)
    properties: Any = None
    master: dict[str, Any] = {}
    if encryption is not None:
        described, properties = _encryption_of(encryption, named, list(encodings[0]))
        document["encryption"] = master["encryption"] = described.to_json()
    elif any(field.key_metadata is not None for field in named):
        raise UnsupportedError("an encrypted index is never written in the clear")
    metadata: dict[str | bytes, str] = {
        DOCUMENT_KEY: json.dumps(document),
        ROW_METADATA_KEY: _spark_schema(named, master),
    }
    data = _written(table, encodings, metadata, properties)
    return name_of_part(bytes(find_footer(data)[1])), data


def _written(
    table: pa.Table,
    encodings: tuple[dict[str, str], list[str], list[str]],
    metadata: Mapping[str | bytes, str],
    properties: Any,
) -> memoryview:
    """``table`` as a Parquet file, with the result of ``_encodings`` for its schema."""
    compression, dictionary, counted = encodings
    sink = io.BytesIO()
    try:
        with pq.ParquetWriter(
            sink,
            table.schema,
            compression=compression,
            use_dictionary=dictionary,
            write_statistics=counted,  # for their null counts (Part.filled)
            write_page_checksum=True,
            version="2.6",
            encryption_properties=properties,
        ) as writer:
            writer.write_table(table, row_group_size=ROW_GROUP)
            writer.add_key_value_metadata(metadata)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise UnsupportedError(f"an index value that Parquet cannot hold: {error}") from error
    return sink.getbuffer()


def _with_pieces(table: pa.Table, fields: Sequence[FactField]) -> pa.Table:
    """The table with the pieces of its Bloom filters."""
    for field in fields:
        if field.definition is not None and field.definition.kind == "bloomfilter":
            filters = table.column(field.arrow.name)
            pieces = pieces_of(filters) if filters.type == pa.binary() else None
            if pieces is not None:
                table = table.append_column(f"{field.arrow.name}{PIECES}", pieces)
    return table


def _encryption_of(
    encryption: WriteEncryption, fields: Sequence[FactField], leaves: Sequence[str]
) -> tuple[StoreEncryption, Any]:
    """How a part of these leaves is encrypted, and Arrow's properties for it.

    ``KeyUnavailableError`` where a label that is needed has no key.
    """
    from skipstone.parquet.encryption.master_keys import arrow_encryption

    labels, footer = encryption.encryption, encryption.encryption.footer_key
    label_of = {field.arrow.name: field.key_metadata or footer for field in fields}
    column_keys: dict[str, list[str]] = {}
    for path in leaves:
        # A leaf's path begins with its column's name, which may itself hold dots.
        named = max((n for n in label_of if f"{path}.".startswith(f"{n}.")), key=len, default="")
        column_keys.setdefault(label_of.get(named, footer), []).append(path)
    plaintext = labels.plaintext_footer
    return (
        StoreEncryption.of(footer, column_keys, plaintext_footer=plaintext),
        arrow_encryption(encryption.keys, footer, column_keys, plaintext_footer=plaintext),
    )


@lru_cache(maxsize=64)
def _encodings(schema: pa.Schema) -> tuple[dict[str, str], list[str], list[str]]:
    """Codec of every leaf column, the leaves with a dictionary, and those with statistics."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema) as writer:
        writer.write_table(schema.empty_table())
    leaves = pq.read_metadata(sink).schema
    plain = {
        field.name
        for field in schema
        if field.name not in OWN
        and (pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type))
    }
    paths = [leaves.column(i).path for i in range(len(leaves))]
    codecs = {path: "NONE" if path in plain else "ZSTD" for path in paths}
    dictionary = [path for path in paths if path not in plain and path != PATH]
    own = tuple(f"{name}." for name in OWN)
    return codecs, dictionary, [path for path in paths if not f"{path}.".startswith(own)]


def _spark_schema(fields: Iterable[FactField], master: Mapping[str, Any]) -> str:
    """Spark's schema of the part: names, and the index metadata as in version 4 of Xskipper.

    For other readers; a column of a type that Spark does not know is left out. ``master`` is the
    metadata of ``obj_name``.
    """
    found: list[dict[str, Any]] = [_spark_field(pa.field(name, type)) for name, type in _SPARK_OWN]
    found[0]["metadata"] = dict(master)
    for field in fields:
        try:
            described = _spark_field(field.arrow)
        except UnsupportedError:
            continue
        if field.definition is not None:
            described["metadata"] = {"index": json.loads(field.entry)["index"]}
        found.append(described)
    return json.dumps({"type": "struct", "fields": found}, ensure_ascii=False)


_SPARK_OWN = [
    (name, pa.string() if type == pa.large_string() else type)
    for name, type in OWN.items()
    if not pa.types.is_nested(type) and not pa.types.is_large_binary(type)
]


def _spark_field(field: pa.Field) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": _spark_json(field.type),
        "nullable": True,
        "metadata": {},
    }


def _spark_json(type_: pa.DataType) -> Any:
    if pa.types.is_struct(type_):
        return {"type": "struct", "fields": [_spark_field(field) for field in type_]}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        element = _spark_json(type_.value_type)
        return {"type": "array", "elementType": element, "containsNull": True}
    return spark_type(type_)
