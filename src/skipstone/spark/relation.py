"""A file relation of a plan: its attributes and files in Spark, and its ``Pruner``.

Spark lists files and reads predicates. A pruner matches the listing with its facts, once per file
index, and decides per predicate; ``file_index`` knows only this protocol.

**The files** come from one text. Local files: Spark's URIs are fetched in one call, and the
attributes from the file system, so that facts are matched with the current versions (``of_local``).
Elsewhere ``mkString`` of Spark's ``FileStatus`` objects brings path, length and modification time
of every file in one call, with a random separator between them (``storage/file_status.py``). A text
that does not parse raises ``ListingError``, and every file is read.

**The fingerprint of a CSV, JSON or ORC relation.** A Parquet file stores typed values; in these
formats the reader determines them. Indexed as int and queried as string, ``'10' < '2'`` differs
from ``10 < 2``; in another time zone the same text is another instant. So the facts of such a table
carry a SHA-256 over

- the format, and the major version of Spark;
- the schema of the files: names, types, metadata, in order (CSV goes by position), without
  nullability and comments;
- every reader option that may change values, names in lower case;
- the settings of the session that change how the reader parses a record.

Under another fingerprint the facts are not used. The parse mode is left out: only a file without
malformed records has facts, so the mode changes nothing. The name of the corrupt record column
counts only if the schema has that column.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from urllib.parse import unquote

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.identity import canonical_path, encode_uri
from skipstone.storage.file_status import FileStatuses

from .versions import setting_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from skipstone.predicate.tree import Expr
    from skipstone.pruning import Reason


#: Setting: bytes of fact columns that one predicate may load on the driver. Beyond it, a Spark job
#: evaluates them.
FACTS_MEMORY = "spark.skipstone.facts.memory"

#: Setting: ``false`` to ignore Paimon's file indexes.
FILE_INDEX = "spark.skipstone.file-index.read.enabled"

#: Setting: whether the DataFrames of a session skip (``enable``).
ENABLED = "spark.skipstone.enabled"

#: Setting: where indexes lie that are not next to their table: one location, or a JSON object.
INDEX_LOCATION = "spark.skipstone.index.location"

#: Property of a table in the catalog: where its index lies.
INDEX_PROPERTY = "skipstone.index.location"

#: Settings of the log of scans: ``text`` or ``json``, and a local file for JSON lines.
LOG_FORMAT = "spark.skipstone.log.format"
LOG_FILE = "spark.skipstone.log.file"

#: Settings under which Spark reads values that differ from the indexed ones, each with its harmless
#: value. Spark reads them when a query runs.
HARMLESS = {
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """The session's settings that change the meaning of a query, at planning time.

    ``confs`` are those that were made, and all of ``HARMLESS``.
    """

    time_zone: str
    case_sensitive: bool
    confs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationInfo:
    """A file relation of a plan. Schemas are Spark's JSON.

    ``roots`` are canonical paths as the user named them: the table, a folder in it, single files.
    ``index_location`` is that of the table's properties in the catalog.
    ``settings`` returns the session's settings that change values, for formats that need them.
    """

    roots: tuple[str, ...]
    format: str
    options: Mapping[str, str]
    schema: str
    data_schema: str
    partition_schema: str
    table: str | None = None
    index_location: str | None = None
    confs: Mapping[str, str] | None = None
    settings: Callable[[], Mapping[str, str]] | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Pruning:
    """What a pruner decided: ``keep`` (bool over the listing), and its report, a ``Plan``."""

    keep: NDArray[np.bool_]
    report: Any = None


class Pruner(Protocol):
    """Prunes the files of a relation.

    An exception makes the scan read every file, with its text as the reason.
    """

    @property
    def notes(self) -> tuple[Reason, ...]:
        """Reasons that every scan shows, also one without a predicate."""
        return ()

    def before_listing(self) -> None:
        """Raises, and so fails the query, where no list of files gives the right rows."""
        return

    def match(self, listing: FileListing) -> object:
        """The listing joined with the facts, which ``prune`` receives. Once per listing."""

    def same_as(self, other: Pruner, matched: object | None) -> bool:
        """True where the answers of ``other``, which has matched its listing, are those of this one
        now."""
        return False

    def prune(self, matched: object, predicate: Expr, settings: ReadSettings) -> Pruning:
        """Which files may hold a row for which ``predicate`` is TRUE; unknown ones are kept."""

    def still_valid(
        self, matched: object, indices: NDArray[np.int64], now: FileStats | None
    ) -> NDArray[np.bool_]:
        """For each of these files, which are to be skipped: is its fact about this version?

        ``now`` are their attributes in the local file system, in the order of ``indices``; ``None``
        for files elsewhere.
        """


#: finds the index of a relation, at its roots or any folder above them; ``None`` without one
FindPruner: TypeAlias = "Callable[[RelationInfo], Pruner | None]"


#: formats that get the object level through Spark
FORMATS = ("csv", "json", "orc")

CORRUPT_NAME = "spark.sql.columnNameOfCorruptRecord"
_SESSION_ZONE = "spark.sql.session.timeZone"
#: not a setting: the zone in which ORC's reader shows a timestamp that was written in another one
JVM_ZONE = "user.timezone"

# Options about the selection of files, speed, inference (the schema contains its result), and
# malformed records (there are none). In lower case; every other option counts.
_HARMLESS = frozenset(
    {
        "__globpaths__",
        "basepath",
        "columnnameofcorruptrecord",
        "columnpruning",
        "ignorecorruptfiles",
        "ignoremissingfiles",
        "inferschema",
        "inputbuffersize",
        "mergeschema",
        "mode",
        "modifiedafter",
        "modifiedbefore",
        "path",
        "pathglobfilter",
        "paths",
        "prefersdate",
        "primitivesasstring",
        "recursivefilelookup",
        "samplingratio",
        "serialization.format",
    }
)
_TEXT_SETTINGS = (
    "spark.sql.ansi.enabled",
    "spark.sql.legacy.timeParserPolicy",
)
_SETTINGS: dict[str, tuple[str, ...]] = {
    "csv": (*_TEXT_SETTINGS, "spark.sql.legacy.csv.enableDateTimeParsingFallback"),
    "json": (
        *_TEXT_SETTINGS,
        "spark.sql.caseSensitive",
        # Whether 1.0E3 and {"a": 1.50}, read as a string, stay as they are written.
        "spark.sql.json.enableExactStringParsing",
        "spark.sql.legacy.json.allowEmptyString.enabled",
        "spark.sql.legacy.json.enableDateTimeParsingFallback",
    ),
    "orc": (
        "spark.sql.orc.impl",
        "spark.sql.caseSensitive",
        # The session's Hadoop settings apply to the reader too, under either name.
        "orc.force.positional.evolution",
        "spark.hadoop.orc.force.positional.evolution",
        "orc.proleptic.gregorian.default",
        "spark.hadoop.orc.proleptic.gregorian.default",
    ),
}


def session_settings(session: SparkSession, format: str) -> dict[str, str]:
    """The settings of ``session`` that ``fingerprint`` uses, set or default."""
    found = {}
    for key in (*_SETTINGS[format], CORRUPT_NAME, _SESSION_ZONE):
        value = setting_of(session.conf.get, key)
        if value is not None:
            found[key] = value
    found[JVM_ZONE] = _jvm_zone(session)
    found["spark"] = session.version.partition(".")[0]
    return found


def _jvm_zone(session: SparkSession) -> str:
    jvm = getattr(session, "_jvm", None) if hasattr(session, "_jsparkSession") else None
    if jvm is not None:
        return str(jvm.java.time.ZoneId.systemDefault().toString())
    # Spark Connect: only the server has it, as the value of an expression.
    row = session.sql("SELECT java_method('java.time.ZoneId', 'systemDefault')").first()
    return str(row[0]) if row is not None else ""


def fingerprint(
    format: str, options: Mapping[str, str], data_schema: str, settings: Mapping[str, str]
) -> str:
    """The fingerprint as 64 hexadecimal digits; see the module.

    ``data_schema`` is Spark's JSON of the columns that the files have (partition columns are none);
    ``settings`` is what ``session_settings`` returns.
    """
    lower = {key.lower(): value for key, value in options.items()}
    schema = _bare(json.loads(data_schema))
    names = {field["name"].lower() for field in schema["fields"]}
    counted = [*_SETTINGS[format], "spark"]
    if format == "orc":
        if _mentions(schema, "timestamp"):
            counted.append(JVM_ZONE)
    elif "timezone" not in lower and (_mentions(schema, "timestamp") or _mentions(schema, "date")):
        counted.append(_SESSION_ZONE)
    corrupt = lower.get("columnnameofcorruptrecord", settings.get(CORRUPT_NAME, ""))
    whole = {
        "format": format,
        "schema": schema,
        "options": {key: value for key, value in lower.items() if key not in _HARMLESS},
        "settings": {key: settings[key] for key in counted if key in settings},
        # A column of this name holds what could not be parsed, and not a field of the record.
        "corrupt": corrupt if corrupt.lower() in names else None,
    }
    text = json.dumps(whole, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _bare(node: Any) -> Any:
    """A schema's JSON without nullability, which file sources ignore, and without comments."""
    if isinstance(node, dict):
        skipped = {"nullable", "containsNull", "valueContainsNull", "comment"}
        return {key: _bare(value) for key, value in node.items() if key not in skipped}
    return [_bare(each) for each in node] if isinstance(node, list) else node


