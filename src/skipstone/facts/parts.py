"""Fact parts: immutable Parquet files ``facts/part-<uuid>``, one row per data file.

A wrong fact would be a wrong answer, so a part is protected against silent damage:

- its name is the first 16 bytes of the footer's SHA-256 (a nonce in the footer makes it unique), so
  a changed footer is detected before it is used;
- every page carries a CRC-32, which is checked when the page is read.

Binary index columns (Bloom filters) are plain and uncompressed, because they do not compress and
are read most; all other columns are zstd. A part is never changed in place.

A part of an encrypted index is one of Parquet's encrypted files (``part_writer.py``). Its name is
the hash of the stored footer, encrypted or signed, so a part is checked without a key; with one,
every module is authenticated. A plaintext part is refused where keys are given: an attacker
without the keys could have put it there.
"""

from __future__ import annotations

import errno
import hashlib
import json
import uuid
from collections import Counter
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone._parquet import ArrowParquetFile, read_metadata
from skipstone.errors import (
    FormatError,
    KeyUnavailableError,
    SkipstoneError,
    UnsupportedError,
    first_line,
)
from skipstone.parquet.format.footer import MAGIC, find_footer, read_footer
from skipstone.storage import LocalStorage
from skipstone.storage.base import naming

from .part_columns import OWN, FactField
from .read_ahead import END

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.parquet.encryption.open_footer import DecryptedFooter
    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.storage import Storage
    from skipstone.xskipper.format.encryption import StoreEncryption

    from .index_encryption import IndexEncryption
    from .part_columns import Definition
    from .read_ahead import HeldObject


PREFIX = "part-"
VERSION = 1
DOCUMENT_KEY = b"skipstone.part"
#: ends the name of a column with the pieces of another (``filter_pieces.py``)
PIECES: Final = "~pieces"
#: Why a part that was listed is gone; many writers at once merge many of them.
MERGED: Final = "another writer has merged it since it was listed"
# A footer holds some 100 bytes per column and row group; a length beyond this is damage.
_LONGEST_FOOTER = 256 * 1024 * 1024
# Up to so many rows, one thread reads a part fastest.
_FEW = 5_000


