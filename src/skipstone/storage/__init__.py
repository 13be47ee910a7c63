"""Where bytes are stored: list, read ranges, put. One protocol for local files, object stores and
Hadoop's filesystems.

Paths are canonical and absolute (``/data/t/a b.parquet``, ``s3://bucket/t/x``), so a ``ByteRange``
means the same to every caller.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from skipstone.identity import canonical_path, is_hadoop

from .base import ByteRange, Storage, coalesce, remove_left_overs
from .listing import Listing, hidden_by_spark, int64
from .local import LocalStorage

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

__all__ = [
    "ByteRange",
    "Listing",
    "LocalStorage",
    "Storage",
    "coalesce",
    "full_path",
    "hidden_by_spark",
    "int64",
    "list_files",
    "needs_session",
    "open_storage",
    "remove_left_overs",
    "storage_options",
    "table_format",
]

_PAIMON_SCHEMA: Final = re.compile(r"schema-\d+")
# ``v3.metadata.json`` in Iceberg's Hadoop catalog, ``00003-<uuid>.metadata.json`` in others.
_ICEBERG_METADATA: Final = re.compile(r"(?:v\d+|\d+-.*?)(?:\.gz)?\.metadata\.json(?:\.gz)?")


def open_storage(path: str, options: Mapping[str, str] | None = None) -> Storage:
    """The storage of ``path``; ``options`` are those of an object store (``ObjectStorage``) or of
    HDFS (``webhdfs.py``)."""
    if "://" not in (canonical := canonical_path(path)):
        return LocalStorage()
    if _through_hadoop(canonical, options):
        from .hadoop import hadoop_storage

        return hadoop_storage(canonical, options or {})
    from .objects import ObjectStorage

    return ObjectStorage.at(canonical, storage_options(canonical, options))


def _through_hadoop(path: str, options: Mapping[str, str] | None) -> bool:
    """Whether Hadoop reads the canonical ``path``. It also reads ``oss://`` and ``obs://`` if no
    options are given and there is a session, whose configuration may name the store."""
    if is_hadoop(path):
        return True
    if options or not path.startswith(("oss://", "obs://")):
        return False
    from .session import active_session

    return active_session() is not None


def storage_options(path: str, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """``options``; without any, those of an object store by the configuration of this process's
    Spark session. Spark's workers need them, because they have no session."""
    canonical = canonical_path(path)
    if options or "://" not in canonical or _through_hadoop(canonical, options):
        return dict(options or {})
    from .session import active_session, options_of_session

    session = active_session()
    return {} if session is None else options_of_session(session, canonical)


def needs_session(path: str, options: Mapping[str, str] | None = None) -> bool:
    """Whether only a process with a Spark session reaches ``path``: Spark's workers do not."""
    canonical = canonical_path(path)
    if not _through_hadoop(canonical, options):
        return False
    from .hadoop import hadoop_storage, has_libhdfs

    return not has_libhdfs() and hadoop_storage(canonical, options or {}).files.needs_session


def full_path(path: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> str:
    """The canonical ``path``, with the authority that Hadoop gives to one that has none
    (``hdfs:///t``)."""
    canonical = canonical_path(path)
    if not is_hadoop(canonical) or not canonical.partition("://")[2].startswith("/"):
        return canonical
    from .hadoop import hadoop_storage

    return canonical_path(hadoop_storage(canonical, options or {}).files.qualified(canonical))


def list_files(root: str, options: Mapping[str, str] | None = None) -> Listing:
    """The data files below ``root`` by Spark's rules (``listing.py``), sorted by path.

    Raises ``SkipstoneError`` when there is no such directory, or a part of it cannot be listed.
    """
    return open_storage(root, options).list_files(canonical_path(root))


def table_format(root: str, storage: Storage, top: frozenset[str] | None = None) -> str | None:
    """The name of the table format if ``root`` is a table of Delta Lake, Apache Hudi, Apache
    Iceberg or Apache Paimon, else ``None``.

    Their directories hold files that are no longer part of the table. Reading all Parquet files
    would give wrong rows. ``top`` is that of a listing of ``root``, which saves requests.
    """

    def has(name: str) -> bool:
        return storage.has_children(f"{root}/{name}") if top is None else f"{name}/" in top

    if has("_delta_log"):
        return "Delta Lake"
    if has(".hoodie"):
        return "Apache Hudi"
    if has("metadata"):
        names = storage.list_all(f"{root}/metadata").paths
        if any(_ICEBERG_METADATA.fullmatch(name.rpartition("/")[2]) for name in names):
            return "Apache Iceberg"
    if has("schema"):
        names = storage.list_all(f"{root}/schema").paths
        if any(_PAIMON_SCHEMA.fullmatch(name.rpartition("/")[2]) for name in names):
            return "Apache Paimon"
    return None
