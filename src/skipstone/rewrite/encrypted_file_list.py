"""The list of the encrypted files of a table, by which a missing file is detected.

    /data/events            /data/_events.encrypted

An AAD prefix detects a file that replaces another one. Only a list detects a missing file.
The list is a Parquet file with one row per data file, encrypted with the footer key of the table:

    path              binary   below the table's directory, in UTF-8
    aad_file_unique   binary   the value of the file at its encryption; null until then

The AAD prefix of the list is that of the empty path: the beginning of all prefixes of the table,
and "/". Both columns are authenticated. So only a holder of the key can remove a file from the
list, or replace a file by an older version of it. The list is written before the first file is
encrypted, with the name of the table, and again after the last. Files that others add to the table
are on the list only after they are encrypted, too.

The AAD prefix of a file binds it to its table and to its place there:

    prefix = beginning | "/" | path of the file below the table's directory

``beginning`` names the table and nothing else: a name that the user gives, or a generated one
(``new_beginning``). It holds no path, so that a table may be moved or copied whole. The path below
the directory is the listed one, in UTF-8, with "/" between its parts. A file that replaces another,
of this table or of one with another beginning, has another prefix than expected, and does not open.
Other readers open such files if the prefix is stored in them; if not, the reader must be given it.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError
from skipstone.facts.location import Location
from skipstone.identity import canonical_path
from skipstone.parquet.reading.file import ParquetFile
from skipstone.storage import open_storage

from .encrypt_file import encrypt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.encryption import Encryption


_SUFFIX: Final = ".skipstone"
_COLUMNS: Final = ("path", "aad_file_unique")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedFileList:
    """``files`` maps a path below the directory to its unique part, empty if not yet known."""

    beginning: bytes
    files: Mapping[str, bytes] = field(default_factory=dict)


def list_path(table: str) -> str:
    """The path of the list of ``table``: next to it, hidden from readers of the directory."""
    return Location.of_table(table).root.removesuffix(_SUFFIX) + ".encrypted"


def read_list(
    table: str,
    decryption: Decryption,
    storage_options: Mapping[str, str] | None = None,
) -> EncryptedFileList | None:
    """The list, or ``None`` if the table has none.

    Raises ``KeyUnavailableError``, ``AuthenticationError`` for other keys, ``FormatError`` for a
    list of another form, or of another table than ``decryption.aad_prefix`` names.
    """
    path = list_path(table)
    if not open_storage(path, storage_options).exists(path):
        return None
    keys = decryption
    if isinstance(keys.aad_prefix, TablePrefix):
        keys = keys.replaced(aad_prefix=keys.aad_prefix.of(""))
    elif isinstance(keys.aad_prefix, bytes):
        keys = keys.replaced(aad_prefix=keys.aad_prefix + b"/")
    else:
        keys = keys.replaced(aad_prefix=None)
    file = ParquetFile(
        path,
        storage_options=storage_options,
        decryption=keys.replaced(allow_plaintext_files=False),
    )
    decryptor = file.chunk_pages.decryptor
    given = keys.aad_prefix if isinstance(keys.aad_prefix, bytes) else None
    if decryptor is None or not decryptor.encrypted_footer:
        # A footer that is only signed may name another key as its signing key.
        raise FormatError("not a list of the encrypted files of a table", file=path)
    prefix = decryptor.algorithm.aad_prefix or given
    if prefix is None or not prefix.endswith(b"/") or len(prefix) < 2:
        raise FormatError("not a list of the encrypted files of a table", file=path)
    for reason in file.unavailable.values():
        raise reason
    if tuple(file.schema.names) != _COLUMNS:
        raise FormatError("not a list of the encrypted files of a table", file=path)
    rows = file.query()
    return EncryptedFileList(
        beginning=prefix[:-1],
        files=dict(
            zip(
                [each.decode("utf-8", "surrogateescape") for each in rows["path"].to_pylist()],
                [bytes(each or b"") for each in rows["aad_file_unique"].to_pylist()],
                strict=True,
            )
        ),
    )


def write_list(table: str, found: EncryptedFileList, encryption: Encryption) -> None:
    """Replace the list atomically. It is encrypted with the footer key of ``encryption``, or with
    a key that its KMS wraps."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = sorted(found.files)
    rows = pa.table(
        {
            "path": pa.array([os.fsencode(each) for each in paths], pa.binary()),
            "aad_file_unique": pa.array([found.files[each] or None for each in paths], pa.binary()),
        }
    )
    own = encryption.replaced(
        column_keys=None,
        column_key_metadata=None,
        column_key_ids=None,
        plaintext_columns=(),
        plaintext_footer=False,
        encrypt_others=True,
        internal_key_material=True,
        algorithm="AES_GCM_V1",
        aad_prefix=found.beginning + b"/",
    )
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "list.parquet"
        pq.write_table(rows, plain)  # only paths, which any listing shows
        encrypt(str(plain), list_path(table), encryption=own)


def remove_list(table: str) -> None:
    """Remove the list, when no file of the table is encrypted any more."""
    path = list_path(table)
    open_storage(path).delete(path)


class TablePrefix:
    """Maps the path of a file to its prefix. ``aad_prefix`` of keys may be one. It pickles."""

    __slots__ = ("beginning", "root")

    def __init__(self, root: str, beginning: bytes | str) -> None:
        self.root = canonical_path(root)
        self.beginning = beginning.encode() if isinstance(beginning, str) else bytes(beginning)
        if not self.beginning:
            raise ValueError("the beginning of a table's AAD prefixes is empty")

    def __repr__(self) -> str:
        return f"TablePrefix({self.root!r}, {self.beginning!r})"

    def __call__(self, path: str) -> bytes:
        return self.of(self.relative(path))

    def of(self, relative: str) -> bytes:
        """The prefix of the file at a path below the directory."""
        return self.beginning + b"/" + relative.encode("utf-8", "surrogateescape")

    def relative(self, path: str) -> str:
        """The path below the directory; ``SkipstoneError`` for a file that is not below it."""
        found = canonical_path(path)
        if not found.startswith(f"{self.root}/"):
            raise SkipstoneError(
                f"{path} is not below {self.root}, so it has no AAD prefix",
                hint="name the table that it belongs to",
            )
        return found[len(self.root) + 1 :]


def unbound(prefix: object) -> bytes | None:
    """The beginning of a table's prefixes, if ``aad_prefix`` of its keys has it."""
    if isinstance(prefix, TablePrefix):
        return prefix.beginning
    return prefix if isinstance(prefix, bytes) else None


def bound_to(root: str, prefix: object, beginning: bytes | None) -> object:
    """``aad_prefix`` for the files of one table; a function of the user's is returned as it is."""
    if callable(prefix) and not isinstance(prefix, TablePrefix):
        return prefix
    name = unbound(prefix) or beginning
    return None if name is None else TablePrefix(root, name)


def new_beginning(root: str) -> bytes:
    """A unique name for a table: the name of its directory, and 8 random bytes."""
    name = canonical_path(root).rpartition("/")[2].encode("utf-8", "surrogateescape")
    return name + b"-" + os.urandom(8).hex().encode()