@dataclass(frozen=True, eq=False, kw_only=True)
class Part:
    """A part whose footer was read. ``size`` in bytes; ``mtime`` in ns by the store's clock.

    The footer of an encrypted part is in ``opened``, decrypted as far as there are keys. With
    ``group`` the part stands for only this row group. ``held`` has the bytes that were read ahead,
    for a part in an object store. ``job`` names the build whose task wrote the part; a merge has
    none.
    """

    name: str
    path: str
    size: int
    mtime: int
    metadata: pq.FileMetaData
    schema: pa.Schema
    fields: tuple[FactField, ...]
    inline_limit: int | None = None
    schemas: Mapping[str, str] = field(default_factory=dict)
    encryption: StoreEncryption | None = None
    opened: DecryptedFooter | None = field(default=None, repr=False)
    group: int | None = None
    held: HeldObject | None = field(default=None, repr=False)
    job: str | None = None

    @property
    def rows(self) -> int:
        """Fact rows."""
        if self.group is not None:
            return int(self.metadata.row_group(self.group).num_rows)
        return int(self.metadata.num_rows)

    @cached_property
    def by_key(self) -> dict[tuple[str, str, str], FactField]:
        return {field.key: field for field in self.fields}

    @cached_property
    def uncompressed(self) -> int:
        """Bytes of all columns once read."""
        groups = range(self.metadata.num_row_groups)
        return sum(self.metadata.row_group(i).total_byte_size for i in groups)

    @cached_property
    def _footer(self) -> FooterArrays | None:
        """The footer as arrays; ``None`` where it contradicts itself.

        Use it for column chunks: Arrow ends the process where one is damaged, or its key is
        missing.
        """
        if self.opened is not None:
            return self.opened.footer
        from skipstone.parquet.format.footer_arrays import FooterArrays

        sink = pa.BufferOutputStream()
        self.metadata.write_metadata_file(sink)
        try:
            return FooterArrays.scan(find_footer(sink.getvalue())[1])
        except FormatError:
            return None

    def _sizes(self, field: str) -> Sequence[Mapping[str, int]]:
        """Bytes by top-level column, of every row group; nothing where the footer is damaged."""
        if self._footer is None:
            return ()
        found = []
        for sizes in self._footer.chunk(field).clip(0).tolist():
            sums: Counter[str] = Counter()
            for name, size in zip(self._column_of_leaf, sizes, strict=True):
                sums[name] += size
            found.append(sums)
        return found

    @cached_property
    def column_bytes(self) -> Mapping[str, int]:
        """Stored bytes by top-level column."""
        found: Counter[str] = Counter()
        for sizes in self._sizes("total_compressed_size"):
            found.update(sizes)
        return found

    @cached_property
    def decoded_bytes(self) -> Sequence[Mapping[str, int]]:
        """Decompressed bytes by top-level column, of every row group."""
        return self._sizes("total_uncompressed_size")

    def places(self, names: Collection[str]) -> list[tuple[int, int]]:
        """Offset and length of the chunks of these columns, as far as the footer says."""
        footer = self._footer
        if footer is None:
            return []
        first, data = footer.chunk("dictionary_page_offset"), footer.chunk("data_page_offset")
        size = footer.chunk("total_compressed_size")
        start = np.where(first > 0, np.minimum(first, data), data)
        leaves = [at for at, name in enumerate(self._column_of_leaf) if name in names]
        groups = range(len(size)) if self.group is None else [self.group]
        return [(int(start[g, leaf]), int(size[g, leaf])) for g in groups for leaf in leaves]

    @cached_property
    def _column_of_leaf(self) -> Sequence[str]:
        """The top-level column of every leaf: its path begins with that name, which may itself
        hold dots."""
        assert self._footer is not None
        names = self.schema.names
        return [
            next((n for n in names if path == n or path.startswith(f"{n}.")), path)
            for path in _leaf_paths(self._footer)
        ]

    def locked(self, name: str) -> SkipstoneError | None:
        """Why a column cannot be decrypted; ``None`` where it can, or is plaintext."""
        if self.opened is None:
            return None
        unavailable = (
            self.opened.unavailable.get(leaf.ordinal)
            for leaf in self.opened.footer.schema.leaves
            if f"{'.'.join(leaf.path)}.".startswith(f"{name}.")
        )
        return next((error for error in unavailable if error is not None), None)

    def filled(self, name: str) -> NDArray[np.bool_] | None:
        """Which rows have a value in this column, by the footer's null counts; ``None`` where these
        are not enough, or Arrow must not read them."""
        footer = self._footer
        if self.opened is not None or footer is None:
            return None
        found = []
        leaves = enumerate(_leaf_paths(footer))
        leaf = next(at for at, path in leaves if f"{path}.".startswith(f"{name}."))
        flat = footer.schema.leaves[leaf].max_definition_level == 1
        counts = zip(footer.group("num_rows"), footer.chunk("null_count")[:, leaf], strict=True)
        for rows, nulls in counts:
            # A leaf of a nested column without nulls lies in no null value; a null leaf may lie in
            # a value that is not null.
            if nulls != 0 and not (flat and nulls == rows):
                return None
            found.append(np.full(rows, nulls == 0))
        return np.concatenate([np.empty(0, np.bool_), *found])

    def read(self, storage: Storage, names: Sequence[str]) -> pa.Table:
        """These columns, in this order; ``FormatError`` for damage, ``OSError`` from the store,
        ``KeyUnavailableError`` where one of the columns is locked.

        A column of ``OWN`` that the part lacks is all null. Arrow uses the checked footer: the
        object there now may be another part.
        """
        for name in names:
            if (error := self.locked(name)) is not None:
                raise error
        held = [name for name in names if name in self.schema.names]
        try:
            if self.held is not None:
                self.held.fetch(self.places(held))
            with naming(self.path), self._file(storage) as file:
                reader = ArrowParquetFile(
                    file,
                    metadata=self.metadata,
                    page_checksum_verification=True,
                    # Pre-buffering joins ranges, so it would read again what is held.
                    pre_buffer=storage.remote and self.held is None,
                )
                # If a thread of Arrow frees bytes of Python after Python ended, the process aborts.
                # For a few rows, one thread reads columns faster than several.
                threads = self.held is None and self.rows > _FEW
                table = reader.read(held, row_group=self.group, use_threads=threads)
        except FileNotFoundError as error_:
            raise FileNotFoundError(errno.ENOENT, MERGED, self.path) from error_
        except SkipstoneError:
            raise
        except Exception as error_:
            raise _read_error(self.path, error_) from error_
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

    def _file(self, storage: Storage) -> Any:
        """A file for Arrow: a local one is Arrow's own, which needs no interpreter lock."""
        if self.held is not None:
            return self.held.open()
        if isinstance(storage, LocalStorage):
            storage.requests += 1
            return pa.OSFile(self.path)
        return storage.open(self.path)


