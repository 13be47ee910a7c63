"""Points about Hadoop's filesystems: their tests, as they are, on a real HDFS and by S3A."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.accept.registry import Missing, point
from tests.folders import ROOT

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench


def hold(words: str, file: str = "test_hdfs.py") -> None:
    """The tests whose names contain ``words``; not tried without the jars."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-m", "interop", f"tests/interop/{file}", "-k", words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines() or ["pytest said nothing"]
    skipped = [line for line in lines if line.startswith("SKIPPED")]
    if done.returncode == 0 and skipped and " passed" not in lines[-1]:
        raise Missing(skipped[0].rpartition(": ")[2])
    assert done.returncode == 0, lines[-1]
    assert " passed" in lines[-1], lines[-1]


@point("hadoop: on HDFS, build, refresh and every way to read give Spark's rows from fewer files")
def tables(bench: Workbench) -> None:
    hold("every_way_to_read or replaced_file_is_read")


@point("hadoop: two writers of one name, and users who may not write or read")
def writers(bench: Workbench) -> None:
    hold("publishers_of_one_name or may_not_do or may_only_read")


@point("hadoop: the command line and format skipstone read HDFS over WebHDFS, without a session")
def without_session(bench: Workbench) -> None:
    hold("without_a_session or over_webhdfs")


@point("hadoop: a listing of many files takes no more calls into the JVM than one of a few")
def listing(bench: Workbench) -> None:
    hold("long_listing")


@point("hadoop: over S3A, the session's configuration is enough to build, skip and read")
def s3a(bench: Workbench) -> None:
    hold("s3a", "test_s3a.py")
