"""A table of the catalog as a client of Spark Connect sees it: by commands, without a JVM.

``DESCRIBE EXTENDED`` has the location and the format, ``SHOW TBLPROPERTIES`` the properties.

**Partitions.** A command locates one partition at a time, in up to a second each. So this module
asks the files: ``inputFiles`` lists those of all partitions, and a query over one file of each
folder returns the values of its partition. That is one job, which opens as many files as there are
partitions. Hive's tables (``STORED AS``) have no column ``_metadata`` to choose files by, so all
files are opened, and reads do not skip. A partition without rows is not found, and no row of it can
be missed.

Cells are read as whole texts and never taken apart, so no name and no value is ambiguous. Spark
hides some values from such commands (``spark.sql.redaction.options.regex``). A table is refused
where a hidden value is needed.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from skipstone._dataclasses import dataclass
from skipstone.errors import UnsupportedError
from skipstone.identity import canonical_path, decode_uri, encode_uri
from skipstone.spark.relation import FORMATS, INDEX_PROPERTY, RelationInfo, session_settings
from skipstone.spark.session import made_settings
from skipstone.spark.versions import setting_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

#: the most files, or folders, whose partition values are read
MOST_ASKED: Final = 10_000

_SERDES: Final = {"ParquetHiveSerDe": "parquet", "OrcSerde": "orc"}
CLASSIC: Final = "use a classic session, or open the table by its location: Table({!r})"
_REDACTED: Final = "(redacted)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTable:
    """A table as SQL commands describe it; ``quoted`` is its name in other commands.

    ``undecided``: columns whose stored values do not decide a predicate, such as ``char(n)``.
    """

    spark: SparkSession
    quoted: str
    info: RelationInfo
    partitioned_by: tuple[str, ...]
    lists_partitions: bool
    buckets: str
    properties: Mapping[str, str]
    hive: bool
    undecided: frozenset[str]

    @classmethod
    def of(cls, spark: SparkSession, name: str) -> DescribedTable:
        """The table ``name``. Raises ``UnsupportedError`` for a view, for a table without plain
        files, and where Connect does not show what a read needs."""
        schema = json.loads(spark.table(name).schema.json())
        table: Any = spark.catalog.getTable(name)
        if table.isTemporary or "VIEW" in str(table.tableType):
            raise UnsupportedError(
                f"{name} is a view: only a table has files that can be indexed",
                hint="index the tables that it reads",
            )
        parts = (table.catalog or "spark_catalog", *(table.namespace or ()), table.name)
        quoted = ".".join(f"`{each.replace('`', '``')}`" for each in parts)
        shown = _details(_rows(spark, f"DESCRIBE TABLE EXTENDED {quoted}"))
        provider, location = _files_of(name, shown)
        root = _root(spark, name, location)
        hive = shown["Provider"].lower() == "hive"
        _require_own_reader(spark, name, root, provider, hive=hive)
        columns = {each.name: each for each in spark.catalog.listColumns(name)}
        partitioned = tuple(each for each, column in columns.items() if column.isPartition)
        properties = dict(_rows(spark, f"SHOW TBLPROPERTIES {quoted}"))
        options = {} if provider == "parquet" else _options(spark, name, quoted, root, hive=hive)
        fields = schema["fields"]
        _require_visible(name, root, fields, properties)
        own = [each for each in fields if each["name"] not in partitioned]
        folders = [each for each in fields if each["name"] in partitioned]
        schemas = [
            json.dumps({"type": "struct", "fields": each}) for each in (fields, own, folders)
        ]
        settings = session_settings(spark, provider) if provider in FORMATS else None
        count = shown.get("Num Buckets", "-1")
        return cls(
            spark=spark,
            quoted=quoted,
            info=RelationInfo(
                roots=(root,),
                format=provider,
                options=options,
                schema=schemas[0],
                data_schema=schemas[1],
                partition_schema=schemas[2],
                table=".".join(parts),
                index_location=properties.get(INDEX_PROPERTY),
                confs=made_settings(spark),
                settings=None if settings is None else lambda: settings,
            ),
            partitioned_by=partitioned,
            lists_partitions=bool(partitioned) and shown.get("Partition Provider") == "Catalog",
            buckets=f"{count} buckets, by {shown.get('Bucket Columns')}" if int(count) > 0 else "",
            properties=properties,
            hive=hive,
            undecided=frozenset(
                each["name"]
                for each in fields
                if _undecided(each.get("metadata") or {}, str(columns[each["name"]].dataType))
            ),
        )

    def partitions(self) -> list[tuple[dict[str, str | None], str]]:
        """The values and the folder of each partition that has rows now."""
        frame = self.spark.table(self.quoted)
        uris: dict[str, list[str]] = {}
        files = frame.inputFiles()
        for uri in files:
            spelled = decode_uri(uri)
            uris.setdefault(_folder(spelled), []).append(encode_uri(spelled))
        asked, what = (len(files), "files") if self.hive else (len(uris), "partitions")
        if asked > MOST_ASKED:
            raise UnsupportedError(
                f"under Spark Connect, partition values come from reading {what}:"
                f" {self.info.table} has {asked:,}, and at most {MOST_ASKED:,} are read",
                hint=CLASSIC.format(self.info.roots[0]),
            )
        if self.hive:
            found = self._values(frame, "input_file_name()") if files else {}
        else:
            found = self._values(_of_files(frame, [each[0] for each in uris.values()]))
            # A file without rows shows no values. Then the other files of its folder are read.
            rest = [uri for at, each in uris.items() if at not in found for uri in each[1:]]
            found |= self._values(_of_files(frame, rest)) if rest else {}
        return [(values, folder) for folder, each in found.items() for values in each]

    def _values(
        self, frame: DataFrame, file: str = "_metadata.file_path"
    ) -> dict[str, list[dict[str, str | None]]]:
        """The values of the partitions in ``frame``, by folder."""
        names = [f"`{each.replace('`', '``')}`" for each in self.partitioned_by]
        texts = [f"CAST({each} AS STRING)" for each in names]
        found: dict[str, list[dict[str, str | None]]] = {}
        for uri, *values in frame.selectExpr(file, *texts).distinct().collect():
            one = dict(zip(self.partitioned_by, values, strict=True))
            known = found.setdefault(_folder(decode_uri(uri)), [])
            if one not in known:
                known.append(one)
        return found

    def read_in_full(self, where: str | None, *, keyed: bool) -> str:
        """Why a read may not skip files; "" if it may. ``keyed``: keys of a join prune it."""
        if self.hive:
            return "Hive's tables have no column _metadata under Spark Connect"
        text = (where or "").lower().replace("`", "")
        named = [each for each in sorted(self.undecided) if keyed or each.lower() in text]
        return f"char(n), a collation or a default: {', '.join(named)}" if named else ""


def _files_of(name: str, shown: Mapping[str, str]) -> tuple[str, str]:
    """The format and the location of the files of a table; ``UnsupportedError`` without any."""
    location, provider = shown.get("Location"), shown.get("Provider", "").lower()
    if provider == "hive":
        serde = shown.get("Serde Library", "").rpartition(".")[2]
        provider = _SERDES.get(serde, f"Hive's {serde}")
    if location is None or provider not in ("parquet", *FORMATS):
        raise UnsupportedError(
            f"{name} is not a table of files that Spark reads itself: {provider or 'a view'}",
            hint="Parquet, ORC, CSV and JSON are",
        )
    return provider, location


def _require_visible(
    name: str, root: str, fields: Sequence[Mapping[str, Any]], properties: Mapping[str, str]
) -> None:
    """Raises ``UnsupportedError`` where Spark hides from clients what a plan needs."""
    for key, value in properties.items():
        if _REDACTED in value and key.startswith(("skipstone.", "file-index.")):
            raise UnsupportedError(
                f"{name}: Spark hides the property {key} from clients of Spark Connect",
                hint=CLASSIC.format(root),
            )
    if any(each["name"].lower() == "_metadata" for each in fields):
        raise UnsupportedError(
            f"{name} has a column _metadata, which hides that of Spark",
            hint=CLASSIC.format(root),
        )


def _undecided(metadata: Mapping[str, Any], type: str) -> bool:
    """Whether the stored values of a column do not decide a predicate."""
    if str(metadata.get("EXISTS_DEFAULT", "NULL")).upper() != "NULL":
        return True
    return "__COLLATIONS" in metadata or re.search(r"\bchar\(|\bcollate\b", type) is not None


def _root(spark: SparkSession, name: str, location: str) -> str:
    """The path of a location as ``DESCRIBE`` prints it: Spark 3.5 prints a URI, Spark 4 a path.
    Where it has a ``%``, only the files show which of the two it is."""
    raw, decoded = canonical_path(location), canonical_path(unquote(location))
    if raw == decoded:
        return raw
    for uri in spark.table(name).inputFiles():
        path = canonical_path(decode_uri(uri))
        for root in (raw, decoded):
            if path.startswith(f"{root}/"):
                return root
    raise UnsupportedError(
        f"{name}: no file shows whether its location {location} is a URI or a path",
        hint="open a table that has files, or use a classic session",
    )


def _folder(path: str) -> str:
    return canonical_path(f"{path.rpartition('/')[0]}/").rstrip("/")


def _of_files(frame: DataFrame, uris: Sequence[str]) -> DataFrame:
    """The rows of these files; Spark lists no others for it."""
    keys = ",".join("'" + each.replace("'", "\\'") + "'" for each in uris)
    return frame.where(f"_metadata.file_path IN ({keys})" if keys else "false")


def _rows(spark: SparkSession, command: str) -> list[tuple[str, str]]:
    """The first two cells of each row that a command returns."""
    return [(row[0], row[1] if len(row) > 1 else "") for row in spark.sql(command).collect()]


def _details(rows: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The rows about the table. They follow those about its columns, which may have the same
    names."""
    heads = [at for at, (name, _) in enumerate(rows) if name == "# Detailed Table Information"]
    found: dict[str, str] = {}
    for name, value in rows[heads[-1] + 1 :] if heads else ():
        found.setdefault(name, value)
    return found