def _leaf_paths(footer: FooterArrays) -> Sequence[str]:
    return [".".join(leaf.path) for leaf in footer.schema.leaves]


def _read_error(path: str, error: Exception) -> Exception:
    """Arrow's error as one of Skipstone's; an error of the store stays an ``OSError``."""
    text = first_line(error)
    if isinstance(error, pa.ArrowNotImplementedError):
        return UnsupportedError(f"{path}: {text}")
    # Arrow reports damaged pages as OSError too; the operating system's own have a number.
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return FormatError(text, file=path)


# -- opening -------------------------------------------------------------------------------------


def open_part(
    path: str,
    size: int,
    mtime: int,
    storage: Storage,
    keys: LabelledKeys | None = None,
    held: HeldObject | None = None,
) -> Part:
    """Read and check the footer of the part at ``path``; ``held`` as in ``Part``.

    ``FormatError`` when it is not a complete part, ``UnsupportedError`` when it is of a newer
    version, or plaintext where there are ``keys``; ``KeyUnavailableError`` when it is encrypted and
    the keys do not open it, ``OSError`` when the store cannot read it.
    """
    name = path.rpartition("/")[2]
    with naming(path), storage.open(path) if held is None else held.open() as file:
        try:
            tail, read = read_footer(file, guess=END, longest=_LONGEST_FOOTER)
        except FormatError as error:
            raise error.in_file(path) from error
    footer = bytes(read)
    if name_of_part(footer) != name:
        raise FormatError("the footer is not the original one", file=path)
    opened, properties = None, None
    if tail.encrypted or keys is not None or _signed(footer):
        opened = _open_encrypted(footer, path, keys, encrypted=tail.encrypted)
    if opened is not None and keys is not None:
        from skipstone.parquet.encryption.master_keys import arrow_decryption

        properties = arrow_decryption(keys)
    try:
        metadata = _arrow_footer(footer, tail.magic, properties)
        schema = metadata.schema.to_arrow_schema()
        document = json.loads((metadata.metadata or {})[DOCUMENT_KEY])
        version, entries = document["version"], document["fields"]
        encryption = None if opened is None else _encryption_of(document)
    except Exception as error:
        raise FormatError(f"not a fact part ({error})", file=path) from error
    if type(version) is not int or version > VERSION:
        raise UnsupportedError(
            f"{path} is a fact part of version {version}, and {VERSION} is the newest known",
            hint="update Skipstone",
        )
    limit = document.get("inline_limit")
    return Part(
        name=name,
        path=path,
        size=size,
        mtime=mtime,
        metadata=metadata,
        schema=schema,
        fields=_fields_of(schema, entries, path),
        inline_limit=limit if type(limit) is int and limit >= 0 else None,
        schemas=_texts(document.get("schemas")),
        encryption=encryption,
        opened=opened,
        held=held,
        job=document.get("job"),
    )


