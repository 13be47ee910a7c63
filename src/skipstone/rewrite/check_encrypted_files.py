"""Checks that each file of an encrypted table lies at its own path, and that no file is missing.

| change to the table | how the check finds it |
|---|---|
| a file replaces another file of this table | its AAD prefix names the other path |
| a file of another table, or of a renamed copy | its AAD prefix has another beginning |
| a plaintext file replaces an encrypted one | it is not encrypted |
| an older version of a file replaces the file | the list has another ``aad_file_unique`` for it |
| a file is missing | it is on the list, or an index has facts of it |
| a file made with another key, or an altered footer | it does not authenticate |
| an older list replaces the list | not found: the list has no age |

The check opens the footer of each file and reads no page. Pages are bound to the file of their
footer by the same AAD, and are authenticated when they are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError
from skipstone.facts.reports import EncryptionCheck
from skipstone.parquet.reading.file import ParquetFile

from .encrypted_file_list import TablePrefix, read_list
from .file_jobs import bound_to, unbound

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.storage import Listing

    from .encrypted_file_list import EncryptedFileList


class _Seen(NamedTuple):
    kind: str
    text: str = ""
    unique: bytes = b""
    prefix: bytes = b""


def check_encrypted_files(
    table: str,
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
            seen = {
                path: each
                if each.kind != "encrypted" or each.prefix == place(path)
                else _Seen("misplaced", _says(each.prefix))
                for path, each in seen.items()
            }
    found: dict[str, list[str]] = {}
    any_encrypted = known is not None or any(each.kind != "plaintext" for each in seen.values())
    for path, each in seen.items():
        kind, text = each.kind, each.text
        if kind == "plaintext" and not any_encrypted:
            continue
        if known is not None and kind == "encrypted":
            kind = _against(known, relative[path], each)
        name = f"{relative[path]}: {text}" if text else relative[path]
        found.setdefault(kind, []).append(name)
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
        why = error.message if isinstance(error, SkipstoneError) else str(error)
        why = why.removeprefix(f"{path}: ")
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
