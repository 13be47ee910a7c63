"""Faults of an object store: a proxy on loopback between a verb and an S3 server.

A step is a request. The proxy counts the requests of a trial; at one of them, and also at all later
requests for the same object where the fault lasts, it answers as broken stores and networks do. The
server and the proxy run in a process of their own, so that every trial is a fork without threads.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from skipstone.storage.objects import ObjectStorage
from tests.faults.trees import Entry, plain
from tests.faults.trials import Fault, Total, Trials
from tests.folders import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.faults.cases import Case
    from tests.faults.shim import Shim

BUCKET = "faults"
HOME = f"s3://{BUCKET}"
ONCE, LASTING = 1, 2
#: an answer with a status; the connection is reset before, or after the store did what it was
#: asked; half a body; half a body and a length that agrees; a late answer; another version; the
#: object is replaced by another one with the same rows
STATUS, RESET, LOST, CUT, SHORT, SLOW, ETAG, REPLACED = range(8)
#: seconds: a client waits less than a late answer takes
PATIENCE, LATE = 2.0, 2.5

_ONCE = (
    Fault("S3: 500", ONCE, STATUS, 500),
    Fault("S3: 503", ONCE, STATUS, 503),
    Fault("S3: reset", ONCE, RESET),
    Fault("S3: reset after the request", ONCE, LOST),
    Fault("S3: cut body", ONCE, CUT),
    Fault("S3: short body", ONCE, SHORT),
    Fault("S3: slow answer", ONCE, SLOW),
    Fault("S3: changed etag", ONCE, ETAG),
    Fault("S3: replaced object", ONCE, REPLACED),
)
_LASTING = tuple(
    Fault(each.name, LASTING, each.action, each.value) for each in (*_ONCE[:6], _ONCE[7])
)
FAULTS = (*_ONCE, *_LASTING)


# -- the process of the server and the proxy ------------------------------------------------------


class Gate:
    """Counts requests, and says which fault one of them meets."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.disarm()
        self.count = self.hits = 0
        self.last = ""

    def arm(self, what: int, action: int, step: int, value: int) -> None:
        with self.lock:
            self.what, self.action, self.step, self.value = what, action, step, value
            self.count = self.hits = 0
            self.last, self.target, self.armed = "", "", True

    def disarm(self) -> None:
        self.armed, self.what, self.action, self.step, self.value = False, 0, 0, -1, 0
        self.target = ""

    def at(self, method: str, path: str) -> int | None:
        """The fault of this request."""
        name, has_body = named(path), method in ("GET", "POST")
        with self.lock:
            if not self.armed:
                return None
            found = self.count == self.step
            self.count += 1
            if not found:
                again = self.what == LASTING and self.hits and self.target == f"{method} {name}"
                return self.action if again else None
            listed = "list-type" in path
            if self.action in (CUT, SHORT) and not has_body:
                return None
            if self.action == ETAG and (listed or method not in ("GET", "HEAD")):
                return None
            if self.action == REPLACED and (listed or "/t/" not in path):
                return None
            self.hits, self.target, self.last = 1, f"{method} {name}", f"{method} {name}"
            return self.action


def named(path: str) -> str:
    """The object that a request is about; for a listing its prefix."""
    parts = urlsplit(path)
    key = unquote(parts.path).removeprefix(f"/{BUCKET}").strip("/")
    prefix = parse_qs(parts.query).get("prefix", [""])[0]
    return f"{HOME}/{key or prefix}".rstrip("/")


def bucket() -> Any:
    """The bucket in the memory of the server."""
    from moto.s3.models import s3_backends

    return next(b["aws"] for b in s3_backends.values() if BUCKET in b["aws"].buckets)


class Objects:
    """What lies in the bucket, and how it is put back with its times."""

    def __init__(self) -> None:
        self.saved: dict[str, tuple[Any, bytes, Any]] = {}

    def do(self, what: str) -> list[str]:
        backend = bucket()
        there = dict(backend.buckets[BUCKET].keys.items())
        if what == "save":
            self.saved = {n: (key, key.value, key.last_modified) for n, key in there.items()}
        elif what == "restore":
            for name in there.keys() - self.saved.keys():
                backend.buckets[BUCKET].keys.pop(name)
            for name, (key, data, modified) in self.saved.items():
                if there.get(name) is not key:
                    made = backend.put_object(BUCKET, name, data)
                    made.last_modified = modified
                    self.saved[name] = made, data, modified
        elif what == "clear":
            for name in there:
                backend.buckets[BUCKET].keys.pop(name)
        return sorted(there)

    def replace(self, name: str) -> None:
        """Another version of a data file, with the same rows."""
        import io

        import pyarrow.parquet as pq

        backend, key = bucket(), name.removeprefix(f"{HOME}/")
        held = backend.buckets[BUCKET].keys.get(key)
        if held is None or not key.endswith(".parquet"):
            return
        out = io.BytesIO()
        pq.write_table(pq.read_table(io.BytesIO(held.value)), out, compression="none")
        backend.put_object(BUCKET, key, out.getvalue())


GATE, OBJECTS = Gate(), Objects()


