"""Names in an Xskipper store: columns, table identifiers, directories, rows.

Columns, by version of the store (``c'`` is a cleaned column name, all lower case)::

    0      c1:c2:...:cn _ kind                                   "a:b_someindex"
    1      c1_c2_..._cn _ kind                                   "a_b_someindex"
    2-4    c'1_c'2_..._c'n _ kind _ len(c'1)-...-len(c'n)        "temp_minmax_4"

Cleaning replaces ``#`` by ``##`` and then ``.`` by ``$#$``, so it can be undone. The published text
prints the formula of version 2 without the ``_``; its own example and every real file have them.
Lengths are Java's: UTF-16 code units, so a character beyond U+FFFF counts two.

Partition columns (version 4) are ``virtual_<column>``, the name as the table has it.

The table identifier gives the directory its name: ``<base>/<sha256_hex(identifier)>/``. The
original has two rules, and neither distinguishes two buckets of S3. Skipstone adds a third and
publishes under it by default::

    style     file:/a/t   s3a://b/a/t   cos://b.service/a/t
    path      /a/t        /a/t          /a/t            the original's default
    cos       /a/t        /a/t          cos://b/a/t     the original's IBMCOSIdentifier
    bucket    /a/t        s3://b/a/t    cos://b/a/t     Skipstone's: distinguishes buckets

Paths are raw, as Hadoop's ``Path`` prints them: neither blanks nor ``%2F`` are coded or decoded.
The service of ``cos://<bucket>.<service>/`` is the part after the last dot of the host.

A row is named ``<path>#<modification time in ms>`` (``obj_name``), the path by the same style.

Source: the published specification of the Parquet metadata store, versions 0 to 4, and files
written by releases of Xskipper.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from skipstone.errors import UnsupportedError
from skipstone.identity import canonical_path

if TYPE_CHECKING:
    from collections.abc import Sequence


CURRENT_VERSION = 4
OBJ_NAME = "obj_name"
VIRTUAL_PREFIX = "virtual_"

IdentifierStyle: TypeAlias = Literal["path", "cos", "bucket"]

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?://([^/]*))?(/.*|)", re.DOTALL)


def clean(column: str) -> str:
    """A column name as it goes into the name of an index column: one to one, lower case."""
    return column.lower().replace("#", "##").replace(".", "$#$")


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def column_name(kind: str, columns: Sequence[str], version: int = CURRENT_VERSION) -> str:
    """The name of the column of an index of ``kind`` over ``columns``, in a store of ``version``.

    ``UnsupportedError`` for a version above 4, ``ValueError`` for no columns or a negative version.
    """
    if not columns or version < 0:
        raise ValueError(
            f"an index needs a column and a version from 0 on, not {columns!r}, {version}"
        )
    if version > CURRENT_VERSION:
        raise UnsupportedError(f"version {version} of an Xskipper store: 4 is the newest known")
    kind = kind.lower()
    if version < 2:
        delimiter = "_" if version else ":"
        return f"{delimiter.join(column.lower() for column in columns)}_{kind}"
    cleaned = [clean(column) for column in columns]
    lengths = "-".join(str(_java_length(name)) for name in cleaned)
    return f"{'_'.join(cleaned)}_{kind}_{lengths}"


def virtual_name(column: str) -> str:
    """The name of the column that holds a partition column's values."""
    return VIRTUAL_PREFIX + column


def table_identifier(uri: str, style: IdentifierStyle = "bucket") -> str:
    """The identifier of the table at ``uri`` (a raw Hadoop path or URI), without a trailing ``/``.

    ``style``: see the table above. The original computes ``path`` and ``cos``: use them for a
    directory that the original must find by itself. A table of a catalog has no URI here: its
    identifier is the text ``db.table``.
    """
    match = _URI.fullmatch(uri)
    if match is None or match.group(1).lower() == "file":
        # The original takes one "/" from the end, so the root's identifier is empty.
        return canonical_path(uri).removesuffix("/")
    scheme, authority, path = match.group(1).lower(), match.group(2) or "", match.group(3)
    path = re.sub("/{2,}", "/", path).removesuffix("/")
    if style == "path" or not authority:
        return path
    if scheme == "cos":
        container, dot, _service = authority.rpartition(".")
        return f"cos://{container if dot and container else authority}{path}"
    return path if style == "cos" else canonical_path(f"{scheme}://{authority}{path}")


def file_identifier(uri: str, style: IdentifierStyle = "path") -> str:
    """The path part of ``obj_name`` for the data file at ``uri``.

    The default is the original's: a published row must have the original's path, or it would never
    match. A store of IBMCOSIdentifier needs ``cos``.
    """
    return table_identifier(uri, style)


def directory_name(identifier: str) -> str:
    """The name of the directory of a table's metadata: 64 hexadecimal digits."""
    import hashlib

    return hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()


_STYLES: tuple[IdentifierStyle, ...] = ("bucket", "cos", "path")


def directory_names(table: str) -> list[str]:
    """The names under which the metadata of a table may lie, by all rules for identifiers."""
    found = dict.fromkeys(table_identifier(table, style) for style in _STYLES)
    return [directory_name(each) for each in found]


def obj_name(path: str, mtime_ms: int) -> str:
    """The name of the row of a data file: its raw path, and its time in ms since the epoch."""
    return f"{path}#{mtime_ms}"
