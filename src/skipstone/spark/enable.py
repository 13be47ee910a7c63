"""``enable(spark)``: every ``spark.read``, ``spark.table`` and ``spark.sql`` of a session skips.

Three methods of PySpark return DataFrames of files: ``SparkSession.sql``, ``SparkSession.table``
and ``DataFrameReader._df``, which ends every method of ``spark.read``. ``hook`` puts a function
around each. It calls the method, and passes the DataFrame through ``skip``. The methods of the
class are hooked, because PySpark makes new session objects at any time (``df.sparkSession``,
``getActiveSession``); whether a session skips is a setting of the session in the JVM.

**No query fails because of it.** The method runs first, and its errors are Spark's. After any later
failure, the plain DataFrame is returned, and the log gets a line. A file index that fails while it
lists returns all files (``file_index.py``).

**The setting is read twice**: when a DataFrame is made, and by the file index when Spark plans a
query. So views and DataFrames made before ``disable`` read as plain Spark after it.

**Commands.** ``spark.sql`` runs a command before it returns. The query of an ``INSERT`` and of a
``CREATE TABLE … AS`` is analyzed alone first; where it reads an indexed table, the command gets the
skipping query, as ``DataFrameWriter`` gives its DataFrame to the same command. Nothing runs before
the command itself, so after a failure the statement is left to Spark.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import threading
import time
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from skipstone._cache import LruCache
from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.identity import canonical_path

from .facts import Locations, finder, store_cache
from .relation import ENABLED, INDEX_LOCATION, FindPruner, Pruner, RelationInfo
from .scan_log import OnScan, scan_log
from .session import JavaObject, is_connect, require_session, simple_name
from .skip import frame_of, skip

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


_LOG = logging.getLogger("skipstone")

# Seconds for which a search that found no index in an object store is not repeated: it costs
# requests for every folder above the table.
_ABSENT_SECONDS: Final = 10.0
_REMEMBERED: Final = 1_000
# Statements that may be commands with a query. Only these are parsed a second time.
_WRITES: Final = re.compile(r"\b(?:insert|create|replace)\b", re.IGNORECASE)
_WITH_QUERY: Final = ("InsertIntoStatement", "CreateTableAsSelect", "ReplaceTableAsSelect")
_WITH: Final = "UnresolvedWith"


def enable(spark: SparkSession, *, on_scan: OnScan | None = None) -> None:
    """Every ``spark.read``, ``spark.table`` and ``spark.sql`` of this session skips, until
    ``disable``.

    >>> skipstone.enable(spark)
    >>> spark.sql("SELECT count(*) FROM db.events WHERE user_id = 'u-8814'").show()

    It sets ``spark.skipstone.enabled`` to ``true`` in this session. Rows are those of plain Spark,
    and tables without an index are read as before. No query fails by it: where something does, the
    query reads every file, and the log (``skipstone``) says why. Temporary views made from such
    DataFrames skip in other languages too, as in ``%sql`` cells.

    ``on_scan`` is called with each ``Scan`` of the Spark context, after it was planned, on a thread
    of Spark: for metrics. What it raises goes to the log.

    Raises ``UnsupportedError`` under Spark Connect, where a client cannot change the plan.
    """
    require_session(spark)
    if is_connect(spark):
        raise UnsupportedError(
            "enable(spark) needs a classic session: under Spark Connect a client cannot see plans",
            hint="use skipstone.read(spark, path, where=…), or spark.read.format('skipstone')",
        )
    hook()
    _HOOKS.sessions.add(_id_of(spark))
    spark.conf.set(ENABLED, "true")
    if on_scan is not None:
        scan_log(spark).on_scan = on_scan


def disable(spark: SparkSession) -> None:
    """The session reads as plain Spark again, also through DataFrames and views made before.

    >>> skipstone.disable(spark)
    """
    require_session(spark)
    if is_connect(spark):
        return
    spark.conf.unset(ENABLED)
    if _is_true(spark.conf.get(ENABLED, None)):  # by --conf, for all sessions of the application
        spark.conf.set(ENABLED, "false")
    scan_log(spark).on_scan = None
    _HOOKS.sessions.discard(_id_of(spark))
    if not _HOOKS.sessions and not _HOOKS.of_job:
        unhook()


def _id_of(spark: SparkSession) -> str:
    return str(spark._jsparkSession.sessionUUID())


# -- the methods of PySpark ------------------------------------------------------------------------

_LOCK = threading.Lock()
_INSIDE = threading.local()


@dataclass(slots=True)
class _Hooks:
    """PySpark's own methods, and the users of the hooks: the ids of the sessions that ``enable``
    was called with, and the job of ``skipstone.run``."""

    originals: dict[tuple[type, str], Any] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)
    of_job: bool = False


_HOOKS: Final = _Hooks()


def hook(*, of_job: bool = False) -> None:
    """Let DataFrames of enabled sessions skip. ``of_job``: also those of all sessions of this
    process that do not have the setting."""
    from pyspark.sql import DataFrameReader, SparkSession

    with _LOCK:
        _HOOKS.of_job = _HOOKS.of_job or of_job
        for owner, name in (
            (SparkSession, "sql"),
            (SparkSession, "table"),
            (DataFrameReader, "_df"),
        ):
            if (owner, name) not in _HOOKS.originals:
                original = _HOOKS.originals[owner, name] = owner.__dict__[name]
                setattr(owner, name, _hooked(original, name))


def unhook() -> None:
    """Restores PySpark's own methods."""
    with _LOCK:
        for (owner, name), original in _HOOKS.originals.items():
            setattr(owner, name, original)
        _HOOKS.originals.clear()
        _HOOKS.of_job = False


