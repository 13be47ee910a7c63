"""Spark sessions: their kind, their keys for encrypted files, and one for the command line.

Keys given to Skipstone stay in the process that received them, as options of a reader stand in
Spark's plans, logs and history. Spark's own reader has keys from a KMS client in Java, by Spark's
configuration (``parquet.crypto.factory.class``); ``format("skipstone")`` reads no encrypted file.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from skipstone.errors import KeyUnavailableError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


def is_connect(thing: Any) -> bool:
    """True for a session or DataFrame of Spark Connect, whose JVM is elsewhere."""
    return any(".sql.connect." in f"{base.__module__}." for base in type(thing).__mro__)


def require_session(spark: Any) -> None:
    """``TypeError`` for other than a session, such as ``None``."""
    if not _is(spark, "SparkSession"):
        raise TypeError(
            f"spark is a SparkSession, not {type(spark).__name__}:"
            " SparkSession.builder.getOrCreate() gives one; Table.query needs none"
        )


def require_frame(df: Any) -> None:
    """``TypeError`` for other than a Spark DataFrame, such as a path."""
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


def default_session(
    *, master: str = "local[*]", app_name: str = "skipstone", **conf: str
) -> SparkSession:
    """The active session, else a local one, without UI and progress bars.

    Workers run this Python: Spark would take ``python3`` of the PATH, which may lack Arrow.
    ``conf`` are further settings, dots written as ``__``.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(master)
        .appName(app_name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    for key, value in conf.items():
        builder = builder.config(key.replace("__", "."), value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


_FACTORY: Final = "parquet.crypto.factory.class"
_HERE: Final = "read them in this process: skipstone.Table(path, decryption=…).query(where)"
_HINT: Final = (
    "keys do not travel in options, which stand in plans and logs: read such files with Spark's own"
    f" reader and a KMS client ({_FACTORY}), or {_HERE}"
)


def locked(error: KeyUnavailableError) -> KeyUnavailableError:
    """The error as ``format("skipstone")`` raises it."""
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
            hint=f"Spark takes keys from nothing else: set {_FACTORY} and"
            f" parquet.encryption.kms.client.class, or {_HERE}",
        )
