"""An S3 server on loopback whose every request takes some time longer, and that tells what it saw.

`python -m bench.s3_server DELAY_MS` prints its port and serves until its input ends. `GET /-/seen`
gives the requests since the last such call as JSON: method, target, range, and when each came in
and went out, in seconds of the monotonic clock that all processes share.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Seen", "Server", "depth", "serving"]

_SEEN = "/-/seen"


@dataclass(frozen=True, slots=True)
class Seen:
    """A request, and when the server had it and had answered it."""

    method: str
    target: str
    range: str
    started: float
    ended: float

    @property
    def lists(self) -> bool:
        """Whether it asks which objects there are."""
        return self.method == "GET" and "list-type=" in self.target


def depth(requests: Sequence[Seen]) -> int:
    """The most of these that waited for one another: each came in after the last went out."""
    count, free = 0, float("-inf")
    for each in sorted(requests, key=lambda one: one.ended):
        if each.started >= free:
            count, free = count + 1, each.ended
    return count


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs."""

    port: int

    @property
    def options(self) -> dict[str, str]:
        """Storage options that lead to it."""
        return {
            "endpoint": f"http://127.0.0.1:{self.port}",
            "access_key_id": "any",
            "secret_access_key": "any",
            "region": "us-east-1",
        }

    def seen(self) -> list[Seen]:
        """The requests since the last call."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{_SEEN}") as answer:
            return [Seen(*each) for each in json.load(answer)]


@contextmanager
def serving(delay_ms: float) -> Iterator[Server]:
    """A server of its own process: what it computes is not taken from this one's time."""
    command = [sys.executable, "-m", "bench.s3_server", str(delay_ms)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Server(int(process.stdout.readline()))
    finally:
        process.communicate()


def _serve(delay: float) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    inner = DomainDispatcherApplication(create_backend_app)
    seen: list[tuple[str, str, str, float, float]] = []

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == _SEEN:
            told = json.dumps(seen).encode()
            seen.clear()
            headers = [("Content-Length", str(len(told)))]
            start_response("200 OK", headers)
            return [told]
        started = time.monotonic()
        if environ["REQUEST_METHOD"] != "PUT":
            time.sleep(delay)
        answer = list(inner(environ, start_response))
        target = f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        asked = environ.get("HTTP_RANGE", "")
        seen.append((environ["REQUEST_METHOD"], target, asked, started, time.monotonic()))
        return answer

    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    _serve(float(sys.argv[1]) / 1e3)
