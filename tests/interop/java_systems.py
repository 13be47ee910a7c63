"""Jars by their coordinates, and the Java programs of this folder compiled against them."""

from __future__ import annotations

import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.folders import ROOT
from tests.java import options_of
from tests.spark_servers import spark_home

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).parent
JARS = ROOT / ".interop" / "jars"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_POM = "{http://maven.apache.org/POM/4.0.0}"


def jar(artifact: str) -> Path:
    """The jar of this artifact of the POM, fetched when it is first needed; else skips."""
    java_tool("javac")
    versions = {
        each.findtext(f"{_POM}artifactId"): each.findtext(f"{_POM}version")
        for each in ET.parse(HERE / "pom.xml").iter(f"{_POM}dependency")
    }
    found = JARS / f"{artifact}-{versions[artifact]}.jar"
    if not found.exists() and (why := _fetch(HERE / "pom.xml", JARS, transitive=False)):
        pytest.skip(f"no {found.name}: {why}")
    return found


def all_jars(pom: str) -> list[Path]:
    """The jars of the POM of this name, with all that they need; else skips."""
    java_tool("java")
    folder = JARS / pom
    if not folder.exists() and (why := _fetch(HERE / pom, folder, transitive=True)):
        pytest.skip(f"no jars of {pom}: {why}")
    return sorted(folder.glob("*.jar"))


def run_with_connectors(module: str, home: Path) -> None:
    """Runs ``python -m module HOME JARS`` with the Spark that the connectors of Delta Lake and
    Apache Iceberg know, and with their jars; skips where these or that Spark are absent."""
    spark = ROOT / ".venv-spark4.1"
    python = spark / "bin" / "python"
    if not python.exists():
        pytest.skip("no environment with PySpark 4.1: `make long` makes it")
    jars = ",".join(map(str, [*all_jars("delta.xml"), *all_jars("iceberg.xml")]))
    done = subprocess.run(
        [python, "-m", module, home, jars],
        cwd=ROOT,
        env={
            **os.environ,
            **options_of(spark),
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def java_tool(name: str) -> str:
    """Where ``java`` or ``javac`` is, in JAVA_HOME before the PATH as Spark looks; else skips."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin" if home else None)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@cache
def _fetch(pom: Path, into: Path, *, transitive: bool) -> str:
    """Why Maven cannot fetch the jars of a POM; "" where it did. Asked once per process."""
    if shutil.which("mvn") is None:
        return "mvn is not installed"
    # Into a folder of its own: a copy that was cut short is not taken for a jar.
    fresh = JARS.parent / f"fetch-{os.getpid()}"
    command = ["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(pom), _COPY]
    options = [
        f"-DexcludeTransitive={'false' if transitive else 'true'}",
        f"-DoutputDirectory={fresh}",
    ]
    try:
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=900, check=False
        )
    except subprocess.TimeoutExpired:
        return "Maven did not fetch it within 15 minutes"
    if done.returncode != 0:
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
        return f"Maven cannot fetch it: {errors[0] if errors else done.stderr[:200]}"
    if transitive:  # a folder of its own, whole or not there
        into.parent.mkdir(parents=True, exist_ok=True)
        fresh.replace(into)
        return ""
    into.mkdir(parents=True, exist_ok=True)
    for each in fresh.iterdir():
        each.replace(into / each.name)
    fresh.rmdir()
    return ""


def spark_jar(name: str) -> Path:
    """A jar that PySpark brings, by the beginning of its name."""
    [found] = (spark_home() / "jars").glob(f"{name}-[0-9]*.jar")
    return found


class JavaProgram:
    """A program of ``java/``, compiled into ``home``."""

    def __init__(
        self, name: str, jars: Iterable[Path], home: Path, flags: Iterable[str] = ()
    ) -> None:
        self.name = name
        classpath = os.pathsep.join(map(str, jars))
        source = HERE / "java" / f"{name}.java"
        _run(
            [
                java_tool("javac"),
                "-Xlint:all,-path",
                "-d",
                str(home),
                "-cp",
                classpath,
                str(source),
            ],
            "",
        )
        self.command = [
            java_tool("java"),
            "-Xmx1g",
            *flags,
            "-cp",
            f"{home}{os.pathsep}{classpath}",
            name,
        ]

    def run(self, lines: Iterable[str], *arguments: str | Path) -> str:
        """Standard output of one run, with these lines as its input."""
        text = "".join(f"{line}\n" for line in lines)
        return _run([*self.command, *map(str, arguments)], text)


def _run(command: list[str], text: str) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout
