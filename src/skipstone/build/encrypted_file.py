"""Builds the facts of one encrypted Parquet file. It decrypts column chunks module by module, and
checks each tag before a value is used.

A column that its file encrypts is indexed only where the index is encrypted too, or with
``BuildSettings.plaintext_index``. A column that the file leaves in the clear is always indexed, as
far as the footer can be read. An encrypted file gets no row group metadata: a ``_pm`` would combine
what the file protects with several keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from skipstone.errors import KeyUnavailableError
from skipstone.parquet.arrow.arrow_types import arrow_schema
from skipstone.parquet.arrow.arrow_values import leaf_array
from skipstone.parquet.format.enums import Type
from skipstone.parquet.pages.column_values import decode_chunk
from skipstone.parquet.pages.page import chunk_range
from skipstone.pruning.calendar import ancient, proleptic

from .column_indexes import BuildSettings, Columns, ColumnsBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from skipstone.parquet.encryption.open_footer import DecryptedFooter
    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.pruning.kind import Index


#: why an index was left out for a file
NOT_IN_CLEAR = (
    "its file encrypts the column, and the index would be in the clear: encrypt the index, or say "
    "plaintext_index=True"
)


def encrypted_columns(
    source: BinaryIO,
    opened: DecryptedFooter,
    size: int,
    definitions: Sequence[Index],
    schema: pa.Schema,
    settings: BuildSettings,
) -> tuple[Columns, frozenset[str]]:
    """The facts of the indexed columns of an encrypted file of ``size`` bytes; and the reasons
    that other keys or settings would remove."""
    footer = opened.footer
    rows = footer.num_rows
    builder = ColumnsBuilder(definitions, schema, settings, rows)
    passing: set[str] = set()
    arrow = arrow_schema(footer.schema, footer.schema_elements, footer.key_value_metadata)
    leaves = {leaf.path: leaf for leaf in footer.schema.leaves}
    encrypted = np.asarray((footer.chunk("encrypted") > 0).any(axis=0))
    keys = {pair.key.encode(): (pair.value or "").encode() for pair in _pairs(footer)}
    trusted = proleptic(keys, int96=False)
    for column in builder.wanted:
        found = builder.locate(arrow, column, rows)
        if found is None:
            continue
        leaf = leaves.get(tuple(map(str, found)))
        if leaf is None or leaf.max_repetition_level:
            builder.drop(column, "not of an atomic type")
        elif encrypted[leaf.ordinal] and not settings.plaintext_index:
            passing |= _dropped(builder, column, NOT_IN_CLEAR)
        elif leaf.ordinal in opened.unavailable:
            error = opened.unavailable[leaf.ordinal]
            passing |= _dropped(builder, column, f"encrypted in its file: {error.message}")
        elif leaf.type == Type.INT96:
            builder.drop(column, "INT96 in an encrypted file")
        else:
            for group in range(footer.num_row_groups):
                values = _values(source, opened, size, group, leaf.ordinal)
                doubt = None if trusted else ancient(values)
                if doubt is not None:
                    builder.drop(column, doubt)
                    break
                builder.add(column, values)
    return builder.finish(rows), frozenset(passing)


def _dropped(builder: ColumnsBuilder, column: str, text: str) -> set[str]:
    """Drops the column for the reason ``text``; returns the definitions that are left out."""
    before = set(builder.reasons)
    builder.drop(column, text)
    return set(builder.reasons) - before


def _pairs(footer: FooterArrays) -> Sequence[Any]:
    return footer.key_value_metadata or ()


def _values(
    source: BinaryIO, opened: DecryptedFooter, size: int, group: int, ordinal: int
) -> pa.Array:
    """One leaf of a row group, decrypted and decoded; null where it or a struct above is null."""
    footer, decryptor = opened.footer, None
    meta, leaf = footer.column_meta_data(group, ordinal), footer.schema.leaves[ordinal]
    if meta is None:
        raise KeyUnavailableError(f"the metadata of column {leaf.name!r} are encrypted")
    if opened.decryptor is not None:
        from skipstone.parquet.encryption.open_footer import chunk_decryptor

        decryptor = chunk_decryptor(footer, opened.decryptor, group, ordinal)
    start, stop = chunk_range(meta, file_size=size, created_by=footer.created_by)
    source.seek(start)
    column = decode_chunk(
        source.read(stop - start), meta, leaf, base=start, decryptor=decryptor, verify_crc=True
    )
    levels = column.definition_levels
    valid = None if levels is None else np.asarray(levels) >= leaf.max_definition_level
    return leaf_array(column, valid)
