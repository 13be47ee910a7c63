"""Wraps data keys with other master keys of a KMS: ``rekey``. No page is decrypted or moved.

If the wrapped keys are in a file of their own, only that file is written. If they are in the footer
of the data file, the footer is encrypted or signed again; all bytes before it stay as they are.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from skipstone._dataclasses import dataclass
from skipstone.errors import UnsupportedError
from skipstone.human import Report, duration, plural
from skipstone.identity import canonical_path
from skipstone.parquet.encryption.decryption import Decryption
from skipstone.parquet.encryption.file_decryptor import EncryptedFooter, FileDecryptor
from skipstone.parquet.encryption.key_material import (
    KeyMaterial,
    KeyReference,
    KmsClient,
    key_material_path,
    read_key_material_file,
    read_key_metadata,
    unwrap_dek,
    wrap_dek,
    write_key_material_file,
)
from skipstone.parquet.format.footer import Tail
from skipstone.parquet.format.metadata import ColumnChunk, FileMetaData
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.writing.file_writer import COPY_SIZE
from skipstone.storage.atomic_replace import local_path, remove_temporary, replace_atomically

from .encryption_checks import key_metadata_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from skipstone.parquet.encryption.modules import Cipher


@dataclass(frozen=True, slots=True, kw_only=True)
class RekeyReport(Report):
    """``keys`` counts the keys wrapped with ``master_keys``; ``written`` is the file of them."""

    path: str
    written: str
    keys: int
    master_keys: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.written}: {plural(self.keys, 'key')} wrapped with"
            f" {', '.join(self.master_keys)} in {duration(1000 * self.seconds)}"
        )


@dataclass(slots=True)
class _Wrapper:
    kms: KmsClient
    new_kms: KmsClient
    master_keys: Mapping[str, str]
    keks: dict[tuple[str, str], Cipher]
    #: the new key material by the old, since many chunks may name one data key
    made: dict[bytes, bytes]
    used: set[str]
    keys: int = 0

    def material(self, old: KeyMaterial) -> KeyMaterial:
        """The same data key, wrapped again."""
        key = unwrap_dek(old, self.kms, self.keks)
        master = self.master_keys.get(old.master_key_id, old.master_key_id)
        new = wrap_dek(
            key.reveal(),
            master,
            self.new_kms,
            double_wrapping=old.double_wrapping,
            is_footer_key=old.is_footer_key,
            kms_instance_id=old.kms_instance_id,
            kms_instance_url=old.kms_instance_url,
        )
        self.used.add(master)
        self.keys += 1
        return new

    def metadata(self, old: bytes | None) -> bytes | None:
        """Key metadata with its data key wrapped again; metadata without key material stays."""
        if not old:
            return old
        if old not in self.made:
            found = read_key_metadata(old)
            self.made[old] = (
                self.material(found).to_json() if isinstance(found, KeyMaterial) else old
            )
        return self.made[old]


def rekey(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    kms: KmsClient,
    new_kms: KmsClient | None = None,
    master_keys: Mapping[str, str] | None = None,
    aad_prefix: bytes | Callable[[str], bytes | None] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> RekeyReport:
    """Wrap the data keys of the file at ``path`` again.

    ``kms`` unwraps them, ``new_kms`` (by default the same) wraps them. ``master_keys`` maps old
    master keys to new ones; others stay. ``aad_prefix`` as for ``Decryption``. The file is changed
    in place, or copied to ``output``. Raises ``UnsupportedError`` if no key is wrapped: use
    ``encrypt`` with ``decryption`` for such files.
    """
    started = time.perf_counter()
    decryption = Decryption(kms=kms, aad_prefix=aad_prefix, allow_plaintext_files=True)
    file = ParquetFile(path, storage_options=storage_options, decryption=decryption)
    target = file.path if output is None else canonical_path(output)
    decryptor = file.chunk_pages.decryptor
    wrapper = _Wrapper(kms, new_kms or kms, master_keys or {}, {}, {}, set())
    if decryptor is None:
        raise UnsupportedError(f"{file.path} is not encrypted", hint="there is no key in it")
    if _has_key_file(file, decryptor):
        if target != file.path:
            raise UnsupportedError(
                f"the keys of {file.path} are in a file of their own",
                hint="wrap them in place",
            )
        written = _wrap_key_file(file, wrapper)
    else:
        end = _new_end(file, decryptor, wrapper)
        if not wrapper.keys:
            raise UnsupportedError(
                f"no KMS wraps the keys of {file.path}",
                hint="encrypt the file again: `skipstone encrypt` with the old keys as --keys",
            )
        with replace_atomically(local_path(target), sources=[file.path]) as out:
            for at in range(0, file.tail.offset, COPY_SIZE):
                length = min(COPY_SIZE, file.tail.offset - at)
                out.write(file.reader.one(file.path, at, length))
            out.write(end)
        written = target
    return RekeyReport(
        path=file.path,
        written=written,
        keys=wrapper.keys,
        master_keys=tuple(sorted(wrapper.used)),
        seconds=time.perf_counter() - started,
    )


def _wrap_key_file(file: ParquetFile, wrapper: _Wrapper) -> str:
    """Wrap the keys in the key material file again; its path."""
    storage, path = file.reader.storage, key_material_path(file.path)
    entries = read_key_material_file(storage.read(path))
    if not storage.remote:
        remove_temporary(local_path(path))
    wrapped = {name: wrapper.material(each) for name, each in entries.items()}
    storage.put(path, write_key_material_file(wrapped), [file.path])
    return path


def _has_key_file(file: ParquetFile, decryptor: FileDecryptor) -> bool:
    metadata = key_metadata_of(file, decryptor)
    return any(isinstance(read_key_metadata(each), KeyReference) for each in metadata)


def _new_end(file: ParquetFile, decryptor: FileDecryptor, wrapper: _Wrapper) -> bytes:
    """The bytes after the modules: the footer, its length, and the magic."""
    tail = file.tail
    data = file.reader.one(file.path, tail.offset, tail.length)
    if tail.encrypted:
        encrypted = EncryptedFooter.from_bytes(data, base=tail.offset)
        plain = decryptor.decrypt_footer(encrypted.module, base=encrypted.offset)
        metadata = _rewrapped(FileMetaData.from_bytes(plain), wrapper)
        crypto = replace(
            encrypted.crypto, key_metadata=wrapper.metadata(encrypted.crypto.key_metadata)
        )
        footer = crypto.to_bytes() + decryptor.encrypt_footer(metadata.to_bytes())
    else:
        decryptor.verify_signature(data, file.footer.end, base=tail.offset)
        metadata = _rewrapped(FileMetaData.from_bytes(data), wrapper)
        metadata = replace(
            metadata,
            footer_signing_key_metadata=wrapper.metadata(metadata.footer_signing_key_metadata),
        )
        written = metadata.to_bytes()
        footer = written + decryptor.sign_footer(written)
    return footer + Tail.behind(footer, tail.offset, encrypted=tail.encrypted).to_bytes()


def _rewrapped(metadata: FileMetaData, wrapper: _Wrapper) -> FileMetaData:
    def chunk(old: ColumnChunk) -> ColumnChunk:
        crypto = old.crypto_metadata
        own = None if crypto is None else crypto.ENCRYPTION_WITH_COLUMN_KEY
        if crypto is None or own is None:
            return old
        own = replace(own, key_metadata=wrapper.metadata(own.key_metadata))
        return replace(old, crypto_metadata=replace(crypto, ENCRYPTION_WITH_COLUMN_KEY=own))

    groups = [
        replace(each, columns=tuple([chunk(old) for old in each.columns]))
        for each in metadata.row_groups
    ]
    return replace(metadata, row_groups=tuple(groups))
