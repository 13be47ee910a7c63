"""An S3 server on loopback behind a proxy: every request takes some time longer, and is recorded.

`python -m bench.s3_server DELAY_MS` prints the port of the proxy and serves until its input ends.
The server is moto, in a process of its own, or the one that `BENCH_S3_SERVER` names: the host and
port of a server that takes the keys in `BENCH_S3_KEYS` (`ID:SECRET`). `GET /-/seen` gives the
requests since the last such call as JSON: method, target, range, bytes of the answer, and when each
came in and went out, in seconds of the monotonic clock that all processes share.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["Seen", "Server", "depth", "serving", "upload"]

_SEEN = "/-/seen"
_BUFFER = 1 << 26


@dataclass(frozen=True, slots=True)
class Seen:
    """A request, the bytes of its answer, and when the proxy had it and had answered it."""

    method: str
    target: str
    range: str
    started: float
    ended: float
    bytes: int = 0

    @property
    def lists(self) -> bool:
        """Whether it asks which objects there are."""
        return self.method == "GET" and "list-type=" in self.target

    @property
    def kind(self) -> str:
        """``LIST``, or the method."""
        return "LIST" if self.lists else self.method


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
    def endpoint(self) -> str:
        """The address of the proxy."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """Storage options that lead to it."""
        id, _, secret = _keys().partition(":")
        return {
            "endpoint": self.endpoint,
            "access_key_id": id,
            "secret_access_key": secret,
            "region": "us-east-1",
        }

    def seen(self) -> list[Seen]:
        """The requests since the last call."""
        with urllib.request.urlopen(f"{self.endpoint}{_SEEN}") as answer:
            return [Seen(*each) for each in json.load(answer)]


def upload(files: Sequence[Path], bucket: str, prefix: str, server: Server) -> None:
    """Puts files into a bucket, which is made."""
    import boto3  # type: ignore[import-untyped]

    options = server.options
    client = boto3.client(
        "s3",
        endpoint_url=options["endpoint"],
        region_name=options["region"],
        aws_access_key_id=options["access_key_id"],
        aws_secret_access_key=options["secret_access_key"],
    )
    client.create_bucket(Bucket=bucket)
    for each in files:
        client.put_object(Bucket=bucket, Key=f"{prefix}/{each.name}", Body=each.read_bytes())
    client.close()


@contextmanager
def serving(delay_ms: float) -> Iterator[Server]:
    """A server of its own processes: what they compute is not taken from this one's time."""
    command = [sys.executable, "-m", "bench.s3_server", str(delay_ms)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Server(int(process.stdout.readline()))
    finally:
        process.communicate()


def _keys() -> str:
    return os.environ.get("BENCH_S3_KEYS", "any:any")


# -- the server ------------------------------------------------------------------------------------


def _serve_moto() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    server.shutdown()


# -- the proxy -------------------------------------------------------------------------------------


class _Proxy:
    """Passes requests on to ``host`` and ``port``; none but a PUT is answered before ``delay``."""

    def __init__(self, host: str, port: int, delay: float) -> None:
        self.host, self.port, self.delay = host, port, delay
        self.seen: list[tuple[str, str, str, float, float, int]] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection, through one to the server."""
        there: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                started = time.monotonic()
                method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
                if target == _SEEN:
                    told = json.dumps(self.seen).encode()
                    self.seen = []
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(told))
                    writer.write(told)
                    continue
                fields = _fields(head)
                if fields.pop(b"expect", b"") == b"100-continue":
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    head = b"\r\n".join(
                        line for line in head.split(b"\r\n") if not line.lower().startswith(b"expe")
                    )
                body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
                if there is None:
                    there = await asyncio.open_connection(self.host, self.port, limit=_BUFFER)
                there[1].write(head + body)
                answer, content = await _answer(there[0], method)
                if method != "PUT":
                    await asyncio.sleep(max(0.0, started + self.delay - time.monotonic()))
                ended, asked = time.monotonic(), fields.get(b"range", b"").decode()
                self.seen.append((method, target, asked, started, ended, len(content)))
                writer.write(answer + content)
                await writer.drain()
        for each in (writer, there and there[1]):
            if each is not None:
                each.close()


def _fields(head: bytes) -> dict[bytes, bytes]:
    pairs = (line.partition(b":") for line in head.split(b"\r\n")[1:] if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _answer(reader: asyncio.StreamReader, method: str) -> tuple[bytes, bytes]:
    """Head and content of an answer; content in chunks stays as it came."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields = _fields(head)
    if method == "HEAD" or head.split(b" ", 2)[1] in (b"204", b"304"):
        return head, b""
    if fields.get(b"transfer-encoding") != b"chunked":
        return head, await reader.readexactly(int(fields.get(b"content-length", b"0")))
    chunks: list[bytes] = []
    while not chunks or chunks[-1] != b"0\r\n\r\n":
        size = await reader.readuntil(b"\r\n")
        chunks.append(size + await reader.readexactly(int(size, 16) + 2))
    return head, b"".join(chunks)


async def _serve(delay: float, host: str, port: int) -> None:
    proxy = _Proxy(host, port, delay)
    server = await asyncio.start_server(proxy.connected, "127.0.0.1", 0, limit=_BUFFER)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


def _main(delay: float) -> None:
    named = os.environ.get("BENCH_S3_SERVER")
    if named is not None:
        host, _, port = named.rpartition(":")
        asyncio.run(_serve(delay, host, int(port)))
        return
    command = [sys.executable, "-m", "bench.s3_server", "moto"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        asyncio.run(_serve(delay, "127.0.0.1", int(process.stdout.readline())))
    finally:
        process.communicate()


if __name__ == "__main__":
    if sys.argv[1] == "moto":
        _serve_moto()
    else:
        _main(float(sys.argv[1]) / 1e3)
