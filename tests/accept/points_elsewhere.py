"""Points that take servers, killed processes or installed packages: their tests, as they are."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.accept.registry import point
from tests.folders import ROOT

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench


def hold(*tests: str) -> None:
    """Run these tests; the promise is kept when they pass and at least one ran."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-m", "not soak and not interop", *tests),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    last = next(iter(done.stdout.strip().splitlines()[::-1]), "pytest said nothing")
    assert done.returncode == 0, last
    assert " passed" in last, last


@point("reading: under Spark Connect, build runs on the server and read skips")
def connect(bench: Workbench) -> None:
    hold("tests/spark/test_servers.py::test_build_and_read_under_connect")


@point("reading: on a standalone cluster, executors build and a query skips")
def cluster(bench: Workbench) -> None:
    hold("tests/spark/test_cluster.py::test_build_and_query")


@point("object stores: beside the listing a key takes four round trips, and two in later queries")
def round_trips(bench: Workbench) -> None:
    hold("tests/table/test_round_trips.py::test_a_needle")


@point("start: a first query, in Python or in a shell, loads what it needs and no more")
def first_query(bench: Workbench) -> None:
    hold("tests/test_first_query.py")


@point("upkeep: builds that are killed are resumed, and builds at once lose nothing")
def interrupted(bench: Workbench) -> None:
    hold("tests/test_interrupted.py")


@point("indexes: a kind of one's own, as the documentation shows it")
def own_kind(bench: Workbench) -> None:
    hold("tests/indexes/test_registry.py", "-k", "documented")


@point("xskipper: wrong results of the original are not ours")
def wrong_results(bench: Workbench) -> None:
    hold("tests/test_wrong_results_of_the_original.py")


@point("setup: PySpark 3.5, 4.0 and 4.1 run the main job, and a wheel does in a clean environment")
def main_job(bench: Workbench) -> None:
    hold("tests/test_spark_versions.py", "tests/test_wheel.py")
