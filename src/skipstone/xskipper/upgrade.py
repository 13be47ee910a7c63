"""Stores of versions 1 to 3 -> version 4, in their place or in another directory.

Columns get their new names, parameters become a map with the prefix ``io.xskipper.``, filters get
the class names of version 4; values do not change. Partition values, which older stores lack, come
from the paths of the rows. Every part is read and upgraded before anything is written; an error
leaves the store as it was.

An upgrade does not correct rows. A part keeps the footer keys that name its author
(``to_bytes(..., like=footer)``), so readers distrust the same values as before.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._dataclasses import dataclass
from skipstone.errors import KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.human import Report, plural, size
from skipstone.identity import canonical_path
from skipstone.parquet.encryption.master_keys import arrow_decryption, labelled_keys
from skipstone.pruning.partitions import PartitionColumns
from skipstone.storage import Storage, open_storage

from .format.bloom_probe import BlobColumn
from .format.java_bloom import METADATA, header, parse_header
from .format.naming import CURRENT_VERSION, OBJ_NAME, column_name, virtual_name
from .format.part import PartContents, leaves_of, read_part, to_bytes
from .format.rows import decode
from .format.schema import (
    BLOOM_UDT,
    LEGACY_BLOOM_UDT,
    IndexColumn,
    SchemaField,
    StoreSchema,
    arrow_type,
    spark_type,
)
from .store import finish, open_file, part_files, replace_parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.parquet.encryption.master_keys import KeySource


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeReport(Report):
    """What an upgrade did; nothing where ``versions`` is only 4 and the store stays in place."""

    store: str
    destination: str
    versions: tuple[int, ...]
    parts: int
    rows: int
    bytes: int

    def __str__(self) -> str:
        if not self.parts:
            return f"{self.store} is of version {CURRENT_VERSION} already"
        versions = ", ".join(map(str, self.versions))
        rows, parts = plural(self.rows, "row"), plural(self.parts, "part")
        return (
            f"upgraded {rows} from version {versions} to {CURRENT_VERSION}: {parts}, "
            f"{size(self.bytes)}, in {self.destination}"
        )


def upgrade_store(
    directory: str,
    destination: str | None = None,
    options: Mapping[str, str] | None = None,
    keys: KeySource | None = None,
) -> UpgradeReport:
    """Bring the store in ``directory`` to version 4, there or in the directory ``destination``.

    ``keys`` are those of the labels of an encrypted store (as ``Table`` takes them): all of them,
    and it keeps every label. ``UnsupportedError`` for version 0, above 4, and for an encrypted
    store without keys; ``KeyUnavailableError`` where one is missing; ``FormatError`` for damage.
    """
    labelled = labelled_keys(keys)
    decryption = None if labelled is None else arrow_decryption(labelled)
    home = canonical_path(directory)
    target = home if destination is None else canonical_path(destination)
    storage = open_storage(home, options)
    finish(storage, home)
    parts = _read(storage, home, decryption)
    versions = tuple(sorted({part.footer.schema.version for part in parts}))
    if versions == (CURRENT_VERSION,) and target == home:
        return UpgradeReport(
            store=home, destination=home, versions=versions, parts=0, rows=0, bytes=0
        )
    names = [decode(part).path for part in parts]
    found = _partitions(parts, names)
    done = []
    first = 0
    for part, paths in zip(parts, names, strict=True):
        virtual = {name: values.slice(first, len(paths)) for name, values in found.items()}
        table, schema = upgrade(part.table, part.footer.schema, virtual=virtual)
        done.append((to_bytes(table, schema, like=part.footer, keys=labelled), schema))
        first += len(paths)
    if any(schema != done[0][1] for _, schema in done):
        raise UnsupportedError(
            f"the parts of {home} do not describe the same indexes",
            hint="a change was cut off there: let the real Xskipper refresh it, or drop it",
        )
    written = [data for data, _ in done]
    where = open_storage(target, options)
    sources = list(part_files(storage, home))
    return UpgradeReport(
        store=home,
        destination=target,
        versions=versions,
        parts=len(parts),
        rows=first,
        bytes=replace_parts(where, target, written, done[0][1], decryption, sources),
    )


def _read(storage: Storage, home: str, decryption: object | None) -> list[PartContents]:
    found = []
    for path in part_files(storage, home):
        with open_file(storage, path) as file:
            try:
                part = read_part(file, file=path, decryption=decryption)
            except KeyUnavailableError as error:
                if decryption is not None:
                    raise
                raise UnsupportedError(
                    f"{error.message}: an encrypted store is not upgraded without its keys",
                    hint="pass the keys of its labels, or let the real Xskipper refresh it",
                ) from error
        for name, text in part.unreadable:
            if part.footer.schema.encryption is not None:
                hint = "pass the keys of all labels; nothing was changed"
                raise KeyUnavailableError(f"{path}: {name}: {text}", hint=hint)
            raise SkipstoneError(f"{path}: {name}: {text}", hint="nothing was changed")
        found.append(part)
    if not found:
        raise SkipstoneError(
            f"{home} has no parts of a store of Xskipper",
            hint="name the directory itself: <base>/<64 hexadecimal digits>",
        )
    return found


def _partitions(parts: Sequence[PartContents], names: Sequence[pa.Array]) -> Mapping[str, pa.Array]:
    """The partition values of all rows, one part after the other, typed as Spark infers them."""
    root = parts[0].footer.schema.table_identifier
    paths = pa.concat_arrays(list(names)).to_pylist()
    if root is None or not all(path and path.startswith(f"{root}/") for path in paths):
        return {}
    return PartitionColumns.of_paths(root, paths).values


def upgrade(
    table: pa.Table, schema: StoreSchema, *, virtual: Mapping[str, pa.Array] | None = None
) -> tuple[pa.Table, StoreSchema]:
    """The same rows as a version 4 store; those of version 4 stay as they are.

    ``table``: all columns of the parts, nothing left out; ``virtual``: partition column -> values,
    which older stores do not hold (without them the real Xskipper reads in full
    where a query names a partition column). Kinds that are not known keep their content. Filters
    that do not parse become null, which every reader treats as unknown.

    An encrypted store keeps every label; partition values get the footer's.

    ``UnsupportedError`` for version 0, and for labels of indexes without one of the footer;
    ``ValueError`` where a column is missing or has another number of rows.
    """
    schema.require_usable()
    encryption = schema.encryption
    if encryption is None and any(index.key_metadata for index in schema.indexes):
        raise UnsupportedError(
            "an Xskipper store with encrypted indexes that does not name the footer's key",
            hint="let the real Xskipper refresh it, or drop it and build a new index",
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
            entry = replace(entry, nullable=True, metadata=json.dumps(master))
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
    return replace(entry, name=name, type=type_, metadata=json.dumps(metadata)), column


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
