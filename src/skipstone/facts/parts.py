"""Fact parts: immutable Parquet files ``facts/part-<uuid>``, one row per data file.

What protects a part against silent damage, since a wrong fact would be a wrong answer:

- the name is the first 16 bytes of the footer's SHA-256 (a nonce in the footer makes it unique),
  so a footer that was changed is seen before it is believed;
- every page carries a CRC-32, which is checked when the page is read.

Binary index columns (Bloom filters) are plain and uncompressed, because they do not compress and
are read most; everything else is zstd. Nothing in a part is ever changed in place.

A part of an encrypted index is one of Parquet's encrypted files (``sealed_parts.py``).
"""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.parquet.format.footer import MAGIC, Tail, find_footer, read_footer
from skipstone.storage import LocalStorage
from skipstone.xskipper.format.schema import ROW_METADATA_KEY
from skipstone.xskipper.format.types import spark_type

from .part_columns import OWN, PATH, FactField, unique_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.storage import Storage
    from skipstone.xskipper.format.encryption import Encryption

    from .index_encryption import Sealing

__all__ = ["PREFIX", "Part", "encode_part", "open_part"]

PREFIX = "part-"
VERSION = 1
ROW_GROUP = 128 * 1024
_KEY = b"skipstone.part"
_TAIL = 64 * 1024
# A footer holds some 100 bytes per column and row group; a length beyond this is damage.
_LONGEST_FOOTER = 256 * 1024 * 1024


