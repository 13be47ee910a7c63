"""From the bytes of a footer, encrypted or not, to its arrays. Every reader opens footers here.

An encrypted footer is decrypted; the signature of a plaintext footer is verified where its key is
available. Then ``encrypted_column_metadata`` is decrypted for every column whose key is available.
In a plaintext footer an encrypted column has both that and a ``meta_data`` without statistics; in
an encrypted footer it has only the former. If one chunk of a column cannot be decrypted, the column
stays as it was, with the reason: reading the column raises it, and other columns still read.

``describe_encryption`` reports what an encrypted file shows without its keys, and what the given
keys opened.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.human import Report
from skipstone.parquet.format.footer import read_footer
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.footer_layout import BYTES, NARROW, PARTS, UNENCODED
from skipstone.parquet.format.footer_scan import LONGEST, scan_one
from skipstone.parquet.format.metadata import ColumnCryptoMetaData
from skipstone.parquet.thrift.compact import Reader
from skipstone.predicate.types import column_name

from .modules import Buffer, ModuleType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .column_decryptor import ColumnDecryptor
    from .decryption import Decryption
    from .file_decryptor import FileDecryptor


class DecryptedFooter(NamedTuple):
    """An opened footer; ``decryptor`` is ``None`` if the file is not encrypted.

    ``unavailable`` says by leaf ordinal why a column cannot be decrypted: raise it when the column
    is read. ``signature_verified`` is about plaintext footers.
    """

    footer: FooterArrays
    decryptor: FileDecryptor | None = None
    unavailable: Mapping[int, SkipstoneError] = MappingProxyType({})
    signature_verified: bool = False


def open_footer(
    data: bytes | memoryview,
    *,
    encrypted: bool,
    base: int = 0,
    decryption: Decryption | None = None,
    file: str | None = None,
    load_key_material: Callable[[], bytes] | None = None,
) -> DecryptedFooter:
    """Open ``data``, the bytes before the last 8 bytes of a file.

    ``encrypted`` is whether the magic is PARE (``Tail.encrypted``); ``base`` is where ``data``
    begins in the file; ``load_key_material`` as for ``FileDecryptor``. Raises
    ``KeyUnavailableError`` where the footer is encrypted and its key or AAD prefix was not given;
    ``FormatError`` where it is damaged, altered, belongs to another file, or is not encrypted
    although keys were given. Where the key that signs a plaintext footer was not given, columns
    whose keys were given must be encrypted.
    """
    if encrypted:
        from .file_decryptor import FileDecryptor

        decryptor, plain, offset = FileDecryptor.open_encrypted(
            data, decryption, base=base, file=file, load_key_material=load_key_material
        )
        footer, unavailable = _decrypt_columns(FooterArrays.scan(plain, offset), decryptor)
        return DecryptedFooter(footer, decryptor, unavailable)
    footer = FooterArrays.scan(data, base)
    algorithm = footer.encryption_algorithm
    if algorithm is None and decryption is None:
        return DecryptedFooter(footer)
    from .file_decryptor import FileDecryptor

    signer = FileDecryptor.of_plaintext_footer(
        decryption,
        algorithm,
        footer.footer_signing_key_metadata,
        file=file,
        load_key_material=load_key_material,
    )
    if signer is None:
        return DecryptedFooter(footer)
    verified = signer.verify_if_possible(data, footer.end, base=base)
    footer, unavailable = _decrypt_columns(footer, signer)
    if not verified:
        unavailable |= _untrusted_columns(footer, decryption, file)
    return DecryptedFooter(footer, signer, unavailable, verified)


def _untrusted_columns(
    footer: FooterArrays, decryption: Decryption | None, file: str | None
) -> dict[int, SkipstoneError]:
    """Columns that must not be read with a plaintext footer whose signature was not verified.

    Anybody can write such a footer. So it cannot declare a column plaintext whose key was given:
    those columns are returned with their reasons, by leaf ordinal. ``FormatError`` where keys were
    given and no column is encrypted: that is a plaintext file.
    """
    if decryption is None or not decryption.has_keys or decryption.allow_plaintext_files:
        return {}
    encrypted = footer.chunk("encrypted") == 1
    if encrypted.size and not encrypted.any():
        raise FormatError(
            "keys were given, but no column is encrypted, and the key that signs the footer is not"
            " among them",
            file=file,
            hint="pass it as footer_key; if this is intended, pass"
            " allow_plaintext_files=True with the keys",
        )
    return {
        leaf.ordinal: FormatError(
            f"the key of column {leaf.name!r} was given, but the column is not encrypted, and the"
            " key that signs the footer was not given",
            file=file,
            hint="pass it as footer_key, or leave out the key of the column",
        )
        for leaf in footer.schema.leaves
        if decryption.key_of_column(leaf.path) is not None and not encrypted[:, leaf.ordinal].all()
    }


# -- columns ---------------------------------------------------------------------------------------


def crypto_of(footer: FooterArrays, row_group: int, leaf: int) -> ColumnCryptoMetaData | None:
    """The crypto metadata of a chunk, ``None`` if it is not encrypted."""
    return footer.column_chunk(row_group, leaf).crypto_metadata


def chunk_decryptor(
    footer: FooterArrays, decryptor: FileDecryptor, row_group: int, leaf: int
) -> ColumnDecryptor | None:
    """The decryptor of a chunk, by its place in the footer; ``None`` if it is not encrypted.

    Raises as ``FileDecryptor.column``.
    """
    return decryptor.column(
        footer.schema.leaves[leaf].path,
        _ordinal(footer, row_group),
        leaf,
        crypto_of(footer, row_group, leaf),
    )


def _ordinal(footer: FooterArrays, row_group: int) -> int:
    ordinal = int(footer.group("ordinal")[row_group])
    return row_group if ordinal == -1 else ordinal


def _decrypt_columns(
    footer: FooterArrays, decryptor: FileDecryptor
) -> tuple[FooterArrays, dict[int, SkipstoneError]]:
    """The footer with all column metadata that have a key, and why others have none, by leaf."""
    adopted: dict[tuple[int, int], bytes] = {}
    unavailable: dict[int, SkipstoneError] = {}
    encrypted = footer.chunk("encrypted") == 1
    crypto_at = footer.parts("crypto_metadata")
    module_at, module_length = footer.places("encrypted_column_metadata")
    view = memoryview(footer.data)
    for leaf in np.flatnonzero(encrypted.any(axis=0)).tolist():
        path, found = footer.schema.leaves[leaf].path, {}
        raw, column = b"", None
        try:
            for row_group in np.flatnonzero(encrypted[:, leaf]).tolist():
                at, ordinal = int(crypto_at[row_group, leaf]), _ordinal(footer, row_group)
                # Known writers use one key per column in all row groups.
                if not raw or footer.data[at : at + len(raw)] != raw:
                    reader = Reader(view, at, base=footer.base)
                    crypto = ColumnCryptoMetaData.read(reader)
                    raw = footer.data[at : reader.at]
                    column = decryptor.column(path, ordinal, leaf, crypto)
                at = int(module_at[row_group, leaf])
                if column is not None and at >= 0:
                    module = view[at : at + int(module_length[row_group, leaf])]
                    found[row_group, leaf] = replace(column, row_group_ordinal=ordinal).decrypt(
                        ModuleType.COLUMN_META_DATA, module, base=footer.base + at
                    )
        except (KeyUnavailableError, FormatError, UnsupportedError) as error:
            # The traceback would keep buffers and ciphers alive as long as the reason.
            unavailable[leaf] = error.with_traceback(None)
        else:
            adopted |= found
    return adopt(footer, adopted), unavailable


# The slots of ColumnMetaData. Places in it are shifted to where its bytes are appended.
_ADOPTED_WIDE = range(UNENCODED + 1)
_BOUNDS = ("max", "min", "max_value", "min_value")
_ADOPTED_VALUES = (
    *(NARROW[each] for each in ("codec", "bloom_filter_length", "dict_only")),
    *(NARROW[each] for each in ("is_max_value_exact", "is_min_value_exact")),
    *(BYTES[each] + 1 for each in _BOUNDS),
)
_ADOPTED_PLACES = (
    *(BYTES[each] for each in _BOUNDS),
    *(slot for name, slot in PARTS.items() if name != "crypto_metadata"),
)


def adopt(footer: FooterArrays, decrypted: Mapping[tuple[int, int], bytes]) -> FooterArrays:
    """``footer`` with the decrypted ``ColumnMetaData`` bytes of chunks (row group, leaf) filled in.

    They replace the plaintext metadata of these chunks.
    """
    if not decrypted:
        return footer
    wide, narrow = footer.scanned.wide.copy(), footer.scanned.narrow.copy()
    pieces, total = [footer.data], len(footer.data)
    for (r, c), piece in decrypted.items():
        row = footer.row_of(r, c)
        if total + len(piece) > LONGEST:
            raise UnsupportedError("column metadata of more than 2 GiB")
        mine, small = scan_one(piece, int(footer.scanned.types[c]), f"row group {r}, column {c}")
        for slot in _ADOPTED_WIDE:
            wide[slot, row] = mine[slot]
        for slot in _ADOPTED_VALUES:
            narrow[slot, row] = small[slot]
        for slot in _ADOPTED_PLACES:
            narrow[slot, row] = small[slot] + total if small[slot] else 0
        pieces.append(piece)
        total += len(piece)
    return FooterArrays(
        data=b"".join(pieces),
        base=footer.base,
        scanned=replace(footer.scanned, wide=wide, narrow=narrow),
        adopted=footer.adopted | set(decrypted),
        selected=footer.selected,
    )


# -- open files ----------------------------------------------------------------------------------


def open_footer_of(
    source: BinaryIO, path: str, decryption: Decryption | None
) -> tuple[DecryptedFooter, int]:
    """The footer of an open file, and the file's size; errors as ``open_footer``."""
    tail, footer = read_footer(source)
    opened = open_footer(
        footer,
        encrypted=tail.encrypted,
        base=tail.offset,
        decryption=decryption,
        file=path,
    )
    return opened, tail.size


