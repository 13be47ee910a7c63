"""A table of Spark's catalog: where its files lie, how they are read, and its partitions.

The session resolves the name, so a table is what ``spark.table(name)`` reads: tables ``USING
parquet``, and Hive's where Spark reads them with its own reader. Views and tables of version 2
catalogs raise ``UnsupportedError``.

**Partitions.** Where the catalog lists the partitions, they are the table: a folder that it does
not list is not read, and a partition may lie anywhere (``LOCATION``). Its values are those of the
catalog, whatever the folder is called, with the types of the catalog. Files belong to the partition
whose location is their folder; Spark reads no folders below it.

The JVM sends all partitions as one text (``Jvm.join``). Each prints as

    CatalogPartition(
    <tab>Partition Values: [day=2024-01-01, kind=a]
    <tab>Location: file:/lake/events/day=2024-01-01/kind=a
    <tab>…

A value may hold any text, and Spark 3.5 prints locations as URIs (a blank as ``%20``), Spark 4 as
paths. Where a text can be read in two ways, calls ask that partition for each value. A session of
Spark Connect has no JVM: there, SQL commands return the same (``connect.py``).
"""

from __future__ import annotations

import json
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.identity import canonical_path
from skipstone.predicate.types import schema_from_spark
from skipstone.pruning.partitions import NULL_VALUE, PartitionColumns, files_of_table
from skipstone.spark.relation import INDEX_PROPERTY, RelationInfo
from skipstone.spark.session import (
    JavaObject,
    Jvm,
    is_connect,
    made_settings,
    require_session,
    simple_name,
)
from skipstone.spark.skip import CATALOG_INDEX, file_relation, relation_info
from skipstone.storage import Listing, Storage

from .connect import DescribedTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from skipstone.pruning import Reason


#: property of a table: the indexes that ``build`` builds where none are named
INDEXES_PROPERTY: Final = "skipstone.indexes"

