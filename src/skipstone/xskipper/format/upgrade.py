"""Stores of versions 1 to 3 -> version 4, value by value.

Columns get their new names, parameters become a map with the prefix ``io.xskipper.``, filters get
the class names of version 4; values do not change. Partition values, which older stores do not
hold, are handed in. What a row says is not made truer by this: write upgraded parts with
``to_bytes(..., like=footer)``, so that readers go on to distrust what they distrusted before.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import UnsupportedError

from .bloom_probe import BlobColumn
from .java_bloom import METADATA, header, parse_header
from .naming import CURRENT_VERSION, OBJ_NAME, column_name, virtual_name
from .part import leaves_of
from .schema import BLOOM_UDT, LEGACY_BLOOM_UDT, IndexColumn, SchemaField, StoreSchema
from .types import arrow_type, spark_type

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["upgrade"]


def upgrade(
    table: pa.Table, schema: StoreSchema, *, virtual: Mapping[str, pa.Array] | None = None
) -> tuple[pa.Table, StoreSchema]:
    """The same rows as a version 4 store; of version 4 already, both as they are.

    ``table``: all columns of the parts (``Part.table``), nothing left out; ``virtual``: partition
    column -> values, which older stores do not hold (without them the real Xskipper reads in full
    where a query names a partition column). Kinds that are not known keep their content. Filters
    that do not parse become null, which every reader takes for "nothing known".

    An encrypted store keeps every label; partition values get the footer's.

    ``UnsupportedError`` for version 0, and for labels of indexes without one of the footer;
    ``ValueError`` where a column is missing or has another number of rows.
    """
    schema.require_usable()
    encryption = schema.encryption
    if encryption is None and any(index.key_metadata for index in schema.indexes):
        raise UnsupportedError(
            "an Xskipper store with encrypted indexes that does not name the footer's key",
            hint="let the real Xskipper refresh it, or drop it and build an index anew",
        )
    absent = [entry.name for entry in schema.fields if entry.name not in table.column_names]
    if absent:
        raise ValueError(f"columns of the store are missing: {', '.join(absent)}")
    if schema.version == CURRENT_VERSION:
        return table.select([entry.name for entry in schema.fields]), schema
    indexes = {index.name: index for index in schema.indexes}
    fields: list[SchemaField] = []
    columns: list[pa.Array | pa.ChunkedArray] = []
    for entry in schema.fields:
        column = table.column(entry.name)
        if entry.name in indexes:
            entry, column = _upgraded(entry, indexes[entry.name], column)
        elif entry.name == OBJ_NAME:
            master = {**json.loads(entry.metadata), "version": CURRENT_VERSION}
            entry = replace(entry, nullable=True, metadata=_text(master))
        fields.append(entry)
        columns.append(column)
        if entry.name == OBJ_NAME:
            for name, values in (virtual or {}).items():
                spark = spark_type(values.type)
                fields.append(SchemaField(name=virtual_name(name), type=json.dumps(spark)))
                columns.append(values.cast(arrow_type(spark)))
    upgraded = StoreSchema(fields=tuple(fields), extra=schema.extra)
    made = pa.table(columns, names=[entry.name for entry in fields])
    if encryption is not None:
        upgraded = upgraded.encrypted(
            leaves_of(made.schema),
            footer_key=encryption.footer_key,
            key_metadata={index.name: index.key_metadata for index in upgraded.indexes},
            plaintext_footer=encryption.plaintext_footer,
        )
    return made, upgraded


def _upgraded(
    entry: SchemaField, index: IndexColumn, column: pa.ChunkedArray
) -> tuple[SchemaField, pa.ChunkedArray]:
    metadata = json.loads(entry.metadata)
    metadata["index"].pop("params", None)
    if index.params:
        metadata["index"]["params"] = dict(index.current_params())
    type_ = entry.type
    if index.kind == "bloomfilter" and pa.types.is_binary(column.type):
        type_ = type_.replace(LEGACY_BLOOM_UDT, BLOOM_UDT)
        column = pa.chunked_array([_renamed(chunk) for chunk in column.chunks], pa.binary())
    name = column_name(index.kind, index.columns)
    return replace(entry, name=name, type=type_, metadata=_text(metadata)), column


def _renamed(blobs: pa.Array) -> pa.Array:
    """The filters under the class names of version 4; the payloads stay as they are."""
    known = BlobColumn(blobs).ok
    blobs = pc.if_else(pa.array(known), blobs, pa.scalar(None, blobs.type))
    done = ~known
    # One round per header: a store has one or two, and BlobColumn lets only a few pass.
    while not done.all():
        blob = blobs[int(np.argmin(done))].as_py()
        outer, inner, length = parse_header(blob)
        starts = pc.fill_null(pc.starts_with(blobs, blob[:length]), False)
        same = starts.to_numpy(zero_copy_only=False) & ~done
        done |= same
        if outer is None or outer.name != METADATA.name:
            new = header(METADATA, inner)
            named = pc.binary_replace_slice(blobs, start=0, stop=length, replacement=new)
            blobs = pc.if_else(pa.array(same), named, blobs)
    return blobs


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
