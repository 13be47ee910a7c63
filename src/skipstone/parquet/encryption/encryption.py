"""Keys and choices for writing: what a user passes to encrypt files.

Keys are given directly, with metadata that says to readers which key it is; or a KMS wraps a random
data key per file and column (``key_material.py``). Only named columns stay plaintext: a column
without a key of its own is encrypted with the footer key.

``FileEncryptor`` encrypts one file: its data keys, its AAD, its crypto metadata, and its end.

    encrypted footer   PARE  modules  FileCryptoMetaData | module Footer       length  PARE
    plaintext footer   PAR1  modules  FileMetaData | nonce 12 | tag 16         length  PAR1

The metadata of a column is a separate module where a reader of the footer may lack its key: where
the column has its own key, and always in a plaintext footer. A plaintext footer also has redacted
metadata: places and sizes, and nothing about values.
"""

from __future__ import annotations

import os
from dataclasses import InitVar, dataclass, field, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from skipstone.errors import SkipstoneError
from skipstone.parquet.format.footer import MAGIC, MAGIC_ENCRYPTED
from skipstone.parquet.format.metadata import (
    AesGcmCtrV1,
    AesGcmV1,
    ColumnChunk,
    ColumnCryptoMetaData,
    ColumnMetaData,
    EncryptionAlgorithm,
    EncryptionWithColumnKey,
    FileCryptoMetaData,
    FileMetaData,
)
from skipstone.parquet.thrift.structs import Empty
from skipstone.predicate.types import column_name, column_path

from .column_decryptor import ColumnDecryptor
from .decryption import Decryption, check_aad_prefix, check_key, key_label
from .key_material import KeyMaterial, KeyReference, KmsClient, wrap_dek, write_key_material_file
from .modules import KEY_LENGTHS, CountedCipher, ModuleType, module_aad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


