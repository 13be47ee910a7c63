"""Spark's own client mode on Kubernetes, whose API is imitated: executors are processes that Spark
asks for as pods, with names and addresses of their own.

No container isolates them: that executors may share no folder is tested on a standalone cluster.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from tests.interop.kubernetes import fake_kubernetes
from tests.interop.test_archives import LOSING, SURVIVED, lay_out, run
from tests.spark_servers import environment, spark_home

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.spark]


def test_client_mode_loses_a_pod(tmp_path: Path) -> None:
    table, out, marker = (tmp_path / each for each in ("lake", "out.json", "killed"))
    lay_out(table)
    (tmp_path / "job.py").write_text(LOSING)
    confs = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.instances": "2",
        "spark.executor.memory": "512m",
        "spark.kubernetes.allocation.batch.delay": "1s",
        "spark.kubernetes.container.image": "none",
        "spark.kubernetes.executor.apiPollingInterval": "1s",
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.executor.enableApiWatcher": "false",
        "spark.kubernetes.executor.request.cores": "1",
        "spark.ui.enabled": "false",
    }
    defaults = "".join(f"{key} {value}\n" for key, value in confs.items())
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    env = {**environment(tmp_path), "SPARK_CONF_DIR": str(tmp_path)}
    with fake_kubernetes(tmp_path) as cluster:
        job = (tmp_path / "job.py", table, out, marker)
        run(spark_home() / "bin" / "spark-submit", "--master", cluster.url, *job, **env)
        doctor = (sys.executable, "-m", "skipstone", "doctor", "--spark", "--json")
        said = json.loads(run(*doctor, "--master", cluster.url, **env))
    assert said["ok"]
    text = f"a session at {cluster.url} starts, and its Python workers"
    assert any(each["text"].startswith(text) for each in said["findings"]), said
    found = json.loads(out.read_text())
    assert marker.exists()
    assert len(cluster.names) >= 3, "a new pod has replaced the killed one"
    assert found.pop("master") == cluster.url
    assert found.pop("places")
    assert found == SURVIVED