@dataclass(frozen=True, eq=False, kw_only=True)
class Part:
    """A part whose footer was read. ``size`` in bytes; ``mtime`` in ns by the store's clock."""

    name: str
    path: str
    size: int
    mtime: int
    metadata: pq.FileMetaData
    schema: pa.Schema
    fields: tuple[FactField, ...]
    inline_limit: int | None = None
    encryption: Encryption | None = None

    @property
    def rows(self) -> int:
        """Fact rows."""
        return int(self.metadata.num_rows)

    @cached_property
    def by_key(self) -> dict[tuple[str, str, str], FactField]:
        """The fields by what they are."""
        return {field.key: field for field in self.fields}

    @cached_property
    def uncompressed(self) -> int:
        """Bytes of all columns once read."""
        groups = range(self.metadata.num_row_groups)
        return sum(self.metadata.row_group(i).total_byte_size for i in groups)

    @cached_property
    def column_bytes(self) -> Mapping[str, int]:
        """Stored bytes by top-level column."""
        return self._column_bytes()

    def _column_bytes(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for group in range(self.metadata.num_row_groups):
            row_group = self.metadata.row_group(group)
            for leaf, name in enumerate(self._column_of_leaf):
                found[name] = found.get(name, 0) + row_group.column(leaf).total_compressed_size
        return found

    @cached_property
    def decoded_bytes(self) -> Sequence[Mapping[str, int]]:
        """Decompressed bytes by top-level column, of every row group."""
        found: list[dict[str, int]] = []
        for group in range(self.metadata.num_row_groups):
            row_group = self.metadata.row_group(group)
            sums: dict[str, int] = {}
            for leaf, name in enumerate(self._column_of_leaf):
                sums[name] = sums.get(name, 0) + row_group.column(leaf).total_uncompressed_size
            found.append(sums)
        return found

    @cached_property
    def _column_of_leaf(self) -> Sequence[str]:
        """The top-level column of every leaf: its path begins with that name, which may itself
        hold dots."""
        leaves = self.metadata.schema
        paths = [leaves.column(at).path for at in range(len(leaves))]
        names = self.schema.names
        return [
            next((n for n in names if path == n or path.startswith(f"{n}.")), path)
            for path in paths
        ]

    def filled(self, name: str) -> NDArray[np.bool_] | None:
        """Which rows have a value in this column, as far as the footer tells: ``None`` if it does
        not."""
        found = []
        for group in range(self.metadata.num_row_groups):
            about = self.metadata.row_group(group)
            leaf = self._first_leaf(name)
            statistics = about.column(leaf).statistics
            nulls = -1
            if statistics is not None and statistics.has_null_count:
                nulls = statistics.null_count
            flat = self.metadata.schema.column(leaf).max_definition_level == 1
            # A leaf of a nested column without nulls stands in no value that is null; one that is
            # null may stand in a value that is there.
            if nulls != 0 and not (flat and nulls == about.num_rows):
                return None
            found.append(np.full(about.num_rows, nulls == 0))
        return np.concatenate([np.empty(0, np.bool_), *found])

    def _first_leaf(self, name: str) -> int:
        leaves = self.metadata.schema
        paths = [leaves.column(at).path for at in range(len(leaves))]
        return next(at for at, path in enumerate(paths) if f"{path}.".startswith(f"{name}."))

    def reader(self, file: Any, storage: Storage) -> pq.ParquetFile:
        """The open part for Arrow."""
        return pq.ParquetFile(
            file,
            metadata=self.metadata,
            page_checksum_verification=True,
            pre_buffer=storage.remote,
        )

    def load(self, reader: pq.ParquetFile, names: Sequence[str]) -> pa.Table:
        """All that there is of these columns."""
        return reader.read(columns=list(names))

    def read(self, storage: Storage, names: Sequence[str]) -> pa.Table:
        """These columns, in this order; ``FormatError`` for damage, ``OSError`` from the store.

        One of ``OWN`` that the part does not have is all null.
        """
        held = [name for name in names if name in self.schema.names]
        try:
            with _native(storage, self.path) as file:
                table = self.load(self.reader(file, storage), held)
        except (FileNotFoundError, SkipstoneError):
            raise
        except Exception as error:
            raise _trouble(self.path, error) from error
        if set(table.column_names) != set(held) or table.num_rows != self.rows:
            raise FormatError("columns or rows are missing", file=self.path)
        columns = [
            table[name] if name in held else pa.nulls(self.rows, OWN[name]) for name in names
        ]
        for name, column in zip(names, columns, strict=True):
            if name in OWN and column.type != OWN[name]:
                raise FormatError(
                    f"column {name}", file=self.path, expected=OWN[name], got=column.type
                )
        return pa.Table.from_arrays(columns, names=list(names))


def _native(storage: Storage, path: str) -> Any:
    """A file that Arrow reads: its own for local ones, which need no interpreter lock."""
    if isinstance(storage, LocalStorage):
        storage.requests += 1
        return pa.OSFile(path)
    return storage.open(path)


def _trouble(path: str, error: Exception) -> Exception:
    """An error of Arrow as ours: what the store did not give stays an ``OSError``."""
    text = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
    if isinstance(error, pa.ArrowNotImplementedError):
        return UnsupportedError(f"{path}: {text}")
    # Arrow reports damaged pages as OSError too; the operating system's own have a number.
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return FormatError(text, file=path)


# -- writing -------------------------------------------------------------------------------------


def encode_part(
    table: pa.Table,
    fields: Sequence[FactField],
    created_by: str,
    inline_limit: int | None = None,
    sealing: Sealing | None = None,
) -> tuple[str, memoryview]:
    """Name and bytes of the part that holds ``table``, encrypted by ``sealing``.

    ``table`` has columns of ``OWN`` first, then one per entry of ``fields``, in order; those get
    their names here. ``UnsupportedError`` for a field with a key label and nothing to seal it with.
    """
    own = [name for name in OWN if name in table.column_names]
    named = unique_names(fields)
    if table.num_columns != len(own) + len(named):
        raise ValueError(f"{table.num_columns} columns, {len(own)} own, {len(named)} fields")
    schema = pa.schema(
        [pa.field(name, OWN[name]) for name in own] + [field.arrow for field in named]
    )
    entries = [entry for field in named if (entry := field.to_json()) is not None]
    document: dict[str, object] = {
        "version": VERSION,
        "nonce": uuid.uuid4().hex,
        "created_by": created_by,
        "fields": entries,
    }
    if inline_limit is not None:
        document["inline_limit"] = inline_limit
    table = pa.Table.from_arrays(table.columns, schema=schema)
    sink = io.BytesIO()
    compression, dictionary, counted = _encodings(schema)
    properties: Any = None
    master: Mapping[str, Any] = {}
    if sealing is not None:
        from .encrypted_parts import seal_part

        properties, master = seal_part(sealing, named, list(compression), document)
    elif any(field.key_metadata is not None for field in named):
        raise UnsupportedError("an encrypted index is never written in the clear")
    try:
        with pq.ParquetWriter(
            sink,
            schema,
            compression=compression,
            use_dictionary=dictionary,
            write_statistics=counted,  # for their null counts (Part.filled)
            write_page_checksum=True,
            version="2.6",
            encryption_properties=properties,
        ) as writer:
            writer.write_table(table, row_group_size=ROW_GROUP)
            writer.add_key_value_metadata(
                {_KEY: json.dumps(document), ROW_METADATA_KEY: _spark_schema(named, master)}
            )
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise UnsupportedError(f"an index value that Parquet cannot hold: {error}") from error
    data = sink.getbuffer()
    return _name(bytes(find_footer(data)[1])), data


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
    """Spark's view of the part: names, and the index metadata as version 4 of Xskipper has it.

    For readers other than this one; a column of a type that Spark does not know is left out.
    ``master`` is the metadata of ``obj_name``.
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


# -- reading -------------------------------------------------------------------------------------


def open_part(
    path: str, size: int, mtime: int, storage: Storage, keys: LabelledKeys | None = None
) -> Part:
    """Read and check the footer of the part at ``path``.

    ``FormatError`` when it is not a whole part, ``UnsupportedError`` when it is of a newer version,
    or in the clear where there are ``keys``; ``KeyUnavailableError`` when it is encrypted and they
    do not open it, ``OSError`` when the store does not give it.
    """
    name = path.rpartition("/")[2]
    tail, footer = _read_footer(path, storage)
    if _name(footer) != name:
        raise FormatError("the footer is not the one it was written with", file=path)
    sealed = None
    if tail.encrypted or keys is not None or _signed(footer):
        from .encrypted_parts import SealedPart, encryption_in, open_sealed

        sealed = open_sealed(footer, path, keys, encrypted=tail.encrypted)
    try:
        whole = tail.magic + footer + tail.to_bytes()
        metadata = pq.read_metadata(
            pa.py_buffer(whole),
            decryption_properties=None if sealed is None else sealed.properties,
        )
        schema = metadata.schema.to_arrow_schema()
        document = json.loads((metadata.metadata or {})[_KEY])
        version, entries = document["version"], document["fields"]
        encryption = None if sealed is None else encryption_in(document)
    except Exception as error:
        raise FormatError(f"not a fact part ({error})", file=path) from error
    if type(version) is not int or version > VERSION:
        raise UnsupportedError(
            f"{path} is a fact part of version {version}, and {VERSION} is the newest known",
            hint="update Skipstone",
        )
    try:
        described = {entry["field"]: entry for entry in entries}
    except (TypeError, KeyError) as error:
        raise FormatError("the columns are not described", file=path) from error
    limit = document.get("inline_limit")
    fields = tuple(
        FactField.from_json(field, described.get(field.name))
        for field in schema
        if field.name not in OWN
    )
    part = Part(
        name=name,
        path=path,
        size=size,
        mtime=mtime,
        metadata=metadata,
        schema=schema,
        fields=fields,
        inline_limit=limit if type(limit) is int and limit >= 0 else None,
    )
    if sealed is None or encryption is None:
        return part
    return SealedPart.of(part, sealed, encryption)


def _read_footer(path: str, storage: Storage) -> tuple[Tail, bytes]:
    with storage.open(path) as file:
        try:
            tail, footer = read_footer(file, guess=_TAIL, longest=_LONGEST_FOOTER)
        except FormatError as error:
            raise error.in_file(path) from error
    return tail, bytes(footer)


def _signed(footer: bytes) -> bool:
    """Whether columns are encrypted under this footer in the clear: a signature follows it."""
    try:
        whole = MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC
        return bool(pq.read_metadata(pa.py_buffer(whole)).serialized_size != len(footer))
    except Exception:  # what is wrong with it is said by whoever reads it next
        return False


def _name(footer: bytes) -> str:
    return f"{PREFIX}{uuid.UUID(bytes=hashlib.sha256(footer).digest()[:16])}"
