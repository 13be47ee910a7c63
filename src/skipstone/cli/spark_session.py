"""The Spark session of a verb."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import tempfile
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import click

from skipstone.errors import SkipstoneError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


_MOST_OUTPUT = 1 << 20
_EXCEPTION = re.compile(r"^(?:Exception in thread \S+|Error:) (?:[\w.]+: )?(.+)$", re.MULTILINE)
_JAVA = "install Java 17 or newer, or build without Spark: --no-spark"


@contextmanager
def session(
    master: str, *, no_spark: bool = False, hive: bool = False
) -> Iterator[SparkSession | None]:
    """A session for this call, stopped afterwards; ``None`` without Spark. ``hive``: with Hive's
    catalog, as Spark's configuration has it (``hive-site.xml``)."""
    if no_spark:
        yield None
        return
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise SkipstoneError("Spark needs Java, and there is none on the PATH", hint=_JAVA)
    if importlib.util.find_spec("pyspark") is None:
        raise SkipstoneError(
            "PySpark is not installed",
            hint="pip install 'skipstone[spark]', or build without Spark: --no-spark",
        )
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
            reason, hint = _first_exception(output), _JAVA
            if "Master" in reason:
                hint = "--master is local[*], spark://HOST:PORT, yarn, or k8s://…"
            raise SkipstoneError(f"Java did not start Spark{reason}", hint=hint) from error
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()


@contextmanager
def _java_output() -> Iterator[IO[bytes] | None]:
    """Sends what Java writes to stderr to a temporary file, unless ``--debug`` is set.

    Java inherits the descriptor, so its later lines go there too. A failure of the build is still
    raised as an exception.
    """
    context = click.get_current_context(silent=True)
    if context is not None and context.params.get("debug"):
        yield None
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as output:
        shown = os.dup(2)
        os.dup2(output.fileno(), 2)
        try:
            yield output
        finally:
            os.dup2(shown, 2)
            os.close(shown)


def _first_exception(output: IO[bytes] | None) -> str:
    """The first exception in the output of Java, as ``: …``."""
    if output is None:
        return ""
    output.seek(0)
    text = output.read(_MOST_OUTPUT).decode(errors="replace")
    found = _EXCEPTION.search(text)
    return f": {found[1].strip()}" if found else ""