class Proxy(BaseHTTPRequestHandler):
    """Passes requests on to ``server.behind``, and their answers back."""

    protocol_version = "HTTP/1.1"
    # One packet an answer: two would wait for each other.
    wbufsize = -1
    disable_nagle_algorithm = True
    behind: tuple[str, int] = ("127.0.0.1", 0)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def finish(self) -> None:
        with suppress(OSError, ValueError):
            super().finish()

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/-/control":
            self.answer(200, {}, json.dumps(self.control(json.loads(body))).encode())
            return
        action = GATE.at(self.command, self.path)
        if action == STATUS:
            text = "SlowDown" if GATE.value == 503 else "InternalError"
            page = f"<Error><Code>{text}</Code><Message>try again</Message></Error>"
            self.answer(GATE.value, {"Content-Type": "application/xml"}, page.encode())
            return
        if action == RESET:
            self.reset()
            return
        if action == REPLACED:
            OBJECTS.replace(named(self.path))
        if action == SLOW:
            time.sleep(LATE)
        status, headers, data = self.asked(body)
        if action == LOST:
            self.reset()
        elif action == CUT:
            self.answer(status, headers, data[: len(data) // 2], length=len(data))
            self.reset()
        elif action == SHORT:
            self.answer(status, headers, data[: len(data) // 2])
        elif action == ETAG:
            changed = {n: '"of-another"' if n.lower() == "etag" else v for n, v in headers.items()}
            self.answer(status, changed, data)
        else:
            self.answer(status, headers, data)

    def asked(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(*self.behind)
        headers = {n: v for n, v in self.headers.items() if n.lower() != "connection"}
        connection.request(self.command, self.path, body or None, headers)
        found = connection.getresponse()
        data = found.read()
        connection.close()
        own = ("connection", "transfer-encoding", "date", "server")
        return found.status, {n: v for n, v in found.getheaders() if n.lower() not in own}, data

    def answer(
        self, status: int, headers: Mapping[str, str], data: bytes, length: int | None = None
    ) -> None:
        with suppress(ConnectionError):
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() != "content-length" or self.command == "HEAD":
                    self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(data) if length is None else length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)
            self.wfile.flush()

    def reset(self) -> None:
        """Close the connection so that the other side sees a reset."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())

    def control(self, asked: dict[str, Any]) -> Any:
        match asked["do"]:
            case "arm":
                GATE.arm(asked["what"], asked["action"], asked["step"], asked["value"])
            case "disarm":
                GATE.armed = False
            case "state":
                return {"count": GATE.count, "hits": GATE.hits, "last": GATE.last}
            case what:
                return OBJECTS.do(what)
        return None

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def shutdown_request(self, request: Any) -> None:
        with suppress(OSError):
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that waits no longer


def serve() -> None:
    """Start both, print the proxy's port, and end with the input."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Silent(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    app = DomainDispatcherApplication(create_backend_app)
    store = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Silent)
    proxy = QuietServer(("127.0.0.1", 0), Proxy)
    Proxy.behind = ("127.0.0.1", store.server_port)
    for each in (store, proxy):
        threading.Thread(target=each.serve_forever, daemon=True).start()
    made = http.client.HTTPConnection(*Proxy.behind)
    made.request("PUT", f"/{BUCKET}")
    assert made.getresponse().status == 200
    print(proxy.server_port, flush=True)
    sys.stdin.read()


# -- the trials -----------------------------------------------------------------------------------


class Server:
    """The process of the server and the proxy, used like the library that counts calls."""

    def __init__(self) -> None:
        code = "from tests.faults.object_store import serve; serve()"
        environment = {n: v for n, v in os.environ.items() if n != "LD_PRELOAD"}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        # What every client of a trial gets: these are read where a table is opened.
        os.environ |= {
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": "us-east-1",
        }

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def control(self, do: str, **more: object) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", "/-/control", json.dumps({"do": do, **more}))
        found = json.loads(connection.getresponse().read())
        connection.close()
        return found

    def arm(self, root: str, what: int, action: int, step: int, value: int = 0) -> None:
        """As ``Shim.arm``."""
        self.control("arm", what=what, action=action, step=step, value=value)

    def disarm(self) -> None:
        """Nothing fails any more."""
        self.control("disarm")

    @property
    def was_hit(self) -> bool:
        return bool(self.control("state")["hits"])

    @property
    def count(self) -> int:
        return int(self.control("state")["count"])

    @property
    def last(self) -> str:
        return str(self.control("state")["last"])


class StoreTrials(Trials):
    """The trials of a case whose table lies in the bucket."""

    def __init__(self, case: Case, server: Server, *, seed: int = 0) -> None:
        super().__init__(case, Path(HOME), cast("Shim", server), seed=seed)
        self.home, self.server = HOME, server
        # Waiting is the client's work and not what is tried: one retry, and little patience.
        at = cast("Any", ObjectStorage.at).__func__
        at.__defaults__ = (1,)

    def clear(self) -> None:
        self.server.control("clear")

    def save(self) -> dict[str, Entry]:
        self.server.control("save")
        return {}

    def reset(self) -> None:
        self.server.control("restore")

    def left(self) -> set[str]:
        return {plain(name) for name in self.server.control("names")}

    def run(self, faults: tuple[Fault, ...] = FAULTS, *, every: int = 1, drawn: int = 0) -> Total:
        """Every ``every``-th request with each fault; nothing is ``drawn``."""
        started = time.monotonic()
        self.learn()
        self.total.requests = max(self.each_step(faults, every).values(), default=0)
        self.total.seconds = time.monotonic() - started
        return self.total

    def after(self, *, whole: bool) -> list[str]:
        """Requests are slow: the result is looked at once, after the next run."""
        return super().after(whole=False)

    def names_what(self, error: BaseException) -> bool:
        """Whether an error names the object of the request that failed, or the listed prefix."""
        told = self.server.last.partition(" ")[2]
        return (told or HOME) in str(error)
