"""Encrypted fact parts: Parquet modular encryption, as Xskipper encrypts its store.

    column                              label of its key
    an index                            its own (``key_metadata``), or the footer's
    the null counts of a column         that of an index over it, or the footer's
    obj_name and all of ``OWN``         the footer's

Labels are master keys: each part has random data keys, wrapped under them, as the key tools of
parquet-java write them; so each column is encrypted with a data key of its label that no other part
has. What is encrypted how stands in the metadata of ``obj_name`` of Spark's schema, as in the store
of Xskipper, and in the same words under ``encryption`` in our own document.

The name of a part is the hash of its footer as it lies there, encrypted or signed, so a part is
checked without a key; with one, every module is authenticated. A part in the clear among encrypted
ones is not believed: where keys are given, whoever has none could have put it there.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.parquet.encryption.decryption import Decryption
from skipstone.parquet.encryption.master_keys import arrow_decryption, arrow_encryption
from skipstone.parquet.encryption.open_footer import DecryptedFooter, open_footer
from skipstone.xskipper.format.encryption import Encryption
from skipstone.xskipper.format.part import footer_key_label

from .encrypted_storage import SealedStorage
from .parts import Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.storage import Storage

    from .index_encryption import Sealing
    from .part_columns import FactField

__all__ = ["SealedFooter", "SealedPart", "encryption_in", "open_sealed", "seal_part"]


@dataclass(frozen=True, slots=True, repr=False)
class SealedFooter:
    """An encrypted or signed footer that was opened as far as there are keys; ``properties`` are
    Arrow's."""

    opened: DecryptedFooter
    properties: Any


def seal_part(
    sealing: Sealing,
    fields: Sequence[FactField],
    leaves: Sequence[str],
    document: dict[str, object],
) -> tuple[Any, Mapping[str, Any]]:
    """What Arrow needs to encrypt a part of these leaves, and the metadata of ``obj_name``.

    The document of the part learns how it is encrypted. ``KeyUnavailableError`` where a label that
    is needed has no key.
    """
    footer = sealing.encryption.footer_key
    labels = {field.arrow.name: field.key_metadata or footer for field in fields}
    column_keys: dict[str, list[str]] = {}
    for path in leaves:
        # A leaf's path begins with its column's name, which may itself hold dots.
        named = max((n for n in labels if f"{path}.".startswith(f"{n}.")), key=len, default="")
        column_keys.setdefault(labels.get(named, footer), []).append(path)
    plaintext = sealing.encryption.plaintext_footer
    described = Encryption.of(footer, column_keys, plaintext_footer=plaintext).to_json()
    document["encryption"] = described
    properties = arrow_encryption(sealing.keys, footer, column_keys, plaintext_footer=plaintext)
    return properties, {"encryption": described}


def encryption_in(document: Mapping[str, Any]) -> Encryption:
    """What the document of a part says of its encryption."""
    found = Encryption.from_json(document.get("encryption"))
    if found is None:
        raise FormatError("an encrypted part does not say how")
    return found


def open_sealed(
    footer: bytes, path: str, keys: LabelledKeys | None, *, encrypted: bool
) -> SealedFooter:
    """Open the footer of the part at ``path``; ``encrypted`` is whether its magic is PARE.

    ``UnsupportedError`` for a part in the clear where keys are given; ``KeyUnavailableError`` where
    they do not open an encrypted footer; ``FormatError`` for one that was altered.
    """
    decryption = Decryption(allow_plaintext_files=True) if keys is None else Decryption(kms=keys)
    try:
        opened = open_footer(footer, encrypted=encrypted, decryption=decryption, file=path)
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
        label = footer_key_label(footer + len(footer).to_bytes(4, "little") + b"PARE")
        named = "" if label is None else f" with the key labelled {label!r}"
        raise KeyUnavailableError(
            f"encrypted{named}, and no keys for the index were given",
            hint="open the table with index_keys",
        ) from None
    return SealedFooter(opened, None if keys is None else arrow_decryption(keys))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SealedPart(Part):
    """An encrypted part whose footer was opened."""

    sealed: SealedFooter

    @classmethod
    def of(cls, part: Part, sealed: SealedFooter, encryption: Encryption) -> SealedPart:
        """``part`` as Arrow's metadata tell of it, with what opens its columns."""
        known = {each.name: getattr(part, each.name) for each in fields(Part)}
        return cls(**{**known, "encryption": encryption}, sealed=sealed)

    def __repr__(self) -> str:
        return f"SealedPart({self.name!r})"

    def locked(self, name: str) -> SkipstoneError | None:
        """Why a column cannot be decrypted, ``None`` where it can."""
        for leaf in self.sealed.opened.footer.schema.leaves:
            if f"{'.'.join(leaf.path)}.".startswith(f"{name}."):
                found = self.sealed.opened.unavailable.get(leaf.ordinal)
                if found is not None:
                    return found
        return None

    def _column_bytes(self) -> Mapping[str, int]:
        # Arrow ends the process when it is asked about a chunk whose key is not there.
        footer = self.sealed.opened.footer
        sizes = footer.chunk("total_compressed_size").clip(0).sum(axis=0).tolist()
        found: dict[str, int] = {}
        for leaf, size in zip(footer.schema.leaves, sizes, strict=True):
            found[leaf.path[0]] = found.get(leaf.path[0], 0) + size
        return found

    def filled(self, name: str) -> None:
        """Unknown: the counts lie in metadata that Arrow must not be asked about."""

    def reader(self, file: Any, storage: Storage) -> pq.ParquetFile:
        """The open part for Arrow, by the footer that was checked, which holds the keys: what lies
        there now may be another part, and Arrow's key tools believe one in the clear."""
        return pq.ParquetFile(
            file,
            metadata=self.metadata,
            page_checksum_verification=True,
            pre_buffer=storage.remote,
        )

    def read(self, storage: Storage, names: Sequence[str]) -> pa.Table:
        """As ``Part.read``; ``KeyUnavailableError`` where one of the columns is locked."""
        for name in names:
            error = self.locked(name)
            if error is not None:
                raise error
        below = storage.storage if isinstance(storage, SealedStorage) else storage
        return super().read(below, names)