Algorithm: TypeAlias = Literal["AES_GCM_V1", "AES_GCM_CTR_V1"]
_ALGORITHMS: Final = get_args(Algorithm)
Path: TypeAlias = tuple[str, ...]
_UNIQUE_LENGTH: Final = 8


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Encryption:
    """How to encrypt files. Keys are 16, 24 or 32 bytes.

    With keys of your own: ``footer_key``, and ``column_keys`` by dotted column path (a group stands
    for the columns in it). ``footer_key_metadata`` and ``column_key_metadata`` are labels by which
    readers look up the keys. They are stored as plaintext: never put keys there.

    With a ``kms``: ``footer_key_id`` and ``column_key_ids`` name its master keys, and every file
    gets random data keys of ``data_key_bits``, wrapped as the key tools of parquet-java do.
    ``double_wrapping`` wraps them with a local key, which the master key wraps. Without
    ``internal_key_material`` the wrapped keys lie in a file next to the data file, where they can
    be wrapped again without touching it.

    ``algorithm``: ``AES_GCM_V1``, or ``AES_GCM_CTR_V1``, which does not detect altered pages.
    ``plaintext_footer``: schema and sizes can be read without a key, and are signed.
    ``plaintext_columns`` stay plaintext; with ``encrypt_others=False`` so does every column
    without a key of its own. ``aad_prefix`` names the file (bytes, or a function from its path),
    and is kept out of it with ``store_aad_prefix=False``: readers must then give it.

    A key may encrypt 2^32 modules. The count covers all files that are encrypted with one such
    object, and begins with the ``prior_invocations`` of each key.

    A repr names columns and sizes, never a key. Pickling includes the keys, so protect the pickle.
    A pickled copy has counts of its own.
    """

    footer_key: InitVar[bytes | None] = None
    column_keys: InitVar[Mapping[str, bytes] | None] = None
    footer_key_metadata: bytes | str | None = None
    column_key_metadata: Mapping[str, bytes | str] | None = None
    kms: KmsClient | None = None
    footer_key_id: str | None = None
    column_key_ids: Mapping[str, str] | None = None
    data_key_bits: int = 128
    double_wrapping: bool = True
    internal_key_material: bool = True
    kms_instance_id: str | None = None
    kms_instance_url: str | None = None
    algorithm: Algorithm = "AES_GCM_V1"
    plaintext_footer: bool = False
    plaintext_columns: Sequence[str] = ()
    encrypt_others: bool = True
    aad_prefix: bytes | Callable[[str], bytes] | None = None
    store_aad_prefix: bool = True
    prior_invocations: InitVar[int] = 0

    _ciphers: dict[bytes, CountedCipher] = field(init=False, default_factory=dict)
    _footer: CountedCipher | None = field(init=False, default=None)
    _columns: dict[Path, CountedCipher | str] = field(init=False, default_factory=dict)
    _metadata: dict[Path, bytes | None] = field(init=False, default_factory=dict)
    _plaintext: frozenset[Path] = field(init=False, default=frozenset())

    def __post_init__(
        self,
        footer_key: bytes | None,
        column_keys: Mapping[str, bytes] | None,
        prior_invocations: int,
    ) -> None:
        if self.algorithm not in _ALGORITHMS:
            raise ValueError(
                f"the algorithm is one of {', '.join(_ALGORITHMS)}, not {self.algorithm!r}"
            )
        if (footer_key is None) == (self.footer_key_id is None):
            raise ValueError("either footer_key or footer_key_id is needed")
        metadata = self.footer_key_metadata or self.column_key_metadata
        wrapped = bool(self.footer_key_id or self.column_key_ids)
        if wrapped and (footer_key or column_keys or metadata or self.kms is None):
            raise ValueError("key ids need a kms, and exclude keys and key metadata")
        if self.data_key_bits // 8 not in KEY_LENGTHS or self.data_key_bits % 8:
            raise ValueError(f"data_key_bits is 128, 192 or 256, not {self.data_key_bits}")
        check_aad_prefix(self.aad_prefix)
        found: dict[Path, CountedCipher | str] = {
            column_path(name): self._cipher(key, f"the key of column {name!r}", prior_invocations)
            for name, key in (column_keys or {}).items()
        }
        found |= {column_path(name): id for name, id in (self.column_key_ids or {}).items()}
        labels = {
            column_path(name): _bytes(value)
            for name, value in (self.column_key_metadata or {}).items()
        }
        if not set(labels) <= set(found):
            raise ValueError("column_key_metadata of a column without a key")
        plaintext = frozenset(map(column_path, self.plaintext_columns))
        if plaintext & set(found):
            raise ValueError("a column cannot have a key and be left in the clear")
        self._columns.update(found)
        self._metadata.update(labels)
        set_ = object.__setattr__
        set_(self, "_plaintext", plaintext)
        set_(self, "internal_key_material", self.internal_key_material or not wrapped)
        if footer_key is not None:
            set_(self, "_footer", self._cipher(footer_key, "the footer key", prior_invocations))

    def _cipher(self, key: object, name: str, invocations: int) -> CountedCipher:
        made = CountedCipher(check_key(key, name), invocations)
        # A key that is used twice is counted once.
        return self._ciphers.setdefault(made.reveal(), made)

    def __repr__(self) -> str:
        footer = f"footer_key_id={self.footer_key_id!r}" if self._footer is None else ""
        parts = [footer or f"footer_key={self._footer!r}"]
        if self._columns:
            parts.append(f"column keys of {', '.join(map(column_name, self._columns))}")
        return f"Encryption({', '.join(parts)}, {self.algorithm})"

    def __reduce__(self) -> tuple[object, ...]:
        given = {
            each.name: getattr(self, each.name) for each in fields(self) if each.name[0] != "_"
        }
        footer = None if self._footer is None else self._footer.reveal()
        given |= {"footer_key": footer, "column_keys": self._own_keys() or None}
        return _from_arguments, ({**given, "prior_invocations": self.invocations},)

    def replaced(self, **arguments: object) -> Encryption:
        """A copy with some arguments replaced; its keys continue from the counts of this object."""
        given = self.__reduce__()[1]
        assert isinstance(given, tuple)
        return _from_arguments({**given[0], **arguments})

    def _own_keys(self) -> dict[str, bytes]:
        return {
            column_name(path): key.reveal()
            for path, key in self._columns.items()
            if isinstance(key, CountedCipher)
        }

    def decryption(self) -> Decryption:
        """The keys that open the files of this ``Encryption``; they also allow plaintext files."""
        return Decryption(
            footer_key=None if self._footer is None else self._footer.reveal(),
            column_keys=self._own_keys(),
            kms=self.kms,
            aad_prefix=self.aad_prefix,
            allow_plaintext_files=True,
        )

    @property
    def invocations(self) -> int:
        """Modules that the most used key has encrypted; keys that a KMS wraps start at 0."""
        return max((each.invocations for each in self._ciphers.values()), default=0)

    def prefix_for(self, file: str) -> bytes | None:
        """The AAD prefix of a file."""
        prefix = self.aad_prefix(file) if callable(self.aad_prefix) else self.aad_prefix
        if prefix is not None and not prefix:
            raise ValueError("an AAD prefix is not empty")
        return prefix

    def key_of_footer(self) -> CountedCipher | None:
        """The footer key, where it is given directly."""
        return self._footer

    def key_of_column(self, path: Path) -> tuple[Path, CountedCipher | str] | None:
        """The key of a leaf or the nearest group around it, or the id of its master key; first the
        path that it was given for."""
        for length in range(len(path), 0, -1):
            key = self._columns.get(path[:length])
            if key is not None:
                return path[:length], key
        return None

    def metadata_of_footer(self) -> bytes | None:
        """The key metadata that goes with the footer key."""
        return _bytes(self.footer_key_metadata)

    def metadata_of_column(self, given: Path) -> bytes | None:
        """The key metadata that goes with the key of ``given``."""
        return self._metadata.get(given)

    def is_plaintext(self, path: Path) -> bool:
        """Whether a leaf stays plaintext: the nearest name around it decides."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._plaintext:
                return True
            if path[:length] in self._columns:
                return False
        return not self.encrypt_others

    def check_columns(self, leaves: Iterable[Path]) -> None:
        """``SkipstoneError`` where a name matches no column: the intended column would otherwise
        stay plaintext, or take another key."""
        known = {leaf[:length] for leaf in leaves for length in range(1, len(leaf) + 1)}
        for path in (*self._columns, *self._plaintext):
            if path not in known:
                names = sorted(map(column_name, known))
                near = get_close_matches(column_name(path), names, n=1)
                raise SkipstoneError(
                    f"there is no column {column_name(path)!r} to encrypt or to leave alone",
                    hint=f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}",
                )


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _from_arguments(arguments: dict[str, object]) -> Encryption:
    return Encryption(**arguments)  # type: ignore[arg-type]


class FileEncryptor:
    """Encrypts the file at ``file``. ``leaves`` are the paths of its columns.

    ``key_material_file`` is the content of the file at ``key_material_path``, ``None`` where none
    is needed. Raises ``SkipstoneError`` for keys of columns that do not exist,
    ``KeyUnavailableError`` where the KMS wraps no key.
    """

    def __init__(self, encryption: Encryption, leaves: tuple[Path, ...], file: str) -> None:
        encryption.check_columns(leaves)
        self.encryption, self.file = encryption, file
        prefix, unique = encryption.prefix_for(file), os.urandom(_UNIQUE_LENGTH)
        self.file_unique = unique
        self.file_aad = (prefix or b"") + unique
        self.ctr = encryption.algorithm == "AES_GCM_CTR_V1"
        stored = prefix if encryption.store_aad_prefix else None
        supply = prefix is not None and stored is None
        given: dict[str, Any] = {
            "aad_prefix": stored,
            "aad_file_unique": unique,
            "supply_aad_prefix": supply,
        }
        self.algorithm = (
            EncryptionAlgorithm(AES_GCM_CTR_V1=AesGcmCtrV1(**given))
            if self.ctr
            else EncryptionAlgorithm(AES_GCM_V1=AesGcmV1(**given))
        )
        self._entries: dict[str, KeyMaterial] = {}
        footer = encryption.key_of_footer()
        if footer is not None:
            self._footer, self.footer_key_metadata = footer, encryption.metadata_of_footer()
        else:
            self._footer, self.footer_key_metadata = self._wrapped(
                encryption.footer_key_id or "", "footerKey", is_footer_key=True
            )
        self._ciphers: dict[Path, CountedCipher] = {}
        self._crypto: dict[Path, ColumnCryptoMetaData] = {}
        for path in leaves:
            self._choose(path)

    def _choose(self, path: Path) -> None:
        encryption = self.encryption
        if encryption.is_plaintext(path):
            return
        own = encryption.key_of_column(path)
        if own is None:
            self._ciphers[path] = self._footer
            self._crypto[path] = ColumnCryptoMetaData(ENCRYPTION_WITH_FOOTER_KEY=Empty())
            return
        given, key = own
        if isinstance(key, str):
            reference = f"columnKey{len(self._entries) - 1}"
            cipher, metadata = self._wrapped(key, reference, is_footer_key=False)
        else:
            cipher, metadata = key, encryption.metadata_of_column(given) or b""
        self._ciphers[path] = cipher
        self._crypto[path] = ColumnCryptoMetaData(
            ENCRYPTION_WITH_COLUMN_KEY=EncryptionWithColumnKey(
                path_in_schema=path, key_metadata=metadata or None
            )
        )

    def _wrapped(
        self, master_key_id: str, reference: str, *, is_footer_key: bool
    ) -> tuple[CountedCipher, bytes]:
        """A new data key, and its key metadata."""
        encryption, key = self.encryption, os.urandom(self.encryption.data_key_bits // 8)
        assert encryption.kms is not None  # ids need a KMS
        material = wrap_dek(
            key,
            master_key_id,
            encryption.kms,
            double_wrapping=encryption.double_wrapping,
            is_footer_key=is_footer_key,
            kms_instance_id=encryption.kms_instance_id,
            kms_instance_url=encryption.kms_instance_url,
        )
        self._entries[reference] = material
        if encryption.internal_key_material:
            return CountedCipher(key), material.to_json()
        return CountedCipher(key), KeyReference(key_reference=reference).to_json()

    def __repr__(self) -> str:
        return f"<FileEncryptor of {self.file!r}, {self.encryption.algorithm}>"

    @property
    def magic(self) -> bytes:
        """The first and last bytes of the file."""
        return MAGIC if self.encryption.plaintext_footer else MAGIC_ENCRYPTED

    @property
    def key_material_file(self) -> bytes | None:
        """The file of wrapped keys, where they are not in the data file."""
        if self.encryption.internal_key_material or not self._entries:
            return None
        return write_key_material_file(self._entries)

    @property
    def key_kinds(self) -> dict[Path, str]:
        """ "footer key" or "column key" of the encrypted leaves."""
        return {
            path: "column key" if each.ENCRYPTION_WITH_COLUMN_KEY else "footer key"
            for path, each in self._crypto.items()
        }

    def column(self, path: Path, row_group: int, column: int) -> ColumnDecryptor | None:
        """Encrypts the modules of a chunk; ``None`` for a chunk that stays plaintext."""
        cipher = self._ciphers.get(path)
        if cipher is None:
            return None
        own = self._crypto[path].ENCRYPTION_WITH_COLUMN_KEY
        return ColumnDecryptor(
            cipher,
            self.file_aad,
            self.ctr,
            column_name(path),
            key_label(own.key_metadata if own else self.footer_key_metadata),
            row_group,
            column,
            self.file,
        )

    def separates_metadata(self, path: Path) -> bool:
        """Whether the metadata of a column's chunks are separate modules, encrypted once, and not
        part of the footer."""
        crypto = self._crypto.get(path)
        own = crypto is not None and crypto.ENCRYPTION_WITH_COLUMN_KEY is not None
        return own or (crypto is not None and self.encryption.plaintext_footer)

    def encrypt_chunk_metadata(
        self, chunk: ColumnChunk, path: Path, row_group: int, column: int
    ) -> ColumnChunk:
        """The chunk as the footer holds it, with encrypted metadata where they must be."""
        encryptor, meta = self.column(path, row_group, column), chunk.meta_data
        if encryptor is None or meta is None:
            return replace(chunk, crypto_metadata=None, encrypted_column_metadata=None)
        crypto, plaintext = self._crypto[path], self.encryption.plaintext_footer
        if not self.separates_metadata(path):
            return replace(chunk, crypto_metadata=crypto, encrypted_column_metadata=None)
        module = encryptor.encrypt(ModuleType.COLUMN_META_DATA, meta.to_bytes())
        return replace(
            chunk,
            meta_data=_redacted(meta) if plaintext else None,
            crypto_metadata=crypto,
            encrypted_column_metadata=module,
        )

    def described(self, metadata: FileMetaData) -> FileMetaData:
        """The metadata with the fields about encryption, which only a plaintext footer has."""
        plaintext = self.encryption.plaintext_footer
        return replace(
            metadata,
            encryption_algorithm=self.algorithm if plaintext else None,
            footer_signing_key_metadata=self.footer_key_metadata if plaintext else None,
        )

    def encrypt_footer(self, data: bytes) -> bytes:
        """The footer as stored: all bytes between the modules and the footer's length.

        ``data`` are the bytes of the ``FileMetaData`` from ``described``, whose chunks are those of
        ``encrypt_chunk_metadata``.
        """
        aad = module_aad(self.file_aad, ModuleType.FOOTER)
        if self.encryption.plaintext_footer:
            return data + self._footer.sign(data, aad)
        crypto = FileCryptoMetaData(
            encryption_algorithm=self.algorithm, key_metadata=self.footer_key_metadata
        )
        return crypto.to_bytes() + self._footer.encrypt_module(data, aad)


def _redacted(meta: ColumnMetaData) -> ColumnMetaData:
    """``meta`` with only places and sizes, with which readers without the key skip the chunk."""
    return replace(
        meta,
        key_value_metadata=None,
        statistics=None,
        encoding_stats=None,
        bloom_filter_offset=None,
        bloom_filter_length=None,
        size_statistics=None,
        geospatial_statistics=None,
        unknown=(),
    )
