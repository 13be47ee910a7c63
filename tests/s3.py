"""An S3 server of our own on loopback, with a bucket per test."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from skipstone.storage.objects import ObjectStorage

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class S3:
    """A bucket: what a test puts there, and the requests that the server saw."""

    client: Any
    bucket: str
    options: dict[str, str]
    seen: list[str] = field(default_factory=list)

    @property
    def base(self) -> str:
        return f"s3://{self.bucket}"

    def fill(self, *keys: str, data: bytes = b"data") -> None:
        for key in keys:
            self.client.put_object(Bucket=self.bucket, Key=key, Body=data)

    def fill_many(self, *keys: str) -> None:
        """The same without a request each: straight into the server's memory."""
        from moto.s3.models import s3_backends

        (backend,) = (b["aws"] for b in s3_backends.values() if self.bucket in b["aws"].buckets)
        for key in keys:
            backend.put_object(self.bucket, key, b"data")

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
def s3_server() -> Iterator[tuple[str, list[str]]]:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    seen: list[str] = []

    class Counting(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            seen.append(f"{self.command} {self.path}")

        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Counting)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def s3(s3_server: tuple[str, list[str]]) -> Iterator[S3]:
    import boto3  # type: ignore[import-untyped]

    endpoint, seen = s3_server
    keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=bucket)
    options = {
        "endpoint": endpoint,
        "access_key_id": "any",
        "secret_access_key": "any",
        "region": "us-east-1",
    }
    yield S3(client, bucket, options, seen)
    client.close()
