"""``skip(df)``: the same DataFrame, whose file scans list only the files that an index keeps;
``explain``.

The file relations of the analyzed plan are replaced by copies with a ``SkippingFileIndex`` as
location. A Scala ``Map`` from relation to relation replaces them (a ``Map`` is a partial function),
so no plan node calls back into Python. Output attributes stay, so the plan stays analyzed.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from skipstone._dataclasses import dataclass
from skipstone.errors import NoIndexError, UnsupportedError
from skipstone.identity import canonical_path
from skipstone.pruning import Cause, Reason

from .file_index import SkippingFileIndex
from .joins.plans import file_scans
from .relation import (
    FACTS_MEMORY,
    FILE_INDEX,
    FORMATS,
    HARMLESS,
    INDEX_LOCATION,
    INDEX_PROPERTY,
    FindPruner,
    Pruner,
    RelationInfo,
    session_settings,
)
from .scan_log import ScanLog, scan_log
from .scans import QueryScans, Scan
from .session import JavaObject, Jvm, is_connect, items, made_settings, simple_name
from .versions import copy_relation, dataset_class

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession


_LOG = logging.getLogger("skipstone")
# Packages of connectors, each with its table format.
_CONNECTORS = {"org.apache.spark.sql.delta.": "Delta Lake", "org.apache.iceberg.": "Apache Iceberg"}
#: why a relation of a connector is left alone, and what to use
OWN_FILES = (
    "its connector has the list of files: skipstone.Table(path).read(spark, where) uses the index, "
    "and keeps the connector with connector=True"
)
#: the file index of tables whose partitions the catalog lists
CATALOG_INDEX = "CatalogFileIndex"
# File indexes that list plain files. Those of Delta and Hudi do more.
_LOCATIONS = frozenset({"InMemoryFileIndex", CATALOG_INDEX, "MetadataLogFileIndex"})
_FORMATS = {
    "ParquetFileFormat": "parquet",
    "OrcFileFormat": "orc",
    "CSVFileFormat": "csv",
    "JsonFileFormat": "json",
}
# Settings that a pruner uses.
_CONFS = (*HARMLESS, FACTS_MEMORY, FILE_INDEX, INDEX_LOCATION)


def skip(df: DataFrame, find: FindPruner, *, switch: str | None = None) -> DataFrame:
    """``df`` with each file relation reading through its index; ``df`` itself if none has an index.

    ``find`` is called once per relation. Relations that are wrapped already, streams, table formats
    and other relations stay as they are; ``explain`` has the reasons. With ``switch``, the name of
    a setting, files are skipped only while the session's setting is true. A later call without
    ``switch`` wraps such a relation again. Raises ``UnsupportedError`` under Spark Connect, where a
    client cannot change the plan.
    """
    if is_connect(df):
        raise UnsupportedError(
            "skip(df) needs a classic session: under Spark Connect a client cannot see the plan",
            hint="use skipstone.read(spark, path, where=…), or spark.read.format('skipstone')",
        )
    if df.isStreaming:
        return df
    log = scan_log(df.sparkSession)
    thread = log.claim()
    plan = _plan(df)
    swaps = log.jvm.module("scala.collection.immutable.Map").empty()
    made: dict[str, str] = {}
    wrapped = []
    for leaf in _leaves(plan):
        if simple_name(str(leaf.getClass().getName())) != "LogicalRelation":
            continue
        made = made or made_settings(df.sparkSession)
        new = _wrapped(df, leaf, find, log, switch, made)
        if new is not None:
            swaps = swaps.updated(leaf, copy_relation(leaf, new.relation))
            wrapped.append(new)
    if not wrapped:
        return df
    for new in wrapped:
        new.proxy.swapping.add(thread)
    try:
        swapped = plan.transformDownWithSubqueries(swaps)
    finally:
        for new in wrapped:
            new.proxy.swapping.discard(thread)
    swapped.setAnalyzed()
    return frame_of(df.sparkSession, swapped)


def relation_of(df: DataFrame) -> RelationInfo:
    """The one file relation that a DataFrame reads, as a pruner receives it.

    ``UnsupportedError`` where it reads anything else, or several. Classic sessions only.
    """
    log = scan_log(df.sparkSession)
    found = []
    for leaf in _leaves(_plan(df)):
        if isinstance(pair := file_relation(leaf), tuple):
            relation, format = pair
            place = relation.location()
            made = made_settings(df.sparkSession)
            info = relation_info(df.sparkSession, log.jvm, leaf, relation, place, format, made)
            found.append(info)
    if len(found) != 1:
        raise UnsupportedError(
            f"reads {len(found)} file relations, but only one can be indexed at a time",
            hint="read the table alone, through Spark's version 1 sources",
        )
    return found[0]


def explain(df: DataFrame) -> QueryScans:
    """What ``df`` would read, and why, from Spark's planning; only small sides of joins are run.

    Covers the relations that read through an index; ``untouched`` has the others.
    """
    if is_connect(df):
        raise UnsupportedError(
            "explain(df) needs a classic session",
            hint="skipstone.explain(path, where) works anywhere",
        )
    log = scan_log(df.sparkSession)
    analyzed = _plan(df)
    untouched = []
    planned = []
    for leaf in _leaves(analyzed):
        scan = _marked(leaf, log)
        if scan is not None:
            planned.append(scan)
        elif (reason := _why_not(leaf, log)) is not None:
            untouched.append(reason)
    # Another plan: Spark keeps the list of files with the plan that requested it.
    query = frame_of(df.sparkSession, analyzed)._jdf.queryExecution()
    with log.capture(query) as scans:
        for scan, is_shared in file_scans(log.jvm, query.executedPlan()):
            if scan is not None and not is_shared:
                scan.selectedPartitions()
    return QueryScans(scans=(*planned, *scans), untouched=tuple(dict.fromkeys(untouched)))


_TAG = "skipstone"
_MARKED = (
    "LocalRelation",
    "LogicalRelation",  # that a connector reads
    "DataSourceV2Relation",
    "DataSourceV2ScanRelation",
)


def mark(df: DataFrame, log: ScanLog, scan: Scan) -> tuple[str, ...]:
    """Let ``explain`` find ``scan`` by the only leaf of ``df``, also within other plans.

    The columns of the leaf (``id#12L``), by which ``last_scan`` finds its queries.
    """
    tag = log.jvm.type("org.apache.spark.sql.catalyst.trees.TreeNodeTag")(_TAG)
    (leaf,) = _leaves(_plan(df))
    leaf.setTagValue(tag, log.keep(scan))
    return tuple(log.jvm.join(leaf.output()))


def _marked(leaf: JavaObject, log: ScanLog) -> Scan | None:
    if simple_name(str(leaf.getClass().getName())) not in _MARKED:
        return None
    tag = log.jvm.type("org.apache.spark.sql.catalyst.trees.TreeNodeTag")(_TAG)
    found = leaf.getTagValue(tag)
    return log.kept(int(found.get())) if found.isDefined() else None


def frame_of(session: SparkSession, plan: JavaObject) -> DataFrame:
    """The DataFrame of a plan; a command is run."""
    from pyspark.sql import DataFrame as ClassicFrame

    jvm = Jvm.of(session)
    return ClassicFrame(dataset_class(jvm).ofRows(session._jsparkSession, plan), session)


def _plan(df: DataFrame) -> JavaObject:
    """The analyzed plan; of a command, which has run, its result: to plan it again would run it
    again."""
    return df._jdf.queryExecution().commandExecuted()


def _leaves(plan: JavaObject) -> Iterator[JavaObject]:
    """The leaves of a logical plan and of the subqueries in its expressions."""
    yield from items(plan.collectLeaves())
    for inner in items(plan.subqueriesAll()):
        yield from items(inner.collectLeaves())


def file_relation(leaf: JavaObject) -> tuple[JavaObject, str] | Reason | None:
    """A leaf's file relation and format, the reason without one, or ``None`` for other leaves."""
    kind = simple_name(str(leaf.getClass().getName()))
    if kind in ("DataSourceV2Relation", "DataSourceV2ScanRelation"):
        own = str(leaf.name()).rpartition(" ")[2].lower() == "skipstone"
        text = "read by a version 2 source, which has its own list of files"
        if own:
            text = "reads planned pages by itself: last_scan shows them after Table.read"
        elif _format_of(leaf.table()) is not None:
            text = OWN_FILES
        return _left(str(leaf.name()), text)
    if kind != "LogicalRelation":
        return None
    relation = leaf.relation()
    name = simple_name(str(relation.getClass().getName()))
    if (format := _format_of(relation)) is not None:
        return _left(format, OWN_FILES)
    if name != "HadoopFsRelation":
        return _left(name, "not a relation over files")
    if leaf.isStreaming():
        return _left(name, "a stream")
    kind = simple_name(str(relation.fileFormat().getClass().getName()))
    if kind not in _FORMATS:
        return _left(kind, "not one of parquet, orc, csv, json")
    return relation, _FORMATS[kind]


def _format_of(source: JavaObject) -> str | None:
    """The table format whose connector an object is of."""
    name = str(source.getClass().getName())
    return next((format for each, format in _CONNECTORS.items() if name.startswith(each)), None)


def _left(subject: str, text: str) -> Reason:
    return Reason(cause=Cause.UNSUPPORTED, subject=subject, text=text)


def _why_not(leaf: JavaObject, log: ScanLog) -> Reason | None:
    """Why a relation does not read through an index; ``None`` if it does, or is not a relation."""
    found = file_relation(leaf)
    if found is None or isinstance(found, Reason):
        return found
    location = found[0].location()
    if log.find(location) is not None:
        return None
    name = simple_name(str(location.getClass().getName()))
    if name not in _LOCATIONS:
        return _left(name, "a table format with a list of files of its own")
    roots = ", ".join(_roots(location))
    text = "no index was found, or skip(df) was not called"
    return Reason(cause=Cause.ABSENT, subject=roots, text=text)


@dataclass(frozen=True, slots=True, eq=False)
class _Wrapped:
    """A ``relation`` that reads through ``proxy``. ``known`` has the relation that it was made of,
    and what the catalog says about its table: ``info`` holds for these objects."""

    info: RelationInfo
    proxy: SkippingFileIndex
    relation: JavaObject
    known: tuple[JavaObject, ...] = ()


def _wrapped(
    df: DataFrame,
    leaf: JavaObject,
    find: FindPruner,
    log: ScanLog,
    switch: str | None,
    made: Mapping[str, str],
) -> _Wrapped | None:
    """The relation for a leaf, a ``LogicalRelation``; ``None`` to leave the leaf as it is.

    Spark keeps the relation of a catalog's table until the table or its files change. The one
    through its index is kept as long, and made again where settings or the index are others.
    """
    whole = leaf.relation()
    number = log.jvm.identity_hash(whole)
    kept: _Wrapped | None = log.wrapped.get((log.tables.get(number), switch))
    if kept is not None and kept.info.confs == _confs(made):
        objects = whole, leaf.catalogTable()
        if all(known.containsKey(each) for known, each in zip(kept.known, objects, strict=True)):
            pruner = _pruner(kept.info, find, log, switch)
            if pruner is None:
                return None
            if kept.proxy.serves(pruner):
                return kept
    found = file_relation(leaf)
    if not isinstance(found, tuple):
        return None
    relation, format = found
    location = relation.location()
    known = log.find(location)
    if known is not None and switch is None and known.switch is not None:
        location = known.original
    if simple_name(str(location.getClass().getName())) not in _LOCATIONS:
        return None
    info = relation_info(df.sparkSession, log.jvm, leaf, relation, location, format, made)
    pruner = _pruner(info, find, log, switch)
    if pruner is None:
        return None
    unusable = unusable_columns(info.schema)
    proxy = SkippingFileIndex(
        log.jvm, location, pruner=pruner, info=info, unusable=unusable, log=log, switch=switch
    )
    new = _Wrapped(info, proxy, with_location(relation, proxy))
    # Spark keeps no other relations, which may have a long list of files.
    if info.table is not None and info.settings is None and known is None:
        table = f"{info.table} of {relation.sparkSession().sessionUUID()}"
        log.tables.put(number, table)
        objects = relation, leaf.catalogTable()
        new = replace(new, known=tuple(map(log.jvm.identity_set, objects)))
        log.wrapped.put((table, switch), new)
    return new


def _pruner(
    info: RelationInfo, find: FindPruner, log: ScanLog, switch: str | None
) -> Pruner | None:
    try:
        found = find(info)
    except Exception as error:
        if switch is None and isinstance(error, NoIndexError):
            raise
        _LOG.warning("%s is read without an index: %s", ", ".join(info.roots), error)
        for root in info.roots:
            log.failures.put(root, Reason.of_error(root, error).text)
        return None
    for root in info.roots:
        log.failures.pop(root)
    return found


def with_location(relation: JavaObject, proxy: SkippingFileIndex) -> JavaObject:
    """The relation with ``proxy`` as its location."""
    return relation.copy(
        proxy,
        relation.partitionSchema(),
        relation.dataSchema(),
        relation.bucketSpec(),
        relation.fileFormat(),
        relation.options(),
        relation.sparkSession(),
    )


def _roots(location: JavaObject) -> tuple[str, ...]:
    return tuple(canonical_path(str(root.toString())) for root in items(location.rootPaths()))


def relation_info(
    session: SparkSession,
    jvm: Jvm,
    leaf: JavaObject,
    relation: JavaObject,
    location: JavaObject,
    format: str,
    made: Mapping[str, str],
) -> RelationInfo:
    """A file relation as a pruner receives it; ``made`` are the settings of the session."""
    options = jvm.pairs(relation.options())
    settings = partial(session_settings, session, format) if format in FORMATS else None
    name = place = None
    if (table := leaf.catalogTable()).isDefined():
        name = str(table.get().identifier().unquotedString())
        place = jvm.pairs(table.get().properties()).get(INDEX_PROPERTY)
    return RelationInfo(
        roots=_roots(location),
        format=format,
        options=options,
        schema=str(relation.schema().json()),
        data_schema=str(relation.dataSchema().json()),
        partition_schema=str(relation.partitionSchema().json()),
        table=name,
        index_location=place,
        confs=_confs(made),
        settings=settings,
    )


def _confs(made: Mapping[str, str]) -> dict[str, str]:
    return {key: made[key] for key in _CONFS if key in made}


def unusable_columns(schema: str) -> Mapping[tuple[str, ...], str]:
    """Columns whose stored values do not decide a predicate, each with the reason.

    A collation does not compare bytes; ``char(n)`` pads; a column with a default has the default,
    not NULL, in files that lack it.
    """
    out: dict[tuple[str, ...], str] = {}
    stack: list[tuple[tuple[str, ...], Any]] = [((), json.loads(schema))]
    while stack:
        prefix, struct = stack.pop()
        for field in struct["fields"]:
            path = (*prefix, str(field["name"]))
            extra = field.get("metadata") or {}
            if isinstance(field["type"], dict) and field["type"].get("type") == "struct":
                stack.append((path, field["type"]))
            declared = str(extra.get("__CHAR_VARCHAR_TYPE_STRING", "")).lower()
            if "__COLLATIONS" in extra:
                out[path] = "a collation does not compare bytes"
            elif declared.startswith("char") or (
                declared.startswith(("map", "array")) and re.search(r"\bchar\b", declared)
            ):
                out[path] = "char(n) compares with padding"
            elif str(extra.get("EXISTS_DEFAULT", "NULL")).upper() != "NULL":
                out[path] = "files that lack the column have its default"
    return out
