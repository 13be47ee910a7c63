"""A real HDFS on loopback: Hadoop's own name node and data nodes, in a Java process of their own.

The jars are those of PySpark, and Hadoop's ``hadoop-client-minicluster`` of the same version from
Maven. The superuser is ``hdfs``; whoever runs the tests is an ordinary user with a home.
"""

from __future__ import annotations

import getpass
import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from skipstone.storage.hadoop import HadoopStorage
from skipstone.storage.webhdfs import WebFiles
from tests.interop.java_systems import JavaProgram, jar, spark_jar
from tests.spark_servers import spark_home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUPERUSER = "hdfs"
_LOGGING = (
    *("slf4j-api", "log4j-api", "log4j-core", "log4j-1.2-api"),
    *("log4j-slf4j2-impl", "jcl-over-slf4j"),
)


@dataclass(frozen=True)
class Hdfs:
    """``root``: ``hdfs://localhost:PORT``; ``web``: the address of WebHDFS."""

    root: str
    web: str

    @property
    def options(self) -> dict[str, str]:
        """The storage options of a process without a session."""
        return {"webhdfs": self.web, "user": getpass.getuser()}

    @property
    def home(self) -> str:
        """A directory that the user of the tests may write."""
        return f"{self.root}/user/{getpass.getuser()}"

    def as_superuser(self) -> HadoopStorage:
        """The storage of a user who may do everything."""
        options = {"webhdfs": self.web, "user": SUPERUSER}
        return HadoopStorage(self.root, WebFiles.at(self.root, options))

    def change(self, path: str, op: str, **parameters: str) -> None:
        """An operation of WebHDFS, as the superuser."""
        options = {"webhdfs": self.web, "user": SUPERUSER}
        WebFiles.at(self.root, options)._ask("PUT", path, op, **parameters)


@contextmanager
def mini_hdfs(home: Path) -> Iterator[Hdfs]:
    """An HDFS until the end of the block; skips where its jars are not to be had."""
    program = JavaProgram("MiniHdfs", hadoop_jars(), home, flags=["-Xmx512m"])
    with running(program, home, str(home / "dfs"), HADOOP_USER_NAME=SUPERUSER) as words:
        found = Hdfs(*words)
        found.change(found.home, "MKDIRS")
        found.change(found.home, "SETOWNER", owner=getpass.getuser())
        yield found


def hadoop_jars() -> list[Path]:
    """Hadoop's servers, its client and its logging; else skips."""
    cluster = jar("hadoop-client-minicluster")
    version = cluster.stem.rpartition("-")[2]
    if not (spark_home() / "jars" / f"hadoop-client-api-{version}.jar").exists():
        pytest.skip(f"PySpark brings another Hadoop than {version}: change tests/interop/pom.xml")
    return [cluster, *map(spark_jar, ("hadoop-client-api", "hadoop-client-runtime", *_LOGGING))]


@contextmanager
def running(program: JavaProgram, home: Path, *arguments: str, **env: str) -> Iterator[list[str]]:
    """The words of the first line that a server prints, which runs until the end of the block."""
    log_file = home / f"{program.name}.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [*program.command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, **env},
            cwd=home,
            text=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.strip(), log_file.read_text()[-4000:]
        yield line.split()
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