_HEAD: Final = "CatalogPartition(\n\tPartition Values: ["
_LOCATION: Final = "]\n\tLocation: "
# Options that say where a table lies, not how it is read.
_NO_READER_OPTIONS: Final = frozenset({"path", "serialization.format"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPartition:
    """One partition of the catalog: its values by column (``None`` for NULL), and its folder."""

    values: Mapping[str, str | None]
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTable:
    """A resolved table.

    - ``name``: with catalog and database; ``location``: its canonical path;
    - ``info``: its relation, as a pruner receives it;
    - ``partition_types``: the partition columns in the catalog's order and types;
    - ``lists_partitions``: whether the catalog, and not the folders, has the partitions;
    - ``buckets``: how it is bucketed, in words, or "";
    - ``properties``: its ``TBLPROPERTIES``;
    - ``partitions``: asks for the partitions that the catalog lists now;
    - ``described``: the result of the SQL commands under Spark Connect.
    """

    spark: SparkSession
    name: str
    location: str
    info: RelationInfo
    partition_types: pa.Schema
    lists_partitions: bool
    buckets: str
    properties: Mapping[str, str]
    partitions: Callable[[], list[CatalogPartition]] = field(repr=False)
    described: DescribedTable | None = field(default=None, repr=False)

    @classmethod
    def of(cls, spark: Any, name: str | None) -> CatalogTable:
        """The table that this session knows by ``name``. ``SkipstoneError`` where there is none,
        ``UnsupportedError`` for a view, and for a table that has no plain files."""
        if name is None:
            raise TypeError(
                "a table is a path, or a session and a name: Table(spark, 'db.events'), not "
                f"{spark!r}"
            )
        require_session(spark)
        if is_connect(spark):
            return cls._by_commands(spark, name)
        leaf = _leaf(spark, name)
        found = file_relation(leaf)
        if not isinstance(found, tuple):
            raise UnsupportedError(
                f"{name} is not a table of files that Spark reads itself: {_why_not(leaf, found)}",
                hint="Parquet, ORC, CSV and JSON are; Hive's tables of Parquet and ORC with"
                " spark.sql.hive.convertMetastoreParquet and …Orc, which are true by default",
            )
        relation, format = found
        jvm = Jvm.of(spark)
        made = made_settings(spark)
        info = relation_info(spark, jvm, leaf, relation, relation.location(), format, made)
        defined = leaf.catalogTable()
        if not defined.isDefined():
            raise UnsupportedError(f"{name} is not a table of the catalog")
        table = defined.get()
        buckets = table.bucketSpec()
        kind = simple_name(str(relation.location().getClass().getName()))
        types = schema_from_spark(info.partition_schema)
        return cls(
            spark=spark,
            name=info.table or name,
            location=info.roots[0],
            info=info,
            partition_types=types,
            lists_partitions=kind == CATALOG_INDEX,
            buckets=str(buckets.get().toString()) if buckets.isDefined() else "",
            properties=jvm.pairs(table.properties()),
            partitions=partial(_listed, spark, table.identifier(), types.names),
        )

    @classmethod
    def _by_commands(cls, spark: SparkSession, name: str) -> CatalogTable:
        """``of`` for a session of Spark Connect."""
        try:
            found = DescribedTable.of(spark, name)
        except SkipstoneError:
            raise
        except Exception as error:
            raise _unresolved(spark, name, error) from error
        return cls(
            spark=spark,
            name=found.info.table or name,
            location=found.info.roots[0],
            info=found.info,
            partition_types=schema_from_spark(found.info.partition_schema),
            lists_partitions=found.lists_partitions,
            buckets=found.buckets,
            properties=found.properties,
            partitions=lambda: [
                CatalogPartition(values=v, location=at) for v, at in found.partitions()
            ],
            described=found,
        )

    @property
    def columns(self) -> list[str]:
        """The columns of the files, as the catalog spells them."""
        return [each["name"] for each in json.loads(self.info.data_schema)["fields"]]

    @property
    def reader_options(self) -> dict[str, str]:
        """The options of Spark's reader that the table has."""
        return {k: v for k, v in self.info.options.items() if k.lower() not in _NO_READER_OPTIONS}

    @property
    def index_location(self) -> str | None:
        """The location of its index in ``TBLPROPERTIES``."""
        return self.properties.get(INDEX_PROPERTY)

    @property
    def indexes(self) -> tuple[str, ...]:
        """The indexes to build, from ``TBLPROPERTIES``."""
        listed = self.properties.get(INDEXES_PROPERTY, "")
        return tuple(each.strip() for each in listed.split(";") if each.strip())

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for ``describe``: name, partition columns, buckets."""
        found = [f"table {self.name} of the catalog"]
        if self.partition_types.names:
            whose = "listed by the catalog" if self.lists_partitions else "found in the folders"
            found.append(f"partitioned by {', '.join(self.partition_types.names)}, {whose}")
        if self.buckets:
            found.append(self.buckets)
        return tuple(found)

    def frame(self, options: Mapping[str, str]) -> DataFrame:
        """The table as plain Spark reads it."""
        frame: DataFrame = self.spark.read.options(**options).table(self.name)
        return frame

    def listing(self, storage: Storage) -> Listing:
        """The data files now, with the values of the partition columns.

        ``UnsupportedError`` where two partitions share a folder, and for a partition in a storage
        other than the table's.
        """
        types = {each.name: each.type for each in self.partition_types}
        if not self.lists_partitions:
            found = files_of_table(storage.list_files(self.location))
            if not types:
                return found
            values = PartitionColumns.of_paths(self.location, found.paths, types).values
            return replace(found, folder_values=values)
        of_folder: dict[str, CatalogPartition] = {}
        for each in self.partitions():
            other = of_folder.setdefault(each.location, each)
            if other is not each:
                raise UnsupportedError(
                    f"{self.name}: the partitions {_shown(other)} and {_shown(each)} both lie at"
                    f" {each.location}",
                    hint="Spark reads its files twice; give each partition a location of its own",
                )
            if not storage.holds(each.location):
                raise UnsupportedError(
                    f"{self.name}: the partition {_shown(each)} lies at {each.location}, in another"
                    " storage than the table",
                    hint=f"one index covers files of one storage, here that of {self.location}",
                )
        below = f"{self.location.rstrip('/')}/"
        roots = [path for path in of_folder if not path.startswith(below)]
        if len(roots) < len(of_folder):
            roots.append(self.location)
        parts = [part for root in sorted(roots) if (part := _files(storage, root)) is not None]
        return _together(self.location, parts, of_folder, types)


def _listed(
    spark: SparkSession, identifier: JavaObject, names: Sequence[str]
) -> list[CatalogPartition]:
    """The partitions that the catalog of a classic session lists now."""
    jvm = Jvm.of(spark)
    none = jvm.module("scala.None")
    listed = spark._jsparkSession.sessionState().catalog().listPartitions(identifier, none)
    found = []
    for at, text in enumerate(jvm.join(listed)):
        one = _parsed(text, names)
        if one is None:
            one = _asked(listed.apply(at), names)
        found.append(one)
    return found


def _unresolved(spark: SparkSession, name: str, error: Exception) -> SkipstoneError:
    """The error for a name that does not resolve."""
    text = next(filter(None, str(error).splitlines()), "")
    if any(each in text for each in ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND")):
        return SkipstoneError(
            f"there is no table {name} in the catalog of this session",
            hint=f"current database: {spark.catalog.currentDatabase()}; Hive's tables need a"
            " session with enableHiveSupport()",
        )
    return SkipstoneError(
        f"{name}: {text}",
        hint="write database.table; Spark's configuration (hive-site.xml in SPARK_CONF_DIR)"
        " says which catalog has it",
    )


def _leaf(spark: SparkSession, name: str) -> JavaObject:
    """The one relation that a name stands for."""
    try:
        plan = spark._jsparkSession.table(name).queryExecution().analyzed()
    except Exception as error:
        raise _unresolved(spark, name, error) from error
    while simple_name(str(plan.getClass().getName())) in ("SubqueryAlias", "Project"):
        plan = plan.children().head()
    kind = simple_name(str(plan.getClass().getName()))
    if kind == "View" or int(plan.children().size()):
        raise UnsupportedError(
            f"{name} is a view: only a table has files that can be indexed",
            hint="index the tables that it reads; queries of the view then skip too",
        )
    return plan


def _why_not(leaf: JavaObject, found: Reason | None) -> str:
    if found is not None:
        return str(found)
    kind = simple_name(str(leaf.getClass().getName()))
    if kind != "HiveTableRelation":
        return kind
    serde = leaf.tableMeta().storage().serde()
    return f"Hive reads it by {serde.get() if serde.isDefined() else 'a SerDe'}"


def _parsed(text: str, names: Sequence[str]) -> CatalogPartition | None:
    """Parses a partition's text; ``None`` where it is malformed or can be read in two ways."""
    if not text.startswith(_HEAD) or text.count(_LOCATION) != 1:
        return None
    values, _, rest = text[len(_HEAD) :].partition(_LOCATION)
    location, *lines = rest.split("\n")
    if "%" in location:
        return None  # an escape of a URI, or part of a name
    if not lines or not location or not all(line[:1] in ("\t", ")") for line in lines):
        return None
    marks = [f", {name}=" for name in names[1:]]
    first = f"{names[0]}="
    if not values.startswith(first) or any(values.count(mark) != 1 for mark in marks):
        return None
    if marks and values.count(f", {first}"):
        return None
    found: dict[str, str | None] = {}
    left = values[len(first) :]
    for name, mark in zip(names, [*marks, ""], strict=True):
        if mark and mark not in left:
            return None  # the columns are in another order
        value, _, left = left.partition(mark) if mark else (left, "", "")
        found[name] = _value(value)
    return CatalogPartition(values=found, location=canonical_path(location))


def _asked(partition: JavaObject, names: Sequence[str]) -> CatalogPartition:
    """Reads a partition by one py4j call for each value."""
    spec = partition.spec()
    values = {name: _value(spec.apply(name)) for name in names}
    path = partition.storage().locationUri().get()
    return CatalogPartition(values=values, location=canonical_path(_decoded(path)))


def _decoded(uri: JavaObject) -> str:
    """A URI as Hadoop's ``Path`` prints it: raw, with its scheme."""
    scheme, authority, path = uri.getScheme(), uri.getAuthority(), uri.getPath()
    head = "" if scheme is None else f"{scheme}:"
    return f"{head}{'' if authority is None else f'//{authority}'}{path}"


def _value(text: str | None) -> str | None:
    return None if text is None or text == NULL_VALUE else str(text)


def _shown(partition: CatalogPartition) -> str:
    return "/".join(f"{name}={value}" for name, value in partition.values.items())


def _files(storage: Storage, root: str) -> Listing | None:
    """The files below a folder; ``None`` where it is gone, as Spark ignores such a partition."""
    try:
        return storage.list_files(root)
    except SkipstoneError:
        if storage.has_children(root):
            raise
        return None


def _together(
    root: str,
    parts: Sequence[Listing],
    of_folder: Mapping[str, CatalogPartition],
    types: Mapping[str, pa.DataType],
) -> Listing:
    """One listing of the files of ``parts`` that lie in the folder of a partition."""
    found: dict[str, tuple[Listing, int]] = {}
    for part in parts:
        for at, path in enumerate(part.paths):
            if path[: path.rfind("/")] in of_folder:
                found[path] = part, at
    paths = sorted(found)
    places = [found[path] for path in paths]
    owners = [of_folder[path[: path.rfind("/")]] for path in paths]
    distinct = list({id(each): each for each in owners}.values())
    ordinal = {id(each): at for at, each in enumerate(distinct)}
    of_file = np.array([ordinal[id(each)] for each in owners], np.int64)
    texts = {name: [each.values[name] for each in distinct] for name in types}
    etags = [None if part.etags is None else part.etags[at] for part, at in places]
    return Listing(
        root=root,
        paths=paths,
        sizes=np.array([part.sizes[at] for part, at in places], np.int64),
        mtimes=np.array([part.mtimes[at] for part, at in places], np.int64),
        unit=parts[0].unit if parts else "ns",
        etags=None if all(each is None for each in etags) else etags,
        empty=sum(part.empty for part in parts),
        folder_values=PartitionColumns.of_values(texts, types, of_file).values,
    )
