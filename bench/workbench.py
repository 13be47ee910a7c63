"""What all figures share: their sizes, a folder for generated data, and one Spark session."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from pyspark.sql import SparkSession

__all__ = ["FULL", "TOY", "Sizes", "Workbench"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of everything; targets are about ``FULL``."""

    files: int
    rows_per_file: int
    absent_keys: int
    absent_keys_through_spark: int
    runs: int
    facts: tuple[int, int, int]
    bloom_facts: int
    planned_files: tuple[int, int]
    refreshed_files: int
    cold_facts: int
    #: of the 50 million rows of the large Parquet file
    parquet_factor: float

    def repeated(self, times: int) -> int:
        """``times``, or 1 at toy sizes, where no time has a meaning."""
        return times if self.runs > 1 else 1


FULL = Sizes(
    files=1_000,
    rows_per_file=50_000,
    absent_keys=200,
    absent_keys_through_spark=5,
    runs=9,
    facts=(10_000, 100_000, 1_000_000),
    bloom_facts=1_000_000,
    planned_files=(1_000, 10_000),
    refreshed_files=1_000,
    cold_facts=1_000,
    parquet_factor=1.0,
)
#: Shows that every figure can be measured; the times have no meaning.
TOY = Sizes(
    files=6,
    rows_per_file=200,
    absent_keys=5,
    absent_keys_through_spark=1,
    runs=1,
    facts=(50, 60, 70),
    bloom_facts=40,
    planned_files=(3, 4),
    refreshed_files=100,
    cold_facts=5,
    parquet_factor=0.0005,
)


class Workbench(AbstractContextManager["Workbench"]):
    """Sizes, the folder ``home`` for what is generated, and the session while it is needed.

    ``names`` are the beginnings of the figures to measure; all without any.
    """

    def __init__(self, home: Path, sizes: Sizes = FULL, names: Sequence[str] = ()) -> None:
        self.home, self.sizes = home.absolute(), sizes
        self._names = names
        self._session: SparkSession | None = None

    @cached_property
    def spark(self) -> SparkSession:
        """A session on two cores of this machine, started when it is first asked for."""
        # The workers must run this Python; Spark takes "python3" of the PATH otherwise.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        from pyspark.sql import SparkSession

        self._session = (
            SparkSession.builder.master("local[2]")
            .appName("skipstone bench")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.warehouse.dir", str(self.home / "warehouse"))
            .getOrCreate()
        )
        self._session.sparkContext.setLogLevel("ERROR")
        return self._session

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            self._session.stop()

    def wants(self, figure: str) -> bool:
        """Whether the figures whose names begin like this are to be measured."""
        return not self._names or any(
            figure.startswith(name) or name.startswith(figure) for name in self._names
        )

    def generated(self, name: str, make: Callable[[Path], None], **recipe: Any) -> Path:
        """The folder ``name`` as ``make`` left it, made again when the recipe is another one."""
        folder, note = self.home / name, self.home / f"{name}.recipe.json"
        wanted = json.dumps(recipe, sort_keys=True)
        if note.exists() and note.read_text() == wanted:
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        note.unlink(missing_ok=True)
        folder.mkdir(parents=True)
        print(f"generating {folder} …", file=sys.stderr, flush=True)
        make(folder)
        # Written last: an interrupted run leaves no recipe, and the next run starts again.
        note.write_text(wanted)
        return folder
