"""The Spark session of a verb."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError
from skipstone.human import plural
from skipstone.human import size as human_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from skipstone.table import Table


_MOST_OUTPUT = 1 << 20
_EXCEPTION = re.compile(r"^(?:Exception in thread \S+|Error:) (?:[\w.]+: )?(.+)$", re.MULTILINE)
# The messages of Java, or of the script that starts it, if there is no Java.
_NO_MACHINE = re.compile(
    r"^Error occurred during initialization of VM\n(.+)$"
    r"|^(.+)\nError: Could not create the Java Virtual Machine"
    r"|(\S+/java: No such file or directory)$",
    re.MULTILINE,
)
_JAVA = "install Java 17 or newer (JAVA_HOME); build and refresh need none (--no-spark)"
_MASTERS = "local, local[4], local[*], spark://HOST:PORT, yarn or k8s://URL"
# The masters that Spark accepts. Spark checks a master only after its start, and wrong masters fail
# in different ways.
_CORES = r"(?:\*|0*[1-9]\d*)"
_CONNECT = "sc://"
_IS_MASTER = re.compile(
    rf"local(?:\[{_CORES}(?:\s*,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://[^\s,:/]+:\d+(?:,[^\s,:/]+:\d+)*|yarn"
    r"|(?!spark:|sc:)[a-z][a-z0-9+.-]*://\S+"  # k8s, and masters of other cluster managers
)
# From this many bytes of data and cores on, a local session is started. A session takes about ten
# seconds to start. The threads of this process wait for each other a quarter of the time, so up to
# four cores index as fast here as Spark's workers do: 6.1 GB took 44 s on two, and Spark 113 s.
_SPARK_FROM = 20 * 10**9
_CORES_HERE = 4


@dataclass(slots=True)
class BuildSession:
    """Chooses where a build runs, when the size of the work is known.

    ``master`` and ``no_spark`` are what the user said; ``stack`` ends the session. ``why`` is the
    reason of the choice.
    """

    target: Table
    master: str | None
    no_spark: bool
    stack: ExitStack
    why: str = ""

    def start(self, idle: Callable[[], bool] = lambda: False) -> SparkSession | None:
        """The session, if the build needs one before its work is known: because only Spark reads or
        reaches such files, or because a catalog has the table. ``idle`` says that there is no
        work."""
        from skipstone.storage import needs_session
        from skipstone.table.file_format import ParquetFormat

        target = self.target
        if self.no_spark:
            return None
        if target.catalog is not None:
            self.why = "whose catalog has the table"
        elif not isinstance(target.file_format, ParquetFormat):
            self.why = "which reads such files"
        elif needs_session(target.path, target.storage_options):
            self.why = "which reaches the files"
        else:
            return None
        return None if idle() else self._started(self.master or "local[*]")

    def __call__(self, files: int, nbytes: int) -> SparkSession | None:
        if self.no_spark:
            self.why = "as --no-spark says"
            return None
        if self.master is not None:
            self.why = "as --master says"
            return self._started(self.master)
        work = f"{plural(files, 'file')}, {human_size(nbytes)}"
        cores = len(os.sched_getaffinity(0))
        missing = _missing()
        if nbytes < _SPARK_FROM or cores <= _CORES_HERE:
            self.why = f"{work}: on {plural(cores, 'core')} Spark would take longer"
        elif missing is not None:
            self.why = f"{work}: {missing.message}"
        else:
            self.why = f"{work}: on {plural(cores, 'core')} that is worth the start of Spark"
            return self._started("local[*]")
        return None

    def _started(self, master: str) -> SparkSession | None:
        return self.stack.enter_context(session(master))


def spark_master(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The value of ``--master``; a usage error if Spark knows no such master."""
    if value is None or _IS_MASTER.fullmatch(value):
        return value
    text = f"{value!r} is not a Spark master: write {_MASTERS}"
    if value.startswith(_CONNECT):
        if ctx.info_name in ("build", "refresh"):
            return value
        text = f"{value} is a server of Spark Connect, which only build and refresh take"
    raise click.BadParameter(text, ctx, param)


def _missing() -> SkipstoneError | None:
    """What Spark needs and this machine lacks."""
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        return SkipstoneError("Spark needs Java, and there is none on the PATH", hint=_JAVA)
    if importlib.util.find_spec("pyspark") is None:
        return SkipstoneError(
            "PySpark is not installed",
            hint="pip install 'skipstone[spark]'; build and refresh need none (--no-spark)",
        )
    if importlib.util.find_spec("py4j") is None:
        return SkipstoneError(
            "this PySpark is a client of Spark Connect, which starts no Spark",
            hint="--no-spark builds in this process, and --master sc://HOST:15002 at a server",
        )
    return None