def _require_own_reader(
    spark: SparkSession, name: str, root: str, format: str, *, hive: bool
) -> None:
    """Raises ``UnsupportedError`` where a setting turns Spark's own reader off for the table."""
    needed = ["spark.sql.hive.manageFilesourcePartitions"]
    if hive:
        needed.append(f"spark.sql.hive.convertMetastore{format.capitalize()}")
    for key in needed:
        if (setting_of(spark.conf.get, key) or "true").lower() != "true":
            raise UnsupportedError(
                f"{name}: Spark does not read it with its own reader: {key} is false",
                hint=CLASSIC.format(root),
            )


def _options(
    spark: SparkSession, name: str, quoted: str, root: str, *, hive: bool
) -> dict[str, str]:
    """The options of Spark's reader. Spark 3.5 shows them only as a text without escapes."""
    if hive:
        return {}
    try:
        [(text, _)] = _rows(spark, f"DESCRIBE TABLE EXTENDED {quoted} AS JSON")
    except Exception as error:
        raise UnsupportedError(
            f"{name}: the options of its reader are not known under this Spark Connect:"
            f" {str(error).partition(chr(10))[0]}",
            hint=CLASSIC.format(root),
        ) from error
    found: dict[str, str] = json.loads(text).get("storage_properties", {})
    if hidden := [key for key, value in found.items() if _REDACTED in value]:
        raise UnsupportedError(
            f"{name}: Spark hides options of its reader from clients of Spark Connect:"
            f" {', '.join(sorted(hidden))}",
            hint=CLASSIC.format(root),
        )
    return found
