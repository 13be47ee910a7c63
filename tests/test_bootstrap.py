"""What a newcomer's machine lacks is said in two lines: what is wrong, and what to do about it.

Each test gives the script a PATH of its own with the few tools it uses, and stands-in for `java`
and `python` that answer as real ones do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.folders import ROOT

SCRIPT = ROOT / "tools" / "bootstrap.sh"

JAVA_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)'
JAVA_21 = 'openjdk version "21" 2023-09-19'
JAVA_11 = 'openjdk version "11.0.22" 2024-01-16'
JAVA_8 = 'java version "1.8.0_402"\nJava(TM) SE Runtime Environment (build 1.8.0_402-b08)'
NOISY_17 = f'Picked up JAVA_TOOL_OPTIONS: -Dname="a version"\n{JAVA_17}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder to be the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "sed", "head", "cat"):
        found = shutil.which(tool)
        assert found
        (folder / tool).symlink_to(found)
    return folder


def program(where: Path, says: str, code: int = 0) -> None:
    """An executable that writes to stderr, as `java -version` does, and exits with the code."""
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {code}\n")
    where.chmod(0o755)


def run(path: Path, *step: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(SCRIPT), *step],
        env={"PATH": str(path), **env},
        capture_output=True,
        text=True,
        check=False,
    )


def assert_refused(done: subprocess.CompletedProcess[str], error: str) -> None:
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(lines) == 2, done.stderr
    assert lines[0].startswith("error: ")
    assert error in lines[0]
    assert lines[1].startswith("hint: ")


@pytest.mark.parametrize("says", [JAVA_17, JAVA_21, NOISY_17])
def test_a_new_enough_java_is_silently_right(path: Path, says: str) -> None:
    program(path / "java", says)
    done = run(path, "java")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_java(path: Path) -> None:
    assert_refused(run(path, "java"), "no Java found, and Spark needs Java 17 or newer")


@pytest.mark.parametrize("says, version", [(JAVA_11, "11.0.22"), (JAVA_8, "1.8.0")])
def test_an_old_java(path: Path, says: str, version: str) -> None:
    program(path / "java", says)
    assert_refused(run(path, "java"), f"is version {version}, and Spark needs 17 or newer")


def test_a_java_that_only_says_that_there_is_none(path: Path) -> None:
    program(path / "java", "Unable to locate a Java Runtime.", code=1)
    assert_refused(run(path, "java"), "does not run")


def test_a_java_that_does_not_say_its_version(path: Path) -> None:
    program(path / "java", "hello")
    assert_refused(run(path, "java"), "does not say which version it is")


def test_java_home_is_judged_before_the_path(path: Path, tmp_path: Path) -> None:
    program(path / "java", JAVA_17)
    program(tmp_path / "old jdk" / "bin" / "java", JAVA_11)
    assert_refused(run(path, "java", JAVA_HOME=str(tmp_path / "old jdk")), "JAVA_HOME")
    assert_refused(run(path, "java", JAVA_HOME=str(tmp_path / "gone")), "no bin/java in it")
    program(tmp_path / "new jdk" / "bin" / "java", JAVA_21)
    assert run(path, "java", JAVA_HOME=str(tmp_path / "new jdk")).returncode == 0


def test_make_stops_at_the_java_check(path: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make on this machine")
    done = subprocess.run(
        [make, "-C", str(ROOT), "java"],
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "error: no Java found" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_no_python(path: Path) -> None:
    assert_refused(run(path, "python"), "no Python 3.11 or newer")


def test_shims_that_fail_and_old_pythons_are_passed_over(path: Path, tmp_path: Path) -> None:
    program(path / "python3.13", "pyenv: python3.13: command not found", code=127)
    program(path / "python3", "too old", code=1)
    second = tmp_path / "second"
    second.mkdir()
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    if not base.exists():
        pytest.skip("this Python has no interpreter beside its library")
    (second / "python3").symlink_to(base)
    done = run(Path(f"{path}{os.pathsep}{second}"), "python")
    assert done.stdout == f"{second / 'python3'}\n"
    assert (done.returncode, done.stderr) == (0, "")


def test_a_python_of_ones_choice(path: Path) -> None:
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    if not base.exists():
        pytest.skip("this Python has no interpreter beside its library")
    assert run(path, "python", PYTHON=str(base)).stdout == f"{base}\n"
    program(path / "python3", "too old", code=1)
    assert_refused(run(path, "python", PYTHON="python3"), "PYTHON is python3, which is no Python")


@pytest.mark.parametrize(
    "step, error",
    [
        ([], "unknown step ''"),
        (["jaba"], "unknown step 'jaba'"),
        (["venv"], "needs a directory and what to install"),
        (["venv", "x"], "needs a directory and what to install"),
    ],
)
def test_wrong_use_is_told(path: Path, step: list[str], error: str) -> None:
    assert_refused(run(path, *step), error)


def test_a_failing_pip_is_one_line_more_than_pip_says(path: Path, tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    program(python, "")
    python.write_text('#!/bin/sh\n[ "$1" = -c ]\n')  # usable as a Python, but its pip fails
    done = run(path, "venv", str(tmp_path / "venv"), "nothing")
    assert done.returncode == 1
    assert "error: pip could not install what is needed" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("hint: ")
