"""Sessions: which kind one is, and one of our own for the command line."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["default_session", "is_connect"]


def is_connect(thing: Any) -> bool:
    """True for a session or DataFrame of Spark Connect, whose JVM is elsewhere."""
    return any(".sql.connect." in f"{base.__module__}." for base in type(thing).__mro__)


def default_session(
    *, master: str = "local[*]", app_name: str = "skipstone", **conf: str
) -> SparkSession:
    """The session that is running, else one on this machine, without UI and progress bars.

    Workers run this Python: Spark would take ``python3`` of the PATH, which may know no Arrow.
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
