"""Spark sessions: their kind, their keys for encrypted files, and the JVM behind a classic one.

Keys given to Skipstone stay in the process that received them, because Spark's plans, logs and
history show the options of a reader. Spark's own reader gets keys from a KMS client in Java, by
Spark's configuration (``parquet.crypto.factory.class``); ``format("skipstone")`` reads no encrypted
file.

A py4j call costs about 0.1 ms and a call back from the JVM about 0.5 ms. So there is no call per
file or per plan node. The JVM joins the texts of many values, and they are split here (``join``).
Indices cross as one byte string (``pick``), lists of paths as one text (``string_literals``).
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import threading
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from skipstone.errors import KeyUnavailableError, UnsupportedError

from .functions import CLASS_NAME, NODE_NAME, POSITIONS, SUBQUERIES, Functions
from .versions import Scala213, scala_of, setting_of, settings_of_connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession


def is_connect(thing: Any) -> bool:
    """True for a session or DataFrame of Spark Connect, whose JVM is elsewhere."""
    return any(".sql.connect." in f"{base.__module__}." for base in type(thing).__mro__)


def functions_of(spark: SparkSession) -> Any:
    """The functions of its columns: ``pyspark.sql.functions`` are those of the process, which may
    have sessions of both kinds."""
    return import_module(f"pyspark.sql.{'connect.' if is_connect(spark) else ''}functions")


def require_session(spark: Any) -> None:
    """``TypeError`` for anything but a session, such as ``None``."""
    if not _is(spark, "SparkSession"):
        raise TypeError(
            f"spark is a SparkSession, not {type(spark).__name__}:"
            " SparkSession.builder.getOrCreate() gives one; Table.query needs none"
        )


def require_frame(df: Any) -> None:
    """``TypeError`` for anything but a Spark DataFrame, such as a path."""
    if not _is(df, "DataFrame"):
        raise TypeError(
            f"this takes a Spark DataFrame, as spark.read.parquet(path) gives, not"
            f" {type(df).__name__}; skipstone.read(spark, path) takes a path"
        )


def _is(thing: Any, name: str) -> bool:
    return any(
        base.__name__ == name and base.__module__.startswith("pyspark.sql")
        for base in type(thing).__mro__
    )


def default_session(master: str = "local[*]", *, hive: bool = False) -> SparkSession:
    """The active session, else a local one, without UI and progress bars; ``hive``: with Hive's
    catalog.

    Workers run this Python: Spark would use ``python3`` of the PATH, which may lack Arrow.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(master)
        .appName("skipstone")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    if hive:
        builder = builder.enableHiveSupport()
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


# The modules of Hadoop that Apache's builds of Spark lack, by scheme.
_MODULES: Final = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}
# By session: from a scheme to the one by which the session's Hadoop reads it.
_SCHEMES: Final[WeakKeyDictionary[Any, dict[str, str]]] = WeakKeyDictionary()


def path_for_spark(spark: SparkSession, path: str) -> str:
    """``path`` (canonical) by a scheme that the session's Hadoop has: plain Hadoop reads S3 as
    ``s3a``. ``UnsupportedError`` where it has none."""
    scheme, found, rest = path.partition("://")
    if not found or scheme == "file" or is_connect(spark):
        return path
    known = _SCHEMES.setdefault(spark, {})
    if scheme not in known:
        known[scheme] = _scheme_for(spark, scheme, path)
    return f"{known[scheme]}://{rest}"


def _scheme_for(spark: SparkSession, scheme: str, path: str) -> str:
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    hadoop, conf = jvm.org.apache.hadoop, spark._jsparkSession.sessionState().newHadoopConf()
    if scheme == "s3" and conf.get("fs.s3.impl") is None:
        scheme = "s3a"
    try:
        hadoop.fs.FileSystem.getFileSystemClass(scheme, conf)
    except Py4JJavaError as error:
        why = str(error.java_exception.getMessage()).rpartition("Exception: ")[2]
        hint = "give Spark the jars of that filesystem"
        if (module := _MODULES.get(scheme)) is not None:
            package = f"org.apache.hadoop:{module}:{hadoop.util.VersionInfo.getVersion()}"
            hint = (
                f"start Spark with --packages {package}; the command line takes it from"
                f" PYSPARK_SUBMIT_ARGS='--packages {package} pyspark-shell'"
            )
        raise UnsupportedError(f"Spark cannot read {path}: {why}", hint=hint) from None
    return scheme