def _encryption_of(document: Mapping[str, Any]) -> StoreEncryption:
    from skipstone.xskipper.format.encryption import StoreEncryption

    found = StoreEncryption.from_json(document.get("encryption"))
    if found is None:
        raise FormatError("an encrypted part has no encryption metadata")
    return found


def _fields_of(schema: pa.Schema, entries: Any, path: str) -> tuple[FactField, ...]:
    """The columns besides ``OWN``, as ``entries`` of the document describe them."""
    try:
        described = {entry["field"]: entry for entry in entries}
    except (TypeError, KeyError) as error:
        raise FormatError("the columns are not described", file=path) from error
    made = {*OWN, *columns_of_pieces(schema)}
    others = (each for each in schema if each.name not in made)
    return tuple(FactField.from_json(each, described.get(each.name)) for each in others)


def columns_of_pieces(schema: pa.Schema) -> list[str]:
    """The columns of a part that have the pieces of others (``filter_pieces.py``)."""
    stems = ((name, name.removesuffix(PIECES)) for name in schema.names)
    return [name for name, stem in stems if stem != name and stem in schema.names]


def _texts(found: object) -> dict[str, str]:
    """The entries of ``found`` that are texts."""
    if not isinstance(found, dict):
        return {}
    return {str(name): text for name, text in found.items() if isinstance(text, str)}


def _open_encrypted(
    footer: bytes, path: str, keys: LabelledKeys | None, *, encrypted: bool
) -> DecryptedFooter:
    """Open the footer of the part at ``path``; ``encrypted`` is whether its magic is PARE.

    ``UnsupportedError`` for a plaintext part where keys are given; ``KeyUnavailableError`` where
    they do not open an encrypted footer; ``FormatError`` for one that was altered.
    """
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.open_footer import open_footer
    from skipstone.xskipper.format.part import footer_key_label

    decryption = Decryption(allow_plaintext_files=True) if keys is None else Decryption(kms=keys)
    try:
        return open_footer(footer, encrypted=encrypted, decryption=decryption, file=path)
    except FormatError as error:
        if not encrypted and "not encrypted" in error.message:
            raise UnsupportedError(
                f"{path} is not encrypted, and keys for the index were given",
                hint="drop the index and build it encrypted, or open the table without index_keys",
            ) from None
        raise
    except KeyUnavailableError:
        if keys is not None:
            raise
        label = footer_key_label(footer)
        named = "" if label is None else f" with the key labelled {label!r}"
        raise KeyUnavailableError(
            f"encrypted{named}, and no keys for the index were given",
            hint="open the table with index_keys",
        ) from None


def _signed(footer: bytes) -> bool:
    """Whether columns are encrypted under this plaintext footer: then a signature follows it."""
    try:
        return bool(_arrow_footer(footer, MAGIC).serialized_size != len(footer))
    except Exception:  # the next reader of the footer reports the error
        return False


def _arrow_footer(footer: bytes, magic: bytes, decryption: object = None) -> pq.FileMetaData:
    whole = magic + footer + len(footer).to_bytes(4, "little") + magic
    return read_metadata(whole, decryption)


def name_of_part(footer: bytes) -> str:
    """The name of the part with this footer, as it is stored."""
    return f"{PREFIX}{uuid.UUID(bytes=hashlib.sha256(footer).digest()[:16])}"


def encryption_of(
    parts: Sequence[Part], definitions: Iterable[Definition]
) -> IndexEncryption | None:
    """How the newest encrypted part is encrypted, with all labels; ``None`` where none is."""
    found = [part.encryption for part in parts if part.encryption is not None]
    if not found:
        return None
    from .index_encryption import IndexEncryption

    footer = found[-1].footer_key
    labels = {
        f"{each.column}:{each.kind}": each.key_metadata
        for each in definitions
        if each.key_metadata is not None and each.key_metadata != footer
    }
    return IndexEncryption(
        footer_key=footer, key_metadata=labels, plaintext_footer=found[-1].plaintext_footer
    )
