"""What a point works with: a directory of its own, the command line, and Spark when it asks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str


class Workshop:
    """What all points of a run share: one Spark session, started for the first that asks."""

    def __init__(self) -> None:
        self._spark: SparkSession | None = None

    def spark(self) -> SparkSession:
        if self._spark is None:
            os.environ["PYSPARK_PYTHON"] = sys.executable
            os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            from pyspark.sql import SparkSession

            self._spark = (
                SparkSession.builder.master("local[2]")
                .appName("skipstone accept")
                .config("spark.driver.memory", "1g")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.sql.session.timeZone", "UTC")
                .getOrCreate()
            )
            self._spark.sparkContext.setLogLevel("ERROR")
        return self._spark

    def close(self) -> None:
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    @contextmanager
    def bench(self) -> Iterator[Workbench]:
        """A workbench whose directory is gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="skipstone-accept-") as home:
            yield Workbench(Path(home), self)


@dataclass(frozen=True, slots=True)
class Workbench:
    """One point's place to work."""

    home: Path
    workshop: Workshop = field(repr=False)

    @property
    def spark(self) -> SparkSession:
        """The run's classic session: local[2], UTC."""
        return self.workshop.spark()

    def skipstone(self, *arguments: str | Path) -> Ran:
        """Run the command line with these arguments, in `home`, as a user would."""
        done = subprocess.run(
            [sys.executable, "-m", "skipstone", *map(str, arguments)],
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)