@contextmanager
def session(
    master: str, *, no_spark: bool = False, hive: bool = False
) -> Iterator[SparkSession | None]:
    """A session for this call, stopped afterwards; ``None`` without Spark. ``hive``: with Hive's
    catalog, as Spark's configuration has it (``hive-site.xml``)."""
    if no_spark:
        yield None
        return
    if master.startswith(_CONNECT):
        with _connected(master) as remote:
            yield remote
        return
    missing = _missing()
    if missing is not None:
        raise missing
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    from skipstone.spark.session import default_session
    from skipstone.spark.versions import condition_of

    running = SparkSession.getActiveSession()
    with _java_output() as output:
        try:
            spark = default_session(master=master, hive=hive)
        except PySparkRuntimeError as error:
            if condition_of(error) != "JAVA_GATEWAY_EXITED":
                raise
            raise _not_started(_first_exception(output)) from error
        except Py4JError as error:
            raise _not_started(_thrown(error)) from error
        except FileNotFoundError as error:  # the script that starts Java
            raise SkipstoneError(
                f"Spark did not start: there is no {error.filename}",
                hint="SPARK_HOME is the directory of a Spark; without it, that of PySpark is taken",
            ) from error
    ours = running is None
    try:
        yield spark
    except KeyboardInterrupt:
        ours = False  # Java ends with this process, and stopping takes seconds
        raise
    finally:
        if ours:
            spark.stop()


@contextmanager
def _connected(address: str) -> Iterator[SparkSession]:
    """A session of the server of Spark Connect at ``address``, which has its own catalog."""
    import socket
    from urllib.parse import urlsplit

    if any(importlib.util.find_spec(each) is None for each in ("pyspark", "grpc")):
        raise SkipstoneError(
            "the client of Spark Connect is not installed", hint="pip install 'skipstone[connect]'"
        )
    url = urlsplit(address)
    try:  # the client itself would retry for minutes
        socket.create_connection((url.hostname or "", url.port or 15002), timeout=10).close()
    except OSError as error:
        raise SkipstoneError(
            f"no server of Spark Connect answers at {url.netloc}: {error}",
            hint="its address is sc://HOST:15002",
        ) from None
    from pyspark.sql.connect.session import SparkSession as Remote

    made: Any = Remote.builder.remote(address).getOrCreate()
    try:
        yield made
    finally:
        made.stop()


@contextmanager
def _java_output() -> Iterator[IO[bytes] | None]:
    """Sends what Java writes to a temporary file, unless ``--debug`` is set.

    Java inherits the descriptors, so its later lines go there too. A failure of the build is still
    raised as an exception.
    """
    context = click.get_current_context(silent=True)
    if context is not None and context.params.get("debug"):
        yield None
        return
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as output:
        shown = [os.dup(descriptor) for descriptor in (1, 2)]
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
        try:
            yield output
        finally:
            for descriptor, before in zip((1, 2), shown, strict=True):
                os.dup2(before, descriptor)
                os.close(before)


def _not_started(reason: str) -> SkipstoneError:
    """The error of a session that did not start, for Java's ``reason``, which may be empty."""
    lowered = reason.lower()
    if "CONF_DIR" in reason:
        hint = "set it to the directory that has yarn-site.xml"
    elif "class file version" in reason or "/java: No such" in reason or not reason:
        hint = _JAVA
    elif "memory" in lowered or "heap" in lowered:
        hint = (
            "spark.driver.memory of Spark's configuration is such as 2g, as is SPARK_DRIVER_MEMORY"
        )
    elif "master" in lowered:
        hint = f"--master is {_MASTERS}"
    else:
        hint = "--debug shows what Java says; --no-spark builds in this process, without Java"
    return SkipstoneError(f"Spark did not start{f': {reason}' if reason else ''}", hint=hint)


def _thrown(error: Exception) -> str:
    """The message of what Java has thrown, and that of its first cause."""
    thrown, messages = getattr(error, "java_exception", None), []
    while thrown is not None:
        message = thrown.getMessage()
        messages += str(message).splitlines()[:1] if message else []
        thrown = thrown.getCause()
    if not messages:
        return str(error).partition("\n")[0]
    first, last = messages[0], messages[-1]
    return first if last in first else f"{first.rstrip('.')}: {last}"


def _first_exception(output: IO[bytes] | None) -> str:
    """The message of the first exception in the output of Java, empty if there is none."""
    if output is None:
        return ""
    output.seek(0)
    text = output.read(_MOST_OUTPUT).decode(errors="replace")
    found = _NO_MACHINE.search(text) or _EXCEPTION.search(text)
    return "" if found is None else next(filter(None, found.groups())).strip()
