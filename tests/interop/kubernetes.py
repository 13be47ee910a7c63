"""As much of the API of Kubernetes as Spark's client mode calls: pods are made, listed and deleted.

A pod is a process of this machine, with the arguments that the image's ``entrypoint.sh`` gives.
Each has an address of loopback, a name and a directory of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.interop.java_systems import java_tool
from tests.spark_servers import environment, spark_home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"


@dataclass
class Cluster:
    """The pods by name, each with its process; ``url`` as ``--master`` takes it."""

    home: Path
    url: str = ""
    pods: dict[str, tuple[dict[str, Any], subprocess.Popen[bytes]]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def create(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Start the one container of a pod."""
        name = pod["metadata"]["name"]
        here = self.home / name
        here.mkdir()
        [container] = pod["spec"]["containers"]
        address = f"127.0.0.{len(self.names) + 2}"
        env = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        env |= {"SPARK_EXECUTOR_POD_IP": address, "SPARK_LOCAL_DIRS": str(here)}
        options = [env[key] for key in sorted(env) if key.startswith("SPARK_JAVA_OPT_")]
        arguments = {
            "driver-url": env["SPARK_DRIVER_URL"],
            "executor-id": env["SPARK_EXECUTOR_ID"],
            "cores": env["SPARK_EXECUTOR_CORES"],
            "app-id": env["SPARK_APPLICATION_ID"],
            "hostname": address,
            "resourceProfileId": env["SPARK_RESOURCE_PROFILE_ID"],
            "podName": name,
        }
        command = [java_tool("java"), *options, "-Xmx512m", "-cp", f"{spark_home()}/jars/*"]
        command += [_BACKEND, *(part for k, v in arguments.items() for part in (f"--{k}", v))]
        with (here / "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=here,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**environment(here), **env},
                start_new_session=True,
            )
        pod["metadata"] |= {"uid": name, "resourceVersion": "1", "namespace": "default"}
        pod["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        pod["status"] = {"podIP": address}
        with self.lock:
            self.names.append(name)
            self.pods[name] = pod, process
        return self.shown(name)

    def shown(self, name: str) -> dict[str, Any]:
        """A pod and its state now."""
        pod, process = self.pods[name]
        code = process.poll()
        state: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        phase = "Running"
        if code is not None:
            phase = "Failed" if code else "Succeeded"
            state = {"terminated": {"exitCode": code & 255, "reason": phase}}
        [container] = pod["spec"]["containers"]
        status = {"name": container["name"], "state": state, "ready": code is None}
        return {**pod, "status": {**pod["status"], "phase": phase, "containerStatuses": [status]}}

    def delete(self, name: str) -> None:
        """End the process of a pod."""
        with self.lock:
            found = self.pods.pop(name, None)
        if found is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(found[1].pid, signal.SIGKILL)
            found[1].wait()


@contextmanager
def fake_kubernetes(home: Path) -> Iterator[Cluster]:
    """An API server until the end of the block; then no pod is left."""
    cluster = Cluster(home)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing: the log of requests is noise."""

        def answer(self, found: dict[str, Any], status: int = 200) -> None:
            data = json.dumps({"apiVersion": "v1", **found}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def named(self) -> str:
            """The pod that a request names; "" where it is about all."""
            _, pods, name = urlsplit(self.path).path.rpartition("/pods")
            assert pods, self.path
            return name.strip("/")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert body["kind"] == "Pod", body
            self.answer(cluster.create(body))

        def do_GET(self) -> None:
            name = self.named()
            with cluster.lock:
                if name in cluster.pods:
                    return self.answer(cluster.shown(name))
                if name:
                    return self.answer({"kind": "Status", "status": "Failure", "code": 404}, 404)
                pods = [cluster.shown(name) for name in cluster.pods]
            metadata = {"resourceVersion": "1"}
            return self.answer({"kind": "PodList", "metadata": metadata, "items": pods})

        def do_PATCH(self) -> None:
            self.do_DELETE()

        def do_DELETE(self) -> None:
            if length := int(self.headers.get("Content-Length") or 0):
                self.rfile.read(length)
            name = self.named()
            for each in [name] if name else list(cluster.pods):
                cluster.delete(each)
            self.answer({"kind": "Status", "status": "Success"})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cluster.url = f"k8s://http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
        for name in list(cluster.pods):
            cluster.delete(name)