def _mentions(node: Any, type: str) -> bool:
    """True where a column, or something inside one, has this type."""
    if isinstance(node, dict):
        return any(
            value == type or _mentions(value, type)
            for key, value in node.items()
            if key not in ("name", "metadata")
        )
    return isinstance(node, list) and any(_mentions(each, type) for each in node)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileStats:
    """The current attributes of files, as parallel arrays; ``size`` -1 where a file is gone.

    ``size`` in bytes, ``mtime`` and ``ctime`` in nanoseconds, ``inode``: int64.
    """

    size: NDArray[np.int64]
    mtime: NDArray[np.int64]
    inode: NDArray[np.int64]
    ctime: NDArray[np.int64]

    @classmethod
    def of(cls, paths: Sequence[str]) -> FileStats:
        """The attributes of these files; a file that is gone has -1 everywhere."""
        gone = (-1, -1, -1, -1)
        rows = []
        for path in paths:
            try:
                now = os.stat(path)  # noqa: PTH116, a Path per file costs more than the call
                rows.append((now.st_size, now.st_mtime_ns, now.st_ino, now.st_ctime_ns))
            except OSError:
                rows.append(gone)
        size, mtime, inode, ctime = np.array(rows, np.int64).reshape(len(rows), 4).T
        return cls(size=size, mtime=mtime, inode=inode, ctime=ctime)

    def at(self, indices: NDArray[np.int64]) -> FileStats:
        """The attributes of some of the files."""
        return FileStats(
            size=self.size[indices],
            mtime=self.mtime[indices],
            inode=self.inode[indices],
            ctime=self.ctime[indices],
        )

    def etags(self) -> list[str]:
        """The etags of local files (``identity.local_etag``)."""
        pairs = zip(self.inode.tolist(), self.ctime.tolist(), strict=True)
        return [f"{inode}-{ctime}" for inode, ctime in pairs]


