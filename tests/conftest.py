"""What every test shares: Hypothesis profiles, the golden folder, one Spark session per worker."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.folders import GOLDEN
from tests.java import set_options
from tests.order import pytest_collection_modifyitems
from tests.spark_servers import spark_cluster, spark_connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["pytest_collection_modifyitems", "spark_cluster", "spark_connect"]  # for pytest


# A shared machine stalls at times, and a session that starts inside an example takes seconds: time
# per example says nothing here, so no profile has a deadline.
_BASE = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# The same examples each time: more of them would find nothing new. `make soak` draws others.
settings.register_profile("ci", _BASE, max_examples=20, derandomize=True, database=None)
settings.register_profile("dev", _BASE, max_examples=40)
settings.register_profile("many", _BASE, max_examples=400)
settings.register_profile("fuzz", _BASE, max_examples=5_000)
settings.register_profile("soak", _BASE, max_examples=50_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Workers must run this Python: Spark takes "python3" of the PATH otherwise. Loopback, because a
# host name that does not resolve would stop the driver. Set before anything starts a session.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# gRPC restarts its threads in a forked child. If PySpark starts Java in a worker that has talked to
# a Connect server, these threads now and then end the child before Java runs.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
set_options()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that need a server of Spark Connect are in `make long`: each worker would start one."""
    assert isinstance(item, pytest.Function)
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    routes = [each for each in given if isinstance(each, str)]
    if "spark_connect" in item.fixturenames or "connect" in routes:
        item.add_marker(pytest.mark.long)


def pytest_collection_finish() -> None:
    """Thousands of tests stay until the end: no collection of garbage looks at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of files that real systems wrote; the test skips where it is absent."""
    if not GOLDEN.is_dir():
        pytest.skip("no golden files: ../shared/golden is absent")
    return GOLDEN


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One classic session per worker process: local[2], 1 GiB, UTC, no UI."""
    from pyspark.sql import SparkSession

    home = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("skipstone tests")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
