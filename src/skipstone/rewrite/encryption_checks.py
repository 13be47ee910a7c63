"""Checks how the files of a table are encrypted, by their footers alone.

``encryption_state`` finds whether a file is already encrypted as requested. It tries keys instead
of comparing them: the footer, or its signature, authenticates with the footer key and the AAD
prefix, the metadata of columns with the column keys. It compares the algorithm, the kind of footer,
the key labels, and the kind of key of each column.

``check_encrypted_files`` checks that each file lies at its own path, and that none is missing.

| change to the table | how the check finds it |
|---|---|
| a file replaces another file of this table | its AAD prefix names the other path |
| a file of another table, or of a renamed copy | its AAD prefix has another beginning |
| a plaintext file replaces an encrypted one | it is not encrypted |
| an older version of a file replaces the file | the list has another ``aad_file_unique`` for it |
| a file is missing | it is on the list, or an index has facts of it |
| a file made with another key, or an altered footer | it does not authenticate |
| an older list replaces the list | not detected: the list has no version |

Pages are bound to the file of their footer by the same AAD, and are authenticated when they are
read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError, in_words
from skipstone.facts.reports import EncryptionCheck
from skipstone.parquet.encryption.key_material import (
    KeyMaterial,
    KeyReference,
    key_material_path,
    read_key_material_file,
    read_key_metadata,
)
from skipstone.parquet.encryption.open_footer import crypto_of
from skipstone.parquet.reading.file import ParquetFile

from .encrypted_file_list import EncryptedFileList, TablePrefix, bound_to, read_list, unbound

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.encryption import Encryption
    from skipstone.parquet.encryption.file_decryptor import FileDecryptor
    from skipstone.storage import Listing


class _Seen(NamedTuple):
    kind: str
    text: str = ""
    unique: bytes = b""
    prefix: bytes = b""


def check_encrypted_files(
    listing: Listing,
    decryption: Decryption,
    *,
    orphaned: Iterable[str] = (),
    storage_options: Mapping[str, str] | None = None,
) -> EncryptionCheck:
    """Open the footer of every file of ``listing``, and compare them with the list of the files.

    ``decryption.aad_prefix`` is the beginning of the table's prefixes, or a function from a file to
    its prefix. Without it the beginning comes from the list, else from most of the files.
    ``orphaned`` are the paths of missing files that an index has facts of. Raises
    ``SkipstoneError`` if the list does not open.
    """
    root, notes = listing.root, []
    known = _list(root, decryption, storage_options)
    asked = unbound(decryption.aad_prefix)
    beginning = asked or (None if known is None else known.beginning)
    prefix = bound_to(root, decryption.aad_prefix, beginning)
    seen = {
        path: _seen(path, decryption.replaced(aad_prefix=prefix), storage_options)
        for path in listing.paths
    }
    place = TablePrefix(root, beginning or b"-")
    relative = {path: place.relative(path) for path in listing.paths}
    if prefix is None:
        beginning = _usual(seen, relative)
        if beginning is None and any(each.kind == "encrypted" for each in seen.values()):
            notes.append("the AAD prefixes of the files name neither a table nor a path")
        elif beginning is not None:
            place = TablePrefix(root, beginning)
            seen = {path: _at(each, place(path)) for path, each in seen.items()}
    any_encrypted = known is not None or any(each.kind != "plaintext" for each in seen.values())
    found = _by_kind({relative[path]: each for path, each in seen.items()}, known)
    if not any_encrypted:
        found = {}
    gone = set() if known is None else set(known.files) - set(relative.values())
    if any_encrypted:
        gone |= {place.relative(path) for path in orphaned if path.startswith(f"{place.root}/")}
        if known is None:
            notes.append(
                "there is no list of the encrypted files: a missing file is found only if an index"
                " has facts of it"
            )
    return EncryptionCheck(
        files_total=len(listing),
        encrypted=sum(len(found.get(kind, ())) for kind in ("encrypted", "unlisted", "unfinished")),
        aad_prefix=beginning,
        listed=known is not None,
        misplaced=tuple(found.get("misplaced", ())),
        plaintext=tuple(found.get("plaintext", ())),
        absent=tuple(sorted(gone)),
        replaced=tuple(found.get("replaced", ())),
        unlisted=tuple(found.get("unlisted", ())),
        unfinished=tuple(found.get("unfinished", ())),
        unopened=tuple(found.get("unopened", ())),
        notes=tuple(notes),
    )


def _by_kind(seen: Mapping[str, _Seen], known: EncryptedFileList | None) -> dict[str, list[str]]:
    """The files by their state, each with its text."""
    found: dict[str, list[str]] = {}
    for name, each in seen.items():
        kind = each.kind
        if known is not None and kind == "encrypted":
            kind = _against(known, name, each)
        found.setdefault(kind, []).append(f"{name}: {each.text}" if each.text else name)
    return found


def _at(seen: _Seen, prefix: bytes) -> _Seen:
    """The same file, which is misplaced if it has another prefix."""
    if seen.kind != "encrypted" or seen.prefix == prefix:
        return seen
    return _Seen("misplaced", _says(seen.prefix))


def _list(
    root: str, decryption: Decryption, storage_options: Mapping[str, str] | None
) -> EncryptedFileList | None:
    try:
        return read_list(root, decryption, storage_options)
    except (FormatError, KeyUnavailableError) as error:
        raise SkipstoneError(
            f"the list of the encrypted files does not open: {error.message}",
            hint="check the keys and the AAD prefix; if both are right, it was tampered with",
        ) from None


def _against(known: EncryptedFileList, name: str, each: _Seen) -> str:
    if name not in known.files:
        return "unlisted"
    if not known.files[name]:
        return "unfinished"
    return "encrypted" if known.files[name] == each.unique else "replaced"


def _seen(path: str, decryption: Decryption, storage_options: Mapping[str, str] | None) -> _Seen:
    """Open the footer of one file with these keys, and classify the file."""
    keys = decryption.replaced(allow_plaintext_files=True)
    try:
        file = ParquetFile(path, storage_options=storage_options, decryption=keys)
        decryptor = file.chunk_pages.decryptor
        if decryptor is None:
            return _Seen("plaintext")
        for reason in file.unavailable.values():
            return _Seen("unopened", reason.message)
        if not decryptor.encrypted_footer and not file.signature_verified:
            return _Seen("unopened", "the key that signs its footer was not given")
        unique = decryptor.algorithm.aad_file_unique or b""
        return _Seen("encrypted", "", unique, decryptor.algorithm.aad_prefix or b"")
    except (FormatError, KeyUnavailableError, OSError) as error:
        why = in_words(error, path)
    if keys.aad_prefix is not None:
        # It may open with the prefix stored in it: then it is a valid file of another path.
        other = _seen(path, keys.replaced(aad_prefix=None), storage_options)
        if other.kind == "encrypted":
            return _Seen("misplaced", _says(other.prefix))
    return _Seen("unopened", why)


def _says(prefix: bytes) -> str:
    shown = prefix.decode("utf-8", "backslashreplace")
    return f"its AAD prefix is {shown}" if prefix else "it has no AAD prefix"


def _usual(seen: Mapping[str, _Seen], relative: Mapping[str, str]) -> bytes | None:
    """The most common beginning of prefixes that end with the path of their own file."""
    counts: dict[bytes, int] = {}
    for path, each in seen.items():
        tail = b"/" + relative[path].encode("utf-8", "surrogateescape")
        if each.kind == "encrypted" and each.prefix.endswith(tail):
            name = each.prefix[: -len(tail)]
            counts[name] = counts.get(name, 0) + 1
    return max(counts, key=lambda name: (counts[name], name)) if counts else None


State: TypeAlias = Literal["plain", "same", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionState:
    """How the encryption of a file compares with the one requested.

    ``other`` is a file that is encrypted differently, or does not open with these keys; ``why``
    has the reason. ``aad_file_unique`` is the unique part of the AAD of a file in state ``same``.
    """

    state: State
    why: str = ""
    size: int = 0
    aad_file_unique: bytes = b""


def encryption_state(path: str, encryption: Encryption) -> EncryptionState:
    """The state of a file. Wrong keys and bad files are a state; ``OSError`` and others raise."""
    try:
        file = ParquetFile(path, decryption=encryption.decryption())
        decryptor = file.chunk_pages.decryptor
        if decryptor is None:
            return EncryptionState(state="plain", size=file.size)
        why = _difference(file, decryptor, encryption)
    except (FormatError, KeyUnavailableError) as error:
        return EncryptionState(state="other", why=error.message)
    unique = decryptor.algorithm.aad_file_unique or b""
    return EncryptionState(
        state="other" if why else "same", why=why, size=file.size, aad_file_unique=unique
    )


def _difference(file: ParquetFile, decryptor: FileDecryptor, encryption: Encryption) -> str:
    for reason in file.unavailable.values():
        return reason.message
    if decryptor.algorithm_name != encryption.algorithm:
        return f"it is encrypted with {decryptor.algorithm_name}"
    if decryptor.encrypted_footer == encryption.plaintext_footer:
        return f"its footer is {'encrypted' if decryptor.encrypted_footer else 'in the clear'}"
    if not decryptor.encrypted_footer and not file.signature_verified:
        return "the signature of its footer was not verified"
    prefix, stored = encryption.prefix_for(file.path), decryptor.algorithm.aad_prefix
    if stored != (prefix if encryption.store_aad_prefix else None):
        return f"its AAD prefix is {'stored in it' if stored else 'not stored in it'}"
    return _keys_differ(file, decryptor, encryption)


def _keys_differ(file: ParquetFile, decryptor: FileDecryptor, encryption: Encryption) -> str:
    materials = _Materials(file)
    if encryption.footer_key_id is None:
        if decryptor.key_metadata != encryption.metadata_of_footer():
            return "its footer key has another label"
    elif why := materials.differ(decryptor.key_metadata, encryption.footer_key_id, encryption):
        return f"its footer key {why}"
    footer = file.footer
    encrypted = footer.chunk("encrypted") == 1
    for leaf in footer.schema.leaves if footer.num_row_groups else ():
        plaintext = encryption.is_plaintext(leaf.path)
        if np.any(encrypted[:, leaf.ordinal] == plaintext):
            return f"column {leaf.name!r} is {'encrypted' if plaintext else 'in the clear'}"
        if plaintext:
            continue
        crypto = crypto_of(footer, 0, leaf.ordinal)
        own = None if crypto is None else crypto.ENCRYPTION_WITH_COLUMN_KEY
        given = encryption.key_of_column(leaf.path)
        if (own is None) != (given is None):
            return f"column {leaf.name!r} has {'no' if own is None else 'a'} key of its own"
        if own is None or given is None:
            continue
        if not isinstance(given[1], str):
            if own.key_metadata != encryption.metadata_of_column(given[0]):
                return f"the key of column {leaf.name!r} has another label"
        elif why := materials.differ(own.key_metadata, given[1], encryption):
            return f"the key of column {leaf.name!r} {why}"
    return ""


class _Materials:
    """Reads the key material of a file, inside the file or from its key material file."""

    def __init__(self, file: ParquetFile) -> None:
        self.file = file
        self._entries: Mapping[str, KeyMaterial] | None = None

    def of(self, metadata: bytes | None) -> tuple[KeyMaterial | None, bool]:
        """The material, and whether it is stored in the file itself."""
        found = read_key_metadata(metadata) if metadata else None
        if not isinstance(found, KeyReference):
            return found, True
        if self._entries is None:
            data = self.file.reader.storage.read(key_material_path(self.file.path))
            self._entries = read_key_material_file(data)
        return self._entries.get(found.key_reference), False

    def differ(self, metadata: bytes | None, master_key_id: str, encryption: Encryption) -> str:
        """How the wrapping of a key differs from the one requested; empty if it does not."""
        material, internal = self.of(metadata)
        if material is None:
            return "is not wrapped by a KMS"
        if material.master_key_id != master_key_id:
            return f"is wrapped with master key {material.master_key_id!r}"
        if material.double_wrapping != encryption.double_wrapping:
            return f"is wrapped {'twice' if material.double_wrapping else 'once'}"
        if internal != encryption.internal_key_material:
            return f"is stored {'in' if internal else 'next to'} the file"
        return ""


def key_metadata_of(file: ParquetFile, decryptor: FileDecryptor) -> set[bytes]:
    """The metadata of all keys of a file: of the footer's, and of the columns' own."""
    found = {decryptor.key_metadata}
    for row_group in range(file.footer.num_row_groups):
        for leaf in file.footer.schema.leaves:
            crypto = file.footer.column_chunk(row_group, leaf.ordinal).crypto_metadata
            own = crypto and crypto.ENCRYPTION_WITH_COLUMN_KEY
            found.add(own.key_metadata if own else None)
    return {each for each in found if each}


def master_keys_of(file: ParquetFile) -> set[str]:
    """The master keys that wrap the data keys of an opened file; empty if there are none."""
    decryptor, materials = file.chunk_pages.decryptor, _Materials(file)
    if decryptor is None:
        return set()
    found = [materials.of(each)[0] for each in key_metadata_of(file, decryptor)]
    return {each.master_key_id for each in found if each is not None}