@dataclass(frozen=True, eq=False, kw_only=True)
class FileListing:
    """The files of a relation in Spark's order, as parallel sequences.

    ``spelled`` are paths as Spark's ``Path`` prints them (raw, with scheme); ``sizes`` bytes,
    int64; ``mtimes`` milliseconds since the epoch, int64; ``etags`` per file where they are known
    (local files, S3A), else ``None``. ``stats`` are the attributes of local files when listed.
    """

    spelled: tuple[str, ...]
    sizes: NDArray[np.int64]
    mtimes: NDArray[np.int64]
    etags: tuple[str | None, ...] | None = None
    stats: FileStats | None = None

    def __len__(self) -> int:
        return len(self.spelled)

    @cached_property
    def paths(self) -> list[str]:
        """Canonical paths (``skipstone.identity``), in order."""
        folders: dict[str, str] = {}
        out = []
        for spelled in self.spelled:
            folder, _, name = spelled.rpartition("/")
            canonical = folders.get(folder)
            if canonical is None:
                canonical = folders[folder] = canonical_path(folder + "/").rstrip("/")
            out.append(f"{canonical}/{name}")
        return out

    def uris(self, indices: NDArray[np.int64]) -> list[str]:
        """Paths as Spark's ``_metadata.file_path`` prints them."""
        return [encode_uri(self.spelled[i]) for i in indices.tolist()]

    @cached_property
    def local(self) -> bool:
        """True when every file is on the local file system."""
        return all(path.startswith("/") for path in self.paths)

    @classmethod
    def of_local(cls, uris: Sequence[str]) -> FileListing | None:
        """The listing of local files now; ``None`` when one is elsewhere or gone."""
        if not all(uri.startswith("file:///") for uri in uris):
            return None
        paths = [unquote(uri[7:]) if "%" in uri else uri[7:] for uri in uris]
        stats = FileStats.of(paths)
        if np.any(stats.size < 0):
            return None
        return cls(
            spelled=tuple(f"file:{path}" for path in paths),
            sizes=stats.size,
            mtimes=stats.mtime // 1_000_000,
            etags=tuple(stats.etags()),
            stats=stats,
        )

    @classmethod
    def parse(cls, texts: Sequence[str]) -> FileListing:
        """The listing from one text per file. Raises ``ListingError``."""
        found = FileStatuses.parse(texts)
        return cls(
            spelled=tuple(found.paths), sizes=found.sizes, mtimes=found.mtimes, etags=found.etags
        )

    def stat(self, indices: NDArray[np.int64]) -> FileStats:
        """The current attributes of these local files."""
        paths = self.paths
        return FileStats.of([paths[i] for i in indices.tolist()])

    def unchanged(self, indices: NDArray[np.int64], now: FileStats) -> NDArray[np.bool_]:
        """Which of these files still have the listed size and time."""
        same: NDArray[np.bool_] = (now.size == self.sizes[indices]) & (
            now.mtime // 1_000_000 == self.mtimes[indices]
        )
        return same