def literal_path(path: str) -> str:
    """``path`` for parameters in which Hadoop reads patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


ZONE: Final = "spark.sql.session.timeZone"


# Settings under which expressions in SQL mean what an index says.
_OWN_MEANING: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.icu.caseMappings.enabled": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
}


@contextmanager
def set_to(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Sets these settings within the block, and restores the earlier values."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def cloned(spark: SparkSession) -> SparkSession:
    """Another session of the same context, with the same settings."""
    made: SparkSession = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
    return made


def ansi_session(spark: SparkSession, zone: str | None) -> SparkSession:
    """A session with ANSI mode, this time zone and Spark's own meaning of texts; under Connect it
    must have them already."""
    wanted = _OWN_MEANING if zone is None else {**_OWN_MEANING, ZONE: zone}
    if not is_connect(spark):
        own = cloned(spark)
        for key, value in wanted.items():
            own.conf.set(key, value)
        return own
    for key, value in wanted.items():
        have = setting_of(spark.conf.get, key)
        if have is not None and have.lower() != value.lower():
            raise UnsupportedError(
                f"an index on an expression is built with {key} = {value}, and it is {have}",
                hint=f"set it in this session: spark.conf.set({key!r}, {value!r})",
            )
    return spark


def made_settings(spark: SparkSession) -> dict[str, str]:
    """The settings that were made in a session or for it, in few calls."""
    if is_connect(spark):
        return settings_of_connect(spark)
    return Jvm.of(spark).pairs(spark._jsparkSession.conf().getAll())


def settings_of(spark: SparkSession) -> dict[str, str]:
    """The same with its time zone."""
    made = made_settings(spark)
    if ZONE not in made:
        made[ZONE] = str(spark.conf.get(ZONE))  # that of the JVM
    return made


_FACTORY: Final = "parquet.crypto.factory.class"
_HERE: Final = "read them in this process: skipstone.Table(path, decryption=…).query(where)"
_HINT: Final = (
    "keys are not passed in options, which plans and logs show: read such files with Spark's own"
    f" reader and a KMS client ({_FACTORY}), or {_HERE}"
)


def encrypted_error(error: KeyUnavailableError) -> KeyUnavailableError:
    """The error of ``format("skipstone")`` for an encrypted file: it gets no keys."""
    return KeyUnavailableError(error.message, hint=_HINT)


def require_kms(path: str, spark: SparkSession, options: Mapping[str, str]) -> None:
    """``UnsupportedError`` where this session cannot decrypt Parquet files; the configuration of a
    Spark Connect server is unknown."""
    if is_connect(spark) or any(name.lower() == _FACTORY for name in options):
        return
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    if hadoop.get(_FACTORY) is None:
        raise UnsupportedError(
            f"{path} is encrypted, and this session has no KMS client to read it with",
            hint=f"Spark takes keys only from a KMS client: set {_FACTORY} and"
            f" parquet.encryption.kms.client.class, or {_HERE}",
        )


JavaObject: TypeAlias = Any  # py4j brings no types: an object in the JVM

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_PATTERNS = "org.apache.spark.sql.catalyst.trees.TreePattern"


class Jvm:
    """The gateway of one Spark context, and the Scala classes that reading needs.

    Every dot of a class's name is a call of its own, and so is the name of a static method, so
    they are looked up once.
    """

    def __init__(self, gateway: Any, context: JavaObject) -> None:
        self.gateway = gateway
        self.context = context  # org.apache.spark.SparkContext
        self.root = gateway.jvm
        self._classes: dict[str, Any] = {}
        self._thread = threading.local()

    @classmethod
    def of(cls, spark: SparkSession) -> Jvm:
        """The JVM of a classic session; from now on it can call back into Python."""
        context = spark.sparkContext
        found = _JVMS.get(context)
        if found is None:
            from pyspark.java_gateway import ensure_callback_server_started

            ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
            found = _JVMS[context] = cls(context._gateway, context._jsc.sc())
        return found

    @cached_property
    def scala(self) -> Scala213:
        """The collections of the JVM's version of Scala."""
        return scala_of(self)

    @cached_property
    def functions(self) -> Functions:
        """Methods of the JVM as functions of Scala."""
        return Functions(self)

    @property
    def pinned(self) -> bool:
        """Whether every Python thread has its own JVM thread (PySpark's default)."""
        return type(self.gateway).__name__ == "ClientServer"

    def thread_id(self) -> int:
        """The JVM thread that serves this Python thread, or that called back into it."""
        return int(self.static("java.lang.Thread", "currentThread")().getId())

    def answer_at_once(self) -> None:
        """Let the JVM send its answers on this thread without delay; once per thread.

        A long text is sent in pieces, and the system holds a small piece back until the one before
        is acknowledged, which takes up to 40 ms on Linux. Only the connection of a callback can be
        changed, and only of pinned threads; elsewhere the delay remains.
        """
        if getattr(self._thread, "prompt", False):
            return
        self._thread.prompt = True
        try:
            from py4j.java_gateway import JavaObject

            server = JavaObject("GATEWAY_SERVER", self.gateway._gateway_client)
            connection = server.getCallbackClient().getPerThreadConnection()
            if connection is not None:
                connection.getSocket().setTcpNoDelay(True)
        except Exception:  # another version of py4j: the delay remains
            return

    def local_property(self, key: str) -> str | None:
        """A Spark local property of that JVM thread."""
        value = self.context.getLocalProperty(key)
        return None if value is None else str(value)

    def call_hidden(self, item: JavaObject, method: str) -> Any:
        """The result of a private method without arguments."""
        types = self.gateway.new_array(self.type("java.lang.Class"), 0)
        found = item.getClass().getDeclaredMethod(method, types)
        found.setAccessible(True)
        return found.invoke(item, self.gateway.new_array(self.type("java.lang.Object"), 0))

    # -- Scala -------------------------------------------------------------------------------------

    def type(self, name: str) -> Any:
        """A class of the JVM by its full name."""
        found = self._classes.get(name)
        if found is None:
            found = self.root
            for part in name.split("."):
                found = getattr(found, part)
            self._classes[name] = found
        return found

    def static(self, name: str, method: str) -> Any:
        """A static method of a class."""
        return self.type(f"{name}.{method}")

    def module(self, name: str) -> JavaObject:
        """A Scala ``object`` (or companion) by its full name."""
        return self.type(f"{name}$.MODULE$")

    def nil(self) -> JavaObject:
        """The empty ``Seq``."""
        return self.module("scala.collection.immutable.Nil")

    def seq(self, *items: JavaObject) -> JavaObject:
        """A ``Seq`` of a few objects: one call each."""
        out = self.nil()
        for item in items:
            out = self.scala.append(out, item)
        return out

    def join(self, collection: JavaObject) -> list[str]:
        """The ``toString`` of every element of a Scala collection, in one call.

        The separator is random, so no element contains it.
        """
        self.answer_at_once()
        separator = f"\x1e{secrets.token_hex(16)}\x1e"
        text = str(collection.mkString(separator))
        if not text and collection.isEmpty():
            return []
        return text.split(separator)

    def joined(self, collection: JavaObject, *steps: str) -> list[str]:
        """The result of a function of ``functions.py`` for every element, in two calls."""
        return self.join(self.scala.map(collection, self.functions.of(*steps)))

    def node_names(self, plan: JavaObject) -> list[str]:
        """The names of the nodes of a plan, in preorder."""
        return self.join(plan.map(self.functions.of(*NODE_NAME)))

    def subqueries(self, plan: JavaObject) -> list[JavaObject]:
        """The plans of a plan's subqueries, at any depth; one may come twice."""
        found = self.functions.call(*SUBQUERIES)(plan)
        return list(items(plan.subqueriesAll())) if found else []

    def class_name(self, item: JavaObject) -> str:
        """The simple name of an object's class."""
        return str(self.functions.call(*CLASS_NAME)(item))

    def settings(self) -> dict[str, str]:
        """The settings that were made in the session of the calling JVM thread, in one call."""
        self.answer_at_once()
        separator = f"\x1e{secrets.token_hex(16)}\x1e"
        pairs = self.functions.settings(separator).split(separator)
        return {
            key: value for key, is_pair, value in (p.partition(" -> ") for p in pairs) if is_pair
        }

    def pairs(self, options: JavaObject) -> dict[str, str]:
        """A Scala ``Map[String, String]``; its pairs print as ``(key,value)``."""
        out = {}
        for text in self.join(options.toSeq()):
            key, _, value = text[1:-1].partition(",")
            out[key] = value
        return out

    def strings(self, array: JavaObject) -> list[str]:
        """A ``String[]`` in one call."""
        return self.join(self.scala.wrap(array))

    # -- files -------------------------------------------------------------------------------------

    def pick(self, files: JavaObject, indices: NDArray[np.int64]) -> JavaObject:
        """The elements of a Scala ``IndexedSeq`` at ``indices``, which ascend, as a ``Seq``, in
        constant calls.

        A Scala ``Seq`` is a function from position to element, so mapping it over an array of
        positions needs no code in the JVM.
        """
        bits = np.zeros(int(indices.max(initial=-1)) + 1, np.bool_)
        bits[indices] = True
        found = self.functions.call(*POSITIONS)(np.packbits(bits, bitorder="little").tobytes())
        return self.scala.map(self.scala.wrap(found), files)

    def string_literals(self, values: list[str]) -> JavaObject:
        """A Scala ``Set`` of Catalyst strings; no value holds a line feed, and none is empty."""
        strings = self.type("java.util.regex.Pattern").compile("\n").split("\n".join(values))
        literal = self.module(f"{_EXPRESSIONS}.Literal").apply(strings)
        return self.scala.wrap(literal.value().array()).toSet()

    def in_paths(self, uris: list[str]) -> JavaObject:
        """The Catalyst filter ``_metadata.file_path IN (uris)``; paths as Spark encodes them."""
        struct_field = self.module(f"{_EXPRESSIONS}.FileSourceConstantMetadataStructField")
        string_type = self.module("org.apache.spark.sql.types.StringType")
        field = struct_field.apply("file_path", string_type, False)
        types = self.module("org.apache.spark.sql.catalyst.types.DataTypeUtils")
        attribute = types.toAttribute(field)
        return self.type(f"{_EXPRESSIONS}.InSet")(attribute, self.string_literals(uris))

    def pattern(self, name: str) -> JavaObject:
        """A ``TreePattern`` of Catalyst."""
        key = f"{_PATTERNS}.{name}"
        if key not in self._classes:
            self._classes[key] = getattr(self.module(_PATTERNS), name)()
        return self._classes[key]

    def patterns(self, *names: str) -> JavaObject:
        """A ``Seq`` of some ``TreePattern``."""
        key = " ".join(names)
        if key not in self._classes:
            self._classes[key] = self.seq(*map(self.pattern, names))
        return self._classes[key]

    def identity_set(self, item: JavaObject) -> JavaObject:
        """A ``java.util.IdentityHashMap`` with ``item``: it finds the same object again."""
        known = self.type("java.util.IdentityHashMap")()
        known.put(item, True)
        return known

    def unique(self, found: list[JavaObject]) -> list[JavaObject]:
        """The distinct objects, by identity.

        They are not compared: the hash of a node of a plan takes the locks of all nodes below it,
        which other threads of the query hold while they wait for this one.
        """
        if len(found) < 2:
            return found
        known = self.identity_set(found[0])
        return [found[0], *(each for each in found[1:] if known.put(each, True) is None)]

    def identity_hash(self, item: JavaObject) -> int:
        """The identity hash of an object; other objects may have the same."""
        return int(self.static("java.lang.System", "identityHashCode")(item))


def items(sequence: JavaObject) -> Iterator[JavaObject]:
    """The elements of a Scala ``Seq``, one call each."""
    for at in range(int(sequence.size())):
        yield sequence.apply(at)


#: by SparkContext, so that classes are looked up once
_JVMS: WeakKeyDictionary[Any, Jvm] = WeakKeyDictionary()


def without_ids(text: str) -> str:
    """Catalyst's text without the numbers of attributes: ``id#12L`` -> ``id``."""
    return re.sub(r"#\d+L?", "", text)


def simple_name(java_class: str) -> str:
    """``a.b.C`` -> ``C``; a trailing ``$`` of a Scala object falls off."""
    return re.sub(r"^.*[.$]([A-Za-z0-9_]+)\$?$", r"\1", java_class)