def encrypted_leaves(
    source: BinaryIO, path: str, decryption: Decryption | None
) -> list[tuple[str, ...]]:
    """The leaves that a file encrypts; errors as ``open_footer``."""
    footer = open_footer_of(source, path, decryption)[0].footer
    encrypted = np.asarray((footer.chunk("encrypted") > 0).any(axis=0))
    return [leaf.path for leaf in footer.schema.leaves if encrypted[leaf.ordinal]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedColumn(Report):
    """One encrypted column. ``key`` is "footer key" or "column key"; ``unavailable`` says why the
    column cannot be read, ``None`` if it can."""

    column: str
    key: str
    key_label: str | None
    unavailable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionDescription(Report):
    """What is known of a file's encryption; ``columns`` is ``None`` where the footer hides them.

    ``aad_prefix`` is "stored", "to be supplied" or "none"; ``signature`` of a plaintext footer is
    "verified" or "not verified"; the labels are those of ``key_label``.
    """

    algorithm: str
    footer: str
    footer_key_label: str | None
    aad_prefix: str
    stored_aad_prefix: bytes | None = None
    signature: str | None = None
    columns: tuple[EncryptedColumn, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; the stored prefix as text where it is UTF-8, as hex otherwise."""
        found = Report.to_dict(self)
        if self.stored_aad_prefix is not None:
            found["stored_aad_prefix"] = _readable(self.stored_aad_prefix)
        for name in ("stored_aad_prefix", "signature", "columns"):
            if found[name] is None:
                del found[name]
        return found


def describe_encrypted_footer(
    data: Buffer, *, base: int = 0, file: str | None = None
) -> EncryptionDescription:
    """The plaintext parts of a file whose footer is encrypted and whose footer key is missing.

    ``data`` is what lies before the last 8 bytes, beginning at ``base`` of the file.
    """
    from .file_decryptor import EncryptedFooter, FileDecryptor

    crypto = EncryptedFooter.from_bytes(data, base=base).crypto
    algorithm, metadata = crypto.encryption_algorithm, crypto.key_metadata
    return describe_encryption(
        FileDecryptor(None, algorithm, metadata, encrypted_footer=True, file=file)
    )


def describe_encryption(
    decryptor: FileDecryptor,
    footer: FooterArrays | None = None,
    *,
    unavailable: Mapping[int, SkipstoneError] | None = None,
    signature_verified: bool = False,
) -> EncryptionDescription:
    """The encryption of one file; ``footer`` is given where it is plaintext or was decrypted.

    A column's key is that of its first encrypted chunk. ``unavailable`` is that of ``open_footer``.
    """
    from .decryption import key_label

    algorithm = decryptor.algorithm
    if algorithm.aad_prefix is not None:
        prefix = "stored"
    else:
        prefix = "to be supplied" if algorithm.supply_aad_prefix else "none"
    signature = None
    if not decryptor.encrypted_footer:
        signature = "verified" if signature_verified else "not verified"
    return EncryptionDescription(
        algorithm=decryptor.algorithm_name,
        footer="encrypted" if decryptor.encrypted_footer else "plaintext, signed",
        footer_key_label=key_label(decryptor.key_metadata),
        aad_prefix=prefix,
        stored_aad_prefix=algorithm.aad_prefix,
        signature=signature,
        columns=None if footer is None else _columns(footer, decryptor, unavailable or {}),
    )


def _columns(
    footer: FooterArrays, decryptor: FileDecryptor, unavailable: Mapping[int, SkipstoneError]
) -> tuple[EncryptedColumn, ...]:
    from .decryption import key_label

    encrypted = footer.chunk("encrypted") == 1
    found = []
    for leaf in np.flatnonzero(encrypted.any(axis=0)).tolist():
        crypto = crypto_of(footer, int(np.argmax(encrypted[:, leaf])), leaf)
        own = crypto and crypto.ENCRYPTION_WITH_COLUMN_KEY
        reason = unavailable.get(leaf)
        found.append(
            EncryptedColumn(
                column=column_name(footer.schema.leaves[leaf].path),
                key="column key" if own else "footer key",
                key_label=key_label(own.key_metadata if own else decryptor.key_metadata),
                unavailable=None if reason is None else reason.message,
            )
        )
    return tuple(found)


def _readable(value: bytes) -> str:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()
