"""Paimon's sidecars (``x.parquet.index``) in transparent reading.

Spark reads ``x.parquet.index`` as data, and fails. So a user names the data files of such a
directory, by a pattern or one by one, and the sidecars are searched there:

- ``pathGlobFilter``: the directories are listed again, without the pattern;
- roots that are files (Spark expands ``dir/*.parquet``): beside each of them.

No other relation costs a request.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import numpy as np

from skipstone.errors import SkipstoneError
from skipstone.identity import ObjectId
from skipstone.paimon.adjacent_index import AdjacentIndexes, without_sidecars
from skipstone.storage import Listing, open_storage

from .jvm import Jvm

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from skipstone.paimon.adjacent_index import AdjacentRows
    from skipstone.storage import Storage

    from .relation import RelationInfo


_LOG = logging.getLogger("skipstone")
_FILTER = "pathGlobFilter"
# Hadoop's patterns cannot negate a text: names that differ from .index in one of the last letters.
_NO_INDEX = "{*[^x],*[^e]x,*[^d]ex,*[^n]dex,*[^i]ndex,*[^.]index}"
# Most files that are checked one by one in an object store; of more, folders are listed.
_FEW = 64
_SUFFIX = ".index"


class ListedSidecars:
    """The sidecars of one relation, and the opened ones."""

    def __init__(self, relation: RelationInfo) -> None:
        self.relation = relation
        self.storage = open_storage(relation.roots[0])
        self.beside = AdjacentIndexes(self.storage)

    @classmethod
    def of(cls, relation: RelationInfo) -> ListedSidecars | None:
        """``None`` where the relation cannot have any, or has none now."""
        if relation.format != "parquet" or not relation.roots:
            return None
        try:
            found = cls(relation)
            return found if found._around() else None
        except (SkipstoneError, OSError) as error:
            _LOG.debug("no sidecars of %s: %s", ", ".join(relation.roots), error)
            return None

    def find(self, files: Listing) -> Mapping[str, ObjectId]:
        """The sidecars of these files, by path of the file."""
        try:
            others = self._around()
        except (SkipstoneError, OSError) as error:
            _LOG.warning("sidecars are not used: %s", error)
            return {}
        if not others:
            return {}
        known = set(files.paths)
        ids = [id for id in others if id.path not in known]
        entries = [ObjectId(path=path, size=0, mtime=0) for path in files.paths]
        listed = Listing.of(files.root, [*entries, *ids])
        rest, found = without_sidecars(listed)
        return {rest.paths[at]: id for at, id in found.items()}

    def rows_of(
        self, files: Listing, sidecars: Mapping[str, ObjectId], columns: Iterable[str]
    ) -> AdjacentRows:
        """The evidence about columns over ``files``, an argument of ``find``."""
        return self.beside.rows_of(files, columns, sidecars=sidecars)

    def _around(self) -> list[ObjectId]:
        """The files named like sidecars around the relation's files now."""
        options = {key.lower() for key in self.relation.options}
        if _FILTER.lower() in options:
            return [id for root in self.relation.roots for id in _below(self.storage, root)]
        return self._of_roots(self.relation.roots)

    def _of_roots(self, roots: tuple[str, ...]) -> list[ObjectId]:
        if not self.storage.remote or len(roots) <= _FEW:
            return _stats(self.storage, roots)
        some = [roots[at] for at in np.linspace(0, len(roots) - 1, 16).astype(int).tolist()]
        if not _stats(self.storage, some):
            return []
        folders = {root.rpartition("/")[0] for root in roots}
        return [id for folder in sorted(folders) for id in _below(self.storage, folder)]


def _below(storage: Storage, folder: str) -> list[ObjectId]:
    listing = storage.list_files(folder)
    named = [at for at, path in enumerate(listing.paths) if path.endswith(_SUFFIX)]
    return [listing.object_id(at) for at in named]


def _stats(storage: Storage, roots: Iterable[str]) -> list[ObjectId]:
    def stat(root: str) -> ObjectId | None:
        try:
            return storage.stat(root + _SUFFIX)
        except OSError:
            return None

    if not storage.remote:
        return [id for root in roots if (id := stat(root)) is not None]
    with ThreadPoolExecutor(max_workers=8) as pool:
        return [id for id in pool.map(stat, roots) if id is not None]


class TableWithSidecars(Protocol):
    """A table whose directory may hold sidecars (``skipstone.Table``)."""

    @property
    def file_format(self) -> PlainReading:
        """How its files are read."""

    def has_sidecars(self) -> bool:
        """Whether there are any beside its files now."""


class PlainReading(Protocol):
    """Reads a table as Spark does by itself."""

    def frame(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """All of its files."""


def plain_frame(
    table: TableWithSidecars, spark: SparkSession, options: Mapping[str, str]
) -> DataFrame:
    """The table as plain Spark reads it without sidecars; ``options`` of the reader."""
    try:
        frame = table.file_format.frame(spark, options)
    except Exception:  # Spark may have taken the schema of a sidecar
        if not table.has_sidecars():
            raise
        return table.file_format.frame(spark, without_sidecars_option(table, options))
    if _lists_sidecars(frame, spark):
        return table.file_format.frame(spark, without_sidecars_option(table, options))
    return frame


def without_sidecars_option(table: TableWithSidecars, options: Mapping[str, str]) -> dict[str, str]:
    """``options`` with a filter that hides sidecars from Spark, if the table has any."""
    if any(key.lower() == _FILTER.lower() for key in options) or not table.has_sidecars():
        return dict(options)
    return {**options, _FILTER: _NO_INDEX}


def _lists_sidecars(frame: DataFrame, spark: SparkSession) -> bool:
    """Whether Spark lists a file named like a sidecar; the names stay in the JVM."""
    jvm = Jvm.of(spark)
    files = jvm.type("scala.collection.immutable.ArraySeq").unsafeWrapArray(frame._jdf.inputFiles())
    text = jvm.type("scala.collection.mutable.StringBuilder")()
    return int(files.addString(text, "", "\n", "\n").indexOf(f"{_SUFFIX}\n")) >= 0
