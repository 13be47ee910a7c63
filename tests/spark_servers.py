"""Servers for tests: Spark Connect and a standalone cluster, from the pip package, on loopback.

Each runs in processes of its own, on free ports, and is ended by its id.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.folders import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

READY = 120  # seconds; how long a server may take to answer


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spark_home() -> Path:
    """The pip package, which is a whole Spark."""
    import pyspark

    return Path(pyspark.__file__).parent


def environment(home: Path) -> dict[str, str]:
    """What server processes see: this Python, Skipstone importable, loopback only."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *sys.path])
    return {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOG_DIR": str(home),
        "SPARK_WORKER_DIR": str(home / "work"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": path,
    }


class Server:
    """A process of Spark's scripts in a session of its own, so that its children end with it.

    ``within`` is a command that runs it, such as ``setpriv`` with other rights.
    """

    def __init__(self, home: Path, name: str, *command: str, within: Sequence[str] = ()) -> None:
        self.log = home / f"{name}.log"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [*within, str(spark_home() / "bin" / command[0]), *command[1:]],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment(home),
                cwd=home,
                start_new_session=True,
            )

    def wait_for(self, *, port: int | None = None, text: str | None = None) -> None:
        """Return when the server listens on ``port`` or has logged ``text``."""
        end = time.monotonic() + READY
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            if port is not None:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    return
            if text is not None and text in self.log.read_text(errors="replace"):
                return
            time.sleep(0.1)  # between two looks; the loop ends by what it sees
        self.stop()
        raise RuntimeError(f"{self.log.name}:\n{self.log.read_text(errors='replace')[-4000:]}")

    def stop(self) -> None:
        """End the process and its children, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)


def connect_server(home: Path, more: Mapping[str, str] | None = None) -> tuple[Server, str]:
    """A server of Spark Connect that answers, and its address; its files lie in ``home``. It has
    ``more`` settings than others."""
    port = free_port()
    server = Server(
        home,
        "connect",
        "spark-submit",
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--name",
        "skipstone tests: Connect",
        "--master",
        "local[2]",
        "--driver-memory",
        "1g",
        *settings(home, {"spark.connect.grpc.binding.port": str(port), **(more or {})}),
        *_connect_jars(),
        "spark-internal",
    )
    server.wait_for(port=port)
    return server, f"sc://127.0.0.1:{port}"


def _connect_jars() -> list[str]:
    """The PySpark of Spark 3.5 has no server of Connect; Maven has."""
    import pyspark

    if any(spark_home().glob("jars/spark-connect_*.jar")):
        return []
    return ["--packages", f"org.apache.spark:spark-connect_2.12:{pyspark.__version__}"]


@pytest.fixture(scope="session")
def spark_connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of Spark Connect, its server in a process of its own."""
    pytest.importorskip("grpc")
    server, address = connect_server(tmp_path_factory.mktemp("connect"))
    try:
        from pyspark.sql.connect.session import SparkSession as Remote

        session = Remote.builder.remote(address).getOrCreate()
        yield session  # type: ignore[misc]
        session.stop()
    finally:
        server.stop()


@contextlib.contextmanager
def standalone(
    home: Path, workers: int, within: Sequence[str] = ()
) -> Iterator[tuple[str, list[Server]]]:
    """A standalone cluster of workers with two cores and 1 GiB each: its URL, and the workers. The
    command ``within`` runs them. Each has a host of its own: Spark starts no second attempt of a
    task on the host of the first."""
    port = free_port()

    def place(host: int) -> list[str]:
        return ["--host", f"127.0.0.{host}", "--webui-port", "0"]

    package = "org.apache.spark.deploy"
    master = Server(
        home, "master", "spark-class", f"{package}.master.Master", *place(1), "--port", str(port)
    )
    started: list[Server] = []
    try:
        master.wait_for(port=port)
        url = f"spark://127.0.0.1:{port}"
        size = ["--cores", "2", "--memory", "1g"]
        for number in range(workers):
            here = place(number + 1)
            command = ["spark-class", f"{package}.worker.Worker", *here, *size, url]
            started.append(Server(home, f"worker{number}", *command, within=within))
        for worker in started:
            worker.wait_for(text="Successfully registered with master")
        yield url, started
    finally:
        for server in (*reversed(started), master):
            server.stop()


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The master URL of a standalone cluster of one worker."""
    with standalone(tmp_path_factory.mktemp("cluster"), 1) as (url, _):
        yield url


#: the beginning of a driver's script: ``builder`` of a session on the cluster ``sys.argv[1]``
DRIVER = """
import json, sys
from pyspark.sql import SparkSession
builder = (
    SparkSession.builder.master(sys.argv[1])
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.memory", "1g")
    .config("spark.executor.memory", "512m")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
)
"""


def drive(home: Path, script: str, *arguments: object) -> tuple[Any, bytes]:
    """Run a driver's script in a process of its own, because this one has a local session already.

    Returns the JSON value that the script prints after "RESULT ", and all its output.
    """
    done = subprocess.run(
        [sys.executable, "-c", f"{DRIVER}{script}", *map(str, arguments)],
        env=environment(home),
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:].decode()
    (line,) = [each for each in done.stdout.splitlines() if each.startswith(b"RESULT ")]
    return json.loads(line.removeprefix(b"RESULT ")), done.stdout + done.stderr


def settings(home: Path, more: dict[str, str]) -> list[str]:
    """``--conf`` arguments: those of the classic test session, and ``more``."""
    confs = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.local.dir": str(home / "local"),
        **more,
    }
    return [part for key, value in confs.items() for part in ("--conf", f"{key}={value}")]