def _hooked(original: Callable[..., DataFrame], name: str) -> Callable[..., DataFrame]:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> DataFrame:
        # One of the methods may call another: the outermost decides.
        session = getattr(self, "_spark", self)
        if getattr(_INSIDE, "call", False) or not _enabled(session):
            return original(self, *args, **kwargs)
        _INSIDE.call = True
        try:
            command = _command(session, args, kwargs) if name == "sql" else None
            if command is not None:
                return frame_of(session, command)
            return _skipping(original(self, *args, **kwargs))
        finally:
            _INSIDE.call = False

    return call


def _enabled(session: SparkSession) -> bool:
    try:
        setting = session.conf.get(ENABLED, None)
        if setting is None and _HOOKS.of_job:
            session.conf.set(ENABLED, "true")
            return True
        return _is_true(setting)
    except Exception:  # a stopped session: its own method has the error
        return False


def _is_true(setting: str | None) -> bool:
    return (setting or "").strip().lower() == "true"


def _skipping(frame: DataFrame) -> DataFrame:
    try:
        return _skip(frame)
    except Exception as error:
        _LOG.warning("read without an index: %s", _in_words(error))
        return frame


def _skip(frame: DataFrame) -> DataFrame:
    return skip(frame, _PrunerFinder(frame.sparkSession).find, switch=ENABLED)


def _command(session: SparkSession, args: tuple[Any, ...], kwargs: Any) -> JavaObject | None:
    """The plan of a command whose query skips; ``None`` for other statements, and if it cannot
    skip."""
    text = args[0] if len(args) == 1 else kwargs.get("sqlQuery")
    if len(args) + len(kwargs) != 1 or not isinstance(text, str) or not _WRITES.search(text):
        return None
    try:
        jvm = scan_log(session).jvm
        state = session._jsparkSession.sessionState()
        parsed = state.sqlParser().parsePlan(text)
        kind = simple_name(str(parsed.getClass().getName()))
        names = parsed if kind == _WITH else None
        if names is not None:  # WITH … INSERT: the names belong to its query
            parsed = names.child()
            kind = simple_name(str(parsed.getClass().getName()))
        if kind not in _WITH_QUERY:
            return None
        query = parsed.query()
        if bool(query.getClass().getName().endswith("UnresolvedInlineTable")):
            return None
        whole = query if names is None else names.withNewChildren(jvm.seq(query))
        plain = frame_of(session, whole)
        skipping = _skip(plain)
        if skipping is plain:
            return None
        swap = jvm.module("scala.collection.immutable.Map").empty()
        analyzed = skipping._jdf.queryExecution().analyzed()
        command = parsed.transformDown(swap.updated(query, analyzed))
        # Analyzed here too, because a failure of the command itself cannot be taken back.
        without_running = jvm.module("org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
        state.executePlan(command, without_running).assertAnalyzed()
        return command
    except Exception as error:  # Spark may accept it, or raise the error
        _LOG.debug("a command is left to Spark: %s", _in_words(error))
        return None


def _in_words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


# -- the index of a relation -----------------------------------------------------------------------

_ABSENT: LruCache[tuple[str, ...], float] = LruCache(_REMEMBERED)


class _PrunerFinder:
    """Finds the facts of a relation at the location in the setting, or next to its table."""

    def __init__(self, session: SparkSession) -> None:
        self._stores = store_cache(session)
        self._find: FindPruner | None = None

    def find(self, relation: RelationInfo) -> Pruner | None:
        if self._find is None:
            setting = (relation.confs or {}).get(INDEX_LOCATION)
            self._find = finder(locations_of(setting), self._stores, required=True)
        remote = any("://" in root for root in relation.roots)
        key = relation.roots
        if remote:
            with _LOCK:
                until = _ABSENT.get(key)
            if until is not None and time.monotonic() < until:
                return None
        found = self._find(relation)
        if found is None and remote:
            with _LOCK:
                _ABSENT.put(key, time.monotonic() + _ABSENT_SECONDS)
        return found


def locations_of(setting: str | None) -> Locations:
    """``spark.skipstone.index.location``: one location, or a JSON object from table to location."""
    text = (setting or "").strip()
    if not text.startswith("{"):
        return text or None
    try:
        return {canonical_path(str(key)): str(value) for key, value in json.loads(text).items()}
    except ValueError as error:
        raise SkipstoneError(
            f"{INDEX_LOCATION} is not JSON: {error}",
            hint='write one location, or {"s3://lake/events": "s3://indexes/events"}',
        ) from error
