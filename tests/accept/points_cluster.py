"""Points about clusters as they are: their tests, as they are, on Spark's standalone cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.accept.points_hadoop import hold
from tests.accept.registry import point

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench


@point("cluster: tasks that are tried again, or twice at once, publish each file once")
def attempts(bench: Workbench) -> None:
    hold("publishes_once", "test_cluster.py")


@point("cluster: executors that may not write the index end the build with a sentence")
def rights(bench: Workbench) -> None:
    hold("may_not_write", "test_cluster.py")


@point("cluster: executors that share only an object store build, skip and read, as pods do")
def apart(bench: Workbench) -> None:
    hold("share_no_folder", "test_cluster.py")


@point("cluster: dynamic allocation builds from no executor, and they go again")
def allocation(bench: Workbench) -> None:
    hold("come_and_go", "test_cluster.py")


@point("cluster: Python workers stay within spark.executor.pyspark.memory")
def memory(bench: Workbench) -> None:
    hold("little_memory", "test_cluster.py")


@point("cluster: an environment made from the wheel, in --archives, is all that a job brings")
def archives(bench: Workbench) -> None:
    hold("archive", "test_archives.py")
