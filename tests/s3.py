"""An S3 server of our own on loopback: a bucket per test, and a gate that counts round trips."""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from skipstone.storage.objects import ObjectStorage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HOUR = timedelta(hours=1)


class Gate:
    """Holds requests until all of a round trip are there.

    A client that sends them one after another waits for an answer that does not come: after a while
    the gate opens, and the test fails.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sizes: tuple[int, ...] = ()
        self._came: list[list[str]] = []
        self._open = True

    @contextmanager
    def trips(self, *sizes: int) -> Iterator[None]:
        """Expects these numbers of requests in each round trip of the block, and none besides."""
        with self._changed:
            self._sizes, self._came, self._open = sizes, [[]], False
        try:
            yield
        finally:
            with self._changed:
                came, self._open = self._came, True
                self._changed.notify_all()
        found = [len(trip) for trip in came if trip]
        shown = "\n".join(f"{at}: {line}" for at, trip in enumerate(came, 1) for line in trip)
        assert found == list(sizes), f"round trips of {found} requests, not {list(sizes)}:\n{shown}"

    def enter(self, line: str) -> None:
        """Called by the server for each request."""
        with self._changed:
            if self._open:
                return
            at = len(self._came) - 1
            self._came[at].append(line)
            if at >= len(self._sizes):
                return  # too many: the test fails
            if len(self._came[at]) == self._sizes[at]:
                self._came.append([])
                self._changed.notify_all()
            elif not self._changed.wait_for(lambda: self._open or len(self._came) > at + 1, 20):
                self._open = True
                self._changed.notify_all()


@dataclass
class S3:
    """A bucket: what a test puts there, and the requests that the server saw."""

    client: Any
    bucket: str
    options: dict[str, str]
    seen: list[str] = field(default_factory=list)
    gate: Gate = field(default_factory=Gate)

    @property
    def base(self) -> str:
        return f"s3://{self.bucket}"

    def fill(self, *keys: str, data: bytes = b"data") -> None:
        """Objects of an hour ago: no build waits for them to settle."""
        kept = self._backend().buckets[self.bucket].keys
        for key in keys:
            self.client.put_object(Bucket=self.bucket, Key=key, Body=data)
            kept[key].last_modified -= _HOUR

    def upload(self, folder: Path, key: str) -> None:
        """All files below a folder, below a key."""
        for each in sorted(folder.rglob("*")):
            if each.is_file():
                self.fill(f"{key}/{each.relative_to(folder)}", data=each.read_bytes())

    def fill_many(self, *keys: str) -> None:
        """Objects of now, without a request each: straight into the server's memory."""
        backend = self._backend()
        for key in keys:
            backend.put_object(self.bucket, key, b"data")

    def _backend(self) -> Any:
        from moto.s3.models import s3_backends

        (found,) = (b["aws"] for b in s3_backends.values() if self.bucket in b["aws"].buckets)
        return found

    def keys(self, prefix: str) -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        return [each["Key"] for each in found.get("Contents", ())]

    def storage(self, **settings: Any) -> ObjectStorage:
        storage = ObjectStorage.at(f"{self.base}/t", self.options)
        return ObjectStorage(storage.base, storage.store, **settings)

    def requests(self) -> list[str]:
        """Method and path of all requests so far, also those of ``fill``."""
        return list(self.seen)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[tuple[str, list[str], Gate]]:
    yield from serve()


def serve() -> Iterator[tuple[str, list[str], Gate]]:
    """The server: its URL, the requests that it saw, and the gate."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    seen: list[str] = []
    gate = Gate()

    class Counting(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            seen.append(f"{self.command} {self.path}")

        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    inner = DomainDispatcherApplication(create_backend_app)

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        asked = f"{environ['PATH_INFO']}?{environ['QUERY_STRING']} {environ.get('HTTP_RANGE', '')}"
        gate.enter(f"{environ['REQUEST_METHOD']} {asked}")
        return inner(environ, start_response)

    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Counting)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen, gate
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def s3(s3_server: tuple[str, list[str], Gate]) -> Iterator[S3]:
    yield from bucket_of(s3_server)


@pytest.fixture(scope="module")
def s3_of_module(s3_server: tuple[str, list[str], Gate]) -> Iterator[S3]:
    """A bucket that the tests of a module share."""
    yield from bucket_of(s3_server)


def bucket_of(s3_server: tuple[str, list[str], Gate], name: str | None = None) -> Iterator[S3]:
    """A new bucket, of a random name if none is given."""
    import boto3  # type: ignore[import-untyped]

    endpoint, seen, gate = s3_server
    keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
    bucket = name or f"bucket-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=bucket)
    options = {
        "endpoint": endpoint,
        "access_key_id": "any",
        "secret_access_key": "any",
        "region": "us-east-1",
    }
    yield S3(client, bucket, options, seen, gate)
    client.close()
